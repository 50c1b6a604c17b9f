/* Bulk tensor copies into and out of shared memory: cp.async.bulk.tensor, and the maps that they
 * read.
 *
 * A map's 128 bytes have a format of this machine's own. A copy brings the whole box: elements that
 * the tensor does not have are zeros, rows of 128 bytes are swizzled by their address. A copy out
 * of shared memory leaves them alone.
 *
 * A copy is queued at its issue. Its bytes arrive at once; in late mode when no warp can continue,
 * the newest copy first; with a seed at random times in random order. Until then its words are in
 * flight. On arrival its mbarrier expects that many bytes less. The check for races treats a copy
 * as a warp of its own, which starts with all that the issuing warp has waited for.
 *
 * Out of shared memory bytes go at the issue, in late mode when their thread waits for their group,
 * with a seed at a random time before that. The check for races treats their reads as above; their
 * writes are those of the thread. Both kinds of wait are one: no byte is written later.
 *
 * Must not: know other boxes than rows of 128 swizzled bytes, other maps than parameters. */
#include "ptx_memory.h"
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x746d6170, ROW = 128, PIECE = 16, MOST_BOX = 256, BOTH_FENCES = 3 };

typedef struct Map { /* what the 128 bytes hold */
  uint32_t magic;
  uint8_t rank, element;
  uint16_t box[PTX_TENSOR_RANK];
  uint64_t at, size[PTX_TENSOR_RANK], stride[PTX_TENSOR_RANK - 1];
} Map;
_Static_assert(sizeof(Map) <= PTX_TENSOR_BYTES, "a map has 128 bytes");

struct Copy {
  Copy *next;
  Warp *w;
  const Op *op;
  int lane;
  Map map;
  int32_t from[PTX_TENSOR_RANK];
  uint32_t to, bytes, phase, stamp; /* to: the address in shared memory */
  Signal *signal;
  uint32_t group; /* of its thread, for a copy out of shared memory */
  bool left;      /* its bytes have left shared memory */
};

/* ---- maps ---- */
static const char *wrong_dims(const PtxTensor *t) {
  for (int i = 0; i < t->rank; i++) {
    if (!t->size[i] || t->size[i] > UINT64_C(1) << 32) return "a dim has 1 to 2^32 elements";
    if (!t->box[i] || t->box[i] > MOST_BOX) return "a box has 1 to 256 elements of a dim";
    if (i && (t->stride[i - 1] % PIECE || t->stride[i - 1] >= UINT64_C(1) << 40))
      return "strides are multiples of 16 bytes below 2^40";
  }
  return NULL;
}

const char *ptx_tensor_map(void *out, const PtxTensor *t) {
  if ((uintptr_t)out % 64) return "a map is aligned to 64 bytes";
  if (t->rank < 1 || t->rank > PTX_TENSOR_RANK) return "a map has 1 to 5 dims";
  if (!t->at || t->at % PIECE) return "a tensor begins on a multiple of 16 bytes";
  const char *wrong = wrong_dims(t);
  if (wrong) return wrong;
  if (t->box[0] * (uint64_t)t->element_bytes % PIECE) return "rows of a box are multiples of 16";
  if (t->box[0] * (uint64_t)t->element_bytes > ROW) return "swizzled rows have at most 128 bytes";
  Map map = {MAGIC, (uint8_t)t->rank, (uint8_t)t->element_bytes, {0}, t->at, {0}, {0}};
  for (int i = 0; i < t->rank; i++) map.box[i] = (uint16_t)t->box[i], map.size[i] = t->size[i];
  for (int i = 1; i < t->rank; i++) map.stride[i - 1] = t->stride[i - 1];
  memset(out, 0, PTX_TENSOR_BYTES), memcpy(out, &map, sizeof map);
  return NULL;
}

static bool read_map(Warp *w, const Op *op, int lane, uint64_t at, Map *out) {
  const PtxLaunch *l = w->cta->launch->given;
  uint64_t offset = at - PARAM_WINDOW;
  if (offset >= WINDOW_BYTES || offset % 64 ||
      offset + PTX_TENSOR_BYTES > (uint64_t)l->params_bytes)
    return fault(w, op, lane, "a tensor map at %#llx is no parameter", (unsigned long long)at),
           false;
  memcpy(out, (const char *)l->params + offset, sizeof *out);
  if (out->magic != MAGIC) return fault(w, op, lane, "that parameter is no tensor map"), false;
  if (out->rank != op->n)
    return fault(w, op, lane, "a copy of %d dims, the map has %d", op->n, out->rank), false;
  if (out->box[0] * out->element != ROW)
    return fault(w, op, lane, "rows of %d bytes: only 128 are known", out->box[0] * out->element),
           false;
  return true;
}

