/* Family column on a GPU: reductions over outer dims, with element-wise ops on the way in; what
   stays is contiguous. Also sums to a scalar.

   Variant `columns`: a CTA has a block of columns, a vector of them per thread, and so many threads
   of each column as there are left; each takes every so-manieth element of the reduced space. Their
   states meet in shared memory and the first thread joins them in order. Variant `along`: a CTA has
   one column and its threads lie along the reduced space. Splits cut the reduced space over CTAs:
   phase 0 then leaves the state of every (split, column) in the workspace, and phase 1 joins them,
   a thread or a warp per column. No atomics: the same bits every time. */
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

static const Op *reduction(const GpuColumns *s, int i) { return &s->e->k->ops.at[s->r.op[i]]; }

static GroupSum sum_of(const GpuColumns *s, int i) {
  const Op *o = reduction(s, i);
  return (GroupSum){.op = o, .elem = value_type(s->e->k, o->in[0])->elem};
}

static int state_bytes(const GroupSum *s, int part) {
  return elem_bytes(accumulator_elem(s->elem, part));
}

static void sort_results(GpuColumns *s) {
  const Fn *k = s->e->k;
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId v = k->results.at[i];
    if (reduction_along(k, &s->r, v)) s->full[s->nfull++] = v;
    else s->per_column[s->nkept++] = v;
  }
}

/* ---- sums of one thread ---- */

static void element(GpuColumns *s, LLVMValueRef flat, int which) {
  Point p = space_point(s->e, &s->over, s->lanes_over, flat, &s->column);
  for (int i = 0; i < s->r.n; i++) accumulator_take(s->e, &s->acc[i], which % s->acc[i].n, &p);
  walk_store(s->e, &s->kept, &s->over, &p, s->nfull, s->full);
}

/* flat = from, from + step, .. below `to`: several at once, then one by one. */
static void sum_range(GpuColumns *s, LLVMValueRef from, LLVMValueRef to, int64_t step) {
  Emit *e = s->e;
  LLVMBuilderRef b = e->builder;
  LLVMValueRef wide = emit_index(e, step * s->turn);
  LLVMValueRef room = LLVMBuildNSWSub(b, to, emit_index(e, step * (s->turn - 1)), "");
  LLVMValueRef some = LLVMBuildICmp(b, LLVMIntSGT, room, from, "");
  LLVMValueRef many =
      LLVMBuildNSWAdd(b, LLVMBuildNSWSub(b, room, from, ""), emit_index(e, step * s->turn - 1), "");
  LLVMValueRef count =
      LLVMBuildSelect(b, some, LLVMBuildUDiv(b, many, wide, ""), emit_index(e, 0), "");
  LLVMValueRef rest = LLVMBuildNSWAdd(b, from, LLVMBuildNSWMul(b, count, wide, ""), "");
  Loop l = emit_loop(e, from, rest, step * s->turn, 0, NULL);
  expr_forget(e);
  for (int64_t u = 0; u < s->turn; u++) {
    LLVMValueRef at = u ? LLVMBuildNSWAdd(b, l.i, emit_index(e, u * step), "") : l.i;
    element(s, at, (int)u);
  }
  expr_forget(e);
  emit_loop_end(e, &l);
  l = emit_loop(e, rest, to, step, 0, NULL);
  element(s, l.i, 0);
  expr_forget(e);
  emit_loop_end(e, &l);
}

static void sum_split(GpuColumns *s) {
  Emit *e = s->e;
  int64_t each = (s->length + s->splits - 1) / s->splits;
  LLVMValueRef from = s->joiner, to = emit_index(e, s->length);
  if (s->splits > 1) {
    LLVMValueRef next = index_mul_add(e, s->split, each, emit_index(e, each));
    from = index_mul_add(e, s->split, each, s->joiner);
    to = emit_min_i64(e, next, to);
  }
  for (int i = 0; i < s->r.n; i++) accumulator_start(e, &s->acc[i]);
  sum_range(s, from, to, s->joiners);
}

