/* Loops over an iteration space: see walk.h. */
#include "walk.h"
#include "ir/support/num.h"

LLVMValueRef emit_variable(Emit *e, LLVMTypeRef type) {
  LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder);
  LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(e->function);
  LLVMValueRef first = LLVMGetFirstInstruction(entry);
  if (first) LLVMPositionBuilderBefore(e->builder, first);
  else LLVMPositionBuilderAtEnd(e->builder, entry);
  LLVMValueRef v = LLVMBuildAlloca(e->builder, type, "variable");
  LLVMPositionBuilderAtEnd(e->builder, here);
  return v;
}

LLVMValueRef emit_get(Emit *e, LLVMTypeRef type, LLVMValueRef variable) {
  return LLVMBuildLoad2(e->builder, type, variable, "");
}

void emit_set(Emit *e, LLVMValueRef variable, LLVMValueRef value) {
  LLVMBuildStore(e->builder, value, variable);
}

/* ---- storing ---- */

static LLVMValueRef lacks(Emit *e, const Nest *nest, ValueId v, const Point *p, LLVMValueRef all) {
  for (int i = 0; nest && i < nest->n; i++) {
    Str dim = nest->dim[i].dim;
    if (type_find(value_type(e->k, v), dim) >= 0) continue;
    LLVMValueRef at = point_find(p, dim)->at;
    LLVMValueRef zero = LLVMBuildICmp(e->builder, LLVMIntEQ, at, emit_index(e, 0), "");
    all = all ? LLVMBuildAnd(e->builder, all, zero, "") : zero;
  }
  return all;
}

static bool seen(const ValueId *v, uint32_t n) { /* the same value may be several results */
  for (uint32_t i = 0; i < n; i++)
    if (v[i] == v[n]) return true;
  return false;
}

void walk_store(Emit *e, const Nest *a, const Nest *b, const Point *p, uint32_t n,
                const ValueId *v) {
  LLVMValueRef value[MAX_RESULTS];
  for (uint32_t i = 0; i < n; i++) value[i] = expr_value(e, v[i], p);
  walk_put(e, a, b, p, n, v, value);
}

void walk_put(Emit *e, const Nest *a, const Nest *b, const Point *p, uint32_t n, const ValueId *v,
              const LLVMValueRef *value) {
  for (uint32_t i = 0; i < n; i++) {
    if (seen(v, i)) continue;
    LLVMValueRef once = lacks(e, b, v[i], p, lacks(e, a, v[i], p, NULL));
    Branch branch = {0};
    if (once) branch = emit_if(e, once);
    expr_put(e, v[i], p, value[i]);
    if (once) emit_end_if(e, branch);
  }
}

/* ---- loops ---- */

int64_t walk_units(const Walk *walk) { return nest_blocks(walk->nest, walk->block); }

/* All dims but the innermost from the flat number of the outer ones. */
static void set_outer(Emit *e, const Walk *walk, Point *p, LLVMValueRef flat) {
  const Nest *nest = walk->nest;
  for (int i = nest->n - 2; i >= 0; i--) {
    LLVMValueRef size = emit_index(e, nest->dim[i].size), at = flat;
    if (i > 0) {
      at = LLVMBuildURem(e->builder, flat, size, "");
      flat = LLVMBuildUDiv(e->builder, flat, size, "");
    }
    point_set(p, (Index){.dim = nest->dim[i].dim, .at = at});
  }
  for (int i = 0; i < nest->nzero; i++)
    point_set(p, (Index){.dim = nest->zero[i], .at = emit_index(e, 0)});
}

typedef struct WalkRun { /* the innermost loop of one unit */
  const Walk *w;
  Point point;            /* without the innermost dim */
  LLVMValueRef base, end; /* flat index of innermost index 0; end of this block */
} WalkRun;

static void call_body(Emit *e, const WalkRun *walk_run, LLVMValueRef i, int n, int step,
                      LLVMValueRef mask) {
  Point p[WALK_UNROLL];
  const Nest *nest = walk_run->w->nest;
  for (int u = 0; u < n; u++) {
    p[u] = walk_run->point;
    if (mask) p[u].mask = mask;
    if (!nest->n) continue;
    LLVMValueRef at = u ? LLVMBuildAdd(e->builder, i, emit_index(e, u * step), "") : i;
    int64_t multiple =
        walk_run->w->block % step ? (walk_run->w->block >= nest_inner(nest) ? step : 0) : step;
    if (walk_run->w->head) multiple = 0;
    point_set(&p[u], (Index){.dim = nest->dim[nest->n - 1].dim,
                             .at = at,
                             .lane = walk_run->w->lanes,
                             .multiple = multiple});
  }
  expr_forget(e);
  walk_run->w->body(walk_run->w->state, p, n, LLVMBuildAdd(e->builder, walk_run->base, i, ""));
  expr_forget(e);
}

