/* Family column on a GPU: reductions over outer dims, with element-wise ops on the operands; the
   remaining dims are contiguous. Also sums to a scalar.

   Variant `columns`: a CTA has a block of columns, a vector of them per thread, and divides its
   threads evenly among the columns; each of the n threads of a column takes every n-th element of
   the reduced space. Their states are combined in shared memory: the first thread joins them in
   order. Variant `along`: a CTA has one column and its threads run along the reduced space. Splits
   cut the reduced space over CTAs: phase 0 then leaves the state of every (split, column) in the
   workspace, and phase 1 joins them, a thread or a warp per column. No atomics: the same bits every
   time. */
#include "families.h"
#include "ir/support/num.h"
#include "group.h"
#include "space.h"

typedef struct GpuColumns {
  Emit *e;
  Reductions r;
  Nest kept, over;
  bool along; /* variant `along` */
  int lanes_kept, lanes_over;
  int64_t across, joiners, splits, turn; /* adjacent threads, per column; elements at once */
  int64_t columns, length;               /* vectors of them */
  Accumulator *acc;
  Point column;
  LLVMValueRef number, joiner, split; /* of the column vector; e->index */
  uint32_t nfull, nkept;
  ValueId full[MAX_RESULTS], per_column[MAX_RESULTS];
} GpuColumns;

static const Op *reduction(const GpuColumns *columns, int i) {
  return &columns->e->k->ops.at[columns->r.op[i]];
}

static GroupSum sum_of(const GpuColumns *columns, int i) {
  const Op *o = reduction(columns, i);
  return (GroupSum){.op = o, .elem = value_type(columns->e->k, o->in[0])->elem};
}

static int state_bytes(const GroupSum *s, int part) {
  return elem_bytes(accumulator_elem(s->elem, part));
}

static void sort_results(GpuColumns *columns) {
  const Fn *k = columns->e->k;
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId v = k->results.at[i];
    if (reduction_along(k, &columns->r, v)) columns->full[columns->nfull++] = v;
    else columns->per_column[columns->nkept++] = v;
  }
}

/* ---- sums of one thread ---- */

static void element(GpuColumns *columns, LLVMValueRef flat, int which) {
  Point p = space_point(columns->e, &columns->over, columns->lanes_over, flat, &columns->column);
  for (int i = 0; i < columns->r.n; i++)
    accumulator_take(columns->e, &columns->acc[i], which % columns->acc[i].n, &p);
  walk_store(columns->e, &columns->kept, &columns->over, &p, columns->nfull, columns->full);
}

/* flat = from, from + step, .. below `to`: several at once, then one by one. */
static void sum_range(GpuColumns *columns, LLVMValueRef from, LLVMValueRef to, int64_t step) {
  Emit *e = columns->e;
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef wide = emit_index(e, step * columns->turn);
  LLVMValueRef room = LLVMBuildNSWSub(builder, to, emit_index(e, step * (columns->turn - 1)), "");
  LLVMValueRef some = LLVMBuildICmp(builder, LLVMIntSGT, room, from, "");
  LLVMValueRef many = LLVMBuildNSWAdd(builder, LLVMBuildNSWSub(builder, room, from, ""),
                                      emit_index(e, step * columns->turn - 1), "");
  LLVMValueRef count =
      LLVMBuildSelect(builder, some, LLVMBuildUDiv(builder, many, wide, ""), emit_index(e, 0), "");
  LLVMValueRef rest = LLVMBuildNSWAdd(builder, from, LLVMBuildNSWMul(builder, count, wide, ""), "");
  Loop loop = emit_loop(e, from, rest, step * columns->turn, 0, NULL);
  expr_forget(e);
  for (int64_t u = 0; u < columns->turn; u++) {
    LLVMValueRef at = u ? LLVMBuildNSWAdd(builder, loop.i, emit_index(e, u * step), "") : loop.i;
    element(columns, at, (int)u);
  }
  expr_forget(e);
  emit_loop_end(e, &loop);
  loop = emit_loop(e, rest, to, step, 0, NULL);
  element(columns, loop.i, 0);
  expr_forget(e);
  emit_loop_end(e, &loop);
}

