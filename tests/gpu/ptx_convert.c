/* Conversions: cvt between integers, floats, halves, tf32 and floats of 8 bits.
 *
 * Common pairs are lane-wise rows; all others go lane by lane: the operand as a 64-bit integer or
 * an f64 (exact for every type), then rounding, saturation and narrowing. Floats to integers clamp
 * to the range and take NaN to 0; integers to integers cut bits unless .sat; a register may be
 * wider than its type. Compiled with -frounding-math: directed modes are set around the step.
 *
 * Must not: round twice: integers go to f32 and f64 directly, halves from f64 by rounding to odd.
 */
#include "ptx_read.h"
#include "ptx_lanes.h"
#include <fenv.h>
#include <math.h>
#include <stdio.h>

/* ---- lane-wise rows ---- */
static inline s64 clamped(f64 x, f64 low, f64 high, s64 first, s64 last) {
  return x != x ? 0 : x <= low ? first : x >= high ? last : (s64)x;
}
static inline u64 clamped_u64(f64 x) {
  return !(x > 0) ? 0 : x >= 18446744073709551616.0 ? ~(u64)0 : (u64)x;
}
/* clang-format off */
#define INT_PAIRS(R)                                                                               \
  R(u16, u32)                                                                                      \
  R(u16, u64)                                                                                      \
  R(u32, u16)                                                                                      \
  R(u32, u64)                                                                                      \
  R(u64, u16)                                                                                      \
  R(u64, u32)                                                                                      \
  R(u32, s16)                                                                                      \
  R(u64, s16) R(u64, s32) R(s16, s32) R(s16, s64) R(s32, s16) R(s32, s64) R(s64, s16) R(s64, s32)  \
      R(s32, u16) R(s64, u16) R(s64, u32) R(u16, s32) R(u32, s64) R(u16, s64) R(s16, u32)          \
          R(s32, u64) R(s16, u64)
/* clang-format on */
#define FROM_INT(R) R(f32, u16) R(f32, s16) R(f32, u32) R(f32, s32) R(f64, u32) R(f64, s32)
#define PAIR_FN(D, S) LANE_FN1(cvt_##D##_##S, D, S, (D)a)
#define PAIR_ROW(D, S) ROW1(cvt_##D##_##S, D, S, "cvt_" #D "_" #S)
#define RN_ROW(D, S) ROW1(cvt_##D##_##S, D, S, "cvt_rn_" #D "_" #S)
INT_PAIRS(PAIR_FN)
FROM_INT(PAIR_FN)
LANE_FN1(cvt_f64_f32, f64, f32, (f64)a)
LANE_FN1(cvt_f32_bf16, f32, u16, bf16_to_float(a))
LANE_FN1(cvt_f32_f16, f32, u16, f16_to_float(a))
LANE_FN1(cvt_bf16_f32, u16, f32, float_to_bf16(a))
LANE_FN1(cvt_f16_f32, u16, f32, float_to_f16(a))
LANE_FN1(cvt_rzi_s32_f32, s32, f32,
         clamped((f64)a, -2147483648.0, 2147483648.0, INT32_MIN, INT32_MAX))
LANE_FN1(cvt_rzi_u32_f32, u32, f32, clamped((f64)a, 0, 4294967296.0, 0, UINT32_MAX))
LANE_FN2(cvt_bf16x2_f32, u32, f32, f32, (u32)float_to_bf16(a) << 16 | float_to_bf16(b))
LANE_FN2(cvt_f16x2_f32, u32, f32, f32, (u32)float_to_f16(a) << 16 | float_to_f16(b))
static inline f32 no_less(f32 x) { return x > 0 || x != x ? x : 0; }
LANE_FN2(cvt_relu_bf16x2_f32, u32, f32, f32,
         (u32)float_to_bf16(no_less(a)) << 16 | float_to_bf16(no_less(b)))
LANE_FN2(cvt_relu_f16x2_f32, u32, f32, f32,
         (u32)float_to_f16(no_less(a)) << 16 | float_to_f16(no_less(b)))
