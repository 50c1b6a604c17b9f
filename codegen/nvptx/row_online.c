/* Variants `online` and `kept` of family row on a GPU: a CTA has a long row, walks it once for all
   reductions, and once more for results of its size.

   The first walk: a thread keeps the largest element it has met and the sum of e^(x - largest); a
   larger one scales the sum, once per turn of the loop. Threads join their largest elements, scale
   their sums to that of the row, and join these. Variant `kept` leaves the operands that the last
   walk reads in shared memory; a thread reads only what it has written itself.

   No instruction asks for a position where the answer is known: turns below the padding know that
   they are, x at a place that the row names is read alone, and only threads with that place
   evaluate results with it. */
#include "row_kernel.h"
#include "space.h"
#include <float.h>
#include <math.h>

typedef struct OnlineWalk {
  RowKernel *kernel;
  const OnlineRows *online;
  LLVMValueRef most[MAX_RESULTS], sum[MAX_RESULTS]; /* variables of a thread, per sum */
  LLVMValueRef place[MAX_RESULTS];                  /* of the row, -1: outside */
  LLVMValueRef flat[GPU_HELD_MOST], held[MAX_RESULTS][GPU_HELD_MOST];
  int64_t n; /* points at once */
} OnlineWalk;

static const Op *reduction(const OnlineWalk *walk, int i) {
  return &walk->kernel->e->k->ops.at[walk->kernel->r.op[i]];
}

static Str dim_of(const OnlineWalk *walk) { return walk->kernel->r.over.axis[0].dim; }

/* ---- places that the row names ---- */

static LLVMValueRef place_at(OnlineWalk *walk, ValueId place, LLVMValueRef *inside) {
  Emit *e = walk->kernel->e;
  LLVMValueRef at = expr_value(e, place, &walk->kernel->row);
  at = expr_convert(e, at, value_type(e->k, place)->elem, ELEM_i64);
  LLVMValueRef size = emit_i64(e, walk->kernel->r.over.axis[0].size);
  *inside = LLVMBuildICmp(e->builder, LLVMIntULT, at, size, "");
  if (e->index != LLVMTypeOf(at)) at = LLVMBuildTrunc(e->builder, at, e->index, "");
  return LLVMBuildSelect(e->builder, *inside, at, emit_index(e, -1), "");
}

/* Before anything is written: results may take the operands' place. */
static void read_picks(OnlineWalk *walk) {
  Emit *e = walk->kernel->e;
  LLVMValueRef inside;
  expr_forget(e);
  for (int i = 0; i < walk->online->nplaces; i++)
    walk->place[i] = place_at(walk, walk->online->place[i].place, &inside);
  for (int i = 0; i < walk->online->npicks; i++) {
    const OnlinePick *pick = &walk->online->pick[i];
    const Op *sum = reduction(walk, pick->sum);
    LLVMValueRef at = place_at(walk, pick->place, &inside);
    Point p = walk->kernel->row;
    point_set(&p, (Index){.dim = dim_of(walk),
                          .at = LLVMBuildSelect(e->builder, inside, at, emit_index(e, 0), "")});
    p.guard = inside;
    LLVMValueRef x = expr_value(e, pick->x, &p);
    x = expr_convert(e, x, value_type(e->k, pick->x)->elem, value_type(e->k, sum->out)->elem);
    x = LLVMBuildSelect(e->builder, inside, x, LLVMConstNull(LLVMTypeOf(x)), "");
    expr_bind(e, sum->out, x);
  }
  expr_forget(e);
}

/* ---- operands ---- */

static LLVMValueRef kept_at(OnlineWalk *walk, int which, int64_t u) {
  RowKernel *kernel = walk->kernel;
  Emit *e = kernel->e;
  OnlineRows before = *walk->online;
  before.nkept = which;
  int64_t base = kernel->r.n * (int64_t)GROUP_EXCHANGE +
                 rows_online_bytes(e->k, &before, kernel->length * kernel->lanes_over);
  int64_t bytes =
      kernel->lanes_over * elem_bytes(value_type(e->k, walk->online->kept[which])->elem);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef flat = walk->flat[u];
  if (LLVMTypeOf(flat) != i32) flat = LLVMBuildTrunc(e->builder, flat, i32, "");
  return simt_shared_at(e, index_mul_add(e, flat, bytes, simt_i32(e, base)));
}

