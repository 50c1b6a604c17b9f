/* Exact twins of kernels: see exact.c. */
#ifndef SHARDC_TEST_EXACT_H
#define SHARDC_TEST_EXACT_H
#include "ir/ir.h"

/* Operands of a twin are whole numbers of at most this size. */
enum { EXACT_MOST = 2 };

/* Makes the kernel its own twin. False: an op of it has none, or sums become too large. */
bool exact_twin(Module *m, Fn *k);

#endif
