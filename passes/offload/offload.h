/* Shared by the files of pass `offload`. */
#ifndef SHARDC_PASSES_OFFLOAD_H
#define SHARDC_PASSES_OFFLOAD_H
#include "passes/base/rebuild.h"

/* The tier in which an op other than a loop runs, by the tiers of its operands: on the host if a
   tensor is on the host, or if it makes a scalar of host scalars. */
Tier offload_op_tier(const Fn *f, const Tier *tier, const Op *o);

/* By value of f: is it downloaded where it is made? used: by value, for arguments of f, the tier
   of the ops that read them (offload_gradients.c). */
bool *offload_gradients(const Module *m, const Fn *f, const Tier *used);

/* If `train` has a delay: adds `step.late` to `step`, with the update first (delayed_update.c). */
void delayed_update(Module *m);

/* Does the plan offload this unit (`optimizer`, `params`, `grads`) of a parameter group, or of a
   parameter in no group, on the stages that the module is for? */
bool offload_names(const Module *m, OffloadWord word, const Global *global);
#endif
