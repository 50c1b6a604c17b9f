/* Loads and stores: where each lane's bytes are, whether it may touch them, and moving them.
 *
 * An instruction takes the lanes of one address space at a time (generic addresses may mix them). A
 * lane's access must be aligned to its size and be inside one allocation, or in the shared, local
 * or parameter memory that the launch has. Registers wider than the type get the value extended.
 *
 * Must not: move a byte of a lane whose access was reported. */
#include "ptx_memory.h"
#include "ptx_post.h"
#include "ptx_read.h"
#include <string.h>

/* ---- places ---- */
static const char *space_name(Space s) {
  static const char *const names[] = {"generic", "global",    "shared",
                                      "local",   "parameter", "constant"};
  return names[s];
}

static bool report_bounds(Warp *w, const Op *op, int lane, const Access *x, const char *what) {
  fault(w, op, lane, "%s of %u bytes at %#llx: %s", x->write ? "write" : "read", x->bytes,
        (unsigned long long)x->address[lane], what);
  return false;
}

static bool report_global(Warp *w, const Op *op, int lane, const Access *x) {
  const PtxDevice *d = w->cta->launch->device;
  uint64_t at = x->address[lane];
  int i = device_block(d, at);
  const Block *b = NULL;
  if (i >= 0) b = &d->blocks[i];
  else if (-1 - i > 0) b = &d->blocks[-2 - i];
  char what[200];
  if (at < d->o.base || at - d->o.base >= (uint64_t)d->plane_bytes)
    snprintf(what, sizeof what, "no address of global memory");
  else if (!b) snprintf(what, sizeof what, "out of bounds: before the first allocation");
  else {
    int64_t past = (int64_t)(at + x->bytes - b->at) - b->bytes;
    snprintf(what, sizeof what,
             "out of bounds: byte %lld of an allocation of %lld (%lld past its end)",
             (long long)(at - b->at), (long long)b->bytes, (long long)past);
  }
  return report_bounds(w, op, lane, x, what);
}

/* Finds the pattern of the lanes' addresses. Lanes that take no part get the address of one that
 * does, so that loops over all lanes touch nothing else. Returns the bits that are set in any
 * address. */
static uint64_t survey(uint32_t mask, Access *x) {
  uint64_t *a = x->address, first = a[first_lane(mask)];
  uint64_t low = UINT64_MAX, high = 0, any = 0, off_row = 0, off_same = 0;
  if (mask != ALL_LANES)
    for (int i = 0; i < LANES; i++) a[i] = mask >> i & 1 ? a[i] : first;
  for (int i = 0; i < LANES; i++) {
    low = a[i] < low ? a[i] : low;
    high = a[i] > high ? a[i] : high;
    any |= a[i], off_same |= a[i] ^ first;
    off_row |= a[i] - a[0] - (uint64_t)i * x->bytes;
  }
  x->low = low, x->high = high;
  x->row = mask == ALL_LANES && !off_row, x->same = !off_same;
  return any;
}

static void point(Access *x, uint8_t *data, uint64_t base) {
  for (int i = 0; i < LANES; i++) x->offset[i] = x->address[i] - base;
  for (int i = 0; i < LANES; i++) x->at[i] = data + x->offset[i];
}

/* Lanes in several blocks, or outside of all. */
static bool place_apart(Warp *w, const Op *op, uint32_t mask, const Access *x) {
  const PtxDevice *d = w->cta->launch->device;
  for (int i = 0; i < LANES; i++) {
    if (!(mask >> i & 1)) continue;
    int k = device_block(d, x->address[i]);
    const Block *b = k < 0 ? NULL : &d->blocks[k];
    if (!b || (uint64_t)b->bytes - (x->address[i] - b->at) < x->bytes)
      return report_global(w, op, i, x);
    if (b->constant && x->write) return report_bounds(w, op, i, x, "constant memory");
  }
  return true;
}

