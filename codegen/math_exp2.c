/* Powers of two for softmax, of attention and of rows: x = n + f with n whole; 2^f by a polynomial
   fitted at Chebyshev points (relative error 2e-7), times 2^n. Scores are scaled by log2(e)
   beforehand, so no other argument reduction is needed. Where the machine gives f = x - floor(x)
   and p 2^floor(x) in one instruction each, f is in [0, 1) and the whole range is right; otherwise
   |f| <= 1/2, what is below 2^-126 becomes 0 and what is above 2^126 becomes that. */
#include "arith.h"
#include "device_code.h"

/* x bounded from both sides; a NaN passes. */
static LLVMValueRef bounded(Emit *e, LLVMValueRef x, double low, double high) {
  LLVMBuilderRef builder = e->builder;
  int lanes = emit_lanes_of(x);
  LLVMValueRef l = emit_splat(e, emit_f32(e, low), lanes),
               h = emit_splat(e, emit_f32(e, high), lanes);
  x = LLVMBuildSelect(builder, LLVMBuildFCmp(builder, LLVMRealOLT, x, l, ""), l, x, "");
  return LLVMBuildSelect(builder, LLVMBuildFCmp(builder, LLVMRealOGT, x, h, ""), h, x, "");
}

LLVMValueRef math_exp2(Emit *e, LLVMValueRef x) {
  static const double c[] = {1.0000000754548972,  0.6931471880262287,   0.24022107485308267,
                             0.05550357114219194, 0.009676031918324871, 0.0013390863364616103};
  LLVMBuilderRef builder = e->builder;
  int lanes = emit_lanes_of(x);
  const DeviceCode *device = e->target->code;
  LLVMValueRef at_once = device->exp2 ? device->exp2(e, x) : NULL;
  if (at_once) return at_once;
  LLVMValueRef least = emit_splat(e, emit_f32(e, -126), lanes);
  LLVMValueRef none = LLVMBuildFCmp(builder, LLVMRealOLT, x, least, "");
  x = bounded(e, x, -126, 126);
  LLVMValueRef n = emit_intrinsic(e, "llvm.rint", LLVMTypeOf(x), 1, &x);
  LLVMValueRef p = polynomial(e, LLVMBuildFSub(builder, x, n, ""), 6, c);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context), ints = LLVMVectorType(i32, (unsigned)lanes);
  LLVMValueRef shift = emit_splat(e, LLVMConstInt(i32, 23, 0), lanes);
  LLVMValueRef bits = LLVMBuildShl(builder, LLVMBuildFPToSI(builder, n, ints, ""), shift, "");
  bits = LLVMBuildAdd(builder, LLVMBuildBitCast(builder, p, ints, ""), bits, "");
  bits = LLVMBuildSelect(builder, none, LLVMConstNull(ints), bits, "");
  return LLVMBuildBitCast(builder, bits, LLVMTypeOf(p), "");
}
