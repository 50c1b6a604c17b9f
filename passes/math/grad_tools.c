/* The words gradient rules are written in (grad.h). Everything is appended to the scratch function.
 */
#include "grad.h"

bool grad_wants(const Back *k, const Op *o, uint32_t i) {
  must(i < o->nin, "%s has no operand %u", op_name(o->code), i);
  return k->varied[o->in[i]] && grad_differentiable(value_type(k->f, o->in[i]));
}

ValueId grad_in(Back *k, const Op *o, uint32_t i) { return back_read(k, o->in[i]); }
ValueId grad_out(Back *k, const Op *o, uint32_t i) { return back_read(k, o->out + i); }
const Type *grad_in_type(const Back *k, const Op *o, uint32_t i) {
  return value_type(k->f, o->in[i]);
}
const Type *grad_out_type(const Back *k, const Op *o, uint32_t i) {
  return value_type(k->f, o->out + i);
}

ValueId grad_unary(Back *k, OpCode c, ValueId a) { return ir_unary(k->m, k->b, c, a, k->loc); }
ValueId grad_binary(Back *k, OpCode c, ValueId a, ValueId b) {
  return ir_binary(k->m, k->b, c, a, b, k->loc);
}

ValueId grad_number(Back *k, ValueId like, double value) {
  return ir_const(k->m, k->b, value_type(k->b, like)->elem, value, k->loc);
}

ValueId grad_scaled(Back *k, ValueId a, double factor) {
  return grad_binary(k, OP_mul, a, grad_number(k, a, factor));
}

ValueId grad_zeros(Back *k, const Type *t) { return emit_full(k->m, k->b, *t, 0, k->loc); }

/* An operand that was spread over more dims gets the sum over them. */
static ValueId summed_to(Back *k, ValueId g, const Type *t) {
  Type have = *value_type(k->b, g);
  Str dims[MAX_RANK];
  int n = 0;
  for (int i = 0; i < have.rank; i++)
    if (type_find(t, have.axis[i].dim) < 0) dims[n++] = have.axis[i].dim;
  return ir_reduce(k->m, k->b, OP_sum, g, n, dims, k->loc);
}

void grad_give(Back *k, const Op *o, uint32_t i, ValueId g) {
  if (!grad_wants(k, o, i)) return;
  const Type *t = grad_in_type(k, o, i);
  g = ir_cast(k->m, k->b, summed_to(k, g, t), t->elem, k->loc);
  back_seed(k, o->in[i], g);
}
