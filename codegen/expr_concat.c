/* Concat in the expression generator: D = A, B, .. one after the other.

   By selects: every operand is evaluated at the index less its start, masked where that is outside,
   and one select per operand puts them together. Of many operands that takes as many times as long
   as one, so where the index is one number, or consecutive lanes from one on, a vector that lies in
   one operand branches to it alone; selects are left for the vectors that cross a border. Must not:
   branch where lanes have indexes of their own. */
#include "expr.h"

enum { MANY = 3 };

typedef struct Concat {
  Emit *e;
  const Op *op;
  const Point *p;
  Index x; /* of D */
} Concat;

static int64_t size_of(const Concat *c, uint32_t i) {
  return type_size(value_type(c->e->k, c->op->in[i]), c->op->group[0].from[i]);
}

/* Operand i, at D less its start. */
static Point moved(const Concat *c, Index at, uint32_t i) {
  Point q = *c->p;
  point_remove(&q, c->op->group[0].to[0]);
  at.dim = c->op->group[0].from[i];
  point_set(&q, at);
  return q;
}

static LLVMValueRef by_selects(const Concat *c) {
  LLVMValueRef result = NULL;
  int64_t start = 0;
  for (uint32_t i = 0; i < c->op->nin; i++) {
    Index at = expr_index_add(c->e, c->x, -start);
    LLVMValueRef inside = expr_inside(c->e, &at, size_of(c, i));
    Point q = moved(c, at, i);
    expr_guarded(c->e, &q, c->op->group[0].from[i], at, inside);
    LLVMValueRef part = expr_value(c->e, c->op->in[i], &q);
    result = result ? expr_choose(c->e, inside, part, result) : part;
    start += size_of(c, i);
  }
  return result;
}

typedef struct Ways { /* the blocks that a result comes from */
  LLVMBasicBlockRef join, from[MAX_RANK + 1];
  LLVMValueRef value[MAX_RANK + 1];
  unsigned n;
} Ways;

static void leave(const Concat *c, Ways *w, LLVMValueRef value, int lanes) {
  w->value[w->n] = emit_splat(c->e, value, lanes);
  w->from[w->n++] = LLVMGetInsertBlock(c->e->builder);
  LLVMBuildBr(c->e->builder, w->join);
}

static bool point_varies(const Point *p) {
  for (int i = 0; i < p->n; i++)
    if (index_varies(&p->index[i])) return true;
  return false;
}

static LLVMValueRef by_branches(const Concat *c) {
  Emit *e = c->e;
  int lanes = point_varies(c->p) ? e->lanes : 0, along = c->x.lane ? e->lanes : 1;
  Known **known = expr_known(e);
  Ways w = {.join = LLVMAppendBasicBlockInContext(e->context, e->function, "joined")};
  int64_t start = 0;
  for (uint32_t i = 0; i < c->op->nin; start += size_of(c, i++)) {
    if (size_of(c, i) < along) continue;
    Index at = expr_index_add(e, c->x, -start), first = {.at = at.at};
    Branch b = emit_if(e, expr_inside(e, &first, size_of(c, i) - along + 1));
    Point q = moved(c, at, i);
    leave(c, &w, expr_value(e, c->op->in[i], &q), lanes);
    LLVMPositionBuilderAtEnd(e->builder, b.rest);
    expr_known_again(e, known);
  }
  leave(c, &w, by_selects(c), lanes);
  LLVMPositionBuilderAtEnd(e->builder, w.join);
  expr_known_again(e, known);
  LLVMValueRef all = LLVMBuildPhi(e->builder, LLVMTypeOf(w.value[0]), "");
  LLVMAddIncoming(all, w.value, w.from, w.n);
  return all;
}

LLVMValueRef expr_concat(Emit *e, const Op *op, const Point *p) {
  Concat c = {e, op, p, point_taken(p, op->group[0].to[0])};
  must(op->nin <= MAX_RANK, "kernel %s: a concat of %u operands", e->k->name, op->nin);
  bool branches = e->target->code->branches && op->nin >= MANY && !c.x.each;
  return branches ? by_branches(&c) : by_selects(&c);
}
