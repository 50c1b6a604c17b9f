/* order: the memory layout of every value outside kernels: storage order, strides, views, in-place
   results.

   Storage order is the natural one (for results of a contraction: first the operand's dims, then
   the other's) unless users prefer another (order_preferences.c). Callers come before their
   bodies, so a body's arguments have the strides of the operands that the caller passes. Views get
   strides and an offset; where no strides exist (a merge of dims that are not adjacent) a kernel
   copies.

   A body returns distinct values made by its own kernels or loops; the one exception is a carried
   argument that is saved round by round: the saved slices then are the carried buffers. Last,
   kernel functions get the layout of the buffers that they are called with, so that each describes
   its memory completely. */
#include "ir/bytes.h"
#include "order.h"

typedef struct Order {
  Module *m;
  Rebuild r;
  const Type **want; /* by ValueId of r.from */
  const Type *hops;  /* by OpId of r.from: of a hop the order that both of its ranks know */
  Pad pad;
  FnVec *made; /* copy kernels, to be placed before the function */
  uint32_t copies;
} Order;

static Value *made_value(Order *order, ValueId v) { return &order->r.to->values.at[v]; }

/* ---- kernels that copy ---- */

static Fn *kernel_of_op(Order *order, const Fn *f, const Op *op, const char *what) {
  Fn *k = fn_new(order->m, FN_KERNEL,
                 intern_printf(order->m->ctx->names, "%s.%s%u", f->name, what, ++order->copies));
  k->loc = op->loc;
  attr_set_str(order->m, &k->attrs, ATTR_family, intern(order->m->ctx->names, "elem"));
  vec_push(order->m->arena, *order->made, k);
  return k;
}

static ValueId call_kernel(Order *order, Fn *k, ValueId v, Type t) {
  Op *call = fn_op(order->m, order->r.to, OP_kernel, 1, &v, 1, &t, k->loc);
  call->callee = k;
  return call->out;
}

/* A copy of v with this layout. */
static ValueId copy_as(Order *order, ValueId v, const Value *layout) {
  Type own = *value_type(order->r.to, v);
  Fn *k = kernel_of_op(order, order->r.to, &(Op){0}, "copy");
  ValueId a = fn_arg(order->m, k, own);
  fn_result(order->m, k, fn_op(order->m, k, OP_copy, 1, &a, 1, &own, k->loc)->out);
  ValueId c = call_kernel(order, k, v, own);
  made_value(order, c)->type = layout_permuted(&own, &layout->type);
  made_value(order, c)->storage = layout->storage;
  return c;
}

static Value padded_value(const Order *order, const Type *t) {
  return (Value){.type = *t, .storage = layout_padded(t, order->pad)};
}

static Value dense_value(const Type *t) { return (Value){.type = *t, .storage = layout_dense(t)}; }

/* v itself if it has the wanted layout, else a copy. */
static ValueId bring(Order *order, ValueId v, const Value *layout) {
  Value wanted = *layout;
  memset(&wanted.storage, 0, sizeof wanted.storage), wanted.storage.ordered = true;
  memcpy(wanted.storage.stride, layout->storage.stride, sizeof wanted.storage.stride);
  const Value *have = made_value(order, v);
  return type_equal(&have->type, &wanted.type) && layout_same(have, &wanted)
             ? v
             : copy_as(order, v, &wanted);
}

/* A view op without strides becomes a kernel of that op alone. */
static void copy_view(Order *order, const Op *op) {
  ValueId in = order->r.map[op->in[0]];
  Type own = *value_type(order->r.to, in), result = *value_type(order->r.from, op->out);
  Fn *k = kernel_of_op(order, order->r.to, op, op_name(op->code));
  ValueId *map = value_map(order->m, order->r.from);
  map[op->in[0]] = fn_arg(order->m, k, own);
  fn_clone_op(order->m, k, order->r.from, op, map);
  fn_result(order->m, k, map[op->out]);
  ValueId c = call_kernel(order, k, in, result);
  layout_set(made_value(order, c), order->want[op->out],
             order_stored(order->r.from, op->out) ? (Pad){0} : order->pad);
  order->r.map[op->out] = c;
}

/* ---- ops ---- */

static void order_view(Order *order, const Op *op) {
  Value probe[1] = {order->r.from->values.at[op->out]};
  Op mapped = *op;
  mapped.in = &order->r.map[op->in[0]];
  if (!layout_view(order->r.to, &mapped, 0, probe)) {
    copy_view(order, op);
    return;
  }
  const Op *c = rebuild_op(&order->r, op);
  for (uint32_t i = 0; i < c->nout; i++)
    layout_view(order->r.to, c, i, made_value(order, c->out + i));
}

