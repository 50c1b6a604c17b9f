/* Rules of simplify: one small function per op or kind of op. A rule gets the op with operands in
   the new function, and answers with an equal value, which may be new, or NO_VALUE. All are exact:
   the same bits, but for the sign of zeros and for sums of equal things, which become one product.
 */
#include "simplify_inside.h"
#include "ir/interp/interp.h"
#include <math.h>
#include <stdlib.h>

typedef ValueId Rule(Simplify *s, const Op *o, const Type *t);

static bool simplify_is_const(const Fn *f, ValueId v, double *value) {
  const Op *def = value_def(f, v);
  if (!def || def->code != OP_const) return false;
  *value = attr_float(&def->attrs, ATTR_value, 0);
  return true;
}

static bool is_zero(Simplify *simplify, ValueId v) {
  double x;
  return simplify_is_const(simplify->to, v, &x) && x == 0;
}

/* The op that defines v, if it has this code. */
static const Op *made_by(Simplify *simplify, ValueId v, OpCode c) {
  const Op *def = value_def(simplify->to, v);
  return def && def->code == c ? def : NULL;
}

static ValueId bin(Simplify *simplify, const Op *o, OpCode c, ValueId a, ValueId b) {
  return ir_binary(simplify->m, simplify->to, c, a, b, o->loc);
}

/* In the memory of the op's operands. */
static ValueId num(Simplify *simplify, const Op *o, Elem e, double v) {
  ValueId made = ir_const(simplify->m, simplify->to, e, v, o->loc);
  simplify->to->values.at[made].type.tier = op_tier(simplify->to, o->nin, o->in);
  return made;
}

/* ---- constants ---- */
/* Only correctly rounded ops: exp and similar functions differ in the last bit between
   implementations. The interpreter defines their meaning. */
static const bool exact[OP_COUNT] = {
    [OP_add] = true,  [OP_sub] = true,   [OP_mul] = true, [OP_div] = true, [OP_min] = true,
    [OP_max] = true,  [OP_lt] = true,    [OP_le] = true,  [OP_eq] = true,  [OP_and] = true,
    [OP_or] = true,   [OP_neg] = true,   [OP_abs] = true, [OP_not] = true, [OP_sqrt] = true,
    [OP_cast] = true, [OP_floor] = true,
};

/* v as element type e holds it; false if that is not sure (whole numbers beyond 2^31, narrow
 * floats). */
static bool as_elem(Elem e, double v, double *r) {
  *r = e == ELEM_f32 ? (double)(float)v : e == ELEM_bool ? v != 0 : v;
  if (elem_is_half(e)) return false;
  if (elem_class(e) == CLASS_FLOAT || elem_class(e) == CLASS_BOOL) return true;
  *r = trunc(v);
  if (elem_class(e) == CLASS_BYTE) return *r >= 0 && *r <= 255;
  return fabs(v) < 2147483648.0;
}

static ValueId fold(Simplify *simplify, const Op *o, const Type *t) {
  if (!exact[o->code] || t->rank) return NO_VALUE;
  double v[2] = {0, 0}, r;
  for (uint32_t i = 0; i < o->nin; i++)
    if (!simplify_is_const(simplify->to, o->in[i], &v[i]) ||
        !as_elem(value_type(simplify->to, o->in[i])->elem, v[i], &v[i]))
      return NO_VALUE;
  if (o->code == OP_div && elem_class(t->elem) == CLASS_INT) return NO_VALUE;
  return as_elem(t->elem, interp_scalar(o, v), &r) ? num(simplify, o, t->elem, r) : NO_VALUE;
}

