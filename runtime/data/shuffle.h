/* Counter-based random numbers and permutations, the same everywhere and for ever: Philox4x32-10.
 */
#ifndef SHARDC_RT_SHUFFLE_H
#define SHARDC_RT_SHUFFLE_H
#include <stdint.h>

void rt_philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]);
/* The index of the i-th sample of an epoch: a permutation of 0 .. n - 1, determined by (seed,
   epoch). */
int64_t rt_permute(uint64_t seed, uint64_t epoch, int64_t n, int64_t i);
double rt_uniform(uint64_t seed, uint64_t stream, uint64_t i); /* in [0, 1) */
#endif
