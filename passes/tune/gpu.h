/* How pass `select` cuts kernels for GPUs, the counterpart of tune.h. A rule sets the attributes
   variant, tile, chunks (CTAs per phase), threads, shared and workspace of a kernel function; the
   emitters of the device read them. */
#ifndef SHARDC_GPU_H
#define SHARDC_GPU_H
#include "ir/kernel/gpu_plan.h"

/* Rules of families that have a file for them (FamilyRules, tune.h) */
void gpu_tune_elem(Module *m, Fn *k);
void gpu_tune_row(Module *m, Fn *k);
void gpu_tune_column(Module *m, Fn *k);
void gpu_tune_scatter(Module *m, Fn *k);
void gpu_tune_contract(Module *m, Fn *k);
void gpu_tune_attention(Module *m, Fn *k); /* and attention_grad */

/* A copy of k, a kernel as its rule cuts it, with a larger cut for GPUs whose CTAs may have more
   shared memory than that; NULL: none has a point. Both get the same workspace. */
Fn *gpu_larger(Module *m, Fn *k);
/* How many CTAs of a kernel one of them holds at once, by shared memory and by registers. */
int64_t gpu_resident(const Module *m, int64_t shared, int64_t threads, int64_t registers);

/* Sets attribute align of every kernel from its callers; before the rules. */
void gpu_align(Module *m);
/* Sets variant, tile and, where the family leaves them to the rule (else NULL), threads of every
   phase; then what follows from these (ir/kernel/gpu_plan.h). */
void gpu_set(Module *m, Fn *k, const char *variant, int ntile, const int64_t *tile, int phases,
             const int64_t *threads);
#endif
