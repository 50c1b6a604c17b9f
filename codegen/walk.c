/* Loops over an iteration space: see walk.h. */
#include "walk.h"

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

static LLVMValueRef lacks(Emit *e, const Nest *n, ValueId v, const Point *p, LLVMValueRef all) {
  for (int i = 0; n && i < n->n; i++) {
    Str dim = n->dim[i].dim;
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

static int64_t blocks(const Walk *w) {
  int64_t inner = nest_inner(w->nest);
  return (inner + w->block - 1) / w->block;
}

int64_t walk_units(const Walk *w) { return nest_count(w->nest) / nest_inner(w->nest) * blocks(w); }

/* All dims but the innermost from the flat number of the outer ones. */
static void set_outer(Emit *e, const Walk *w, Point *p, LLVMValueRef flat) {
  const Nest *n = w->nest;
  for (int i = n->n - 2; i >= 0; i--) {
    LLVMValueRef size = emit_index(e, n->dim[i].size), at = flat;
    if (i > 0) {
      at = LLVMBuildURem(e->builder, flat, size, "");
      flat = LLVMBuildUDiv(e->builder, flat, size, "");
    }
    point_set(p, (Index){.dim = n->dim[i].dim, .at = at});
  }
  for (int i = 0; i < n->nzero; i++)
    point_set(p, (Index){.dim = n->zero[i], .at = emit_index(e, 0)});
}

typedef struct WalkRun { /* the innermost loop of one unit */
  const Walk *w;
  Point point;            /* without the innermost dim */
  LLVMValueRef base, end; /* flat index of innermost index 0; end of this block */
} WalkRun;

static void call_body(Emit *e, const WalkRun *r, LLVMValueRef i, int n, int step,
                      LLVMValueRef mask) {
  Point p[WALK_UNROLL];
  const Nest *nest = r->w->nest;
  for (int u = 0; u < n; u++) {
    p[u] = r->point;
    if (mask) p[u].mask = mask;
    if (!nest->n) continue;
    LLVMValueRef at = u ? LLVMBuildAdd(e->builder, i, emit_index(e, u * step), "") : i;
    int64_t multiple = r->w->block % step ? (r->w->block >= nest_inner(nest) ? step : 0) : step;
    if (r->w->head) multiple = 0;
    point_set(&p[u], (Index){.dim = nest->dim[nest->n - 1].dim,
                             .at = at,
                             .lane = r->w->lanes,
                             .multiple = multiple});
  }
  expr_forget(e);
  r->w->body(r->w->state, p, n, LLVMBuildAdd(e->builder, r->base, i, ""));
  expr_forget(e);
}

/* Steps of n * step from `from` while they fit below `end`; returns where they stop. */
static LLVMValueRef steps(Emit *e, const WalkRun *r, LLVMValueRef from, int n, int step) {
  LLVMBuilderRef b = e->builder;
  LLVMValueRef size = emit_index(e, (int64_t)n * step);
  LLVMValueRef count = LLVMBuildUDiv(b, LLVMBuildSub(b, r->end, from, ""), size, "");
  LLVMValueRef stop = LLVMBuildAdd(b, from, LLVMBuildMul(b, count, size, ""), "");
  Loop l = emit_loop(e, from, stop, (int64_t)n * step, 0, NULL);
  call_body(e, r, l.i, n, step, NULL);
  emit_loop_end(e, &l);
  return stop;
}

/* Less than a vector, if anything. */
static void part(Emit *e, const WalkRun *r, LLVMValueRef from, LLVMValueRef to) {
  Branch some = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntSLT, from, to, ""));
  call_body(e, r, from, 1, e->lanes, emit_tail_mask(e, from, to, e->lanes));
  emit_end_if(e, some);
}

/* Which of the three forms can occur is known from the sizes of blocks; only those are written. */
static void run(Emit *e, const WalkRun *r, LLVMValueRef start) {
  const Walk *w = r->w;
  int64_t inner = nest_inner(w->nest), last = inner % w->block;
  int step = w->lanes ? e->lanes : 1;
  int64_t wide = (int64_t)step * w->unroll;
  int64_t longest = w->block < inner ? w->block : inner;
  bool even = longest % wide == 0 && last % wide == 0;
  bool full = longest % step == 0 && last % step == 0;
  LLVMValueRef at = start;
  if (w->head) {
    at = w->head, even = full = false;
    part(e, r, start, at);
  }
  if (w->unroll > 1 && longest >= wide) at = steps(e, r, at, w->unroll, step);
  else even = false;
  if (!even && longest >= step) at = steps(e, r, at, 1, step);
  if (!full) part(e, r, at, r->end);
}

static void unit(Emit *e, const Walk *w, LLVMValueRef number) {
  LLVMBuilderRef b = e->builder;
  WalkRun r = {.w = w, .point = w->base ? *w->base : (Point){0}};
  int64_t inner = nest_inner(w->nest), n = blocks(w);
  LLVMValueRef outer = number, start = emit_index(e, 0), size = emit_index(e, inner);
  if (n > 1) {
    outer = LLVMBuildUDiv(b, number, emit_index(e, n), "");
    LLVMValueRef block = LLVMBuildURem(b, number, emit_index(e, n), "");
    start = LLVMBuildMul(b, block, emit_index(e, w->block), "start");
    LLVMValueRef end = LLVMBuildAdd(b, start, emit_index(e, w->block), "");
    r.end = inner % w->block ? emit_min_i64(e, end, size) : end;
  } else {
    r.end = size;
  }
  set_outer(e, w, &r.point, outer);
  r.base = LLVMBuildMul(b, outer, size, "");
  if (w->nest->n) run(e, &r, start);
  else call_body(e, &r, start, 1, 1, NULL);
}

void walk_space(Emit *e, const Walk *w, LLVMValueRef from, LLVMValueRef to) {
  must(w->nest && walk_units(w) >= 1, "kernel %s: a walk of no units", e->k->name);
  Loop l = emit_loop(e, from, to, 1, 0, NULL);
  unit(e, w, l.i);
  emit_loop_end(e, &l);
}

void walk_all(Emit *e, const Walk *w) {
  must(w->unroll >= 1 && w->block >= 1 && w->body,
       "kernel %s: a walk in blocks of %lld, %d at a time", e->k->name, (long long)w->block,
       w->unroll);
  int64_t units = walk_units(w);
  if (units == 1) unit(e, w, emit_index(e, 0));
  else walk_space(e, w, emit_index(e, 0), emit_index(e, units));
}