/* ---- rows of a box ---- */
typedef struct Row {
  uint64_t at;             /* global address of its first byte that exists */
  uint32_t to, skip, have; /* shared address of the row; bytes before, bytes that exist */
} Row;

static uint32_t rows_of(const Map *map) {
  uint32_t n = 1;
  for (int i = 1; i < map->rank; i++) n *= map->box[i];
  return n;
}

static Row row_of(const Copy *copy, uint32_t number) {
  const Map *map = &copy->map;
  Row row = {.at = map->at, .to = copy->to + number * ROW};
  bool exists = true;
  for (int i = 1; i < map->rank; number /= map->box[i], i++) {
    int64_t at = copy->from[i] + (int64_t)(number % map->box[i]);
    exists &= at >= 0 && (uint64_t)at < map->size[i];
    row.at += (uint64_t)at * map->stride[i - 1];
  }
  int64_t from = copy->from[0], to = from + map->box[0], size = (int64_t)map->size[0];
  int64_t low = from < 0 ? 0 : from, high = to > size ? size : to;
  if (!exists || low >= high) return row;
  row.at += (uint64_t)low * map->element, row.skip = (uint32_t)(low - from) * map->element;
  row.have = (uint32_t)(high - low) * map->element;
  return row;
}

static uint32_t swizzled(uint32_t at) { return at ^ ((at >> 3) & 0x70); }

static bool check_source(const Copy *copy, const Row *row) {
  PtxDevice *d = copy->w->cta->launch->device;
  if (!row->have) return true;
  int i = device_block(d, row->at);
  if (i < 0 || d->blocks[i].bytes - (int64_t)(row->at - d->blocks[i].at) < row->have)
    return fault(copy->w, copy->op, copy->lane, "a copy reads %u bytes at %#llx: out of bounds",
                 row->have, (unsigned long long)row->at),
           false;
  if (!d->o.check) return true;
  Touch t = {.plane = &d->plane, .bytes = row->have, .space = SPACE_GLOBAL, .stamp = copy->stamp};
  t.offset = row->at - d->o.base;
  return touch(copy->w, copy->op, copy->lane, &t);
}

static void mark(Cta *c, const Row *row, bool flying) {
  for (uint32_t i = row->to >> 2; c->shared.cells && i < (row->to + ROW) >> 2; i++)
    c->shared.cells[i].flying = flying ? 15 : 0;
}

static bool check_target(const Copy *copy, const Row *row) {
  Cta *c = copy->w->cta;
  Touch t = {.plane = &c->shared,
             .offset = row->to,
             .bytes = ROW,
             .write = true,
             .space = SPACE_SHARED,
             .stamp = copy->stamp};
  for (uint32_t i = 0; c->shared.cells && i < ROW; i += 4)
    if (!check_fenced(copy->w, copy->op, copy->lane, row->to + i)) return false;
  if (c->launch->device->o.check && !touch(copy->w, copy->op, copy->lane, &t)) return false;
  mark(c, row, true);
  return true;
}

/* ---- arrival ---- */
static void bring_row(const Copy *copy, const Row *row) {
  Cta *c = copy->w->cta;
  const PtxDevice *d = c->launch->device;
  uint8_t bytes[ROW] = {0};
  if (row->have) memcpy(bytes + row->skip, d->plane.data + (row->at - d->o.base), row->have);
  for (uint32_t i = 0; i < ROW; i += PIECE)
    memcpy(c->shared.data + swizzled(row->to + i), bytes + i, PIECE);
  mark(c, row, false);
}

static void bring(Cta *c, const Copy *copy) {
  Signal *s = copy->signal;
  for (uint32_t i = 0, n = rows_of(&copy->map); i < n; i++) {
    Row row = row_of(copy, i);
    bring_row(copy, &row);
  }
  if (s->phase != copy->phase) {
    fault(copy->w, copy->op, copy->lane,
          "the phase of the mbarrier at %#x ended before this copy came: it expected too few bytes",
          s->at);
    return;
  }
  s->bytes -= copy->bytes;
  uint32_t *came = &s->came[owner_in(c)];
  if (copy->stamp + 1 > *came) *came = copy->stamp + 1;
  signal_test(c, s);
}

