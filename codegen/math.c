/* Mathematics of the kernels as LLVM IR: f32 scalars and vectors without libm; f64 calls libm
   element by element.

   Polynomials are Chebyshev fits made for these intervals. Errors against exact values, in units of
   the last place: exp 1.2, log 1, tanh 2, erf 2, sigmoid 3, erfinv 8, sin and cos 2 (|x| up to 1e5;
   larger ones lose digits). e^x below a row's largest, as softmax has it, may lose digits where it
   is small (math_exp_negative). Infinities and NaN give what libm gives. Clamps are written `x > c
   ? c : x`, so that a NaN passes through them and machines still need one instruction. No fast-math
   flags: code that relies on the order of operations stays as written. */
#include "arith.h"
#include "device_code.h"
#include <math.h>

/* ---- constants and small helpers: all follow the shape of x ---- */

static LLVMTypeRef i32_like(Emit *e, LLVMValueRef x) {
  return shaped(x, LLVMInt32TypeInContext(e->context));
}

static LLVMValueRef word(Emit *e, LLVMValueRef x, uint32_t v) {
  int lanes = emit_lanes_of(x);
  LLVMValueRef c = LLVMConstInt(LLVMInt32TypeInContext(e->context), v, 0), all[64];
  for (int i = 0; i < lanes; i++) all[i] = c;
  return lanes ? LLVMConstVector(all, (unsigned)lanes) : c;
}

static LLVMValueRef pick(Emit *e, LLVMRealPredicate p, LLVMValueRef a, LLVMValueRef b,
                         LLVMValueRef yes, LLVMValueRef no) {
  return LLVMBuildSelect(e->builder, LLVMBuildFCmp(e->builder, p, a, b, ""), yes, no, "");
}

#define POLYNOMIAL(e, x, ...)                                                                      \
  polynomial((e), (x), (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),                    \
             (double[]){__VA_ARGS__})

static LLVMValueRef as_int(Emit *e, LLVMValueRef x) {
  return LLVMBuildBitCast(e->builder, x, i32_like(e, x), "");
}

static LLVMValueRef as_float(Emit *e, LLVMValueRef x) {
  return LLVMBuildBitCast(e->builder, x, shaped(x, LLVMFloatTypeInContext(e->context)), "");
}

static LLVMValueRef with_sign(Emit *e, LLVMValueRef size, LLVMValueRef sign) {
  LLVMValueRef args[] = {size, sign};
  return emit_intrinsic(e, "llvm.copysign", LLVMTypeOf(size), 2, args);
}

static bool is_f64(Emit *e, LLVMValueRef x) {
  LLVMTypeRef t = LLVMTypeOf(x);
  if (emit_lanes_of(x)) t = LLVMGetElementType(t);
  return t == LLVMDoubleTypeInContext(e->context);
}

/* ---- f32 ---- */

/* 2^n for a whole number n in [-126, 127], given as i32 */
static LLVMValueRef power_of_two(Emit *e, LLVMValueRef n) {
  LLVMValueRef biased = LLVMBuildAdd(e->builder, n, word(e, n, 127), "");
  return as_float(e, LLVMBuildShl(e->builder, biased, word(e, n, 23), ""));
}

/* e^x = p 2^n. biased: n + 127 + 1.5 * 2^23, a number so large that it has no bits for a fraction,
   which rounds x log2 e to a whole number; its lowest bits are n + 127 as a whole number. */
typedef struct Power {
  LLVMValueRef p, n, biased;
} Power;

#define BIAS 0x1.8000fep23

static Power power_of_e(Emit *e, LLVMValueRef x) {
  LLVMValueRef biased = emit_fma(e, x, real(x, 1.4426950216293335), real(x, BIAS));
  LLVMValueRef n = sub(e, biased, real(x, BIAS));
  LLVMValueRef r = emit_fma(e, n, real(x, -0x1.62e4p-1), x);
  r = emit_fma(e, n, real(x, -0x1.7f7d1cp-20), r);
  LLVMValueRef q = POLYNOMIAL(e, r, 0.5, 0.16666576266288757, 0.041666556149721146,
                              0.008363178931176662, 0.0013926184037700295);
  return (Power){add(e, emit_fma(e, mul(e, r, r), q, r), real(x, 1)), n, biased};
}

