/* Gradient rules, one short function per op. `dy` is the gradient of the result, `y` the result,
   `a` and `b` operands.

   Conventions at corners: abs has gradient 0 at 0; min, max and the reductions give everything to
   the first of the equals; where gives to the chosen side only. A rule reads the result instead of
   the operand where both would do: results that feed products are kept anyway. */
#include "passes/grad.h"

/* ---- element-wise ---- */
void grad_neg(Back *k, const Op *o, const ValueId *dy) {
  grad_give(k, o, 0, grad_unary(k, OP_neg, dy[0]));
}

void grad_abs(Back *k, const Op *o, const ValueId *dy) {
  grad_give(k, o, 0, grad_binary(k, OP_mul, dy[0], grad_unary(k, OP_sign, grad_in(k, o, 0))));
}

static ValueId one_minus(Back *k, ValueId a) {
  return grad_binary(k, OP_sub, grad_number(k, a, 1), a);
}

/* The words in which ir/functions.def says gradients. */
#define DY dy[0]
#define A grad_in(k, o, 0)
#define Y grad_out(k, o, 0)
#define MUL(a, b) grad_binary(k, OP_mul, a, b)
#define DIV(a, b) grad_binary(k, OP_div, a, b)
#define UNARY(op, a) grad_unary(k, OP_##op, a)
#define SCALED(a, factor) grad_scaled(k, a, factor)
#define ONE_MINUS(a) one_minus(k, a)
#define ONE_PLUS(a) grad_binary(k, OP_add, a, grad_number(k, dy[0], 1))
#define FUNCTION(name, value, gradient, low, high, error, at, is, meaning)                         \
  void grad_##name(Back *k, const Op *o, const ValueId *dy) { grad_give(k, o, 0, gradient); }
#include "ir/functions.def"
#undef FUNCTION
#undef A
#undef Y

/* sqrt(pi) / 2 e^(y^2) */
void grad_erfinv(Back *k, const Op *o, const ValueId *dy) {
  ValueId y = grad_out(k, o, 0);
  ValueId e = grad_unary(k, OP_exp, grad_binary(k, OP_mul, y, y));
  grad_give(k, o, 0, grad_binary(k, OP_mul, dy[0], grad_scaled(k, e, 0.8862269254527580)));
}

void grad_cast(Back *k, const Op *o, const ValueId *dy) { grad_give(k, o, 0, dy[0]); }
void grad_copy(Back *k, const Op *o, const ValueId *dy) { grad_give(k, o, 0, dy[0]); }

/* What is kept in f32 has its gradient in f32. */
void grad_wide(Back *k, const Op *o, const ValueId *dy) {
  grad_give(k, o, 0, grad_unary(k, OP_wide, dy[0]));
}

void grad_add(Back *k, const Op *o, const ValueId *dy) {
  grad_give(k, o, 0, dy[0]);
  grad_give(k, o, 1, dy[0]);
}

void grad_sub(Back *k, const Op *o, const ValueId *dy) {
  grad_give(k, o, 0, dy[0]);
  if (grad_wants(k, o, 1)) grad_give(k, o, 1, grad_unary(k, OP_neg, dy[0]));
}

void grad_mul(Back *k, const Op *o, const ValueId *dy) {
  if (grad_wants(k, o, 0)) grad_give(k, o, 0, grad_binary(k, OP_mul, dy[0], grad_in(k, o, 1)));
  if (grad_wants(k, o, 1)) grad_give(k, o, 1, grad_binary(k, OP_mul, dy[0], grad_in(k, o, 0)));
}

/* y = a / b: dy / b to a, -(dy / b) y to b */
void grad_div(Back *k, const Op *o, const ValueId *dy) {
  ValueId da = grad_binary(k, OP_div, dy[0], grad_in(k, o, 1));
  grad_give(k, o, 0, da);
  if (grad_wants(k, o, 1))
    grad_give(k, o, 1, grad_unary(k, OP_neg, grad_binary(k, OP_mul, da, grad_out(k, o, 0))));
}

void grad_pow(Back *k, const Op *o, const ValueId *dy) {
  double n = attr_float(&o->attrs, ATTR_value, 1);
  if (n == 0) return;
  ValueId power = ir_pow(k->m, k->b, grad_in(k, o, 0), n - 1, k->loc);
  grad_give(k, o, 0, grad_binary(k, OP_mul, dy[0], grad_scaled(k, power, n)));
}

