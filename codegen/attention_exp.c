/* Powers of two for softmax: x = n + f with n whole, |f| <= 1/2; 2^f by a polynomial fitted at
   Chebyshev points (relative error 1e-7), times 2^n. Scores are scaled by log2(e) beforehand, so no
   other argument reduction is needed. */
#include "attention.h"

LLVMValueRef attention_splat(Attention *a, double x) {
  return emit_splat(a->e, emit_f32(a->e, x), a->p.lanes);
}

LLVMValueRef attention_max(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildSelect(e->builder, LLVMBuildFCmp(e->builder, LLVMRealOGT, a, b, ""), a, b, "");
}

static LLVMValueRef power_of_two(Emit *e, LLVMValueRef p, LLVMValueRef n) { /* p * 2^n */
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef i16 = LLVMInt16TypeInContext(e->context), i32 = LLVMInt32TypeInContext(e->context);
  LLVMTypeRef type = LLVMTypeOf(p), ints = LLVMVectorType(i32, LLVMGetVectorSize(type));
  if (LLVMGetVectorSize(type) == 16) {
    LLVMValueRef args[] = {p, n, LLVMConstNull(type), LLVMConstAllOnes(i16),
                           LLVMConstInt(i32, 4, 0)};
    return emit_intrinsic_types(e, "llvm.x86.avx512.mask.scalef.ps.512", 0, NULL, 5, args);
  }
  LLVMValueRef shift = emit_splat(e, LLVMConstInt(i32, 23, 0), (int)LLVMGetVectorSize(type));
  LLVMValueRef bits = LLVMBuildShl(b, LLVMBuildFPToSI(b, n, ints, ""), shift, "");
  bits = LLVMBuildAdd(b, LLVMBuildBitCast(b, p, ints, ""), bits, "");
  return LLVMBuildBitCast(b, bits, type, "");
}

LLVMValueRef attention_exp2(Emit *e, LLVMValueRef x) {
  static const double c[] = {1.0000000754548972,  0.6931471880262287,   0.24022107485308267,
                             0.05550357114219194, 0.009676031918324871, 0.0013390863364616103};
  int lanes = emit_lanes_of(x);
  x = attention_max(e, x, emit_splat(e, emit_f32(e, -126), lanes));
  LLVMValueRef n = emit_intrinsic(e, "llvm.rint", LLVMTypeOf(x), 1, &x);
  LLVMValueRef f = LLVMBuildFSub(e->builder, x, n, ""), p = emit_splat(e, emit_f32(e, c[5]), lanes);
  for (int i = 4; i >= 0; i--) p = emit_fma(e, p, f, emit_splat(e, emit_f32(e, c[i]), lanes));
  return power_of_two(e, p, n);
}
