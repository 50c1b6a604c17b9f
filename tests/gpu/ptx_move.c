/* Decoders of instructions that only move or compare: mov with its vectors, cvta, isspacep, setp,
 * and arithmetic with a carry.
 *
 * Most become lane-wise instructions; a comparison with a second predicate becomes several.
 *
 * Must not: touch memory. */
#include "ptx_read.h"
#include "ptx_lanes.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- mov ---- */
/* mov.b64 d, {a, b}: the elements' kind follows from their number */
static RegKind part_kind(Reader *r, const Ins *ins, RegKind whole, int n) {
  if (whole == REG_32 && n == 2) return REG_16;
  if (whole == REG_64 && n == 2) return REG_32;
  if (whole == REG_64 && n == 4) return REG_16;
  unknown(r, ins);
}

static void decode_join(Reader *r, const Ins *ins, RegKind whole) {
  const Arg *v = &ins->args[1];
  RegKind k = part_kind(r, ins, whole, v->nparts);
  int32_t in[4] = {NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT};
  for (int i = 0; i < v->nparts; i++) in[i] = source_arg(r, ins, &v->parts[i], k);
  const char *key = v->nparts == 4 ? "join4_b64" : whole == REG_64 ? "join_b64" : "join_b32";
  emit_lanes(r, ins, key, result(r, ins, 0, whole), in[0], in[1], in[2]);
  r->f->ops[r->f->nops - 1].e = in[3];
}

static void decode_part(Reader *r, const Ins *ins, RegKind whole) {
  const Arg *v = &ins->args[0];
  RegKind k = part_kind(r, ins, whole, v->nparts);
  int32_t from = source(r, ins, 1, whole);
  int bits = k == REG_16 ? 16 : 32;
  const char *key = v->nparts == 4 ? "part4_b64" : whole == REG_64 ? "part_b64" : "part_b32";
  for (int i = 0; i < v->nparts; i++)
    if (v->parts[i].kind != ARG_SINK)
      emit_lanes(r, ins, key, result_arg(r, ins, &v->parts[i], k), from,
                 constant(r, REG_32, (uint64_t)(i * bits)), NO_SLOT);
}

/* mov.u64 d, %globaltimer: nanoseconds of this machine's clock */
static Went step_timer(Warp *w, const Op *op, uint32_t mask) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1)
      ((uint64_t *)(w->regs + op->d))[i] =
          (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  return WENT_ON;
}

static bool is_timer(const Arg *a) {
  return a->kind == ARG_SYMBOL && !a->symbol &&
         !strcmp((const char *)(uintptr_t)a->value, "%globaltimer");
}

void decode_mov(Reader *r, const Ins *ins) {
  need_args(r, ins, 2, 2);
  RegKind k = ins->nparts == 2 ? type_kind(ins->part[1]) : REG_NONE;
  if (k == REG_NONE || type_bytes(ins->part[1]) == 1) unknown(r, ins);
  if (k == REG_64 && is_timer(&ins->args[1])) {
    int32_t d = result(r, ins, 0, REG_64);
    Op *op = emit(r, ins);
    op->step = step_timer, op->d = d;
    return;
  }
  if (ins->args[1].kind == ARG_VECTOR) decode_join(r, ins, k);
  else if (ins->args[0].kind == ARG_VECTOR) decode_part(r, ins, k);
  else {
    static const char *const keys[] = {"mov_pred", "mov_b16", "mov_b32", "mov_b64"};
    int32_t a = source(r, ins, 1, k);
    emit_lanes(r, ins, keys[k], result(r, ins, 0, k), a, NO_SLOT, NO_SLOT);
  }
}

/* ---- generic addresses ---- */
static uint64_t window_of(Reader *r, const Ins *ins, const char *space) {
  if (!strcmp(space, "global") || !strcmp(space, "const")) return 0;
  if (!strcmp(space, "shared") || !strcmp(space, "shared::cta")) return SHARED_WINDOW;
  if (!strcmp(space, "local")) return LOCAL_WINDOW;
  if (!strcmp(space, "param")) return PARAM_WINDOW;
  unknown(r, ins);
}

