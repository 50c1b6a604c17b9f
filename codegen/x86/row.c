/* Family row: reductions and scans over the same dims, with element-wise ops before, between and
   after: softmax, norms, log-sum-exp, their gradients.

   A chunk does a range of rows. A row is walked once per level: reductions whose operands need no
   other reduction first, then those that need these, and so on; a row stays in the cache meanwhile.
   Results of full size are stored in the last of these walks and results of the row after it, so
   that a result may lie in the buffer of an operand. A scan goes along the row once more, one
   element at a time, into scratch, where later levels read it. What is slow to make and needed by
   several walks (e^x) is kept in scratch, too (ir/kernel/row_kept.h).

   variant `row`: lanes run along the row; partial sums in vectors, joined in a fixed order. `rows`:
   lanes run over neighbouring rows (reduced dims are outer in storage), nothing is joined.
   `scalar`: one element at a time. tile = [block of rows, unroll of each walk ..]. */
#include "row.h"
#include "ir/support/num.h"

static const Op *reduction(const RowNest *s, int i) { return &s->e->k->ops.at[s->r.op[i]]; }

static bool is_scan(const Op *o) { return op_family(o->code) == FAMILY_SCAN; }

static bool now(const RowNest *s, const Op *o) { return s->level[o->in[0]] == s->pass; }

/* Whether a walk of this pass has to add up what reduction i reads. */
static bool takes(const RowNest *s, int i) {
  const Op *o = reduction(s, i);
  return !is_scan(o) && now(s, o) && !row_pick(s, o, NULL);
}

/* ---- what the kernel asks for ---- */

static void sort_results(RowNest *s) {
  const Fn *k = s->e->k;
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId v = k->results.at[i];
    if (nest_is_column_sum(k, &s->r, v)) continue;
    if (reduction_along(k, &s->r, v)) s->full[s->nfull++] = v;
    else s->per_row[s->nrow++] = v;
  }
  s->passes = reduction_passes(k, &s->r, s->level);
}

/* ---- values kept between walks ---- */

static LLVMValueRef keep_memory(RowNest *s, int i) {
  LLVMValueRef at = emit_i64(s->e, i * s->keep.bytes);
  LLVMTypeRef byte = LLVMInt8TypeInContext(s->e->context);
  return LLVMBuildGEP2(s->e->builder, byte, s->e->scratch, &at, 1, "");
}

static void keep_values(RowNest *s, const Point *p, int n) {
  Emit *e = s->e;
  Str dim = s->r.over.axis[0].dim;
  for (int i = 0; i < s->keep.n; i++)
    for (int u = 0; u < n && s->keep.walk[i] == s->pass; u++) {
      LLVMValueRef at = point_find(&p[u], dim)->at, x = expr_value(e, s->keep.v[i], &p[u]);
      LLVMValueRef to =
          LLVMBuildGEP2(e->builder, emit_type(e, ELEM_f32), keep_memory(s, i), &at, 1, "");
      emit_store(e, ELEM_f32, to, emit_splat(e, x, e->lanes), p[u].mask);
    }
}

/* From now on these values are read; NULL: no more. */
static void bind_kept(RowNest *s, bool known) {
  for (int i = 0; i < s->keep.n; i++)
    if (!known || s->keep.walk[i] == s->pass)
      expr_bind_row(s->e, s->keep.v[i], known ? keep_memory(s, i) : NULL, s->r.over.axis[0].dim,
                    ELEM_f32);
}

/* ---- one walk along a row ---- */

static void element(void *state, const Point *p, int n, LLVMValueRef start) {
  RowNest *s = state;
  for (int i = 0; i < s->r.n; i++) {
    if (!takes(s, i)) continue;
    accumulator_take_all(s->e, &s->acc[i], n, p);
  }
  keep_values(s, p, n);
  row_prefetch(s, p, n);
  if (s->pass == s->passes - 1) row_columns_add(s, p, n, start);
  if (s->pass == s->passes - 1)
    for (int u = 0; u < n; u++) walk_store(s->e, &s->kept, &s->over, &p[u], s->nfull, s->full);
}

static bool walks(const RowNest *s) {
  if (s->pass == s->passes - 1 && (s->nfull || s->r.ncolumns)) return true;
  for (int i = 0; i < s->r.n; i++)
    if (takes(s, i)) return true;
  return false;
}

static LLVMValueRef head(RowNest *s) {
  Point p = *s->row;
  if (!s->e->nontemporal || !s->nontemporal.ragged) return NULL;
  point_set(&p, (Index){.dim = s->over.dim[0].dim, .at = emit_index(s->e, 0)});
  for (int i = 0; i < s->over.nzero; i++)
    point_set(&p, (Index){.dim = s->over.zero[i], .at = emit_index(s->e, 0)});
  return nontemporal_head(s->e, &s->nontemporal, &p);
}

static void walk_row(void *state) {
  RowNest *s = state;
  Walk w = {.nest = &s->over,
            .block = nest_inner(&s->over),
            .lanes = s->lanes_over,
            .unroll = (int)s->unroll[s->pass],
            .base = s->row,
            .head = head(s),
            .body = element,
            .state = s};
  walk_all(s->e, &w);
}

static void reduce_pass(RowNest *s) {
  bool last = s->pass == s->passes - 1;
  for (int i = 0; i < s->r.n; i++)
    if (takes(s, i)) accumulator_start(s->e, &s->acc[i]);
  nontemporal_either(s->e, last ? s->nontemporal.results : 0, s->nontemporal.holds, walk_row, s);
  bind_kept(s, true);
  for (int i = 0; i < s->r.n; i++)
    if (takes(s, i)) expr_bind(s->e, reduction(s, i)->out, accumulator_finish(s->e, &s->acc[i]));
}

