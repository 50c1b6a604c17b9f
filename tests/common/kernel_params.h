/* The parameters of a kernel on the PTX machine: addresses of its buffers, then its tensor maps.
   Must not: be kept after the arena. */
#ifndef TESTS_KERNEL_PARAMS_H
#define TESTS_KERNEL_PARAMS_H
#include "ir/ir.h"

/* at: of all buffers; *bytes: of the block that is returned. */
const void *kernel_params(const Module *m, const Fn *k, const uint64_t *at, int n, int *bytes);
#endif