static void sum_split(GpuColumns *columns) {
  Emit *e = columns->e;
  int64_t each = (columns->length + columns->splits - 1) / columns->splits;
  LLVMValueRef from = columns->joiner, to = emit_index(e, columns->length);
  if (columns->splits > 1) {
    LLVMValueRef next = index_mul_add(e, columns->split, each, emit_index(e, each));
    from = index_mul_add(e, columns->split, each, columns->joiner);
    to = emit_min_i64(e, next, to);
  }
  for (int i = 0; i < columns->r.n; i++) accumulator_start(e, &columns->acc[i]);
  sum_range(columns, from, to, columns->joiners);
}

/* ---- what the threads of a column have, put together ---- */

/* Byte of the state of (joiner, column of the block) in shared memory; parts one after the other.
 */
static LLVMValueRef shared_slot(GpuColumns *columns, int64_t base, int bytes, LLVMValueRef joiner) {
  Emit *e = columns->e;
  LLVMValueRef x = index_rem(e, simt_thread(e), columns->across);
  x = index_mul_add(e, joiner, columns->across, x);
  return simt_shared_at(
      e, index_mul_add(e, x, (int64_t)bytes * columns->lanes_kept, simt_i32(e, base)));
}

/* The first thread of each column reads what the others left, in their order. */
static void join_in_order(GpuColumns *columns, GroupSum *sum, const int64_t *base) {
  Emit *e = columns->e;
  LLVMValueRef start[2 * MAX_RESULTS];
  int n = 0;
  for (int i = 0; i < columns->r.n; i++)
    for (int part = 0; part < accumulator_parts(sum[i].op); part++) start[n++] = sum[i].state[part];
  if (n > MAX_CARRIED) bug("kernel %s sums too much at once", e->k->name);
  Loop loop = emit_loop(e, simt_i32(e, 1), simt_i32(e, columns->joiners), 1, n, start);
  n = 0;
  for (int i = 0; i < columns->r.n; i++) {
    LLVMValueRef into[2] = {0}, with[2] = {0};
    int parts = accumulator_parts(sum[i].op);
    for (int part = 0; part < parts; part++) {
      into[part] = loop.phi[n + part];
      with[part] =
          state_load(e, &sum[i], part,
                     shared_slot(columns, base[2 * i + part], state_bytes(&sum[i], part), loop.i),
                     columns->lanes_kept);
    }
    accumulator_join(e, sum[i].op, sum[i].elem, into, with);
    for (int part = 0; part < parts; part++) loop.next[n++] = into[part];
  }
  emit_loop_end(e, &loop);
  n = 0;
  for (int i = 0; i < columns->r.n; i++)
    for (int part = 0; part < accumulator_parts(sum[i].op); part++)
      sum[i].state[part] = loop.phi[n++];
}

static void leave_states(GpuColumns *columns, const GroupSum *sum, int64_t *base) {
  Emit *e = columns->e;
  int64_t at = 0;
  LLVMValueRef joiner = index_div(e, simt_thread(e), columns->across);
  for (int i = 0; i < columns->r.n; i++)
    for (int part = 0; part < accumulator_parts(sum[i].op); part++) {
      int bytes = state_bytes(&sum[i], part);
      base[2 * i + part] = at;
      state_store(e, &sum[i], part, shared_slot(columns, at, bytes, joiner), sum[i].state[part]);
      at += (int64_t)bytes * columns->lanes_kept * columns->across * columns->joiners;
    }
}

/* ---- states of splits in the workspace: regions of 8 bytes per (split, column) ---- */

static LLVMValueRef workspace_slot(GpuColumns *columns, const GroupSum *sum, int i, int part,
                                   LLVMValueRef split, LLVMValueRef column) {
  Emit *e = columns->e;
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context), i8 = LLVMInt8TypeInContext(e->context);
  int64_t all = nest_count(&columns->kept),
          region = round_up(all * columns->splits * 8, CACHE_LINE);
  split = LLVMBuildZExt(builder, split, i64, ""), column = LLVMBuildZExt(builder, column, i64, "");
  LLVMValueRef at = index_mul_add(e, split, all, column);
  at = index_mul_add(e, at, state_bytes(sum, part), emit_i64(e, (2 * i + part) * region));
  return LLVMBuildGEP2(builder, i8, emit_buffer(e, e->k->args.n + e->k->results.n), &at, 1, "");
}

