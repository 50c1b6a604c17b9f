/* Sums and maxima of several arrays, element by element, in the order in which they are given: the
   same numbers on whatever rank they are computed. */
#ifndef SHARDC_RT_REDUCE_RANKS_H
#define SHARDC_RT_REDUCE_RANKS_H
#include <stdint.h>

/* out may be none of in[]. 16-bit floats are added in f32 and rounded once. */
void rt_reduce(int elem, int reduction, void *out, const void *const *in, int n, int64_t count);
#endif
