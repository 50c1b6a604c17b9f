/* Pieces of logical tensors: which ones a rank holds, copying between them, gathering.

   All of it follows from the tables and a rank's number, so every rank knows what every other holds
   and nothing but numbers travels. Blocks of a split dim are equal; several axes on one dim count
   major first. Must not: allocate, but for the logical program and the staging of a gather. */
#include "shard_piece.h"
#include "ir/support/num.h"
#include <stdlib.h>
#include <string.h>

/* ---- what a rank holds ---- */

static int64_t coordinate(const rt_program *p, int axis, int rank) {
  return rank / p->mesh[axis].stride % p->mesh[axis].size;
}

static Piece box_of(const rt_program *p, const rt_tensor *t, int rank) {
  Piece b = {.rank = t->rank};
  int64_t block[RT_MAX_RANK] = {0};
  for (int i = 0; i < t->nsplits; i++) {
    int dim = t->split[i].dim, axis = t->split[i].axis;
    block[dim] = block[dim] * p->mesh[axis].size + coordinate(p, axis, rank);
  }
  for (int i = 0; i < t->rank; i++)
    b.begin[i] = block[i] * t->size[i], b.end[i] = b.begin[i] + t->size[i];
  b.to = rt_piece_count(&b);
  return b;
}

int64_t rt_piece_count(const Piece *b) {
  int64_t n = 1;
  for (int i = 0; i < b->rank; i++) n *= b->end[i] - b->begin[i];
  return n;
}

/* Is the rank on a stage that has the tensor? */
static bool holds(const rt_program *p, const rt_tensor *t, int rank) {
  if (t->stages == RT_STAGES_ALL) return true;
  int64_t end = p->mesh[p->stage_axis].size - 1;
  return coordinate(p, p->stage_axis, rank) == (t->stages == RT_STAGES_FIRST ? 0 : end);
}

PieceWalk rt_pieces(const rt_program *p, const rt_tensor *t, int rank) {
  return (PieceWalk){p, t, rank, 0, t->flat ? t->flat->begin / t->flat->bucket : 0};
}

/* The share of this rank in bucket w->bucket of round w->round, cut to the tensor. */
static bool share(const PieceWalk *w, int64_t count, Piece *b) {
  const rt_flat *f = w->t->flat;
  int64_t mine = 0, own = f->bucket;
  for (int i = 0; i < f->naxes; i++) {
    int64_t n = w->p->mesh[f->axis[i]].size;
    mine = mine * n + coordinate(w->p, f->axis[i], w->rank), own /= n;
  }
  int64_t first = w->bucket * f->bucket + mine * own, from = max_i64(first, f->begin),
          to = min_i64(first + own, f->begin + count);
  if (from >= to) return false;
  b->from = w->round * count + from - f->begin, b->to = w->round * count + to - f->begin;
  b->at = w->round * f->shard + w->bucket * own + from - first;
  return true;
}

bool rt_piece_next(PieceWalk *w, Piece *b) {
  const rt_flat *f = w->t->flat;
  *b = box_of(w->p, w->t, w->rank);
  if (!holds(w->p, w->t, w->rank)) return false;
  if (!f) return w->round++ == 0 && b->to > 0;
  int64_t count = b->to / f->rounds;
  while (w->round < f->rounds) {
    bool some = share(w, count, b);
    if (++w->bucket * f->bucket >= f->begin + count) w->round++, w->bucket = f->begin / f->bucket;
    if (some) return true;
  }
  return false;
}

Piece rt_piece_whole(const rt_program *p, const rt_tensor *t) {
  Piece b = {.rank = t->rank};
  for (int i = 0; i < t->rank; i++) b.end[i] = rt_whole_size(p, t, i);
  b.to = rt_piece_count(&b);
  return b;
}

bool rt_is_padded(const rt_tensor *t) {
  for (int i = 0; i < t->rank; i++)
    if (t->logical[i]) return true;
  return false;
}

bool rt_is_placed(const rt_tensor *t) {
  return t->nsplits || t->flat || t->stages != RT_STAGES_ALL || rt_is_padded(t);
}

int64_t rt_whole_size(const rt_program *p, const rt_tensor *t, int dim) {
  int64_t n = t->size[dim];
  if (t->logical[dim]) return t->logical[dim];
  for (int i = 0; i < t->nsplits; i++)
    if (t->split[i].dim == dim) n *= p->mesh[t->split[i].axis].size;
  return n;
}

int64_t rt_whole_count(const rt_program *p, const rt_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= rt_whole_size(p, t, i);
  return n;
}

static rt_tensor whole_tensor(const rt_program *p, const rt_tensor *t) {
  rt_tensor w = *t;
  for (int i = 0; i < t->rank; i++) w.size[i] = rt_whole_size(p, t, i);
  w.bytes = rt_whole_count(p, t) * rt_elem_bytes(t->elem), w.nsplits = 0, w.flat = NULL,
  w.stages = RT_STAGES_ALL;
  memset(w.logical, 0, sizeof w.logical);
  return w;
}

/* Of the first n elements of box a, how many box b has, which is a part of it. */
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

Piece rt_piece_logical(const rt_program *p, const rt_tensor *t, const Piece *b) {
  Piece c = *b;
  if (!rt_is_padded(t)) return c;
  for (int i = 0; i < c.rank; i++) {
    int64_t end = rt_whole_size(p, t, i);
    c.end[i] = min_i64(c.end[i], end), c.begin[i] = min_i64(c.begin[i], end);
  }
  c.from = among_first(b, &c, b->from), c.to = among_first(b, &c, b->to);
  return c;
}

