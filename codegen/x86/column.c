/* Family column: reductions over outer dims with element-wise ops on the way in, such as gradients
   of biases and gains, and sums to a scalar. Results keep the inner dims.

   The kept space is cut into blocks of columns, the reduced one into `splits` ranges. With one
   split, a chunk finishes its blocks of columns. With more, phase 0 leaves the state of every
   (split, column) in the workspace and phase 1 joins them in the order of the splits, so that the
   same bits come out whoever did what.

   variant `columns`: lanes and up to `unroll` vectors run over neighbouring columns; `row`: lanes
   run over the reduced dim and are joined at the end; `scalar`. tile = [block of columns, block of
   the reduced dim, splits, unroll]. */
#include "codegen/reduce.h"
#include "ir/support/num.h"

enum {
  GROUP = 8, /* units of the reduced dim that are summed before they are added to the rest */
  FEW = 8    /* rows that are summed without a loop */
};

typedef struct Columns {
  Emit *e;
  Reductions r;
  Nest kept, over;
  bool lanes_over, lanes_kept;
  int64_t block_kept, block_over, splits;
  int unroll;
  /* of each reduction, for each point: of a group of units, and of all groups */
  Accumulator (*acc)[WALK_UNROLL], (*total)[WALK_UNROLL];
  LLVMValueRef split;  /* number of the split, while phase 0 is emitted */
  const Point *column; /* the points of the current body */
  int columns;
  uint32_t nfull,
      nkept; /* results with reduced dims: operands that are wanted outside; and without */
  ValueId full[MAX_RESULTS], per_column[MAX_RESULTS];
} Columns;

static const Op *reduction(const Columns *s, int i) { return &s->e->k->ops.at[s->r.op[i]]; }

static Elem operand_elem(const Columns *s, int i) {
  return value_type(s->e->k, reduction(s, i)->in[0])->elem;
}

static void sort_results(Columns *s) {
  const Fn *k = s->e->k;
  for (uint32_t i = 0; i < k->results.n; i++) {
    const Type *t = value_type(k, k->results.at[i]);
    bool full = false;
    for (int d = 0; d < s->r.over.n; d++) full |= type_find(t, s->r.over.axis[d].dim) >= 0;
    if (full) s->full[s->nfull++] = k->results.at[i];
    else s->per_column[s->nkept++] = k->results.at[i];
  }
}

static Walk kept_walk(Columns *s, WalkBody *body) {
  return (Walk){.nest = &s->kept,
                .block = s->block_kept,
                .lanes = s->lanes_kept,
                .unroll = s->lanes_kept ? s->unroll : 1,
                .body = body,
                .state = s};
}

static Walk over_walk(Columns *s, WalkBody *body) {
  return (Walk){.nest = &s->over,
                .block = s->block_over,
                .lanes = s->lanes_over,
                .unroll = s->lanes_over ? s->unroll : 1,
                .base = &s->column[0],
                .body = body,
                .state = s};
}

/* ---- partial states in the workspace: regions of 8 bytes per (split, column) ---- */

static LLVMValueRef state_pointer(Columns *s, int i, int part, LLVMValueRef split,
                                  LLVMValueRef column) {
  LLVMBuilderRef b = s->e->builder;
  int64_t columns = nest_count(&s->kept), region = round_up(columns * s->splits * 8, CACHE_LINE);
  LLVMValueRef at = emit_i64(s->e, (2 * i + part) * region);
  LLVMValueRef workspace = emit_buffer(s->e, s->e->k->args.n + s->e->k->results.n);
  LLVMValueRef base = LLVMBuildGEP2(b, LLVMInt8TypeInContext(s->e->context), workspace, &at, 1, "");
  LLVMValueRef row = LLVMBuildMul(b, split, emit_i64(s->e, columns), "");
  LLVMValueRef element = LLVMBuildAdd(b, row, column, "");
  LLVMTypeRef type = emit_type(s->e, accumulator_elem(operand_elem(s, i), part));
  return LLVMBuildGEP2(b, type, base, &element, 1, "");
}

static void save_states(Columns *s, LLVMValueRef start) {
  Emit *e = s->e;
  for (int u = 0; u < s->columns; u++) {
    LLVMValueRef column = LLVMBuildAdd(
        e->builder, start, emit_i64(e, (int64_t)u * (s->lanes_kept ? e->lanes : 1)), "");
    for (int i = 0; i < s->r.n; i++) {
      LLVMValueRef state[2];
      accumulator_state(e, &s->total[i][u], state);
      for (int part = 0; part < accumulator_parts(reduction(s, i)); part++) {
        Elem elem = accumulator_elem(operand_elem(s, i), part);
        emit_store(e, elem, state_pointer(s, i, part, s->split, column), state[part],
                   s->column[u].mask);
      }
    }
  }
}

