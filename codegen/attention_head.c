/* The head of attention that a kernel works on, and its mask: a bool expression over positions,
   computed inside the kernel.

   For a vector of scores the expression generator evaluates the mask lane by lane. For a block of
   scores it is evaluated over intervals first: each whole-number value becomes a range over the
   block, each bool two facts (some admitted, all admitted). So a block that a causal, sliding or
   combined mask excludes wholly is skipped, and one that it admits wholly is computed without the
   mask. A number without dims (the position of a continued text, the first position of a rank) is
   its own interval, and so is a table of bits at one row and column. Whole numbers in memory, such
   as the numbers of documents, have the bounds that a loop over the block's queries or keys finds,
   where the target reads them at little cost (`reads`): so blocks of two documents are skipped. On
   GPUs the lanes of a warp share that loop (`readers`), and the CTA's own rows are read once,
   before the walk over columns (`side`).
   Values without bounds (other operands with dims, gathers) count as unknown: some, not all. */
#include "attention_head.h"
#include <string.h>

static const double LOG2_E = 1.4426950408889634;

static void set_flat(Emit *e, Point *p, const FlashDims *d, LLVMValueRef flat) {
  int64_t below = d->count;
  for (int i = 0; i < d->n; i++) {
    below /= d->axis[i].size;
    LLVMValueRef x = LLVMBuildUDiv(e->builder, flat, emit_i64(e, below), "");
    if (i) x = LLVMBuildURem(e->builder, x, emit_i64(e, d->axis[i].size), "");
    point_set(p, (Index){.dim = d->axis[i].dim, .at = x});
  }
}

Point attention_head_point(const AttentionHead *head) {
  Point p = {0};
  set_flat(head->e, &p, &head->f->shared, head->shared);
  set_flat(head->e, &p, &head->f->group, head->group);
  return p;
}

/* The mask, the kept positions or the bias at the queries and a key. */
static LLVMValueRef value_at(const AttentionHead *head, ValueId v, const Point *queries,
                             LLVMValueRef key) {
  Point p = *queries;
  must(v != NO_VALUE, "kernel %s: attention without an operand asks it", head->e->k->name);
  point_set(&p, (Index){.dim = head->f->key, .at = key});
  expr_reset(head->e);
  return expr_value(head->e, v, &p);
}

LLVMValueRef attention_head_admits(const AttentionHead *head, const Point *queries,
                                   LLVMValueRef key, int lanes) {
  return emit_splat(head->e, value_at(head, head->f->mask, queries, key), lanes);
}

LLVMValueRef attention_head_kept(const AttentionHead *head, const Point *queries, LLVMValueRef key,
                                 int lanes) {
  Emit *e = head->e;
  LLVMValueRef x = emit_splat(e, value_at(head, head->f->kept, queries, key), lanes);
  x = LLVMBuildICmp(e->builder, LLVMIntNE, x, LLVMConstNull(LLVMTypeOf(x)), "");
  return LLVMBuildSelect(e->builder, x, emit_splat(e, emit_f32(e, head->f->larger), lanes),
                         emit_splat(e, emit_f32(e, 0), lanes), "");
}

LLVMValueRef attention_head_bias(const AttentionHead *head, const Point *queries, LLVMValueRef key,
                                 int lanes) {
  Emit *e = head->e;
  LLVMValueRef x = value_at(head, head->f->bias, queries, key);
  x = expr_convert(e, x, value_type(e->k, head->f->bias)->elem, ELEM_f32);
  return LLVMBuildFMul(e->builder, emit_splat(e, x, lanes),
                       emit_splat(e, emit_f32(e, LOG2_E), lanes), "");
}

CappedScore attention_head_cap(const AttentionHead *head, LLVMValueRef score) {
  Emit *e = head->e;
  int lanes = emit_lanes_of(score);
  double cap = head->f->cap * LOG2_E;
  LLVMValueRef one = emit_splat(e, emit_f32(e, 1), lanes);
  LLVMValueRef t = LLVMBuildFMul(e->builder, score, emit_splat(e, emit_f32(e, 1 / cap), lanes), "");
  t = math_unary(e, OP_tanh, t);
  LLVMValueRef slope = emit_fma(e, LLVMBuildFNeg(e->builder, t, ""), t, one);
  return (CappedScore){LLVMBuildFMul(e->builder, t, emit_splat(e, emit_f32(e, cap), lanes), ""),
                       slope};
}

