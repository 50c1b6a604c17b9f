/* Values of a row that a row kernel keeps between its walks: those that take many instructions (e^x
   of softmax) and that a later walk needs again. They are computed in the first walk that needs
   them and read back from scratch in the others. `select` computes the bytes from this list, and
   the code generator the values: so they agree. */
#ifndef SHARDC_ROW_KEPT_H
#define SHARDC_ROW_KEPT_H
#include "nest.h"

typedef struct KeptRows {
  int n;
  ValueId v[MAX_RESULTS];
  int walk[MAX_RESULTS]; /* in which it is worked out */
  int64_t bytes;         /* of one of them, f32, whole cache lines */
} KeptRows;

/* For variant `row`, where lanes run along the row; other variants keep nothing. */
KeptRows rows_kept(Arena *arena, const Fn *k, const Reductions *reductions);
/* Bytes of scratch per worker, scans included. */
int64_t row_scratch(Arena *arena, const Fn *k, const Reductions *reductions);
#endif