static LLVMValueRef scaled_at_once(Emit *e, const Power *power) {
  const DeviceCode *device = e->target->code;
  return device->scale_by_power ? device->scale_by_power(e, power->p, power->n) : NULL;
}

/* In two steps, so that results near both ends of the range come out right. Whole numbers are made
   of bits, which a NaN has as well; its p remains a NaN. */
static LLVMValueRef exp_f32(Emit *e, LLVMValueRef x) {
  if (e->target->code->exp) return e->target->code->exp(e, x);
  Power power = power_of_e(e, at_least(e, at_most(e, x, 89.0), -104.0));
  LLVMValueRef at_once = scaled_at_once(e, &power);
  if (at_once) return at_once;
  LLVMValueRef bits = as_int(e, power.biased), whole = as_int(e, real(x, BIAS));
  whole = LLVMBuildSub(e->builder, bits, whole, "");
  LLVMValueRef half = LLVMBuildAShr(e->builder, whole, word(e, whole, 1), "");
  LLVMValueRef rest = LLVMBuildSub(e->builder, whole, half, "");
  return mul(e, mul(e, power.p, power_of_two(e, half)), power_of_two(e, rest));
}

/* e^x for x within [-87, 88] or NaN: 2^n is one number. */
static LLVMValueRef exp_within(Emit *e, LLVMValueRef x) {
  if (e->target->code->exp) return e->target->code->exp(e, x);
  Power power = power_of_e(e, x);
  LLVMValueRef at_once = scaled_at_once(e, &power);
  if (at_once) return at_once;
  LLVMValueRef bits = as_int(e, power.biased);
  return mul(e, power.p, as_float(e, LLVMBuildShl(e->builder, bits, word(e, bits, 23), "")));
}

LLVMValueRef math_exp_negative(Emit *e, LLVMValueRef x) {
  const DeviceCode *device = e->target->code;
  LLVMValueRef y = device->exp_negative && !is_f64(e, x) ? device->exp_negative(e, x) : NULL;
  return y ? y : math_unary(e, OP_exp, x);
}

static LLVMValueRef log_f32(Emit *e, LLVMValueRef x) {
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef tiny = LLVMBuildFCmp(builder, LLVMRealOLT, x, real(x, 0x1p-126), "");
  LLVMValueRef normal = LLVMBuildSelect(builder, tiny, mul(e, x, real(x, 0x1p23)), x, "");
  LLVMValueRef bits = as_int(e, normal);
  /* exponent such that the mantissa is in [sqrt 1/2, sqrt 2) */
  LLVMValueRef n = LLVMBuildAShr(
      builder, LLVMBuildSub(builder, bits, word(e, bits, 0x3f3504f3), ""), word(e, bits, 23), "");
  LLVMValueRef mantissa =
      as_float(e, LLVMBuildSub(builder, bits, LLVMBuildShl(builder, n, word(e, n, 23), ""), ""));
  LLVMValueRef k = LLVMBuildSIToFP(builder, n, LLVMTypeOf(x), "");
  k = LLVMBuildSelect(builder, tiny, sub(e, k, real(x, 23)), k, "");
  LLVMValueRef f = sub(e, mantissa, real(x, 1)), f2 = mul(e, f, f);
  LLVMValueRef p = POLYNOMIAL(e, f, 0.3333333134651184, -0.2499999701976776, 0.20000715553760529,
                              -0.1666780263185501, 0.14249058067798615, -0.12425687164068222,
                              0.11685419827699661, -0.11479733884334564, 0.06971611827611923);
  LLVMValueRef low = emit_fma(e, k, real(x, 0x1.7f7d1cp-20), mul(e, mul(e, f2, f), p));
  low = emit_fma(e, f2, real(x, -0.5), low);
  LLVMValueRef r = emit_fma(e, k, real(x, 0x1.62e4p-1), add(e, f, low));
  r = pick(e, LLVMRealOEQ, x, real(x, 0), real(x, -INFINITY), r);
  r = pick(e, LLVMRealOLT, x, real(x, 0), real(x, NAN), r);
  return pick(e, LLVMRealUEQ, x, real(x, INFINITY), x, r); /* infinity and NaN */
}

