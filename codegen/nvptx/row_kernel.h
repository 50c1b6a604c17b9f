/* Inside of family row on a GPU: what row.c, row_sums.c and row_online.c share. */
#ifndef SHARDC_NVPTX_ROW_KERNEL_H
#define SHARDC_NVPTX_ROW_KERNEL_H
#include "group.h"
#include "ir/kernel/online_rows.h"

typedef struct RowKernel {
  Emit *e;
  Reductions r;
  int *level, passes, pass;
  Nest kept, over;
  bool held, side;          /* contiguous rows */
  const OnlineRows *online; /* NULL: a walk per level */
  bool keeps;               /* operands that the last walk reads are in shared memory */
  int lanes_over;
  int64_t group, vectors, length; /* threads; vectors at once; vectors of a row */
  int64_t turns, ctas;            /* rows of a group; CTAs of the first phase */
  LLVMValueRef thread, number;    /* within the group; of the row */
  LLVMValueRef valid;             /* rows of a warp's groups that exist; NULL: all */
  Accumulator *acc;
  Point row, point[GPU_HELD_MOST];
  uint32_t nfull, nrow, npacked;
  ValueId full[MAX_RESULTS], per_row[MAX_RESULTS], packed[MAX_RESULTS];
  LLVMValueRef *sums; /* of columns: variables of each sum and vector (row_sums.c) */
} RowKernel;

/* The thread's vector of number `which` after vector `first` of the row, of which `done` vectors
   are known to exist before. */
Point row_nth_point(RowKernel *kernel, LLVMValueRef first, int64_t which, int64_t done);
/* Joins the states of the present level's reductions over the group, and binds the results. */
void row_join(RowKernel *kernel, int n, GroupSum *sum);

/* ---- variants online and kept (row_online.c): all levels of a row, and its results ---- */
void row_online_emit(RowKernel *kernel);

/* ---- variant turned (row_turn.c): the whole kernel ---- */
void row_turned_emit(Emit *e);

/* ---- sums of columns (row_sums.c) ---- */
void row_sums_start(RowKernel *kernel); /* before the first row of a CTA */
/* Adds the operands at point[which], vector `flat` of the row, in the last walk. */
void row_sums_take(RowKernel *kernel, int64_t which, LLVMValueRef flat);
void row_sums_leave(RowKernel *kernel); /* after the last row: the line of the CTA */
void row_sums_join(RowKernel *kernel);  /* the second phase */

#endif
