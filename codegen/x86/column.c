/* Family column: reductions over outer dims with element-wise ops on the way in, such as gradients
   of biases and gains, and sums to a scalar. Results keep the inner dims.

   The kept space is cut into blocks of columns, the reduced one into `splits` ranges. With one
   split, a chunk finishes its blocks of columns. With more, phase 0 leaves the state of every
   (split, column) in the workspace and phase 1 joins them in the order of the splits, so that the
   same bits come out whoever did what.

   variant `columns`: lanes and up to `unroll` vectors run over neighbouring columns; `row`: lanes
   run over the reduced dim and are joined at the end; `scalar`. tile = [block of columns, block of
   the reduced dim, splits, unroll]. */
#include "nontemporal.h"
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
  LLVMValueRef split; /* number of the split, while phase 0 is emitted */
  Walk walk;          /* then, of all columns of a chunk */
  LLVMValueRef from, to;
  const Point *column; /* the points of the current body */
  int columns;
  uint32_t nfull,
      nkept; /* results with reduced dims: operands that are wanted outside; and without */
  ValueId full[MAX_RESULTS], per_column[MAX_RESULTS];
} Columns;

static const Op *reduction(const Columns *columns, int i) {
  return &columns->e->k->ops.at[columns->r.op[i]];
}

static Elem operand_elem(const Columns *columns, int i) {
  return value_type(columns->e->k, reduction(columns, i)->in[0])->elem;
}

static void sort_results(Columns *columns) {
  const Fn *k = columns->e->k;
  for (uint32_t i = 0; i < k->results.n; i++) {
    const Type *t = value_type(k, k->results.at[i]);
    bool full = false;
    for (int d = 0; d < columns->r.over.n; d++)
      full |= type_find(t, columns->r.over.axis[d].dim) >= 0;
    if (full) columns->full[columns->nfull++] = k->results.at[i];
    else columns->per_column[columns->nkept++] = k->results.at[i];
  }
}

static Walk kept_walk(Columns *columns, WalkBody *body) {
  return (Walk){.nest = &columns->kept,
                .block = columns->block_kept,
                .lanes = columns->lanes_kept,
                .unroll = columns->lanes_kept ? columns->unroll : 1,
                .body = body,
                .state = columns};
}

static Walk over_walk(Columns *columns, WalkBody *body) {
  return (Walk){.nest = &columns->over,
                .block = columns->block_over,
                .lanes = columns->lanes_over,
                .unroll = columns->lanes_over ? columns->unroll : 1,
                .base = &columns->column[0],
                .body = body,
                .state = columns};
}

/* ---- partial states in the workspace: regions of 8 bytes per (split, column) ---- */

static LLVMValueRef state_pointer(Columns *s, int i, int part, LLVMValueRef split,
                                  LLVMValueRef column) {
  LLVMBuilderRef builder = s->e->builder;
  int64_t columns = nest_count(&s->kept), region = round_up(columns * s->splits * 8, CACHE_LINE);
  LLVMValueRef at = emit_i64(s->e, (2 * i + part) * region);
  LLVMValueRef workspace = emit_buffer(s->e, s->e->k->args.n + s->e->k->results.n);
  LLVMValueRef base =
      LLVMBuildGEP2(builder, LLVMInt8TypeInContext(s->e->context), workspace, &at, 1, "");
  LLVMValueRef row = LLVMBuildMul(builder, split, emit_i64(s->e, columns), "");
  LLVMValueRef element = LLVMBuildAdd(builder, row, column, "");
  LLVMTypeRef type = emit_type(s->e, accumulator_elem(operand_elem(s, i), part));
  return LLVMBuildGEP2(builder, type, base, &element, 1, "");
}

static void save_states(Columns *columns, LLVMValueRef start) {
  Emit *e = columns->e;
  for (int u = 0; u < columns->columns; u++) {
    LLVMValueRef column = LLVMBuildAdd(
        e->builder, start, emit_i64(e, (int64_t)u * (columns->lanes_kept ? e->lanes : 1)), "");
    for (int i = 0; i < columns->r.n; i++) {
      LLVMValueRef state[2];
      accumulator_state(e, &columns->total[i][u], state);
      for (int part = 0; part < accumulator_parts(reduction(columns, i)); part++) {
        Elem elem = accumulator_elem(operand_elem(columns, i), part);
        emit_store(e, elem, state_pointer(columns, i, part, columns->split, column), state[part],
                   columns->column[u].mask);
      }
    }
  }
}

/* ---- phase 0 ---- */

static void element(void *state, const Point *p, int n, LLVMValueRef start) {
  Columns *columns = state;
  (void)start;
  for (int c = 0; c < columns->columns; c++)
    for (int u = 0; u < n; u++) {
      Point q = columns->column[c];
      for (int d = 0; d < columns->r.over.n; d++)
        point_set(&q, *point_find(&p[u], columns->r.over.axis[d].dim));
      if (p[u].mask) q.mask = p[u].mask;
      for (int i = 0; i < columns->r.n; i++)
        accumulator_take(columns->e, &columns->acc[i][c], columns->acc[i][c].n > 1 ? u : 0, &q);
      walk_store(columns->e, &columns->kept, &columns->over, &q, columns->nfull, columns->full);
    }
}