/* ---- phase 0 ---- */

static void element(void *state, const Point *p, int n, LLVMValueRef start) {
  Columns *s = state;
  (void)start;
  for (int c = 0; c < s->columns; c++)
    for (int u = 0; u < n; u++) {
      Point q = s->column[c];
      for (int d = 0; d < s->r.over.n; d++)
        point_set(&q, *point_find(&p[u], s->r.over.axis[d].dim));
      if (p[u].mask) q.mask = p[u].mask;
      for (int i = 0; i < s->r.n; i++)
        accumulator_take(s->e, &s->acc[i][c], s->acc[i][c].n > 1 ? u : 0, &q);
      walk_store(s->e, &s->kept, &s->over, &q, s->nfull, s->full);
    }
}

static void finish(Columns *s) {
  for (int u = 0; u < s->columns; u++) {
    for (int i = 0; i < s->r.n; i++)
      expr_bind(s->e, reduction(s, i)->out, accumulator_finish(s->e, &s->total[i][u]));
    expr_forget(s->e);
    walk_store(s->e, &s->kept, NULL, &s->column[u], s->nkept, s->per_column);
  }
  for (int i = 0; i < s->r.n; i++) expr_bind(s->e, reduction(s, i)->out, NULL);
}

static void start_all(Columns *s, Accumulator (*acc)[WALK_UNROLL]) {
  for (int i = 0; i < s->r.n; i++)
    for (int u = 0; u < s->columns; u++) accumulator_start(s->e, &acc[i][u]);
}

/* Sums groups of units, then the groups: a number is added to sums of about its own size, so less
 * is lost. */
static void sum_range(Columns *s, const Walk *w, LLVMValueRef from, LLVMValueRef to) {
  Emit *e = s->e;
  start_all(s, s->total);
  Loop l = emit_loop(e, from, to, GROUP, 0, NULL);
  LLVMValueRef end = LLVMBuildAdd(e->builder, l.i, emit_i64(e, GROUP), "");
  start_all(s, s->acc);
  walk_space(e, w, l.i, emit_min_i64(e, end, to));
  for (int i = 0; i < s->r.n; i++)
    for (int u = 0; u < s->columns; u++) accumulator_fold(e, &s->total[i][u], &s->acc[i][u]);
  emit_loop_end(e, &l);
}

/* Few rows one after the other, without a loop: counting would take as long as summing. */
static void sum_few(Columns *s, int64_t rows) {
  Emit *e = s->e;
  start_all(s, s->total), start_all(s, s->acc);
  for (int64_t row = 0; row < rows; row++) {
    Point p = s->column[0];
    if (s->over.n) point_set(&p, (Index){.dim = s->over.dim[0].dim, .at = emit_index(e, row)});
    for (int i = 0; i < s->over.nzero; i++)
      point_set(&p, (Index){.dim = s->over.zero[i], .at = emit_index(e, 0)});
    expr_forget(e);
    element(s, &p, 1, NULL);
    expr_forget(e);
  }
  for (int i = 0; i < s->r.n; i++)
    for (int u = 0; u < s->columns; u++) accumulator_fold(e, &s->total[i][u], &s->acc[i][u]);
}

static void sum_columns(void *state, const Point *p, int n, LLVMValueRef start) {
  Columns *s = state;
  LLVMBuilderRef b = s->e->builder;
  s->column = p, s->columns = n;
  Walk w = over_walk(s, element);
  LLVMValueRef units = emit_i64(s->e, walk_units(&w)), splits = emit_i64(s->e, s->splits);
  if (s->splits == 1) {
    bool few = !s->lanes_over && s->over.n <= 1 && nest_count(&s->over) <= FEW;
    if (few) sum_few(s, nest_count(&s->over));
    else sum_range(s, &w, emit_i64(s->e, 0), units);
    finish(s);
    return;
  }
  LLVMValueRef next = LLVMBuildAdd(b, s->split, emit_i64(s->e, 1), "");
  LLVMValueRef from = LLVMBuildUDiv(b, LLVMBuildMul(b, s->split, units, ""), splits, "");
  sum_range(s, &w, from, LLVMBuildUDiv(b, LLVMBuildMul(b, next, units, ""), splits, ""));
  save_states(s, start);
}

static void make_accumulators(Columns *s) {
  int lanes = s->lanes_over || s->lanes_kept ? s->e->lanes : 1, n = s->lanes_over ? s->unroll : 1;
  s->acc = arena_alloc(s->e->arena, sizeof *s->acc * (size_t)(s->r.n + 1));
  s->total = arena_alloc(s->e->arena, sizeof *s->total * (size_t)(s->r.n + 1));
  for (int i = 0; i < s->r.n; i++)
    for (int u = 0; u < (s->lanes_kept ? s->unroll : 1); u++) {
      s->acc[i][u] = accumulator_new(s->e, reduction(s, i), lanes, s->lanes_over, n);
      s->total[i][u] = accumulator_new(s->e, reduction(s, i), lanes, s->lanes_over, n);
    }
}

