/* Family row on a GPU: reductions and scans over the same dims, with element-wise ops before,
   between and after.

   A group of threads has one row: a part of a warp, a warp, or a CTA. Variant `held`: every thread
   holds its vectors of the row in registers from the first level of reductions to the last, so that
   memory is read once: the generator writes the levels one after the other over the same points,
   and the expression generator remembers what it evaluated there. `turns`: long rows are walked
   once per level, and few that are summed once are cut as family column has them (`columns`,
   `along`). `rows`: rows are contiguous in memory; each thread has a vector of them to itself.

   The states of a level's reductions are joined over the group; every thread then has the results
   and goes on. Results of full size are stored in the last level, all evaluated first, those of the
   row by the group's first thread. A scan is made by a warp, 32 elements at a time, into memory
   (shared, or the workspace), where later levels read it. */
#include "families.h"
#include "group.h"
#include "phase.h"
#include "space.h"

typedef struct RowKernel {
  Emit *e;
  Reductions r;
  int *level, passes, pass;
  Nest kept, over;
  bool held, side; /* contiguous rows */
  int lanes_over;
  int64_t group, vectors, length; /* threads; vectors at once; vectors of a row */
  LLVMValueRef thread, number;    /* within the group; of the row */
  LLVMValueRef valid;             /* rows of a warp's groups that are there; NULL: all */
  Accumulator *acc;
  Point row, point[GPU_HELD_MOST];
  uint32_t nfull, nrow;
  ValueId full[MAX_RESULTS], per_row[MAX_RESULTS];
} RowKernel;

static const Op *reduction(const RowKernel *s, int i) { return &s->e->k->ops.at[s->r.op[i]]; }
static bool is_scan(const Op *o) { return op_family(o->code) == FAMILY_SCAN; }

static bool sums_now(const RowKernel *s, int i) {
  return !is_scan(reduction(s, i)) && s->level[reduction(s, i)->in[0]] == s->pass;
}

static void sort_results(RowKernel *s) {
  const Fn *k = s->e->k;
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId v = k->results.at[i];
    if (reduction_along(k, &s->r, v)) s->full[s->nfull++] = v;
    else s->per_row[s->nrow++] = v;
  }
}

/* ---- points of a row ---- */

/* Vector `flat` of the row; `inside`: it is known to be there. */
static Point point_at(RowKernel *s, LLVMValueRef flat, bool inside) {
  Emit *e = s->e;
  Point p = space_point(e, &s->over, s->lanes_over, flat, &s->row);
  if (inside) return p;
  LLVMValueRef there =
      LLVMBuildICmp(e->builder, LLVMIntULT, flat, emit_index(e, s->length), "there");
  p.guard = s->valid ? LLVMBuildAnd(e->builder, there, s->valid, "") : there;
  return p;
}

/* The thread's vector of number `which` after vector `first` of the row. */
static Point nth_point(RowKernel *s, LLVMValueRef first, int64_t which, int64_t done) {
  LLVMValueRef flat = first;
  if (which) flat = LLVMBuildNSWAdd(s->e->builder, first, emit_index(s->e, which * s->group), "");
  return point_at(s, flat, done + (which + 1) * s->group <= s->length);
}

/* ---- one level ---- */

static void take(RowKernel *s, int64_t n) {
  for (int i = 0; i < s->r.n; i++)
    for (int64_t u = 0; u < n && sums_now(s, i); u++)
      accumulator_take(s->e, &s->acc[i], (int)(u % s->acc[i].n), &s->point[u]);
}

static void store_full(RowKernel *s, int64_t n) {
  LLVMValueRef *value = ARENA_ARRAY(s->e->arena, LLVMValueRef, (size_t)n * s->nfull + 1);
  if (s->pass != s->passes - 1) return;
  for (int64_t u = 0; u < n; u++)
    for (uint32_t i = 0; i < s->nfull; i++)
      value[u * s->nfull + i] = expr_value(s->e, s->full[i], &s->point[u]);
  for (int64_t u = 0; u < n; u++)
    walk_put(s->e, &s->kept, &s->over, &s->point[u], s->nfull, s->full, &value[u * s->nfull]);
}

