/* Masks of attention: a bool expression over positions, computed inside the kernel.

   Per vector of scores the expression generator evaluates it lane by lane. Per block of scores it
   is evaluated over intervals first: each whole-number value becomes a range over the block, each
   bool two facts (some admitted, all admitted). So a block that a causal, sliding or combined mask
   excludes wholly is skipped, and one that it admits wholly is computed without looking at the mask
   again. What cannot be bounded (operands, gathers) counts as unknown: some, not all. */
#include "attention.h"

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

static bool positive_constant(Bounds b) {
  return b.lo == b.hi && LLVMIsAConstantInt(b.lo) && LLVMConstIntGetSExtValue(b.lo) > 0;
}

static Bounds arithmetic(Emit *e, OpCode c, Bounds a, Bounds b) {
  LLVMBuilderRef q = e->builder;
  if (!a.lo || !b.lo) return unknown(e);
  switch (c) {
  case OP_add: return range(tile_add(e, a.lo, b.lo), tile_add(e, a.hi, b.hi));
  case OP_sub: return range(LLVMBuildNSWSub(q, a.lo, b.hi, ""), LLVMBuildNSWSub(q, a.hi, b.lo, ""));
  case OP_min: return range(least(e, a.lo, b.lo, LLVMIntSLT), least(e, a.hi, b.hi, LLVMIntSLT));
  case OP_max: return range(least(e, a.lo, b.lo, LLVMIntSGT), least(e, a.hi, b.hi, LLVMIntSGT));
  case OP_mul: return product(e, a, b, false);
  case OP_div: return positive_constant(b) ? product(e, a, b, true) : unknown(e);
  default: return unknown(e);
  }
}

/* -x, |x| */
static Bounds reflected(Emit *e, OpCode c, Bounds x) {
  if (!x.lo) return unknown(e);
  LLVMValueRef lo = LLVMBuildNSWNeg(e->builder, x.hi, ""),
               hi = LLVMBuildNSWNeg(e->builder, x.lo, "");
  if (c == OP_neg) return range(lo, hi);
  LLVMValueRef least_far = least(e, x.lo, lo, LLVMIntSGT);
  return range(least(e, least_far, emit_i64(e, 0), LLVMIntSGT), least(e, x.hi, hi, LLVMIntSGT));
}

static Bounds compare(Emit *e, OpCode c, Bounds a, Bounds b) {
  LLVMBuilderRef q = e->builder;
  if (!a.lo || !b.lo) return unknown(e);
  LLVMIntPredicate p = c == OP_lt ? LLVMIntSLT : LLVMIntSLE;
  LLVMValueRef some = LLVMBuildICmp(q, p, a.lo, b.hi, ""),
               all = LLVMBuildICmp(q, p, a.hi, b.lo, "");
  if (c == OP_eq) {
    some = LLVMBuildAnd(q, some, LLVMBuildICmp(q, LLVMIntSLE, b.lo, a.hi, ""), "");
    all = LLVMBuildAnd(q, all, LLVMBuildICmp(q, LLVMIntSLE, b.hi, a.lo, ""), "");
  }
  return (Bounds){.some = some, .all = all};
}

static Bounds logic(Emit *e, OpCode c, Bounds a, Bounds b) {
  LLVMBuilderRef q = e->builder;
  if (c == OP_not)
    return (Bounds){.some = LLVMBuildNot(q, a.all, ""), .all = LLVMBuildNot(q, a.some, "")};
  if (c == OP_and)
    return (Bounds){.some = LLVMBuildAnd(q, a.some, b.some, ""),
                    .all = LLVMBuildAnd(q, a.all, b.all, "")};
  return (Bounds){.some = LLVMBuildOr(q, a.some, b.some, ""),
                  .all = LLVMBuildOr(q, a.all, b.all, "")};
}

static Bounds bounds(Attention *a, ValueId v, const Spans *s);

static Bounds of_position(Attention *a, Str dim, const Spans *s) {
  for (int i = 0; i < s->n; i++)
    if (s->at[i].dim == dim) return range(s->at[i].lo, s->at[i].hi);
  return unknown(a->e);
}