LANE_FN2(cvt_e4m3x2_f32, u16, f32, f32, (u16)(float_to_e4m3(a) << 8 | float_to_e4m3(b)))
LANE_FN2(cvt_e5m2x2_f32, u16, f32, f32, (u16)(float_to_e5m2(a) << 8 | float_to_e5m2(b)))
/* tf32: 10 bits of mantissa; nearest, ties away from zero */
LANE_FN1(cvt_tf32_f32, u32, u32, (a & 0x7f800000) == 0x7f800000 ? a : (a + 0x1000) & 0xffffe000)
const LaneRow convert_rows[] = {
    /* clang-format off */
    INT_PAIRS(PAIR_ROW) FROM_INT(RN_ROW)
    ROW1(cvt_f64_f32, f64, f32, "cvt_f64_f32")
    ROW1(cvt_f32_bf16, f32, u16, "cvt_f32_bf16") ROW1(cvt_f32_f16, f32, u16, "cvt_f32_f16")
    ROW1(cvt_bf16_f32, u16, f32, "cvt_rn_bf16_f32") ROW1(cvt_f16_f32, u16, f32, "cvt_rn_f16_f32")
    ROW1(cvt_rzi_s32_f32, s32, f32, "cvt_rzi_s32_f32")
    ROW1(cvt_rzi_u32_f32, u32, f32, "cvt_rzi_u32_f32")
    ROW2(cvt_bf16x2_f32, u32, f32, f32, "cvt_rn_bf16x2_f32")
    ROW2(cvt_f16x2_f32, u32, f32, f32, "cvt_rn_f16x2_f32")
    ROW2(cvt_relu_bf16x2_f32, u32, f32, f32, "cvt_rn_relu_bf16x2_f32")
    ROW2(cvt_relu_f16x2_f32, u32, f32, f32, "cvt_rn_relu_f16x2_f32")
    ROW2(cvt_e4m3x2_f32, u16, f32, f32, "cvt_rn_satfinite_e4m3x2_f32")
    ROW2(cvt_e5m2x2_f32, u16, f32, f32, "cvt_rn_satfinite_e5m2x2_f32")
    ROW1(cvt_tf32_f32, u32, u32, "cvt_rna_tf32_f32")
    /* clang-format on */
    {0}};

/* ---- any pair ---- */
typedef enum Form { FORM_UNSIGNED, FORM_SIGNED, FORM_FLOAT, FORM_F16, FORM_BF16 } Form;
typedef enum Round { ROUND_NONE, ROUND_NEAR, ROUND_ZERO, ROUND_DOWN, ROUND_UP } Round;
enum { CVT_SAT = 1, CVT_FTZ = 2, CVT_RELU = 4, CVT_WHOLE = 8 };
typedef struct Conversion {
  Form from, to;
  int from_bytes, to_bytes;
  RegKind from_kind, to_kind;
  Round round;
  uint32_t flags;
} Conversion;

static bool is_float(Form f) { return f >= FORM_FLOAT; }

static f64 read_float(uint64_t bits, Form form, int bytes) {
  if (form == FORM_F16) return f16_to_float((u16)bits);
  if (form == FORM_BF16) return bf16_to_float((u16)bits);
  if (bytes == 4) return float_of((u32)bits);
  f64 d;
  memcpy(&d, &bits, 8);
  return d;
}

static uint64_t extended(uint64_t v, bool sign, int bytes) {
  int unused = 64 - 8 * bytes;
  return sign ? (uint64_t)((int64_t)(v << unused) >> unused) : v << unused >> unused;
}

static f64 whole(f64 x, Round how) {
  switch (how) {
  case ROUND_NEAR: return x - remainder(x, 1) + (x == 0 ? x : 0);
  case ROUND_ZERO: return trunc(x);
  case ROUND_DOWN: return floor(x);
  case ROUND_UP: return ceil(x);
  default: return x;
  }
}

static uint64_t float_to_int(f64 x, const Conversion *c) {
  f64 v = isinf(x) || x != x ? x : whole(x, c->round), half = ldexp(1, 8 * c->to_bytes - 1);
  if (c->to == FORM_SIGNED) {
    s64 last = c->to_bytes == 8 ? INT64_MAX : (s64)half - 1;
    return (uint64_t)clamped(v, -half, half, -last - 1, last);
  }
  u64 u = clamped_u64(v), last = c->to_bytes == 8 ? ~(u64)0 : ((u64)1 << 8 * c->to_bytes) - 1;
  return u < last ? u : last;
}

