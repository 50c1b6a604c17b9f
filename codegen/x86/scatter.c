/* Family scatter: rows of x are added up by index, without atomics and in the order of the rows, so
   that the same bits come out every time. x may be computed by element-wise ops.

   Phase 0 fills the result with zeros, or with what the sums are added to; nothing is to be done if
   that stands in the result's buffer already. Phase 1 is cut by columns (the dims that stay) and by
   ranges of the new dim: a chunk goes through all rows and adds what falls into its own part; so
   every element of the result has one writer. Indexes outside are dropped. variant `vector`: lanes
   run over the innermost kept dim, up to `unroll` vectors at once; `scalar`. tile = [block of
   columns, ranges of the new dim, unroll, block of the fill]. */
#include "ir/kernel/scatter_shape.h"
#include "nontemporal.h"
#include "codegen/walk.h"

typedef struct Scattering {
  Emit *e;
  Scatter s;
  Walk filling;
  LLVMValueRef from, to; /* units of it in this chunk */
  bool vector;
  int unroll;
  LLVMValueRef low, high; /* this chunk's range of the new dim */
  const Point *column;
  int columns;
} Scattering;

static void fill(void *state, const Point *p, int n, LLVMValueRef start) {
  Scattering *s = state;
  Emit *e = s->e;
  Elem elem = value_type(e->k, s->s.out)->elem;
  (void)start;
  for (int u = 0; u < n; u++) {
    expr_forget(e);
    bool from = s->s.base != NO_VALUE;
    expr_put(e, s->s.out, &p[u], from ? expr_value(e, s->s.base, &p[u]) : emit_number(e, elem, 0));
  }
}

/* Adds x at point q to the result's row `at`. */
static void add(Scattering *s, const Point *q, LLVMValueRef at) {
  Emit *e = s->e;
  Elem elem = value_type(e->k, s->s.out)->elem;
  Point to = *q;
  point_set(&to, (Index){.dim = s->s.to, .at = at});
  LLVMValueRef x = expr_convert(e, expr_value(e, s->s.x, q), value_type(e->k, s->s.x)->elem, elem);
  LLVMValueRef old = expr_load(e, s->s.out, &to);
  x = emit_splat(e, x, emit_lanes_of(old));
  expr_put(e, s->s.out, &to, math_combine(e, OP_sum, old, x));
}

static LLVMValueRef index_at(Scattering *s, const Point *p) {
  Emit *e = s->e;
  LLVMValueRef i = expr_value(e, s->s.index, p);
  return expr_convert(e, i, value_type(e->k, s->s.index)->elem, ELEM_i64);
}

static void add_row(void *state, const Point *p, int n, LLVMValueRef start) {
  Scattering *s = state;
  Emit *e = s->e;
  (void)n, (void)start;
  LLVMValueRef at = index_at(s, p);
  LLVMValueRef offset = LLVMBuildSub(e->builder, at, s->low, "");
  LLVMValueRef size = LLVMBuildSub(e->builder, s->high, s->low, "");
  Branch inside = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntULT, offset, size, ""));
  for (int c = 0; c < s->columns; c++) {
    Point q = s->column[c];
    for (int d = 0; d < p->n; d++)
      if (!point_find(&q, p->index[d].dim)) point_set(&q, p->index[d]);
    expr_forget(e);
    add(s, &q, at);
  }
  emit_end_if(e, inside);
}

static void add_columns(void *state, const Point *p, int n, LLVMValueRef start) {
  Scattering *s = state;
  (void)start;
  s->column = p, s->columns = n;
  Walk w = {.nest = &s->s.from,
            .block = nest_inner(&s->s.from),
            .unroll = 1,
            .base = p,
            .body = add_row,
            .state = s};
  walk_all(s->e, &w);
}

static void fill_units(void *state) {
  Scattering *s = state;
  walk_space(s->e, &s->filling, s->from, s->to);
}

static Nontemporal nontemporal_results(Scattering *s) {
  const Nest *n = &s->s.result;
  if (!n->n) return (Nontemporal){0};
  const NestDim *inner = &n->dim[n->n - 1];
  return nontemporal_of(s->e,
                        &(NontemporalSpace){n->dim, n->n - 1, inner->dim, inner->size, false});
}

static void phase_fill(Scattering *s, int64_t block, int64_t chunks) {
  Emit *e = s->e;
  int lanes = e->lanes;
  Nest *result = &s->s.result;
  bool vector = result->n && buffer_stride(e->k, s->s.out, result->dim[result->n - 1].dim) == 1;
  if (!vector) e->lanes = 1;
  emit_begin_phase(e, 0);
  Branch apart = emit_if_apart(e, s->s.from_arg);
  s->filling = (Walk){
      .nest = result, .block = block, .lanes = vector, .unroll = 1, .body = fill, .state = s};
  emit_chunk_range(e, walk_units(&s->filling), chunks, &s->from, &s->to);
  Nontemporal nontemporal = nontemporal_results(s);
  nontemporal_either(e, nontemporal.results, nontemporal.holds, fill_units, s);
  nontemporal_end(e, nontemporal.results);
  emit_end_if(e, apart);
  emit_end_phase(e);
  e->lanes = lanes;
}

static void phase_add(Scattering *s, int64_t block, int64_t ranges, int64_t chunks) {
  Emit *e = s->e;
  LLVMValueRef from, to, one = emit_i64(e, 1), n = emit_i64(e, ranges),
                         size = emit_i64(e, s->s.to_size);
  if (!s->vector) e->lanes = 1;
  emit_begin_phase(e, 1);
  Walk w = {.nest = &s->s.kept,
            .block = block,
            .lanes = s->vector,
            .unroll = s->unroll,
            .body = add_columns,
            .state = s};
  emit_chunk_range(e, walk_units(&w) * ranges, chunks, &from, &to);
  Loop l = emit_loop(e, from, to, 1, 0, NULL);
  LLVMValueRef columns = LLVMBuildUDiv(e->builder, l.i, n, ""),
               range = LLVMBuildURem(e->builder, l.i, n, "");
  LLVMValueRef next = LLVMBuildAdd(e->builder, range, one, "");
  s->low = LLVMBuildUDiv(e->builder, LLVMBuildMul(e->builder, range, size, ""), n, "low");
  s->high = LLVMBuildUDiv(e->builder, LLVMBuildMul(e->builder, next, size, ""), n, "high");
  walk_space(e, &w, columns, LLVMBuildAdd(e->builder, columns, one, ""));
  emit_loop_end(e, &l);
  emit_end_phase(e);
}

void scatter_emit(Emit *e) {
  const Fn *k = e->k;
  const int64_t *tile = emit_tile(e, 4), *chunks = emit_chunks(e, 2);
  Scattering s = {.e = e, .s = scatter_of(k, e->lanes), .unroll = (int)tile[2]};
  s.vector = !strcmp(attr_str(&k->attrs, ATTR_variant, ""), "vector");
  phase_fill(&s, tile[3], chunks[0]);
  phase_add(&s, tile[0], tile[1], chunks[1]);
}
