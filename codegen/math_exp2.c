/* Powers of two for softmax, of attention and of rows: x = n + f with n whole; 2^f by a polynomial
   fitted at Chebyshev points (relative error 2e-7), times 2^n. Scores are scaled by log2(e)
   beforehand, so no other argument reduction is needed. Where the machine gives f = x - floor(x)
   and p 2^floor(x) in one instruction each, f is in [0, 1) and the whole range is right; otherwise
   |f| <= 1/2, 2^n with n below -126 is 0, and what is above 2^126 becomes that. */
#include "arith.h"
#include "device_code.h"

/* 127 + 1.5 * 2^23: a sum with it is whole, and its lowest bits are n + 127, the bits of 2^n. */
#define BIAS 0x1.8000fep23

LLVMValueRef math_exp2(Emit *e, LLVMValueRef x) {
  static const double c[] = {1.0000000754548972,  0.6931471880262287,   0.24022107485308267,
                             0.05550357114219194, 0.009676031918324871, 0.0013390863364616103};
  const DeviceCode *device = e->target->code;
  LLVMValueRef at_once = device->exp2 ? device->exp2(e, x) : NULL;
  if (at_once) return at_once;
  x = at_most(e, at_least(e, x, -127), 126);
  LLVMValueRef biased = add(e, x, real(x, BIAS)), n = sub(e, biased, real(x, BIAS));
  LLVMValueRef p = polynomial(e, sub(e, x, n), 6, c);
  LLVMTypeRef ints = shaped(x, LLVMInt32TypeInContext(e->context));
  LLVMValueRef shift = LLVMConstInt(LLVMInt32TypeInContext(e->context), 23, 0);
  shift = emit_splat(e, shift, emit_lanes_of(x));
  LLVMValueRef bits = LLVMBuildBitCast(e->builder, biased, ints, "");
  bits = LLVMBuildShl(e->builder, bits, shift, "");
  return mul(e, p, LLVMBuildBitCast(e->builder, bits, LLVMTypeOf(x), ""));
}