/* ---- scans ---- */

static LLVMValueRef scan_memory(RowNest *s, int which) {
  int before = 0;
  for (int i = 0; i < which; i++) before += is_scan(reduction(s, i));
  int64_t row = round_up(s->r.over.axis[0].size * 8, CACHE_LINE);
  LLVMValueRef at = emit_i64(s->e, before * row);
  return LLVMBuildGEP2(s->e->builder, LLVMInt8TypeInContext(s->e->context), s->e->scratch, &at, 1,
                       "");
}

static void scan(RowNest *s, int which) {
  Emit *e = s->e;
  const Op *o = reduction(s, which);
  must(!s->lanes_kept, "kernel %s: a scan of several rows at once", e->k->name);
  Str dim = o->group[0].from[0];
  Elem elem = accumulator_elem(value_type(e->k, o->in[0])->elem, 0);
  int64_t n = type_size(value_type(e->k, o->in[0]), dim);
  LLVMValueRef memory = scan_memory(s, which), zero = emit_number(e, elem, 0);
  Loop l = emit_loop(e, emit_i64(e, 0), emit_i64(e, n), 1, 1, &zero);
  LLVMValueRef at = l.i;
  if (attr_int(&o->attrs, ATTR_inverse, 0))
    at = LLVMBuildSub(e->builder, emit_i64(e, n - 1), l.i, "");
  Point p = *s->row;
  point_set(&p, (Index){.dim = dim, .at = at});
  expr_forget(e);
  l.next[0] = math_combine(e, OP_sum, l.phi[0], expr_value(e, o->in[0], &p));
  LLVMValueRef to = LLVMBuildGEP2(e->builder, emit_type(e, elem), memory, &at, 1, "");
  LLVMBuildStore(e->builder, l.next[0], to);
  expr_forget(e);
  emit_loop_end(e, &l);
  expr_bind_row(e, o->out, memory, dim, elem);
}

/* ---- rows ---- */

static void row(void *state, const Point *p, int n, LLVMValueRef start) {
  RowNest *s = state;
  (void)n, (void)start;
  s->row = p;
  for (int i = 0; i < s->r.n; i++) {
    expr_bind(s->e, reduction(s, i)->out, NULL);
    expr_bind_row(s->e, reduction(s, i)->out, NULL, NULL, ELEM_f32);
  }
  bind_kept(s, false);
  for (s->pass = 0; s->pass < s->passes; s->pass++) {
    row_picks(s);
    if (walks(s)) reduce_pass(s);
    for (int i = 0; i < s->r.n; i++)
      if (is_scan(reduction(s, i)) && now(s, reduction(s, i))) scan(s, i);
  }
  expr_forget(s->e);
  walk_store(s->e, &s->kept, NULL, p, s->nrow, s->per_row);
}

static void make_accumulators(RowNest *s) {
  s->acc = ARENA_ARRAY(s->e->arena, Accumulator, s->r.n + 1);
  int lanes = s->lanes_over || s->lanes_kept ? s->e->lanes : 1;
  for (int i = 0; i < s->r.n; i++) {
    const Op *o = reduction(s, i);
    if (is_scan(o)) continue;
    int n = (int)s->unroll[s->level[o->in[0]]];
    s->acc[i] = accumulator_new(s->e, o, lanes, s->lanes_over, n);
    accumulator_apart(s->e, &s->acc[i]);
  }
}

/* A sum adds up the same elements in each lane wherever its row lies: heads are for walks without
   one. */
static bool reduces_last(RowNest *s) {
  for (int i = 0; i < s->r.n; i++)
    if (s->level[reduction(s, i)->in[0]] == s->passes - 1) return true;
  return false;
}

static Nontemporal nontemporal_results(RowNest *s) {
  if (!s->lanes_over || s->over.n != 1) return (Nontemporal){0};
  const NestDim *along = &s->over.dim[0];
  return nontemporal_of(
      s->e, &(NontemporalSpace){s->kept.dim, s->kept.n, along->dim, along->size, !reduces_last(s)});
}

void row_emit(Emit *e) {
  const Fn *k = e->k;
  Str variant = attr_str(&k->attrs, ATTR_variant, "");
  reduction_check(e, false);
  RowNest s = {.e = e, .r = reductions_of(k), .level = reduction_levels(e->arena, k)};
  ValueId reference = nest_reference(k, &s.r.over);
  s.kept = nest_of(k, &s.r.kept, reference), s.over = nest_of(k, &s.r.over, reference);
  s.lanes_over = !strcmp(variant, "row"), s.lanes_kept = !strcmp(variant, "rows");
  if (!s.lanes_over && !s.lanes_kept) e->lanes = 1;
  sort_results(&s);
  s.keep = rows_kept(e->arena, k, &s.r);
  const int64_t *tile = emit_tile(e, 1 + s.passes);
  s.unroll = tile + 1;
  emit_begin_phase(e, 0);
  make_accumulators(&s);
  Walk w = {.nest = &s.kept,
            .block = tile[0],
            .lanes = s.lanes_kept,
            .unroll = 1,
            .body = row,
            .state = &s};
  LLVMValueRef from, to;
  s.chunks = emit_chunks(e, s.r.ncolumns ? 2 : 1);
  row_columns_zero(&s);
  emit_chunk_range(e, walk_units(&w), s.chunks[0], &from, &to);
  s.nontemporal = nontemporal_results(&s);
  walk_space(e, &w, from, to);
  nontemporal_end(e, s.nontemporal.results);
  emit_end_phase(e);
  if (s.r.ncolumns) row_columns_join(&s);
}
