/* Lane-wise instructions on f16, bf16 and their pairs.
 *
 * A pair register is two halves per lane in ascending order, so that its 32 lanes are 64 halves in
 * a row. Values go through f32 (f32 products and sums of two halves are exact enough to round once
 * more without harm); fma goes through f64, where the product is exact.
 *
 * Must not: flush: sm_80 keeps subnormals of both types unless .ftz says otherwise. */
#include "ptx_lanes.h"
#include <math.h>

typedef u16 f16;
typedef u16 bf16;
#define WIDE_f16(h) f16_to_float(h)
#define WIDE_bf16(h) bf16_to_float(h)
/* f64 to a half, rounded once: to odd in f32 first. */
static inline float odd_float(f64 x) {
  float f = (float)x;
  if ((f64)f == x || x != x || isinf(f)) return f;
  u32 bits = bits_of(f);
  if (!(bits & 1)) bits += fabs((f64)f) > fabs(x) ? ~0u : 1u;
  return float_of(bits);
}
static inline u16 narrow_f16(f64 x) { return float_to_f16(odd_float(x)); }
static inline u16 narrow_bf16(f64 x) { return float_to_bf16(odd_float(x)); }
static inline f64 positive(f64 x) { return x > 0 || x != x ? x : 0; }
static inline f64 unit(f64 x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
static inline f64 smaller(f64 a, f64 b) {
  return a != a ? b : b != b ? a : a < b ? a : b < a ? b : signbit(a) ? a : b;
}
static inline f64 larger(f64 a, f64 b) {
  return a != a ? b : b != b ? a : a > b ? a : b > a ? b : signbit(a) ? b : a;
}

/* NAME, operands, expression over f64 a, b, c */
#define HALF_OPS(R)                                                                                \
  R(add, 2, a + b)                                                                                 \
  R(sub, 2, a - b)                                                                                 \
  R(mul, 2, a *b)                                                                                  \
  R(fma, 3, a *b + c)                                                                              \
  R(fma_relu, 3, positive(a *b + c))                                                               \
  R(fma_sat, 3, unit(a *b + c))                                                                    \
  R(min, 2, smaller(a, b))                                                                         \
  R(max, 2, larger(a, b))                                                                          \
  R(min_NaN, 2, a != a ? a : b != b ? b : smaller(a, b))                                           \
  R(max_NaN, 2, a != a ? a : b != b ? b : larger(a, b))                                            \
  R(ex2_approx, 1, exp2(a))                                                                        \
  R(tanh_approx, 1, tanh(a))
#define HALF_BITS(R) R(neg, 1, a ^ 0x8000) R(abs, 1, a & 0x7fff)

#define HALF_FN(TYPE, NAME, COUNT, EXPR)                                                           \
  static void NAME(LANE_ARGS) {                                                                    \
    (void)ep;                                                                                      \
    const u16 *av = ap, *bv = bp ? bp : ap, *cv = cp ? cp : ap;                                    \
    u16 *dv = dp;                                                                                  \
    _Pragma("GCC ivdep") for (int i = 0; i < (COUNT); i++) {                                       \
      f64 a = WIDE_##TYPE(av[i]), b = WIDE_##TYPE(bv[i]), c = WIDE_##TYPE(cv[i]);                  \
      (void)a, (void)b, (void)c;                                                                   \
      dv[i] = narrow_##TYPE(EXPR);                                                                 \
    }                                                                                              \
  }
#define BITS_FN(NAME, COUNT, EXPR)                                                                 \
  static void NAME(LANE_ARGS) {                                                                    \
    UNUSED_ARGS;                                                                                   \
    const u16 *av = ap;                                                                            \
    u16 *dv = dp;                                                                                  \
    for (int i = 0; i < (COUNT); i++) {                                                            \
      u16 a = av[i];                                                                               \
      dv[i] = (u16)(EXPR);                                                                         \
    }                                                                                              \
  }
#define BOTH_SIZES(T, OP, EXPR)                                                                    \
  HALF_FN(T, OP##_##T, LANES, EXPR) HALF_FN(T, OP##_##T##x2, 2 * LANES, EXPR)
#define FN_f16(OP, N, EXPR) BOTH_SIZES(f16, OP, EXPR)
#define FN_bf16(OP, N, EXPR) BOTH_SIZES(bf16, OP, EXPR)
#define FN_BITS(OP, N, EXPR) BITS_FN(OP##_half, LANES, EXPR) BITS_FN(OP##_pair, 2 * LANES, EXPR)
#ifdef __clang__
#pragma clang diagnostic ignored "-Wunknown-pragmas"
#endif
HALF_OPS(FN_f16)
HALF_OPS(FN_bf16)
HALF_BITS(FN_BITS)

/* clang-format off */
#define HALF_TESTS(R)                                                                              \
  R(eq, a == b)                                                                                    \
  R(ne, a<b || a> b)                                                                               \
  R(lt, a < b)                                                                                     \
  R(le, a <= b)                                                                                    \
  R(gt, a > b)                                                                                     \
  R(ge, a >= b)                                                                                    \
  R(equ, !(a < b || a > b))                                                                        \
  R(neu, a != b) R(ltu, !(a >= b)) R(leu, !(a > b)) R(gtu, !(a <= b)) R(geu, !(a < b))             \
      R(num, a == a && b == b) R(nan, a != a || b != b)
/* clang-format on */
#define TEST_FN(TYPE, OP, EXPR)                                                                    \
  static inline bool OP##_##TYPE(f32 a, f32 b) { return EXPR; }                                    \
  LANE_TEST(setp_##OP##_##TYPE, u16, OP##_##TYPE(WIDE_##TYPE(a), WIDE_##TYPE(b)))
#define TEST_f16(OP, EXPR) TEST_FN(f16, OP, EXPR)
#define TEST_bf16(OP, EXPR) TEST_FN(bf16, OP, EXPR)
HALF_TESTS(TEST_f16)
HALF_TESTS(TEST_bf16)

#define HALF_ROW(KEY, FN, N, K) {KEY, FN, N, {K, K, K, K}},
#define ROWS_f16(OP, N, EXPR)                                                                      \
  HALF_ROW(#OP "_f16", OP##_f16, N, REG_16) HALF_ROW(#OP "_f16x2", OP##_f16x2, N, REG_32)
#define ROWS_bf16(OP, N, EXPR)                                                                     \
  HALF_ROW(#OP "_bf16", OP##_bf16, N, REG_16) HALF_ROW(#OP "_bf16x2", OP##_bf16x2, N, REG_32)
#define ROWS_BITS(OP, N, EXPR)                                                                     \
  HALF_ROW(#OP "_f16", OP##_half, 1, REG_16)                                                       \
  HALF_ROW(#OP "_bf16", OP##_half, 1, REG_16)                                                      \
  HALF_ROW(#OP "_f16x2", OP##_pair, 1, REG_32) HALF_ROW(#OP "_bf16x2", OP##_pair, 1, REG_32)
#define TEST_ROW_f16(OP, EXPR) ROW_TEST(setp_##OP##_f16, u16, "setp_" #OP "_f16")
#define TEST_ROW_bf16(OP, EXPR) ROW_TEST(setp_##OP##_bf16, u16, "setp_" #OP "_bf16")
const LaneRow half_rows[] = {
    /* clang-format off */
    HALF_OPS(ROWS_f16) HALF_OPS(ROWS_bf16) HALF_BITS(ROWS_BITS)
    HALF_TESTS(TEST_ROW_f16) HALF_TESTS(TEST_ROW_bf16)
    HALF_ROW("ex2_approx_ftz_bf16", ex2_approx_bf16, 1, REG_16)
    HALF_ROW("ex2_approx_ftz_bf16x2", ex2_approx_bf16x2, 1, REG_32)
    /* clang-format on */
    {0}};