/* Steps of n * step from `from` while they fit below `end`; returns where they stop. */
static LLVMValueRef steps(Emit *e, const WalkRun *walk_run, LLVMValueRef from, int n, int step) {
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef size = emit_index(e, (int64_t)n * step);
  LLVMValueRef count =
      LLVMBuildUDiv(builder, LLVMBuildSub(builder, walk_run->end, from, ""), size, "");
  LLVMValueRef stop = LLVMBuildAdd(builder, from, LLVMBuildMul(builder, count, size, ""), "");
  Loop loop = emit_loop(e, from, stop, (int64_t)n * step, 0, NULL);
  call_body(e, walk_run, loop.i, n, step, NULL);
  emit_loop_end(e, &loop);
  return stop;
}

/* Less than a vector, if anything. */
static void part(Emit *e, const WalkRun *walk_run, LLVMValueRef from, LLVMValueRef to) {
  Branch some = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntSLT, from, to, ""));
  call_body(e, walk_run, from, 1, e->lanes, emit_tail_mask(e, from, to, e->lanes));
  emit_end_if(e, some);
}

/* Which of the three forms can occur is known from the sizes of blocks; only those are written. */
static void run(Emit *e, const WalkRun *walk_run, LLVMValueRef start) {
  const Walk *walk = walk_run->w;
  int64_t inner = nest_inner(walk->nest), last = inner % walk->block;
  int step = walk->lanes ? e->lanes : 1;
  int64_t wide = (int64_t)step * walk->unroll;
  int64_t longest = walk->block < inner ? walk->block : inner;
  bool even = longest % wide == 0 && last % wide == 0;
  bool full = longest % step == 0 && last % step == 0;
  LLVMValueRef at = start;
  if (walk->head) {
    at = walk->head, even = full = false;
    part(e, walk_run, start, at);
  }
  if (walk->unroll > 1 && longest >= wide) at = steps(e, walk_run, at, walk->unroll, step);
  else even = false;
  if (!even && longest >= step) at = steps(e, walk_run, at, 1, step);
  if (!full) part(e, walk_run, at, walk_run->end);
}

static void unit(Emit *e, const Walk *walk, LLVMValueRef number) {
  LLVMBuilderRef builder = e->builder;
  WalkRun walk_run = {.w = walk, .point = walk->base ? *walk->base : (Point){0}};
  int64_t inner = nest_inner(walk->nest), n = ceil_div(inner, walk->block);
  LLVMValueRef outer = number, start = emit_index(e, 0), size = emit_index(e, inner);
  if (n > 1) {
    outer = LLVMBuildUDiv(builder, number, emit_index(e, n), "");
    LLVMValueRef block = LLVMBuildURem(builder, number, emit_index(e, n), "");
    start = LLVMBuildMul(builder, block, emit_index(e, walk->block), "start");
    LLVMValueRef end = LLVMBuildAdd(builder, start, emit_index(e, walk->block), "");
    walk_run.end = inner % walk->block ? emit_min_i64(e, end, size) : end;
  } else {
    walk_run.end = size;
  }
  set_outer(e, walk, &walk_run.point, outer);
  walk_run.base = LLVMBuildMul(builder, outer, size, "");
  if (walk->nest->n) run(e, &walk_run, start);
  else call_body(e, &walk_run, start, 1, 1, NULL);
}

void walk_space(Emit *e, const Walk *walk, LLVMValueRef from, LLVMValueRef to) {
  must(walk->nest && walk_units(walk) >= 1, "kernel %s: a walk of no units", e->k->name);
  Loop loop = emit_loop(e, from, to, 1, 0, NULL);
  unit(e, walk, loop.i);
  emit_loop_end(e, &loop);
}

void walk_all(Emit *e, const Walk *walk) {
  must(walk->unroll >= 1 && walk->block >= 1 && walk->body,
       "kernel %s: a walk in blocks of %lld, %d at a time", e->k->name, (long long)walk->block,
       walk->unroll);
  int64_t units = walk_units(walk);
  if (units == 1) unit(e, walk, emit_index(e, 0));
  else walk_space(e, walk, emit_index(e, 0), emit_index(e, units));
}

static Str dim_of_bytes(const Emit *e, ValueId packed) {
  return value_def(e->k, packed)->group[0].to[0];
}

void walk_store_packed(Emit *e, const Nest *kept, const Point *row, uint32_t n,
                       const ValueId *packed) {
  int64_t bytes = type_size(value_type(e->k, packed[0]), dim_of_bytes(e, packed[0]));
  Loop loop = emit_loop(e, emit_index(e, 0), emit_index(e, bytes), 1, 0, NULL);
  Point p = *row;
  for (uint32_t i = 0; i < n; i++)
    point_set(&p, (Index){.dim = dim_of_bytes(e, packed[i]), .at = loop.i});
  expr_forget(e);
  walk_store(e, kept, NULL, &p, n, packed);
  expr_forget(e);
  emit_loop_end(e, &loop);
}