/* A vector as it is in memory: loaded and left in shared memory, or loaded from that. */
static LLVMValueRef move_vector(OnlineWalk *walk, int which, int64_t u, bool first) {
  RowKernel *kernel = walk->kernel;
  Emit *e = kernel->e;
  ValueId arg = walk->online->kept[which];
  Elem elem = value_type(e->k, arg)->elem;
  LLVMTypeRef type = emit_memory_type(e, elem);
  int64_t lanes = kernel->lanes_over, bytes = lanes * elem_bytes(elem);
  if (lanes > 1) type = LLVMVectorType(type, (unsigned)lanes);
  LLVMValueRef near = kept_at(walk, which, u);
  LLVMValueRef from = first ? expr_address(e, arg, &kernel->point[u]) : near;
  LLVMValueRef x = LLVMBuildLoad2(e->builder, type, from, "");
  int64_t known = first ? min_i64(emit_buffer_align(e, arg), bytes) : bytes;
  LLVMSetAlignment(x, (unsigned)(known < elem_bytes(elem) ? elem_bytes(elem) : known));
  if (first) LLVMSetAlignment(LLVMBuildStore(e->builder, x, near), (unsigned)bytes);
  return x;
}

static void hold_operands(OnlineWalk *walk, bool first) {
  RowKernel *kernel = walk->kernel;
  Emit *e = kernel->e;
  for (int i = 0; kernel->keeps && i < walk->online->nkept; i++)
    for (int64_t u = 0; u < walk->n; u++) {
      LLVMValueRef guard = kernel->point[u].guard, x;
      LLVMBasicBlockRef before = LLVMGetInsertBlock(e->builder);
      Branch present = {0};
      if (guard) present = emit_if(e, guard);
      x = move_vector(walk, i, u, first);
      LLVMBasicBlockRef made = LLVMGetInsertBlock(e->builder);
      if (guard) emit_end_if(e, present), x = emit_if_value(e, before, made, x);
      walk->held[i][u] = expr_from_memory(e, value_type(e->k, walk->online->kept[i])->elem, x);
    }
}

/* Operands are what the thread holds of them at the u-th point; NULL: what memory has. */
static void bind_operands(OnlineWalk *walk, const int64_t *u) {
  for (int i = 0; walk->kernel->keeps && i < walk->online->nkept; i++)
    expr_bind(walk->kernel->e, walk->online->kept[i], u ? walk->held[i][*u] : NULL);
}

/* Value v at the u-th point. */
static LLVMValueRef value_at(OnlineWalk *walk, ValueId v, int64_t u) {
  bind_operands(walk, &u);
  LLVMValueRef x = expr_value(walk->kernel->e, v, &walk->kernel->point[u]);
  bind_operands(walk, NULL);
  return emit_splat(walk->kernel->e, x, walk->kernel->lanes_over);
}

/* .. `otherwise` where the point does not exist. */
static LLVMValueRef present_at(OnlineWalk *walk, ValueId v, int64_t u, double otherwise) {
  Emit *e = walk->kernel->e;
  LLVMValueRef x = value_at(walk, v, u), guard = walk->kernel->point[u].guard;
  LLVMValueRef none = emit_splat(e, emit_f32(e, otherwise), walk->kernel->lanes_over);
  return guard ? LLVMBuildSelect(e->builder, guard, x, none, "") : x;
}

/* ---- the walk ---- */

typedef void OnlineBody(OnlineWalk *walk);

static void some_points(OnlineWalk *walk, OnlineBody *body, LLVMValueRef first, int64_t n,
                        int64_t done, bool below) {
  RowKernel *kernel = walk->kernel;
  Emit *e = kernel->e;
  LLVMValueRef yes = LLVMConstInt(LLVMInt1TypeInContext(e->context), 1, 0);
  expr_forget(e);
  for (int i = 0; i < walk->online->nbelow; i++)
    expr_bind(e, walk->online->below[i].v, below ? yes : NULL);
  walk->n = n;
  for (int64_t u = 0; u < n; u++) {
    walk->flat[u] = LLVMBuildNSWAdd(e->builder, first, emit_index(e, u * kernel->group), "");
    kernel->point[u] = row_nth_point(kernel, first, u, done);
  }
  body(walk);
  for (int i = 0; i < walk->online->nbelow; i++) expr_bind(e, walk->online->below[i].v, NULL);
  expr_forget(e);
}

static void whole_turns(OnlineWalk *walk, OnlineBody *body, int64_t from, int64_t to, bool below) {
  RowKernel *kernel = walk->kernel;
  Emit *e = kernel->e;
  int64_t turn = kernel->group * kernel->vectors;
  if (from == to) return;
  Loop loop = emit_loop(e, emit_index(e, from * turn), emit_index(e, to * turn), turn, 0, NULL);
  LLVMValueRef first = LLVMBuildNSWAdd(e->builder, loop.i, kernel->thread, "");
  some_points(walk, body, first, kernel->vectors, -turn, below);
  emit_loop_end(e, &loop);
}