/* ---- masks over intervals ---- */

static LLVMValueRef plus(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildNSWAdd(e->builder, a, b, "");
}

typedef struct Bounds {
  LLVMValueRef lo, hi;    /* i64, inclusive; NULL: unknown */
  LLVMValueRef some, all; /* i1, of bools */
} Bounds;

typedef struct Spans { /* ranges of dims */
  int n;
  struct {
    Str dim;
    LLVMValueRef lo, hi;
  } at[MAX_RANK * 2];
  Bounds *known; /* per value: what was found over these ranges; nothing set: not yet */
} Spans;

static LLVMValueRef truth(Emit *e, bool x) {
  return LLVMConstInt(LLVMInt1TypeInContext(e->context), x, 0);
}

static Bounds unknown(Emit *e) { return (Bounds){.some = truth(e, true), .all = truth(e, false)}; }

static Bounds range(LLVMValueRef lo, LLVMValueRef hi) { return (Bounds){.lo = lo, .hi = hi}; }

static LLVMValueRef least(Emit *e, LLVMValueRef a, LLVMValueRef b, LLVMIntPredicate p) {
  return LLVMBuildSelect(e->builder, LLVMBuildICmp(e->builder, p, a, b, ""), a, b, "");
}

static LLVMValueRef min4(Emit *e, const LLVMValueRef *x, LLVMIntPredicate p) {
  return least(e, least(e, x[0], x[1], p), least(e, x[2], x[3], p), p);
}

static Bounds product(Emit *e, Bounds a, Bounds b, bool divide) {
  LLVMValueRef x[4], left[] = {a.lo, a.hi}, right[] = {b.lo, b.hi};
  for (int i = 0; i < 4; i++)
    x[i] = divide ? LLVMBuildSDiv(e->builder, left[i / 2], right[i % 2], "")
                  : LLVMBuildMul(e->builder, left[i / 2], right[i % 2], "");
  return range(min4(e, x, LLVMIntSLT), min4(e, x, LLVMIntSGT));
}

static bool positive_constant(Bounds limits) {
  return limits.lo == limits.hi && LLVMIsAConstantInt(limits.lo) &&
         LLVMConstIntGetSExtValue(limits.lo) > 0;
}

static Bounds arithmetic(Emit *e, OpCode c, Bounds a, Bounds b) {
  LLVMBuilderRef builder = e->builder;
  if (!a.lo || !b.lo) return unknown(e);
  switch (c) {
  case OP_add: return range(plus(e, a.lo, b.lo), plus(e, a.hi, b.hi));
  case OP_sub:
    return range(LLVMBuildNSWSub(builder, a.lo, b.hi, ""),
                 LLVMBuildNSWSub(builder, a.hi, b.lo, ""));
  case OP_min: return range(least(e, a.lo, b.lo, LLVMIntSLT), least(e, a.hi, b.hi, LLVMIntSLT));
  case OP_max: return range(least(e, a.lo, b.lo, LLVMIntSGT), least(e, a.hi, b.hi, LLVMIntSGT));
  case OP_mul: return product(e, a, b, false);
  case OP_div: return positive_constant(b) ? product(e, a, b, true) : unknown(e);
  default: return unknown(e);
  }
}

/* -x, |limits| */
static Bounds reflected(Emit *e, OpCode c, Bounds limits) {
  if (!limits.lo) return unknown(e);
  LLVMValueRef lo = LLVMBuildNSWNeg(e->builder, limits.hi, ""),
               hi = LLVMBuildNSWNeg(e->builder, limits.lo, "");
  if (c == OP_neg) return range(lo, hi);
  LLVMValueRef least_far = least(e, limits.lo, lo, LLVMIntSGT);
  return range(least(e, least_far, emit_i64(e, 0), LLVMIntSGT),
               least(e, limits.hi, hi, LLVMIntSGT));
}

