/* Random modules over the op table: additional inputs for tests of passes and kernels.

     Module *m = random_module(ctx, seed, (RandomOptions){.ops = 30, .loops = 1});

   The module verifies, is as after lowering, and has an entry `step` with parameters and inputs
   that stores two to four outputs @y0.. of float type; with `loss` also their weighted sum as
   @loss. Sizes are small and odd, values stay small (large ones go through tanh), operands of log,
   sqrt and div are kept away from 0. The same seed gives the same module everywhere. */
#ifndef SHARDC_TESTS_RANDOM_MODULE_H
#define SHARDC_TESTS_RANDOM_MODULE_H
#include "ir/ir.h"

typedef struct RandomOptions {
  int ops;     /* about how many per function */
  int loops;   /* depth: 0 none, 1 loops in the entry, 2 loops in loops */
  bool smooth; /* no jumps and corners: for finite differences */
  bool loss;
} RandomOptions;

Module *random_module(Ctx *c, uint64_t seed, RandomOptions o);

/* Numbers for tests: the same everywhere. */
typedef struct Random {
  uint64_t state;
} Random;
uint32_t random_below(Random *r, uint32_t n);
#endif
