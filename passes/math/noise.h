/* Rounding made visible, for `shardc verify`: see noise.c. */
#ifndef SHARDC_PASSES_NOISE_H
#define SHARDC_PASSES_NOISE_H
#include "ir/ir.h"

/* The scalar that says which noise: an executable gets it from SHARDC_NOISE. */
#define NOISE_SCALAR "noise.of.sums"

/* Every float operand that a training step adds up is off by up to that share of itself, at random
   from scalar NOISE_SCALAR. After pass `micro`, before `precision`. */
void noise_add(Module *m, double share);
#endif
