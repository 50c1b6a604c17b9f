/* Inside of family row: what row.c and row_columns.c share. */
#ifndef SHARDC_ROW_H
#define SHARDC_ROW_H
#include "codegen/reduce.h"
#include "nontemporal.h"
#include "ir/kernel/row_kept.h"

typedef struct RowNest {
  Emit *e;
  Reductions r;
  int *level;
  Nest kept, over;
  bool lanes_over, lanes_kept; /* which space runs over the lanes */
  const int64_t *unroll;       /* per pass */
  const int64_t *chunks;       /* per phase */
  int passes;
  KeptRows keep;    /* between walks */
  Accumulator *acc; /* of each reduction, scans excluded */
  Nontemporal nontemporal;
  const Point *row; /* while a row is emitted */
  int pass;
  uint32_t nfull, nrow, npacked; /* results of full size, of rows, of bytes along them */
  ValueId full[MAX_RESULTS], per_row[MAX_RESULTS], packed[MAX_RESULTS];
} RowNest;

typedef struct Pick { /* a gather */
  Op op;
  ValueId in[2];
} Pick;

/* Whether a sum picks one element (row_pick.c), and what does the same; out may be NULL. */
bool row_pick(const RowNest *nest, const Op *sum, Pick *out);
void row_picks(RowNest *nest); /* those of the present pass, before its walk */

/* Asks for rows that come later (row_prefetch.c); points of a walk */
void row_prefetch(RowNest *nest, const Point *p, int n);

/* ---- bytes of bits along the row (row_bits.c) ---- */
bool row_bits_in_step(const RowNest *nest);       /* made at the points of the last walk */
void row_bits_put(RowNest *nest, const Point *p); /* at one of them */
void row_bits_apart(RowNest *nest);               /* those that are not, before that walk */

/* ---- sums of columns (row_columns.c) ---- */
void row_columns_zero(RowNest *nest); /* at the start of a chunk of the first phase */
/* Adds the operands at n points of the last walk; start: as in WalkBody */
void row_columns_add(RowNest *nest, const Point *p, int n, LLVMValueRef start);
void row_columns_join(RowNest *nest); /* the second phase */
#endif