static Bounds compare(Emit *e, OpCode c, Bounds a, Bounds b) {
  LLVMBuilderRef builder = e->builder;
  if (!a.lo || !b.lo) return unknown(e);
  LLVMIntPredicate p = c == OP_lt ? LLVMIntSLT : LLVMIntSLE;
  LLVMValueRef some = LLVMBuildICmp(builder, p, a.lo, b.hi, ""),
               all = LLVMBuildICmp(builder, p, a.hi, b.lo, "");
  if (c == OP_eq) {
    some = LLVMBuildAnd(builder, some, LLVMBuildICmp(builder, LLVMIntSLE, b.lo, a.hi, ""), "");
    all = LLVMBuildAnd(builder, all, LLVMBuildICmp(builder, LLVMIntSLE, b.hi, a.lo, ""), "");
  }
  return (Bounds){.some = some, .all = all};
}

static Bounds logic(Emit *e, OpCode c, Bounds a, Bounds b) {
  LLVMBuilderRef builder = e->builder;
  if (c == OP_not)
    return (Bounds){.some = LLVMBuildNot(builder, a.all, ""),
                    .all = LLVMBuildNot(builder, a.some, "")};
  if (c == OP_and)
    return (Bounds){.some = LLVMBuildAnd(builder, a.some, b.some, ""),
                    .all = LLVMBuildAnd(builder, a.all, b.all, "")};
  return (Bounds){.some = LLVMBuildOr(builder, a.some, b.some, ""),
                  .all = LLVMBuildOr(builder, a.all, b.all, "")};
}

static Bounds bounds(const AttentionHead *head, ValueId v, const Spans *spans);

static Bounds of_position(const AttentionHead *head, Str dim, const Spans *spans) {
  for (int i = 0; i < spans->n; i++)
    if (spans->at[i].dim == dim) return range(spans->at[i].lo, spans->at[i].hi);
  return unknown(head->e);
}

static Bounds of_renamed(const AttentionHead *head, const Op *op, const Spans *s) {
  Spans t = *s;
  for (int g = 0; g < op->ngroups; g++)
    for (int i = 0; i < op->group[g].nfrom; i++) {
      Bounds limits = of_position(head, op->group[g].to[i], s);
      int at = 0;
      while (at < t.n && t.at[at].dim != op->group[g].from[i]) at++;
      if (!limits.lo || at == MAX_RANK * 2) return unknown(head->e);
      if (at == t.n) t.n++;
      t.at[at].dim = op->group[g].from[i], t.at[at].lo = limits.lo, t.at[at].hi = limits.hi;
    }
  t.known = ARENA_ARRAY(head->e->arena, Bounds, head->e->k->values.n + 1);
  return bounds(head, op->in[0], &t);
}

static Bounds of_constant(const AttentionHead *head, const Op *op, ValueId v) {
  Emit *e = head->e;
  double x = attr_float(&op->attrs, ATTR_value, 0);
  Elem elem = value_type(e->k, v)->elem;
  if (elem == ELEM_bool) return (Bounds){.some = truth(e, x != 0), .all = truth(e, x != 0)};
  if (elem_class(elem) != CLASS_INT) return unknown(e);
  return range(emit_i64(e, (int64_t)x), emit_i64(e, (int64_t)x));
}

/* Joins the bounds that each thread found in its turns of a loop. */
static Bounds joined(Emit *e, const AttentionReaders *readers, const Loop *loop) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context), i64 = LLVMInt64TypeInContext(e->context);
  LLVMValueRef x[2];
  for (int most = 0; most < 2; most++) {
    x[most] = LLVMBuildTrunc(e->builder, loop->phi[most], i32, "");
    x[most] = LLVMBuildSExt(e->builder, readers->join(e, x[most], most), i64, "");
  }
  return range(x[0], x[1]);
}