/* Results whose layout a caller has set keep it. */
static void order_kernel(Order *order, const Op *op) {
  const Op *c = rebuild_op(&order->r, op);
  for (uint32_t i = 0; i < c->nout; i++) {
    const Value *asked = &order->r.from->values.at[op->out + i];
    if (asked->storage.ordered) continue;
    Pad pad = order_stored(order->r.from, op->out + i) ? (Pad){0} : order->pad;
    layout_set(made_value(order, c->out + i), order->want[op->out + i], pad);
  }
}

/* The layout of a stacked value whose slices have the layout of `slice`. */
static Value stack_of(const Order *order, const Value *slice, Axis axis) {
  must(slice->type.rank < MAX_RANK, "order: a stack of values of %d dims", slice->type.rank);
  must(slice->storage.ordered, "order: a stack over %s of slices without strides", axis.dim);
  Type t = {.elem = slice->type.elem, .rank = 1, .axis = {axis}, .tier = slice->type.tier};
  for (int k = 0; k < slice->type.rank; k++) t.axis[t.rank++] = slice->type.axis[k];
  Value v = padded_value(order, &t), alone = padded_value(order, &slice->type);
  if (layout_same(&alone, slice)) return v;
  v.storage.stride[0] = slice->type.rank ? slice->storage.stride[0] * slice->type.axis[0].size : 1;
  for (int k = 0; k < slice->type.rank; k++) v.storage.stride[k + 1] = slice->storage.stride[k];
  return v;
}

static Axis stack_axis(const Value *stack, const LoopShape *shape) {
  return (Axis){shape->axis.dim, type_size(&stack->type, shape->axis.dim)};
}

/* A stack that a result continues takes the layout of that result, if other loops have asked for
   it: else the result takes the layout of the stack. */
static ValueId continued_operand(Order *order, Fn *body, const Op *op, uint32_t i, ValueId v,
                                 const LoopShape *shape) {
  for (uint32_t k = shape->carry; k < op->nout; k++) {
    const Value *result = &body->values.at[body->results.at[k]], *have = made_value(order, v);
    if (loop_continues(op, k) != i || !result->storage.ordered || module_calls(order->m, body) == 1)
      continue;
    Value wanted = stack_of(order, result, stack_axis(have, shape));
    return bring(order, v, &wanted);
  }
  return v;
}

static void continued_results(const Order *order, const Op *made, Fn *body,
                              const LoopShape *shape) {
  bool once = module_calls(order->m, body) == 1;
  for (uint32_t k = shape->carry; k < made->nout; k++) {
    uint32_t on = loop_continues(made, k);
    if (on == NO_VALUE) continue;
    const Value *arg = &body->values.at[body->args.at[on + 1]];
    Value *v = &body->values.at[body->results.at[k]];
    if (v->def == NO_OP || (v->storage.ordered && !once)) continue;
    v->type = layout_permuted(&v->type, &arg->type), v->storage = arg->storage;
  }
}

/* The first caller of a body determines the layout of its arguments; others copy values with
   another layout. Carried values need a buffer of their own layout, not a view's. */
static ValueId loop_operand(Order *order, Fn *body, uint32_t i, ValueId v, const LoopShape *shape) {
  Value *arg = &body->values.at[body->args.at[i + 1]];
  bool stacked = i >= shape->carry + shape->invariant;
  const Value *have = made_value(order, v);
  if (arg->storage.ordered) {
    Value wanted = stacked ? stack_of(order, arg, stack_axis(have, shape)) : *arg;
    Type slice = stacked ? type_without(&have->type, &shape->axis.dim, 1) : have->type;
    Value probe = {.type = slice, .storage = {.ordered = true}};
    for (int k = 0; k < slice.rank; k++)
      probe.storage.stride[k] = have->storage.stride[type_find(&have->type, slice.axis[k].dim)];
    return type_equal(&slice, &arg->type) && layout_same(&probe, arg) ? v
                                                                      : bring(order, v, &wanted);
  }
  if (i < shape->carry && have->storage.view == VIEW_OF && !layout_is_dense(have)) {
    Value wanted = padded_value(order, &have->type);
    v = bring(order, v, &wanted), have = made_value(order, v);
  }
  Type slice = stacked ? type_without(&have->type, &shape->axis.dim, 1) : have->type;
  arg->type = type_with_elem(slice, arg->type.elem), arg->storage = (Storage){.ordered = true};
  for (int k = 0; k < slice.rank; k++)
    arg->storage.stride[k] = have->storage.stride[type_find(&have->type, slice.axis[k].dim)];
  return v;
}

