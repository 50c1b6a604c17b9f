/* Updates before the norm is known (speculate.c). */
#ifndef SHARDC_PASSES_SPECULATE_H
#define SHARDC_PASSES_SPECULATE_H
#include "passes/offload/offload.h"

/* Has every such update found its place in rounds? Otherwise it is refused: nothing would be
   gained. After fuse_rounds. */
void speculate_check(Module *m);
#endif
