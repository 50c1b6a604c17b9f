/* Instructions that combine a value over the lanes of a membermask: redux, match, elect.
 *
 * Must not: take lanes outside the membermask, or continue before all of its live lanes arrive. */
#include "ptx_lanes.h"
#include "ptx_read.h"

enum { REDUX_ADD, REDUX_MIN, REDUX_MAX, REDUX_AND, REDUX_OR, REDUX_XOR };

static uint32_t reduced(int sub, bool sign, uint32_t a, uint32_t b) {
  bool less = sign ? (s32)a < (s32)b : a < b;
  switch (sub) {
  case REDUX_ADD: return a + b;
  case REDUX_MIN: return less ? a : b;
  case REDUX_MAX: return less ? b : a;
  case REDUX_AND: return a & b;
  case REDUX_OR: return a | b;
  default: return a ^ b;
  }
}

static Went step_redux(Warp *w, const Op *op, uint32_t mask) {
  Went went;
  if (!members_here(w, op, op->e, mask, &went)) return went;
  const uint32_t *a = reg_at(w, op->a), *members = reg_at(w, op->e);
  uint32_t out[LANES];
  for (int i = 0; i < LANES; i++) {
    uint32_t with = members[i] & mask;
    if (!(mask >> i & 1)) continue;
    int first = first_lane(with);
    out[i] = a[first];
    for (int k = first + 1; k < LANES; k++)
      if (with >> k & 1) out[i] = reduced(op->sub, op->is_signed, out[i], a[k]);
  }
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1) reg_set(w, op->d, REG_32, i, out[i]);
  return WENT_ON;
}

/* redux.sync.op.type d, a, membermask */
void decode_redux(Reader *r, const Ins *ins) {
  static const char *const names[] = {"add", "min", "max", "and", "or", "xor"};
  int sub = -1;
  for (int i = 0; i < 6; i++)
    if (ins->nparts == 4 && !strcmp(ins->part[2], names[i])) sub = i;
  if (sub < 0 || strcmp(ins->part[1], "sync") || type_kind(ins->part[3]) != REG_32) unknown(r, ins);
  if (strcmp(ins->part[3], "u32") && strcmp(ins->part[3], "s32") && strcmp(ins->part[3], "b32"))
    unknown(r, ins);
  need_args(r, ins, 3, 3);
  int32_t a = source(r, ins, 1, REG_32), e = source(r, ins, 2, REG_32),
          d = result(r, ins, 0, REG_32);
  Op *op = emit(r, ins);
  op->step = step_redux, op->sub = (uint8_t)sub, op->is_signed = *ins->part[3] == 's';
  op->a = a, op->e = e, op->d = d;
}

/* flag: match.all */
static Went step_match(Warp *w, const Op *op, uint32_t mask) {
  Went went;
  if (!members_here(w, op, op->e, mask, &went)) return went;
  const uint32_t *members = reg_at(w, op->e);
  uint32_t out[LANES] = {0}, all = 0;
  for (int i = 0; i < LANES; i++) {
    uint32_t with = members[i] & mask;
    if (!(mask >> i & 1)) continue;
    for (int k = 0; k < LANES; k++)
      if (with >> k & 1 && reg_get(w, op->a, op->kind, k) == reg_get(w, op->a, op->kind, i))
        out[i] |= 1u << k;
    if (out[i] == with) all |= 1u << i;
    else if (op->flag) out[i] = 0;
  }
  for (int i = 0; i < LANES; i++) {
    if (!(mask >> i & 1)) continue;
    reg_set(w, op->d, REG_32, i, out[i]);
    if (op->b != NO_SLOT) reg_set(w, op->b, REG_PRED, i, all >> i & 1);
  }
  return WENT_ON;
}

/* match.any.sync.type d, a, membermask; match.all.sync.type d{|p}, a, membermask */
void decode_match(Reader *r, const Ins *ins) {
  bool all = ins->nparts == 4 && !strcmp(ins->part[1], "all");
  RegKind k = ins->nparts == 4 ? type_kind(ins->part[3]) : REG_NONE;
  if ((!all && (ins->nparts != 4 || strcmp(ins->part[1], "any"))) || strcmp(ins->part[2], "sync") ||
      *ins->part[3] != 'b' || (k != REG_32 && k != REG_64))
    unknown(r, ins);
  need_args(r, ins, 3, 3);
  int32_t a = source(r, ins, 1, k), e = source(r, ins, 2, REG_32), d = result(r, ins, 0, REG_32),
          p = NO_SLOT;
  if (ins->pair.kind != ARG_NONE) p = result_arg(r, ins, &ins->pair, REG_PRED);
  Op *op = emit(r, ins);
  op->step = step_match, op->kind = k, op->flag = all, op->a = a, op->b = p, op->e = e, op->d = d;
}
