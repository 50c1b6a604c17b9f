/* Arithmetic of floating-point scalars and vectors in one short word each, for the files that write
   mathematics as LLVM IR (math.c, devices). No fast-math flags. */
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

static inline LLVMTypeRef shaped(LLVMValueRef x, LLVMTypeRef scalar) {
  int lanes = emit_lanes_of(x);
  return lanes ? LLVMVectorType(scalar, (unsigned)lanes) : scalar;
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

/* Bounded from one side; a NaN passes, and machines need one instruction. */
static inline LLVMValueRef at_most(Emit *e, LLVMValueRef x, double c) {
  LLVMValueRef over = LLVMBuildFCmp(e->builder, LLVMRealOGT, x, real(x, c), "");
  return LLVMBuildSelect(e->builder, over, real(x, c), x, "");
}
static inline LLVMValueRef at_least(Emit *e, LLVMValueRef x, double c) {
  LLVMValueRef under = LLVMBuildFCmp(e->builder, LLVMRealOLT, x, real(x, c), "");
  return LLVMBuildSelect(e->builder, under, real(x, c), x, "");
}

/* To bf16 by the machine's own conversion, as whole numbers of 16 bits. */
static inline LLVMValueRef truncate_bf16(Emit *e, LLVMValueRef x) {
  LLVMTypeRef narrow = shaped(x, LLVMBFloatTypeInContext(e->context));
  LLVMTypeRef half = shaped(x, LLVMInt16TypeInContext(e->context));
  return LLVMBuildBitCast(e->builder, LLVMBuildFPTrunc(e->builder, x, narrow, ""), half, "");
}

/* c[0] + x (c[1] + x (..)) */
static inline LLVMValueRef polynomial(Emit *e, LLVMValueRef x, int n, const double *c) {
  LLVMValueRef r = real(x, c[n - 1]);
  for (int i = n - 2; i >= 0; i--) r = emit_fma(e, r, x, real(x, c[i]));
  return r;
}

static inline LLVMValueRef intrinsic(Emit *e, const char *name, LLVMValueRef x) {
  return emit_intrinsic(e, name, LLVMTypeOf(x), 1, &x);
}

#endif