static void save(GpuColumns *columns, const GroupSum *sum) {
  Emit *e = columns->e;
  LLVMValueRef column = columns->number;
  if (columns->lanes_kept > 1)
    column = LLVMBuildNSWMul(e->builder, column, emit_index(e, columns->lanes_kept), "");
  for (int i = 0; i < columns->r.n; i++)
    for (int part = 0; part < accumulator_parts(sum[i].op); part++)
      state_store(e, &sum[i], part,
                  workspace_slot(columns, &sum[i], i, part, columns->split, column),
                  sum[i].state[part]);
}

static void finish(GpuColumns *columns, const GroupSum *sum) {
  Emit *e = columns->e;
  for (int i = 0; i < columns->r.n; i++)
    expr_bind(e, sum[i].op->out, accumulator_result(e, sum[i].op, sum[i].state));
  expr_forget(e);
  walk_store(e, &columns->kept, NULL, &columns->column, columns->nkept, columns->per_column);
}

/* ---- phase 0 ---- */

static LLVMValueRef is_zero(Emit *e, LLVMValueRef a) {
  return LLVMBuildICmp(e->builder, LLVMIntEQ, a, LLVMConstNull(LLVMTypeOf(a)), "");
}

static void deliver(GpuColumns *columns, const GroupSum *sum) {
  if (columns->splits > 1) save(columns, sum);
  else finish(columns, sum);
}

static void sum_columns(GpuColumns *columns, LLVMValueRef inside) {
  Emit *e = columns->e;
  GroupSum *sum = ARENA_ARRAY(e->arena, GroupSum, columns->r.n + 1);
  int64_t *base = ARENA_ARRAY(e->arena, int64_t, 2 * columns->r.n + 2);
  Branch branch = {0};
  for (int i = 0; i < columns->r.n; i++) accumulator_start(e, &columns->acc[i]);
  if (inside) branch = emit_if(e, inside);
  sum_split(columns);
  if (inside) emit_end_if(e, branch);
  for (int i = 0; i < columns->r.n; i++) {
    sum[i] = sum_of(columns, i);
    accumulator_state(e, &columns->acc[i], sum[i].state);
  }
  LLVMValueRef first = is_zero(e, columns->joiner);
  if (columns->along) {
    group_join(e, columns->joiners, 0, columns->r.n, sum);
  } else if (columns->joiners > 1) {
    leave_states(columns, sum, base);
    simt_barrier(e);
  }
  if (inside) first = LLVMBuildAnd(e->builder, first, inside, "");
  branch = emit_if(e, first);
  if (!columns->along && columns->joiners > 1) join_in_order(columns, sum, base);
  deliver(columns, sum);
  emit_end_if(e, branch);
}

static void phase_sums(GpuColumns *columns) {
  Emit *e = columns->e;
  emit_begin_phase(e, 0);
  columns->acc = ARENA_ARRAY(e->arena, Accumulator, columns->r.n + 1);
  int n = columns->turn < 4 ? (int)columns->turn : 4;
  for (int i = 0; i < columns->r.n; i++)
    columns->acc[i] = accumulator_new(e, reduction(columns, i), e->lanes, columns->along, n);
  int64_t blocks = (columns->columns + columns->across - 1) / columns->across;
  LLVMValueRef cta = simt_index(e, simt_cta(e)), thread = simt_thread(e);
  columns->split = index_div(e, cta, blocks);
  LLVMValueRef block = index_rem(e, cta, blocks);
  columns->joiner = simt_index(e, index_div(e, thread, columns->across));
  columns->number = index_mul_add(e, block, columns->across,
                                  simt_index(e, index_rem(e, thread, columns->across)));
  columns->column = space_point(e, &columns->kept, columns->lanes_kept, columns->number, NULL);
  LLVMValueRef inside = NULL;
  if (columns->columns % columns->across)
    inside = LLVMBuildICmp(e->builder, LLVMIntULT, columns->number, emit_index(e, columns->columns),
                           "inside");
  sum_columns(columns, inside);
  emit_end_phase(e);
}

/* ---- phase 1 ---- */

