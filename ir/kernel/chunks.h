/* How evenly the workers of a processor share the chunks of a kernel. */
#ifndef SHARDC_CHUNKS_H
#define SHARDC_CHUNKS_H
#include "ir/ir.h"

/* When the last of n workers ends, of chunks that take so long: each takes those of its own share
   in order, then what is left of the next workers' (runtime/device/pool.c). */
double chunks_end(Arena *arena, const double *work, int64_t chunks, int64_t workers);
/* The time of a kernel on a number of workers over that of a cut in equal parts, one for each; 1
   before it is cut. */
double kernel_stretch(const Module *m, const Fn *kernel, int64_t workers);
#endif
