/* A .npy file of bits, as block patterns take it. */
#ifndef SHARDC_NPY_H
#define SHARDC_NPY_H
#include "ir/support/ctx.h"
#include <stdbool.h>
#include <stdint.h>

enum { NPY_RANK = 3 };

typedef struct NpyBits {
  int rank; /* 2 or 3 */
  int64_t dim[NPY_RANK];
  bool *set;                /* [dim[0]]..: the last dim varies fastest */
  const char *fault, *help; /* fault: why there is nothing else, or NULL; help may be NULL */
} NpyBits;

/* Text of n bytes, followed by a zero */
NpyBits npy_bits(Arena *a, const char *text, size_t n);
const char *npy_shape(Arena *a, const NpyBits *b); /* 64 x 64 */
#endif
