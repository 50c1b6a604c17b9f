/* Mathematics in instructions of AVX-512, and of its bf16: vectors of 16, NULL at other widths; and
   shorter mathematics of any shape. */
#ifndef SHARDC_X86_MATH_H
#define SHARDC_X86_MATH_H
#include "codegen/emit.h"

LLVMValueRef x86_exp2(Emit *e, LLVMValueRef x);
LLVMValueRef x86_exp_negative(Emit *e, LLVMValueRef x);
LLVMValueRef x86_tanh_rounded(Emit *e, LLVMValueRef x, Rounding to);
LLVMValueRef x86_scale_by_power(Emit *e, LLVMValueRef x, LLVMValueRef n);
LLVMValueRef x86_round_bf16(Emit *e, LLVMValueRef x); /* of any shape; denormals become zeros */
const KernelFamily *x86_family(const char *name);     /* families.c */

#endif
