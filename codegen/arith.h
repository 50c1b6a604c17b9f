/* Arithmetic of floating-point scalars and vectors in one short word each, for the files that write
   mathematics as LLVM IR (math.c, nvptx/math_f64.c). No fast-math flags. */
#ifndef SHARDC_ARITH_H
#define SHARDC_ARITH_H
#include "emit.h"

/* The constant v in the shape of x. */
static inline LLVMValueRef real(LLVMValueRef x, double v) {
  LLVMTypeRef t = LLVMTypeOf(x);
  int lanes = emit_lanes_of(x);
  if (!lanes) return LLVMConstReal(t, v);
  LLVMValueRef all[64];
  for (int i = 0; i < lanes; i++) all[i] = LLVMConstReal(LLVMGetElementType(t), v);
  return LLVMConstVector(all, (unsigned)lanes);
}

static inline LLVMValueRef mul(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFMul(e->builder, a, b, "");
}
static inline LLVMValueRef add(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFAdd(e->builder, a, b, "");
}
static inline LLVMValueRef sub(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildFSub(e->builder, a, b, "");
}

static inline LLVMValueRef intrinsic(Emit *e, const char *name, LLVMValueRef x) {
  return emit_intrinsic(e, name, LLVMTypeOf(x), 1, &x);
}

#endif