/* a / x; by a reciprocal to two units in the last place */
static LLVMValueRef quotient(Emit *e, double a, LLVMValueRef x) {
  const DeviceCode *device = e->target->code;
  if (device->reciprocal) return mul(e, real(x, a), device->reciprocal(e, x));
  return LLVMBuildFDiv(e->builder, real(x, a), x, "");
}

static LLVMValueRef sigmoid_f32(Emit *e, LLVMValueRef x) {
  LLVMValueRef t = exp_f32(e, LLVMBuildFNeg(e->builder, x, ""));
  return quotient(e, 1, add(e, real(x, 1), t));
}

static LLVMValueRef tanh_f32(Emit *e, LLVMValueRef x) {
  LLVMValueRef a = intrinsic(e, "llvm.fabs", x), t = mul(e, x, x);
  LLVMValueRef p = POLYNOMIAL(e, t, -0.333333283662796, 0.1333276927471161, -0.05385090783238411,
                              0.020997179672122, -0.006096714176237583);
  LLVMValueRef small = emit_fma(e, mul(e, t, x), p, x);
  LLVMValueRef power = exp_within(e, at_most(e, add(e, a, a), 88.0));
  LLVMValueRef part = quotient(e, 2, add(e, power, real(x, 1)));
  LLVMValueRef large = with_sign(e, sub(e, real(x, 1), part), x);
  return pick(e, LLVMRealOLT, a, real(x, 0.625), small, large);
}

static LLVMValueRef erf_f32(Emit *e, LLVMValueRef x) {
  LLVMValueRef a = intrinsic(e, "llvm.fabs", x), t = mul(e, x, x);
  LLVMValueRef p = POLYNOMIAL(e, t, 1.128379225730896, -0.37612637877464294, 0.11283782124519348,
                              -0.026865430176258087, 0.005221031606197357, -0.0008484080317430198,
                              0.00011265958892181516, -9.667044650996104e-06);
  LLVMValueRef c = at_most(e, a, 4.0);
  /* log(1 - erf) on [1, 4] */
  LLVMValueRef l =
      POLYNOMIAL(e, c, 0.0003209143760614097, -1.1302367448806763, -0.6318202614784241,
                 -0.11008568108081818, 0.02642437070608139, -0.004760747775435448,
                 0.0005970529746264219, -4.6087447117315605e-05, 1.6386372863053111e-06);
  LLVMValueRef large = with_sign(e, sub(e, real(x, 1), exp_within(e, l)), x);
  return pick(e, LLVMRealOLT, a, real(x, 1), mul(e, x, p), large);
}

/* x times a function of w = -log(1 - x^2): one polynomial in w, and one in sqrt(w) towards the ends
 */
static LLVMValueRef erfinv_f32(Emit *e, LLVMValueRef x) {
  LLVMValueRef one = real(x, 1);
  LLVMValueRef product = mul(e, sub(e, one, x), add(e, one, x));
  LLVMValueRef w = LLVMBuildFNeg(e->builder, log_f32(e, product), "");
  LLVMValueRef s = sub(e, w, real(x, 2.5));
  LLVMValueRef middle =
      POLYNOMIAL(e, s, 1.5014092922210693, 0.24664077162742615, -0.004177346359938383,
                 -0.0012537589063867927, 0.00021831298363395035, -4.3803465814562514e-06,
                 -3.4547795166872675e-06, 3.4222469480482687e-07, 2.2605977534340127e-08);
  LLVMValueRef r = sub(e, intrinsic(e, "llvm.sqrt", w), real(x, 3));
  LLVMValueRef ends =
      POLYNOMIAL(e, r, 2.832977056503296, 1.001676321029663, 0.009431536309421062,
                 -0.007652702275663614, 0.005791032686829567, -0.0035733371041715145,
                 0.0012226755497977138, 7.435967290803092e-06, -9.642342774895951e-05);
  LLVMValueRef y = mul(e, x, pick(e, LLVMRealOLT, w, real(x, 5), middle, ends));
  LLVMValueRef a = intrinsic(e, "llvm.fabs", x);
  return pick(e, LLVMRealOEQ, a, one, with_sign(e, real(x, INFINITY), x), y);
}