/* One block holds all lanes' bytes almost always, and the same as last time. */
static bool place_global(Warp *w, const Op *op, uint32_t mask, Access *x) {
  Launch *l = w->cta->launch;
  PtxDevice *d = l->device;
  int *cache = &l->cache[op - l->f->ops];
  const Block *b = &d->blocks[*cache];
  if (*cache >= d->nblocks || x->low - b->at >= (uint64_t)b->bytes) {
    int found = device_block(d, x->low);
    *cache = found < 0 ? 0 : found, b = &d->blocks[*cache];
  }
  bool inside = d->nblocks && x->low >= b->at && x->high - b->at < (uint64_t)b->bytes &&
                (uint64_t)b->bytes - (x->high - b->at) >= x->bytes && !(b->constant && x->write);
  if (!inside && !place_apart(w, op, mask, x)) return false;
  point(x, d->plane.data, d->o.base);
  x->plane = &d->plane, x->space = SPACE_GLOBAL;
  return true;
}

static bool place_shared(Warp *w, const Op *op, uint32_t mask, Access *x) {
  Cta *c = w->cta;
  char what[100];
  uint64_t end = c->shared_end;
  bool inside = x->low >= SHARED_FIRST && x->high < end && end - x->high >= x->bytes;
  for (int i = 0; i < LANES && !inside; i++) {
    uint64_t at = x->address[i];
    if (mask >> i & 1 && (at < SHARED_FIRST || at >= end || end - at < x->bytes)) {
      snprintf(what, sizeof what, "out of bounds: shared memory is %#x to %#x", SHARED_FIRST,
               c->shared_end);
      return report_bounds(w, op, i, x, what);
    }
  }
  point(x, c->shared.data, 0);
  x->plane = &c->shared, x->space = SPACE_SHARED;
  return true;
}

static bool place_private(Warp *w, const Op *op, uint32_t mask, Access *x) {
  Cta *c = w->cta;
  bool local = x->space == SPACE_LOCAL;
  const Function *f = c->launch->f;
  uint64_t size = local ? (uint64_t)f->local_bytes : (uint64_t)f->params_bytes;
  char what[100];
  for (int i = 0; i < LANES; i++) {
    uint64_t at = x->address[i];
    if (at >= size || size - at < x->bytes) {
      snprintf(what, sizeof what, "out of bounds: %llu bytes of %s memory",
               (unsigned long long)size, space_name(x->space));
      return report_bounds(w, op, mask >> i & 1 ? i : first_lane(mask), x, what);
    }
    uint8_t *base = local ? c->local + (size_t)(w->index * LANES + (uint32_t)i) * size
                          : (uint8_t *)(uintptr_t)c->launch->given->params;
    x->offset[i] = at, x->at[i] = base + at;
  }
  if (!local && x->write)
    return report_bounds(w, op, first_lane(mask), x, "parameters cannot be written");
  x->plane = NULL;
  return true;
}

static bool aligned(Warp *w, const Op *op, uint32_t mask, const Access *x) {
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1 && x->address[i] & (x->bytes - 1))
      return report_bounds(w, op, i, x, "misaligned");
  return true;
}

static bool check(Warp *w, const Op *op, uint32_t mask, const Access *x) {
  if (!x->plane) return true;
  if (!w->cta->launch->device->o.check) {
    if (x->write && x->plane->written) set_written(x, mask);
    return true;
  }
  if (touch_all(w, op, mask, x)) return true;
  Touch t = {.plane = x->plane,
             .bytes = x->bytes,
             .write = x->write,
             .atomic = x->atomic,
             .constant = x->constant,
             .space = x->space};
  for (int i = 0; i < LANES; i++) {
    if (!(mask >> i & 1)) continue;
    t.offset = x->offset[i];
    if (!touch(w, op, i, &t)) return false;
  }
  return true;
}

bool place(Warp *w, const Op *op, uint32_t mask, Access *x) {
  if (survey(mask, x) & (x->bytes - 1)) return aligned(w, op, mask, x);
  bool found = x->space == SPACE_SHARED ? place_shared(w, op, mask, x)
               : x->space == SPACE_GLOBAL || x->space == SPACE_CONST
                   ? place_global(w, op, mask, x)
                   : place_private(w, op, mask, x);
  return found && check(w, op, mask, x);
}