static void carried_results(Fn *body, uint32_t carry) {
  for (uint32_t i = 0; i < carry; i++) {
    const Value *arg = &body->values.at[body->args.at[i + 1]];
    Value *v = &body->values.at[body->results.at[i]];
    if (v->def != NO_OP) v->type = layout_permuted(&v->type, &arg->type), v->storage = arg->storage;
  }
}

static Value loop_result(const Order *order, const Fn *body, uint32_t i, const LoopShape *shape,
                         bool stored) {
  Value v = body->values.at[body->results.at[i]];
  if (!v.storage.ordered) v.storage = layout_padded(&v.type, stored ? (Pad){0} : order->pad);
  v.storage.view = VIEW_NONE;
  if (i < shape->carry) return v;
  Value whole = stack_of(order, &v, loop_axis(shape, i));
  if (stored && layout_is_dense(&v)) whole.storage = layout_dense(&whole.type);
  return whole;
}

static void order_loop(Order *order, const Op *op) {
  LoopShape shape = loop_shape(op);
  ValueId *in = ARENA_ARRAY(order->m->arena, ValueId, op->nin + 1);
  for (uint32_t i = 0; i < op->nin; i++) {
    ValueId v = continued_operand(order, op->callee, op, i, order->r.map[op->in[i]], &shape);
    in[i] = loop_operand(order, op->callee, i, v, &shape);
  }
  carried_results(op->callee, shape.carry);
  continued_results(order, op, op->callee, &shape);
  Op *c = rebuild_op(&order->r, op);
  memcpy(c->in, in, op->nin * sizeof *in);
  for (uint32_t i = 0; i < c->nout; i++) {
    Value whole =
        loop_result(order, op->callee, i, &shape, order_stored(order->r.from, op->out + i));
    made_value(order, c->out + i)->type = whole.type,
                               made_value(order, c->out + i)->storage = whole.storage;
  }
}

static void order_global(Order *order, const Op *op) {
  if (op->code == OP_load) {
    const Op *c = rebuild_op(&order->r, op);
    layout_set(made_value(order, c->out), NULL, (Pad){0});
    return;
  }
  ValueId *at = &order->r.map[op->in[0]], old = *at;
  Value declared = dense_value(&op->global->type);
  *at = bring(order, old, &declared);
  rebuild_op(&order->r, op);
  *at = old;
}

/* t with its dims in the order of those of `order`, whose sizes may be others. */
static Type in_order_of(const Type *t, const Type *order) {
  Type r = {.elem = t->elem, .rank = t->rank, .tier = t->tier};
  for (int i = 0; i < t->rank; i++)
    r.axis[i] = (Axis){order->axis[i].dim, type_size(t, order->axis[i].dim)};
  return r;
}

/* Is the other side of this message in another program? Then both send in the order of the
   program from which these were made, which is that of the result's type. */
static bool is_of_classes(const Op *op) {
  return op_is_p2p(op->code) || attr_get(&op->attrs, ATTR_keep_alive);
}

/* The dims of a collective's operand in the order in which they are sent: the order that a caller
   asked for, or the operand's. A message between classes has the order of the program: the other
   rank knows no other, and callers have already set the order of arguments. A value that a function
   returns from the other tier is put in order before it is copied, in the tier that has kernels. */
static Type order_sent(const Order *order, const Op *op) {
  const Value *asked = &order->r.from->values.at[op->out];
  const Type *in = value_type(order->r.to, order->r.map[op->in[0]]);
  if (is_of_classes(op)) return in_order_of(in, &order->hops[op - order->r.from->ops.at]);
  bool returned = op->code == OP_move && value_is_result(order->r.from, op->out);
  return returned || asked->storage.ordered ? in_order_of(in, &asked->type) : *in;
}

/* An op without operands: all of its data comes from other ranks. */
static void order_received(Order *order, const Op *op) {
  const Value *asked = &order->r.from->values.at[op->out];
  const Type *type = &order->hops[op - order->r.from->ops.at];
  Value *v = made_value(order, rebuild_op(&order->r, op)->out);
  v->type = *type, v->storage = layout_dense(type);
  if (asked->storage.ordered) order->r.map[op->out] = bring(order, order->r.map[op->out], asked);
}