/* ---- element-wise identities ---- */
static ValueId rule_neg(Simplify *simplify, const Op *o, const Type *t) {
  const Op *a = value_def(simplify->to, o->in[0]);
  double c;
  (void)t;
  if (!a) return NO_VALUE;
  if (a->code == OP_neg) return a->in[0];
  if (a->code == OP_sub) return bin(simplify, o, OP_sub, a->in[1], a->in[0]);
  if (a->code != OP_mul || !simplify_is_const(simplify->to, a->in[1], &c)) return NO_VALUE;
  ValueId factor = a->in[0]; /* read before emitting, which moves the op */
  return bin(simplify, o, OP_mul, factor, num(simplify, o, t->elem, -c));
}

static ValueId rule_add(Simplify *simplify, const Op *o, const Type *t) {
  (void)t;
  if (is_zero(simplify, o->in[0])) return o->in[1];
  if (is_zero(simplify, o->in[1])) return o->in[0];
  const Op *a = made_by(simplify, o->in[0], OP_neg), *b = made_by(simplify, o->in[1], OP_neg);
  if (b) return bin(simplify, o, OP_sub, o->in[0], b->in[0]);
  return a ? bin(simplify, o, OP_sub, o->in[1], a->in[0]) : NO_VALUE;
}

static ValueId rule_sub(Simplify *simplify, const Op *o, const Type *t) {
  (void)t;
  if (is_zero(simplify, o->in[1])) return o->in[0];
  if (is_zero(simplify, o->in[0]))
    return ir_unary(simplify->m, simplify->to, OP_neg, o->in[1], o->loc);
  const Op *b = made_by(simplify, o->in[1], OP_neg);
  return b ? bin(simplify, o, OP_add, o->in[0], b->in[0]) : NO_VALUE;
}

static ValueId times_constant(Simplify *simplify, const Op *o, ValueId a, double c) {
  const Op *n = made_by(simplify, a, OP_neg);
  if (c == 1) return a;
  if (n) {
    ValueId factor = n->in[0]; /* read before emitting, which moves the op */
    return bin(simplify, o, OP_mul, factor,
               num(simplify, o, value_type(simplify->to, a)->elem, -c));
  }
  return c == -1 ? ir_unary(simplify->m, simplify->to, OP_neg, a, o->loc) : NO_VALUE;
}

static ValueId rule_mul(Simplify *simplify, const Op *o, const Type *t) {
  double c;
  (void)t;
  if (simplify_is_const(simplify->to, o->in[1], &c))
    return times_constant(simplify, o, o->in[0], c);
  if (!simplify_is_const(simplify->to, o->in[0], &c)) return NO_VALUE;
  ValueId v = times_constant(simplify, o, o->in[1], c);
  return v != NO_VALUE ? v
                       : bin(simplify, o, OP_mul, o->in[1], o->in[0]); /* constants are the second
                                                                          operand */
}

static bool power_of_two(double c) {
  int e;
  return c != 0 && isfinite(c) && fabs(frexp(c, &e)) == 0.5 && abs(e) < 100;
}

static ValueId rule_div(Simplify *simplify, const Op *o, const Type *t) {
  double c;
  if (!simplify_is_const(simplify->to, o->in[1], &c) || elem_class(t->elem) != CLASS_FLOAT)
    return NO_VALUE;
  if (c == 1) return o->in[0];
  return power_of_two(c) ? bin(simplify, o, OP_mul, o->in[0], num(simplify, o, t->elem, 1 / c))
                         : NO_VALUE;
}

static ValueId rule_pow(Simplify *simplify, const Op *o, const Type *t) {
  double n = attr_float(&o->attrs, ATTR_value, 1);
  if (n == 0) return emit_full(simplify->m, simplify->to, *t, 1, o->loc);
  if (n == 1) return o->in[0];
  if (n == 2) return bin(simplify, o, OP_mul, o->in[0], o->in[0]);
  if (n == -1) return bin(simplify, o, OP_div, num(simplify, o, t->elem, 1), o->in[0]);
  if (n == 0.5) return ir_unary(simplify->m, simplify->to, OP_sqrt, o->in[0], o->loc);
  return n == -0.5 ? ir_unary(simplify->m, simplify->to, OP_rsqrt, o->in[0], o->loc) : NO_VALUE;
}

