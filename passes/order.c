/* order: where the elements of every value outside kernels lie: storage order, strides, views,
   in-place results.

   Storage order is the natural one (results of a contraction: first the operand's dims, then the
   other's) unless users prefer another (order_preferences.c). Callers come before their bodies, so
   a body's arguments have the strides of what it is called with. Views get strides and an offset;
   where no strides exist (a merge of dims that are apart) a kernel copies. A body returns distinct
   values made by its own kernels or loops; the one exception is a carried argument that is saved
   round by round: the saved slices then are the carried buffers. Last, kernel functions get the
   layout of the buffers that they are called with, so that each says everything about its memory.
   */
#include "ir/bytes.h"
#include "passes/order.h"

typedef struct Order {
  Module *m;
  Rebuild r;
  const Type **want; /* by ValueId of r.from */
  Pad pad;
  FnVec *made; /* copy kernels, to be placed before the function */
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

/* A copy of v with this layout. */
static ValueId copy_as(Order *o, ValueId v, const Value *layout) {
  Type own = *value_type(o->r.to, v);
  Fn *k = kernel_of_op(o, o->r.to, &(Op){0}, "copy");
  ValueId a = fn_arg(o->m, k, own);
  fn_result(o->m, k, fn_op(o->m, k, OP_copy, 1, &a, 1, &own, k->loc)->out);
  ValueId c = call_kernel(o, k, v, own);
  made_value(o, c)->type = layout_permuted(&own, &layout->type);
  made_value(o, c)->storage = layout->storage;
  return c;
}

static Value padded_value(const Order *o, const Type *t) {
  return (Value){.type = *t, .storage = layout_padded(t, o->pad)};
}

static Value dense_value(const Type *t) { return (Value){.type = *t, .storage = layout_dense(t)}; }

/* v itself if it lies as wanted, else a copy. */
static ValueId bring(Order *o, ValueId v, const Value *layout) {
  Value wanted = *layout;
  memset(&wanted.storage, 0, sizeof wanted.storage), wanted.storage.ordered = true;
  memcpy(wanted.storage.stride, layout->storage.stride, sizeof wanted.storage.stride);
  const Value *have = made_value(o, v);
  return type_equal(&have->type, &wanted.type) && layout_same(have, &wanted)
             ? v
             : copy_as(o, v, &wanted);
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
  layout_set(made_value(o, c), o->want[op->out],
             order_stored(o->r.from, op->out) ? (Pad){0} : o->pad);
  o->r.map[op->out] = c;
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

/* Results that a caller asked for have their layout already. */
static void order_kernel(Order *o, const Op *op) {
  const Op *c = rebuild_op(&o->r, op);
  for (uint32_t i = 0; i < c->nout; i++) {
    const Value *asked = &o->r.from->values.at[op->out + i];
    if (asked->storage.ordered) continue;
    Pad pad = order_stored(o->r.from, op->out + i) ? (Pad){0} : o->pad;
    layout_set(made_value(o, c->out + i), o->want[op->out + i], pad);
  }
}

/* The layout of a stacked value whose slices lie like `slice`. */
static Value stack_of(const Order *o, const Value *slice, Axis axis) {
  must(slice->type.rank < MAX_RANK, "order: a stack of values of %d dims", slice->type.rank);
  must(slice->storage.ordered, "order: a stack over %s of slices without strides", axis.dim);
  Type t = {.elem = slice->type.elem, .rank = 1, .axis = {axis}, .tier = slice->type.tier};
  for (int k = 0; k < slice->type.rank; k++) t.axis[t.rank++] = slice->type.axis[k];
  Value v = padded_value(o, &t), alone = padded_value(o, &slice->type);
  if (layout_same(&alone, slice)) return v;
  v.storage.stride[0] = slice->type.rank ? slice->storage.stride[0] * slice->type.axis[0].size : 1;
  for (int k = 0; k < slice->type.rank; k++) v.storage.stride[k + 1] = slice->storage.stride[k];
  return v;
}

static Axis stack_axis(const Value *stack, const LoopShape *s) {
  return (Axis){s->axis.dim, type_size(&stack->type, s->axis.dim)};
}

static bool called_once(const Order *o, const Fn *body) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < o->m->fns.n; i++)
    for (OpId k = 0; k < o->m->fns.at[i]->ops.n; k++)
      n += o->m->fns.at[i]->ops.at[k].callee == body;
  return n == 1;
}

