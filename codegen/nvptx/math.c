/* Mathematics of f32 on the special function units.

   e^x = 2^n 2^f with n = floor(x log2 e): n is computed by an addition that rounds down, f is the
   remainder, to the second word of log2 e; ex2.approx gives 2^f within two units in the last place
   whatever f is. Results below the normal numbers are 0. The reciprocal and 1/sqrt are within one
   unit, the latter also of denormals. NaN stays NaN: clamps are max.NaN and min.NaN. No function of
   this file is exact: operations that must be rounded as IEEE demands do not use them. */
#include "math.h"
#include "simt.h"

/* A machine intrinsic of scalars, on every lane. */
static LLVMValueRef on_lanes(Emit *e, const char *name, int n, LLVMValueRef *args) {
  int lanes = emit_lanes_of(args[0]);
  if (!lanes) return simt_intrinsic(e, name, n, args);
  LLVMValueRef all = LLVMGetPoison(LLVMTypeOf(args[0]));
  for (int i = 0; i < lanes; i++) {
    LLVMValueRef one[3], at = simt_i32(e, i);
    for (int j = 0; j < n; j++)
      one[j] =
          emit_lanes_of(args[j]) ? LLVMBuildExtractElement(e->builder, args[j], at, "") : args[j];
    all = LLVMBuildInsertElement(e->builder, all, simt_intrinsic(e, name, n, one), at, "");
  }
  return all;
}

static LLVMValueRef clamp(Emit *e, LLVMValueRef x, double low, double high) {
  LLVMValueRef most[] = {x, simt_f32_like(e, x, high)};
  LLVMValueRef least[] = {emit_intrinsic(e, "llvm.minimum", LLVMTypeOf(x), 2, most),
                          simt_f32_like(e, x, low)};
  return emit_intrinsic(e, "llvm.maximum", LLVMTypeOf(x), 2, least);
}

LLVMValueRef nvptx_exp(Emit *e, LLVMValueRef x) {
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef bounded = clamp(e, x, -88, 89), magic = simt_f32_like(e, x, 0x1.8p23);
  LLVMValueRef down[] = {bounded, simt_f32_like(e, x, 0x1.715476p0), magic};
  LLVMValueRef sum = on_lanes(e, "llvm.nvvm.fma.rm.f", 3, down); /* its low bits are n */
  LLVMValueRef n = LLVMBuildFSub(builder, sum, magic, "");
  LLVMValueRef f =
      emit_fma(e, bounded, simt_f32_like(e, x, 0x1.715476p0), LLVMBuildFNeg(builder, n, ""));
  f = emit_fma(e, bounded, simt_f32_like(e, x, 0x1.4ae0cp-26), f);
  LLVMTypeRef words = LLVMTypeOf(simt_i32_like(e, x, 0));
  LLVMValueRef biased = LLVMBuildAdd(builder, LLVMBuildBitCast(builder, sum, words, ""),
                                     simt_i32_like(e, x, 127), "");
  LLVMValueRef scale = LLVMBuildShl(builder, biased, simt_i32_like(e, x, 23), "");
  scale = LLVMBuildBitCast(builder, scale, LLVMTypeOf(x), "");
  return LLVMBuildFMul(builder, on_lanes(e, "llvm.nvvm.ex2.approx.ftz.f", 1, &f), scale, "");
}

/* 2^(x log2 e): the product is rounded, which is |x| 6e-8 of the power; right for any x. */
LLVMValueRef nvptx_exp_negative(Emit *e, LLVMValueRef x) {
  LLVMValueRef power = LLVMBuildFMul(e->builder, x, simt_f32_like(e, x, 0x1.715476p0), "");
  return on_lanes(e, "llvm.nvvm.ex2.approx.ftz.f", 1, &power);
}

LLVMValueRef nvptx_reciprocal(Emit *e, LLVMValueRef x) {
  return on_lanes(e, "llvm.nvvm.rcp.approx.ftz.f", 1, &x);
}

LLVMValueRef nvptx_rsqrt(Emit *e, LLVMValueRef x) {
  return on_lanes(e, "llvm.nvvm.rsqrt.approx.f", 1, &x);
}

/* Within 2^-11 of the value, for bf16, one instruction of the special function units. */
static LLVMValueRef tanh_approx(Emit *e, LLVMValueRef x) {
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context);
  int lanes = emit_lanes_of(x);
  LLVMValueRef all = lanes ? LLVMGetPoison(LLVMTypeOf(x)) : NULL;
  for (int i = 0; i < (lanes ? lanes : 1); i++) {
    LLVMValueRef at = simt_i32(e, i);
    LLVMValueRef one = lanes ? LLVMBuildExtractElement(e->builder, x, at, "") : x;
    one = simt_asm(e, "tanh.approx.f32 $0, $1;", "=f,f", f32, 1, &one, true);
    all = lanes ? LLVMBuildInsertElement(e->builder, all, one, at, "") : one;
  }
  return all;
}

/* For f16: 1 - 2 / (e^2x + 1): its absolute error is that of 1, so small x, where it would show, is
   its own tangent: x^2 / 3 off at most. Beyond the range of ex2 the quotient is 0 or 2, as it
   should. */
LLVMValueRef nvptx_tanh_rounded(Emit *e, LLVMValueRef x, Rounding to) {
  if (to == ROUNDED_bf16) return tanh_approx(e, x);
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef twice = LLVMBuildFMul(builder, x, simt_f32_like(e, x, 0x1.715476p1), "");
  LLVMValueRef power = on_lanes(e, "llvm.nvvm.ex2.approx.ftz.f", 1, &twice);
  LLVMValueRef part =
      nvptx_reciprocal(e, LLVMBuildFAdd(builder, power, simt_f32_like(e, x, 1), ""));
  LLVMValueRef all = emit_fma(e, part, simt_f32_like(e, x, -2), simt_f32_like(e, x, 1));
  LLVMValueRef size = emit_intrinsic(e, "llvm.fabs", LLVMTypeOf(x), 1, &x);
  LLVMValueRef tiny = LLVMBuildFCmp(builder, LLVMRealOLT, size, simt_f32_like(e, x, 0x1p-7), "");
  return LLVMBuildSelect(builder, tiny, x, all, "");
}
