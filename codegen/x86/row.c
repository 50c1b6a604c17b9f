/* Family row: reductions and scans over the same dims, with element-wise ops before, between and
   after: softmax, norms, log-sum-exp, their gradients.

   A chunk does a range of rows. A row is walked once per level: reductions whose operands need no
   other reduction first, then those that need these, and so on; a row stays in the cache meanwhile.
   Results of full size are stored in the last of these walks and results of the row after it, so
   that a result may have the buffer of an operand. Bytes of bits along the row are results as well
   (row_bits.c).

   A scan walks the row once more, one element at a time, into scratch, where later levels read it.
   Values that are slow to compute and needed by several walks (e^x) are kept in scratch as well
   (ir/kernel/row_kept.h).

   variant `row`: lanes run along the row; partial sums in vectors, joined in a fixed order. `rows`:
   lanes run over neighbouring rows (reduced dims are outer in storage), nothing is joined.
   `scalar`: one element at a time. tile = [block of rows, unroll of each walk ..]. */
#include "row.h"
#include "ir/support/num.h"

static const Op *reduction(const RowNest *nest, int i) {
  return &nest->e->k->ops.at[nest->r.op[i]];
}

static bool is_scan(const Op *o) { return op_family(o->code) == FAMILY_SCAN; }

static bool now(const RowNest *nest, const Op *o) { return nest->level[o->in[0]] == nest->pass; }

/* Whether a walk of this pass has to add up what reduction i reads. */
static bool takes(const RowNest *nest, int i) {
  const Op *o = reduction(nest, i);
  return !is_scan(o) && now(nest, o) && !row_pick(nest, o, NULL);
}

/* ---- what the kernel asks for ---- */

static void sort_results(RowNest *nest) {
  const Fn *k = nest->e->k;
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId v = k->results.at[i];
    if (nest_is_column_sum(k, &nest->r, v)) continue;
    if (reduction_packed(k, &nest->r, v) != NO_VALUE) nest->packed[nest->npacked++] = v;
    else if (reduction_along(k, &nest->r, v)) nest->full[nest->nfull++] = v;
    else nest->per_row[nest->nrow++] = v;
  }
  nest->passes = reduction_passes(k, &nest->r, nest->level);
}

/* ---- values kept between walks ---- */

static LLVMValueRef keep_memory(RowNest *nest, int i) {
  LLVMValueRef at = emit_i64(nest->e, i * nest->keep.bytes);
  LLVMTypeRef byte = LLVMInt8TypeInContext(nest->e->context);
  return LLVMBuildGEP2(nest->e->builder, byte, nest->e->scratch, &at, 1, "");
}

static void keep_values(RowNest *nest, const Point *p, int n) {
  Emit *e = nest->e;
  Str dim = nest->r.over.axis[0].dim;
  for (int i = 0; i < nest->keep.n; i++)
    for (int u = 0; u < n && nest->keep.walk[i] == nest->pass; u++) {
      LLVMValueRef at = point_find(&p[u], dim)->at, x = expr_value(e, nest->keep.v[i], &p[u]);
      LLVMValueRef to =
          LLVMBuildGEP2(e->builder, emit_type(e, ELEM_f32), keep_memory(nest, i), &at, 1, "");
      emit_store(e, ELEM_f32, to, emit_splat(e, x, e->lanes), p[u].mask);
    }
}

/* From now on these values are read; NULL: no more. */
static void bind_kept(RowNest *nest, bool known) {
  for (int i = 0; i < nest->keep.n; i++)
    if (!known || nest->keep.walk[i] == nest->pass)
      expr_bind_row(nest->e, nest->keep.v[i], known ? keep_memory(nest, i) : NULL,
                    nest->r.over.axis[0].dim, ELEM_f32);
}

/* ---- one walk along a row ---- */

