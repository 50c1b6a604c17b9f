/* Arithmetic on f32 and f64 with directed rounding: .rm (down), .rp (up), .rz (to zero).
 *
 * The processor's rounding mode is set around one loop over the lanes and set back. This file is
 * compiled with -frounding-math so that nothing is computed ahead or moved across.
 *
 * Must not: leave the rounding mode changed. */
#include "ptx_lanes.h"
#include <fenv.h>
#include <math.h>

/* name, operands, expression for f32, for f64 */
#define ROUND_OPS(R)                                                                               \
  R(add, 2, a + b, a + b)                                                                          \
  R(sub, 2, a - b, a - b)                                                                          \
  R(mul, 2, a *b, a *b)                                                                            \
  R(div, 2, a / b, a / b)                                                                          \
  R(fma, 3, fmaf(a, b, c), fma(a, b, c))                                                           \
  R(sqrt, 1, sqrtf(a), sqrt(a))                                                                    \
  R(rcp, 1, 1 / a, 1 / a)
#define AS_IS(x) (x)
#define ROUND_FN(NAME, T, MODE, IN, EXPR)                                                          \
  static void NAME(LANE_ARGS) {                                                                    \
    (void)ep;                                                                                      \
    const T *av = ap, *bv = bp ? bp : ap, *cv = cp ? cp : ap;                                      \
    T *dv = dp;                                                                                    \
    int before = fegetround();                                                                     \
    fesetround(MODE);                                                                              \
    for (int i = 0; i < LANES; i++) {                                                              \
      volatile T x = IN(av[i]), y = IN(bv[i]), z = IN(cv[i]);                                      \
      T a = x, b = y, c = z;                                                                       \
      (void)a, (void)b, (void)c;                                                                   \
      volatile T r = (EXPR);                                                                       \
      dv[i] = IN(r);                                                                               \
    }                                                                                              \
    fesetround(before);                                                                            \
  }
#define FN_MODE(OP, N, E32, E64, R, MODE)                                                          \
  ROUND_FN(OP##_##R##_f32, f32, MODE, AS_IS, E32)                                                  \
  ROUND_FN(OP##_##R##_ftz_f32, f32, MODE, flushed, E32)                                            \
  ROUND_FN(OP##_##R##_f64, f64, MODE, AS_IS, E64)
#define FNS(OP, N, E32, E64)                                                                       \
  FN_MODE(OP, N, E32, E64, rm, FE_DOWNWARD)                                                        \
  FN_MODE(OP, N, E32, E64, rp, FE_UPWARD) FN_MODE(OP, N, E32, E64, rz, FE_TOWARDZERO)
ROUND_OPS(FNS)
#define ROW_MODE(OP, N, R)                                                                         \
  {#OP "_" #R "_f32", OP##_##R##_f32, N, {REG_32, REG_32, REG_32, REG_32}},                        \
      {#OP "_" #R "_ftz_f32", OP##_##R##_ftz_f32, N, {REG_32, REG_32, REG_32, REG_32}},            \
      {#OP "_" #R "_f64", OP##_##R##_f64, N, {REG_64, REG_64, REG_64, REG_64}},
#define ROWS(OP, N, E32, E64) ROW_MODE(OP, N, rm) ROW_MODE(OP, N, rp) ROW_MODE(OP, N, rz)
const LaneRow round_rows[] = {ROUND_OPS(ROWS){0}};
