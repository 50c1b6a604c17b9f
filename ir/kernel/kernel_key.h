/* What tells kernels apart, as text: of two with the same text one is made. Names and positions
   never count, so that an edit above a layer, or a kernel more before this one, makes none again;
   everything that a code generator reads does: types, strides, ops, their attributes. */
#ifndef SHARDC_KERNEL_KEY_H
#define SHARDC_KERNEL_KEY_H
#include "ir/ir.h"

/* What else counts: its attributes, which say how it is cut (else `align` alone, by which buffers
   may be read); names of dims (else d0, d1, .. as they come). */
typedef enum KernelKey { KEY_CUT = 1, KEY_DIMS = 2 } KernelKey;

/* In m's arena. Records of tuning are found by 0, equal kernels of a module and code in the cache
   by both. */
char *kernel_key(Module *m, const Fn *k, unsigned what);

#endif
