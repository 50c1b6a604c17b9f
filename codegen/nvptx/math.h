/* Mathematics of f32 that GPUs have instructions for; scalars and vectors, called by math.c. */
#ifndef SHARDC_NVPTX_MATH_H
#define SHARDC_NVPTX_MATH_H
#include "codegen/emit.h"

LLVMValueRef nvptx_exp(Emit *e, LLVMValueRef x);
LLVMValueRef nvptx_reciprocal(Emit *e, LLVMValueRef x); /* 0 above 2^126 */
LLVMValueRef nvptx_rsqrt(Emit *e, LLVMValueRef x);

#endif