static void phase_sums(Columns *s, int64_t chunks) {
  Emit *e = s->e;
  LLVMValueRef from, to;
  emit_begin_phase(e, 0);
  make_accumulators(s);
  Walk w = kept_walk(s, sum_columns);
  emit_chunk_range(e, walk_units(&w) * s->splits, chunks, &from, &to);
  if (s->splits == 1) {
    walk_space(e, &w, from, to);
  } else {
    Loop l = emit_loop(e, from, to, 1, 0, NULL);
    LLVMValueRef columns = LLVMBuildUDiv(e->builder, l.i, emit_i64(e, s->splits), "");
    s->split = LLVMBuildURem(e->builder, l.i, emit_i64(e, s->splits), "split");
    walk_space(e, &w, columns, LLVMBuildAdd(e->builder, columns, emit_i64(e, 1), ""));
    emit_loop_end(e, &l);
  }
  emit_end_phase(e);
}

/* ---- phase 1 ---- */

static LLVMValueRef load_state(Columns *s, int i, int part, LLVMValueRef split, LLVMValueRef column,
                               LLVMValueRef mask) {
  Elem elem = accumulator_elem(operand_elem(s, i), part);
  int lanes = s->lanes_kept ? s->e->lanes : 1;
  return emit_load(s->e, elem, state_pointer(s, i, part, split, column), lanes, mask);
}

static LLVMValueRef join_splits(Columns *s, int i, LLVMValueRef column, LLVMValueRef mask) {
  Emit *e = s->e;
  const Op *o = reduction(s, i);
  int parts = accumulator_parts(o);
  LLVMValueRef first[2], state[2], with[2];
  for (int part = 0; part < parts; part++)
    first[part] = load_state(s, i, part, emit_i64(e, 0), column, mask);
  Loop l = emit_loop(e, emit_i64(e, 1), emit_i64(e, s->splits), 1, parts, first);
  for (int part = 0; part < parts; part++) {
    state[part] = l.phi[part];
    with[part] = load_state(s, i, part, l.i, column, mask);
  }
  accumulator_join(e, o, operand_elem(s, i), state, with);
  for (int part = 0; part < parts; part++) l.next[part] = state[part];
  emit_loop_end(e, &l);
  return accumulator_result(e, o, l.phi);
}

static void join_columns(void *state, const Point *p, int n, LLVMValueRef start) {
  Columns *s = state;
  for (int u = 0; u < n; u++) {
    LLVMValueRef offset = emit_i64(s->e, (int64_t)u * (s->lanes_kept ? s->e->lanes : 1));
    LLVMValueRef column = LLVMBuildAdd(s->e->builder, start, offset, "");
    for (int i = 0; i < s->r.n; i++)
      expr_bind(s->e, reduction(s, i)->out, join_splits(s, i, column, p[u].mask));
    expr_forget(s->e);
    walk_store(s->e, &s->kept, NULL, &p[u], s->nkept, s->per_column);
  }
}

static void phase_join(Columns *s, int64_t chunks) {
  Emit *e = s->e;
  LLVMValueRef from, to;
  emit_begin_phase(e, 1);
  Walk w = kept_walk(s, join_columns);
  emit_chunk_range(e, walk_units(&w), chunks, &from, &to);
  walk_space(e, &w, from, to);
  emit_end_phase(e);
}

void column_emit(Emit *e) {
  const Fn *k = e->k;
  Str variant = attr_str(&k->attrs, ATTR_variant, "");
  const int64_t *tile = emit_tile(e, 4), *chunks = emit_chunks(e, tile[2] > 1 ? 2 : 1);
  reduction_check(e, true);
  Columns s = {.e = e, .r = reductions_of(k)};
  must(s.r.n && !s.r.scans, "kernel %s: a column kernel of %d sums", k->name, s.r.n);
  ValueId reference = column_reference(k, &s.r);
  s.kept = nest_of(k, &s.r.kept, reference), s.over = nest_of(k, &s.r.over, reference);
  s.lanes_kept = !strcmp(variant, "columns"), s.lanes_over = !strcmp(variant, "row");
  if (!s.lanes_kept && !s.lanes_over) e->lanes = 1;
  s.block_kept = tile[0], s.block_over = tile[1], s.splits = tile[2], s.unroll = (int)tile[3];
  sort_results(&s);
  phase_sums(&s, chunks[0]);
  if (s.splits > 1) phase_join(&s, chunks[1]);
}
