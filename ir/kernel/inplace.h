/* May a kernel's or a loop's result be computed in the bytes of an operand? Pass `order`, which
   decides it, and the verifier use these functions. */
#ifndef SHARDC_INPLACE_H
#define SHARDC_INPLACE_H
#include "ir/loop.h"

/* Every element of argument `arg` is read only where that element of result `result` is written,
   before it is written. Both have the same layout: that is the caller's to see. */
bool kernel_in_place(Arena *a, const Fn *k, uint32_t arg, uint32_t result);

/* The argument in whose bytes a body leaves a result; 0 (no result is in the counter): none. A
   loop's result may then use its operand's bytes: a carried result those of its own operand, a
   stacked one those of a stacked operand, whose slice i only round i reads. So may one that
   continues an operand of which the body reads nothing. */
uint32_t body_stands_in(const Fn *body, uint32_t result);
bool loop_in_place(const Op *loop, uint32_t operand, uint32_t result);
#endif
