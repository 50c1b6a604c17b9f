/* Pass `simplify` for other passes, and its knowledge about ops. */
#ifndef SHARDC_SIMPLIFY_H
#define SHARDC_SIMPLIFY_H
#include "passes/base/rebuild.h"

/* The same op, its operands aside: code, groups, attributes, callee or global. */
bool op_alike(const Op *a, const Op *b);

/* Does the op, or the body of a loop, store, send, or do other ranks wait for it? Then it is never
   dead. */
bool op_acts(const Op *o);

/* Simplifies every function until nothing changes. `after_grad`: stop_gradient has done its
 * work. */
void simplify_module(Module *m, bool after_grad);
#endif
