/* order: where the elements of every value outside kernels lie: storage order, strides, views,
   in-place results.

   Storage order is the natural one (results of a contraction: first the operand's dims, then the
   other's) unless users wish another (order_wants.c). Callers come before their bodies, so a body's
   arguments have the strides of what it is called with. Views get strides and an offset; where no
   strides exist (a merge of dims that are apart) a kernel copies. A body returns distinct values
   made by its own kernels or loops; the one exception is a carried argument that is saved round by
   round: the saved slices then are the carried buffers. Last, kernel functions get the layout of
   the buffers that they are called with, so that each says everything about its memory. */
#include "passes/order.h"

typedef VEC(Fn *) FnVec;

typedef struct Order {
  Module *m;
  Rebuild r;
  const Type **want; /* by ValueId of r.from */
  FnVec *made;       /* copy kernels, to be placed before the function */
  uint32_t copies;
} Order;

static Value *made_value(Order *o, ValueId v) { return &o->r.to->values.at[v]; }

/* ---- kernels that copy ---- */

static Fn *kernel_of_op(Order *o, const Fn *f, const Op *op, const char *what) {
  Fn *k = fn_new(o->m, FN_KERNEL,
                 intern_printf(o->m->ctx->names, "%s.%s%u", f->name, what, ++o->copies));
  k->loc = op->loc;
  attr_set_str(o->m, &k->attrs, ATTR_family, intern(o->m->ctx->names, "elem"));
  vec_push(o->m->arena, *o->made, k);
  return k;
}

static ValueId call_kernel(Order *o, Fn *k, ValueId v, Type t) {
  Op *call = fn_op(o->m, o->r.to, OP_kernel, 1, &v, 1, &t, k->loc);
  call->callee = k;
  return call->out;
}

/* A copy of v, dense in the order of t. */
static ValueId copy_as(Order *o, ValueId v, const Type *t) {
  Type own = *value_type(o->r.to, v);
  Fn *k = kernel_of_op(o, o->r.to, &(Op){0}, "copy");
  ValueId a = fn_arg(o->m, k, own);
  fn_result(o->m, k, fn_op(o->m, k, OP_copy, 1, &a, 1, &own, k->loc)->out);
  ValueId c = call_kernel(o, k, v, own);
  layout_set(made_value(o, c), t);
  return c;
}

/* A view op without strides becomes a kernel of that op alone. */
static void copy_view(Order *o, const Op *op) {
  ValueId in = o->r.map[op->in[0]];
  Type own = *value_type(o->r.to, in), result = *value_type(o->r.from, op->out);
  Fn *k = kernel_of_op(o, o->r.to, op, op_name(op->code));
  ValueId *map = value_map(o->m, o->r.from);
  map[op->in[0]] = fn_arg(o->m, k, own);
  fn_clone_op(o->m, k, o->r.from, op, map);
  fn_result(o->m, k, map[op->out]);
  ValueId c = call_kernel(o, k, in, result);
  layout_set(made_value(o, c), o->want[op->out]);
  o->r.map[op->out] = c;
}

static bool dense_as(const Value *v, const Type *t) {
  return type_equal(&v->type, t) && layout_is_dense(v);
}

static ValueId bring(Order *o, ValueId v, const Type *t) {
  return dense_as(made_value(o, v), t) ? v : copy_as(o, v, t);
}

/* ---- ops ---- */

static void order_view(Order *o, const Op *op) {
  Value probe[1] = {o->r.from->values.at[op->out]};
  Op mapped = *op;
  mapped.in = &o->r.map[op->in[0]];
  if (!layout_view(o->r.to, &mapped, 0, probe)) {
    copy_view(o, op);
    return;
  }
  const Op *c = rebuild_op(&o->r, op);
  for (uint32_t i = 0; i < c->nout; i++) layout_view(o->r.to, c, i, made_value(o, c->out + i));
}

static void order_kernel(Order *o, const Op *op) {
  const Op *c = rebuild_op(&o->r, op);
  for (uint32_t i = 0; i < c->nout; i++)
    layout_set(made_value(o, c->out + i), o->want[op->out + i]);
}