/* ---- what the threads of a column have, put together ---- */

/* Byte of the state of (joiner, column of the block) in shared memory; parts one after the other.
 */
static LLVMValueRef shared_slot(GpuColumns *s, int64_t base, int bytes, LLVMValueRef joiner) {
  Emit *e = s->e;
  LLVMValueRef x = index_rem(e, simt_thread(e), s->across);
  x = index_mul_add(e, joiner, s->across, x);
  return simt_shared_at(e, index_mul_add(e, x, (int64_t)bytes * s->lanes_kept, simt_i32(e, base)));
}

/* The first thread of each column reads what the others left, in their order. */
static void join_in_order(GpuColumns *s, GroupSum *sum, const int64_t *base) {
  Emit *e = s->e;
  LLVMValueRef start[2 * MAX_RESULTS];
  int n = 0;
  for (int i = 0; i < s->r.n; i++)
    for (int part = 0; part < accumulator_parts(sum[i].op); part++) start[n++] = sum[i].state[part];
  if (n > MAX_CARRIED) bug("kernel %s sums too much at once", e->k->name);
  Loop l = emit_loop(e, simt_i32(e, 1), simt_i32(e, s->joiners), 1, n, start);
  n = 0;
  for (int i = 0; i < s->r.n; i++) {
    LLVMValueRef into[2] = {0}, with[2] = {0};
    int parts = accumulator_parts(sum[i].op);
    for (int part = 0; part < parts; part++) {
      into[part] = l.phi[n + part];
      with[part] = state_load(e, &sum[i], part,
                              shared_slot(s, base[2 * i + part], state_bytes(&sum[i], part), l.i),
                              s->lanes_kept);
    }
    accumulator_join(e, sum[i].op, sum[i].elem, into, with);
    for (int part = 0; part < parts; part++) l.next[n++] = into[part];
  }
  emit_loop_end(e, &l);
  n = 0;
  for (int i = 0; i < s->r.n; i++)
    for (int part = 0; part < accumulator_parts(sum[i].op); part++) sum[i].state[part] = l.phi[n++];
}

static void leave_states(GpuColumns *s, const GroupSum *sum, int64_t *base) {
  Emit *e = s->e;
  int64_t at = 0;
  LLVMValueRef joiner = index_div(e, simt_thread(e), s->across);
  for (int i = 0; i < s->r.n; i++)
    for (int part = 0; part < accumulator_parts(sum[i].op); part++) {
      int bytes = state_bytes(&sum[i], part);
      base[2 * i + part] = at;
      state_store(e, &sum[i], part, shared_slot(s, at, bytes, joiner), sum[i].state[part]);
      at += (int64_t)bytes * s->lanes_kept * s->across * s->joiners;
    }
}

/* ---- states of splits in the workspace: regions of 8 bytes per (split, column) ---- */

static LLVMValueRef workspace_slot(GpuColumns *s, const GroupSum *sum, int i, int part,
                                   LLVMValueRef split, LLVMValueRef column) {
  Emit *e = s->e;
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context), i8 = LLVMInt8TypeInContext(e->context);
  int64_t all = nest_count(&s->kept), region = round_up(all * s->splits * 8, CACHE_LINE);
  split = LLVMBuildZExt(b, split, i64, ""), column = LLVMBuildZExt(b, column, i64, "");
  LLVMValueRef at = index_mul_add(e, split, all, column);
  at = index_mul_add(e, at, state_bytes(sum, part), emit_i64(e, (2 * i + part) * region));
  return LLVMBuildGEP2(b, i8, emit_buffer(e, e->k->args.n + e->k->results.n), &at, 1, "");
}

static void save(GpuColumns *s, const GroupSum *sum) {
  Emit *e = s->e;
  LLVMValueRef column = s->number;
  if (s->lanes_kept > 1)
    column = LLVMBuildNSWMul(e->builder, column, emit_index(e, s->lanes_kept), "");
  for (int i = 0; i < s->r.n; i++)
    for (int part = 0; part < accumulator_parts(sum[i].op); part++)
      state_store(e, &sum[i], part, workspace_slot(s, &sum[i], i, part, s->split, column),
                  sum[i].state[part]);
}

