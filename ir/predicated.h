/* Kernels that may leave their operands as they are. Where a condition, one of their arguments,
   holds, every result is an operand: `where(condition, operand, ..)`. With the results in the bytes
   of these operands nothing is to be done then. Who writes such a kernel expects the condition to
   hold: the clocks of a plan count it as nothing. */
#ifndef SHARDC_LEFT_H
#define SHARDC_LEFT_H
#include "ir.h"

/* The argument that is the condition; NO_VALUE: it is no such kernel. */
uint32_t kernel_skip_condition(const Fn *k);
/* Of such a kernel: the argument that this result then is. */
uint32_t kernel_left(const Fn *k, uint32_t result);
/* Is the op a call of such a kernel, each result in the bytes of its operand? */
bool op_is_skippable(const Fn *f, const Op *o);
#endif
