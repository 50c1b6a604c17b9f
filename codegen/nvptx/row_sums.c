/* Sums of columns, computed together with rows on a GPU: values that rows make, added up over all
   rows, so that no second kernel reads them again (gradients of a norm's gain and bias).

   A CTA takes rows in turn. Variant `held`: each thread keeps the sums of its vectors in registers,
   and the groups of a CTA add theirs in shared memory, one after the other. Variant `turns`: sums
   are in the CTA's line of the workspace, where a thread reads and writes only its own vectors.
   Every CTA leaves a line of f32 per sum, and the second phase adds the lines in a fixed order
   (lines.h): the same bits every time. */
#include "lines.h"
#include "row_kernel.h"
#include "space.h"
#include "ir/kernel/gpu_plan.h"

static const Op *column(const RowKernel *kernel, int i) {
  return &kernel->e->k->ops.at[kernel->r.column[i]];
}

static LLVMTypeRef vector_type(const RowKernel *kernel) {
  return emit_vector(kernel->e, ELEM_f32, kernel->lanes_over);
}

static LLVMValueRef variable(const RowKernel *kernel, int i, int64_t which) {
  return kernel->sums[i * kernel->vectors + which];
}

static SumLines lines_of(const RowKernel *kernel) {
  int64_t rows = nest_count(&kernel->kept);
  return (SumLines){.columns = nest_count(&kernel->over),
                    .sums = kernel->r.ncolumns,
                    .lines = kernel->ctas,
                    .at = rows * gpu_scan_row(kernel->e->k, &kernel->r)};
}

/* Vector `flat` of the CTA's line of sum i. */
static LLVMValueRef in_line(RowKernel *kernel, int i, LLVMValueRef flat) {
  Emit *e = kernel->e;
  SumLines lines = lines_of(kernel);
  LLVMValueRef at = index_mul_add(e, flat, kernel->lanes_over, emit_index(e, 0));
  return lines_at(e, &lines, i, simt_index(e, simt_cta(e)), at);
}

static LLVMValueRef present(RowKernel *kernel, LLVMValueRef flat) {
  return LLVMBuildICmp(kernel->e->builder, LLVMIntULT, flat, emit_index(kernel->e, kernel->length),
                       "present");
}

static void put_zeros(RowKernel *kernel) {
  Emit *e = kernel->e;
  Loop loop = emit_loop(e, kernel->thread, emit_index(e, kernel->length), kernel->group, 0, NULL);
  for (int i = 0; i < kernel->r.ncolumns; i++)
    lines_store(e, in_line(kernel, i, loop.i), LLVMConstNull(vector_type(kernel)));
  emit_loop_end(e, &loop);
}

void row_sums_start(RowKernel *kernel) {
  Emit *e = kernel->e;
  int64_t n = kernel->r.ncolumns * kernel->vectors;
  if (!kernel->r.ncolumns) return;
  if (!kernel->held) {
    put_zeros(kernel);
    return;
  }
  kernel->sums = ARENA_ARRAY(e->arena, LLVMValueRef, (size_t)n);
  for (int64_t i = 0; i < n; i++) {
    kernel->sums[i] = emit_variable(e, vector_type(kernel));
    emit_set(e, kernel->sums[i], LLVMConstNull(vector_type(kernel)));
  }
}

void row_sums_take(RowKernel *kernel, int64_t which, LLVMValueRef flat) {
  Emit *e = kernel->e;
  const Point *p = &kernel->point[which];
  int lanes = kernel->lanes_over > 1 ? kernel->lanes_over : 0;
  for (int i = 0; i < kernel->r.ncolumns; i++) {
    LLVMValueRef x = emit_splat(e, expr_value(e, column(kernel, i)->in[0], p), lanes);
    Branch inside = {0};
    if (kernel->held) {
      LLVMValueRef to = variable(kernel, i, which);
      emit_set(e, to, LLVMBuildFAdd(e->builder, emit_get(e, vector_type(kernel), to), x, ""));
      continue;
    }
    if (p->guard) inside = emit_if(e, p->guard);
    LLVMValueRef to = in_line(kernel, i, flat);
    LLVMValueRef before = lines_load(e, to, kernel->lanes_over);
    lines_store(e, to, LLVMBuildFAdd(e->builder, before, x, ""));
    if (p->guard) emit_end_if(e, inside);
  }
}

/* ---- groups of a CTA ---- */

static LLVMValueRef in_shared(RowKernel *kernel, int i, LLVMValueRef flat) {
  Emit *e = kernel->e;
  int64_t line = nest_count(&kernel->over) * 4;
  LLVMValueRef at = index_mul_add(e, flat, 4 * kernel->lanes_over, emit_index(e, i * line));
  return simt_shared_at(e, LLVMBuildTrunc(e->builder, at, LLVMInt32TypeInContext(e->context), ""));
}

/* The thread's vectors, after those of the groups before; the last group's go to the line. */
static void pass_on(RowKernel *kernel, bool first, bool last) {
  Emit *e = kernel->e;
  for (int64_t u = 0; u < kernel->vectors; u++) {
    LLVMValueRef flat =
        LLVMBuildNSWAdd(e->builder, kernel->thread, emit_index(e, u * kernel->group), "");
    Branch inside = {0};
    bool ragged = (u + 1) * kernel->group > kernel->length;
    if (ragged) inside = emit_if(e, present(kernel, flat));
    for (int i = 0; i < kernel->r.ncolumns; i++) {
      LLVMValueRef x = emit_get(e, vector_type(kernel), variable(kernel, i, u));
      LLVMValueRef at = in_shared(kernel, i, flat);
      if (!first) x = LLVMBuildFAdd(e->builder, lines_load(e, at, kernel->lanes_over), x, "");
      lines_store(e, last ? in_line(kernel, i, flat) : at, x);
    }
    if (ragged) emit_end_if(e, inside);
  }
}

void row_sums_leave(RowKernel *kernel) {
  Emit *e = kernel->e;
  int64_t groups = simt_threads(e, 0) / kernel->group;
  if (!kernel->r.ncolumns || !kernel->held) return;
  LLVMValueRef own = index_div(e, simt_thread(e), kernel->group);
  for (int64_t g = 0; g < groups; g++) {
    Branch turn = {0};
    if (groups > 1)
      turn = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntEQ, own, simt_i32(e, g), "turn"));
    pass_on(kernel, g == 0, g == groups - 1);
    if (groups > 1) emit_end_if(e, turn);
    if (g < groups - 1) simt_barrier(e);
  }
}

/* ---- the second phase ---- */

static void deliver(void *state, int i, LLVMValueRef at, LLVMValueRef sum) {
  RowKernel *kernel = state;
  Emit *e = kernel->e;
  ValueId v = column(kernel, i)->out;
  Point p = space_point(e, &kernel->over, 1, at, NULL);
  expr_put(e, v, &p, expr_convert(e, sum, ELEM_f32, value_type(e->k, v)->elem));
}

void row_sums_join(RowKernel *kernel) {
  SumLines lines = lines_of(kernel);
  if (kernel->r.ncolumns) lines_join(kernel->e, 1, &lines, deliver, kernel);
}