static void element(void *state, const Point *p, int n, LLVMValueRef start) {
  RowNest *nest = state;
  for (int i = 0; i < nest->r.n; i++) {
    if (!takes(nest, i)) continue;
    accumulator_take_all(nest->e, &nest->acc[i], n, p);
  }
  keep_values(nest, p, n);
  row_prefetch(nest, p, n);
  if (nest->pass == nest->passes - 1) row_columns_add(nest, p, n, start);
  if (nest->pass == nest->passes - 1)
    for (int u = 0; u < n; u++) {
      row_bits_put(nest, &p[u]);
      walk_store(nest->e, &nest->kept, &nest->over, &p[u], nest->nfull, nest->full);
    }
}

static bool walks(const RowNest *nest) {
  bool packs = nest->npacked && row_bits_in_step(nest);
  if (nest->pass == nest->passes - 1 && (nest->nfull || nest->r.ncolumns || packs)) return true;
  for (int i = 0; i < nest->r.n; i++)
    if (takes(nest, i)) return true;
  return false;
}

static LLVMValueRef head(RowNest *nest) {
  Point p = *nest->row;
  if (!nest->e->nontemporal || !nest->nontemporal.ragged) return NULL;
  point_set(&p, (Index){.dim = nest->over.dim[0].dim, .at = emit_index(nest->e, 0)});
  for (int i = 0; i < nest->over.nzero; i++)
    point_set(&p, (Index){.dim = nest->over.zero[i], .at = emit_index(nest->e, 0)});
  return nontemporal_head(nest->e, &nest->nontemporal, &p);
}

static void walk_row(void *state) {
  RowNest *nest = state;
  Walk walk = {.nest = &nest->over,
               .block = nest_inner(&nest->over),
               .lanes = nest->lanes_over,
               .unroll = (int)nest->unroll[nest->pass],
               .base = nest->row,
               .head = head(nest),
               .body = element,
               .state = nest};
  walk_all(nest->e, &walk);
}

static void reduce_pass(RowNest *nest) {
  bool last = nest->pass == nest->passes - 1;
  for (int i = 0; i < nest->r.n; i++)
    if (takes(nest, i)) accumulator_start(nest->e, &nest->acc[i]);
  nontemporal_either(nest->e, last ? nest->nontemporal.results : 0, nest->nontemporal.holds,
                     walk_row, nest);
  bind_kept(nest, true);
  for (int i = 0; i < nest->r.n; i++)
    if (takes(nest, i))
      expr_bind(nest->e, reduction(nest, i)->out, accumulator_finish(nest->e, &nest->acc[i]));
}

/* ---- scans ---- */

static LLVMValueRef scan_memory(RowNest *nest, int which) {
  int before = 0;
  for (int i = 0; i < which; i++) before += is_scan(reduction(nest, i));
  int64_t row = round_up(nest->r.over.axis[0].size * 8, CACHE_LINE);
  LLVMValueRef at = emit_i64(nest->e, before * row);
  return LLVMBuildGEP2(nest->e->builder, LLVMInt8TypeInContext(nest->e->context), nest->e->scratch,
                       &at, 1, "");
}

static void scan(RowNest *nest, int which) {
  Emit *e = nest->e;
  const Op *o = reduction(nest, which);
  must(!nest->lanes_kept, "kernel %s: a scan of several rows at once", e->k->name);
  Str dim = o->group[0].from[0];
  Elem elem = accumulator_elem(value_type(e->k, o->in[0])->elem, 0);
  int64_t n = type_size(value_type(e->k, o->in[0]), dim);
  LLVMValueRef memory = scan_memory(nest, which), zero = emit_number(e, elem, 0);
  Loop loop = emit_loop(e, emit_i64(e, 0), emit_i64(e, n), 1, 1, &zero);
  LLVMValueRef at = loop.i;
  if (attr_int(&o->attrs, ATTR_inverse, 0))
    at = LLVMBuildSub(e->builder, emit_i64(e, n - 1), loop.i, "");
  Point p = *nest->row;
  point_set(&p, (Index){.dim = dim, .at = at});
  expr_forget(e);
  loop.next[0] = math_combine(e, OP_sum, loop.phi[0], expr_value(e, o->in[0], &p));
  LLVMValueRef to = LLVMBuildGEP2(e->builder, emit_type(e, elem), memory, &at, 1, "");
  LLVMBuildStore(e->builder, loop.next[0], to);
  expr_forget(e);
  emit_loop_end(e, &loop);
  expr_bind_row(e, o->out, memory, dim, elem);
}

