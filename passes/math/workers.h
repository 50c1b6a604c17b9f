/* Gradients of single workers (workers.c). */
#ifndef SHARDC_PASSES_WORKERS_H
#define SHARDC_PASSES_WORKERS_H
#include "micro.h"

#define WORKER_DIM "onebit'worker"

/* An entry like `step` in which gradient[i], of global i, has the dim `worker`: one term for each
   worker, which has its equal share of a Batch of `batch`. `gradient` NULL: stores of gradients
   stay, completed. NULL: E0706 was given. */
Fn *workers_entry(Module *m, const Fn *step, const char *name, int64_t batch, Axis worker,
                  ValueId *gradient, ValueId *loss);
#endif
