/* Family scatter: rows of x are added up by index, without atomics and in the order of the rows, so
   that the result has the same bits every time. x may be computed by element-wise ops.

   Phase 0 fills the result with zeros, or with the value to which the sums are added; it does
   nothing if that value has the result's buffer already. Phase 1 is cut by columns (the dims that
   remain) and by ranges of the new dim: a chunk reads all rows and adds those of its own part; so
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
  Scattering *scattering = state;
  Emit *e = scattering->e;
  Elem elem = value_type(e->k, scattering->s.out)->elem;
  (void)start;
  for (int u = 0; u < n; u++) {
    expr_forget(e);
    bool from = scattering->s.base != NO_VALUE;
    expr_put(e, scattering->s.out, &p[u],
             from ? expr_value(e, scattering->s.base, &p[u]) : emit_number(e, elem, 0));
  }
}

/* Adds x at point point to the result's row `at`. */
static void add(Scattering *scattering, const Point *point, LLVMValueRef at) {
  Emit *e = scattering->e;
  Elem elem = value_type(e->k, scattering->s.out)->elem;
  Point to = *point;
  point_set(&to, (Index){.dim = scattering->s.to, .at = at});
  LLVMValueRef x = expr_convert(e, expr_value(e, scattering->s.x, point),
                                value_type(e->k, scattering->s.x)->elem, elem);
  LLVMValueRef old = expr_load(e, scattering->s.out, &to);
  x = emit_splat(e, x, emit_lanes_of(old));
  expr_put(e, scattering->s.out, &to, math_combine(e, OP_sum, old, x));
}

static LLVMValueRef index_at(Scattering *scattering, const Point *p) {
  Emit *e = scattering->e;
  LLVMValueRef i = expr_value(e, scattering->s.index, p);
  return expr_convert(e, i, value_type(e->k, scattering->s.index)->elem, ELEM_i64);
}

static void add_row(void *state, const Point *p, int n, LLVMValueRef start) {
  Scattering *scattering = state;
  Emit *e = scattering->e;
  (void)n, (void)start;
  LLVMValueRef at = index_at(scattering, p);
  LLVMValueRef offset = LLVMBuildSub(e->builder, at, scattering->low, "");
  LLVMValueRef size = LLVMBuildSub(e->builder, scattering->high, scattering->low, "");
  Branch inside = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntULT, offset, size, ""));
  for (int c = 0; c < scattering->columns; c++) {
    Point q = scattering->column[c];
    for (int d = 0; d < p->n; d++)
      if (!point_find(&q, p->index[d].dim)) point_set(&q, p->index[d]);
    expr_forget(e);
    add(scattering, &q, at);
  }
  emit_end_if(e, inside);
}

static void add_columns(void *state, const Point *p, int n, LLVMValueRef start) {
  Scattering *scattering = state;
  (void)start;
  scattering->column = p, scattering->columns = n;
  Walk walk = {.nest = &scattering->s.from,
               .block = nest_inner(&scattering->s.from),
               .unroll = 1,
               .base = p,
               .body = add_row,
               .state = scattering};
  walk_all(scattering->e, &walk);
}

static void fill_units(void *state) {
  Scattering *scattering = state;
  walk_space(scattering->e, &scattering->filling, scattering->from, scattering->to);
}

static Nontemporal nontemporal_results(Scattering *scattering) {
  const Nest *n = &scattering->s.result;
  if (!n->n) return (Nontemporal){0};
  const NestDim *inner = &n->dim[n->n - 1];
  return nontemporal_of(scattering->e,
                        &(NontemporalSpace){n->dim, n->n - 1, inner->dim, inner->size, false});
}

static void phase_fill(Scattering *scattering, int64_t block, int64_t chunks) {
  Emit *e = scattering->e;
  int lanes = e->lanes;
  Nest *result = &scattering->s.result;
  bool vector =
      result->n && buffer_stride(e->k, scattering->s.out, result->dim[result->n - 1].dim) == 1;
  if (!vector) e->lanes = 1;
  emit_begin_phase(e, 0);
  Branch apart = emit_if_apart(e, scattering->s.from_arg);
  scattering->filling = (Walk){.nest = result,
                               .block = block,
                               .lanes = vector,
                               .unroll = 1,
                               .body = fill,
                               .state = scattering};
  emit_chunk_range(e, walk_units(&scattering->filling), chunks, &scattering->from, &scattering->to);
  Nontemporal nontemporal = nontemporal_results(scattering);
  nontemporal_either(e, nontemporal.results, nontemporal.holds, fill_units, scattering);
  nontemporal_end(e, nontemporal.results);
  emit_end_if(e, apart);
  emit_end_phase(e);
  e->lanes = lanes;
}

static void phase_add(Scattering *scattering, int64_t block, int64_t ranges, int64_t chunks) {
  Emit *e = scattering->e;
  LLVMValueRef from, to, one = emit_i64(e, 1), n = emit_i64(e, ranges),
                         size = emit_i64(e, scattering->s.to_size);
  if (!scattering->vector) e->lanes = 1;
  emit_begin_phase(e, 1);
  Walk walk = {.nest = &scattering->s.kept,
               .block = block,
               .lanes = scattering->vector,
               .unroll = scattering->unroll,
               .body = add_columns,
               .state = scattering};
  emit_chunk_range(e, walk_units(&walk) * ranges, chunks, &from, &to);
  Loop loop = emit_loop(e, from, to, 1, 0, NULL);
  LLVMValueRef columns = LLVMBuildUDiv(e->builder, loop.i, n, ""),
               range = LLVMBuildURem(e->builder, loop.i, n, "");
  LLVMValueRef next = LLVMBuildAdd(e->builder, range, one, "");
  scattering->low = LLVMBuildUDiv(e->builder, LLVMBuildMul(e->builder, range, size, ""), n, "low");
  scattering->high = LLVMBuildUDiv(e->builder, LLVMBuildMul(e->builder, next, size, ""), n, "high");
  walk_space(e, &walk, columns, LLVMBuildAdd(e->builder, columns, one, ""));
  emit_loop_end(e, &loop);
  emit_end_phase(e);
}

void scatter_emit(Emit *e) {
  const Fn *k = e->k;
  const int64_t *tile = emit_tile(e, 4), *chunks = emit_chunks(e, 2);
  Scattering scattering = {.e = e, .s = scatter_of(k, e->lanes), .unroll = (int)tile[2]};
  scattering.vector = !strcmp(attr_str(&k->attrs, ATTR_variant, ""), "vector");
  phase_fill(&scattering, tile[3], chunks[0]);
  phase_add(&scattering, tile[0], tile[1], chunks[1]);
}