static void finish(Columns *columns) {
  for (int u = 0; u < columns->columns; u++) {
    for (int i = 0; i < columns->r.n; i++)
      expr_bind(columns->e, reduction(columns, i)->out,
                accumulator_finish(columns->e, &columns->total[i][u]));
    expr_forget(columns->e);
    walk_store(columns->e, &columns->kept, NULL, &columns->column[u], columns->nkept,
               columns->per_column);
  }
  for (int i = 0; i < columns->r.n; i++) expr_bind(columns->e, reduction(columns, i)->out, NULL);
}

static void start_all(Columns *columns, Accumulator (*acc)[WALK_UNROLL]) {
  for (int i = 0; i < columns->r.n; i++)
    for (int u = 0; u < columns->columns; u++) accumulator_start(columns->e, &acc[i][u]);
}

/* Sums groups of units, then the groups: a number is added to sums of about its own size, so less
 * is lost. */
static void sum_range(Columns *columns, const Walk *walk, LLVMValueRef from, LLVMValueRef to) {
  Emit *e = columns->e;
  start_all(columns, columns->total);
  Loop loop = emit_loop(e, from, to, GROUP, 0, NULL);
  LLVMValueRef end = LLVMBuildAdd(e->builder, loop.i, emit_i64(e, GROUP), "");
  start_all(columns, columns->acc);
  walk_space(e, walk, loop.i, emit_min_i64(e, end, to));
  for (int i = 0; i < columns->r.n; i++)
    for (int u = 0; u < columns->columns; u++)
      accumulator_fold(e, &columns->total[i][u], &columns->acc[i][u]);
  emit_loop_end(e, &loop);
}

/* Few rows one after the other, without a loop: counting would take as long as summing. */
static void sum_few(Columns *columns, int64_t rows) {
  Emit *e = columns->e;
  start_all(columns, columns->total), start_all(columns, columns->acc);
  for (int64_t row = 0; row < rows; row++) {
    Point p = columns->column[0];
    if (columns->over.n)
      point_set(&p, (Index){.dim = columns->over.dim[0].dim, .at = emit_index(e, row)});
    for (int i = 0; i < columns->over.nzero; i++)
      point_set(&p, (Index){.dim = columns->over.zero[i], .at = emit_index(e, 0)});
    expr_forget(e);
    element(columns, &p, 1, NULL);
    expr_forget(e);
  }
  for (int i = 0; i < columns->r.n; i++)
    for (int u = 0; u < columns->columns; u++)
      accumulator_fold(e, &columns->total[i][u], &columns->acc[i][u]);
}

static void sum_columns(void *state, const Point *p, int n, LLVMValueRef start) {
  Columns *columns = state;
  LLVMBuilderRef builder = columns->e->builder;
  columns->column = p, columns->columns = n;
  Walk walk = over_walk(columns, element);
  LLVMValueRef units = emit_i64(columns->e, walk_units(&walk)),
               splits = emit_i64(columns->e, columns->splits);
  if (columns->splits == 1) {
    bool few = !columns->lanes_over && columns->over.n <= 1 && nest_count(&columns->over) <= FEW;
    if (few) sum_few(columns, nest_count(&columns->over));
    else sum_range(columns, &walk, emit_i64(columns->e, 0), units);
    finish(columns);
    return;
  }
  LLVMValueRef next = LLVMBuildAdd(builder, columns->split, emit_i64(columns->e, 1), "");
  LLVMValueRef from =
      LLVMBuildUDiv(builder, LLVMBuildMul(builder, columns->split, units, ""), splits, "");
  sum_range(columns, &walk, from,
            LLVMBuildUDiv(builder, LLVMBuildMul(builder, next, units, ""), splits, ""));
  save_states(columns, start);
}

static void make_accumulators(Columns *columns) {
  int lanes = columns->lanes_over || columns->lanes_kept ? columns->e->lanes : 1,
      n = columns->lanes_over ? columns->unroll : 1;
  columns->acc = arena_alloc(columns->e->arena, sizeof *columns->acc * (size_t)(columns->r.n + 1));
  columns->total =
      arena_alloc(columns->e->arena, sizeof *columns->total * (size_t)(columns->r.n + 1));
  for (int i = 0; i < columns->r.n; i++)
    for (int u = 0; u < (columns->lanes_kept ? columns->unroll : 1); u++) {
      columns->acc[i][u] =
          accumulator_new(columns->e, reduction(columns, i), lanes, columns->lanes_over, n);
      columns->total[i][u] =
          accumulator_new(columns->e, reduction(columns, i), lanes, columns->lanes_over, n);
    }
}

static void whole_sums(void *state) {
  Columns *columns = state;
  walk_space(columns->e, &columns->walk, columns->from, columns->to);
}

