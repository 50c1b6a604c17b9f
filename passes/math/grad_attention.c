/* Gradients of attention. Those of q, k and v are one op, which kernels compute; sinks and biases
   have ops of their own.

     p = exp(s - lse)    ds = p (dy . v - y . dy)    s: the scores with bias, lse: with the sink

   A sink has no value: its ds is -p (y . dy). The gradient of a bias is ds where the mask admits,
   summed over the dims that the bias lacks; only models that learn a bias hold these scores. */
#include "grad.h"
#include "ir/attention_operands.h"

/* y . dy */
static ValueId delta_of(Back *back, const Op *o, ValueId dy) {
  ValueId products = grad_binary(back, OP_mul, grad_out(back, o, 0), dy);
  return ir_reduce(back->m, back->b, OP_sum, products, 1, o->group[1].from, back->loc);
}

static void give_sink(Back *back, const Op *o, uint32_t sink, ValueId dy) {
  ValueId lse = grad_out(back, o, 1);
  ValueId s =
      emit_spread(back->m, back->b, grad_in(back, o, sink), *grad_out_type(back, o, 1), back->loc);
  ValueId share = grad_unary(back, OP_exp, grad_binary(back, OP_sub, s, lse));
  grad_give(back, o, sink,
            grad_unary(back, OP_neg, grad_binary(back, OP_mul, share, delta_of(back, o, dy))));
}

/* dot[D] of rows of queries and of keys: scores, in f32 */
static ValueId products(Back *back, const Op *o, ValueId rows, ValueId keys) {
  ValueId dot = ir_dot(back->m, back->b, rows, keys, 1, o->group[1].from, back->loc);
  return grad_unary(back, OP_wide, dot);
}

static ValueId scores_of(Back *back, const Op *o, uint32_t bias) {
  double scale = attr_float(&o->attrs, ATTR_scale, 1), cap = attr_float(&o->attrs, ATTR_cap, 0);
  ValueId s = products(back, o, grad_in(back, o, 0), grad_in(back, o, 1));
  s = grad_scaled(back, s, scale);
  if (cap != 0)
    s = grad_scaled(back, grad_unary(back, OP_tanh, grad_scaled(back, s, 1 / cap)), cap);
  return grad_binary(back, OP_add, s, grad_in(back, o, bias));
}

/* x over 1 - drop where the probability is kept, else 0 */
static ValueId kept(Back *back, const Op *o, uint32_t operand, ValueId x) {
  if (!operand) return x;
  ValueId keeps = grad_in(back, o, operand);
  ValueId drops = grad_binary(back, OP_eq, keeps, grad_number(back, keeps, 0));
  double larger = 1 / (1 - attr_float(&o->attrs, ATTR_drop, 0));
  return ir_where(back->m, back->b, drops, grad_number(back, x, 0), grad_scaled(back, x, larger),
                  back->loc);
}

static void give_bias(Back *back, const Op *o, const uint32_t *further, ValueId dy) {
  uint32_t bias = further[ATTENTION_BIAS], mask = further[ATTENTION_MASK];
  ValueId s = scores_of(back, o, bias);
  ValueId p = grad_unary(back, OP_exp, grad_binary(back, OP_sub, s, grad_out(back, o, 1)));
  ValueId dp = kept(back, o, further[ATTENTION_KEPT], products(back, o, dy, grad_in(back, o, 2)));
  ValueId far = grad_binary(back, OP_sub, dp, delta_of(back, o, dy));
  ValueId ds = grad_binary(back, OP_mul, p, far);
  if (mask)
    ds =
        ir_where(back->m, back->b, grad_in(back, o, mask), ds, grad_number(back, ds, 0), back->loc);
  grad_give(back, o, bias, ds);
}

void grad_attention(Back *back, const Op *o, const ValueId *dy) {
  if (dy[1] != NO_VALUE) bug("the log-sum-exp of attention has a gradient");
  ValueId args[9] = {grad_in(back, o, 0),  grad_in(back, o, 1),  grad_in(back, o, 2),
                     grad_out(back, o, 0), grad_out(back, o, 1), dy[0]};
  uint32_t operands = 6, further[4] = {0};
  for (uint32_t i = 3; i < o->nin; i++) {
    AttentionRole role = attention_role(o, grad_in_type(back, o, i));
    further[role] = i;
    if (role != ATTENTION_SINK) args[operands++] = grad_in(back, o, i);
  }
  Type types[3] = {*grad_in_type(back, o, 0), *grad_in_type(back, o, 1), *grad_in_type(back, o, 2)};
  Op *n = fn_op(back->m, back->b, OP_attention_grad, operands, args, 3, types, back->loc);
  for (int i = 0; i < o->ngroups; i++) op_add_group(back->m, n, o->group[i]);
  static const AttrKey keys[] = {ATTR_scale, ATTR_cap, ATTR_drop};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const Attr *attr = attr_get(&o->attrs, keys[i]);
    if (attr) attr_set_float(back->m, &n->attrs, keys[i], attr->f);
  }
  ValueId first = n->out;
  for (uint32_t i = 0; i < 3; i++) grad_give(back, o, i, first + i);
  uint32_t bias = further[ATTENTION_BIAS], sink = further[ATTENTION_SINK];
  if (bias && grad_wants(back, o, bias)) give_bias(back, o, further, dy[0]);
  if (sink && grad_wants(back, o, sink)) give_sink(back, o, sink, dy[0]);
}
