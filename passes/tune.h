/* Tuning of kernels, called by pass `select`: per family one function that sets the attributes
   variant, tile, chunks, scratch and workspace of a kernel function. They read the function's types
   and strides and the settings target.*; emitters only obey. A function is tuned from what it says
   alone: equal functions get equal attributes. */
#ifndef SHARDC_TUNE_H
#define SHARDC_TUNE_H
#include "ir/ir.h"

#define FAMILY(name, anchors, neighbours, what) void tune_##name(Module *m, Fn *k);
#include "ir/families.def"
#undef FAMILY

#endif