/* A stack that a result continues lies as that result does, if other loops have asked for that:
   else the result lies as the stack. */
static ValueId continued_operand(Order *o, Fn *body, const Op *op, uint32_t i, ValueId v,
                                 const LoopShape *s) {
  for (uint32_t k = s->carry; k < op->nout; k++) {
    const Value *result = &body->values.at[body->results.at[k]], *have = made_value(o, v);
    if (loop_continues(op, k) != i || !result->storage.ordered || called_once(o, body)) continue;
    Value wanted = stack_of(o, result, stack_axis(have, s));
    return bring(o, v, &wanted);
  }
  return v;
}

static void continued_results(const Order *o, const Op *made, Fn *body, const LoopShape *s) {
  bool once = called_once(o, body);
  for (uint32_t k = s->carry; k < made->nout; k++) {
    uint32_t on = loop_continues(made, k);
    if (on == NO_VALUE) continue;
    const Value *arg = &body->values.at[body->args.at[on + 1]];
    Value *v = &body->values.at[body->results.at[k]];
    if (v->def == NO_OP || (v->storage.ordered && !once)) continue;
    v->type = layout_permuted(&v->type, &arg->type), v->storage = arg->storage;
  }
}

/* The first caller of a body says how its arguments lie; others copy what lies otherwise. Carried
   values need a buffer of their own layout, not a view's. */