/* The newest one; with a seed, any. */
bool copies_bring(Cta *c) {
  Copy **at = &c->copies;
  uint32_t n = 0;
  for (const Copy *copy = c->copies; copy; copy = copy->next) n++;
  if (!n) return false;
  for (uint32_t i = launch_draw(c->launch, n); i-- > 0;) at = &(*at)->next;
  Copy *copy = *at;
  *at = copy->next;
  bring(c, copy);
  free(copy);
  return true;
}

/* ---- out of shared memory ---- */
static void leave(Cta *c, Copy *copy) {
  const PtxDevice *d = c->launch->device;
  for (uint32_t i = 0, n = rows_of(&copy->map); i < n && !copy->left; i++) {
    Row row = row_of(copy, i);
    for (uint32_t j = row.skip; j < row.skip + row.have; j++)
      d->plane.data[row.at - d->o.base + j - row.skip] = c->shared.data[swizzled(row.to + j)];
  }
  copy->left = true;
}

void copies_leave(Cta *c) {
  for (Copy *copy = c->leaving; copy; copy = copy->next)
    if (launch_draw(c->launch, 2)) leave(c, copy);
}

/* Bytes of other lanes were fenced before the last barrier of the warp. */
static bool check_met(const Copy *copy, uint32_t at) {
  const Cta *c = copy->w->cta;
  const Cell *cell = c->shared.cells ? &c->shared.cells[at >> 2] : NULL;
  uint32_t of = cell ? (cell->wrote >> 5) - c->first_stamp : 0;
  if (!cell || !cell->wrote || of >= c->nowner || c->owner[of] != copy->w->index) return true;
  if ((int)(cell->wrote & (LANES - 1)) == copy->lane ||
      copy->w->known[copy->w->index] >= copy->w->fenced)
    return true;
  return fault(copy->w, copy->op, copy->lane,
               "no barrier between another lane's fence and the copy of its bytes at %#x", at),
         false;
}

static bool check_leaving(const Copy *copy, const Row *row) {
  Warp *w = copy->w;
  PtxDevice *d = w->cta->launch->device;
  for (uint32_t i = row->skip; i < row->skip + row->have; i += 4) {
    uint32_t at = swizzled(row->to + i);
    Touch t = {.plane = &w->cta->shared, .offset = at, .bytes = 4, .space = SPACE_SHARED};
    t.stamp = copy->stamp;
    if (!check_fenced(w, copy->op, copy->lane, at) || !check_met(copy, at)) return false;
    if (d->o.check && !touch(w, copy->op, copy->lane, &t)) return false;
  }
  if (!row->have) return true;
  int i = device_block(d, row->at);
  if (i < 0 || d->blocks[i].bytes - (int64_t)(row->at - d->blocks[i].at) < row->have)
    return fault(w, copy->op, copy->lane, "a copy writes %u bytes at %#llx: out of bounds",
                 row->have, (unsigned long long)row->at),
           false;
  Touch t = {.plane = &d->plane, .bytes = row->have, .write = true, .space = SPACE_GLOBAL};
  t.offset = row->at - d->o.base;
  if (d->o.check) return touch(w, copy->op, copy->lane, &t);
  if (d->plane.written) bits_set(d->plane.written, (int64_t)t.offset, t.bytes, true);
  return true;
}

/* Ends the copies of lane whose groups are below `until`. */
static void arrive(Warp *w, int lane, uint32_t until) {
  Cta *c = w->cta;
  for (Copy **at = &c->leaving; *at;) {
    Copy *copy = *at;
    if (copy->w != w || copy->lane != lane || copy->group >= until) {
      at = &copy->next;
      continue;
    }
    leave(c, copy);
    if (copy->stamp + 1 > w->left[lane]) w->left[lane] = copy->stamp + 1;
    *at = copy->next;
    free(copy);
  }
}

static Went step_commit(Warp *w, const Op *op, uint32_t mask) {
  (void)op;
  for (int i = 0; i < LANES; i++) w->leaving[i] += mask >> i & 1;
  return WENT_ON;
}

/* imm: the number of groups that need not be over */
static Went step_wait(Warp *w, const Op *op, uint32_t mask) {
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1 && w->leaving[i] > (uint32_t)op->imm)
      arrive(w, i, w->leaving[i] - (uint32_t)op->imm);
  return WENT_ON;
}

static void drop_leaving(Cta *c) {
  while (c->leaving) {
    Copy *copy = c->leaving;
    if (!c->launch->failed)
      fault(copy->w, copy->op, copy->lane,
            "the CTA ended before a copy out of its shared memory was waited for");
    c->leaving = copy->next;
    free(copy);
  }
}

