/* Runs a module after pass `memory` in bytes: arenas and frames of the sizes that the module says,
   poisoned before every entry and body, every kernel computed by the interpreter from the bytes of
   its operands into those of its results. What the host program and the kernels would do, without
   code generation. */
#ifndef SHARDC_TEST_PLACED_H
#define SHARDC_TEST_PLACED_H
#include "ir/interp.h"

typedef struct Placed Placed;

Placed *placed_new(Module *m, Arena *a);
void placed_set(Placed *p, const Global *g, const double *data); /* dense, declared order */
double *placed_get(Placed *p, const Global *g);                  /* dense, declared order */
bool placed_run(Placed *p,
                const char *entry); /* false: something outside of its frame was touched */
#endif
