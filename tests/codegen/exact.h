/* Exact twins of kernels: see exact.c. */
#ifndef SHARDC_TEST_EXACT_H
#define SHARDC_TEST_EXACT_H
#include "ir/ir.h"

/* Operands of a twin are whole numbers of at most this size. */
enum { EXACT_MOST = 2, EXACT_SCORED = 60 };
/* Operands that attention alone reads, as queries or keys: of at most EXACT_SCORED. */
bool exact_is_scored(const Fn *k, ValueId v);
/* A result of attention: compared with a tolerance of 1e-6, since kernels approximate 2^0. */
bool exact_is_attended(const Fn *k, ValueId v);

/* Makes the kernel its own twin. False: an op of it has none, or sums become too large. */
bool exact_twin(Module *m, Fn *k);

#endif
