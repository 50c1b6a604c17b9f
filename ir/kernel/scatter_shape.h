/* A kernel function with one scatter, seen by `select` and the code generator: which dims are added
 * up into which. */
#ifndef SHARDC_SCATTER_SHAPE_H
#define SHARDC_SCATTER_SHAPE_H
#include "nest.h"

typedef struct Scatter {
  OpId op;
  ValueId x, index, out;
  ValueId base;      /* what the result starts from; NO_VALUE: zeros */
  uint32_t from_arg; /* the argument that is base, in whose bytes the result may be computed;
                        args.n: none */
  Str to;            /* the new dim */
  int64_t to_size;
  Nest from, kept; /* the dims that go, in the order of the index; those that stay, in the order of
                      the result */
  Nest result;     /* all dims of the result */
  bool vector;     /* lanes may run over the innermost kept dim */
} Scatter;

Scatter scatter_of(const Fn *k, int lanes);
#endif