/* Gives dy to operand a where c holds, to operand b elsewhere. */
static void choose(Back *k, const Op *o, ValueId c, uint32_t a, uint32_t b, ValueId dy) {
  ValueId zero = grad_number(k, dy, 0);
  if (grad_wants(k, o, a)) grad_give(k, o, a, ir_where(k->m, k->b, c, dy, zero, k->loc));
  if (grad_wants(k, o, b)) grad_give(k, o, b, ir_where(k->m, k->b, c, zero, dy, k->loc));
}

void grad_min(Back *k, const Op *o, const ValueId *dy) {
  choose(k, o, grad_binary(k, OP_le, grad_in(k, o, 0), grad_in(k, o, 1)), 0, 1, dy[0]);
}

void grad_max(Back *k, const Op *o, const ValueId *dy) {
  choose(k, o, grad_binary(k, OP_le, grad_in(k, o, 1), grad_in(k, o, 0)), 0, 1, dy[0]);
}

void grad_where(Back *k, const Op *o, const ValueId *dy) {
  choose(k, o, grad_in(k, o, 0), 1, 2, dy[0]);
}

/* ---- reductions, scans ---- */
static ValueId spread(Back *k, ValueId g, const Type *t) {
  return emit_spread(k->m, k->b, g, *t, k->loc);
}

void grad_sum(Back *k, const Op *o, const ValueId *dy) {
  grad_give(k, o, 0, spread(k, dy[0], grad_in_type(k, o, 0)));
}

/* dy where the position along dim is `at`, 0 elsewhere; both are spread to the dims of t, which has
 * dim. */
static ValueId at_position(Back *k, ValueId dy, ValueId at, Str dim, const Type *t) {
  ValueId here = ir_iota(k->m, k->b, (Axis){dim, type_size(t, dim)}, k->loc);
  here = ir_cast(k->m, k->b, here, value_type(k->b, at)->elem, k->loc);
  ValueId c = grad_binary(k, OP_eq, spread(k, at, t), here);
  return ir_where(k->m, k->b, c, spread(k, dy, t), grad_number(k, dy, 0), k->loc);
}

/* a with the reduced dims merged into one, which is returned in `one`. */
static ValueId merged(Back *k, const Op *o, ValueId a, Str *one) {
  const Group *g = &o->group[0];
  const Type *t = value_type(k->b, a);
  *one = g->from[0];
  if (g->nfrom == 1) return a;
  Type r = type_without(t, g->from, g->nfrom);
  while (type_find(t, *one) >= 0) *one = intern_printf(k->m->ctx->names, "%s'", *one);
  int64_t size = 1;
  for (int i = 0; i < g->nfrom; i++) size *= type_size(t, g->from[i]);
  r.axis[r.rank++] = (Axis){*one, size};
  Group to = group_map(g->nfrom, g->from, 1, one);
  return emit_typed(k->m, k->b, OP_merge, 1, &a, &to, r, k->loc);
}

static void give_to_first(Back *k, const Op *o, ValueId a, ValueId dy) {
  Str one;
  ValueId flat = merged(k, o, a, &one);
  Type t = *value_type(k->b, flat);
  ValueId at = ir_reduce(k->m, k->b, OP_argmax, flat, 1, &one, k->loc);
  ValueId g = at_position(k, dy, at, one, &t);
  const Group *d = &o->group[0];
  if (d->nfrom > 1) {
    Group cut = group_map(1, &one, d->nfrom, d->from);
    g = emit_typed(k->m, k->b, OP_split, 1, &g, &cut, *grad_in_type(k, o, 0), k->loc);
  }
  grad_give(k, o, 0, g);
}

void grad_rmax(Back *k, const Op *o, const ValueId *dy) {
  give_to_first(k, o, grad_in(k, o, 0), dy[0]);
}

void grad_rmin(Back *k, const Op *o, const ValueId *dy) {
  give_to_first(k, o, grad_unary(k, OP_neg, grad_in(k, o, 0)), dy[0]);
}

/* The same op, with its groups, on another operand: `attr` 1 - what it was. */
static void give_inverse(Back *k, const Op *o, uint32_t nin, const ValueId *args) {
  ValueId g =
      emit_typed(k->m, k->b, o->code, nin, args, &o->group[0], *grad_in_type(k, o, 0), k->loc);
  Op *n = &vec_last(k->b->ops);
  for (int i = 1; i < o->ngroups; i++) op_add_group(k->m, n, o->group[i]);
  const Attr *theta = attr_get(&o->attrs, ATTR_theta);
  if (theta) attr_set_float(k->m, &n->attrs, ATTR_theta, theta->f);
  if (!attr_int(&o->attrs, ATTR_inverse, 0)) attr_set_int(k->m, &n->attrs, ATTR_inverse, 1);
  grad_give(k, o, 0, g);
}