/* sin (quarter 0) and cos (quarter 1): x = n pi/2 + r, |r| <= pi/4, pi/2 in three parts */
static LLVMValueRef sine_f32(Emit *e, LLVMValueRef x, uint32_t quarter) {
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef bounded = at_least(e, at_most(e, x, 1e7), -1e7);
  LLVMValueRef n = intrinsic(e, "llvm.rint", mul(e, bounded, real(x, 0.6366197466850281)));
  n = pick(e, LLVMRealUNO, n, n, real(x, 0), n);
  LLVMValueRef r = emit_fma(e, n, real(x, -0x1.921fb4p+0), bounded);
  r = emit_fma(e, n, real(x, -0x1.4442dp-24), r);
  r = emit_fma(e, n, real(x, -0x1.84698ap-48), r);
  LLVMValueRef t = mul(e, r, r);
  LLVMValueRef ps = POLYNOMIAL(e, t, -0.1666666716337204, 0.008333331905305386,
                               -0.00019840082677546889, 2.7249313916399842e-06);
  LLVMValueRef pc =
      POLYNOMIAL(e, t, 0.0416666641831398, -0.0013888300163671374, 2.4547436623834074e-05);
  LLVMValueRef s = emit_fma(e, mul(e, t, r), ps, r);
  LLVMValueRef c = emit_fma(e, mul(e, t, t), pc, emit_fma(e, t, real(x, -0.5), real(x, 1)));
  LLVMValueRef q = LLVMBuildFPToSI(builder, n, i32_like(e, x), "");
  q = LLVMBuildAdd(builder, q, word(e, q, quarter), "");
  LLVMValueRef odd = LLVMBuildICmp(builder, LLVMIntNE, LLVMBuildAnd(builder, q, word(e, q, 1), ""),
                                   word(e, q, 0), "");
  LLVMValueRef chosen = LLVMBuildSelect(builder, odd, c, s, "");
  LLVMValueRef sign =
      LLVMBuildShl(builder, LLVMBuildAnd(builder, q, word(e, q, 2), ""), word(e, q, 30), "");
  LLVMValueRef y = as_float(e, LLVMBuildXor(builder, as_int(e, chosen), sign, ""));
  return pick(e, LLVMRealOEQ, intrinsic(e, "llvm.fabs", x), real(x, INFINITY), real(x, NAN), y);
}

static LLVMValueRef rsqrt_any(Emit *e, LLVMValueRef x) {
  if (e->target->code->rsqrt && !is_f64(e, x)) return e->target->code->rsqrt(e, x);
  return LLVMBuildFDiv(e->builder, real(x, 1), intrinsic(e, "llvm.sqrt", x), "");
}

/* The rounding error of 1 + x is added back to first order; at -1 and infinity there is none. */
static LLVMValueRef log1p_f32(Emit *e, LLVMValueRef x) {
  LLVMValueRef u = add(e, real(x, 1), x), lost = sub(e, x, sub(e, u, real(x, 1)));
  LLVMValueRef part = LLVMBuildFDiv(e->builder, lost, u, "");
  part = pick(e, LLVMRealUNO, part, part, real(x, 0), part);
  return add(e, log_f32(e, u), part);
}

static LLVMValueRef unary_f32(Emit *e, OpCode c, LLVMValueRef x) {
  switch (c) {
  case OP_exp: return exp_f32(e, x);
  case OP_log: return log_f32(e, x);
  case OP_log1p: return log1p_f32(e, x);
  case OP_sin: return sine_f32(e, x, 0);
  case OP_cos: return sine_f32(e, x, 1);
  case OP_tanh: return tanh_f32(e, x);
  case OP_sigmoid: return sigmoid_f32(e, x);
  case OP_erf: return erf_f32(e, x);
  case OP_erfinv: return erfinv_f32(e, x);
  default: bug("no mathematics for %s", op_name(c));
  }
}

