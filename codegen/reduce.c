/* Accumulators of reductions: see reduce.h. Floats of 16 bits add up in f32. Lanes are joined as a
   tree of fixed shape, so that the same elements give the same bits every time. argmax keeps the
   first of equals: a later element must be larger. */
#include "reduce.h"
#include "ir/support/num.h"
#include <math.h>

static bool is_argmax(const Op *op) { return op->code == OP_argmax; }

int accumulator_parts(const Op *op) { return is_argmax(op) ? 2 : 1; }

Elem accumulator_elem(Elem elem, int part) {
  if (part) return ELEM_i32;
  return elem_is_half(elem) ? ELEM_f32 : elem;
}

static LLVMValueRef number(Emit *e, Elem elem, double v, LLVMTypeRef type) {
  LLVMValueRef x = emit_number(e, elem, v);
  return LLVMGetTypeKind(type) == LLVMVectorTypeKind
             ? emit_splat(e, x, (int)LLVMGetVectorSize(type))
             : x;
}

static LLVMValueRef lowest(Emit *e, Elem elem, LLVMTypeRef type, bool negative) {
  if (elem_class(elem) == CLASS_FLOAT)
    return number(e, elem, negative ? -INFINITY : INFINITY, type);
  if (elem == ELEM_i64) {
    LLVMValueRef x = emit_i64(e, negative ? INT64_MIN : INT64_MAX);
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind
               ? emit_splat(e, x, (int)LLVMGetVectorSize(type))
               : x;
  }
  if (elem == ELEM_bool) return number(e, elem, !negative, type);
  return number(e, elem, negative ? INT32_MIN : INT32_MAX, type);
}

/* The neutral element of the reduction. */
static LLVMValueRef neutral(Emit *e, const Op *op, Elem elem, LLVMTypeRef type) {
  if (op->code == OP_sum) return LLVMConstNull(type);
  return lowest(e, elem, type, op->code != OP_rmin);
}

void reduction_check(Emit *e, bool column) {
  RowFault f;
  if (row_fault(e->k, column, &f))
    bug("kernel %s: [%s] %s %s the kernel", e->k->name, f.label, op_name(e->k->ops.at[f.op].code),
        f.what);
}

Accumulator accumulator_new(Emit *e, const Op *op, int lanes, bool across, int n) {
  must(n >= 1 && n <= (int)COUNT_OF(((Accumulator *)0)->value),
       "kernel %s: %d accumulators of one sum", e->k->name, n);
  must(op_family(op->code) == FAMILY_REDUCE, "kernel %s: %s is no reduction", e->k->name,
       op_name(op->code));
  Elem elem = value_type(e->k, op->in[0])->elem;
  Accumulator accumulator = {
      .op = op, .elem = elem, .across = across && lanes > 1, .n = is_argmax(op) ? 1 : n};
  accumulator.type = emit_vector(e, accumulator_elem(elem, 0), lanes);
  accumulator.index_type = emit_vector(e, ELEM_i32, lanes);
  for (int i = 0; i < accumulator.n; i++) accumulator.value[i] = emit_variable(e, accumulator.type);
  if (is_argmax(op)) accumulator.index = emit_variable(e, accumulator.index_type);
  return accumulator;
}

void accumulator_start(Emit *e, Accumulator *accumulator) {
  for (int i = 0; i < accumulator->n; i++)
    emit_set(e, accumulator->value[i],
             neutral(e, accumulator->op, accumulator->elem, accumulator->type));
  if (accumulator->index)
    emit_set(e, accumulator->index, number(e, ELEM_i32, INT32_MAX, accumulator->index_type));
  if (accumulator->invalid) emit_set(e, accumulator->invalid, LLVMConstNull(accumulator->type));
}

static int type_lanes(LLVMTypeRef t) {
  return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? (int)LLVMGetVectorSize(t) : 0;
}

/* Index of the argmax dim at p, as i32 in the accumulator's shape. */
static LLVMValueRef position(Emit *e, const Accumulator *accumulator, const Point *p) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  const Index *x = point_find(p, accumulator->op->group[0].from[0]);
  int lanes = type_lanes(accumulator->index_type);
  LLVMValueRef at = emit_splat(e, LLVMBuildTrunc(e->builder, x->at, i32, ""), lanes);
  return x->lane ? LLVMBuildAdd(e->builder, at, emit_lane_numbers(e, i32, lanes, 1), "") : at;
}

