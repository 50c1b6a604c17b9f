/* Predicated kernels: if the condition, one of their arguments, holds, every result equals an
   operand: `where(condition, operand, ..)`. If these results are computed in place, such a kernel
   then returns at once. Whoever builds such a kernel expects the condition to hold, so the cost
   model counts its time as zero. */
#ifndef SHARDC_LEFT_H
#define SHARDC_LEFT_H
#include "ir.h"

/* The argument that is the condition; NO_VALUE: it is no such kernel. */
uint32_t kernel_skip_condition(const Fn *k);
/* The argument of such a kernel that this result equals when the condition holds. */
uint32_t kernel_left(const Fn *k, uint32_t result);
/* Is the op a call of such a kernel, each result in the bytes of its operand? */
bool op_is_skippable(const Fn *f, const Op *o);
#endif
