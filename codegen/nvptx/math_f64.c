/* f64 mathematics for GPUs, which have no libm: scalars and vectors. It serves schedules of the
   learning rate, to a few units in the last place; used for single numbers, so short code counts
   more than speed.

   exp: n ln 2 is subtracted, Taylor's series of the remainder. log: mantissa in [sqrt 1/2, sqrt 2),
   the series of 2 artanh(f / (2 + f)). sin and cos: multiples of pi/2 are subtracted in three
   parts, good for |x| below 1e5. erf: the series whose terms are all positive. Powers are e^(y log
   x). */
#include "math.h"
#include "codegen/arith.h"
#include <math.h>
#include <string.h>

static LLVMTypeRef words_like(Emit *e, LLVMValueRef x) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context);
  int lanes = emit_lanes_of(x);
  return lanes ? LLVMVectorType(i64, (unsigned)lanes) : i64;
}

static LLVMValueRef word(Emit *e, LLVMValueRef x, int64_t v) {
  return emit_splat(e, emit_i64(e, v), emit_lanes_of(x));
}

static LLVMValueRef quotient(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFDiv(e->builder, a, b, "");
}

static LLVMValueRef pick(Emit *e, LLVMRealPredicate p, LLVMValueRef a, double b, LLVMValueRef yes,
                         LLVMValueRef no) {
  LLVMValueRef is = LLVMBuildFCmp(e->builder, p, a, real(a, b), "");
  return LLVMBuildSelect(e->builder, is, yes, no, "");
}

static LLVMValueRef with_sign(Emit *e, LLVMValueRef size, LLVMValueRef sign) {
  LLVMValueRef args[] = {size, sign};
  return emit_intrinsic(e, "llvm.copysign", LLVMTypeOf(size), 2, args);
}

/* Whole numbers; 0 for NaN. */
static LLVMValueRef to_word(Emit *e, LLVMValueRef n) {
  n = pick(e, LLVMRealUNO, n, 0, real(n, 0), n);
  return LLVMBuildFPToSI(e->builder, n, words_like(e, n), "");
}

/* 2^n of a word */
static LLVMValueRef power_of_two(Emit *e, LLVMValueRef n, LLVMTypeRef type) {
  LLVMValueRef biased = LLVMBuildAdd(e->builder, n, word(e, n, 1023), "");
  return LLVMBuildBitCast(e->builder, LLVMBuildShl(e->builder, biased, word(e, n, 52), ""), type,
                          "");
}

/* e^r - 1 for |r| below 0.35 */
static LLVMValueRef less_one(Emit *e, LLVMValueRef r) {
  double factor = 1;
  for (int i = 2; i <= 14; i++) factor /= i;
  LLVMValueRef sum = real(r, factor);
  for (int i = 13; i >= 1; i--) {
    factor *= i + 1;
    sum = emit_fma(e, sum, r, real(r, factor));
  }
  return mul(e, sum, r);
}

static LLVMValueRef exponential(Emit *e, LLVMValueRef x) {
  LLVMValueRef bounded = pick(e, LLVMRealOGT, x, 710, real(x, 710), x);
  bounded = pick(e, LLVMRealOLT, bounded, -746, real(x, -746), bounded);
  LLVMValueRef n = intrinsic(e, "llvm.rint", mul(e, bounded, real(x, 0x1.71547652b82fep0)));
  LLVMValueRef r = emit_fma(e, n, real(x, -0x1.62e42fefa39efp-1), bounded);
  r = emit_fma(e, n, real(x, -0x1.abc9e3b39803fp-56), r);
  LLVMValueRef y = add(e, less_one(e, r), real(x, 1)), whole = to_word(e, n);
  LLVMValueRef half = LLVMBuildAShr(e->builder, whole, word(e, whole, 1), "");
  LLVMValueRef rest = LLVMBuildSub(e->builder, whole, half, "");
  y = mul(e, y, power_of_two(e, half, LLVMTypeOf(x)));
  return mul(e, y, power_of_two(e, rest, LLVMTypeOf(x)));
}

static LLVMValueRef logarithm(Emit *e, LLVMValueRef x) {
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef normal = pick(e, LLVMRealOLT, x, 0x1p-1022, mul(e, x, real(x, 0x1p54)), x);
  LLVMValueRef bits = LLVMBuildBitCast(builder, normal, words_like(e, x), "");
  LLVMValueRef n = LLVMBuildSub(builder, bits, word(e, bits, 0x3fe6a09e667f3bcd), "");
  n = LLVMBuildAShr(builder, n, word(e, n, 52), "");
  bits = LLVMBuildSub(builder, bits, LLVMBuildShl(builder, n, word(e, n, 52), ""), "");
  LLVMValueRef f = sub(e, LLVMBuildBitCast(builder, bits, LLVMTypeOf(x), ""), real(x, 1));
  LLVMValueRef s = quotient(e, f, add(e, f, real(x, 2))), z = mul(e, s, s), sum = real(x, 1. / 25);
  for (int i = 23; i >= 3; i -= 2) sum = emit_fma(e, sum, z, real(x, 1. / i));
  /* 2 s (1 + z sum) = f - s f + 2 s z sum */
  LLVMValueRef rest = mul(e, s, sub(e, mul(e, mul(e, z, real(x, 2)), sum), f));
  LLVMValueRef k = LLVMBuildSIToFP(builder, n, LLVMTypeOf(x), "");
  k = pick(e, LLVMRealOLT, x, 0x1p-1022, sub(e, k, real(x, 54)), k);
  LLVMValueRef low = emit_fma(e, k, real(x, 0x1.abc9e3b39803fp-56), rest);
  LLVMValueRef y = emit_fma(e, k, real(x, 0x1.62e42fefa39efp-1), add(e, f, low));
  y = pick(e, LLVMRealOEQ, x, 0, real(x, -INFINITY), y);
  y = pick(e, LLVMRealOLT, x, 0, real(x, NAN), y);
  return pick(e, LLVMRealUEQ, x, INFINITY, x, y);
}