static Bounds of_renamed(Attention *a, const Op *op, const Spans *s) {
  Spans t = *s;
  for (int g = 0; g < op->ngroups; g++)
    for (int i = 0; i < op->group[g].nfrom; i++) {
      Bounds b = of_position(a, op->group[g].to[i], s);
      int at = 0;
      while (at < t.n && t.at[at].dim != op->group[g].from[i]) at++;
      if (!b.lo || at == MAX_RANK * 2) return unknown(a->e);
      if (at == t.n) t.n++;
      t.at[at].dim = op->group[g].from[i], t.at[at].lo = b.lo, t.at[at].hi = b.hi;
    }
  t.known = ARENA_ARRAY(a->e->arena, Bounds, a->e->k->values.n + 1);
  return bounds(a, op->in[0], &t);
}

static Bounds of_constant(Attention *a, const Op *op, ValueId v) {
  Emit *e = a->e;
  double x = attr_float(&op->attrs, ATTR_value, 0);
  Elem elem = value_type(e->k, v)->elem;
  if (elem == ELEM_bool) return (Bounds){.some = truth(e, x != 0), .all = truth(e, x != 0)};
  if (elem_class(elem) != CLASS_INT) return unknown(e);
  return range(emit_i64(e, (int64_t)x), emit_i64(e, (int64_t)x));
}

static Bounds find_bounds(Attention *a, ValueId v, const Spans *s) {
  Emit *e = a->e;
  const Op *op = value_def(e->k, v);
  if (!op) return unknown(e);
  ElemClass from = op->nin ? elem_class(value_type(e->k, op->in[0])->elem) : CLASS_INT;
  switch (op->code) {
  case OP_const: return of_constant(a, op, v);
  case OP_iota: return of_position(a, op->group[0].from[0], s);
  case OP_expand:
  case OP_copy:
  case OP_stop: return bounds(a, op->in[0], s);
  case OP_cast:
    return from == CLASS_INT && elem_class(value_type(e->k, v)->elem) == CLASS_INT
               ? bounds(a, op->in[0], s)
               : unknown(e);
  case OP_rename: return of_renamed(a, op, s);
  case OP_not: return logic(e, OP_not, bounds(a, op->in[0], s), unknown(e));
  case OP_and:
  case OP_or: return logic(e, op->code, bounds(a, op->in[0], s), bounds(a, op->in[1], s));
  case OP_neg:
  case OP_abs:
    return from == CLASS_INT ? reflected(e, op->code, bounds(a, op->in[0], s)) : unknown(e);
  default: break;
  }
  if (op->nin != 2 || from != CLASS_INT) return unknown(e);
  Bounds x = bounds(a, op->in[0], s), y = bounds(a, op->in[1], s);
  bool asks = op->code == OP_lt || op->code == OP_le || op->code == OP_eq;
  return asks ? compare(e, op->code, x, y) : arithmetic(e, op->code, x, y);
}

/* Each value once: expressions share parts. */
static Bounds bounds(Attention *a, ValueId v, const Spans *s) {
  Bounds *known = &s->known[v];
  if (!known->lo && !known->some) *known = find_bounds(a, v, s);
  return *known;
}

static void add_span(Spans *s, Str dim, LLVMValueRef lo, LLVMValueRef hi) {
  s->at[s->n].dim = dim, s->at[s->n].lo = lo, s->at[s->n].hi = hi;
  s->n++;
}

MaskFacts attention_facts(Attention *a, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                          LLVMValueRef k1) {
  Emit *e = a->e;
  if (a->f.mask == NO_VALUE) return (MaskFacts){truth(e, true), truth(e, true)};
  LLVMValueRef minus = emit_i64(e, -1);
  Point p = attention_point(a);
  Spans s = {.known = ARENA_ARRAY(e->arena, Bounds, e->k->values.n + 1)};
  for (int i = 0; i < p.n; i++) add_span(&s, p.index[i].dim, p.index[i].at, p.index[i].at);
  add_span(&s, a->f.query, q0, tile_add(e, q1, minus));
  add_span(&s, a->f.key, k0, tile_add(e, k1, minus));
  Bounds b = bounds(a, a->f.mask, &s);
  return (MaskFacts){b.some, b.all};
}

int attention_mixed_vectors(const Attention *a) {
  int64_t all = a->p.tile[FLASH_VECTORS];
  return all > 2 && all % 2 == 0 ? 2 : (int)all;
}

/* A walk over keys [k0, end) in steps of a register tile's rows. */
typedef struct KeySteps {
  Loop loop;
  LLVMValueRef from, to;
} KeySteps;

