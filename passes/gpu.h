/* How pass `select` cuts kernels for GPUs: what tune.h is for CPUs. A rule sets the attributes
   variant, tile, chunks (CTAs per phase), threads, shared and workspace of a kernel function; the
   emitters of codegen/nvptx obey. */
#ifndef SHARDC_GPU_H
#define SHARDC_GPU_H
#include "ir/nest.h"

bool module_gpu(const Module *m); /* setting target.gpu */

/* False: the family has no kernels for GPUs yet; a diagnostic was given. */
bool gpu_tune(Module *m, Fn *k);

void gpu_tune_elem(Module *m, Fn *k);
void gpu_tune_row(Module *m, Fn *k);
void gpu_tune_column(Module *m, Fn *k);
void gpu_tune_scatter(Module *m, Fn *k);
void gpu_tune_contract(Module *m, Fn *k);
void gpu_tune_attention(Module *m, Fn *k); /* attention_grad too */

int64_t gpu_shared(const Module *m); /* bytes that a CTA of the default variants may have */
/* A copy of k, a kernel as its rule cuts it, with a larger cut for GPUs whose CTAs may have more
   shared memory than that; NULL: none has a point. Both get the same workspace. */
Fn *gpu_larger(Module *m, Fn *k);
int64_t gpu_registers(int64_t threads);  /* that a thread of a CTA of so many may have */
int64_t gpu_processors(const Module *m); /* multiprocessors of the GPU that choices are made for */
/* How many CTAs of a kernel one of them holds at once, by shared memory and by registers. */
int64_t gpu_resident(const Module *m, int64_t shared, int64_t threads, int64_t registers);

/* Sets attribute align of every kernel from its callers; before gpu_tune. */
void gpu_align(Module *m);
/* Whether argument or result `buffer` (arguments first) begins on 16 bytes wherever k is called. */
bool gpu_aligned(const Fn *k, uint32_t buffer);

/* The most lanes, a power of two up to 16 bytes of the large buffers' widest element, that may run
   over the innermost dim of `n` when the values `root` are evaluated: they divide it, every buffer
   that has the dim gets aligned vectors, and no op would take the lanes apart. */
int gpu_lanes(const Module *m, const Fn *k, const Nest *n, uint32_t nroots, const ValueId *root);

/* Whether the innermost dim lies side by side in `reference`; a space may have none (NO_VALUE). */
bool gpu_consecutive(const Fn *k, const Nest *n, ValueId reference);

typedef struct GpuPhases { /* per phase */
  int n;
  int64_t ctas[4], threads[4], shared[4];
} GpuPhases;

void gpu_set(Module *m, Fn *k, const char *variant, int ntile, const int64_t *tile,
             const GpuPhases *p);

#endif