/* One rank of a GPU may hold padding, too. */
static bool all_whole(const rt_program *p) {
  for (int i = 0; i < p->ntensors; i++)
    if (rt_is_placed(&p->tensors[i])) return false;
  return true;
}

const rt_program *rt_whole_program(const rt_program *p) {
  if (all_whole(p)) return p;
  rt_program *whole = rt_alloc(sizeof *whole);
  rt_tensor *tensors = rt_alloc(sizeof *tensors * (size_t)p->ntensors);
  for (int i = 0; i < p->ntensors; i++) tensors[i] = whole_tensor(p, &p->tensors[i]);
  *whole = *p, whole->tensors = tensors;
  return whole;
}

void rt_whole_free(const rt_program *whole, const rt_program *p) {
  if (whole == p) return;
  free((void *)whole->tensors);
  free((void *)whole);
}

bool rt_is_writer(const rt_program *p, const rt_tensor *t, int rank) {
  if (!holds(p, t, rank)) return false;
  for (int axis = 0; axis < p->naxes; axis++) {
    bool splits = t->stages != RT_STAGES_ALL && axis == p->stage_axis;
    for (int i = 0; t->flat && i < t->flat->naxes; i++) splits |= t->flat->axis[i] == axis;
    for (int i = 0; i < t->nsplits; i++) splits = splits || t->split[i].axis == axis;
    if (!splits && coordinate(p, axis, rank)) return false;
  }
  return true;
}

/* ---- copying ---- */

/* A dim that both boxes cover alike is joined with the one in front of it: longer runs. */
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

void rt_tensor_take(const Device *d, const rt_tensor *t, int elem, const void *data,
                    const Piece *from) {
  PieceWalk w = rt_pieces(d->program, t, rt_comm_rank(d->comm));
  int64_t n = rt_elem_bytes(t->elem), most = rt_span_most(d, t) / n;
  for (Piece mine, part; rt_piece_next(&w, &mine);)
    while (rt_piece_cut(&mine, most, &part))
      if (!rt_piece_apart(from, &part))
        rt_piece_copy(elem, data, from, (int)t->elem,
                      rt_span_write(d, t, part.at * n, (part.to - part.from) * n), &part);
}

void rt_tensor_keep(const Device *d, const rt_tensor *t, int elem, const void *whole) {
  Piece all = rt_piece_whole(d->program, t);
  rt_tensor_take(d, t, elem, whole, &all);
}

Device rt_device_with(const Device *d, const rt_program *whole, const rt_tensor *t, void *data) {
  Device view = *d;
  view.program = whole, view.state = NULL;
  view.view[t->arena] = (char *)((uintptr_t)data - (uintptr_t)t->offset);
  return view;
}

/* ---- gathering ---- */

enum { STAGE = 1 << 18 }; /* elements of each rank at a time */

typedef struct Gather {
  const Device *d;
  const rt_tensor *t;
  int64_t bytes; /* of an element */
  char *send, *all, *whole;
  Piece to;
  PieceWalk *walk; /* of all ranks */
  Piece *piece;
} Gather;

/* The next piece of every rank; returns the elements of the longest, 0: there are none. */
static int64_t next_pieces(Gather *g, int world) {
  int64_t longest = 0;
  for (int i = 0; i < world; i++) {
    if (!rt_piece_next(&g->walk[i], &g->piece[i])) g->piece[i].from = g->piece[i].to = 0;
    longest = max_i64(longest, g->piece[i].to - g->piece[i].from);
  }
  return longest;
}

/* Elements at .. at + n - 1 of every rank's piece, as far as it has them. */
static void gather_part(Gather *g, int world, int64_t at, int64_t n) {
  Comm *c = g->d->comm;
  Piece *mine = &g->piece[rt_comm_rank(c)];
  int64_t have = max_i64(0, min_i64(n, mine->to - mine->from - at));
  rt_tensor_copy(g->d, g->t, (mine->at + at) * g->bytes, have * g->bytes, g->send);
  rt_comm_gather(c, g->t->name, g->send, g->all, n * g->bytes);
  for (int i = 0; i < world; i++) {
    Piece part = g->piece[i];
    part.from += at, part.to = min_i64(part.to, part.from + n);
    if (g->whole && part.from < part.to && rt_is_writer(g->d->program, g->t, i))
      rt_piece_copy((int)g->t->elem, g->all + i * n * g->bytes, &part, (int)g->t->elem, g->whole,
                    &g->to);
  }
}

void rt_tensor_gather(const Device *d, const rt_tensor *t, void *whole) {
  int world = rt_comm_world(d->comm);
  Gather g = {.d = d, .t = t, .bytes = rt_elem_bytes(t->elem), .whole = whole};
  g.to = rt_piece_whole(d->program, t);
  g.walk = rt_alloc(sizeof *g.walk * (size_t)world);
  g.piece = rt_alloc(sizeof *g.piece * (size_t)world);
  for (int i = 0; i < world; i++) g.walk[i] = rt_pieces(d->program, t, i);
  g.send = rt_alloc((size_t)(STAGE * g.bytes));
  g.all = rt_alloc((size_t)(STAGE * g.bytes * world));
  for (int64_t n; (n = next_pieces(&g, world)) > 0;)
    for (int64_t at = 0; at < n; at += STAGE) gather_part(&g, world, at, min_i64(STAGE, n - at));
  free(g.walk), free(g.piece), free(g.send), free(g.all);
}
