/* Lane-wise instructions on f32 and f64, round to nearest, and comparisons of every type.
 *
 * The approximate functions are those of libm, more exact than a GPU's: who compares allows for it.
 * .ftz makes subnormal operands and results zero of their sign; min and max return the operand that
 * is a number and hold -0 below +0.
 *
 * Must not: let the compiler contract a multiplication and an addition (-ffp-contract=off). */
#include "ptx_lanes.h"
#include <math.h>

#define SMALLER(a, b)                                                                              \
  ((a) != (a) ? (b) : (b) != (b) ? (a) : (a) < (b) ? (a) : (b) < (a) ? (b) : signbit(a) ? (a) : (b))
#define LARGER(a, b)                                                                               \
  ((a) != (a) ? (b) : (b) != (b) ? (a) : (a) > (b) ? (a) : (b) > (a) ? (b) : signbit(a) ? (b) : (a))

static inline f32 saturated(f32 x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
#define AS_IS(x) (x)
#define CLEAN(x) flushed(x)
#define SAT(x) saturated(x)
#define CLEAN_SAT(x) saturated(flushed(x))

/* One function: IN and OUT are applied to operands and result. */
#define MAKE1(NAME, X, IN, OUT, EXPR)                                                              \
  static inline X NAME##_lane(X a) { return EXPR; }                                                \
  LANE_FN1(NAME, X, X, OUT(NAME##_lane(IN(a))))
#define MAKE2(NAME, X, IN, OUT, EXPR)                                                              \
  static inline X NAME##_lane(X a, X b) { return EXPR; }                                           \
  LANE_FN2(NAME, X, X, X, OUT(NAME##_lane(IN(a), IN(b))))
#define MAKE3(NAME, X, IN, OUT, EXPR)                                                              \
  static inline X NAME##_lane(X a, X b, X c) { return EXPR; }                                      \
  LANE_FN3(NAME, X, X, X, X, OUT(NAME##_lane(IN(a), IN(b), IN(c))))

#define ARITH(N, OP, EXPR)                                                                         \
  PLAIN(N, OP, EXPR)                                                                               \
  MAKE##N(OP##_sat_f32, f32, AS_IS, SAT, EXPR)                                                     \
      MAKE##N(OP##_ftz_sat_f32, f32, CLEAN, CLEAN_SAT, EXPR)
#define M(fn) fn##f
#define PLAIN(N, OP, EXPR)                                                                         \
  MAKE##N(OP##_f32, f32, AS_IS, AS_IS, EXPR) MAKE##N(OP##_ftz_f32, f32, CLEAN, CLEAN, EXPR)
#define APPROX(OP, EXPR)                                                                           \
  MAKE1(OP##_approx_f32, f32, AS_IS, AS_IS, EXPR)                                                  \
  MAKE1(OP##_approx_ftz_f32, f32, CLEAN, CLEAN, EXPR)
#include "ptx_float.def"
/* As far from the value as the instruction may be: cut to 11 bits, by up to 2^-11 of it. */
static float tanh_cut(float a) {
  float x = tanhf(a);
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits &= ~(uint32_t)0xfff;
  memcpy(&x, &bits, sizeof x);
  return x;
}
MAKE1(tanh_approx_f32, f32, AS_IS, AS_IS, tanh_cut(a))
#undef ARITH
#undef PLAIN
#undef APPROX
#undef M
#define M(fn) fn
#define PLAIN(N, OP, EXPR) MAKE##N(OP##_f64, f64, AS_IS, AS_IS, EXPR)
#define ARITH(N, OP, EXPR) PLAIN(N, OP, EXPR)
#define APPROX(OP, EXPR)
#include "ptx_float.def"
MAKE1(rcp_approx_ftz_f64, f64, AS_IS, AS_IS, 1 / a)
MAKE1(rsqrt_approx_f64, f64, AS_IS, AS_IS, 1 / sqrt(a))
#undef ARITH
#undef PLAIN
#undef APPROX

#define LIST1(NAME, X, KEY) ROW1(NAME, X, X, KEY)
#define LIST2(NAME, X, KEY) ROW2(NAME, X, X, X, KEY)
#define LIST3(NAME, X, KEY) ROW3(NAME, X, X, X, X, KEY)
#define PLAIN(N, OP, EXPR)                                                                         \
  LIST##N(OP##_f32, f32, #OP "_f32") LIST##N(OP##_ftz_f32, f32, #OP "_ftz_f32")
#define ARITH(N, OP, EXPR)                                                                         \
  PLAIN(N, OP, EXPR)                                                                               \
  LIST##N(OP##_sat_f32, f32, #OP "_sat_f32") LIST##N(OP##_ftz_sat_f32, f32, #OP "_ftz_sat_f32")
#define APPROX(OP, EXPR)                                                                           \
  LIST1(OP##_approx_f32, f32, #OP "_approx_f32")                                                   \
  LIST1(OP##_approx_ftz_f32, f32, #OP "_approx_ftz_f32")
const LaneRow float_rows[] = {
#include "ptx_float.def"
    /* clang-format off */
    LIST1(tanh_approx_f32, f32, "tanh_approx_f32")
    LIST2(div_f32, f32, "div_approx_f32") LIST2(div_ftz_f32, f32, "div_approx_ftz_f32")
    LIST2(div_f32, f32, "div_full_f32") LIST2(div_ftz_f32, f32, "div_full_ftz_f32")
    LIST3(fma_f32, f32, "mad_f32") LIST3(fma_ftz_f32, f32, "mad_ftz_f32")
    /* clang-format on */
    {0}};
#undef ARITH
#undef PLAIN
#undef APPROX
#define PLAIN(N, OP, EXPR) LIST##N(OP##_f64, f64, #OP "_f64")
#define ARITH(N, OP, EXPR) PLAIN(N, OP, EXPR)
#define APPROX(OP, EXPR)
const LaneRow double_rows[] = {
#include "ptx_float.def"
    /* clang-format off */
    LIST3(fma_f64, f64, "mad_f64")
    LIST1(rcp_approx_ftz_f64, f64, "rcp_approx_ftz_f64")
    LIST1(rsqrt_approx_f64, f64, "rsqrt_approx_f64")
    LIST1(rsqrt_approx_f64, f64, "rsqrt_approx_ftz_f64")
    /* clang-format on */
    {0}};

/* ---- comparisons ---- */
#define INT_TESTS(R, T)                                                                            \
  R(eq, T, a == b)                                                                                 \
  R(ne, T, a != b) R(lt, T, a < b) R(le, T, a <= b) R(gt, T, a > b) R(ge, T, a >= b)
#define UNSIGNED_TESTS(R, T)                                                                       \
  INT_TESTS(R, T) R(lo, T, a < b) R(ls, T, a <= b) R(hi, T, a > b) R(hs, T, a >= b)
/* clang-format off */
#define FLOAT_TESTS(R, T)                                                                          \
  R(eq, T, a == b)                                                                                 \
  R(ne, T, a<b || a> b)                                                                            \
  R(lt, T, a < b)                                                                                  \
  R(le, T, a <= b)                                                                                 \
  R(gt, T, a > b)                                                                                  \
  R(ge, T, a >= b)                                                                                 \
  R(equ, T, !(a < b || a > b))                                                                     \
  R(neu, T, a != b) R(ltu, T, !(a >= b)) R(leu, T, !(a > b)) R(gtu, T, !(a <= b))                  \
      R(geu, T, !(a < b)) R(num, T, a == a && b == b) R(nan, T, a != a || b != b)
/* clang-format on */
#define ALL_TESTS(R)                                                                               \
  UNSIGNED_TESTS(R, u16)                                                                           \
  UNSIGNED_TESTS(R, u32)                                                                           \
  UNSIGNED_TESTS(R, u64)                                                                           \
  INT_TESTS(R, s16) INT_TESTS(R, s32) INT_TESTS(R, s64) FLOAT_TESTS(R, f32) FLOAT_TESTS(R, f64)
#define TEST_FN(OP, T, EXPR) LANE_TEST(setp_##OP##_##T, T, EXPR)
#define TEST_ROW(OP, T, EXPR) ROW_TEST(setp_##OP##_##T, T, "setp_" #OP "_" #T)
#define FTZ_FN(OP, T, EXPR)                                                                        \
  static inline bool OP##_ftz(f32 a, f32 b) { return EXPR; }                                       \
  LANE_TEST(setp_##OP##_ftz_f32, f32, OP##_ftz(flushed(a), flushed(b)))
#define FTZ_ROW(OP, T, EXPR) ROW_TEST(setp_##OP##_ftz_f32, f32, "setp_" #OP "_ftz_f32")
ALL_TESTS(TEST_FN)
FLOAT_TESTS(FTZ_FN, f32)
#define CLASS(NAME, T, EXPR) LANE_TEST(testp_##NAME##_##T, T, ((void)b, EXPR))
#define CLASS_ROW(NAME, T) {"testp_" #NAME "_" #T, testp_##NAME##_##T, 1, {REG_PRED, KIND(T)}},
CLASS(finite, f32, isfinite(a) != 0)
CLASS(infinite, f32, isinf(a) != 0)
CLASS(number, f32, a == a)
CLASS(notanumber, f32, a != a)
CLASS(normal, f32, isnormal(a) != 0)
CLASS(subnormal, f32, fpclassify(a) == FP_SUBNORMAL)
CLASS(finite, f64, isfinite(a) != 0)
CLASS(infinite, f64, isinf(a) != 0)
CLASS(notanumber, f64, a != a)
#define BIT_TESTS(R)                                                                               \
  R(eq, u16, "b16")                                                                                \
  R(ne, u16, "b16") R(eq, u32, "b32") R(ne, u32, "b32") R(eq, u64, "b64") R(ne, u64, "b64")
#define BIT_ROW(OP, T, W) ROW_TEST(setp_##OP##_##T, T, "setp_" #OP "_" W)
const LaneRow compare_rows[] = {
    /* clang-format off */
    ALL_TESTS(TEST_ROW) FLOAT_TESTS(FTZ_ROW, f32) BIT_TESTS(BIT_ROW)
    CLASS_ROW(finite, f32) CLASS_ROW(infinite, f32) CLASS_ROW(number, f32)
    CLASS_ROW(notanumber, f32)
    CLASS_ROW(normal, f32) CLASS_ROW(subnormal, f32)
    CLASS_ROW(finite, f64) CLASS_ROW(infinite, f64) CLASS_ROW(notanumber, f64)
    /* clang-format on */
    {0}};