/* ---- rows ---- */

static void row(void *state, const Point *p, int n, LLVMValueRef start) {
  RowNest *nest = state;
  (void)n, (void)start;
  nest->row = p;
  for (int i = 0; i < nest->r.n; i++) {
    expr_bind(nest->e, reduction(nest, i)->out, NULL);
    expr_bind_row(nest->e, reduction(nest, i)->out, NULL, NULL, ELEM_f32);
  }
  bind_kept(nest, false);
  for (nest->pass = 0; nest->pass < nest->passes; nest->pass++) {
    row_picks(nest);
    if (nest->pass == nest->passes - 1) row_bits_apart(nest);
    if (walks(nest)) reduce_pass(nest);
    for (int i = 0; i < nest->r.n; i++)
      if (is_scan(reduction(nest, i)) && now(nest, reduction(nest, i))) scan(nest, i);
  }
  expr_forget(nest->e);
  walk_store(nest->e, &nest->kept, NULL, p, nest->nrow, nest->per_row);
}

static void make_accumulators(RowNest *nest) {
  nest->acc = ARENA_ARRAY(nest->e->arena, Accumulator, nest->r.n + 1);
  int lanes = nest->lanes_over || nest->lanes_kept ? nest->e->lanes : 1;
  for (int i = 0; i < nest->r.n; i++) {
    const Op *o = reduction(nest, i);
    if (is_scan(o)) continue;
    int n = (int)nest->unroll[nest->level[o->in[0]]];
    nest->acc[i] = accumulator_new(nest->e, o, lanes, nest->lanes_over, n);
    accumulator_apart(nest->e, &nest->acc[i]);
  }
}

/* A sum adds up the same elements in each lane wherever its row begins: heads are for walks without
   one. */
static bool reduces_last(RowNest *nest) {
  for (int i = 0; i < nest->r.n; i++)
    if (nest->level[reduction(nest, i)->in[0]] == nest->passes - 1) return true;
  return false;
}

static Nontemporal nontemporal_results(RowNest *nest) {
  if (!nest->lanes_over || nest->over.n != 1) return (Nontemporal){0};
  const NestDim *along = &nest->over.dim[0];
  return nontemporal_of(nest->e, &(NontemporalSpace){nest->kept.dim, nest->kept.n, along->dim,
                                                     along->size, !reduces_last(nest)});
}

void row_emit(Emit *e) {
  const Fn *k = e->k;
  Str variant = attr_str(&k->attrs, ATTR_variant, "");
  reduction_check(e, false);
  ReducedSpace space = row_space(k);
  RowNest nest = {.e = e, .r = space.r, .kept = space.kept, .over = space.over};
  nest.level = reduction_levels(e->arena, k);
  nest.lanes_over = !strcmp(variant, "row"), nest.lanes_kept = !strcmp(variant, "rows");
  if (!nest.lanes_over && !nest.lanes_kept) e->lanes = 1;
  sort_results(&nest);
  nest.keep = rows_kept(e->arena, k, &nest.r);
  const int64_t *tile = emit_tile(e, 1 + nest.passes);
  nest.unroll = tile + 1;
  emit_begin_phase(e, 0);
  make_accumulators(&nest);
  Walk walk = {.nest = &nest.kept,
               .block = tile[0],
               .lanes = nest.lanes_kept,
               .unroll = 1,
               .body = row,
               .state = &nest};
  LLVMValueRef from, to;
  nest.chunks = emit_chunks(e, nest.r.ncolumns ? 2 : 1);
  row_columns_zero(&nest);
  emit_chunk_range(e, walk_units(&walk), nest.chunks[0], &from, &to);
  nest.nontemporal = nontemporal_results(&nest);
  walk_space(e, &walk, from, to);
  nontemporal_end(e, nest.nontemporal.results);
  emit_end_phase(e);
  if (nest.r.ncolumns) row_columns_join(&nest);
}
