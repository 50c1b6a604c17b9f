/* Mathematics on GPUs: of f32 what there are instructions for; scalars and vectors, called by
   codegen/math.c through codegen/device_code.h. */
#ifndef SHARDC_NVPTX_MATH_H
#define SHARDC_NVPTX_MATH_H
#include "codegen/emit.h"

LLVMValueRef nvptx_exp(Emit *e, LLVMValueRef x);
LLVMValueRef nvptx_exp_negative(Emit *e, LLVMValueRef x); /* relative error 2e-7 + |x| 6e-8 */
LLVMValueRef nvptx_reciprocal(Emit *e, LLVMValueRef x);   /* 0 above 2^126 */
LLVMValueRef nvptx_rsqrt(Emit *e, LLVMValueRef x);
/* To 2^-14 of itself, or to 2^-11 for bf16: for values that are rounded (codegen/rounded.c). */
LLVMValueRef nvptx_tanh_rounded(Emit *e, LLVMValueRef x, Rounding to);
/* f64 (math_f64.c): exp, log, sin, cos, tanh, erf of x, or pow of x and a second number. */
LLVMValueRef nvptx_f64(Emit *e, const char *name, LLVMValueRef x, LLVMValueRef second);

#endif