/* Sums that are whole, a vector of neighbours each. */
static Nontemporal nontemporal_sums(const Columns *columns) {
  const Nest *kept = &columns->kept;
  if (!columns->lanes_kept || columns->nfull || !kept->n) return (Nontemporal){0};
  const NestDim *inner = &kept->dim[kept->n - 1];
  return nontemporal_of(
      columns->e, &(NontemporalSpace){kept->dim, kept->n - 1, inner->dim, inner->size, false});
}

static void phase_sums(Columns *s, int64_t chunks) {
  Emit *e = s->e;
  emit_begin_phase(e, 0);
  make_accumulators(s);
  s->walk = kept_walk(s, sum_columns);
  emit_chunk_range(e, walk_units(&s->walk) * s->splits, chunks, &s->from, &s->to);
  if (s->splits == 1) {
    Nontemporal nontemporal = nontemporal_sums(s);
    nontemporal_either(e, nontemporal.results, nontemporal.holds, whole_sums, s);
    nontemporal_end(e, nontemporal.results);
  } else {
    Loop loop = emit_loop(e, s->from, s->to, 1, 0, NULL);
    LLVMValueRef columns = LLVMBuildUDiv(e->builder, loop.i, emit_i64(e, s->splits), "");
    s->split = LLVMBuildURem(e->builder, loop.i, emit_i64(e, s->splits), "split");
    walk_space(e, &s->walk, columns, LLVMBuildAdd(e->builder, columns, emit_i64(e, 1), ""));
    emit_loop_end(e, &loop);
  }
  emit_end_phase(e);
}

/* ---- phase 1 ---- */

static LLVMValueRef load_state(Columns *columns, int i, int part, LLVMValueRef split,
                               LLVMValueRef column, LLVMValueRef mask) {
  Elem elem = accumulator_elem(operand_elem(columns, i), part);
  int lanes = columns->lanes_kept ? columns->e->lanes : 1;
  return emit_load(columns->e, elem, state_pointer(columns, i, part, split, column), lanes, mask);
}

static LLVMValueRef join_splits(Columns *columns, int i, LLVMValueRef column, LLVMValueRef mask) {
  Emit *e = columns->e;
  const Op *o = reduction(columns, i);
  int parts = accumulator_parts(o);
  LLVMValueRef first[2], state[2], with[2];
  for (int part = 0; part < parts; part++)
    first[part] = load_state(columns, i, part, emit_i64(e, 0), column, mask);
  Loop loop = emit_loop(e, emit_i64(e, 1), emit_i64(e, columns->splits), 1, parts, first);
  for (int part = 0; part < parts; part++) {
    state[part] = loop.phi[part];
    with[part] = load_state(columns, i, part, loop.i, column, mask);
  }
  accumulator_join(e, o, operand_elem(columns, i), state, with);
  for (int part = 0; part < parts; part++) loop.next[part] = state[part];
  emit_loop_end(e, &loop);
  return accumulator_result(e, o, loop.phi);
}

static void join_columns(void *state, const Point *p, int n, LLVMValueRef start) {
  Columns *columns = state;
  for (int u = 0; u < n; u++) {
    LLVMValueRef offset =
        emit_i64(columns->e, (int64_t)u * (columns->lanes_kept ? columns->e->lanes : 1));
    LLVMValueRef column = LLVMBuildAdd(columns->e->builder, start, offset, "");
    for (int i = 0; i < columns->r.n; i++)
      expr_bind(columns->e, reduction(columns, i)->out, join_splits(columns, i, column, p[u].mask));
    expr_forget(columns->e);
    walk_store(columns->e, &columns->kept, NULL, &p[u], columns->nkept, columns->per_column);
  }
}

static void phase_join(Columns *columns, int64_t chunks) {
  Emit *e = columns->e;
  LLVMValueRef from, to;
  emit_begin_phase(e, 1);
  Walk walk = kept_walk(columns, join_columns);
  emit_chunk_range(e, walk_units(&walk), chunks, &from, &to);
  walk_space(e, &walk, from, to);
  emit_end_phase(e);
}

void column_emit(Emit *e) {
  const Fn *k = e->k;
  Str variant = attr_str(&k->attrs, ATTR_variant, "");
  const int64_t *tile = emit_tile(e, 4), *chunks = emit_chunks(e, tile[2] > 1 ? 2 : 1);
  reduction_check(e, true);
  ReducedSpace space = column_space(k);
  Columns columns = {.e = e, .r = space.r, .kept = space.kept, .over = space.over};
  must(columns.r.n && !columns.r.scans, "kernel %s: a column kernel of %d sums", k->name,
       columns.r.n);
  columns.lanes_kept = !strcmp(variant, "columns"), columns.lanes_over = !strcmp(variant, "row");
  if (!columns.lanes_kept && !columns.lanes_over) e->lanes = 1;
  columns.block_kept = tile[0], columns.block_over = tile[1], columns.splits = tile[2],
  columns.unroll = (int)tile[3];
  sort_results(&columns);
  phase_sums(&columns, chunks[0]);
  if (columns.splits > 1) phase_join(&columns, chunks[1]);
}