/* The least and the largest of an argument along the one dim that has a range. */
static Bounds of_argument(const AttentionHead *head, ValueId v, const Spans *spans) {
  Emit *e = head->e;
  const Type *t = value_type(e->k, v);
  Point p = {0};
  Bounds walked = {0};
  Str along = NULL;
  for (int i = 0; i < t->rank; i++) {
    Bounds at = of_position(head, t->axis[i].dim, spans);
    if (!at.lo || (at.lo != at.hi && along)) return unknown(e);
    if (at.lo == at.hi) point_set(&p, (Index){.dim = t->axis[i].dim, .at = at.lo});
    else walked = at, along = t->axis[i].dim;
  }
  if (!along || !head->reads || elem_class(t->elem) != CLASS_INT) return unknown(e);
  const AttentionReaders *readers = head->readers;
  if (readers && t->elem == ELEM_i64) return unknown(e); /* joined as i32 */
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->context);
  LLVMValueRef last = emit_min_i64(e, walked.hi, emit_i64(e, type_size(t, along) - 1)),
               start[] = {emit_i64(e, readers ? INT32_MAX : INT64_MAX),
                          emit_i64(e, readers ? INT32_MIN : INT64_MIN)};
  Loop loop = emit_loop(e, readers ? plus(e, walked.lo, readers->number) : walked.lo,
                        plus(e, last, emit_i64(e, 1)), readers ? readers->count : 1, 2, start);
  point_set(&p, (Index){.dim = along, .at = loop.i});
  expr_reset(e);
  LLVMValueRef x = LLVMBuildSExt(e->builder, expr_load(e, v, &p), i64, "");
  loop.next[0] = least(e, x, loop.phi[0], LLVMIntSLT);
  loop.next[1] = least(e, x, loop.phi[1], LLVMIntSGT);
  emit_loop_end(e, &loop);
  return readers ? joined(e, readers, &loop) : range(loop.phi[0], loop.phi[1]);
}

/* An argument of the kernel that has no dims. */
static Bounds of_scalar(const AttentionHead *head, ValueId v, const Spans *spans) {
  Emit *e = head->e;
  const Type *t = value_type(e->k, v);
  ElemClass class = elem_class(t->elem);
  Point p = {0};
  if (t->rank) return of_argument(head, v, spans);
  if (class != CLASS_INT && class != CLASS_BOOL) return unknown(e);
  LLVMValueRef x = expr_load(e, v, &p);
  if (class == CLASS_BOOL) return (Bounds){.some = x, .all = x};
  x = LLVMBuildSExt(e->builder, x, LLVMInt64TypeInContext(e->context), "");
  return range(x, x);
}

static LLVMValueRef is_one(Emit *e, Bounds limits) {
  return LLVMBuildICmp(e->builder, LLVMIntEQ, limits.lo, limits.hi, "");
}

static Bounds of_lookup(const AttentionHead *head, const Op *op, Bounds row, Bounds column) {
  Emit *e = head->e;
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  if (!row.lo || !column.lo) return unknown(e);
  LLVMValueRef one = LLVMBuildAnd(builder, is_one(e, row), is_one(e, column), "");
  LLVMValueRef bit = expr_lookup(e, op, LLVMBuildTrunc(builder, row.lo, i32, ""),
                                 LLVMBuildTrunc(builder, column.lo, i32, ""));
  return (Bounds){.some = LLVMBuildOr(builder, LLVMBuildNot(builder, one, ""), bit, ""),
                  .all = LLVMBuildAnd(builder, one, bit, "")};
}

