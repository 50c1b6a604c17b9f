/* Shared by the files of pass `offload`. */
#ifndef SHARDC_PASSES_OFFLOAD_H
#define SHARDC_PASSES_OFFLOAD_H
#include "passes/base/rebuild.h"

/* The tier in which an op other than a loop runs, by the tiers of its operands: on the host if a
   tensor is on the host, or if it makes a scalar of host scalars. */
Tier offload_works(const Fn *f, const Tier *tier, const Op *o);

/* By value of f: does it go to the host where it is made? works: by value, of f's arguments: where
   ops work that read them (offload_gradients.c). */
bool *offload_gradients(const Module *m, const Fn *f, const Tier *works);

/* If `train` has a delay: adds `step.late` to `step`, with the update first (delayed_update.c). */
void late_steps(Module *m);

/* Has the plan, on the stages that the module is for, this of a group of `zero`, or of a parameter
   that is in none? */
bool offload_names(const Module *m, Str what, const Global *global);
#endif