static void finish(GpuColumns *s, const GroupSum *sum) {
  Emit *e = s->e;
  for (int i = 0; i < s->r.n; i++)
    expr_bind(e, sum[i].op->out, accumulator_result(e, sum[i].op, sum[i].state));
  expr_forget(e);
  walk_store(e, &s->kept, NULL, &s->column, s->nkept, s->per_column);
}

/* ---- phase 0 ---- */

static LLVMValueRef equals(Emit *e, LLVMValueRef a, int64_t n) {
  return LLVMBuildICmp(e->builder, LLVMIntEQ, a, LLVMConstInt(LLVMTypeOf(a), (uint64_t)n, 0), "");
}

static void deliver(GpuColumns *s, const GroupSum *sum) {
  if (s->splits > 1) save(s, sum);
  else finish(s, sum);
}

static void sum_columns(GpuColumns *s, LLVMValueRef inside) {
  Emit *e = s->e;
  GroupSum *sum = ARENA_ARRAY(e->arena, GroupSum, s->r.n + 1);
  int64_t *base = ARENA_ARRAY(e->arena, int64_t, 2 * s->r.n + 2);
  Branch b = {0};
  for (int i = 0; i < s->r.n; i++) accumulator_start(e, &s->acc[i]);
  if (inside) b = emit_if(e, inside);
  sum_split(s);
  if (inside) emit_end_if(e, b);
  for (int i = 0; i < s->r.n; i++) {
    sum[i] = sum_of(s, i);
    accumulator_state(e, &s->acc[i], sum[i].state);
  }
  LLVMValueRef first = equals(e, s->joiner, 0);
  if (s->along) {
    group_join(e, s->joiners, 0, s->r.n, sum);
  } else if (s->joiners > 1) {
    leave_states(s, sum, base);
    simt_barrier(e);
  }
  if (inside) first = LLVMBuildAnd(e->builder, first, inside, "");
  b = emit_if(e, first);
  if (!s->along && s->joiners > 1) join_in_order(s, sum, base);
  deliver(s, sum);
  emit_end_if(e, b);
}

static void phase_sums(GpuColumns *s) {
  Emit *e = s->e;
  emit_begin_phase(e, 0);
  s->acc = ARENA_ARRAY(e->arena, Accumulator, s->r.n + 1);
  int n = s->turn < 4 ? (int)s->turn : 4;
  for (int i = 0; i < s->r.n; i++)
    s->acc[i] = accumulator_new(e, reduction(s, i), e->lanes, s->along, n);
  int64_t blocks = (s->columns + s->across - 1) / s->across;
  LLVMValueRef cta = simt_index(e, simt_cta(e)), thread = simt_thread(e);
  s->split = index_div(e, cta, blocks);
  LLVMValueRef block = index_rem(e, cta, blocks);
  s->joiner = simt_index(e, index_div(e, thread, s->across));
  s->number = index_mul_add(e, block, s->across, simt_index(e, index_rem(e, thread, s->across)));
  s->column = space_point(e, &s->kept, s->lanes_kept, s->number, NULL);
  LLVMValueRef inside = NULL;
  if (s->columns % s->across)
    inside = LLVMBuildICmp(e->builder, LLVMIntULT, s->number, emit_index(e, s->columns), "inside");
  sum_columns(s, inside);
  emit_end_phase(e);
}

/* ---- phase 1 ---- */

