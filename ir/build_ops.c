/* Shorthand of the builders: one call per common op, result types by the shape rules.

   The op is first described on the stack, its result type asked from shape_infer, then appended. A
   request that breaks a rule is a mistake of the compiler, not of its user: bug(). */
#include "ir.h"

static ValueId append(Module *m, Fn *f, const Op *d, Type t) {
  Op *op = fn_op(m, f, d->code, d->nin, d->in, 1, &t, d->loc);
  for (int i = 0; i < d->ngroups; i++) op_add_group(m, op, d->group[i]);
  return op->out;
}

static ValueId inferred(Module *m, Fn *f, const Op *d) {
  Type t;
  const char *why = shape_infer(m, f, d, &t);
  if (why) bug("cannot build %s in %s: %s", op_name(d->code), f->name, why);
  return append(m, f, d, t);
}

ValueId ir_const(Module *m, Fn *f, Elem e, double value, Loc loc) {
  ValueId v = append(m, f, &(Op){.code = OP_const, .loc = loc}, type_scalar(e));
  attr_set_float(m, &vec_last(f->ops).attrs, ATTR_value, value);
  return v;
}

ValueId ir_iota(Module *m, Fn *f, Axis axis, Loc loc) {
  Group group = group_dims(1, &axis.dim);
  Op d = {.code = OP_iota, .ngroups = 1, .group = &group, .loc = loc};
  return append(m, f, &d, type_of(ELEM_i32, 1, &axis));
}

ValueId ir_unary(Module *m, Fn *f, OpCode c, ValueId a, Loc loc) {
  return inferred(m, f, &(Op){.code = c, .nin = 1, .nout = 1, .in = &a, .loc = loc});
}

ValueId ir_binary(Module *m, Fn *f, OpCode c, ValueId a, ValueId b, Loc loc) {
  ValueId in[] = {a, b};
  return inferred(m, f, &(Op){.code = c, .nin = 2, .nout = 1, .in = in, .loc = loc});
}

ValueId ir_where(Module *m, Fn *f, ValueId c, ValueId a, ValueId b, Loc loc) {
  ValueId in[] = {c, a, b};
  return inferred(m, f, &(Op){.code = OP_where, .nin = 3, .nout = 1, .in = in, .loc = loc});
}

ValueId ir_cast(Module *m, Fn *f, ValueId a, Elem e, Loc loc) {
  Type t = *value_type(f, a);
  if (t.elem == e) return a;
  return append(m, f, &(Op){.code = OP_cast, .nin = 1, .in = &a, .loc = loc}, type_with_elem(t, e));
}

ValueId ir_pow(Module *m, Fn *f, ValueId a, double exponent, Loc loc) {
  ValueId v = ir_unary(m, f, OP_pow, a, loc);
  attr_set_float(m, &vec_last(f->ops).attrs, ATTR_value, exponent);
  return v;
}

ValueId ir_rand(Module *m, Fn *f, const ValueId *in, const Type *t, int64_t key, Loc loc) {
  Str dims[MAX_RANK];
  int64_t strides[MAX_RANK], stride = 1;
  for (int i = t->rank; i-- > 0;)
    dims[i] = t->axis[i].dim, strides[i] = stride, stride *= t->axis[i].size;
  Op *op = fn_op(m, f, OP_rand, 3, in, 1, t, loc);
  op_add_group(m, op, group_dims(t->rank, dims));
  attr_set_int(m, &op->attrs, ATTR_key, key);
  attr_set_ints(m, &op->attrs, ATTR_strides, t->rank, strides);
  return op->out;
}

ValueId ir_reduce(Module *m, Fn *f, OpCode c, ValueId a, int n, const Str *dims, Loc loc) {
  if (n == 0) return a;
  Group group = group_dims(n, dims);
  Op d = {.code = c, .nin = 1, .nout = 1, .in = &a, .ngroups = 1, .group = &group, .loc = loc};
  return inferred(m, f, &d);
}

ValueId ir_expand(Module *m, Fn *f, ValueId a, int n, const Axis *axes, Loc loc) {
  if (n == 0) return a;
  const Type *from = value_type(f, a);
  Str dims[MAX_RANK];
  if (n + from->rank > MAX_RANK) bug("expand in %s: rank above %d", f->name, MAX_RANK);
  Type t = type_of(from->elem, n, axes);
  for (int i = 0; i < n; i++) dims[i] = axes[i].dim;
  for (int i = 0; i < from->rank; i++) t.axis[t.rank++] = from->axis[i];
  Group group = group_dims(n, dims);
  Op d = {.code = OP_expand, .nin = 1, .in = &a, .ngroups = 1, .group = &group, .loc = loc};
  return append(m, f, &d, t);
}

ValueId ir_rename(Module *m, Fn *f, ValueId a, Str from, Str to, Loc loc) {
  if (from == to) return a;
  Type t = *value_type(f, a);
  int i = type_find(&t, from);
  if (i < 0) bug("rename in %s: no dim %s", f->name, from);
  t.axis[i].dim = to;
  Group group = group_map(1, &from, 1, &to);
  Op d = {.code = OP_rename, .nin = 1, .in = &a, .ngroups = 1, .group = &group, .loc = loc};
  return append(m, f, &d, t);
}

ValueId ir_dot(Module *m, Fn *f, ValueId a, ValueId b, int n, const Str *dims, Loc loc) {
  ValueId in[] = {a, b};
  Group group = group_dims(n, dims);
  Op d = {.code = OP_dot, .nin = 2, .nout = 1, .in = in, .ngroups = 1, .group = &group, .loc = loc};
  return inferred(m, f, &d);
}

ValueId ir_gather(Module *m, Fn *f, ValueId w, ValueId index, Str dim, Loc loc) {
  ValueId in[] = {w, index};
  Group group = group_dims(1, &dim);
  Op d = {
      .code = OP_gather, .nin = 2, .nout = 1, .in = in, .ngroups = 1, .group = &group, .loc = loc};
  return inferred(m, f, &d);
}

ValueId ir_load(Module *m, Fn *f, Global *g, Loc loc) {
  Op *op = fn_op(m, f, OP_load, 0, NULL, 1, &g->type, loc);
  op->global = g;
  return op->out;
}

void ir_store(Module *m, Fn *f, Global *g, ValueId a, Loc loc) {
  fn_op(m, f, OP_store, 1, &a, 0, NULL, loc)->global = g;
}