static KeySteps key_steps(Attention *a, LLVMValueRef k0, LLVMValueRef end, int n,
                          const LLVMValueRef *start) {
  Emit *e = a->e;
  int64_t rows = a->p.tile[FLASH_ROWS];
  LLVMValueRef steps = tile_add(e, LLVMBuildNSWSub(e->builder, end, k0, ""), emit_i64(e, rows - 1));
  steps = LLVMBuildUDiv(e->builder, steps, emit_i64(e, rows), "");
  KeySteps s = {.loop = emit_loop(e, emit_i64(e, 0), steps, 1, n, start)};
  s.from = tile_add(e, k0, tile_times(e, s.loop.i, rows));
  s.to = emit_min_i64(e, tile_add(e, s.from, emit_i64(e, rows)), end);
  return s;
}

Range attention_seen_keys(Attention *a, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                          LLVMValueRef end) {
  Emit *e = a->e;
  if (a->f.mask == NO_VALUE) return (Range){k0, end};
  LLVMValueRef start[] = {end, k0};
  KeySteps s = key_steps(a, k0, end, 2, start);
  LLVMValueRef some = attention_facts(a, q0, q1, s.from, s.to).some;
  LLVMValueRef first = emit_min_i64(e, s.loop.phi[0], s.from);
  s.loop.next[0] = LLVMBuildSelect(e->builder, some, first, s.loop.phi[0], "");
  s.loop.next[1] = LLVMBuildSelect(e->builder, some, s.to, s.loop.phi[1], "");
  emit_loop_end(e, &s.loop);
  return (Range){s.loop.phi[0], s.loop.phi[1]};
}

LLVMValueRef attention_whole_keys(Attention *a, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                                  LLVMValueRef end) {
  Emit *e = a->e;
  int64_t rows = a->p.tile[FLASH_ROWS];
  if (a->f.mask == NO_VALUE) {
    LLVMValueRef n = LLVMBuildNSWSub(e->builder, end, k0, "");
    n = LLVMBuildUDiv(e->builder, n, emit_i64(e, rows), "");
    return tile_add(e, k0, tile_times(e, n, rows));
  }
  KeySteps s = key_steps(a, k0, end, 1, &k0);
  LLVMValueRef next = tile_add(e, s.from, emit_i64(e, rows));
  LLVMValueRef more = attention_facts(a, q0, q1, s.from, s.to).all;
  more = LLVMBuildAnd(e->builder, more, LLVMBuildICmp(e->builder, LLVMIntEQ, s.to, next, ""), "");
  LLVMValueRef so_far = LLVMBuildICmp(e->builder, LLVMIntEQ, s.loop.phi[0], s.from, "");
  more = LLVMBuildAnd(e->builder, more, so_far, "");
  s.loop.next[0] = LLVMBuildSelect(e->builder, more, next, s.loop.phi[0], "");
  emit_loop_end(e, &s.loop);
  return s.loop.phi[0];
}

LLVMValueRef attention_admitted(Attention *a, const Point *queries, LLVMValueRef key) {
  Emit *e = a->e;
  Point p = *queries;
  point_set(&p, (Index){.dim = a->f.key, .at = key});
  expr_reset(e);
  return emit_splat(e, expr_value(e, a->f.mask, &p), a->p.lanes);
}

void attention_fill(Attention *a, const Point *queries, LLVMValueRef k0, LLVMValueRef count,
                    LLVMValueRef first, LLVMValueRef to, int64_t row_floats) {
  Emit *e = a->e;
  int64_t rows = a->p.tile[FLASH_ROWS];
  LLVMValueRef nothing = attention_splat(a, attention_nothing);
  Loop r = emit_loop(e, emit_i64(e, 0), count, 1, 0, NULL);
  LLVMValueRef x = first;
  if (a->f.mask != NO_VALUE) {
    LLVMValueRef in = attention_admitted(a, queries, tile_add(e, k0, r.i));
    x = LLVMBuildSelect(e->builder, in, x, nothing, "");
  }
  attention_store(a, x, to, tile_times(e, r.i, row_floats));
  emit_loop_end(e, &r);
  LLVMValueRef all = tile_add(e, count, emit_i64(e, rows - 1));
  all = LLVMBuildUDiv(e->builder, all, emit_i64(e, rows), "");
  Loop none = emit_loop(e, count, tile_times(e, all, rows), 1, 0, NULL);
  attention_store(a, nothing, to, tile_times(e, none.i, row_floats));
  emit_loop_end(e, &none);
}
