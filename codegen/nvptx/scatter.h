/* Inside of family scatter on a GPU: what its variants share (scatter.c), and variant `order`
   (scatter_order.c). */
#ifndef SHARDC_NVPTX_SCATTER_H
#define SHARDC_NVPTX_SCATTER_H
#include "ir/kernel/gpu_tile.h"
#include "ir/kernel/scatter_shape.h"
#include "space.h"

enum { SCATTER_AT_ONCE = 4 }; /* reads that are issued before the first of them is waited for */

typedef struct GpuScattering {
  Emit *e;
  Scatter s;
  Elem elem, in_registers; /* of the result, of its sums */
  int64_t rows, columns, vectors;
  LLVMValueRef own;                  /* index of the warp's rows */
  LLVMValueRef at[GPU_COLUMNS_MOST]; /* flat numbers of the thread's vectors of columns */
  Point column[GPU_COLUMNS_MOST];
} GpuScattering;

/* The index of a row at the columns of `base`, as e->index; -1: outside. */
LLVMValueRef scatter_index_of(GpuScattering *scattering, LLVMValueRef row, const Point *base,
                              LLVMValueRef guard);
/* A row's elements at a vector of columns; zeros where its guard does not hold. */
LLVMValueRef scatter_x_at(GpuScattering *scattering, LLVMValueRef row, const Point *column);
/* How many blocks of columns rows have; where a thread's vectors of a block are. */
int64_t scatter_blocks(const GpuScattering *scattering);
void scatter_find_columns(GpuScattering *scattering, LLVMValueRef block);
/* Adds the sums to the row `own` of the result. */
void scatter_store(GpuScattering *scattering, const LLVMValueRef *sum);

/* ---- variant order: the sort by one CTA of phase 0, phases 1 and 2 ---- */
void scatter_sort(GpuScattering *scattering);
void scatter_pieces(GpuScattering *scattering);
void scatter_joins(GpuScattering *scattering);

/* ---- while (..) ---- */
typedef struct While {
  LLVMBasicBlockRef head, body, exit, before;
  LLVMValueRef phi[GPU_COLUMNS_MOST + 2];
  int n;
} While;

/* Carried values are phis; while_test ends the head, while_end the body. */
While while_begin(Emit *e, int n, const LLVMValueRef *initial);
void while_test(Emit *e, const While *loop, LLVMValueRef more);
void while_end(Emit *e, const While *loop, LLVMValueRef *next);

#endif