static ValueId loop_operand(Order *o, Fn *body, uint32_t i, ValueId v, const LoopShape *s) {
  Value *arg = &body->values.at[body->args.at[i + 1]];
  bool stacked = i >= s->carry + s->invariant;
  const Value *have = made_value(o, v);
  if (arg->storage.ordered) {
    Value wanted = stacked ? stack_of(o, arg, stack_axis(have, s)) : *arg;
    Type slice = stacked ? type_without(&have->type, &s->axis.dim, 1) : have->type;
    Value probe = {.type = slice, .storage = {.ordered = true}};
    for (int k = 0; k < slice.rank; k++)
      probe.storage.stride[k] = have->storage.stride[type_find(&have->type, slice.axis[k].dim)];
    return type_equal(&slice, &arg->type) && layout_same(&probe, arg) ? v : bring(o, v, &wanted);
  }
  if (i < s->carry && have->storage.view == VIEW_OF && !layout_is_dense(have)) {
    Value wanted = padded_value(o, &have->type);
    v = bring(o, v, &wanted), have = made_value(o, v);
  }
  Type slice = stacked ? type_without(&have->type, &s->axis.dim, 1) : have->type;
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

static Value loop_result(const Order *o, const Fn *body, uint32_t i, const LoopShape *s,
                         bool stored) {
  Value v = body->values.at[body->results.at[i]];
  if (!v.storage.ordered) v.storage = layout_padded(&v.type, stored ? (Pad){0} : o->pad);
  v.storage.view = VIEW_NONE;
  if (i < s->carry) return v;
  Value whole = stack_of(o, &v, loop_axis(s, i));
  if (stored && layout_is_dense(&v)) whole.storage = layout_dense(&whole.type);
  return whole;
}

static void order_loop(Order *o, const Op *op) {
  LoopShape s = loop_shape(op);
  ValueId *in = ARENA_ARRAY(o->m->arena, ValueId, op->nin + 1);
  for (uint32_t i = 0; i < op->nin; i++) {
    ValueId v = continued_operand(o, op->callee, op, i, o->r.map[op->in[i]], &s);
    in[i] = loop_operand(o, op->callee, i, v, &s);
  }
  carried_results(op->callee, s.carry);
  continued_results(o, op, op->callee, &s);
  Op *c = rebuild_op(&o->r, op);
  memcpy(c->in, in, op->nin * sizeof *in);
  for (uint32_t i = 0; i < c->nout; i++) {
    Value whole = loop_result(o, op->callee, i, &s, order_stored(o->r.from, op->out + i));
    made_value(o, c->out + i)->type = whole.type,
                           made_value(o, c->out + i)->storage = whole.storage;
  }
}

static void order_global(Order *o, const Op *op) {
  if (op->code == OP_load) {
    const Op *c = rebuild_op(&o->r, op);
    layout_set(made_value(o, c->out), NULL, (Pad){0});
    return;
  }
  ValueId *at = &o->r.map[op->in[0]], old = *at;
  Value declared = dense_value(&op->global->type);
  *at = bring(o, old, &declared);
  rebuild_op(&o->r, op);
  *at = old;
}

/* t with its dims in the order of those of `order`, whose sizes may be others. */
static Type in_order_of(const Type *t, const Type *order) {
  Type r = {.elem = t->elem, .rank = t->rank, .tier = t->tier};
  for (int i = 0; i < t->rank; i++)
    r.axis[i] = (Axis){order->axis[i].dim, type_size(t, order->axis[i].dim)};
  return r;
}

/* The dims of a collective's operand in the order in which they travel: the one that a caller asked
   for, or the operand's. A hop has the order of the program: the other rank knows no other. */
static Type order_sent(const Order *o, const Op *op) {
  const Value *asked = &o->r.from->values.at[op->out];
  const Type *in = value_type(o->r.to, o->r.map[op->in[0]]);
  if (op->code == OP_send) return *value_type(o->r.from, op->in[0]);
  if (op->code == OP_receive) return asked->type;
  return asked->storage.ordered ? in_order_of(in, &asked->type) : *in;
}

/* What comes from others alone. */
static void order_received(Order *o, const Op *op) {
  const Value *asked = &o->r.from->values.at[op->out];
  Value *v = made_value(o, rebuild_op(&o->r, op)->out);
  v->type = asked->type, v->storage = layout_dense(&asked->type);
  if (asked->storage.ordered) o->r.map[op->out] = bring(o, o->r.map[op->out], asked);
}

static void order_collective(Order *o, const Op *op) {
  if (!op->nin) {
    order_received(o, op);
    return;
  }
  must(op->nin == 1 && op->nout == 1, "%s of %u operands", op_name(op->code), op->nin);
  const Value *asked = &o->r.from->values.at[op->out];
  Type send = order_sent(o, op), receive = in_order_of(&asked->type, &send);
  Value dense = dense_value(&send);
  ValueId in = bring(o, o->r.map[op->in[0]], &dense);
  Op *c = rebuild_op(&o->r, op);
  c->in[0] = in;
  Value *v = made_value(o, c->out);
  v->type = receive, v->storage = layout_dense(&receive);
  if (op_is_hop(op->code) && asked->storage.ordered) o->r.map[op->out] = bring(o, c->out, asked);
}

/* Is operand k the one that is read of all that an op makes in a buffer of its own? */
static bool may_lay(Order *o, const Op *op, uint32_t k) {
  const Fn *f = o->r.from;
  ValueId v = op->in[k];
  const Op *def = value_def(f, v);
  for (; def && value_uses(f, v) == 1 && op_flags(def->code) & VIEW; def = value_def(f, v))
    v = def->in[0];
  if (!def || value_uses(f, v) != 1 || !order_owns(def)) return false;
  ValueId have = o->r.map[op->in[k]], root = view_root(o->r.to, have);
  const Op *made = value_def(o->r.to, root);
  return made && order_owns(made) && made_value(o, have)->storage.offset == 0 &&
         value_span_bytes(made_value(o, root)) == value_span_bytes(made_value(o, have));
}

/* Does v lie like that, but for dims of one element? */
static bool lies_as(Order *o, ValueId v, const Type *t) {
  const Type *have = value_type(o->r.to, v);
  int i = 0, k = 0;
  for (;; i++, k++) {
    while (i < have->rank && have->axis[i].size == 1) i++;
    while (k < t->rank && t->axis[k].size == 1) k++;
    if (i == have->rank || k == t->rank) break;
    if (have->axis[i].dim != t->axis[k].dim) return false;
  }
  return i == have->rank && k == t->rank && layout_is_dense(made_value(o, v));
}

/* The operands of a concat that is laid: each dense, the joined dim in front. */
static void order_concat(Order *o, const Op *op) {
  const Group *g = &op->group[0];
  const Type *own = &o->r.from->values.at[op->out].type;
  Type all = type_without(own, g->to, 1);
  memmove(&all.axis[1], all.axis, sizeof *all.axis * (size_t)all.rank++);
  all.axis[0] = own->axis[type_find(own, g->to[0])];
  ValueId *in = ARENA_ARRAY(o->m->arena, ValueId, op->nin + 1);
  for (uint32_t k = 0; k < op->nin; k++) {
    in[k] = o->r.map[op->in[k]];
    Type part = all;
    part.axis[0] = (Axis){g->from[k], type_size(value_type(o->r.to, in[k]), g->from[k])};
    Value dense = dense_value(&part);
    ValueId v = lies_as(o, in[k], &part) ? in[k] : bring(o, in[k], &dense);
    in[k] = v != in[k] || may_lay(o, op, k) ? v : copy_as(o, v, &dense);
  }
  Op *c = rebuild_op(&o->r, op);
  memcpy(c->in, in, op->nin * sizeof *in);
  Value *v = made_value(o, c->out);
  v->type = all, v->storage = layout_dense(&all), v->storage.view = VIEW_LAID;
}

static void order_op(Order *o, const Op *op) {
  if (op->code == OP_kernel) order_kernel(o, op);
  else if (op->code == OP_loop) order_loop(o, op);
  else if (op_between_buffers(op->code)) order_collective(o, op);
  else if (op->code == OP_concat) order_concat(o, op);
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

static ValueId order_result(Order *o, ValueId result) {
  const Value *asked = &o->r.from->values.at[result];
  Value wanted = asked->storage.ordered ? *asked : padded_value(o, &asked->type);
  return bring(o, o->r.map[result], &wanted);
}

static Fn *order_function(Module *m, Fn *f, FnVec *made) {
  must(f->kind != FN_KERNEL, "order: kernel %s is ordered with its caller", f->name);
  Order o = {.m = m,
             .r = rebuild_begin(m, f),
             .want = order_preferences(m, f),
             .made = made,
             .pad = layout_pad(m)};
  order_args(&o);
  for (OpId i = 0; i < f->ops.n; i++) order_op(&o, &f->ops.at[i]);
  for (uint32_t i = 0; i < f->results.n; i++)
    fn_result(m, o.r.to, order_result(&o, f->results.at[i]));
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
  if (o) return order_owns(o);
  uint32_t arg = f->values.at[v].result;
  return i >= carry && arg >= 1 && arg <= carry;
}

static void own_results(Module *m, Fn *f, FnVec *made) {
  uint32_t carry = order_carry(m, f);
  Order o = {.m = m, .r = {.m = m, .from = f, .to = f}, .made = made, .copies = 1000};
  for (uint32_t i = 0; i < f->results.n; i++)
    if (!may_return(f, i, carry)) {
      Value dense = dense_value(value_type(f, f->results.at[i]));
      ValueId c = copy_as(&o, f->results.at[i], &dense);
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