static Bounds find_bounds(const AttentionHead *head, ValueId v, const Spans *spans) {
  Emit *e = head->e;
  const Op *op = value_def(e->k, v);
  if (!op) return of_scalar(head, v, spans);
  ElemClass from = op->nin ? elem_class(value_type(e->k, op->in[0])->elem) : CLASS_INT;
  switch (op->code) {
  case OP_const: return of_constant(head, op, v);
  case OP_iota: return of_position(head, op->group[0].from[0], spans);
  case OP_expand:
  case OP_copy:
  case OP_stop: return bounds(head, op->in[0], spans);
  case OP_cast:
    return from == CLASS_INT && elem_class(value_type(e->k, v)->elem) == CLASS_INT
               ? bounds(head, op->in[0], spans)
               : unknown(e);
  case OP_rename: return of_renamed(head, op, spans);
  case OP_not: return logic(e, OP_not, bounds(head, op->in[0], spans), unknown(e));
  case OP_and:
  case OP_or:
    return logic(e, op->code, bounds(head, op->in[0], spans), bounds(head, op->in[1], spans));
  case OP_neg:
  case OP_abs:
    return from == CLASS_INT ? reflected(e, op->code, bounds(head, op->in[0], spans)) : unknown(e);
  default: break;
  }
  if (op->nin != 2 || from != CLASS_INT) return unknown(e);
  Bounds x = bounds(head, op->in[0], spans), y = bounds(head, op->in[1], spans);
  if (op->code == OP_lookup) return of_lookup(head, op, x, y);
  bool asks = op->code == OP_lt || op->code == OP_le || op->code == OP_eq;
  return asks ? compare(e, op->code, x, y) : arithmetic(e, op->code, x, y);
}

/* Each value once: expressions share parts. */
static Bounds bounds(const AttentionHead *head, ValueId v, const Spans *spans) {
  Bounds *known = &spans->known[v];
  if (!known->lo && !known->some) *known = find_bounds(head, v, spans);
  return *known;
}

static void add_span(Spans *spans, Str dim, LLVMValueRef lo, LLVMValueRef hi) {
  spans->at[spans->n].dim = dim, spans->at[spans->n].lo = lo, spans->at[spans->n].hi = hi;
  spans->n++;
}

static bool ranged(const Spans *spans, const Type *t) {
  int n = 0;
  for (int i = 0; i < t->rank; i++)
    for (int s = 0; s < spans->n; s++) n += spans->at[s].dim == t->axis[i].dim;
  return n == t->rank;
}

/* The largest parts of v whose dims all have a range. */
static void find_side(const AttentionHead *head, ValueId v, const Spans *spans, bool *seen) {
  const Op *op = value_def(head->e->k, v);
  if (seen[v]) return;
  seen[v] = true;
  if (ranged(spans, value_type(head->e->k, v))) (void)bounds(head, v, spans);
  else
    for (uint32_t i = 0; op && i < op->nin; i++) find_side(head, op->in[i], spans, seen);
}

const Bounds *attention_head_side(const AttentionHead *head, Str dim, LLVMValueRef lo,
                                  LLVMValueRef hi) {
  Emit *e = head->e;
  Spans spans = {.known = ARENA_ARRAY(e->arena, Bounds, e->k->values.n + 1)};
  Point p = {0};
  set_flat(e, &p, &head->f->shared, head->shared);
  for (int i = 0; i < p.n; i++) add_span(&spans, p.index[i].dim, p.index[i].at, p.index[i].at);
  add_span(&spans, dim, lo, plus(e, hi, emit_i64(e, -1)));
  bool *seen = ARENA_ARRAY(e->arena, bool, e->k->values.n + 1);
  if (head->f->mask != NO_VALUE) find_side(head, head->f->mask, &spans, seen);
  return spans.known;
}

MaskFacts attention_head_facts(const AttentionHead *head, LLVMValueRef q0, LLVMValueRef q1,
                               LLVMValueRef k0, LLVMValueRef k1) {
  Emit *e = head->e;
  if (head->f->mask == NO_VALUE) return (MaskFacts){truth(e, true), truth(e, true)};
  LLVMValueRef minus = emit_i64(e, -1);
  Point p = attention_head_point(head);
  Spans spans = {.known = ARENA_ARRAY(e->arena, Bounds, e->k->values.n + 1)};
  if (head->side) memcpy(spans.known, head->side, (e->k->values.n + 1) * sizeof *spans.known);
  for (int i = 0; i < p.n; i++) add_span(&spans, p.index[i].dim, p.index[i].at, p.index[i].at);
  add_span(&spans, head->f->query, q0, plus(e, q1, minus));
  add_span(&spans, head->f->key, k0, plus(e, k1, minus));
  Bounds limits = bounds(head, head->f->mask, &spans);
  return (MaskFacts){limits.some, limits.all};
}
