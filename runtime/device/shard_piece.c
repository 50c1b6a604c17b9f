/* Pieces of logical tensors: which ones a rank holds, copying between them, gathering.

   All of it follows from the tables and a rank's number, so every rank knows what every other
   holds and nothing but numbers travels. Blocks of a split dim are equal, or several chunks each;
   several axes on one dim count major first. Must not: allocate, but for the logical program and
   the staging of a gather. */
#include "shard_piece.h"
#include "ir/support/num.h"
#include <stdlib.h>
#include <string.h>

/* ---- what a rank holds ---- */

static int64_t coordinate(const rt_program *program, int axis, int rank) {
  return rank / program->mesh[axis].stride % program->mesh[axis].size;
}

static int64_t chunks_of(const rt_tensor *tensor) { return tensor->chunks ? tensor->chunks : 1; }

/* Chunks are of the first dim. */
static Piece box_of(const rt_program *program, const rt_tensor *tensor, int rank, int64_t chunk) {
  Piece piece = {.in = tensor, .rank = tensor->rank};
  int64_t block[RT_MAX_RANK] = {0};
  for (int i = 0; i < tensor->nsplits; i++) {
    int dim = tensor->split[i].dim, axis = tensor->split[i].axis;
    block[dim] = block[dim] * program->mesh[axis].size + coordinate(program, axis, rank);
    if (!dim && tensor->chunks) block[dim] += chunk * program->mesh[axis].size;
  }
  for (int i = 0; i < tensor->rank; i++) {
    int64_t size = i ? tensor->size[i] : tensor->size[i] / chunks_of(tensor);
    piece.begin[i] = block[i] * size + (i ? 0 : tensor->first);
    piece.end[i] = piece.begin[i] + size;
  }
  piece.to = rt_piece_count(&piece);
  return piece;
}

int64_t rt_piece_count(const Piece *piece) {
  int64_t n = 1;
  for (int i = 0; i < piece->rank; i++) n *= piece->end[i] - piece->begin[i];
  return n;
}

/* Is the rank on a stage that has the tensor? */
static bool holds(const rt_program *program, const rt_tensor *tensor, int rank) {
  if (tensor->stages == RT_STAGES_ALL) return true;
  int64_t at = coordinate(program, program->stage_axis, rank),
          end = program->mesh[program->stage_axis].size - 1;
  return (at == 0 && tensor->stages != RT_STAGES_LAST) ||
         (at == end && tensor->stages != RT_STAGES_FIRST);
}

/* In its group: where the tensor begins, or its chunk, if rounds have no groups of their own. */
static int64_t flat_begin(const PieceWalk *walk, int64_t count) {
  const rt_flat *flat = walk->t->flat;
  return flat->begin + (flat->rounds == 1 ? walk->chunk * count : 0);
}

PieceWalk rt_pieces(const rt_program *program, const rt_tensor *tensor, int rank) {
  return (PieceWalk){program, tensor, rank, 0, 0, 0};
}

/* The share of this rank in bucket w->bucket of round w->round, cut to the tensor's `count`
   elements of this bucket. */
static bool share(const PieceWalk *walk, int64_t rounds, int64_t count, Piece *piece) {
  const rt_flat *flat = walk->t->flat;
  int64_t mine = 0, own = flat->bucket, begin = flat_begin(walk, count);
  for (int i = 0; i < flat->naxes; i++) {
    int64_t n = walk->p->mesh[flat->axis[i]].size;
    mine = mine * n + coordinate(walk->p, flat->axis[i], walk->rank), own /= n;
  }
  int64_t bucket = begin / flat->bucket + walk->bucket, first = bucket * flat->bucket + mine * own,
          from = max_i64(first, begin), to = min_i64(first + own, begin + count);
  if (from >= to) return false;
  int64_t round = walk->round + (flat->rounds == 1 ? 0 : walk->chunk * rounds);
  piece->from = walk->round * count + from - begin;
  piece->to = walk->round * count + to - begin;
  piece->at = round * flat->shard + bucket * own + from - first;
  return true;
}

/* The next share of the chunk. */
static bool next_share(PieceWalk *walk, Piece *piece) {
  const rt_flat *flat = walk->t->flat;
  int64_t rounds = flat->rounds == 1 ? 1 : flat->rounds / chunks_of(walk->t),
          count = piece->to / rounds, begin = flat_begin(walk, count);
  while (walk->round < rounds) {
    bool some = share(walk, rounds, count, piece);
    if ((begin / flat->bucket + ++walk->bucket) * flat->bucket >= begin + count)
      walk->round++, walk->bucket = 0;
    if (some) return true;
  }
  return false;
}

