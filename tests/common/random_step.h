/* Random modules of one entry `step`: element-wise ops, moved indexes, reductions, contractions,
   gathers, scatters, loops with carried, invariant and stacked values, outputs and updated
   parameters. Sizes are small, numbers stay near 1. */
#ifndef SHARDC_TESTS_RANDOM_STEP_H
#define SHARDC_TESTS_RANDOM_STEP_H
#include "ir/ir.h"

/* Sizes of dims are of a list that has 1; those that would make more than `most` points of all four
   are drawn again. typed: types are chosen later (pass `precision`), so that no loop goes on with a
   stack that another one left. */
typedef struct RandomSizes {
  const int64_t *from;
  int n;
  int64_t most;
  bool typed;
} RandomSizes;
Module *random_step_of(Ctx *c, uint64_t seed, int ops, const RandomSizes *sizes);

static inline Module *random_step(Ctx *c, uint64_t seed, int ops) {
  static const int64_t small[] = {1, 2, 3, 4, 5};
  const RandomSizes sizes = {.from = small, .n = 5, .most = 5 * 5 * 5 * 5};
  return random_step_of(c, seed, ops, &sizes);
}

static inline double random_number(uint64_t *state) { /* 0 .. 1 */
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(*state >> 33) / 2147483648.0;
}

#endif
