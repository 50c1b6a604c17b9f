/* Part of pass `schedule`: kernels that run while messages travel (fill.c). */
#ifndef SHARDC_PASSES_FILL_H
#define SHARDC_PASSES_FILL_H
#include "passes/base/rebuild.h"

typedef struct FilledOrder { /* the ops of a function that do not float */
  OpId *at;
  uint32_t n;
} FilledOrder;

/* In program order; in a body under `zero overlap`, in the order in which kernels run while its
   messages travel. */
FilledOrder fill_order(Module *m, const Fn *f);
/* Classes of stages are different programs: messages between all stages have to keep their order
   in all of them, so they stay where they are. */
bool between_classes(const Module *m, const Op *o);
#endif