static ValueId rule_same_operands(Simplify *simplify, const Op *o, const Type *t) {
  (void)simplify, (void)t;
  return o->in[0] == o->in[1] ? o->in[0] : NO_VALUE;
}

/* and: true is neutral, false decides; or: the other way round */
static ValueId rule_logic(Simplify *simplify, const Op *o, const Type *t) {
  double c;
  if (o->in[0] == o->in[1]) return o->in[0];
  for (int i = 0; i < 2; i++) {
    if (!simplify_is_const(simplify->to, o->in[i], &c)) continue;
    bool neutral = (c != 0) == (o->code == OP_and);
    return neutral ? o->in[1 - i] : emit_full(simplify->m, simplify->to, *t, c != 0, o->loc);
  }
  return NO_VALUE;
}

static ValueId rule_not(Simplify *simplify, const Op *o, const Type *t) {
  const Op *a = made_by(simplify, o->in[0], OP_not);
  (void)t;
  return a ? a->in[0] : NO_VALUE;
}

static ValueId widened(Simplify *simplify, const Op *o, ValueId v, const Type *t) {
  return emit_spread(simplify->m, simplify->to, v, *t, o->loc);
}

static ValueId rule_where(Simplify *simplify, const Op *o, const Type *t) {
  double c;
  if (simplify_is_const(simplify->to, o->in[0], &c))
    return widened(simplify, o, o->in[c != 0 ? 1 : 2], t);
  return o->in[1] == o->in[2] ? widened(simplify, o, o->in[1], t) : NO_VALUE;
}

static ValueId rule_cast(Simplify *simplify, const Op *o, const Type *t) {
  return value_type(simplify->to, o->in[0])->elem == t->elem ? o->in[0] : NO_VALUE;
}

static ValueId rule_stop(Simplify *simplify, const Op *o, const Type *t) {
  (void)t;
  return simplify->after_grad ? o->in[0] : NO_VALUE;
}

/* ---- expand ---- */
static ValueId source(Simplify *simplify, ValueId v) {
  const Op *e = made_by(simplify, v, OP_expand);
  return e ? e->in[0] : v;
}

/* The operand that contains all others' dims, or NO_VALUE. */
static ValueId container(Simplify *simplify, uint32_t n, const ValueId *in) {
  for (uint32_t i = 0; i < n; i++) {
    bool all = true;
    for (uint32_t j = 0; j < n; j++)
      all &= type_contains(value_type(simplify->to, in[i]), value_type(simplify->to, in[j]));
    if (all) return in[i];
  }
  return NO_VALUE;
}

static ValueId emit_on(Simplify *simplify, const Op *o, const ValueId *in, const Type *t) {
  Type r = type_with_elem(*value_type(simplify->to, container(simplify, o->nin, in)), t->elem);
  Op *n = fn_op(simplify->m, simplify->to, o->code, o->nin, in, 1, &r, o->loc);
  for (uint32_t i = 0; i < o->attrs.n; i++) vec_push(simplify->m->arena, n->attrs, o->attrs.at[i]);
  return widened(simplify, o, n->out, t);
}

/* An element-wise op on expanded operands: the op on the operands before expansion, expanded
   afterwards if needed. If that is impossible, operands are replaced one by one while another one
   still has all dims. */
static ValueId sink_expand(Simplify *simplify, const Op *o, const Type *t) {
  ValueId in[3];
  bool any = false;
  if (op_family(o->code) != FAMILY_ELEM || !o->nin || o->nin > 3) return NO_VALUE;
  for (uint32_t i = 0; i < o->nin; i++)
    in[i] = source(simplify, o->in[i]), any |= in[i] != o->in[i];
  if (!any) return NO_VALUE;
  if (container(simplify, o->nin, in) != NO_VALUE) return emit_on(simplify, o, in, t);
  for (uint32_t i = 0; i < o->nin; i++) in[i] = o->in[i];
  any = false;
  for (uint32_t i = 0; i < o->nin; i++) {
    in[i] = source(simplify, o->in[i]);
    ValueId big = container(simplify, o->nin, in);
    bool fits = big != NO_VALUE && type_same_dims(value_type(simplify->to, big), t);
    if (!fits) in[i] = o->in[i];
    any |= in[i] != o->in[i];
  }
  return any ? emit_on(simplify, o, in, t) : NO_VALUE;
}