/* One thread's part of the splits of a column: every so-manieth. */
static void join_splits(GpuColumns *s, int64_t joiners, GroupSum *sum) {
  Emit *e = s->e;
  for (int i = 0; i < s->r.n; i++) {
    int parts = accumulator_parts(sum[i].op);
    LLVMValueRef first[2] = {0}, with[2] = {0};
    for (int part = 0; part < parts; part++)
      first[part] = state_load(e, &sum[i], part,
                               workspace_slot(s, &sum[i], i, part, s->joiner, s->number), 1);
    LLVMValueRef next = LLVMBuildNSWAdd(e->builder, s->joiner, emit_index(e, joiners), "");
    Loop l = emit_loop(e, next, emit_index(e, s->splits), joiners, parts, first);
    for (int part = 0; part < parts; part++) {
      sum[i].state[part] = l.phi[part];
      with[part] =
          state_load(e, &sum[i], part, workspace_slot(s, &sum[i], i, part, l.i, s->number), 1);
    }
    accumulator_join(e, sum[i].op, sum[i].elem, sum[i].state, with);
    for (int part = 0; part < parts; part++) l.next[part] = sum[i].state[part];
    emit_loop_end(e, &l);
    for (int part = 0; part < parts; part++) sum[i].state[part] = l.phi[part];
  }
}

/* A warp's threads without a column of their own do the last one again, and store nothing. */
static void phase_join(GpuColumns *s, int64_t joiners) {
  Emit *e = s->e;
  GroupSum *sum = ARENA_ARRAY(e->arena, GroupSum, s->r.n + 1);
  e->lanes = s->lanes_kept = s->lanes_over = 1;
  int64_t all = nest_count(&s->kept);
  emit_begin_phase(e, 1);
  int64_t per_cta = simt_threads(e, 1) / joiners;
  LLVMValueRef thread = simt_thread(e), cta = simt_index(e, simt_cta(e));
  s->joiner = simt_index(e, index_rem(e, thread, joiners));
  LLVMValueRef column =
      index_mul_add(e, cta, per_cta, simt_index(e, index_div(e, thread, joiners)));
  LLVMValueRef inside = LLVMBuildICmp(e->builder, LLVMIntULT, column, emit_index(e, all), "");
  s->number = LLVMBuildSelect(e->builder, inside, column, emit_index(e, all - 1), "");
  s->column = space_point(e, &s->kept, 1, s->number, NULL);
  for (int i = 0; i < s->r.n; i++) sum[i] = sum_of(s, i);
  join_splits(s, joiners, sum);
  group_join(e, joiners, 0, s->r.n, sum);
  Branch b = emit_if(e, LLVMBuildAnd(e->builder, inside, equals(e, s->joiner, 0), ""));
  finish(s, sum);
  emit_end_if(e, b);
  emit_end_phase(e);
}

void gpu_column_emit(Emit *e) {
  const Fn *k = e->k;
  const int64_t *tile = emit_tile(e, COLUMN_TILES);
  GpuColumns *s = ARENA_NEW(e->arena, GpuColumns);
  reduction_check(e, true);
  s->e = e, s->r = reductions_of(k);
  must(simt_threads(e, 0) % tile[COLUMN_ACROSS] == 0, "kernel %s: %lld threads for %lld columns",
       k->name, (long long)simt_threads(e, 0), (long long)tile[COLUMN_ACROSS]);
  ValueId reference = column_reference(k, &s->r);
  s->kept = nest_of(k, &s->r.kept, reference), s->over = nest_of(k, &s->r.over, reference);
  s->along = !strcmp(attr_str(&k->attrs, ATTR_variant, ""), "along");
  e->lanes = (int)tile[COLUMN_LANES];
  s->lanes_kept = s->along ? 1 : e->lanes, s->lanes_over = s->along ? e->lanes : 1;
  s->across = tile[COLUMN_ACROSS], s->splits = tile[COLUMN_SPLITS], s->turn = tile[COLUMN_TURNS];
  s->joiners = simt_threads(e, 0) / s->across;
  s->columns = space_vectors(e, &s->kept, s->lanes_kept);
  s->length = space_vectors(e, &s->over, s->lanes_over);
  sort_results(s);
  phase_sums(s);
  if (s->splits > 1) phase_join(s, tile[COLUMN_JOINERS]);
}
