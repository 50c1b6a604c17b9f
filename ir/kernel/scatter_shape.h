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

/* On a GPU, rows sorted by index (variant `order`): pairs of index and row in two lists, a digit of
   the index at a time, with counters in shared memory; sums of pieces of at most 64 rows. */
enum { SCATTER_PIECE = 64, SCATTER_DIGIT = 4, SCATTER_BINS = 1 << SCATTER_DIGIT, SCATTER_PAIR = 8 };

typedef struct ScatterOrder {
  int64_t list;   /* bytes of a list; the second one follows the first */
  int64_t digits; /* of an index, or of the one of rows that are dropped */
  int64_t sorted; /* where the sorted list is in the workspace, */
  int64_t pieces; /* and the sums of pieces, two for each 64 rows */
  int64_t workspace, shared;
} ScatterOrder;

ScatterOrder scatter_order_of(const Fn *k, const Scatter *scatter, int64_t threads);
/* Beginnings of 64 rows that an index can go on to. */
int64_t scatter_order_joins(int64_t rows);
#endif