/* ---- f64: libm, one element at a time ---- */

static LLVMValueRef libm_scalar(Emit *e, const char *name, int n, LLVMValueRef *args) {
  LLVMTypeRef f64 = LLVMDoubleTypeInContext(e->context), params[] = {f64, f64};
  LLVMTypeRef type = LLVMFunctionType(f64, params, (unsigned)n, 0);
  LLVMValueRef f = LLVMGetNamedFunction(e->module, name);
  if (!f) f = LLVMAddFunction(e->module, name, type);
  return LLVMBuildCall2(e->builder, type, f, args, (unsigned)n, "");
}

static LLVMValueRef libm(Emit *e, const char *name, LLVMValueRef x, LLVMValueRef second) {
  int lanes = emit_lanes_of(x);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef args[] = {x, second};
  if (e->target->code->f64) return e->target->code->f64(e, name, x, second);
  if (!lanes) return libm_scalar(e, name, second ? 2 : 1, args);
  LLVMValueRef r = LLVMGetPoison(LLVMTypeOf(x));
  for (int i = 0; i < lanes; i++) {
    LLVMValueRef at = LLVMConstInt(i32, (uint64_t)i, 0);
    args[0] = LLVMBuildExtractElement(e->builder, x, at, "");
    r = LLVMBuildInsertElement(e->builder, r, libm_scalar(e, name, second ? 2 : 1, args), at, "");
  }
  return r;
}

/* Newton steps on erf from the f32 answer. */
static LLVMValueRef erfinv_f64(Emit *e, LLVMValueRef x) {
  LLVMTypeRef narrow = shaped(x, LLVMFloatTypeInContext(e->context));
  LLVMValueRef y = LLVMBuildFPTrunc(e->builder, x, narrow, "");
  y = LLVMBuildFPExt(e->builder, erfinv_f32(e, y), LLVMTypeOf(x), "");
  for (int i = 0; i < 2; i++) {
    LLVMValueRef slope = libm(e, "exp", LLVMBuildFNeg(e->builder, mul(e, y, y), ""), NULL);
    LLVMValueRef d = LLVMBuildFDiv(e->builder, sub(e, libm(e, "erf", y, NULL), x), slope, "");
    LLVMValueRef next = sub(e, y, mul(e, d, real(x, 0.88622692545275801)));
    y = pick(e, LLVMRealUNO, next, next, y, next);
  }
  return y;
}

static LLVMValueRef unary_f64(Emit *e, OpCode c, LLVMValueRef x) {
  switch (c) {
  case OP_erfinv: return erfinv_f64(e, x);
  case OP_sigmoid: {
    LLVMValueRef t = libm(e, "exp", LLVMBuildFNeg(e->builder, x, ""), NULL);
    return LLVMBuildFDiv(e->builder, real(x, 1), add(e, real(x, 1), t), "");
  }
  default: return libm(e, op_name(c), x, NULL); /* ops are named as C's functions are */
  }
}

LLVMValueRef math_unary(Emit *e, OpCode c, LLVMValueRef x) {
  if (c == OP_sqrt) return intrinsic(e, "llvm.sqrt", x);
  if (c == OP_rsqrt) return rsqrt_any(e, x);
  return is_f64(e, x) ? unary_f64(e, c, x) : unary_f32(e, c, x);
}

LLVMValueRef math_tanh_rounded(Emit *e, LLVMValueRef x, Rounding to) {
  const DeviceCode *device = e->target->code;
  return to && device->tanh_rounded && !is_f64(e, x) ? device->tanh_rounded(e, x, to)
                                                     : math_unary(e, OP_tanh, x);
}

/* ---- powers ---- */

static LLVMValueRef whole_power(Emit *e, LLVMValueRef x, int n) {
  LLVMValueRef r = NULL;
  for (LLVMValueRef square = x;; square = mul(e, square, square)) {
    if (n & 1) r = r ? mul(e, r, square) : square;
    n >>= 1;
    if (!n) return r;
  }
}