static ValueId rule_expand(Simplify *simplify, const Op *o, const Type *t) {
  if (!o->ngroups || !o->group[0].nfrom) return o->in[0];
  const Op *e = made_by(simplify, o->in[0], OP_expand);
  return e ? widened(simplify, o, e->in[0], t) : NO_VALUE;
}

static ValueId sum_of(Simplify *simplify, const Op *o, ValueId v) {
  return ir_reduce(simplify->m, simplify->to, OP_sum, v, o->group[0].nfrom, o->group[0].from,
                   o->loc);
}

/* A sum over expanded dims is a product with their size. */
static ValueId rule_sum(Simplify *simplify, const Op *o, const Type *t) {
  const Op *e = made_by(simplify, o->in[0], OP_expand), *neg = made_by(simplify, o->in[0], OP_neg);
  if (neg)
    return ir_unary(simplify->m, simplify->to, OP_neg, sum_of(simplify, o, neg->in[0]), o->loc);
  if (!e) return NO_VALUE;
  ValueId v = e->in[0];
  Type have = *value_type(simplify->to, v), wide = *value_type(simplify->to, o->in[0]);
  Str rest[MAX_RANK];
  int n = 0;
  double times = 1;
  for (int i = 0; i < o->group[0].nfrom; i++) {
    Str d = o->group[0].from[i];
    if (type_find(&have, d) >= 0) rest[n++] = d;
    else times *= (double)type_size(&wide, d);
  }
  if (n == o->group[0].nfrom)
    return widened(simplify, o, ir_reduce(simplify->m, simplify->to, OP_sum, v, n, rest, o->loc),
                   t);
  v = ir_reduce(simplify->m, simplify->to, OP_sum, v, n, rest, o->loc);
  v = bin(simplify, o, OP_mul, v, num(simplify, o, t->elem, times));
  return widened(simplify, o, v, t);
}

/* ---- moved indexes ---- */
static bool reversed(const Op *a, const Op *b) {
  if (a->ngroups != b->ngroups) return false;
  for (int i = 0; i < a->ngroups; i++) {
    const Group *one = &a->group[i], *other = &b->group[i];
    if (one->nfrom != other->nto || one->nto != other->nfrom) return false;
    if (!simplify_same_names(one->nfrom, one->from, other->to) ||
        !simplify_same_names(one->nto, one->to, other->from))
      return false;
  }
  return true;
}

static ValueId undo(Simplify *simplify, const Op *o, OpCode inverse, const Type *t) {
  const Op *a = made_by(simplify, o->in[0], inverse);
  if (!a || !reversed(o, a)) return NO_VALUE;
  return type_same_dims(value_type(simplify->to, a->in[0]), t) ? a->in[0] : NO_VALUE;
}

static ValueId rule_split(Simplify *simplify, const Op *o, const Type *t) {
  return undo(simplify, o, OP_merge, t);
}
static ValueId rule_merge(Simplify *simplify, const Op *o, const Type *t) {
  return undo(simplify, o, OP_split, t);
}

static ValueId rule_rename(Simplify *simplify, const Op *o, const Type *t) {
  for (int i = 0; i < o->ngroups; i++)
    for (int j = 0; j < o->group[i].nfrom; j++)
      if (o->group[i].from[j] != o->group[i].to[j]) return undo(simplify, o, OP_rename, t);
  return o->in[0];
}