static void some_points(RowKernel *s, LLVMValueRef first, int64_t n, int64_t done) {
  expr_forget(s->e);
  for (int64_t u = 0; u < n; u++) s->point[u] = nth_point(s, first, u, done);
  take(s, n);
  store_full(s, n);
  expr_forget(s->e);
}

/* Whole turns in a loop, then what is left. */
static void turns(RowKernel *s) {
  Emit *e = s->e;
  int64_t turn = s->group * s->vectors, whole = s->length / turn;
  if (whole) {
    Loop l = emit_loop(e, emit_index(e, 0), emit_index(e, whole * turn), turn, 0, NULL);
    LLVMValueRef first = LLVMBuildNSWAdd(e->builder, l.i, s->thread, "");
    some_points(s, first, s->vectors, -turn);
    emit_loop_end(e, &l);
  }
  int64_t left = s->length - whole * turn;
  if (!left) return;
  LLVMValueRef first = LLVMBuildNSWAdd(e->builder, s->thread, emit_index(e, whole * turn), "");
  some_points(s, first, (left + s->group - 1) / s->group, whole * turn);
}

static bool walks(const RowKernel *s) {
  if (s->pass == s->passes - 1 && s->nfull) return true;
  for (int i = 0; i < s->r.n; i++)
    if (sums_now(s, i)) return true;
  return false;
}

static int collect_states(RowKernel *s, GroupSum *sum) {
  int n = 0;
  for (int i = 0; i < s->r.n; i++)
    if (sums_now(s, i)) {
      sum[n].op = reduction(s, i);
      sum[n].elem = value_type(s->e->k, sum[n].op->in[0])->elem;
      accumulator_state(s->e, &s->acc[i], sum[n++].state);
    }
  return n;
}

/* Every level has its own part of the shared memory, so that no thread writes what another reads.
 */
static int64_t exchange_at(const RowKernel *s) {
  int before = 0;
  for (int i = 0; i < s->r.n; i++)
    before += !is_scan(reduction(s, i)) && s->level[reduction(s, i)->in[0]] < s->pass;
  return (int64_t)before * GROUP_EXCHANGE;
}

static void level(RowKernel *s) {
  Emit *e = s->e;
  GroupSum *sum = ARENA_ARRAY(e->arena, GroupSum, s->r.n + 1);
  for (int i = 0; i < s->r.n; i++)
    if (sums_now(s, i)) accumulator_start(e, &s->acc[i]);
  if (!s->held) {
    turns(s);
  } else {
    take(s, s->vectors);
    store_full(s, s->vectors);
  }
  int n = collect_states(s, sum);
  group_join(e, s->group, exchange_at(s), n, sum);
  for (int i = 0; i < n; i++)
    expr_bind(e, sum[i].op->out, accumulator_result(e, sum[i].op, sum[i].state));
}

/* ---- scans: one warp per row ---- */

static Elem scan_elem(const RowKernel *s, const Op *o) {
  return accumulator_elem(value_type(s->e->k, o->in[0])->elem, 0);
}

/* The row that scan `which` leaves in shared memory (of this warp), or in the workspace. */
static LLVMValueRef scan_memory(RowKernel *s, int which) {
  Emit *e = s->e;
  int before = 0, all = 0;
  for (int i = 0; i < s->r.n; i++)
    all += is_scan(reduction(s, i)), before += i < which && is_scan(reduction(s, i));
  int64_t bytes = gpu_scan_bytes(&s->r);
  if (!attr_get(&e->k->attrs, ATTR_workspace)) {
    LLVMValueRef warp = LLVMBuildLShr(e->builder, simt_thread(e), simt_i32(e, 5), "");
    return simt_shared_at(e, index_mul_add(e, warp, all * bytes, simt_i32(e, before * bytes)));
  }
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context);
  LLVMValueRef at = LLVMBuildZExt(e->builder, s->number, i64, "");
  at = index_mul_add(e, at, all * bytes, emit_i64(e, before * bytes));
  LLVMValueRef workspace = emit_buffer(e, e->k->args.n + e->k->results.n);
  return LLVMBuildGEP2(e->builder, LLVMInt8TypeInContext(e->context), workspace, &at, 1, "");
}

