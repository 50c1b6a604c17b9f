/* The identity of kernels, as text: kernels with the same text are compiled once. Names and
   positions never count, so that an edit above a layer, or an additional kernel before this one,
   compiles none again; everything that a code generator reads does: types, strides, ops, their
   attributes. */
#ifndef SHARDC_KERNEL_KEY_H
#define SHARDC_KERNEL_KEY_H
#include "ir/ir.h"

/* Its attributes count as well, which say how it is cut (else only `align` and `codes`, by
   which buffers may be read); names of dims (else d0, d1, .. in order of appearance). */
typedef enum KernelKey { KEY_CUT = 1, KEY_DIMS = 2 } KernelKey;

/* In m's arena. Records of tuning are found by 0, equal kernels of a module and code in the cache
   by both. */
char *kernel_key(Module *m, const Fn *k, unsigned what);

#endif
