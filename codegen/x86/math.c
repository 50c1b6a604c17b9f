/* Mathematics for which AVX-512 has instructions: x - floor(x), and p 2^n over the whole range; and
   what any vectors compute in fewer instructions than codegen/math.c does. See codegen/math.c and
   math_exp2.c, which ask by codegen/device_code.h. */
#include "math.h"
#include "codegen/arith.h"

static bool wide(const Emit *e, LLVMValueRef x) {
  return e->target->facts.vector_bytes == 64 && emit_lanes_of(x) == 16;
}

LLVMValueRef x86_exp2(Emit *e, LLVMValueRef x) {
  static const double c[] = {0.99999989835002434,  0.69315448966323168,  0.24014181820143965,
                             0.055860337077259084, 0.008949590423318712, 0.0018937540582125109};
  enum { BELOW = 9 }; /* x - floor(x), no exceptions */
  if (!wide(e, x)) return NULL;
  LLVMTypeRef i16 = LLVMInt16TypeInContext(e->context), i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef none = LLVMConstNull(LLVMTypeOf(x)), all = LLVMConstAllOnes(i16);
  LLVMValueRef now = LLVMConstInt(i32, 4, 0);
  LLVMValueRef part[] = {x, LLVMConstInt(i32, BELOW, 0), none, all, now};
  LLVMValueRef f = emit_intrinsic_types(e, "llvm.x86.avx512.mask.reduce.ps.512", 0, NULL, 5, part);
  LLVMValueRef scale[] = {polynomial(e, f, 6, c), x, none, all, now};
  return emit_intrinsic_types(e, "llvm.x86.avx512.mask.scalef.ps.512", 0, NULL, 5, scale);
}

LLVMValueRef x86_exp_negative(Emit *e, LLVMValueRef x) {
  return math_exp2(e, mul(e, x, real(x, 1.4426950408889634)));
}

LLVMValueRef x86_scale_by_power(Emit *e, LLVMValueRef x, LLVMValueRef n) {
  if (!wide(e, x)) return NULL;
  LLVMTypeRef i16 = LLVMInt16TypeInContext(e->context), i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef args[] = {x, n, LLVMConstNull(LLVMTypeOf(x)), LLVMConstAllOnes(i16),
                         LLVMConstInt(i32, 4, 0)};
  return emit_intrinsic_types(e, "llvm.x86.avx512.mask.scalef.ps.512", 0, NULL, 5, args);
}

/* A quotient of two polynomials in x^2, within 5e-7 of the value and never above 1: a third of the
   instructions of the f32 function, and a shorter way from x to the result. */
LLVMValueRef x86_tanh_rounded(Emit *e, LLVMValueRef x, Rounding to) {
  static const double above[] = {1, 0.1293035815836027, 0.0029558113496550844,
                                 1.1475152870704908e-05},
                      below[] = {1, 0.46263612359335227, 0.02383580030651851,
                                 0.00023931544054786488, 2.4732451234330386e-07};
  must(to != ROUNDED_NOT, "tanh is seen as it is");
  LLVMValueRef bounded = at_least(e, at_most(e, x, 8), -8), square = mul(e, bounded, bounded);
  LLVMValueRef product = mul(e, bounded, polynomial(e, square, 4, above));
  return LLVMBuildFDiv(e->builder, product, polynomial(e, square, 5, below), "");
}

LLVMValueRef x86_round_bf16(Emit *e, LLVMValueRef x) {
  return e->target->facts.bf16_dot ? truncate_bf16(e, x) : NULL;
}