/* cvta.space.u64 and cvta.to.space.u64 */
void decode_cvta(Reader *r, const Ins *ins) {
  need_args(r, ins, 2, 2);
  bool to = ins->nparts == 4 && !strcmp(ins->part[1], "to");
  if ((!to && ins->nparts != 3) || strcmp(ins->part[ins->nparts - 1], "u64")) unknown(r, ins);
  uint64_t window = window_of(r, ins, ins->part[to ? 2 : 1]);
  int32_t a = source(r, ins, 1, REG_64);
  emit_lanes(r, ins, to ? "sub_u64" : "add_u64", result(r, ins, 0, REG_64), a,
             constant(r, REG_64, window), NO_SLOT);
}

static Went step_isspacep(Warp *w, const Op *op, uint32_t mask) {
  const uint64_t *a = reg_at(w, op->a);
  uint64_t low = (uint64_t)op->imm;
  for (int i = 0; i < LANES; i++)
    if (mask >> i & 1) {
      bool in = low ? a[i] - low < WINDOW_BYTES : a[i] >= PARAM_WINDOW + WINDOW_BYTES;
      reg_set(w, op->d, REG_PRED, i, in);
    }
  return WENT_ON;
}

void decode_isspacep(Reader *r, const Ins *ins) {
  need_args(r, ins, 2, 2);
  if (ins->nparts != 2) unknown(r, ins);
  uint64_t window = window_of(r, ins, ins->part[1]);
  int32_t a = source(r, ins, 1, REG_64), d = result(r, ins, 0, REG_PRED);
  Op *op = emit(r, ins);
  op->step = step_isspacep, op->d = d, op->a = a, op->imm = (int64_t)window;
}

/* ---- setp ---- */
static const char *combination(Reader *r, const Ins *ins) {
  static const char *const names[] = {"and", "or", "xor"};
  static const char *const keys[] = {"and_pred", "or_pred", "xor_pred"};
  for (int i = 0; i < 3; i++)
    if (ins->nparts > 2 && !strcmp(ins->part[2], names[i])) return keys[i];
  (void)r;
  return NULL;
}

/* p = test op c; q = !test op c: over temporaries, since p may be an operand */
static void combine(Reader *r, const Ins *ins, const char *how, int32_t test, int32_t d,
                    int32_t q) {
  int32_t c = source(r, ins, 3, REG_PRED);
  if (ins->args[3].negated) {
    int32_t flipped = new_slot(r, REG_PRED);
    emit_lanes(r, ins, "not_pred", flipped, c, NO_SLOT, NO_SLOT);
    c = flipped;
  }
  int32_t other = new_slot(r, REG_PRED);
  if (q != NO_SLOT) {
    emit_lanes(r, ins, "not_pred", other, test, NO_SLOT, NO_SLOT);
    emit_lanes(r, ins, how, other, other, c, NO_SLOT);
  }
  emit_lanes(r, ins, how, d, test, c, NO_SLOT);
  if (q != NO_SLOT) emit_lanes(r, ins, "mov_pred", q, other, NO_SLOT, NO_SLOT);
}

/* setp.cmp{.bool}{.ftz}.type p{|q}, a, b {, {!}c} */
void decode_setp(Reader *r, const Ins *ins) {
  const char *how = combination(r, ins);
  if (ins->nparts < 3) unknown(r, ins);
  need_args(r, ins, how ? 4 : 3, how ? 4 : 3);
  char key[64];
  const char *type = ins->part[ins->nparts - 1];
  snprintf(key, sizeof key, "setp_%s%s_%s", ins->part[1], has_part(ins, "ftz") ? "_ftz" : "", type);
  RegKind k = type_kind(type);
  if (k == REG_NONE || ins->nparts != 3 + (how != NULL) + has_part(ins, "ftz")) unknown(r, ins);
  int32_t a = source(r, ins, 1, k), b = source(r, ins, 2, k);
  int32_t d = result(r, ins, 0, REG_PRED), q = NO_SLOT;
  if (ins->pair.kind != ARG_NONE) q = result_arg(r, ins, &ins->pair, REG_PRED);
  int32_t test = how ? new_slot(r, REG_PRED) : d;
  emit_lanes(r, ins, key, test, a, b, NO_SLOT);
  if (how) combine(r, ins, how, test, d, q);
  else if (q != NO_SLOT) emit_lanes(r, ins, "not_pred", q, d, NO_SLOT, NO_SLOT);
}