void copies_drop(Cta *c) {
  drop_leaving(c);
  if (c->copies && !c->launch->failed)
    fault(c->copies->w, c->copies->op, c->copies->lane,
          "the CTA ended before a copy to its shared memory was waited for");
  while (c->copies) {
    Copy *copy = c->copies;
    for (uint32_t i = 0, n = rows_of(&copy->map); i < n; i++) {
      Row row = row_of(copy, i);
      mark(c, &row, false);
    }
    c->copies = copy->next;
    free(copy);
  }
}

/* ---- the copy ---- */
static bool check_place(Warp *w, const Op *op, int lane, Copy *copy) {
  Cta *c = w->cta;
  copy->bytes = rows_of(&copy->map) * ROW;
  if (copy->to % ROW)
    return fault(w, op, lane, "a copy to %#x is misaligned: 128 bytes", copy->to), false;
  if (copy->to < SHARED_FIRST || (uint64_t)copy->to + copy->bytes > c->shared_end)
    return fault(w, op, lane, "a copy of %u bytes to %#x is out of bounds of shared memory",
                 copy->bytes, copy->to),
           false;
  return true;
}

static bool check_copy(Warp *w, const Op *op, int lane, Copy *copy) {
  uint32_t rows = rows_of(&copy->map);
  if (!check_place(w, op, lane, copy)) return false;
  if (copy->signal->fences != BOTH_FENCES)
    return fault(w, op, lane,
                 "no fence.mbarrier_init, or no fence.proxy.async, after the mbarrier's init"),
           false;
  for (uint32_t i = 0; i < rows; i++) {
    Row row = row_of(copy, i);
    if (!check_source(copy, &row) || !check_target(copy, &row)) return false;
  }
  return true;
}

/* a: to, b: the map, c: the mbarrier; offsets imm, target, e; list: coordinates */
static bool issue(Warp *w, const Op *op, int lane) {
  Cta *c = w->cta;
  Copy *copy = calloc(1, sizeof *copy);
  if (!copy) return fault(w, op, lane, "the host has no memory for this copy"), false;
  *copy = (Copy){.w = w, .op = op, .lane = lane};
  copy->to = (uint32_t)(reg_get(w, op->a, op->kind_a, lane) + (uint64_t)op->imm);
  uint64_t map = reg_get(w, op->b, REG_64, lane) + (uint64_t)(int32_t)op->target;
  uint64_t at = reg_get(w, op->c, op->sub, lane) + (uint64_t)op->e;
  for (int i = 0; i < op->n; i++) copy->from[i] = (int32_t)reg_get(w, op->list[i], REG_32, lane);
  copy->signal = signal_find(w, op, lane, (uint32_t)at);
  bool good = copy->signal && read_map(w, op, lane, map, &copy->map);
  if (good) copy->phase = copy->signal->phase, copy->stamp = interval_apart(c, owner_in(c));
  if (!good || !check_copy(w, op, lane, copy)) return free(copy), false;
  copy->next = c->copies, c->copies = copy;
  const PtxOptions *o = &c->launch->device->o;
  return o->late || o->seed || copies_bring(c);
}

static Went step_copy(Warp *w, const Op *op, uint32_t mask) {
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1 && !issue(w, op, i)) return WENT_WAITING;
  return w->cta->launch->failed ? WENT_WAITING : WENT_ON;
}

/* a: from, b: the map; as above */
static bool issue_leaving(Warp *w, const Op *op, int lane) {
  Cta *c = w->cta;
  Copy *copy = calloc(1, sizeof *copy), **last = &c->leaving;
  if (!copy) return fault(w, op, lane, "the host has no memory for this copy"), false;
  *copy = (Copy){.w = w, .op = op, .lane = lane, .group = w->leaving[lane]};
  copy->to = (uint32_t)(reg_get(w, op->a, op->kind_a, lane) + (uint64_t)op->imm);
  uint64_t map = reg_get(w, op->b, REG_64, lane) + (uint64_t)(int32_t)op->target;
  for (int i = 0; i < op->n; i++) copy->from[i] = (int32_t)reg_get(w, op->list[i], REG_32, lane);
  bool good = read_map(w, op, lane, map, &copy->map) && check_place(w, op, lane, copy);
  if (good) copy->stamp = interval_apart(c, owner_out(c));
  for (uint32_t i = 0, n = good ? rows_of(&copy->map) : 0; i < n && good; i++) {
    Row row = row_of(copy, i);
    good = check_leaving(copy, &row);
  }
  if (!good) return free(copy), false;
  while (*last) last = &(*last)->next;
  *last = copy;
  const PtxOptions *o = &c->launch->device->o;
  if (!o->late && !o->seed) leave(c, copy);
  return true;
}

