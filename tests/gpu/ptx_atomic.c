/* Atomic read-modify-writes: atom and red.
 *
 * Lanes go one after the other; with a seed in another order each time, as a GPU promises none.
 * f32 sums in global memory flush subnormals, those in shared memory do not.
 *
 * Must not: be taken for a synchronisation: other accesses stay as unordered as they were. */
#include "ptx_lanes.h"
#include "ptx_memory.h"

typedef enum Action { ADD, MIN, MAX, AND, OR, XOR, EXCH, CAS, INC, DEC, ACTIONS } Action;
static const char *const actions[] = {"add", "min",  "max", "and", "or",
                                      "xor", "exch", "cas", "inc", "dec"};
typedef enum Kind { UNSIGNED, SIGNED, F32, F64, F16, BF16, F16X2, BF16X2, KINDS } Kind;

static float add_flushed(float a, float b, bool flush) {
  return flush ? flushed(flushed(a) + flushed(b)) : a + b;
}
static uint16_t add_half(uint16_t a, uint16_t b, bool bf16) {
  return bf16 ? float_to_bf16(bf16_to_float(a) + bf16_to_float(b))
              : float_to_f16(f16_to_float(a) + f16_to_float(b));
}

static uint64_t sum(Kind kind, uint64_t a, uint64_t b, bool flush) {
  double x, y;
  switch (kind) {
  case F32: return bits_of(add_flushed(float_of((u32)a), float_of((u32)b), flush));
  case F64:
    memcpy(&x, &a, 8), memcpy(&y, &b, 8);
    x += y;
    memcpy(&a, &x, 8);
    return a;
  case F16:
  case BF16: return add_half((u16)a, (u16)b, kind == BF16);
  case F16X2:
  case BF16X2:
    return (u32)add_half((u16)(a >> 16), (u16)(b >> 16), kind == BF16X2) << 16 |
           add_half((u16)a, (u16)b, kind == BF16X2);
  default: return a + b;
  }
}

static bool below(uint64_t a, uint64_t b, bool sign, int bytes) {
  if (!sign) return a < b;
  return bytes == 4 ? (s32)a < (s32)b : (s64)a < (s64)b;
}

static uint64_t changed(const Op *op, uint64_t old, uint64_t b, uint64_t c, bool flush) {
  bool sign = op->n == SIGNED;
  switch ((Action)op->sub) {
  case ADD: return sum((Kind)op->n, old, b, flush);
  case MIN: return below(b, old, sign, op->bytes) ? b : old;
  case MAX: return below(old, b, sign, op->bytes) ? b : old;
  case AND: return old & b;
  case OR: return old | b;
  case XOR: return old ^ b;
  case EXCH: return b;
  case CAS: return old == b ? c : old;
  case INC: return old >= b ? 0 : old + 1;
  default: return old == 0 || old > b ? b : old - 1;
  }
}

static bool change(Warp *w, const Op *op, uint32_t mask, Access *x) {
  if (!place(w, op, mask, x)) return false;
  bool flush = x->space == SPACE_GLOBAL;
  int turn = (int)(w->cta->launch->random >> 40 & 31);
  for (int k = 0; k < LANES; k++) {
    int i = (k + turn) & 31;
    if (!(mask >> i & 1)) continue;
    uint64_t old = 0;
    memcpy(&old, x->at[i], op->bytes);
    uint64_t b = reg_get(w, op->b, op->kind, i),
             c = op->c == NO_SLOT ? 0 : reg_get(w, op->c, op->kind, i);
    uint64_t now = changed(op, old, b, c, flush);
    memcpy(x->at[i], &now, op->bytes);
    if (op->d != NO_SLOT) reg_set(w, op->d, op->kind, i, old);
  }
  return true;
}

static Went step_atom(Warp *w, const Op *op, uint32_t mask) {
  Access x = {.bytes = op->bytes, .write = true, .atomic = true, .space = (Space)op->space};
  uint64_t generic[LANES];
  if (x.space != SPACE_GENERIC) {
    addresses(w, op, x.address);
    return change(w, op, mask, &x) ? WENT_ON : WENT_WAITING;
  }
  addresses(w, op, generic);
  while (mask) {
    uint32_t same = one_window(mask, &x, generic);
    if (!change(w, op, same, &x)) return WENT_WAITING;
    mask &= ~same;
  }
  return WENT_ON;
}

static int find_name(const char *const *names, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (!strcmp(names[i], name)) return i;
  return -1;
}

static bool legal(Action a, Kind k, int bytes) {
  if (k >= F32) return a == ADD;
  if (a == INC || a == DEC) return bytes == 4 && k == UNSIGNED;
  return bytes >= 4;
}

/* atom{.sem}{.scope}{.space}.op{.noftz}.type d, [a], b{, c}; red has no d */
void decode_atom(Reader *r, const Ins *ins) {
  static const char *const kinds[] = {"", "", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2"};
  bool red = !strcmp(ins->part[0], "red");
  Space space = SPACE_GENERIC;
  int action = -1;
  for (int i = 1; i < ins->nparts - 1; i++) {
    const char *p = ins->part[i];
    if (action < 0 && (action = find_name(actions, ACTIONS, p)) >= 0) continue;
    if (known_space(p, &space) || is_ordering(p) || !strcmp(p, "noftz")) continue;
    unknown(r, ins);
  }
  const char *type = ins->part[ins->nparts - 1];
  int bytes = type_bytes(type), kind = find_name(kinds + 2, KINDS - 2, type);
  kind = kind >= 0 ? kind + 2 : *type == 's' ? SIGNED : UNSIGNED;
  if (action < 0 || !bytes || !legal((Action)action, (Kind)kind, bytes)) unknown(r, ins);
  int first = red ? 0 : 1;
  need_args(r, ins, first + 2 + (action == CAS), first + 2 + (action == CAS));
  int32_t a, c = NO_SLOT, d = NO_SLOT;
  RegKind kind_a, k = type_kind(type);
  int64_t offset;
  decode_address(r, ins, &ins->args[first], &a, &kind_a, &offset);
  int32_t b = source(r, ins, first + 1, k);
  if (action == CAS) c = source(r, ins, first + 2, k);
  if (!red) d = result(r, ins, 0, k);
  Op *op = emit(r, ins);
  op->step = step_atom, op->a = a, op->kind_a = (uint8_t)kind_a, op->imm = offset, op->b = b,
  op->c = c;
  op->d = d, op->kind = k, op->sub = (uint8_t)action, op->n = (uint8_t)kind,
  op->bytes = (uint8_t)bytes;
  op->space = (uint8_t)space;
}
