/* Mathematics for which AVX-512 has instructions: x - floor(x), and p 2^n over the whole range. See
   codegen/math.c and math_exp2.c, which ask by codegen/device_code.h. */
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
  return wide(e, x) ? math_exp2(e, mul(e, x, real(x, 1.4426950408889634))) : NULL;
}

LLVMValueRef x86_scale_by_power(Emit *e, LLVMValueRef x, LLVMValueRef n) {
  if (!wide(e, x)) return NULL;
  LLVMTypeRef i16 = LLVMInt16TypeInContext(e->context), i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef args[] = {x, n, LLVMConstNull(LLVMTypeOf(x)), LLVMConstAllOnes(i16),
                         LLVMConstInt(i32, 4, 0)};
  return emit_intrinsic_types(e, "llvm.x86.avx512.mask.scalef.ps.512", 0, NULL, 5, args);
}

LLVMValueRef x86_round_bf16(Emit *e, LLVMValueRef x) {
  return e->target->facts.bf16_dot ? truncate_bf16(e, x) : NULL;
}