static uint64_t int_to_int(uint64_t v, const Conversion *c) {
  if (!(c->flags & CVT_SAT)) return v;
  bool below = c->from == FORM_SIGNED && (s64)v < 0;
  u64 top = c->to_bytes == 8 ? ~(u64)0 : ((u64)1 << 8 * c->to_bytes) - 1;
  if (c->to == FORM_SIGNED) top >>= 1;
  if (!below) return v > top ? top : v;
  if (c->to == FORM_UNSIGNED) return 0;
  return (s64)v < -(s64)top - 1 ? (u64)(-(s64)top - 1) : v;
}

/* A half of x, rounded as asked: the nearest one, one step back where that went too far. */
static u16 to_half(f64 x, Form form, Round how) {
  volatile f32 near = (f32)x;
  f32 f = near;
  if ((f64)f != x && x == x && !isinf(f) && !(bits_of(f) & 1))
    f = float_of(bits_of(f) + (fabs((f64)f) > fabs(x) ? ~0u : 1u));
  u16 h = form == FORM_F16 ? float_to_f16(f) : float_to_bf16(f);
  f64 got = form == FORM_F16 ? f16_to_float(h) : bf16_to_float(h);
  bool over = how == ROUND_ZERO   ? fabs(got) > fabs(x)
              : how == ROUND_DOWN ? got > x
              : how == ROUND_UP   ? got < x
                                  : false;
  if (!over) return h;
  bool toward_zero = how == ROUND_ZERO || (got > 0) == (how == ROUND_DOWN);
  return (u16)(toward_zero ? h - 1 : h + 1);
}

static uint64_t write_float(f64 x, const Conversion *c) {
  if (c->to == FORM_F16 || c->to == FORM_BF16) return to_half(x, c->to, c->round);
  if (c->to_bytes == 4) {
    volatile f32 f = (f32)x;
    return bits_of(c->flags & CVT_FTZ ? flushed(f) : f);
  }
  uint64_t bits;
  memcpy(&bits, &x, 8);
  return bits;
}

static uint64_t int_to_float(uint64_t v, const Conversion *c) {
  if (c->to_bytes != 4 || c->to != FORM_FLOAT) {
    volatile f64 d = c->from == FORM_SIGNED ? (f64)(s64)v : (f64)v;
    return write_float(d, c);
  }
  volatile f32 f = c->from == FORM_SIGNED ? (f32)(s64)v : (f32)v;
  return bits_of(f);
}

static uint64_t convert(uint64_t v, const Conversion *c) {
  if (!is_float(c->from)) {
    v = extended(v, c->from == FORM_SIGNED, c->from_bytes);
    return is_float(c->to) ? int_to_float(v, c) : int_to_int(v, c);
  }
  f64 x = read_float(v, c->from, c->from_bytes);
  if (c->flags & CVT_FTZ && c->from_bytes == 4) x = flushed((f32)x);
  if (!is_float(c->to)) return float_to_int(x, c);
  if (c->flags & CVT_WHOLE && !isinf(x) && x == x) x = copysign(whole(x, c->round), x);
  if (c->flags & CVT_SAT) x = x > 0 ? (x < 1 ? x : 1) : 0;
  if (c->flags & CVT_RELU) x = x > 0 || x != x ? x : 0;
  return write_float(x, c);
}