static LLVMValueRef larger(Emit *e, Elem elem, LLVMValueRef x, LLVMValueRef than) {
  if (elem_class(elem) == CLASS_FLOAT) return LLVMBuildFCmp(e->builder, LLVMRealOGT, x, than, "");
  return LLVMBuildICmp(e->builder, elem == ELEM_bool ? LLVMIntUGT : LLVMIntSGT, x, than, "");
}

static void take_argmax(Emit *e, Accumulator *accumulator, LLVMValueRef x, const Point *p) {
  LLVMValueRef best = emit_get(e, accumulator->type, accumulator->value[0]),
               at = emit_get(e, accumulator->index_type, accumulator->index);
  LLVMValueRef take = larger(e, accumulator->elem, x, best);
  emit_set(e, accumulator->value[0], LLVMBuildSelect(e->builder, take, x, best, ""));
  emit_set(e, accumulator->index,
           LLVMBuildSelect(e->builder, take, position(e, accumulator, p), at, ""));
}

static LLVMValueRef operand_at(Emit *e, const Accumulator *accumulator, const Point *p) {
  LLVMValueRef x =
      emit_splat(e, expr_value(e, accumulator->op->in[0], p), type_lanes(accumulator->type));
  if (p->mask && type_lanes(accumulator->type))
    x = LLVMBuildSelect(e->builder, p->mask, x,
                        neutral(e, accumulator->op, accumulator->elem, accumulator->type), "");
  if (p->guard)
    x = LLVMBuildSelect(e->builder, p->guard, x,
                        neutral(e, accumulator->op, accumulator->elem, accumulator->type), "");
  return x;
}

void accumulator_take(Emit *e, Accumulator *accumulator, int which, const Point *p) {
  must(which >= 0 && which < accumulator->n, "kernel %s: accumulator %d of %d", e->k->name, which,
       accumulator->n);
  LLVMValueRef x = operand_at(e, accumulator, p);
  if (is_argmax(accumulator->op)) {
    take_argmax(e, accumulator, x, p);
    return;
  }
  LLVMValueRef old = emit_get(e, accumulator->type, accumulator->value[which]);
  emit_set(e, accumulator->value[which], math_combine(e, accumulator->op->code, old, x));
}

void accumulator_apart(Emit *e, Accumulator *accumulator) {
  bool extreme = accumulator->op->code == OP_rmax || accumulator->op->code == OP_rmin;
  if (extreme && accumulator->n > 1 && type_lanes(accumulator->type) &&
      elem_class(accumulator->elem) == CLASS_FLOAT)
    accumulator->invalid = emit_variable(e, accumulator->type);
}

/* Two at a time: one comparison says whether either is a NaN. */
static void take_pair(Emit *e, Accumulator *accumulator, int at, const Point *p) {
  LLVMBuilderRef builder = e->builder;
  LLVMRealPredicate more = accumulator->op->code == OP_rmax ? LLVMRealOGT : LLVMRealOLT;
  LLVMValueRef x[2];
  for (int u = 0; u < 2; u++) {
    x[u] = operand_at(e, accumulator, &p[u]);
    LLVMValueRef old = emit_get(e, accumulator->type, accumulator->value[at + u]);
    LLVMValueRef take = LLVMBuildFCmp(builder, more, x[u], old, "");
    emit_set(e, accumulator->value[at + u], LLVMBuildSelect(builder, take, x[u], old, ""));
  }
  LLVMValueRef bad = LLVMBuildFCmp(builder, LLVMRealUNO, x[0], x[1], "");
  LLVMValueRef old = emit_get(e, accumulator->type, accumulator->invalid),
               nan = number(e, accumulator->elem, NAN, accumulator->type);
  emit_set(e, accumulator->invalid, LLVMBuildSelect(builder, bad, nan, old, ""));
}

void accumulator_take_all(Emit *e, Accumulator *accumulator, int n, const Point *p) {
  bool pairs = accumulator->invalid && n % 2 == 0;
  for (int u = 0; u < n && pairs; u += 2) take_pair(e, accumulator, u, &p[u]);
  for (int u = 0; u < n && !pairs; u++)
    accumulator_take(e, accumulator, accumulator->n > 1 ? u : 0, &p[u]);
}