/* Generic addresses: the lanes that are in the window of the first; x->address becomes theirs. */
uint32_t one_window(uint32_t mask, Access *x, const uint64_t generic[LANES]) {
  static const struct {
    uint64_t low;
    Space space;
  } windows[] = {
      {SHARED_WINDOW, SPACE_SHARED}, {LOCAL_WINDOW, SPACE_LOCAL}, {PARAM_WINDOW, SPACE_PARAM}};
  uint64_t low = 0, first = generic[first_lane(mask)];
  x->space = SPACE_GLOBAL;
  for (int k = 0; k < 3; k++)
    if (first - windows[k].low < WINDOW_BYTES) low = windows[k].low, x->space = windows[k].space;
  uint32_t in = 0;
  for (int i = 0; i < LANES; i++) {
    bool windowed = generic[i] - SHARED_WINDOW < PARAM_WINDOW + WINDOW_BYTES - SHARED_WINDOW;
    bool same = low ? generic[i] - low < WINDOW_BYTES : !windowed;
    in |= (uint32_t)same << i;
    x->address[i] = generic[i] - low;
  }
  return in & mask;
}

void addresses(const Warp *w, const Op *op, uint64_t out[LANES]) {
  uint64_t add = (uint64_t)op->imm;
  const uint8_t *r = w->regs + op->a;
  if (op->kind_a == REG_32) {
    const uint32_t *a = (const uint32_t *)r;
    for (int i = 0; i < LANES; i++) out[i] = (uint32_t)(a[i] + (uint32_t)add);
  } else {
    const uint64_t *a = (const uint64_t *)r;
    for (int i = 0; i < LANES; i++) out[i] = a[i] + add;
  }
}

/* ---- moving ---- */
static inline uint64_t load_bytes(const uint8_t *p, int bytes, bool sign) {
  uint64_t v = 0;
  memcpy(&v, p, (size_t)bytes);
  if (sign && bytes < 8 && v >> (8 * bytes - 1) & 1) v |= ~UINT64_C(0) << 8 * bytes;
  return v;
}

/* The bytes of all lanes into a register of the same width. */
#define LOAD(BITS)                                                                                 \
  do {                                                                                             \
    uint##BITS##_t *to = (void *)d, got[LANES];                                                    \
    if (x->row && op->n == 1) memcpy(got, x->at[0], sizeof got);                                   \
    else                                                                                           \
      for (int i = 0; i < LANES; i++) memcpy(&got[i], x->at[i] + from, BITS / 8);                  \
    if (mask == ALL_LANES) memcpy(to, got, sizeof got);                                            \
    else                                                                                           \
      for (int i = 0; i < LANES; i++) to[i] = mask >> i & 1 ? got[i] : to[i];                      \
  } while (0)

static void load_part(Warp *w, const Op *op, uint32_t mask, const Access *x, int k) {
  int bytes = op->bytes, from = k * bytes;
  RegKind kind = op->kinds[k];
  uint8_t *d = w->regs + op->list[k];
  if (bytes == 4 && kind == REG_32) LOAD(32);
  else if (bytes == 8 && kind == REG_64) LOAD(64);
  else if (bytes == 2 && kind == REG_16) LOAD(16);
  else
    for (int i = 0; i < LANES; i++)
      if (mask >> i & 1)
        reg_set(w, op->list[k], kind, i, load_bytes(x->at[i] + from, bytes, op->is_signed));
}

static void store_part(Warp *w, const Op *op, uint32_t mask, const Access *x, int k) {
  int bytes = op->bytes, from = k * bytes;
  int width = reg_bytes(op->kinds[k]) / LANES;
  const uint8_t *s = w->regs + op->list[k];
  if (x->row && op->n == 1 && bytes == width) memcpy(x->at[0], s, (size_t)(bytes * LANES));
  else if (mask == ALL_LANES && bytes == 4 && width == 4)
    for (int i = 0; i < LANES; i++) memcpy(x->at[i] + from, s + 4 * i, 4);
  else
    for (int i = 0; i < LANES; i++)
      if (mask >> i & 1) memcpy(x->at[i] + from, s + width * i, (size_t)bytes);
}

