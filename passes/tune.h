/* Tuning of kernels, called by pass `select`: per family one function that sets the attributes
   variant, tile, chunks, scratch and workspace of a kernel function. They read the function's types
   and strides and the settings target.*; emitters only obey. A function is tuned from what it says
   alone: equal functions get equal attributes.

   Families with variants (variants.h) split this in two: the rule that chooses a cut, and what
   follows from a cut. */
#ifndef SHARDC_TUNE_H
#define SHARDC_TUNE_H
#include "ir/flash.h"
#include "ir/product.h"
#include "variants.h"

#define FAMILY(name, anchors, neighbours, what) void tune_##name(Module *m, Fn *k);
#include "ir/families.def"
#undef FAMILY

#define VARIANTS_OF(name)                                                                          \
  Cut name##_rule(const Module *m, const Fn *k);                                                   \
  bool name##_fits(const Module *m, const Fn *k, const Cut *c);                                    \
  void name##_apply(Module *m, Fn *k, const Cut *c);                                               \
  void name##_vary(Module *m, const Fn *k, const Cut *from, int stage, bool wide, CutList *out);   \
  const char *name##_shape(Module *m, const Fn *k);

VARIANTS_OF(contract)
VARIANTS_OF(attention) /* attention_grad too */
enum { CONTRACT_COUNT = TILE_COUNT, ATTENTION_COUNT = FLASH_COUNT };

#endif