/* The next piece of the walk's tensor, or of the part. */
static bool next_here(PieceWalk *walk, Piece *piece) {
  bool held = holds(walk->p, walk->t, walk->rank);
  for (; held && walk->chunk < chunks_of(walk->t); walk->chunk++, walk->round = 0) {
    *piece = box_of(walk->p, walk->t, walk->rank, walk->chunk);
    if (walk->t->flat && next_share(walk, piece)) return true;
    if (walk->t->flat || walk->round++ || piece->to <= 0) continue;
    piece->at = walk->chunk * piece->to;
    return true;
  }
  return false;
}

bool rt_piece_next(PieceWalk *walk, Piece *piece) {
  while (!next_here(walk, piece)) {
    if (!walk->t->rest) return false;
    *walk = rt_pieces(walk->p, walk->t + walk->t->rest, walk->rank);
  }
  return true;
}

Piece rt_piece_whole(const rt_program *program, const rt_tensor *tensor) {
  Piece piece = {.rank = tensor->rank};
  for (int i = 0; i < tensor->rank; i++) piece.end[i] = rt_whole_size(program, tensor, i);
  piece.to = rt_piece_count(&piece);
  return piece;
}

/* some dims are longer than they seem */
static bool rt_is_padded(const rt_tensor *tensor) {
  for (int i = 0; i < tensor->rank; i++)
    if (tensor->logical[i]) return true;
  return false;
}

bool rt_is_placed(const rt_tensor *tensor) {
  return tensor->nsplits || tensor->flat || tensor->layers || tensor->stages != RT_STAGES_ALL ||
         rt_is_padded(tensor);
}

int64_t rt_whole_size(const rt_program *program, const rt_tensor *tensor, int dim) {
  int64_t n = tensor->size[dim];
  if (tensor->logical[dim]) return tensor->logical[dim];
  if (!dim && tensor->layers) return tensor->layers;
  for (int i = 0; i < tensor->nsplits; i++)
    if (tensor->split[i].dim == dim) n *= program->mesh[tensor->split[i].axis].size;
  return n;
}

int64_t rt_whole_count(const rt_program *program, const rt_tensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->rank; i++) n *= rt_whole_size(program, tensor, i);
  return n;
}

static rt_tensor whole_tensor(const rt_program *program, const rt_tensor *t) {
  rt_tensor w = *t;
  for (int i = 0; i < t->rank; i++) w.size[i] = rt_whole_size(program, t, i);
  w.bytes = rt_whole_count(program, t) * rt_elem_bytes(t->elem), w.nsplits = 0, w.flat = NULL,
  w.chunks = 0, w.stages = RT_STAGES_ALL, w.first = w.layers = w.rest = 0;
  memset(w.logical, 0, sizeof w.logical);
  return w;
}

/* The number of elements that box b, a part of box a, has among the first n elements of a. */
static int64_t among_first(const Piece *a, const Piece *b, int64_t n) {
  int64_t below = rt_piece_count(a), inside = rt_piece_count(b), sum = 0;
  if (n >= below) return inside;
  for (int i = 0; i < a->rank && inside; i++) {
    int64_t have = b->end[i] - b->begin[i];
    below /= a->end[i] - a->begin[i], inside /= have;
    int64_t at = a->begin[i] + n / below;
    sum += (at < b->begin[i] ? 0 : min_i64(at - b->begin[i], have)) * inside;
    if (at < b->begin[i] || at >= b->end[i]) return sum;
    n %= below;
  }
  return sum;
}

Piece rt_piece_logical(const rt_program *program, const rt_tensor *tensor, const Piece *b) {
  Piece c = *b;
  if (!rt_is_padded(tensor)) return c;
  for (int i = 0; i < c.rank; i++) {
    int64_t end = rt_whole_size(program, tensor, i);
    c.end[i] = min_i64(c.end[i], end), c.begin[i] = min_i64(c.begin[i], end);
  }
  c.from = among_first(b, &c, b->from), c.to = among_first(b, &c, b->to);
  return c;
}

/* The padding that a single rank of a GPU may hold is ignored. */
static bool all_whole(const rt_program *program) {
  for (int i = 0; i < program->ntensors; i++)
    if (rt_is_placed(&program->tensors[i])) return false;
  return true;
}