/* Sums of all lanes up to the own one. */
static LLVMValueRef sum_up_to(Emit *e, LLVMValueRef x) {
  LLVMValueRef lane = simt_lane(e);
  for (int by = 1; by < WARP; by *= 2) {
    LLVMValueRef more = math_combine(e, OP_sum, x, simt_shuffle_up(e, x, by));
    LLVMValueRef has = LLVMBuildICmp(e->builder, LLVMIntUGE, lane, simt_i32(e, by), "");
    x = LLVMBuildSelect(e->builder, has, more, x, "");
  }
  return x;
}

static LLVMValueRef scan_turn(RowKernel *s, const Op *o, LLVMValueRef memory, LLVMValueRef first,
                              LLVMValueRef carry) {
  Emit *e = s->e;
  Elem elem = scan_elem(s, o);
  LLVMValueRef at = LLVMBuildNSWAdd(e->builder, first, s->thread, "");
  Point p = s->row;
  p.guard = LLVMBuildICmp(e->builder, LLVMIntULT, at, emit_index(e, s->length), "there");
  if (attr_int(&o->attrs, ATTR_inverse, 0))
    at = LLVMBuildNSWSub(e->builder, emit_index(e, s->length - 1), at, "");
  point_set(&p, (Index){.dim = o->group[0].from[0], .at = at});
  expr_forget(e);
  LLVMValueRef x = LLVMBuildSelect(e->builder, p.guard, expr_value(e, o->in[0], &p),
                                   emit_number(e, elem, 0), "");
  expr_forget(e);
  LLVMValueRef sum = math_combine(e, OP_sum, carry, sum_up_to(e, x));
  Branch there = emit_if(e, p.guard);
  LLVMValueRef to = LLVMBuildGEP2(e->builder, emit_type(e, elem), memory, &at, 1, "");
  LLVMSetAlignment(LLVMBuildStore(e->builder, sum, to), (unsigned)elem_bytes(elem));
  emit_end_if(e, there);
  return simt_shuffle_from(e, sum, simt_i32(e, WARP - 1));
}

static void scan(RowKernel *s, int which) {
  Emit *e = s->e;
  const Op *o = reduction(s, which);
  Elem elem = scan_elem(s, o);
  LLVMValueRef memory = scan_memory(s, which), zero = emit_number(e, elem, 0);
  Loop l = emit_loop(e, emit_index(e, 0), emit_index(e, s->length), WARP, 1, &zero);
  l.next[0] = scan_turn(s, o, memory, l.i, l.phi[0]);
  emit_loop_end(e, &l);
  simt_warp_barrier(e);
  expr_bind_row(e, o->out, memory, o->group[0].from[0], elem);
}

/* ---- rows ---- */

static void hold_points(RowKernel *s) {
  for (int64_t u = 0; u < s->vectors; u++) s->point[u] = nth_point(s, s->thread, u, 0);
}

/* All threads of a group read what belongs to the row; one of them writes, perhaps into the same
 * memory. */
static void wait_for_readers(RowKernel *s) {
  Emit *e = s->e;
  bool alone = true;
  for (uint32_t r = 0; r < e->k->results.n; r++)
    if (!reduction_along(e->k, &s->r, e->k->results.at[r]))
      alone &= nvptx_alone(e->k, e->k->args.n + r);
  if (alone || s->group == 1) return;
  if (s->group > WARP) simt_barrier(e);
  else simt_warp_barrier(e);
}

static void store_row(RowKernel *s) {
  Emit *e = s->e;
  LLVMValueRef value[MAX_RESULTS], first = NULL;
  if (!s->nrow) return;
  for (uint32_t i = 0; i < s->nrow; i++) value[i] = expr_value(e, s->per_row[i], &s->row);
  wait_for_readers(s);
  if (s->group > 1)
    first = LLVMBuildICmp(e->builder, LLVMIntEQ, s->thread, emit_index(e, 0), "first");
  Branch b = {0};
  if (first) b = emit_if(e, first);
  walk_put(e, &s->kept, NULL, &s->row, s->nrow, s->per_row, value);
  if (first) emit_end_if(e, b);
}