static bool move(Warp *w, const Op *op, uint32_t mask, Access *x) {
  if (!place(w, op, mask, x)) return false;
  for (int k = 0; k < op->n; k++)
    if (op->list[k] != NO_SLOT) (x->write ? store_part : load_part)(w, op, mask, x, k);
  return true;
}

enum { FLAG_WRITE = 1, FLAG_ATOMIC = 2, FLAG_CONSTANT = 4, FLAG_POST = 8 };

/* A release or an acquire of a word of global memory. */
static bool move_flag(Warp *w, const Op *op, uint32_t mask, Access *x) {
  uint64_t before[LANES];
  if (x->space != SPACE_GLOBAL || op->n > 1) return move(w, op, mask, x);
  if (!place(w, op, mask, x)) return false;
  for (int i = 0; i < LANES; i++) before[i] = load_bytes(x->at[i], op->bytes, op->is_signed);
  if (!x->write) {
    for (int i = 0; i < LANES; i++) {
      if (!(mask >> i & 1)) continue;
      if (!post_acquire(w, op, i, x->address[i], &before[i])) return false;
      if (op->list[0] != NO_SLOT) reg_set(w, op->list[0], op->kinds[0], i, before[i]);
    }
    return true;
  }
  store_part(w, op, mask, x, 0);
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1) post_release(w, i, x->address[i], before[i]);
  return true;
}

static Went step_move(Warp *w, const Op *op, uint32_t mask) {
  Access x;
  uint64_t generic[LANES];
  x.bytes = (uint32_t)op->n * op->bytes, x.write = op->flag & FLAG_WRITE,
  x.atomic = op->flag & FLAG_ATOMIC;
  bool post = op->flag & FLAG_POST;
  x.constant = op->flag & FLAG_CONSTANT, x.space = (Space)op->space;
  if (x.space != SPACE_GENERIC) {
    addresses(w, op, x.address);
    return (post ? move_flag : move)(w, op, mask, &x) ? WENT_ON : WENT_WAITING;
  }
  addresses(w, op, generic);
  while (mask) {
    uint32_t same = one_window(mask, &x, generic);
    if (!(post ? move_flag : move)(w, op, same, &x)) return WENT_WAITING;
    mask &= ~same;
  }
  return WENT_ON;
}

/* ---- decoding ---- */
bool known_space(const char *part, Space *out) {
  static const struct {
    const char *name;
    Space space;
  } rows[] = {{"global", SPACE_GLOBAL},     {"shared", SPACE_SHARED}, {"shared::cta", SPACE_SHARED},
              {"local", SPACE_LOCAL},       {"param", SPACE_PARAM},   {"param::entry", SPACE_PARAM},
              {"param::func", SPACE_PARAM}, {"const", SPACE_CONST}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(part, rows[i].name)) {
      *out = rows[i].space;
      return true;
    }
  return false;
}

/* Parts that change neither what is moved nor what is checked. */
static bool is_hint(const char *p) {
  static const char *const hints[] = {"weak", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "unified"};
  for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
    if (!strcmp(p, hints[i])) return true;
  return !strncmp(p, "L1::", 4) || (!strncmp(p, "L2::", 4) && strcmp(p, "L2::cache_hint"));
}

bool is_ordering(const char *p) {
  static const char *const words[] = {"volatile", "relaxed", "acquire", "release", "acq_rel",
                                      "mmio",     "cta",     "cluster", "gpu",     "sys"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(p, words[i])) return true;
  return false;
}

void decode_address(Reader *r, const Ins *ins, const Arg *a, int32_t *slot, RegKind *kind,
                    int64_t *offset) {
  if (a->kind != ARG_MEMORY)
    read_error(r, ins->line, "`%s` needs an address in brackets", ins->opcode);
  if (a->nparts && (ins->nparts < 3 || strcmp(ins->part[2], "bulk")))
    read_error(r, ins->line, "`%s` has no coordinates", ins->opcode);
  *offset = a->offset;
  if (a->reg != REG_NONE) {
    if (a->reg != REG_32 && a->reg != REG_64)
      read_error(r, ins->line, "an address has 32 or 64 bits");
    *slot = a->slot, *kind = a->reg;
    return;
  }
  *kind = REG_64;
  if (!a->symbol) *slot = constant(r, REG_64, 0);
  else if (a->symbol->dynamic) *slot = dynamic_shared(r, a->symbol, REG_64);
  else *slot = constant(r, REG_64, a->symbol->value);
}

