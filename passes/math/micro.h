/* Cutting Batch over time, inside: how values relate to micro-batches (micro_states.c), and the cut
 * (micro.c). */
#ifndef SHARDC_PASSES_MICRO_H
#define SHARDC_PASSES_MICRO_H
#include "passes/base/rebuild.h"

typedef enum MicroState {
  MICRO_WHOLE, /* does not depend on the batch, or on nothing a parameter influences: computed once,
                  before */
  MICRO_ZERO,  /* whole, and 0: also a partial sum */
  MICRO_SLICED,  /* has Batch: each micro-batch has its part */
  MICRO_PARTIAL, /* each micro-batch gives a term of a sum, which is complete after the loop of an
                    entry */
  MICRO_EACH, /* of each micro-batch its own, complete in it: only terms of `aux` (aux_parts.c) */
  MICRO_AFTER /* entries only: computed once the sums are complete */
} MicroState;

typedef struct Micro {
  Module *m;
  Str batch;  /* the dim */
  Str worker; /* samples are workers': a value with Batch but not this dim is of all. NULL */
  int64_t size, part;
  bool quiet;    /* no diagnostic */
  bool asks;     /* are all samples alike, whatever their number? */
  bool all_sums; /* sums that no parameter influences are not moved before the loop */
  bool linear;   /* linear ops accept partial sums in entries as well */
  bool aux;      /* terms of `aux` take sums over Batch as estimates (aux_parts.c) */
  bool failed;   /* a diagnostic was given */
} Micro;

/* By value of f. `args`: states of f's arguments; NULL: f is an entry. */
MicroState *micro_states(Micro *micro, const Fn *f, const MicroState *args);
/* States of a loop's body, by value of the body: s are those of the function that contains the
   loop. */
MicroState *micro_body_states(Micro *micro, const Op *loop, const MicroState *s);
/* In a body: operand i is whole and is added to a partial sum, so only one part may have it. */
bool micro_counts_once(const Op *o, const MicroState *s, uint32_t i);
bool micro_joins_workers(const Micro *micro, const Op *o);
/* By value of an entry: does not depend on parameters or states. */
bool *micro_free(Micro *micro, const Fn *f);
/* By op: does a term of `aux` in the same function depend on it? */
bool *aux_cone(Module *m, const Fn *f);
/* Says in an entry, before gradients are derived, where terms of `aux` are those of each
   micro-batch. */
void aux_parts(Module *m, const char *entry);
/* Removes what aux_parts wrote: the batch is cut into `parts`. */
void aux_finish(Module *m, double parts);
/* A term of `aux`: does it take sums over Batch among its operands for what one micro-batch knows
   of them, since it could not stay a sum? */
bool micro_estimates(const Micro *micro, const Fn *f, const Op *o, const MicroState *s);
/* Can the op work on a part of Batch? Asked for ops whose result has Batch. */
bool micro_works_on_parts(const Micro *micro, const Op *o);
/* E0706 about the value of an op, at the word that asks for parts of the batch (`micro`, `optim`):
   without it the model is right. The value comes second, or first where no word is known. */
Report *micro_report(Micro *micro, const Op *o, const char *headline);
#endif
