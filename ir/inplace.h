/* May a kernel's result stand in the bytes of an argument? Asked by pass `order`, which decides it,
   and by the verifier. */
#ifndef SHARDC_INPLACE_H
#define SHARDC_INPLACE_H
#include "ir.h"

/* Every element of argument `arg` is read only where that element of result `result` is written,
   before it is written. Both have the same layout: that is the caller's to see. */
bool kernel_in_place(Arena *a, const Fn *k, uint32_t arg, uint32_t result);
#endif
