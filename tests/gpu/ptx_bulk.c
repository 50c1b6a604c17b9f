/* Bulk tensor copies into shared memory: cp.async.bulk.tensor, and the maps that they read.
 *
 * A map's 128 bytes have a format of this machine's own. A copy brings the whole box: elements that
 * the tensor does not have are zeros, rows of 128 bytes are swizzled by their address.
 *
 * A copy is queued at its issue. Its bytes arrive at once; in late mode when no warp can continue,
 * the newest copy first; with a seed at random times in random order. Until then its words are in
 * flight. On arrival its mbarrier expects that many bytes less. The check for races treats a copy
 * as a warp of its own, which starts with all that the issuing warp has waited for.
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
  uint32_t to, bytes, phase, stamp;
  Signal *signal;
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
  uint64_t at;             /* of its first byte that exists */
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
  if (copy->stamp + 1 > s->came[c->nwarps]) s->came[c->nwarps] = copy->stamp + 1;
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

void copies_drop(Cta *c) {
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
static bool check_copy(Warp *w, const Op *op, int lane, Copy *copy) {
  Cta *c = w->cta;
  uint32_t rows = rows_of(&copy->map);
  copy->bytes = rows * ROW;
  if (copy->to % ROW)
    return fault(w, op, lane, "a copy to %#x is misaligned: 128 bytes", copy->to), false;
  if (copy->to < SHARED_FIRST || (uint64_t)copy->to + copy->bytes > c->shared_end)
    return fault(w, op, lane, "a copy of %u bytes to %#x is out of bounds of shared memory",
                 copy->bytes, copy->to),
           false;
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
  if (good) copy->phase = copy->signal->phase, copy->stamp = interval_of_copies(c);
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

/* ---- decoding ---- */
/* [a], [b, {x, y}], [c]: the second one is read as two operands (ptx_body.c). */
void decode_bulk(Reader *r, const Ins *ins) {
  static const char *const words[] = {"cp",     "async", "bulk",
                                      "tensor", NULL,    "shared::cluster",
                                      "global", "tile",  "mbarrier::complete_tx::bytes"};
  int rank =
      ins->nparts == 9 && ins->part[4][1] == 'd' && !ins->part[4][2] ? ins->part[4][0] - '0' : 0;
  if (rank < 1 || rank > PTX_TENSOR_RANK) unknown(r, ins);
  for (int i = 0; i < 9; i++)
    if (words[i] && strcmp(words[i], ins->part[i])) unknown(r, ins);
  need_args(r, ins, 3, 3);
  const Arg *map = &ins->args[1];
  if (map->nparts != rank) read_error(r, ins->line, "`%s` has %d coordinates", ins->opcode, rank);
  int64_t offset[3];
  int32_t slot[3], *list = get(r, sizeof *list * (size_t)rank);
  RegKind kind[3];
  for (int i = 0; i < 3; i++) decode_address(r, ins, &ins->args[i], &slot[i], &kind[i], &offset[i]);
  if (ins->args[0].nparts || ins->args[2].nparts || offset[1] != (int32_t)offset[1] ||
      offset[2] != (int32_t)offset[2])
    read_error(r, ins->line, "coordinates belong to the map, offsets have 32 bits");
  if (kind[1] != REG_64) read_error(r, ins->line, "a map's address has 64 bits");
  for (int i = 0; i < rank; i++) list[i] = source_arg(r, ins, &map->parts[i], REG_32);
  Op *op = emit(r, ins);
  op->step = step_copy, op->n = (uint8_t)rank, op->list = list;
  op->imm = offset[0], op->target = (uint32_t)offset[1], op->e = (int32_t)offset[2];
  op->a = slot[0], op->kind_a = (uint8_t)kind[0], op->b = slot[1], op->c = slot[2];
  op->sub = (uint8_t)kind[2];
}