/* sin (quarter 0), cos (quarter 1) */
static LLVMValueRef sine(Emit *e, LLVMValueRef x, int quarter) {
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef n = intrinsic(e, "llvm.rint", mul(e, x, real(x, 0x1.45f306dc9c883p-1)));
  LLVMValueRef r = emit_fma(e, n, real(x, -0x1.921fb54442d18p0), x);
  r = emit_fma(e, n, real(x, -0x1.1a62633145c07p-54), r);
  r = emit_fma(e, n, real(x, 0x1.f1976b7ed8fbcp-110), r);
  LLVMValueRef t = mul(e, r, r), s = real(x, 0), c = real(x, 0);
  for (int i = 20; i >= 2; i--) { /* odd powers for the one, even ones for the other */
    double factor = i / 2 % 2 ? -1 : 1;
    for (int j = 2; j <= i; j++) factor /= j;
    if (i % 2) s = emit_fma(e, s, t, real(x, factor));
    else c = emit_fma(e, c, t, real(x, factor));
  }
  s = emit_fma(e, mul(e, t, r), s, r), c = emit_fma(e, t, c, real(x, 1));
  LLVMValueRef q = to_word(e, n);
  q = LLVMBuildAdd(builder, q, word(e, q, quarter), "");
  LLVMValueRef bit = LLVMBuildAnd(builder, q, word(e, q, 1), "");
  LLVMValueRef odd = LLVMBuildICmp(builder, LLVMIntNE, bit, word(e, q, 0), "");
  LLVMValueRef sign =
      LLVMBuildShl(builder, LLVMBuildAnd(builder, q, word(e, q, 2), ""), word(e, q, 62), "");
  LLVMValueRef chosen = LLVMBuildSelect(builder, odd, c, s, "");
  chosen = LLVMBuildBitCast(builder, chosen, words_like(e, x), "");
  return LLVMBuildBitCast(builder, LLVMBuildXor(builder, chosen, sign, ""), LLVMTypeOf(x), "");
}

static LLVMValueRef tangent(Emit *e, LLVMValueRef x) {
  LLVMValueRef a = intrinsic(e, "llvm.fabs", x), twice = add(e, a, a);
  LLVMValueRef p = less_one(e, pick(e, LLVMRealOLT, twice, 0.35, twice, real(x, 0)));
  LLVMValueRef small = quotient(e, p, add(e, p, real(x, 2)));
  LLVMValueRef power = add(e, exponential(e, twice), real(x, 1));
  LLVMValueRef large = sub(e, real(x, 1), quotient(e, real(x, 2), power));
  return with_sign(e, pick(e, LLVMRealOLT, twice, 0.35, small, large), x);
}

/* 2 / sqrt pi x e^(-x^2) (1 + 2 x^2 / 3 (1 + 2 x^2 / 5 (1 + ..))); beyond 6 it is 1 */
static LLVMValueRef error_function(Emit *e, LLVMValueRef x) {
  LLVMValueRef a = intrinsic(e, "llvm.fabs", x);
  a = pick(e, LLVMRealOGT, a, 6, real(x, 6), a);
  LLVMValueRef t = mul(e, a, a), twice = add(e, t, t), sum = real(x, 1);
  for (int i = 221; i >= 3; i -= 2)
    sum = emit_fma(e, sum, mul(e, twice, real(x, 1. / i)), real(x, 1));
  LLVMValueRef y = mul(e, mul(e, a, real(x, 0x1.20dd750429b6dp0)), sum);
  return with_sign(e, mul(e, y, exponential(e, LLVMBuildFNeg(e->builder, t, ""))), x);
}

LLVMValueRef nvptx_f64(Emit *e, const char *name, LLVMValueRef x, LLVMValueRef second) {
  if (!strcmp(name, "exp")) return exponential(e, x);
  if (!strcmp(name, "log")) return logarithm(e, x);
  if (!strcmp(name, "sin")) return sine(e, x, 0);
  if (!strcmp(name, "cos")) return sine(e, x, 1);
  if (!strcmp(name, "tanh")) return tangent(e, x);
  if (!strcmp(name, "erf")) return error_function(e, x);
  if (!strcmp(name, "pow"))
    return exponential(e, mul(e, logarithm(e, x), emit_splat(e, second, emit_lanes_of(x))));
  bug("no mathematics of f64 for %s", name);
}
