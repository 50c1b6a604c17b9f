/* Loops that reach a limit of the processor they run on, to measure kernels against. If environment
   variable BENCH_TARGET names a target, they use only its instructions, as its kernels do. */
#ifndef BENCH_LOOPS_H
#define BENCH_LOOPS_H

#include <stdbool.h>
#include <stdint.h>

/* Multiply-adds on registers; each returns its operations. narrow: pairs of bf16 by dot products,
   needs AVX512-BF16; matrix: bf16 in AMX tiles, needs AMX and the kernel's leave. */
double loop_wide(void);
double loop_narrow(void);
double loop_matrix(void);

/* True if narrow and matrix run on this processor; the latter asks the system for the tiles of this
   process. */
bool loop_has_pairs(void);
bool loop_has_matrix(void);

/* a = b + 3 c over n elements, with non-temporal stores: 12 bytes each. n: a multiple of 16, arrays
   on 64 bytes. */
void loop_triad(float *a, const float *b, const float *c, int64_t n);

#endif