LLVMValueRef math_pow(Emit *e, LLVMValueRef x, double exponent) {
  double size = exponent < 0 ? -exponent : exponent;
  if (exponent == 0) return real(x, 1);
  if (exponent == 0.5) return intrinsic(e, "llvm.sqrt", x);
  if (exponent == -0.5) return rsqrt_any(e, x);
  if (size <= 64 && size == (int)size) {
    LLVMValueRef p = whole_power(e, x, (int)size);
    return exponent < 0 ? LLVMBuildFDiv(e->builder, real(x, 1), p, "") : p;
  }
  if (is_f64(e, x))
    return libm(e, "pow", x, LLVMConstReal(LLVMDoubleTypeInContext(e->context), exponent));
  return exp_f32(e, mul(e, log_f32(e, x), real(x, exponent)));
}

/* ---- minimum, maximum, across lanes ---- */

static bool constant_number(LLVMValueRef x) { /* a constant that is surely no NaN */
  if (!LLVMIsAConstantFP(x)) return false;
  LLVMBool lost;
  double v = LLVMConstRealGetDouble(x, &lost);
  return v == v;
}

/* b if it is better than a or a NaN, else a; one compare where b is a plain constant */
static LLVMValueRef better(Emit *e, LLVMRealPredicate p, LLVMValueRef a, LLVMValueRef b,
                           bool b_plain) {
  LLVMValueRef take = LLVMBuildFCmp(e->builder, p, b, a, "");
  if (!b_plain)
    take = LLVMBuildOr(e->builder, take, LLVMBuildFCmp(e->builder, LLVMRealUNO, b, b, ""), "");
  return LLVMBuildSelect(e->builder, take, b, a, "");
}

static bool splat_of_number(LLVMValueRef x) {
  if (!emit_lanes_of(x)) return constant_number(x);
  if (!LLVMIsConstant(x) || LLVMIsPoison(x)) return false;
  LLVMValueRef first = LLVMGetAggregateElement(x, 0);
  return first && constant_number(first) &&
         LLVMGetAggregateElement(x, (unsigned)emit_lanes_of(x) - 1) == first;
}

static LLVMValueRef extreme(Emit *e, LLVMRealPredicate p, LLVMValueRef a, LLVMValueRef b) {
  const DeviceCode *device = e->target->code;
  if (device->extreme && !is_f64(e, a)) return device->extreme(e, p == LLVMRealOGT, a, b);
  if (splat_of_number(a) && !splat_of_number(b)) { /* on a tie both are equal numbers */
    LLVMValueRef swap = a;
    a = b, b = swap;
  }
  return better(e, p, a, b, splat_of_number(b));
}

LLVMValueRef math_max(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return extreme(e, LLVMRealOGT, a, b);
}
LLVMValueRef math_min(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return extreme(e, LLVMRealOLT, a, b);
}

static LLVMValueRef combine(Emit *e, OpCode c, LLVMValueRef a, LLVMValueRef b) {
  LLVMTypeKind kind = LLVMGetTypeKind(LLVMTypeOf(a));
  if (kind == LLVMVectorTypeKind) kind = LLVMGetTypeKind(LLVMGetElementType(LLVMTypeOf(a)));
  bool whole = kind == LLVMIntegerTypeKind;
  if (c == OP_sum) return whole ? LLVMBuildAdd(e->builder, a, b, "") : add(e, a, b);
  if (!whole) return c == OP_rmax ? math_max(e, a, b) : math_min(e, a, b);
  LLVMIntPredicate p = c == OP_rmax ? LLVMIntSGT : LLVMIntSLT;
  return LLVMBuildSelect(e->builder, LLVMBuildICmp(e->builder, p, b, a, ""), b, a, "");
}

LLVMValueRef math_combine(Emit *e, OpCode c, LLVMValueRef a, LLVMValueRef b) {
  must(LLVMTypeOf(a) == LLVMTypeOf(b), "kernel %s: %s of two types", e->k->name, op_name(c));
  must(c == OP_sum || c == OP_rmax || c == OP_rmin, "kernel %s: %s is no reduction", e->k->name,
       op_name(c));
  return combine(e, c, a, b);
}

