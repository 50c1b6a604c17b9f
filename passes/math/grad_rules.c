/* Gradient rules, one short function per op. `dy` is the gradient of the result, `y` the result,
   `a` and `b` operands.

   Conventions at corners: abs has gradient 0 at 0; min, max and the reductions give everything to
   the first of the equals; where gives to the chosen side only. A rule reads the result instead of
   the operand where both would do: results that feed products are kept anyway. */
#include "grad.h"
#include "ir/eights.h"
#include "ir/rope.h"

/* ---- element-wise ---- */
void grad_neg(Back *back, const Op *o, const ValueId *dy) {
  grad_give(back, o, 0, grad_unary(back, OP_neg, dy[0]));
}

void grad_abs(Back *back, const Op *o, const ValueId *dy) {
  grad_give(back, o, 0,
            grad_binary(back, OP_mul, dy[0], grad_unary(back, OP_sign, grad_in(back, o, 0))));
}

static ValueId one_minus(Back *back, ValueId a) {
  return grad_binary(back, OP_sub, grad_number(back, a, 1), a);
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
void grad_erfinv(Back *back, const Op *o, const ValueId *dy) {
  ValueId y = grad_out(back, o, 0);
  ValueId e = grad_unary(back, OP_exp, grad_binary(back, OP_mul, y, y));
  grad_give(back, o, 0, grad_binary(back, OP_mul, dy[0], grad_scaled(back, e, 0.8862269254527580)));
}

void grad_cast(Back *back, const Op *o, const ValueId *dy) { grad_give(back, o, 0, dy[0]); }
void grad_copy(Back *back, const Op *o, const ValueId *dy) { grad_give(back, o, 0, dy[0]); }

/* A value that is kept in f32 has its gradient in f32. */
void grad_wide(Back *back, const Op *o, const ValueId *dy) {
  grad_give(back, o, 0, grad_unary(back, OP_wide, dy[0]));
}

void grad_estimate(Back *back, const Op *o, const ValueId *dy) {
  grad_give(back, o, 0, grad_unary(back, OP_estimate, dy[0]));
}

void grad_share(Back *back, const Op *o, const ValueId *dy) {
  grad_give(back, o, 0, grad_unary(back, OP_share, dy[0]));
}

void grad_add(Back *back, const Op *o, const ValueId *dy) {
  grad_give(back, o, 0, dy[0]);
  grad_give(back, o, 1, dy[0]);
}

void grad_sub(Back *back, const Op *o, const ValueId *dy) {
  grad_give(back, o, 0, dy[0]);
  if (grad_wants(back, o, 1)) grad_give(back, o, 1, grad_unary(back, OP_neg, dy[0]));
}

void grad_mul(Back *back, const Op *o, const ValueId *dy) {
  if (grad_wants(back, o, 0))
    grad_give(back, o, 0, grad_binary(back, OP_mul, dy[0], grad_in(back, o, 1)));
  if (grad_wants(back, o, 1))
    grad_give(back, o, 1, grad_binary(back, OP_mul, dy[0], grad_in(back, o, 0)));
}

/* y = a / b: dy / b to a, -(dy / b) y to b */
void grad_div(Back *back, const Op *o, const ValueId *dy) {
  ValueId da = grad_binary(back, OP_div, dy[0], grad_in(back, o, 1));
  grad_give(back, o, 0, da);
  if (grad_wants(back, o, 1))
    grad_give(back, o, 1,
              grad_unary(back, OP_neg, grad_binary(back, OP_mul, da, grad_out(back, o, 0))));
}

void grad_pow(Back *back, const Op *o, const ValueId *dy) {
  double n = attr_float(&o->attrs, ATTR_value, 1);
  if (n == 0) return;
  ValueId power = ir_pow(back->m, back->b, grad_in(back, o, 0), n - 1, back->loc);
  grad_give(back, o, 0, grad_binary(back, OP_mul, dy[0], grad_scaled(back, power, n)));
}

/* Gives dy to operand a where c holds, to operand b elsewhere. */
static void choose(Back *back, const Op *o, ValueId c, uint32_t a, uint32_t b, ValueId dy) {
  ValueId zero = grad_number(back, dy, 0);
  if (grad_wants(back, o, a))
    grad_give(back, o, a, ir_where(back->m, back->b, c, dy, zero, back->loc));
  if (grad_wants(back, o, b))
    grad_give(back, o, b, ir_where(back->m, back->b, c, zero, dy, back->loc));
}

void grad_min(Back *back, const Op *o, const ValueId *dy) {
  choose(back, o, grad_binary(back, OP_le, grad_in(back, o, 0), grad_in(back, o, 1)), 0, 1, dy[0]);
}

void grad_max(Back *back, const Op *o, const ValueId *dy) {
  choose(back, o, grad_binary(back, OP_le, grad_in(back, o, 1), grad_in(back, o, 0)), 0, 1, dy[0]);
}

void grad_where(Back *back, const Op *o, const ValueId *dy) {
  choose(back, o, grad_in(back, o, 0), 1, 2, dy[0]);
}

/* ---- reductions, scans ---- */
static ValueId spread(Back *back, ValueId g, const Type *t) {
  return emit_spread(back->m, back->b, g, *t, back->loc);
}

void grad_sum(Back *back, const Op *o, const ValueId *dy) {
  grad_give(back, o, 0, spread(back, dy[0], grad_in_type(back, o, 0)));
}

/* dy where the position along dim is `at`, 0 elsewhere; both are spread to the dims of t, which has
 * dim. */
static ValueId at_position(Back *back, ValueId dy, ValueId at, Str dim, const Type *t) {
  ValueId here = ir_iota(back->m, back->b, (Axis){dim, type_size(t, dim)}, back->loc);
  here = ir_cast(back->m, back->b, here, value_type(back->b, at)->elem, back->loc);
  ValueId c = grad_binary(back, OP_eq, spread(back, at, t), here);
  return ir_where(back->m, back->b, c, spread(back, dy, t), grad_number(back, dy, 0), back->loc);
}

/* a with the reduced dims merged into one, which is returned in `one`. */
static ValueId merged(Back *back, const Op *o, ValueId a, Str *one) {
  const Group *group = &o->group[0];
  const Type *t = value_type(back->b, a);
  *one = group->from[0];
  if (group->nfrom == 1) return a;
  Type r = type_without(t, group->from, group->nfrom);
  while (type_find(t, *one) >= 0) *one = intern_printf(back->m->ctx->names, "%s'", *one);
  int64_t size = 1;
  for (int i = 0; i < group->nfrom; i++) size *= type_size(t, group->from[i]);
  r.axis[r.rank++] = (Axis){*one, size};
  Group to = group_map(group->nfrom, group->from, 1, one);
  return emit_typed(back->m, back->b, OP_merge, 1, &a, &to, r, back->loc);
}

static void give_to_first(Back *back, const Op *o, ValueId a, ValueId dy) {
  Str one;
  ValueId flat = merged(back, o, a, &one);
  Type t = *value_type(back->b, flat);
  ValueId at = ir_reduce(back->m, back->b, OP_argmax, flat, 1, &one, back->loc);
  ValueId g = at_position(back, dy, at, one, &t);
  const Group *group = &o->group[0];
  if (group->nfrom > 1) {
    Group cut = group_map(1, &one, group->nfrom, group->from);
    g = emit_typed(back->m, back->b, OP_split, 1, &g, &cut, *grad_in_type(back, o, 0), back->loc);
  }
  grad_give(back, o, 0, g);
}

void grad_rmax(Back *back, const Op *o, const ValueId *dy) {
  give_to_first(back, o, grad_in(back, o, 0), dy[0]);
}

void grad_rmin(Back *back, const Op *o, const ValueId *dy) {
  give_to_first(back, o, grad_unary(back, OP_neg, grad_in(back, o, 0)), dy[0]);
}

/* The same op, with its groups, on another operand: `attr` is 1 minus its old value. */
static void give_inverse(Back *back, const Op *o, uint32_t nin, const ValueId *args) {
  ValueId g = emit_typed(back->m, back->b, o->code, nin, args, &o->group[0],
                         *grad_in_type(back, o, 0), back->loc);
  Op *n = &vec_last(back->b->ops);
  for (int i = 1; i < o->ngroups; i++) op_add_group(back->m, n, o->group[i]);
  if (o->code == OP_rope) rope_copy_attrs(back->m, n, o);
  if (!attr_int(&o->attrs, ATTR_inverse, 0)) attr_set_int(back->m, &n->attrs, ATTR_inverse, 1);
  grad_give(back, o, 0, g);
}

void grad_cumsum(Back *back, const Op *o, const ValueId *dy) { give_inverse(back, o, 1, dy); }

void grad_rope(Back *back, const Op *o, const ValueId *dy) {
  ValueId args[2] = {dy[0], o->nin > 1 ? grad_in(back, o, 1) : NO_VALUE};
  give_inverse(back, o, o->nin, args);
}

/* ---- structure ---- */
void grad_expand(Back *back, const Op *o, const ValueId *dy) { grad_give(back, o, 0, dy[0]); }

static void give_reversed(Back *back, const Op *o, OpCode c, ValueId dy) {
  ValueId g = emit_typed(back->m, back->b, c, 1, &dy, NULL, *grad_in_type(back, o, 0), back->loc);
  Op *n = &vec_last(back->b->ops);
  for (int i = 0; i < o->ngroups; i++) {
    const Group *group = &o->group[i];
    op_add_group(back->m, n, group_map(group->nto, group->to, group->nfrom, group->from));
  }
  const Attr *at = attr_get(&o->attrs, ATTR_at);
  if (at) attr_set_int(back->m, &n->attrs, ATTR_at, at->i);
  if (c == OP_pad) attr_set_float(back->m, &n->attrs, ATTR_fill, 0);
  grad_give(back, o, 0, g);
}

void grad_rename(Back *back, const Op *o, const ValueId *dy) {
  give_reversed(back, o, OP_rename, dy[0]);
}
void grad_split(Back *back, const Op *o, const ValueId *dy) {
  give_reversed(back, o, OP_merge, dy[0]);
}
void grad_merge(Back *back, const Op *o, const ValueId *dy) {
  give_reversed(back, o, OP_split, dy[0]);
}
void grad_slice(Back *back, const Op *o, const ValueId *dy) {
  give_reversed(back, o, OP_pad, dy[0]);
}
void grad_pad(Back *back, const Op *o, const ValueId *dy) {
  give_reversed(back, o, OP_slice, dy[0]);
}

void grad_shift(Back *back, const Op *o, const ValueId *dy) {
  ValueId g = emit_typed(back->m, back->b, OP_shift, 1, dy, &o->group[0], *grad_in_type(back, o, 0),
                         back->loc);
  AttrList *list = &vec_last(back->b->ops).attrs;
  attr_set_int(back->m, list, ATTR_by, -attr_int(&o->attrs, ATTR_by, 1));
  attr_set_float(back->m, list, ATTR_fill, 0);
  grad_give(back, o, 0, g);
}

void grad_unstack(Back *back, const Op *o, const ValueId *dy) {
  ValueId *part = ARENA_ARRAY(back->m->arena, ValueId, o->nout);
  ValueId zero = NO_VALUE;
  for (uint32_t i = 0; i < o->nout; i++) {
    if (dy[i] == NO_VALUE && zero == NO_VALUE) zero = grad_zeros(back, grad_out_type(back, o, i));
    part[i] = dy[i] == NO_VALUE ? zero : dy[i];
  }
  Axis dim = {o->group[0].from[0], o->nout};
  const Type *first = value_type(back->b, part[0]);
  Type t = type_of(first->elem, 1, &dim);
  for (int i = 0; i < first->rank; i++) t.axis[t.rank++] = first->axis[i];
  grad_give(back, o, 0,
            emit_typed(back->m, back->b, OP_stack, o->nout, part, &o->group[0], t, back->loc));
}

void grad_stack(Back *back, const Op *o, const ValueId *dy) {
  Type part = type_without(value_type(back->b, dy[0]), o->group[0].from, 1);
  Type *types = ARENA_ARRAY(back->m->arena, Type, o->nin);
  for (uint32_t i = 0; i < o->nin; i++) types[i] = part;
  Op *n = fn_op(back->m, back->b, OP_unstack, 1, dy, o->nin, types, back->loc);
  op_add_group(back->m, n, o->group[0]);
  ValueId first = n->out;
  for (uint32_t i = 0; i < o->nin; i++) grad_give(back, o, i, first + i);
}

void grad_concat(Back *back, const Op *o, const ValueId *dy) {
  const Group *group = &o->group[0];
  int64_t at = 0;
  for (uint32_t i = 0; i < o->nin; i++) {
    Group part = group_map(1, &group->to[0], 1, &group->from[i]);
    int64_t size = type_size(grad_in_type(back, o, i), group->from[i]);
    if (grad_wants(back, o, i)) {
      ValueId d = emit_typed(back->m, back->b, OP_slice, 1, dy, &part, *grad_in_type(back, o, i),
                             back->loc);
      attr_set_int(back->m, &vec_last(back->b->ops).attrs, ATTR_at, at);
      grad_give(back, o, i, d);
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
static ValueId dot_like(Back *back, const Type *t, ValueId p, ValueId q, int n, const Str *dims) {
  Group group = group_dims(n, dims);
  ValueId swapped[] = {q, p};
  Op probe = {.code = OP_dot, .nin = 2, .nout = 1, .in = swapped, .ngroups = 1, .group = &group};
  Type r;
  bool swap = !shape_infer(back->m, back->b, &probe, &r) && type_equal(&r, t);
  return swap ? ir_dot(back->m, back->b, q, p, n, dims, back->loc)
              : ir_dot(back->m, back->b, p, q, n, dims, back->loc);
}

/* The products of a product in 8 bits, dy and operand j, are in 8 bits. */
static void mark_eights(Back *back, const Op *o, uint32_t j, ValueId dy, ValueId made) {
  const Attr *eights = attr_get(&o->attrs, ATTR_eights);
  if (!eights) return;
  Op *dot = &vec_last(back->b->ops);
  must(dot->out == made && dot->code == OP_dot, "grad: a product is not the last op");
  int64_t other = eights->list[j], first[] = {EIGHTS_GRADIENT, other},
          second[] = {other, EIGHTS_GRADIENT};
  attr_set_ints(back->m, &dot->attrs, ATTR_eights, 2, dot->in[0] == dy ? first : second);
}

/* The gradient of operand i of a dot with other operand j: over the dims that only j brought to the
   result. Without any, nothing is summed: a product, dy spread over the contracted dims. */
static void dot_operand(Back *back, const Op *o, uint32_t i, uint32_t j, ValueId dy) {
  if (!grad_wants(back, o, i)) return;
  Str dims[MAX_RANK];
  const Type *ti = grad_in_type(back, o, i), *tj = grad_in_type(back, o, j);
  int n = dims_not_in(tj, ti, dims);
  ValueId other = grad_in(back, o, j);
  if (!n) {
    grad_give(back, o, i, grad_binary(back, OP_mul, spread(back, dy, ti), other));
    return;
  }
  ValueId made = dot_like(back, ti, dy, other, n, dims);
  mark_eights(back, o, j, dy, made);
  grad_give(back, o, i, made);
}

void grad_dot(Back *back, const Op *o, const ValueId *dy) {
  must(o->ngroups == 1, "a dot with %d groups of dims", o->ngroups);
  dot_operand(back, o, 0, 1, dy[0]);
  dot_operand(back, o, 1, 0, dy[0]);
}

/* An index along the dim that it addresses: w[Seq = i] with i over Seq. The positions that are read
   and those that have the result are two dims, of which the result's gets a name of its own. */
static void name_apart(Back *back, Str addressed, ValueId *dy, ValueId *index) {
  const Type *t = value_type(back->b, *dy);
  if (type_find(value_type(back->b, *index), addressed) < 0) return;
  Str own = addressed;
  while (type_find(t, own) >= 0) own = intern_printf(back->m->ctx->names, "%s'", own);
  *dy = ir_rename(back->m, back->b, *dy, addressed, own, back->loc);
  *index = ir_rename(back->m, back->b, *index, addressed, own, back->loc);
}

void grad_gather(Back *back, const Op *o, const ValueId *dy) {
  if (!grad_wants(back, o, 0)) return;
  const Type *w = grad_in_type(back, o, 0);
  Str dims[MAX_RANK], v = o->group[0].from[0];
  ValueId args[] = {dy[0], grad_in(back, o, 1)};
  name_apart(back, v, &args[0], &args[1]);
  int n = dims_not_in(value_type(back->b, args[1]), w, dims);
  if (n == 0) {
    grad_give(back, o, 0, at_position(back, args[0], args[1], v, w));
    return;
  }
  Group group = group_map(n, dims, 1, &v);
  grad_give(back, o, 0, emit_typed(back->m, back->b, OP_scatter, 2, args, &group, *w, back->loc));
}

void grad_scatter(Back *back, const Op *o, const ValueId *dy) {
  grad_give(back, o, 0,
            ir_gather(back->m, back->b, dy[0], grad_in(back, o, 1), o->group[0].to[0], back->loc));
}

void grad_removed(Back *back, const Op *o, const ValueId *dy) {
  (void)dy;
  bug("%s in %s: grad runs on inlined, unfused functions", op_name(o->code), back->f->name);
}