static void order_collective(Order *order, const Op *op) {
  if (!op->nin) {
    order_received(order, op);
    return;
  }
  must(op->nin == 1 && op->nout == 1, "%s of %u operands", op_name(op->code), op->nin);
  const Value *asked = &order->r.from->values.at[op->out];
  Type send = order_sent(order, op), receive = in_order_of(&asked->type, &send);
  Value dense = dense_value(&send);
  ValueId in = bring(order, order->r.map[op->in[0]], &dense);
  Op *c = rebuild_op(&order->r, op);
  c->in[0] = in;
  Value *v = made_value(order, c->out);
  v->type = receive, v->storage = layout_dense(&receive);
  if (is_of_classes(op) && asked->storage.ordered)
    order->r.map[op->out] = bring(order, c->out, asked);
}

/* Is operand k the one that is read of all that an op makes in a buffer of its own? */
static bool may_lay(Order *order, const Op *op, uint32_t k) {
  const Fn *f = order->r.from;
  ValueId v = op->in[k];
  const Op *def = value_def(f, v);
  for (; def && value_uses(f, v) == 1 && op_flags(def->code) & VIEW; def = value_def(f, v))
    v = def->in[0];
  if (!def || value_uses(f, v) != 1 || !order_owns(def)) return false;
  ValueId have = order->r.map[op->in[k]], root = view_root(order->r.to, have);
  const Op *made = value_def(order->r.to, root);
  return made && order_owns(made) && made_value(order, have)->storage.offset == 0 &&
         value_span_bytes(made_value(order, root)) == value_span_bytes(made_value(order, have));
}

/* Does v have the layout of t, ignoring dims of one element? */
static bool lies_as(Order *order, ValueId v, const Type *t) {
  const Type *have = value_type(order->r.to, v);
  int i = 0, k = 0;
  for (;; i++, k++) {
    while (i < have->rank && have->axis[i].size == 1) i++;
    while (k < t->rank && t->axis[k].size == 1) k++;
    if (i == have->rank || k == t->rank) break;
    if (have->axis[i].dim != t->axis[k].dim) return false;
  }
  return i == have->rank && k == t->rank && layout_is_dense(made_value(order, v));
}

/* The operands of a concat that is laid: each dense, the joined dim in front. */
static void order_concat(Order *order, const Op *op) {
  const Group *group = &op->group[0];
  const Type *own = &order->r.from->values.at[op->out].type;
  Type all = type_without(own, group->to, 1);
  memmove(&all.axis[1], all.axis, sizeof *all.axis * (size_t)all.rank++);
  all.axis[0] = own->axis[type_find(own, group->to[0])];
  ValueId *in = ARENA_ARRAY(order->m->arena, ValueId, op->nin + 1);
  for (uint32_t k = 0; k < op->nin; k++) {
    in[k] = order->r.map[op->in[k]];
    Type part = all;
    part.axis[0] =
        (Axis){group->from[k], type_size(value_type(order->r.to, in[k]), group->from[k])};
    Value dense = dense_value(&part);
    ValueId v = lies_as(order, in[k], &part) ? in[k] : bring(order, in[k], &dense);
    in[k] = v != in[k] || may_lay(order, op, k) ? v : copy_as(order, v, &dense);
  }
  Op *c = rebuild_op(&order->r, op);
  memcpy(c->in, in, op->nin * sizeof *in);
  Value *v = made_value(order, c->out);
  v->type = all, v->storage = layout_dense(&all), v->storage.view = VIEW_ASSEMBLED;
}

static void order_op(Order *order, const Op *op) {
  if (op->code == OP_kernel) order_kernel(order, op);
  else if (op->code == OP_loop) order_loop(order, op);
  else if (op_between_buffers(op->code)) order_collective(order, op);
  else if (op->code == OP_concat) order_concat(order, op);
  else if (op_flags(op->code) & VIEW) order_view(order, op);
  else if (op_family(op->code) == FAMILY_GLOBAL) order_global(order, op);
  else bug("order: a %s op outside of kernels in %s", op_name(op->code), order->r.from->name);
}

static void order_args(Order *order) {
  const Fn *f = order->r.from;
  for (uint32_t i = 0; i < f->args.n; i++) {
    Value *to = made_value(order, order->r.map[f->args.at[i]]);
    const Value *from = &f->values.at[f->args.at[i]];
    to->type = from->type;
    to->storage = from->storage.ordered ? from->storage : layout_dense(&to->type);
  }
}

static ValueId order_result(Order *order, ValueId result) {
  const Value *asked = &order->r.from->values.at[result];
  Value wanted = asked->storage.ordered ? *asked : padded_value(order, &asked->type);
  return bring(order, order->r.map[result], &wanted);
}

