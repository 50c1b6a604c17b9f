/* Cutting Batch over time, inside: how values relate to micro-batches (micro_states.c), and the cut
 * (micro.c). */
#ifndef SHARDC_PASSES_MICRO_H
#define SHARDC_PASSES_MICRO_H
#include "passes/internal.h"

typedef enum MicroState {
  MICRO_WHOLE, /* does not depend on the batch, or on nothing a parameter influences: computed once,
                  before */
  MICRO_ZERO,  /* whole, and 0: also a partial sum */
  MICRO_SLICED,  /* has Batch: each micro-batch has its part */
  MICRO_PARTIAL, /* each micro-batch gives a term of a sum; behind the loop of an entry it is
                    complete */
  MICRO_AFTER    /* entries only: computed once the sums are complete */
} MicroState;

typedef struct Micro {
  Module *m;
  Str batch; /* the dim */
  int64_t size, part;
  bool failed; /* a diagnostic was given */
} Micro;

/* By value of f. `args`: states of f's arguments; NULL: f is an entry. */
MicroState *micro_states(Micro *c, const Fn *f, const MicroState *args);
/* By value of an entry: does not depend on parameters or states. */
bool *micro_free(Micro *c, const Fn *f);
/* Can the op work on a part of Batch? Asked for ops whose result has Batch. */
bool micro_works_on_parts(const Micro *c, const Op *o);
#endif