static Went step_leave(Warp *w, const Op *op, uint32_t mask) {
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1 && !issue_leaving(w, op, i)) return WENT_WAITING;
  return WENT_ON;
}

/* ---- decoding ---- */
static bool is_text(const Ins *ins, const char *const *words, int n) {
  for (int i = 0; i < n && ins->nparts == n; i++)
    if (words[i] && strcmp(words[i], ins->part[i])) return false;
  return ins->nparts == n;
}

/* The number of dims in the name of a copy. */
static int rank_of(Reader *r, const Ins *ins) {
  const char *word = ins->part[4];
  int rank = word[0] && word[1] == 'd' && !word[2] ? word[0] - '0' : 0;
  if (rank < 1 || rank > PTX_TENSOR_RANK) unknown(r, ins);
  return rank;
}

/* Arguments of a copy: shared: which one is the address in shared memory; map: the map with its
 * coordinates; signal: 0: there is none. */
static Op *decode_copy(Reader *r, const Ins *ins, int shared, int map, int signal) {
  int rank = rank_of(r, ins), nargs = signal ? 3 : 2;
  need_args(r, ins, nargs, nargs);
  const Arg *of_map = &ins->args[map];
  if (of_map->nparts != rank)
    read_error(r, ins->line, "`%s` has %d coordinates", ins->opcode, rank);
  int64_t offset[3] = {0};
  int32_t slot[3] = {0}, *list = get(r, sizeof *list * (size_t)rank);
  RegKind kind[3] = {0};
  for (int i = 0; i < nargs; i++) {
    decode_address(r, ins, &ins->args[i], &slot[i], &kind[i], &offset[i]);
    if ((i != map && ins->args[i].nparts) || offset[i] != (int32_t)offset[i])
      read_error(r, ins->line, "coordinates belong to the map, offsets have 32 bits");
  }
  if (kind[map] != REG_64) read_error(r, ins->line, "a map's address has 64 bits");
  for (int i = 0; i < rank; i++) list[i] = source_arg(r, ins, &of_map->parts[i], REG_32);
  Op *op = emit(r, ins);
  op->n = (uint8_t)rank, op->list = list;
  op->imm = offset[shared], op->target = (uint32_t)offset[map];
  op->a = slot[shared], op->kind_a = (uint8_t)kind[shared], op->b = slot[map];
  op->e = (int32_t)offset[signal], op->c = slot[signal], op->sub = (uint8_t)kind[signal];
  return op;
}

/* cp.async.bulk.commit_group; cp.async.bulk.wait_group{.read} n */
static bool decode_group(Reader *r, const Ins *ins) {
  bool read = ins->nparts == 5 && !strcmp(ins->part[4], "read");
  bool wait = ins->nparts >= 4 && !strcmp(ins->part[3], "wait_group");
  if (ins->nparts != 4 + (wait && read) || (!wait && strcmp(ins->part[3], "commit_group")))
    return false;
  need_args(r, ins, wait, wait);
  if (wait && (ins->args[0].kind != ARG_INT || ins->args[0].value > 1 << 20))
    read_error(r, ins->line, "the number of groups is a constant");
  Op *op = emit(r, ins);
  op->step = wait ? step_wait : step_commit, op->imm = wait ? (int64_t)ins->args[0].value : 0;
  return true;
}

/* [to], [map, {x, y}], [mbarrier]; [map, {x, y}], [from] */
void decode_bulk(Reader *r, const Ins *ins) {
  static const char *const in[] = {"cp",     "async", "bulk",
                                   "tensor", NULL,    "shared::cluster",
                                   "global", "tile",  "mbarrier::complete_tx::bytes"};
  static const char *const out[] = {"cp",     "async",       "bulk", "tensor",    NULL,
                                    "global", "shared::cta", "tile", "bulk_group"};
  if (is_text(ins, in, 9)) decode_copy(r, ins, 0, 1, 2)->step = step_copy;
  else if (is_text(ins, out, 9)) decode_copy(r, ins, 1, 0, 0)->step = step_leave;
  else if (!decode_group(r, ins)) unknown(r, ins);
}
