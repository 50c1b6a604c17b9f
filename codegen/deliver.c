/* Delivery: a computed value is stored to every result buffer that shows it, under another name or
   as a part of a larger result.

   If the ops between a family's anchor and a kernel's results only rename dims or join values
   (stack), nothing is copied: the anchor's value at a point is stored at the corresponding point of
   the result. Ops that compute are not followed: the family evaluates them. */
#include "emit.h"

static Str new_name(const Op *o, Str dim) {
  for (int g = 0; g < o->ngroups; g++)
    for (int j = 0; j < o->group[g].nfrom; j++)
      if (o->group[g].from[j] == dim) return o->group[g].to[j];
  return dim;
}

static Point renamed(Emit *e, const Op *o, const Point *p) {
  Point q = {.mask = p->mask, .guard = p->guard, .guard_moved = p->guard_moved};
  const Type *t = value_type(e->k, o->in[0]);
  for (int i = 0; i < t->rank; i++) {
    Index index = *point_find(p, t->axis[i].dim);
    index.dim = new_name(o, index.dim);
    point_set(&q, index);
  }
  return q;
}

static Point stacked(Emit *e, const Op *o, uint32_t operand, const Point *p) {
  Point q = *p;
  point_set(&q, (Index){.dim = o->group[0].from[0], .at = emit_index(e, operand)});
  return q;
}

static void deliver_through(Emit *e, const Op *o, uint32_t operand, const Point *p,
                            LLVMValueRef value) {
  Point q;
  if (o->code == OP_rename) q = renamed(e, o, p);
  else if (o->code == OP_stack) q = stacked(e, o, operand, p);
  else return;
  expr_deliver(e, o->out, &q, value);
}

void expr_deliver(Emit *e, ValueId v, const Point *p, LLVMValueRef value) {
  const Op *def = value_def(e->k, v);
  expr_put(e, v, p, value);
  for (OpId i = def ? (OpId)(def - e->k->ops.at) + 1 : 0; i < e->k->ops.n; i++)
    for (uint32_t k = 0; k < e->k->ops.at[i].nin; k++)
      if (e->k->ops.at[i].in[k] == v) deliver_through(e, &e->k->ops.at[i], k, p, value);
}