typedef struct Shape {
  Space space;
  int n, bytes;
  bool is_signed, atomic, constant, orders, wide; /* wide: for other CTAs as well */
} Shape;

static Shape read_shape(Reader *r, const Ins *ins) {
  Shape s = {.space = SPACE_GENERIC, .n = 1};
  for (int i = 1; i < ins->nparts - 1; i++) {
    const char *p = ins->part[i];
    if (known_space(p, &s.space) || is_hint(p)) continue;
    s.orders |= !strcmp(p, "acquire") || !strcmp(p, "release");
    s.wide |= !strcmp(p, "gpu") || !strcmp(p, "sys");
    if (is_ordering(p)) s.atomic = true;
    else if (!strcmp(p, "nc")) s.constant = true;
    else if (!strcmp(p, "v2") || !strcmp(p, "v4") || !strcmp(p, "v8")) s.n = p[1] - '0';
    else unknown(r, ins);
  }
  const char *type = ins->part[ins->nparts - 1];
  s.bytes = type_bytes(type), s.is_signed = *type == 's';
  if (!s.bytes || s.n * s.bytes > 16) unknown(r, ins);
  return s;
}

static void fill_list(Reader *r, const Ins *ins, Op *op, const Arg *value, const Shape *s,
                      bool write) {
  const Arg *parts = value->kind == ARG_VECTOR ? value->parts : value;
  int n = value->kind == ARG_VECTOR ? value->nparts : 1;
  if (n != s->n) read_error(r, ins->line, "`%s` has %d registers here", ins->opcode, n);
  int32_t *list = get(r, sizeof *list * (size_t)n);
  uint8_t *kinds = get(r, (size_t)n);
  RegKind least = s->bytes == 8 ? REG_64 : s->bytes == 4 ? REG_32 : REG_16;
  for (int k = 0; k < n; k++) {
    const Arg *a = &parts[k];
    RegKind kind = a->kind == ARG_REG && a->reg != REG_PRED && a->reg > least ? a->reg : least;
    kinds[k] = (uint8_t)kind;
    list[k] = a->kind == ARG_SINK && !write ? NO_SLOT
              : write                       ? source_arg(r, ins, a, kind)
                                            : result_arg(r, ins, a, kind);
  }
  op->list = list, op->kinds = kinds;
}

static void decode_memory(Reader *r, const Ins *ins, bool write) {
  need_args(r, ins, 2, 2);
  if (ins->nparts < 2) unknown(r, ins);
  Shape s = read_shape(r, ins);
  const Arg *address = &ins->args[!write];
  int32_t a;
  RegKind kind;
  int64_t offset;
  decode_address(r, ins, address, &a, &kind, &offset);
  if (s.space == SPACE_PARAM && address->symbol && address->symbol->kind == SYM_LOCAL)
    s.space = SPACE_LOCAL;
  Op shape = {0};
  fill_list(r, ins, &shape, &ins->args[write], &s, write);
  Op *op = emit(r, ins);
  op->step = step_move, op->a = a, op->kind_a = (uint8_t)kind, op->imm = offset;
  op->list = shape.list, op->kinds = shape.kinds, op->space = (uint8_t)s.space;
  op->n = (uint8_t)s.n, op->bytes = (uint8_t)s.bytes, op->is_signed = s.is_signed;
  op->flag = (uint8_t)((write ? FLAG_WRITE : 0) | (s.atomic ? FLAG_ATOMIC : 0) |
                       (s.constant ? FLAG_CONSTANT : 0) | (s.orders && s.wide ? FLAG_POST : 0));
}

void decode_ld(Reader *r, const Ins *ins) { decode_memory(r, ins, false); }
void decode_st(Reader *r, const Ins *ins) { decode_memory(r, ins, true); }