/* ---- carry ---- */
enum { CARRY_SUB = 1, CARRY_IN = 2, CARRY_OUT = 4, CARRY_MAD = 8, CARRY_HIGH = 16 };

static unsigned __int128 product(const Op *op, uint64_t a, uint64_t b) {
  int bits = op->kind == REG_64 ? 64 : 32;
  unsigned __int128 p = (unsigned __int128)a * b;
  if (op->is_signed && bits == 64) p = (unsigned __int128)((__int128)(int64_t)a * (int64_t)b);
  if (op->is_signed && bits == 32) p = (unsigned __int128)((__int128)(int32_t)a * (int32_t)b);
  p = op->flag & CARRY_HIGH ? p >> bits : p;
  return bits == 64 ? (uint64_t)p : (uint32_t)p;
}

/* A difference is a sum with the complement; the carry of PTX's sub.cc is its borrow. */
static Went step_carry(Warp *w, const Op *op, uint32_t mask) {
  uint64_t all = op->kind == REG_64 ? ~UINT64_C(0) : 0xffffffff;
  bool sub = op->flag & CARRY_SUB;
  for (int i = 0; i < LANES; i++) {
    if (!(mask >> i & 1)) continue;
    uint64_t a = reg_get(w, op->a, op->kind, i), b = reg_get(w, op->b, op->kind, i);
    unsigned __int128 x = a, y = b;
    if (op->flag & CARRY_MAD) x = product(op, a, b), y = reg_get(w, op->c, op->kind, i);
    uint32_t in = op->flag & CARRY_IN ? w->carry >> i & 1 : 0;
    unsigned __int128 sum = sub ? x + (all & ~(uint64_t)y) + !in : x + y + in;
    uint32_t out = sum > all;
    if (op->flag & CARRY_OUT) w->carry = (w->carry & ~(1u << i)) | (sub ? !out : out) << i;
    reg_set(w, op->d, op->kind, i, (uint64_t)sum & all);
  }
  return WENT_ON;
}

void decode_add(Reader *r, const Ins *ins) {
  const char *name = ins->part[0], *type = ins->part[ins->nparts - 1];
  bool in = !strcmp(name, "addc") || !strcmp(name, "subc") || !strcmp(name, "madc");
  if (!in && !has_part(ins, "cc")) {
    decode_lanes(r, ins);
    return;
  }
  RegKind k = type_kind(type);
  bool mad = *name == 'm';
  if (k != REG_32 && k != REG_64) unknown(r, ins);
  if (ins->nparts != 2 + has_part(ins, "cc") + mad ||
      (mad && !has_part(ins, "lo") && !has_part(ins, "hi")))
    unknown(r, ins);
  need_args(r, ins, mad ? 4 : 3, mad ? 4 : 3);
  int32_t a = source(r, ins, 1, k), b = source(r, ins, 2, k),
          c = mad ? source(r, ins, 3, k) : NO_SLOT;
  int32_t d = result(r, ins, 0, k);
  Op *op = emit(r, ins);
  op->step = step_carry, op->kind = k, op->d = d, op->a = a, op->b = b, op->c = c;
  op->is_signed = *type == 's';
  op->flag =
      (uint8_t)((*name == 's' ? CARRY_SUB : 0) | (in ? CARRY_IN : 0) | (mad ? CARRY_MAD : 0) |
                (has_part(ins, "cc") ? CARRY_OUT : 0) | (has_part(ins, "hi") ? CARRY_HIGH : 0));
}
