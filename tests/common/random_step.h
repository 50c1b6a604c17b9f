/* Random modules of one entry `step`: element-wise ops, moved indexes, reductions, contractions,
   gathers, scatters, loops with carried, invariant and stacked values, outputs and updated
   parameters. Sizes are small, numbers stay near 1. */
#ifndef SHARDC_TESTS_RANDOM_STEP_H
#define SHARDC_TESTS_RANDOM_STEP_H
#include "ir/ir.h"

Module *random_step(Ctx *c, uint64_t seed, int ops);
double random_number(uint64_t *state); /* 0 .. 1 */
#endif