static void one_row(RowKernel *s) {
  Emit *e = s->e;
  s->row = space_point(e, &s->kept, s->side ? e->lanes : 1, s->number, NULL);
  s->row.guard = s->valid;
  if (s->held) hold_points(s);
  for (s->pass = 0; s->pass < s->passes; s->pass++) {
    if (walks(s)) level(s);
    for (int i = 0; i < s->r.n; i++)
      if (is_scan(reduction(s, i)) && s->level[reduction(s, i)->in[0]] == s->pass) scan(s, i);
  }
  store_row(s);
}

static void make_accumulators(RowKernel *s) {
  Emit *e = s->e;
  s->acc = ARENA_ARRAY(e->arena, Accumulator, s->r.n + 1);
  int n = s->vectors < 4 ? (int)s->vectors : 4;
  for (int i = 0; i < s->r.n; i++)
    if (!is_scan(reduction(s, i)))
      s->acc[i] = accumulator_new(e, reduction(s, i), e->lanes, !s->side, n);
}

/* Which row the thread's group has; groups of whole warps without one do nothing, smaller ones
 * must take part in exchanges and are guarded. */
static void find_row(RowKernel *s, int64_t rows) {
  Emit *e = s->e;
  int64_t threads = simt_threads(e, 0), per_cta = threads / s->group;
  LLVMValueRef thread = simt_thread(e), cta = simt_index(e, simt_cta(e));
  s->thread = simt_index(e, index_rem(e, thread, s->group));
  s->number = index_mul_add(e, cta, per_cta, simt_index(e, index_div(e, thread, s->group)));
  Branch b = {0};
  bool ragged = rows != simt_ctas(e, 0) * per_cta, small = s->group > 1 && s->group < WARP;
  LLVMValueRef there = NULL;
  if (ragged) there = LLVMBuildICmp(e->builder, LLVMIntULT, s->number, emit_index(e, rows), "row");
  if (ragged && small) s->valid = there;
  else if (ragged) b = emit_if(e, there);
  e->guarded = s->valid ? NULL : &s->r.over;
  one_row(s);
  if (ragged && !small) emit_end_if(e, b);
}

static void read_tile(RowKernel *s) {
  Emit *e = s->e;
  const int64_t *tile = emit_tile(e, ROW_TILES);
  Str variant = attr_str(&e->k->attrs, ATTR_variant, "");
  s->side = !strcmp(variant, "rows"), s->held = !strcmp(variant, "held");
  e->lanes = (int)tile[ROW_LANES];
  s->lanes_over = s->side ? 1 : e->lanes;
  s->group = tile[ROW_GROUP], s->vectors = tile[ROW_VECTORS];
  s->length = space_vectors(e, &s->over, s->lanes_over);
  if (s->vectors > GPU_HELD_MOST) bug("kernel %s: a thread has too many vectors", e->k->name);
}

void gpu_row_emit(Emit *e) {
  const Fn *k = e->k;
  Str variant = attr_str(&k->attrs, ATTR_variant, "");
  if (!strcmp(variant, "columns") || !strcmp(variant, "along")) {
    gpu_column_emit(e);
    return;
  }
  reduction_check(e, false);
  RowKernel *s = ARENA_NEW(e->arena, RowKernel);
  s->e = e, s->r = reductions_of(k), s->level = reduction_levels(e->arena, k);
  s->passes = reduction_passes(k, &s->r, s->level);
  ValueId reference = nest_reference(k, &s->r.over);
  s->kept = nest_of(k, &s->r.kept, reference), s->over = nest_of(k, &s->r.over, reference);
  read_tile(s);
  sort_results(s);
  emit_begin_phase(e, 0);
  make_accumulators(s);
  find_row(s, space_vectors(e, &s->kept, s->side ? e->lanes : 1));
  emit_end_phase(e);
}