static Went step_cvt(Warp *w, const Op *op, uint32_t mask) {
  static const int modes[] = {FE_TONEAREST, FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  const Conversion *c = (const void *)op->list;
  int before = fegetround();
  bool directed =
      is_float(c->to) && !(c->flags & CVT_WHOLE) && c->to != FORM_F16 && c->to != FORM_BF16;
  if (directed) fesetround(modes[c->round]);
  for (int i = 0; i < LANES; i++) {
    if (!(mask >> i & 1)) continue;
    uint64_t v = convert(reg_get(w, op->a, c->from_kind, i), c);
    if (!is_float(c->to)) v = extended(v, c->to == FORM_SIGNED, c->to_bytes);
    reg_set(w, op->d, c->to_kind, i, v);
  }
  fesetround(before);
  return WENT_ON;
}

/* ---- decoding ---- */
static bool read_type(const char *t, Form *form, int *bytes) {
  *bytes = type_bytes(t);
  *form = *t == 'u'            ? FORM_UNSIGNED
          : *t == 's'          ? FORM_SIGNED
          : !strcmp(t, "f16")  ? FORM_F16
          : !strcmp(t, "bf16") ? FORM_BF16
                               : FORM_FLOAT;
  return *bytes && (*form != FORM_FLOAT || !strcmp(t, "f32") || !strcmp(t, "f64"));
}

static bool read_modifier(const char *p, Conversion *c) {
  static const char *const rounds[] = {"", "rn", "rz", "rm", "rp"};
  for (int k = 1; k < 5; k++) {
    size_t n = strlen(rounds[k]);
    if (strncmp(p, rounds[k], n)) continue;
    if (p[n] && strcmp(p + n, "i")) continue;
    c->round = (Round)k, c->flags |= p[n] ? CVT_WHOLE : 0;
    return true;
  }
  uint32_t f = !strcmp(p, "sat")    ? CVT_SAT
               : !strcmp(p, "ftz")  ? CVT_FTZ
               : !strcmp(p, "relu") ? CVT_RELU
                                    : 0;
  c->flags |= f;
  return f != 0;
}

static bool is_row(const Ins *ins, char key[64]) {
  size_t n = 0;
  for (int i = 0; i < ins->nparts && n < 60; i++)
    n += (size_t)snprintf(key + n, 64 - n, "%s%s", i ? "_" : "", ins->part[i]);
  for (const LaneRow *row = convert_rows; row->key; row++) {
    if (strcmp(row->key, key) || ins->nargs != row->args + 1) continue;
    bool fits = ins->args[0].reg == (RegKind)row->kinds[0] && ins->args[0].kind == ARG_REG;
    for (int k = 1; k <= row->args; k++)
      fits &= ins->args[k].kind != ARG_REG || ins->args[k].reg == (RegKind)row->kinds[k];
    return fits;
  }
  return false;
}

static void decode_row(Reader *r, const Ins *ins, const char *key) {
  for (const LaneRow *row = convert_rows; row->key; row++) {
    if (strcmp(row->key, key)) continue;
    int32_t a = source(r, ins, 1, row->kinds[1]), b = NO_SLOT;
    if (row->args == 2) b = source(r, ins, 2, row->kinds[2]);
    emit_lanes(r, ins, key, result(r, ins, 0, row->kinds[0]), a, b, NO_SLOT);
  }
}

void decode_cvt(Reader *r, const Ins *ins) {
  char key[64];
  if (is_row(ins, key)) {
    decode_row(r, ins, key);
    return;
  }
  Conversion *c = get(r, sizeof *c);
  if (ins->nparts < 3) unknown(r, ins);
  for (int i = 1; i < ins->nparts - 2; i++)
    if (!read_modifier(ins->part[i], c)) unknown(r, ins);
  if (!read_type(ins->part[ins->nparts - 2], &c->to, &c->to_bytes) ||
      !read_type(ins->part[ins->nparts - 1], &c->from, &c->from_bytes))
    unknown(r, ins);
  need_args(r, ins, 2, 2);
  const Arg *d = &ins->args[0], *a = &ins->args[1];
  RegKind least_to = c->to_bytes == 8 ? REG_64 : c->to_bytes == 4 ? REG_32 : REG_16;
  RegKind least_from = c->from_bytes == 8 ? REG_64 : c->from_bytes == 4 ? REG_32 : REG_16;
  bool wide_to = d->kind == ARG_REG && d->reg != REG_PRED && d->reg > least_to;
  bool wide_from = a->kind == ARG_REG && a->reg != REG_PRED && a->reg > least_from;
  c->to_kind = wide_to ? d->reg : least_to, c->from_kind = wide_from ? a->reg : least_from;
  int32_t from = source(r, ins, 1, c->from_kind), to = result(r, ins, 0, c->to_kind);
  Op *op = emit(r, ins);
  op->step = step_cvt, op->a = from, op->d = to, op->list = (const void *)c;
}
