/* Sums of columns beside rows: what a row makes, added up over all rows of a chunk, so that nobody
   reads the rows again (the gradients of a norm's gain and bias).

   Every chunk has a line of f32 per sum in the workspace; rows add to it in the last walk, one
   after the other. A second phase adds up the lines of all chunks in their order, so that the same
   bits come out whoever did what. */
#include "row.h"

static const Op *column(const RowNest *s, int i) { return &s->e->k->ops.at[s->r.column[i]]; }

static LLVMValueRef line(RowNest *s, int i, LLVMValueRef chunk, LLVMValueRef at) {
  Emit *e = s->e;
  LLVMValueRef base = emit_buffer(e, e->k->args.n + e->k->results.n);
  int64_t bytes = column_bytes(&s->r);
  LLVMValueRef n = LLVMBuildNSWMul(e->builder, chunk, emit_i64(e, s->r.ncolumns), "");
  n = LLVMBuildNSWAdd(e->builder, n, emit_i64(e, i), "");
  n = LLVMBuildNSWMul(e->builder, n, emit_i64(e, bytes), "");
  base = LLVMBuildGEP2(e->builder, LLVMInt8TypeInContext(e->context), base, &n, 1, "");
  return LLVMBuildGEP2(e->builder, emit_type(e, ELEM_f32), base, &at, 1, "");
}

void row_columns_zero(RowNest *s) {
  Emit *e = s->e;
  if (!s->r.ncolumns) return;
  int64_t floats = s->r.ncolumns * column_bytes(&s->r) / 4;
  LLVMTypeRef f32 = emit_type(e, ELEM_f32);
  LLVMValueRef first = line(s, 0, s->e->chunk, emit_i64(e, 0));
  Loop l = emit_loop(e, emit_i64(e, 0), emit_i64(e, floats), 1, 0, NULL);
  LLVMBuildStore(e->builder, LLVMConstNull(f32),
                 LLVMBuildGEP2(e->builder, f32, first, &l.i, 1, ""));
  emit_loop_end(e, &l);
}

/* One operand at p as f32: a vector along the row, else one number. */
static LLVMValueRef term(RowNest *s, int i, const Point *p) {
  Emit *e = s->e;
  bool lanes = s->lanes_over || s->lanes_kept;
  LLVMValueRef x = expr_value(e, column(s, i)->in[0], p);
  if (lanes) x = emit_splat(e, x, e->lanes);
  if (lanes && p->mask)
    x = LLVMBuildSelect(e->builder, p->mask, x, LLVMConstNull(LLVMTypeOf(x)), "");
  return s->lanes_kept ? math_across(e, OP_sum, x) : x;
}

void row_columns_add(RowNest *s, const Point *p, int n, LLVMValueRef start) {
  Emit *e = s->e;
  for (int i = 0; i < s->r.ncolumns; i++)
    for (int u = 0; u < n; u++) {
      int64_t prefetch = (int64_t)u * (s->lanes_over ? e->lanes : 1);
      LLVMValueRef at = LLVMBuildNSWAdd(e->builder, start, emit_i64(e, prefetch), "");
      LLVMValueRef to = line(s, i, s->e->chunk, at), mask = s->lanes_over ? p[u].mask : NULL;
      LLVMValueRef before = emit_load(e, ELEM_f32, to, s->lanes_over ? e->lanes : 1, mask);
      LLVMValueRef sum = LLVMBuildFAdd(e->builder, before, term(s, i, &p[u]), "");
      emit_store(e, ELEM_f32, to, sum, mask);
    }
}

static LLVMValueRef all_chunks(RowNest *s, int i, LLVMValueRef at, LLVMValueRef mask) {
  Emit *e = s->e;
  int lanes = s->lanes_over ? e->lanes : 1;
  LLVMValueRef zero = LLVMConstNull(emit_vector(e, ELEM_f32, lanes));
  Loop l = emit_loop(e, emit_i64(e, 0), emit_i64(e, s->chunks[0]), 1, 1, &zero);
  LLVMValueRef x = emit_load(e, ELEM_f32, line(s, i, l.i, at), lanes, mask);
  l.next[0] = LLVMBuildFAdd(e->builder, l.phi[0], x, "");
  emit_loop_end(e, &l);
  return l.phi[0];
}

static void join(void *state, const Point *p, int n, LLVMValueRef start) {
  RowNest *s = state;
  (void)n;
  for (int i = 0; i < s->r.ncolumns; i++) {
    ValueId v = column(s, i)->out;
    LLVMValueRef x = all_chunks(s, i, start, p[0].mask);
    expr_put(s->e, v, &p[0], expr_convert(s->e, x, ELEM_f32, value_type(s->e->k, v)->elem));
  }
}

void row_columns_join(RowNest *s) {
  Emit *e = s->e;
  LLVMValueRef from, to;
  emit_begin_phase(e, 1);
  Walk w = {.nest = &s->over,
            .block = s->lanes_over ? e->lanes : 1,
            .lanes = s->lanes_over,
            .unroll = 1,
            .body = join,
            .state = s};
  emit_chunk_range(e, walk_units(&w), s->chunks[1], &from, &to);
  walk_space(e, &w, from, to);
  emit_end_phase(e);
}