/* One thread's part of the splits of a column: every so-manieth. */
static void join_splits(GpuColumns *columns, int64_t joiners, GroupSum *sum) {
  Emit *e = columns->e;
  for (int i = 0; i < columns->r.n; i++) {
    int parts = accumulator_parts(sum[i].op);
    LLVMValueRef first[2] = {0}, with[2] = {0};
    for (int part = 0; part < parts; part++)
      first[part] = state_load(
          e, &sum[i], part,
          workspace_slot(columns, &sum[i], i, part, columns->joiner, columns->number), 1);
    LLVMValueRef next = LLVMBuildNSWAdd(e->builder, columns->joiner, emit_index(e, joiners), "");
    Loop loop = emit_loop(e, next, emit_index(e, columns->splits), joiners, parts, first);
    for (int part = 0; part < parts; part++) {
      sum[i].state[part] = loop.phi[part];
      with[part] = state_load(
          e, &sum[i], part, workspace_slot(columns, &sum[i], i, part, loop.i, columns->number), 1);
    }
    accumulator_join(e, sum[i].op, sum[i].elem, sum[i].state, with);
    for (int part = 0; part < parts; part++) loop.next[part] = sum[i].state[part];
    emit_loop_end(e, &loop);
    for (int part = 0; part < parts; part++) sum[i].state[part] = loop.phi[part];
  }
}

/* A warp's threads without a column of their own do the last one again, and store nothing. */
static void phase_join(GpuColumns *columns, int64_t joiners) {
  Emit *e = columns->e;
  GroupSum *sum = ARENA_ARRAY(e->arena, GroupSum, columns->r.n + 1);
  e->lanes = columns->lanes_kept = columns->lanes_over = 1;
  int64_t all = nest_count(&columns->kept);
  emit_begin_phase(e, 1);
  int64_t per_cta = simt_threads(e, 1) / joiners;
  LLVMValueRef thread = simt_thread(e), cta = simt_index(e, simt_cta(e));
  columns->joiner = simt_index(e, index_rem(e, thread, joiners));
  LLVMValueRef column =
      index_mul_add(e, cta, per_cta, simt_index(e, index_div(e, thread, joiners)));
  LLVMValueRef inside = LLVMBuildICmp(e->builder, LLVMIntULT, column, emit_index(e, all), "");
  columns->number = LLVMBuildSelect(e->builder, inside, column, emit_index(e, all - 1), "");
  columns->column = space_point(e, &columns->kept, 1, columns->number, NULL);
  for (int i = 0; i < columns->r.n; i++) sum[i] = sum_of(columns, i);
  join_splits(columns, joiners, sum);
  group_join(e, joiners, 0, columns->r.n, sum);
  Branch branch = emit_if(e, LLVMBuildAnd(e->builder, inside, is_zero(e, columns->joiner), ""));
  finish(columns, sum);
  emit_end_if(e, branch);
  emit_end_phase(e);
}

void gpu_column_emit(Emit *e) {
  const Fn *k = e->k;
  const int64_t *tile = emit_tile(e, COLUMN_TILES);
  GpuColumns *columns = ARENA_NEW(e->arena, GpuColumns);
  reduction_check(e, true);
  ReducedSpace space = column_space(k);
  columns->e = e, columns->r = space.r, columns->kept = space.kept, columns->over = space.over;
  must(simt_threads(e, 0) % tile[COLUMN_ACROSS] == 0, "kernel %s: %lld threads for %lld columns",
       k->name, (long long)simt_threads(e, 0), (long long)tile[COLUMN_ACROSS]);
  columns->along = !strcmp(attr_str(&k->attrs, ATTR_variant, ""), "along");
  e->lanes = (int)tile[COLUMN_LANES];
  columns->lanes_kept = columns->along ? 1 : e->lanes,
  columns->lanes_over = columns->along ? e->lanes : 1;
  columns->across = tile[COLUMN_ACROSS], columns->splits = tile[COLUMN_SPLITS],
  columns->turn = tile[COLUMN_TURNS];
  columns->joiners = simt_threads(e, 0) / columns->across;
  columns->columns = space_vectors(e, &columns->kept, columns->lanes_kept);
  columns->length = space_vectors(e, &columns->over, columns->lanes_over);
  sort_results(columns);
  phase_sums(columns);
  if (columns->splits > 1) phase_join(columns, tile[COLUMN_JOINERS]);
}