static uint32_t count_callers(const Module *m, const Fn *body) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId j = 0; j < m->fns.at[i]->ops.n; j++) n += m->fns.at[i]->ops.at[j].callee == body;
  return n;
}

/* A body that several loops call takes dense arguments in their own order; the only caller of a
 * body dictates. */
static ValueId loop_operand(Order *o, Fn *body, uint32_t i, ValueId v, const LoopShape *s,
                            bool shared) {
  Value *arg = &body->values.at[body->args.at[i + 1]];
  bool stacked = i >= s->carry + s->invariant;
  Type own = *value_type(o->r.to, v), slice = stacked ? type_without(&own, &s->axis.dim, 1) : own;
  if (shared) {
    Type t = arg->type;
    if (stacked) {
      t.rank = 0, t.axis[t.rank++] = s->axis;
      for (int k = 0; k < arg->type.rank; k++) t.axis[t.rank++] = arg->type.axis[k];
    }
    v = bring(o, v, &t), slice = arg->type;
  } else if (i < s->carry) v = bring(o, v, &own);
  const Value *have = made_value(o, v);
  Storage st = layout_dense(&slice);
  for (int k = 0; k < slice.rank; k++)
    st.stride[k] = have->storage.stride[type_find(&have->type, slice.axis[k].dim)];
  arg->type = type_with_elem(slice, arg->type.elem), arg->storage = st;
  return v;
}

static void carried_results(Fn *body, uint32_t carry) {
  for (uint32_t i = 0; i < carry; i++) {
    const Value *arg = &body->values.at[body->args.at[i + 1]];
    Value *v = &body->values.at[body->results.at[i]];
    if (v->def != NO_OP) v->type = layout_permuted(&v->type, &arg->type), v->storage = arg->storage;
  }
}

static void order_loop(Order *o, const Op *op) {
  LoopShape s = loop_shape(op);
  bool shared = count_callers(o->m, op->callee) > 1;
  ValueId *in = ARENA_ARRAY(o->m->arena, ValueId, op->nin + 1);
  for (uint32_t i = 0; i < op->nin; i++)
    in[i] = loop_operand(o, op->callee, i, o->r.map[op->in[i]], &s, shared);
  carried_results(op->callee, s.carry);
  Op *c = rebuild_op(&o->r, op);
  memcpy(c->in, in, op->nin * sizeof *in);
  for (uint32_t i = 0; i < c->nout; i++) {
    Value *v = made_value(o, c->out + i);
    Type t = *value_type(op->callee, op->callee->results.at[i]), stacked = {t.elem, 1, {s.axis}};
    for (int k = 0; k < t.rank && i >= s.carry; k++) stacked.axis[stacked.rank++] = t.axis[k];
    v->type = i < s.carry ? t : stacked;
    v->storage = layout_dense(&v->type);
  }
}

static void order_global(Order *o, const Op *op) {
  if (op->code == OP_load) {
    const Op *c = rebuild_op(&o->r, op);
    layout_set(made_value(o, c->out), NULL);
    return;
  }
  ValueId *at = &o->r.map[op->in[0]], old = *at;
  *at = bring(o, old, &op->global->type);
  rebuild_op(&o->r, op);
  *at = old;
}

static void order_op(Order *o, const Op *op) {
  if (op->code == OP_kernel) order_kernel(o, op);
  else if (op->code == OP_loop) order_loop(o, op);
  else if (op_flags(op->code) & VIEW) order_view(o, op);
  else if (op_family(op->code) == FAMILY_GLOBAL) order_global(o, op);
  else bug("order: a %s op outside of kernels in %s", op_name(op->code), o->r.from->name);
}

static void order_args(Order *o) {
  const Fn *f = o->r.from;
  for (uint32_t i = 0; i < f->args.n; i++) {
    Value *to = made_value(o, o->r.map[f->args.at[i]]);
    const Value *from = &f->values.at[f->args.at[i]];
    to->type = from->type;
    to->storage = from->storage.ordered ? from->storage : layout_dense(&to->type);
  }
}