void grad_cumsum(Back *k, const Op *o, const ValueId *dy) { give_inverse(k, o, 1, dy); }

void grad_rope(Back *k, const Op *o, const ValueId *dy) {
  ValueId args[2] = {dy[0], o->nin > 1 ? grad_in(k, o, 1) : NO_VALUE};
  give_inverse(k, o, o->nin, args);
}

/* ---- structure ---- */
void grad_expand(Back *k, const Op *o, const ValueId *dy) { grad_give(k, o, 0, dy[0]); }

static void give_reversed(Back *k, const Op *o, OpCode c, ValueId dy) {
  ValueId g = emit_typed(k->m, k->b, c, 1, &dy, NULL, *grad_in_type(k, o, 0), k->loc);
  Op *n = &vec_last(k->b->ops);
  for (int i = 0; i < o->ngroups; i++) {
    const Group *a = &o->group[i];
    op_add_group(k->m, n, group_map(a->nto, a->to, a->nfrom, a->from));
  }
  const Attr *at = attr_get(&o->attrs, ATTR_at);
  if (at) attr_set_int(k->m, &n->attrs, ATTR_at, at->i);
  if (c == OP_pad) attr_set_float(k->m, &n->attrs, ATTR_fill, 0);
  grad_give(k, o, 0, g);
}

void grad_rename(Back *k, const Op *o, const ValueId *dy) { give_reversed(k, o, OP_rename, dy[0]); }
void grad_split(Back *k, const Op *o, const ValueId *dy) { give_reversed(k, o, OP_merge, dy[0]); }
void grad_merge(Back *k, const Op *o, const ValueId *dy) { give_reversed(k, o, OP_split, dy[0]); }
void grad_slice(Back *k, const Op *o, const ValueId *dy) { give_reversed(k, o, OP_pad, dy[0]); }
void grad_pad(Back *k, const Op *o, const ValueId *dy) { give_reversed(k, o, OP_slice, dy[0]); }

void grad_shift(Back *k, const Op *o, const ValueId *dy) {
  ValueId g = emit_typed(k->m, k->b, OP_shift, 1, dy, &o->group[0], *grad_in_type(k, o, 0), k->loc);
  AttrList *l = &vec_last(k->b->ops).attrs;
  attr_set_int(k->m, l, ATTR_by, -attr_int(&o->attrs, ATTR_by, 1));
  attr_set_float(k->m, l, ATTR_fill, 0);
  grad_give(k, o, 0, g);
}

void grad_unstack(Back *k, const Op *o, const ValueId *dy) {
  ValueId *part = ARENA_ARRAY(k->m->arena, ValueId, o->nout);
  ValueId zero = NO_VALUE;
  for (uint32_t i = 0; i < o->nout; i++) {
    if (dy[i] == NO_VALUE && zero == NO_VALUE) zero = grad_zeros(k, grad_out_type(k, o, i));
    part[i] = dy[i] == NO_VALUE ? zero : dy[i];
  }
  Axis dim = {o->group[0].from[0], o->nout};
  const Type *first = value_type(k->b, part[0]);
  Type t = type_of(first->elem, 1, &dim);
  for (int i = 0; i < first->rank; i++) t.axis[t.rank++] = first->axis[i];
  grad_give(k, o, 0, emit_typed(k->m, k->b, OP_stack, o->nout, part, &o->group[0], t, k->loc));
}

void grad_stack(Back *k, const Op *o, const ValueId *dy) {
  Type part = type_without(value_type(k->b, dy[0]), o->group[0].from, 1);
  Type *types = ARENA_ARRAY(k->m->arena, Type, o->nin);
  for (uint32_t i = 0; i < o->nin; i++) types[i] = part;
  Op *n = fn_op(k->m, k->b, OP_unstack, 1, dy, o->nin, types, k->loc);
  op_add_group(k->m, n, o->group[0]);
  ValueId first = n->out;
  for (uint32_t i = 0; i < o->nin; i++) grad_give(k, o, i, first + i);
}

void grad_concat(Back *k, const Op *o, const ValueId *dy) {
  const Group *g = &o->group[0];
  int64_t at = 0;
  for (uint32_t i = 0; i < o->nin; i++) {
    Group part = group_map(1, &g->to[0], 1, &g->from[i]);
    int64_t size = type_size(grad_in_type(k, o, i), g->from[i]);
    if (grad_wants(k, o, i)) {
      ValueId d = emit_typed(k->m, k->b, OP_slice, 1, dy, &part, *grad_in_type(k, o, i), k->loc);
      attr_set_int(k->m, &vec_last(k->b->ops).attrs, ATTR_at, at);
      grad_give(k, o, i, d);
    }
    at += size;
  }
}

