/* Frozen parameters are stored in the compute type if every reader needs them in it.

   No update writes them, so they need no f32 master weights: entries read nothing but a cast of
   them, and the cast is done once, when the parameter gets its value. Runs after precision_emit.c,
   whose casts show the types that readers need. A parameter that some op also reads in f32, such
   as the gain of a norm or one that is marked @f32, stays f32. So no number changes. Must not:
   touch parameters that an update writes (weight_copies.c). */
#include "narrow_reads.h"
#include "precision.h"

static bool is_frozen(const Module *m, const Global *global) {
  (void)m;
  return global->frozen;
}

void precision_frozen(Module *m, Elem compute) {
  NarrowReads reads;
  if (!narrow_reads(&reads, m, compute, false, is_frozen)) return;
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (reads.global[i]) m->globals.at[i]->type.elem = compute;
  for (uint32_t i = 0; i < m->fns.n; i++) narrow_function(&reads, i);
  module_collect(m);
}