/* Turns without padding, others, what is left of the row. */
static void walk_row(OnlineWalk *walk, OnlineBody *body) {
  RowKernel *kernel = walk->kernel;
  Emit *e = kernel->e;
  int64_t turn = kernel->group * kernel->vectors, whole = kernel->length / turn;
  int64_t below = rows_online_below(walk->online, kernel->length * kernel->lanes_over);
  int64_t clear = below / (turn * kernel->lanes_over), left = kernel->length - whole * turn;
  whole_turns(walk, body, 0, clear, true);
  whole_turns(walk, body, clear, whole, false);
  if (!left) return;
  LLVMValueRef first = LLVMBuildNSWAdd(e->builder, kernel->thread, emit_index(e, whole * turn), "");
  some_points(walk, body, first, ceil_div(left, kernel->group), whole * turn, false);
}

/* ---- reductions ---- */

/* At least the lowest number: the distance of two of them is a number as well. */
static LLVMValueRef at_least_lowest(Emit *e, LLVMValueRef most) {
  return math_max(e, most, emit_f32(e, -FLT_MAX));
}

static void take_sum(OnlineWalk *walk, int i) {
  Emit *e = walk->kernel->e;
  const OnlineSum *sum = &walk->online->sum[i];
  const Op *most = reduction(walk, sum->most);
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context);
  LLVMValueRef largest = NULL, total = NULL, old = emit_get(e, f32, walk->most[i]);
  for (int64_t u = 0; u < walk->n; u++) {
    LLVMValueRef x = present_at(walk, most->in[0], u, -INFINITY);
    largest = largest ? math_max(e, largest, x) : x;
  }
  if (emit_lanes_of(largest)) largest = math_across(e, OP_rmax, largest);
  LLVMValueRef now = math_max(e, old, largest);
  LLVMValueRef far =
      LLVMBuildFSub(e->builder, at_least_lowest(e, old), at_least_lowest(e, now), "");
  LLVMValueRef scale = math_exp_negative(e, far);
  expr_bind(e, most->out, at_least_lowest(e, now));
  for (int64_t u = 0; u < walk->n; u++) {
    LLVMValueRef y = present_at(walk, reduction(walk, sum->sum)->in[0], u, 0);
    total = total ? LLVMBuildFAdd(e->builder, total, y, "") : y;
  }
  expr_bind(e, most->out, NULL);
  LLVMTypeRef type = LLVMTypeOf(total);
  scale = emit_splat(e, scale, emit_lanes_of(total));
  emit_set(e, walk->sum[i], emit_fma(e, emit_get(e, type, walk->sum[i]), scale, total));
  emit_set(e, walk->most[i], now);
}

/* Is reduction i one that an accumulator finds? */
static bool is_other(const OnlineWalk *walk, int i) { return !rows_online_has(walk->online, i); }

static void take_all(OnlineWalk *walk) {
  RowKernel *kernel = walk->kernel;
  hold_operands(walk, true);
  for (int64_t u = 0; u < walk->n; u++) {
    bind_operands(walk, &u);
    for (int i = 0; i < kernel->r.n; i++)
      if (is_other(walk, i))
        accumulator_take(kernel->e, &kernel->acc[i], (int)(u % kernel->acc[i].n),
                         &kernel->point[u]);
  }
  bind_operands(walk, NULL);
  for (int i = 0; i < walk->online->nsums; i++) take_sum(walk, i);
}

static bool is_first_of(const OnlineWalk *walk, int i) {
  for (int j = 0; j < i; j++)
    if (walk->online->sum[j].most == walk->online->sum[i].most) return false;
  return true;
}

static void join_largest(OnlineWalk *walk) {
  RowKernel *kernel = walk->kernel;
  Emit *e = kernel->e;
  GroupSum *sum = ARENA_ARRAY(e->arena, GroupSum, kernel->r.n + 1);
  int n = 0;
  for (int i = 0; i < walk->online->nsums; i++)
    if (is_first_of(walk, i)) {
      sum[n] = (GroupSum){.op = reduction(walk, walk->online->sum[i].most), .elem = ELEM_f32};
      sum[n++].state[0] = emit_get(e, LLVMFloatTypeInContext(e->context), walk->most[i]);
    }
  for (int i = 0; i < kernel->r.n; i++)
    if (is_other(walk, i)) {
      sum[n].op = reduction(walk, i);
      sum[n].elem = value_type(e->k, sum[n].op->in[0])->elem;
      accumulator_state(e, &kernel->acc[i], sum[n++].state);
    }
  kernel->pass = 0;
  row_join(kernel, n, sum);
}