/* ---- contraction, indexed, attention ---- */
static int dims_not_in(const Type *a, const Type *b, Str *dims) {
  int n = 0;
  for (int i = 0; i < a->rank; i++)
    if (type_find(b, a->axis[i].dim) < 0) dims[n++] = a->axis[i].dim;
  return n;
}

/* dot of p and q over dims, with p, q in the order that gives type t's order of dims, if one does
 */
static ValueId dot_like(Back *k, const Type *t, ValueId p, ValueId q, int n, const Str *dims) {
  Group g = group_dims(n, dims);
  ValueId swapped[] = {q, p};
  Op probe = {.code = OP_dot, .nin = 2, .nout = 1, .in = swapped, .ngroups = 1, .group = &g};
  Type r;
  bool swap = !shape_infer(k->m, k->b, &probe, &r) && type_equal(&r, t);
  return swap ? ir_dot(k->m, k->b, q, p, n, dims, k->loc)
              : ir_dot(k->m, k->b, p, q, n, dims, k->loc);
}

/* The gradient of operand i of a dot with other operand j: over the dims that only j brought to the
   result. Without any, nothing is summed: a product, dy spread over the contracted dims. */
static void dot_operand(Back *k, const Op *o, uint32_t i, uint32_t j, ValueId dy) {
  if (!grad_wants(k, o, i)) return;
  Str dims[MAX_RANK];
  const Type *ti = grad_in_type(k, o, i), *tj = grad_in_type(k, o, j);
  int n = dims_not_in(tj, ti, dims);
  ValueId other = grad_in(k, o, j);
  if (n) grad_give(k, o, i, dot_like(k, ti, dy, other, n, dims));
  else grad_give(k, o, i, grad_binary(k, OP_mul, spread(k, dy, ti), other));
}

void grad_dot(Back *k, const Op *o, const ValueId *dy) {
  must(o->ngroups == 1, "a dot with %d groups of dims", o->ngroups);
  dot_operand(k, o, 0, 1, dy[0]);
  dot_operand(k, o, 1, 0, dy[0]);
}

void grad_gather(Back *k, const Op *o, const ValueId *dy) {
  if (!grad_wants(k, o, 0)) return;
  const Type *w = grad_in_type(k, o, 0), *index = grad_in_type(k, o, 1);
  Str dims[MAX_RANK], v = o->group[0].from[0];
  int n = dims_not_in(index, w, dims);
  ValueId i = grad_in(k, o, 1);
  if (n == 0) {
    grad_give(k, o, 0, at_position(k, dy[0], i, v, w));
    return;
  }
  Group g = group_map(n, dims, 1, &v);
  ValueId args[] = {dy[0], i};
  grad_give(k, o, 0, emit_typed(k->m, k->b, OP_scatter, 2, args, &g, *w, k->loc));
}

void grad_scatter(Back *k, const Op *o, const ValueId *dy) {
  grad_give(k, o, 0, ir_gather(k->m, k->b, dy[0], grad_in(k, o, 1), o->group[0].to[0], k->loc));
}

void grad_attention(Back *k, const Op *o, const ValueId *dy) {
  if (dy[1] != NO_VALUE) bug("the log-sum-exp of attention has a gradient");
  must(o->nin == 3 || o->nin == 4, "attention with %u operands", o->nin);
  ValueId args[7] = {grad_in(k, o, 0),  grad_in(k, o, 1),  grad_in(k, o, 2),
                     grad_out(k, o, 0), grad_out(k, o, 1), dy[0]};
  if (o->nin > 3) args[6] = grad_in(k, o, 3);
  Type types[3] = {*grad_in_type(k, o, 0), *grad_in_type(k, o, 1), *grad_in_type(k, o, 2)};
  Op *n = fn_op(k->m, k->b, OP_attention_grad, o->nin > 3 ? 7 : 6, args, 3, types, k->loc);
  for (int i = 0; i < o->ngroups; i++) op_add_group(k->m, n, o->group[i]);
  const Attr *scale = attr_get(&o->attrs, ATTR_scale);
  if (scale) attr_set_float(k->m, &n->attrs, ATTR_scale, scale->f);
  ValueId first = n->out;
  for (uint32_t i = 0; i < 3; i++) grad_give(k, o, i, first + i);
}

void grad_removed(Back *k, const Op *o, const ValueId *dy) {
  (void)dy;
  bug("%s in %s: grad runs on inlined, unfused functions", op_name(o->code), k->f->name);
}