/* The larger value of two (value, index), at equal values the smaller index. */
static void join_argmax(Emit *e, Elem elem, LLVMValueRef into[2], const LLVMValueRef with[2]) {
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef more = larger(e, elem, with[0], into[0]), less = larger(e, elem, into[0], with[0]);
  LLVMValueRef before = LLVMBuildICmp(builder, LLVMIntSLT, with[1], into[1], "");
  LLVMValueRef tie = LLVMBuildAnd(builder, LLVMBuildNot(builder, less, ""), before, "");
  LLVMValueRef take = LLVMBuildOr(builder, more, tie, "");
  into[0] = LLVMBuildSelect(builder, take, with[0], into[0], "");
  into[1] = LLVMBuildSelect(builder, take, with[1], into[1], "");
}

void accumulator_join(Emit *e, const Op *op, Elem elem, LLVMValueRef into[2],
                      const LLVMValueRef with[2]) {
  if (is_argmax(op)) join_argmax(e, elem, into, with);
  else into[0] = math_combine(e, op->code, into[0], with[0]);
}

void accumulator_fold(Emit *e, Accumulator *into, const Accumulator *from) {
  must(into->n == from->n && into->type == from->type,
       "kernel %s: accumulators of two kinds are joined", e->k->name);
  for (int i = 0; i < into->n; i++) {
    LLVMValueRef a[2] = {emit_get(e, into->type, into->value[i]), NULL};
    LLVMValueRef b[2] = {emit_get(e, from->type, from->value[i]), NULL};
    if (into->index) a[1] = emit_get(e, into->index_type, into->index);
    if (into->index) b[1] = emit_get(e, from->index_type, from->index);
    accumulator_join(e, into->op, into->elem, a, b);
    emit_set(e, into->value[i], a[0]);
    if (into->index) emit_set(e, into->index, a[1]);
  }
}

static void halves(Emit *e, LLVMValueRef x, LLVMValueRef half[2]) {
  int n = emit_lanes_of(x) / 2;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  for (int h = 0; h < 2; h++) {
    LLVMValueRef at[64];
    for (int i = 0; i < n; i++) at[i] = LLVMConstInt(i32, (uint64_t)(h * n + i), 0);
    half[h] = n == 1 ? LLVMBuildExtractElement(e->builder, x, at[0], "")
                     : LLVMBuildShuffleVector(e->builder, x, LLVMGetPoison(LLVMTypeOf(x)),
                                              LLVMConstVector(at, (unsigned)n), "");
  }
}

void accumulator_state(Emit *e, Accumulator *accumulator, LLVMValueRef state[2]) {
  state[0] = emit_get(e, accumulator->type, accumulator->value[0]);
  state[1] = accumulator->index ? emit_get(e, accumulator->index_type, accumulator->index) : NULL;
  for (int i = 1; i < accumulator->n; i++) {
    LLVMValueRef with[2] = {emit_get(e, accumulator->type, accumulator->value[i]), NULL};
    accumulator_join(e, accumulator->op, accumulator->elem, state, with);
  }
  if (accumulator->invalid) {
    LLVMValueRef old = emit_get(e, accumulator->type, accumulator->invalid);
    LLVMValueRef bad = LLVMBuildFCmp(e->builder, LLVMRealUNO, old, old, "");
    state[0] = LLVMBuildSelect(e->builder, bad, old, state[0], "");
  }
  while (accumulator->across && emit_lanes_of(state[0])) {
    LLVMValueRef half[2][2] = {{0}};
    for (int s = 0; s < 2; s++) {
      LLVMValueRef h[2] = {NULL, NULL};
      if (state[s]) halves(e, state[s], h);
      half[0][s] = h[0], half[1][s] = h[1];
    }
    state[0] = half[0][0], state[1] = half[0][1];
    accumulator_join(e, accumulator->op, accumulator->elem, state, half[1]);
  }
}

/* Where no element was larger than the least number, the first one is the answer. */
LLVMValueRef accumulator_result(Emit *e, const Op *op, const LLVMValueRef state[2]) {
  if (!is_argmax(op)) return state[0];
  LLVMValueRef none = number(e, ELEM_i32, INT32_MAX, LLVMTypeOf(state[1]));
  LLVMValueRef missing = LLVMBuildICmp(e->builder, LLVMIntEQ, state[1], none, "");
  return LLVMBuildSelect(e->builder, missing, LLVMConstNull(LLVMTypeOf(state[1])), state[1], "");
}

LLVMValueRef accumulator_finish(Emit *e, Accumulator *accumulator) {
  LLVMValueRef state[2];
  accumulator_state(e, accumulator, state);
  return accumulator_result(e, accumulator->op, state);
}