/* slice and pad of everything only rename */
static ValueId rule_whole(Simplify *simplify, const Op *o, const Type *t) {
  const Group *group = &o->group[0];
  const Type *a = value_type(simplify->to, o->in[0]);
  if (type_size(a, group->from[0]) != type_size(t, group->to[0])) return NO_VALUE;
  return ir_rename(simplify->m, simplify->to, o->in[0], group->from[0], group->to[0], o->loc);
}

/* w at positions 0, 1, ..: the first of its elements */
static ValueId rule_gather(Simplify *simplify, const Op *o, const Type *t) {
  const Op *i = made_by(simplify, o->in[1], OP_iota);
  const Type *w = value_type(simplify->to, o->in[0]);
  Str from = o->group[0].from[0];
  if (!i || type_find(w, i->group[0].from[0]) >= 0) return NO_VALUE;
  if (type_size(t, i->group[0].from[0]) > type_size(w, from)) return NO_VALUE;
  Group group = group_map(1, &from, 1, i->group[0].from);
  ValueId v = emit_typed(simplify->m, simplify->to, OP_slice, 1, o->in, &group, *t, o->loc);
  attr_set_int(simplify->m, &vec_last(simplify->to->ops).attrs, ATTR_at, 0);
  return v;
}

static ValueId rule_shift(Simplify *simplify, const Op *o, const Type *t) {
  (void)simplify, (void)t;
  return attr_int(&o->attrs, ATTR_by, 1) == 0 ? o->in[0] : NO_VALUE;
}

/* stack of all results of an unstack along the same dim */
static ValueId rule_stack(Simplify *simplify, const Op *o, const Type *t) {
  const Op *u = made_by(simplify, o->in[0], OP_unstack);
  (void)t;
  if (!u || u->nout != o->nin || u->group[0].from[0] != o->group[0].from[0]) return NO_VALUE;
  for (uint32_t i = 0; i < o->nin; i++)
    if (o->in[i] != u->out + i) return NO_VALUE;
  return u->in[0];
}

/* rows of zeros added to nothing */
static ValueId rule_scatter(Simplify *simplify, const Op *o, const Type *t) {
  const Op *rows = made_by(simplify, o->in[0], OP_expand);
  bool nothing = is_zero(simplify, rows ? rows->in[0] : o->in[0]);
  return nothing ? emit_full(simplify->m, simplify->to, *t, 0, o->loc) : NO_VALUE;
}

static Rule *const rules[OP_COUNT] = {
    [OP_neg] = rule_neg,           [OP_add] = rule_add,           [OP_sub] = rule_sub,
    [OP_mul] = rule_mul,           [OP_div] = rule_div,           [OP_pow] = rule_pow,
    [OP_min] = rule_same_operands, [OP_max] = rule_same_operands, [OP_and] = rule_logic,
    [OP_or] = rule_logic,          [OP_not] = rule_not,           [OP_where] = rule_where,
    [OP_cast] = rule_cast,         [OP_stop] = rule_stop,         [OP_expand] = rule_expand,
    [OP_sum] = rule_sum,           [OP_split] = rule_split,       [OP_merge] = rule_merge,
    [OP_rename] = rule_rename,     [OP_slice] = rule_whole,       [OP_pad] = rule_whole,
    [OP_shift] = rule_shift,       [OP_stack] = rule_stack,       [OP_gather] = rule_gather,
    [OP_scatter] = rule_scatter,
};

ValueId simplify_rule(Simplify *simplify, const Op *o, const Type *t) {
  ValueId v = fold(simplify, o, t);
  if (v == NO_VALUE) v = sink_expand(simplify, o, t);
  if (v == NO_VALUE && rules[o->code]) v = rules[o->code](simplify, o, t);
  must(v == NO_VALUE || type_same_dims(value_type(simplify->to, v), t),
       "simplify: %s in %s becomes a value of other dims", op_name(o->code), simplify->to->name);
  must(v == NO_VALUE || value_type(simplify->to, v)->elem == t->elem,
       "simplify: %s in %s becomes a value of another type", op_name(o->code), simplify->to->name);
  return v;
}