const rt_program *rt_whole_program(const rt_program *program) {
  if (all_whole(program)) return program;
  rt_program *whole = rt_alloc(sizeof *whole);
  rt_tensor *tensors = rt_alloc(sizeof *tensors * (size_t)program->ntensors);
  for (int i = 0; i < program->ntensors; i++)
    tensors[i] = whole_tensor(program, &program->tensors[i]);
  *whole = *program, whole->tensors = tensors;
  return whole;
}

void rt_whole_free(const rt_program *whole, const rt_program *program) {
  if (whole == program) return;
  free((void *)whole->tensors);
  free((void *)whole);
}

bool rt_is_writer(const rt_program *program, const rt_tensor *tensor, int rank) {
  if (!holds(program, tensor, rank)) return false;
  for (int axis = 0; axis < program->naxes; axis++) {
    bool one = tensor->stages == RT_STAGES_FIRST || tensor->stages == RT_STAGES_LAST;
    bool splits = one && axis == program->stage_axis;
    for (int i = 0; tensor->flat && i < tensor->flat->naxes; i++)
      splits |= tensor->flat->axis[i] == axis;
    for (int i = 0; i < tensor->nsplits; i++) splits = splits || tensor->split[i].axis == axis;
    if (!splits && coordinate(program, axis, rank)) return false;
  }
  return true;
}

/* ---- copying ---- */

/* Joins a dim that both boxes cover alike with the dim before it, for longer runs. */
static void join_dims(Piece *a, Piece *b) {
  while (a->rank > 1) {
    int i = a->rank - 1;
    int64_t n = a->end[i] - a->begin[i];
    if (a->begin[i] != b->begin[i] || a->end[i] != b->end[i]) return;
    a->begin[i - 1] *= n, a->end[i - 1] *= n, b->begin[i - 1] *= n, b->end[i - 1] *= n;
    a->rank--, b->rank--;
  }
}

static void copy_elements(int from_elem, const char *from, int to_elem, char *to, int64_t n) {
  if (from_elem == to_elem) {
    memcpy(to, from, (size_t)(n * rt_elem_bytes(to_elem)));
    return;
  }
  for (int64_t i = 0; i < n; i++) rt_elem_put(to_elem, to, i, rt_elem_get(from_elem, from, i));
}

/* Element k of box a: its coordinate on the last dim, and where its row begins in box b; false if b
   lacks the row. */
static bool row_in(const Piece *a, int64_t k, const Piece *b, int64_t *last, int64_t *row) {
  int64_t scale = 1, rest = k;
  bool inside = true;
  *row = 0;
  for (int i = a->rank - 1; i >= 0; i--) {
    int64_t n = a->end[i] - a->begin[i], c = a->begin[i] + rest % n;
    rest /= n;
    if (i == a->rank - 1) *last = c;
    else inside = inside && c >= b->begin[i] && c < b->end[i], *row += (c - b->begin[i]) * scale;
    scale *= b->end[i] - b->begin[i];
  }
  return inside;
}

void rt_piece_copy(int from_elem, const void *from, const Piece *source, int to_elem, void *to,
                   const Piece *target) {
  Piece a = *source, b = *target;
  if (!a.rank) a.rank = b.rank = 1, a.begin[0] = b.begin[0] = 0, a.end[0] = b.end[0] = 1;
  join_dims(&a, &b);
  int end = a.rank - 1;
  for (int64_t k = a.from, run; k < a.to; k += run) {
    int64_t last = 0, row = 0;
    bool inside = row_in(&a, k, &b, &last, &row);
    run = min_i64(a.end[end] - last, a.to - k);
    if (!inside) continue;
    int64_t low = max_i64(last, b.begin[end]), high = min_i64(last + run, b.end[end]),
            into = row + low - b.begin[end], cut = max_i64(0, b.from - into);
    int64_t n = min_i64(high - low, b.to - into) - cut;
    if (n <= 0) continue;
    copy_elements(from_elem,
                  (const char *)from + (k - a.from + low - last + cut) * rt_elem_bytes(from_elem),
                  to_elem, (char *)to + (into + cut - b.from) * rt_elem_bytes(to_elem), n);
  }
}

bool rt_piece_cut(Piece *left, int64_t n, Piece *front) {
  *front = *left;
  front->to = left->from + min_i64(left->to - left->from, n);
  left->at += front->to - front->from, left->from = front->to;
  return front->to > front->from;
}

bool rt_piece_apart(const Piece *a, const Piece *b) {
  bool same = true;
  for (int i = 0; i < a->rank; i++) {
    if (a->end[i] <= b->begin[i] || b->end[i] <= a->begin[i]) return true;
    same = same && a->begin[i] == b->begin[i] && a->end[i] == b->end[i];
  }
  return same && (a->to <= b->from || b->to <= a->from);
}

