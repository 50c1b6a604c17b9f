/* How evenly the workers of a processor share the chunks of a kernel. */
#ifndef SHARDC_CHUNKS_H
#define SHARDC_CHUNKS_H
#include "ir/ir.h"

/* When the last worker ends; work[i]: the time of chunk i. Each worker takes the chunks of its
   share in order, then those that are left of the next workers (runtime/device/pool.c). */
double chunks_end(Arena *arena, const double *work, int64_t chunks, int64_t workers);
/* The time of a kernel on some workers, over its time if each had an equal part; 1 before it is
   cut. */
double kernel_stretch(const Module *m, const Fn *kernel, int64_t workers);
#endif
