/* Concat in the expression generator: D = A, B, .. one after the other.

   With selects, every operand is evaluated at the index minus its start, masked outside the
   operand, and one select per operand joins them. With many operands this multiplies the time, so
   if the index is one number, or consecutive lanes, a vector inside one operand branches to that
   operand only; selects remain for the vectors that cross a border. Must not: branch where lanes
   have indexes of their own. */
#include "expr.h"

enum { MANY = 3 };

typedef struct Concat {
  Emit *e;
  const Op *op;
  const Point *p;
  Index x; /* of D */
} Concat;

static int64_t size_of(const Concat *concat, uint32_t i) {
  return type_size(value_type(concat->e->k, concat->op->in[i]), concat->op->group[0].from[i]);
}

/* Operand i, at D less its start. */
static Point moved(const Concat *concat, Index at, uint32_t i) {
  Point point = *concat->p;
  point_remove(&point, concat->op->group[0].to[0]);
  at.dim = concat->op->group[0].from[i];
  point_set(&point, at);
  return point;
}

static LLVMValueRef by_selects(const Concat *concat) {
  LLVMValueRef result = NULL;
  int64_t start = 0;
  for (uint32_t i = 0; i < concat->op->nin; i++) {
    Index at = expr_index_add(concat->e, concat->x, -start);
    LLVMValueRef inside = expr_inside(concat->e, &at, size_of(concat, i));
    Point point = moved(concat, at, i);
    expr_guarded(concat->e, &point, concat->op->group[0].from[i], at, inside);
    LLVMValueRef part = expr_value(concat->e, concat->op->in[i], &point);
    result = result ? expr_choose(concat->e, inside, part, result) : part;
    start += size_of(concat, i);
  }
  return result;
}

typedef struct Ways { /* the blocks that a result comes from */
  LLVMBasicBlockRef join, from[MAX_RANK + 1];
  LLVMValueRef value[MAX_RANK + 1];
  unsigned n;
} Ways;

static void leave(const Concat *concat, Ways *ways, LLVMValueRef value, int lanes) {
  ways->value[ways->n] = emit_splat(concat->e, value, lanes);
  ways->from[ways->n++] = LLVMGetInsertBlock(concat->e->builder);
  LLVMBuildBr(concat->e->builder, ways->join);
}

static bool point_varies(const Point *p) {
  for (int i = 0; i < p->n; i++)
    if (index_varies(&p->index[i])) return true;
  return false;
}

static LLVMValueRef by_branches(const Concat *concat) {
  Emit *e = concat->e;
  int lanes = point_varies(concat->p) ? e->lanes : 0, along = concat->x.lane ? e->lanes : 1;
  Known **known = expr_known(e);
  Ways ways = {.join = LLVMAppendBasicBlockInContext(e->context, e->function, "joined")};
  int64_t start = 0;
  for (uint32_t i = 0; i < concat->op->nin; start += size_of(concat, i++)) {
    if (size_of(concat, i) < along) continue;
    Index at = expr_index_add(e, concat->x, -start), first = {.at = at.at};
    Branch branch = emit_if(e, expr_inside(e, &first, size_of(concat, i) - along + 1));
    Point point = moved(concat, at, i);
    leave(concat, &ways, expr_value(e, concat->op->in[i], &point), lanes);
    LLVMPositionBuilderAtEnd(e->builder, branch.rest);
    expr_known_again(e, known);
  }
  leave(concat, &ways, by_selects(concat), lanes);
  LLVMPositionBuilderAtEnd(e->builder, ways.join);
  expr_known_again(e, known);
  LLVMValueRef all = LLVMBuildPhi(e->builder, LLVMTypeOf(ways.value[0]), "");
  LLVMAddIncoming(all, ways.value, ways.from, ways.n);
  return all;
}

LLVMValueRef expr_concat(Emit *e, const Op *op, const Point *p) {
  Concat concat = {e, op, p, point_taken(p, op->group[0].to[0])};
  must(op->nin <= MAX_RANK, "kernel %s: a concat of %u operands", e->k->name, op->nin);
  bool branches = e->target->code->branches && op->nin >= MANY && !concat.x.each;
  return branches ? by_branches(&concat) : by_selects(&concat);
}