void rt_tensor_take(const Device *d, const rt_tensor *tensor, int elem, const void *data,
                    const Piece *from) {
  PieceWalk walk = rt_pieces(d->program, tensor, rt_comm_rank(d->comm));
  int64_t n = rt_elem_bytes(tensor->elem);
  for (Piece mine, part; rt_piece_next(&walk, &mine);)
    while (rt_piece_cut(&mine, rt_span_most(d, mine.in) / n, &part))
      if (!rt_piece_apart(from, &part))
        rt_piece_copy(elem, data, from, (int)tensor->elem,
                      rt_span_write(d, part.in, part.at * n, (part.to - part.from) * n), &part);
}

void rt_tensor_keep(const Device *d, const rt_tensor *tensor, int elem, const void *whole) {
  Piece all = rt_piece_whole(d->program, tensor);
  rt_tensor_take(d, tensor, elem, whole, &all);
}

Device rt_device_with(const Device *d, const rt_program *whole, const rt_tensor *tensor,
                      void *data) {
  Device view = *d;
  view.program = whole, view.state = NULL;
  view.view[tensor->arena] = (char *)((uintptr_t)data - (uintptr_t)tensor->offset);
  return view;
}

/* ---- gathering ---- */

enum { STAGE = 1 << 18 }; /* elements of each rank at a time */

typedef struct Gather {
  const Device *d;
  const rt_tensor *t;
  int64_t bytes; /* of an element */
  int64_t room;  /* elements of each rank in `send` and `all` */
  char *send, *all, *whole;
  Piece to;
  PieceWalk *walk; /* of all ranks */
  Piece *piece;
} Gather;

/* The next piece of every rank; returns the elements of the longest, 0: there are none. */
static int64_t next_pieces(Gather *gather, int world) {
  int64_t longest = 0;
  for (int i = 0; i < world; i++) {
    if (!rt_piece_next(&gather->walk[i], &gather->piece[i]))
      gather->piece[i].from = gather->piece[i].to = 0;
    longest = max_i64(longest, gather->piece[i].to - gather->piece[i].from);
  }
  return longest;
}

/* Most tensors need little: memory for STAGE elements of all ranks costs more than they do. */
static void make_room(Gather *gather, int world, int64_t n) {
  if (n <= gather->room) return;
  free(gather->send), free(gather->all);
  gather->room = n;
  gather->send = rt_alloc((size_t)(n * gather->bytes));
  gather->all = rt_alloc((size_t)(n * gather->bytes * world));
}

/* Elements at .. at + n - 1 of every rank's piece, as far as it has them. */
static void gather_part(Gather *gather, int world, int64_t at, int64_t n) {
  Comm *c = gather->d->comm;
  Piece *mine = &gather->piece[rt_comm_rank(c)];
  int64_t have = max_i64(0, min_i64(n, mine->to - mine->from - at));
  if (have)
    rt_tensor_copy(gather->d, mine->in, (mine->at + at) * gather->bytes, have * gather->bytes,
                   gather->send);
  rt_comm_gather(c, gather->t->name, gather->send, gather->all, n * gather->bytes);
  for (int i = 0; i < world; i++) {
    Piece part = gather->piece[i];
    part.from += at, part.to = min_i64(part.to, part.from + n);
    if (gather->whole && part.from < part.to && rt_is_writer(gather->d->program, part.in, i))
      rt_piece_copy((int)gather->t->elem, gather->all + i * n * gather->bytes, &part,
                    (int)gather->t->elem, gather->whole, &gather->to);
  }
}

void rt_tensor_gather(const Device *d, const rt_tensor *tensor, void *whole) {
  int world = rt_comm_world(d->comm);
  Gather gather = {.d = d, .t = tensor, .bytes = rt_elem_bytes(tensor->elem), .whole = whole};
  gather.to = rt_piece_whole(d->program, tensor);
  gather.walk = rt_alloc(sizeof *gather.walk * (size_t)world);
  gather.piece = rt_alloc(sizeof *gather.piece * (size_t)world);
  for (int i = 0; i < world; i++) gather.walk[i] = rt_pieces(d->program, tensor, i);
  for (int64_t n; (n = next_pieces(&gather, world)) > 0;) {
    make_room(&gather, world, min_i64(STAGE, n));
    for (int64_t at = 0; at < n; at += STAGE)
      gather_part(&gather, world, at, min_i64(STAGE, n - at));
  }
  free(gather.walk), free(gather.piece), free(gather.send), free(gather.all);
}