static const Type *hops_of(Module *m, const Fn *f) {
  Type *hops = ARENA_ARRAY(m->arena, Type, f->ops.n + 1);
  for (OpId i = 0; i < f->ops.n; i++)
    if (is_of_classes(&f->ops.at[i])) hops[i] = *value_type(f, f->ops.at[i].out);
  return hops;
}

static Fn *order_function(Module *m, Fn *f, const Type *hops, FnVec *made) {
  must(f->kind != FN_KERNEL, "order: kernel %s is ordered with its caller", f->name);
  Order order = {.m = m,
                 .r = rebuild_begin(m, f),
                 .want = order_preferences(m, f),
                 .hops = hops,
                 .made = made,
                 .pad = layout_pad(m)};
  order_args(&order);
  for (OpId i = 0; i < f->ops.n; i++) order_op(&order, &f->ops.at[i]);
  for (uint32_t i = 0; i < f->results.n; i++)
    fn_result(m, order.r.to, order_result(&order, f->results.at[i]));
  return order.r.to;
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

/* May result i be returned unchanged, without a copy? */
static bool may_return(const Fn *f, uint32_t i, uint32_t carry) {
  ValueId v = f->results.at[i];
  const Op *o = value_def(f, v);
  if (returned_before(f, i)) return false;
  if (o) return order_owns(o);
  uint32_t arg = f->values.at[v].result;
  return i >= carry && arg >= 1 && arg <= carry;
}

static void own_results(Module *m, Fn *f, FnVec *made) {
  uint32_t carry = order_carry(m, f);
  Order order = {.m = m, .r = {.m = m, .from = f, .to = f}, .made = made, .copies = 1000};
  for (uint32_t i = 0; i < f->results.n; i++)
    if (!may_return(f, i, carry)) {
      Value dense = dense_value(value_type(f, f->results.at[i]));
      ValueId c = copy_as(&order, f->results.at[i], &dense);
      f->values.at[c].storage = (Storage){0};
      f->results.at[i] = c;
    }
}

/* ---- kernel functions ---- */

static void give_layout(Fn *k, ValueId to, const Value *from) {
  must(from->storage.ordered, "a buffer of kernel %s has no layout", k->name);
  Value *v = &k->values.at[to];
  v->type = layout_permuted(&v->type, &from->type);
  v->storage = (Storage){.ordered = true};
  memcpy(v->storage.stride, from->storage.stride, sizeof v->storage.stride);
}

static void layouts_into_kernels(Fn *f) {
  EACH_OP (f, o) {
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

/* Only in IR by hand: they would get no layout. */
static void drop_uncalled(Module *m) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *f = m->fns.at[i];
    if (f->kind != FN_KERNEL || module_calls(m, f)) m->fns.at[n++] = f;
  }
  m->fns.n = n;
}

/* Values that are kept as codes: which, then one kernel for those in two orders. */
static void keep_codes(Module *m) {
  FnVec todo = {0};
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL) vec_push(m->arena, todo, m->fns.at[i]);
  for (uint32_t i = 0; i < todo.n; i++) order_codes(m, todo.at[i]);
  order_warn_codes(m);
  for (uint32_t i = 0; i < todo.n; i++) {
    FnVec made = {0};
    Fn *with = order_turned(m, todo.at[i], &made);
    if (!with) continue;
    module_replace(m, todo.at[i], with);
    put_before(m, with, &made);
    layouts_into_kernels(with);
  }
  drop_uncalled(m);
}

void pass_order(Module *m) {
  drop_uncalled(m);
  order_results(m);
  VEC(Fn *) todo = {0};
  VEC(const Type *) hops = {0};
  for (uint32_t i = m->fns.n; i-- > 0;)
    if (m->fns.at[i]->kind != FN_KERNEL) vec_push(m->arena, todo, m->fns.at[i]);
  for (uint32_t i = 0; i < todo.n; i++) {
    FnVec made = {0};
    if (todo.at[i]->kind == FN_BODY) own_results(m, todo.at[i], &made);
    put_before(m, todo.at[i], &made);
    vec_push(m->arena, hops, hops_of(m, todo.at[i]));
  }
  for (uint32_t i = 0; i < todo.n; i++) {
    FnVec made = {0};
    Fn *with = order_function(m, todo.at[i], hops.at[i], &made);
    module_replace(m, todo.at[i], with);
    put_before(m, with, &made);
    layouts_into_kernels(with);
  }
  keep_codes(m);
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL) order_inplace(m, m->fns.at[i]);
}