static LLVMValueRef part(Emit *e, LLVMValueRef x, int from, int n) {
  LLVMValueRef at[64];
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  for (int i = 0; i < n; i++) at[i] = LLVMConstInt(i32, (uint64_t)(from + i), 0);
  if (n == 1) return LLVMBuildExtractElement(e->builder, x, at[0], "");
  return LLVMBuildShuffleVector(e->builder, x, LLVMGetPoison(LLVMTypeOf(x)),
                                LLVMConstVector(at, (unsigned)n), "");
}

LLVMValueRef math_across(Emit *e, OpCode c, LLVMValueRef x) {
  int lanes = emit_lanes_of(x);
  must(!(lanes & (lanes - 1)), "kernel %s: halves of %d lanes", e->k->name, lanes);
  for (int n = emit_lanes_of(x) / 2; n; n /= 2)
    x = combine(e, c, part(e, x, 0, n), part(e, x, n, n));
  return x;
}

/* ---- random numbers ---- */

static void multiply_wide(Emit *e, LLVMValueRef x, uint32_t by, LLVMValueRef *high,
                          LLVMValueRef *low) {
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef i64 = shaped(x, LLVMInt64TypeInContext(e->context));
  LLVMValueRef wide = LLVMBuildZExt(builder, word(e, x, by), i64, "");
  LLVMValueRef product = LLVMBuildMul(builder, LLVMBuildZExt(builder, x, i64, ""), wide, "");
  LLVMValueRef shift = LLVMBuildZExt(builder, word(e, x, 32), i64, "");
  *low = LLVMBuildTrunc(builder, product, LLVMTypeOf(x), "");
  *high = LLVMBuildTrunc(builder, LLVMBuildLShr(builder, product, shift, ""), LLVMTypeOf(x), "");
}

/* Four words of the counter, two of the key. */
static void philox_round(Emit *e, LLVMValueRef x[6]) {
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef h0, l0, h1, l1;
  multiply_wide(e, x[0], 0xD2511F53u, &h0, &l0);
  multiply_wide(e, x[2], 0xCD9E8D57u, &h1, &l1);
  LLVMValueRef c1 = x[1], c3 = x[3];
  x[0] = LLVMBuildXor(builder, LLVMBuildXor(builder, h1, c1, ""), x[4], "");
  x[2] = LLVMBuildXor(builder, LLVMBuildXor(builder, h0, c3, ""), x[5], "");
  x[1] = l1, x[3] = l0;
  x[4] = LLVMBuildAdd(builder, x[4], word(e, x[4], 0x9E3779B9u), "");
  x[5] = LLVMBuildAdd(builder, x[5], word(e, x[5], 0xBB67AE85u), "");
}

/* A loop: each round waits for the one before it anyway, and LLVM takes a quarter of the time. */
static void philox_rounds(Emit *e, LLVMValueRef x[6], int rounds) {
  Loop loop = emit_loop(e, emit_i64(e, 0), emit_i64(e, rounds), 1, 6, x);
  for (int i = 0; i < 6; i++) loop.next[i] = loop.phi[i];
  philox_round(e, loop.next);
  emit_loop_end(e, &loop);
  for (int i = 0; i < 6; i++) x[i] = loop.phi[i];
}

LLVMValueRef math_uniform(Emit *e, const LLVMValueRef counter[4], const LLVMValueRef key[2]) {
  must(LLVMTypeOf(counter[0]) == LLVMTypeOf(key[0]), "kernel %s: random words of two types",
       e->k->name);
  enum { ROUNDS = 10 };
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef c[] = {counter[0], counter[1], counter[2], counter[3], key[0], key[1]};
  if (e->target->code->branches) philox_rounds(e, c, ROUNDS);
  for (int i = 0; i < ROUNDS && !e->target->code->branches; i++) philox_round(e, c);
  LLVMValueRef bits = LLVMBuildLShr(builder, c[0], word(e, c[0], 9), "");
  LLVMTypeRef f32 = shaped(bits, LLVMFloatTypeInContext(e->context));
  LLVMValueRef f = LLVMBuildUIToFP(builder, bits, f32, "");
  return mul(e, add(e, f, real(f, 0.5)), real(f, 0x1p-23));
}