/* Where nothing is masked, a row without a number above -inf has no sum, as (-inf) - (-inf). */
static void join_sums(OnlineWalk *walk) {
  RowKernel *kernel = walk->kernel;
  Emit *e = kernel->e;
  GroupSum *sum = ARENA_ARRAY(e->arena, GroupSum, walk->online->nsums + 1);
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context);
  for (int i = 0; i < walk->online->nsums; i++) {
    const OnlineSum *online = &walk->online->sum[i];
    LLVMValueRef most = expr_value(e, reduction(walk, online->most)->out, &kernel->row);
    LLVMValueRef own = at_least_lowest(e, emit_get(e, f32, walk->most[i]));
    LLVMValueRef far =
        LLVMBuildFSub(e->builder, own, online->masked ? at_least_lowest(e, most) : most, "");
    LLVMValueRef x = emit_get(e, emit_vector(e, ELEM_f32, kernel->lanes_over), walk->sum[i]);
    if (emit_lanes_of(x)) x = math_across(e, OP_sum, x);
    sum[i] = (GroupSum){.op = reduction(walk, online->sum), .elem = ELEM_f32};
    sum[i].state[0] = LLVMBuildFMul(e->builder, x, math_unary(e, OP_exp, far), "");
  }
  kernel->pass = 1;
  row_join(kernel, walk->online->nsums, sum);
}

/* ---- results ---- */

static void store_results(OnlineWalk *walk) {
  RowKernel *kernel = walk->kernel;
  Emit *e = kernel->e;
  uint32_t n = kernel->nfull;
  LLVMValueRef *value = ARENA_ARRAY(e->arena, LLVMValueRef, (size_t)walk->n * n + 1);
  for (int64_t u = 0; u < walk->n; u++)
    for (uint32_t i = 0; i < n; i++) value[u * n + i] = value_at(walk, kernel->full[i], u);
  for (int64_t u = 0; u < walk->n; u++)
    walk_put(e, &kernel->kept, &kernel->over, &kernel->point[u], n, kernel->full, &value[u * n]);
}

/* Does the thread have a place that the row names? */
static LLVMValueRef has_place(OnlineWalk *walk) {
  Emit *e = walk->kernel->e;
  LLVMValueRef any = NULL, lanes = emit_index(e, walk->kernel->lanes_over);
  for (int i = 0; i < walk->online->nplaces; i++)
    for (int64_t u = 0; u < walk->n; u++) {
      LLVMValueRef from = point_find(&walk->kernel->point[u], dim_of(walk))->at;
      LLVMValueRef far = LLVMBuildSub(e->builder, walk->place[i], from, "");
      LLVMValueRef has = LLVMBuildICmp(e->builder, LLVMIntULT, far, lanes, "");
      any = any ? LLVMBuildOr(e->builder, any, has, "") : has;
    }
  return any;
}

static void store_all(OnlineWalk *walk) {
  Emit *e = walk->kernel->e;
  LLVMValueRef no = LLVMConstInt(LLVMInt1TypeInContext(e->context), 0, 0);
  hold_operands(walk, false);
  if (!walk->online->nplaces) {
    store_results(walk);
    return;
  }
  LLVMValueRef has = has_place(walk);
  Branch with = emit_if(e, has);
  expr_forget(e);
  store_results(walk);
  emit_end_if(e, with);
  Branch without = emit_if(e, LLVMBuildNot(e->builder, has, ""));
  expr_forget(e);
  for (int i = 0; i < walk->online->nplaces; i++) expr_bind(e, walk->online->place[i].v, no);
  store_results(walk);
  for (int i = 0; i < walk->online->nplaces; i++) expr_bind(e, walk->online->place[i].v, NULL);
  emit_end_if(e, without);
}

void row_online_emit(RowKernel *kernel) {
  Emit *e = kernel->e;
  OnlineWalk *walk = ARENA_NEW(e->arena, OnlineWalk);
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context),
              type = emit_vector(e, ELEM_f32, kernel->lanes_over);
  walk->kernel = kernel, walk->online = kernel->online;
  read_picks(walk);
  for (int i = 0; i < walk->online->nsums; i++) {
    walk->most[i] = emit_variable(e, f32), walk->sum[i] = emit_variable(e, type);
    emit_set(e, walk->most[i], emit_f32(e, -INFINITY));
    emit_set(e, walk->sum[i], LLVMConstNull(type));
  }
  for (int i = 0; i < kernel->r.n; i++)
    if (is_other(walk, i)) accumulator_start(e, &kernel->acc[i]);
  walk_row(walk, take_all);
  join_largest(walk), join_sums(walk);
  if (kernel->nfull) walk_row(walk, store_all);
}
