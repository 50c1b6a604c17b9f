/* The epilogue of a contraction evaluates POINT ops at a point of the dot's result. Those after a
   rename have the same point under other names, on every target. */
#include "product_names.h"

static bool depends(const bool *of, const Op *op) {
  for (uint32_t i = 0; i < op->nin; i++)
    if (of[op->in[i]]) return true;
  return false;
}

/* A result whose dims were renamed after the dot is found at the same point under its new names. */
void product_add_names(Emit *e, const Product *product, Point *p) {
  const Fn *k = e->k;
  bool *from_dot = ARENA_ARRAY(e->arena, bool, k->values.n + 1);
  from_dot[product->value] = true;
  for (uint32_t i = product->dot + 1; i < k->ops.n; i++) {
    const Op *op = &k->ops.at[i];
    if (!depends(from_dot, op) || op->out == product->columns) continue;
    if (op->code != OP_rename && op_family(op->code) != FAMILY_ELEM)
      bug("kernel %s: %s moves indexes of the product", k->name, op_name(op->code));
    for (uint32_t r = 0; r < op->nout; r++) from_dot[op->out + r] = true;
    if (op->code != OP_rename) continue;
    for (int g = 0; g < op->ngroups; g++)
      for (int j = 0; j < op->group[g].nfrom; j++) {
        const Index *index = point_find(p, op->group[g].from[j]);
        if (!index || point_find(p, op->group[g].to[j])) continue;
        Index alias = *index;
        alias.dim = op->group[g].to[j];
        point_set(p, alias);
      }
  }
}
