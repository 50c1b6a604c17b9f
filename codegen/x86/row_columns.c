/* Sums of columns, computed together with rows: the values of a row, added up over all rows of a
   chunk, so that no second kernel reads the rows again (the gradients of a norm's gain and bias).

   Every chunk has a line of f32 per sum in the workspace; rows add to it in the last walk, one
   after the other. A second phase adds up the lines of all chunks in their order, so that the bits
   are the same whichever worker did which chunk. */
#include "row.h"

static const Op *column(const RowNest *nest, int i) {
  return &nest->e->k->ops.at[nest->r.column[i]];
}

static LLVMValueRef line(RowNest *nest, int i, LLVMValueRef chunk, LLVMValueRef at) {
  Emit *e = nest->e;
  LLVMValueRef base = emit_buffer(e, e->k->args.n + e->k->results.n);
  int64_t bytes = column_bytes(&nest->r);
  LLVMValueRef n = LLVMBuildNSWMul(e->builder, chunk, emit_i64(e, nest->r.ncolumns), "");
  n = LLVMBuildNSWAdd(e->builder, n, emit_i64(e, i), "");
  n = LLVMBuildNSWMul(e->builder, n, emit_i64(e, bytes), "");
  base = LLVMBuildGEP2(e->builder, LLVMInt8TypeInContext(e->context), base, &n, 1, "");
  return LLVMBuildGEP2(e->builder, emit_type(e, ELEM_f32), base, &at, 1, "");
}

void row_columns_zero(RowNest *nest) {
  Emit *e = nest->e;
  if (!nest->r.ncolumns) return;
  int64_t floats = nest->r.ncolumns * column_bytes(&nest->r) / 4;
  LLVMTypeRef f32 = emit_type(e, ELEM_f32);
  LLVMValueRef first = line(nest, 0, nest->e->chunk, emit_i64(e, 0));
  Loop loop = emit_loop(e, emit_i64(e, 0), emit_i64(e, floats), 1, 0, NULL);
  LLVMBuildStore(e->builder, LLVMConstNull(f32),
                 LLVMBuildGEP2(e->builder, f32, first, &loop.i, 1, ""));
  emit_loop_end(e, &loop);
}

/* One operand at p as f32: a vector along the row, else one number. */
static LLVMValueRef term(RowNest *nest, int i, const Point *p) {
  Emit *e = nest->e;
  bool lanes = nest->lanes_over || nest->lanes_kept;
  LLVMValueRef x = expr_value(e, column(nest, i)->in[0], p);
  if (lanes) x = emit_splat(e, x, e->lanes);
  if (lanes && p->mask)
    x = LLVMBuildSelect(e->builder, p->mask, x, LLVMConstNull(LLVMTypeOf(x)), "");
  return nest->lanes_kept ? math_across(e, OP_sum, x) : x;
}

void row_columns_add(RowNest *nest, const Point *p, int n, LLVMValueRef start) {
  Emit *e = nest->e;
  for (int i = 0; i < nest->r.ncolumns; i++)
    for (int u = 0; u < n; u++) {
      int64_t prefetch = (int64_t)u * (nest->lanes_over ? e->lanes : 1);
      LLVMValueRef at = LLVMBuildNSWAdd(e->builder, start, emit_i64(e, prefetch), "");
      LLVMValueRef to = line(nest, i, nest->e->chunk, at),
                   mask = nest->lanes_over ? p[u].mask : NULL;
      LLVMValueRef before = emit_load(e, ELEM_f32, to, nest->lanes_over ? e->lanes : 1, mask);
      LLVMValueRef sum = LLVMBuildFAdd(e->builder, before, term(nest, i, &p[u]), "");
      emit_store(e, ELEM_f32, to, sum, mask);
    }
}

static LLVMValueRef all_chunks(RowNest *nest, int i, LLVMValueRef at, LLVMValueRef mask) {
  Emit *e = nest->e;
  int lanes = nest->lanes_over ? e->lanes : 1;
  LLVMValueRef zero = LLVMConstNull(emit_vector(e, ELEM_f32, lanes));
  Loop loop = emit_loop(e, emit_i64(e, 0), emit_i64(e, nest->chunks[0]), 1, 1, &zero);
  LLVMValueRef x = emit_load(e, ELEM_f32, line(nest, i, loop.i, at), lanes, mask);
  loop.next[0] = LLVMBuildFAdd(e->builder, loop.phi[0], x, "");
  emit_loop_end(e, &loop);
  return loop.phi[0];
}

static void join(void *state, const Point *p, int n, LLVMValueRef start) {
  RowNest *nest = state;
  (void)n;
  for (int i = 0; i < nest->r.ncolumns; i++) {
    ValueId v = column(nest, i)->out;
    LLVMValueRef x = all_chunks(nest, i, start, p[0].mask);
    expr_put(nest->e, v, &p[0],
             expr_convert(nest->e, x, ELEM_f32, value_type(nest->e->k, v)->elem));
  }
}

void row_columns_join(RowNest *nest) {
  Emit *e = nest->e;
  LLVMValueRef from, to;
  emit_begin_phase(e, 1);
  Walk walk = {.nest = &nest->over,
               .block = nest->lanes_over ? e->lanes : 1,
               .lanes = nest->lanes_over,
               .unroll = 1,
               .body = join,
               .state = nest};
  emit_chunk_range(e, walk_units(&walk), nest->chunks[1], &from, &to);
  walk_space(e, &walk, from, to);
  emit_end_phase(e);
}