static Fn *order_function(Module *m, Fn *f, FnVec *made) {
  Order o = {.m = m, .r = rebuild_begin(m, f), .want = order_wants(m, f), .made = made};
  order_args(&o);
  for (OpId i = 0; i < f->ops.n; i++) order_op(&o, &f->ops.at[i]);
  for (uint32_t i = 0; i < f->results.n; i++)
    fn_result(m, o.r.to, bring(&o, o.r.map[f->results.at[i]], value_type(f, f->results.at[i])));
  return o.r.to;
}

/* ---- bodies return values of their own ---- */

uint32_t order_carry(const Module *m, const Fn *body) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId j = 0; j < m->fns.at[i]->ops.n; j++)
      if (m->fns.at[i]->ops.at[j].callee == body) return loop_shape(&m->fns.at[i]->ops.at[j]).carry;
  return 0;
}

static bool returned_before(const Fn *f, uint32_t i) {
  for (uint32_t j = 0; j < i; j++)
    if (f->results.at[j] == f->results.at[i]) return true;
  return false;
}

/* May result i be what it is, without a copy? */
static bool may_return(const Fn *f, uint32_t i, uint32_t carry) {
  ValueId v = f->results.at[i];
  const Op *o = value_def(f, v);
  if (returned_before(f, i)) return false;
  if (o) return o->code == OP_kernel || o->code == OP_loop;
  uint32_t arg = f->values.at[v].result;
  return i >= carry && arg >= 1 && arg <= carry;
}

static void own_results(Module *m, Fn *f, FnVec *made) {
  uint32_t carry = order_carry(m, f);
  Order o = {.m = m, .r = {.m = m, .from = f, .to = f}, .made = made, .copies = 1000};
  for (uint32_t i = 0; i < f->results.n; i++)
    if (!may_return(f, i, carry)) {
      Type t = *value_type(f, f->results.at[i]);
      ValueId c = copy_as(&o, f->results.at[i], &t);
      f->values.at[c].storage = (Storage){0};
      f->results.at[i] = c;
    }
}

/* ---- kernel functions ---- */

static void give_layout(Fn *k, ValueId to, const Value *from) {
  Value *v = &k->values.at[to];
  v->type = layout_permuted(&v->type, &from->type);
  v->storage = (Storage){.ordered = true};
  memcpy(v->storage.stride, from->storage.stride, sizeof v->storage.stride);
}

static void layouts_into_kernels(Fn *f) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_kernel) continue;
    for (uint32_t k = 0; k < o->nin; k++)
      give_layout(o->callee, o->callee->args.at[k], &f->values.at[o->in[k]]);
    for (uint32_t k = 0; k < o->nout; k++)
      give_layout(o->callee, o->callee->results.at[k], &f->values.at[o->out + k]);
  }
}

static void put_before(Module *m, const Fn *f, const FnVec *made) {
  FnVec all = {0};
  for (uint32_t i = 0; i < m->fns.n; i++) {
    for (uint32_t j = 0; m->fns.at[i] == f && j < made->n; j++)
      vec_push(m->arena, all, made->at[j]);
    vec_push(m->arena, all, m->fns.at[i]);
  }
  m->fns.n = 0;
  for (uint32_t i = 0; i < all.n; i++) vec_push(m->arena, m->fns, all.at[i]);
}

void pass_order(Module *m) {
  order_results(m);
  VEC(Fn *) todo = {0};
  for (uint32_t i = m->fns.n; i-- > 0;)
    if (m->fns.at[i]->kind != FN_KERNEL) vec_push(m->arena, todo, m->fns.at[i]);
  for (uint32_t i = 0; i < todo.n; i++) {
    FnVec made = {0};
    if (todo.at[i]->kind == FN_BODY) own_results(m, todo.at[i], &made);
    put_before(m, todo.at[i], &made);
  }
  for (uint32_t i = 0; i < todo.n; i++) {
    FnVec made = {0};
    Fn *with = order_function(m, todo.at[i], &made);
    module_replace(m, todo.at[i], with);
    put_before(m, with, &made);
    layouts_into_kernels(with);
  }
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL) order_inplace(m, m->fns.at[i]);
}
