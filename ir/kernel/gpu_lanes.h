/* How many neighbours a thread of a GPU's kernel may take at once, as vectors of up to 16 bytes,
   and what is known about where its buffers begin. The rules of pass `select` ask, and the
   verifier, which believes no dump about it. */
#ifndef SHARDC_GPU_LANES_H
#define SHARDC_GPU_LANES_H
#include "nest.h"

/* Whether argument or result `buffer` (arguments first) begins on 16 bytes wherever k is called:
   attribute align. */
bool gpu_aligned(const Fn *k, uint32_t buffer);

/* By function: what the first elements of a kernel's operands, then results, are surely multiples
   of where it is called, in bytes up to 16. */
int64_t *const *gpu_alignments(const Module *m);

/* Whether the innermost dim is contiguous in `reference`; a space may have none (NO_VALUE). */
bool gpu_consecutive(const Fn *k, const Nest *nest, ValueId reference);

/* The most lanes, a power of two up to 16 bytes of the large buffers' widest element, that may run
   over the innermost dim of `nest` when the values `root` are evaluated: they divide it, every
   buffer that has the dim gets aligned vectors, and no op would take the lanes apart. */
int gpu_lanes(const Module *m, const Fn *k, const Nest *nest, uint32_t nroots, const ValueId *root);
#endif
