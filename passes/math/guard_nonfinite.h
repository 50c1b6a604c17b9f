/* The guard against numbers that are not finite (guard_nonfinite.c). */
#ifndef SHARDC_GUARD_NONFINITE_H
#define SHARDC_GUARD_NONFINITE_H
#include "passes/base/rebuild.h"

extern const char guard_prefix[]; /* of the outputs norm2.of.NAME */

int guard_stack_dims(const Global *global); /* its first dims, which number the rounds of a stack */
/* sum d^2 over the dims of one round of a parameter: a number, or one per round of its stack. */
ValueId guard_squares(Module *m, Fn *f, const Global *global, ValueId d);

/* The norm of all gradients together; NO_VALUE if there are none. gradient[i]: of global i, or
   NO_VALUE. Stores the square of every parameter's norm to the output norm2.of.NAME. */
ValueId guard_norm(Module *m, Fn *f, uint32_t n, const ValueId *gradient);

/* bool[]: is v, a number, finite? */
ValueId guard_finite(Module *m, Fn *f, ValueId v);

/* Stores v to an output of this name, which is created if it does not exist. */
void guard_output(Module *m, Fn *f, const char *name, ValueId v);
#endif
