/* order, phase 2: layout preferences, propagated backwards from stores, callers first. A stored
   value prefers the declared order of its global, the operands and results of an element-wise
   kernel prefer one common order, a value made in a loop prefers the order of the loop's result.
   Kernels can write any order at little cost; the costly case is reading a large operand across
   its order. */
#include "order.h"

static void prefer(Module *m, const Type **want, ValueId v, const Type *own, const Type *order) {
  if (want[v] || !type_same_dims(own, order)) return;
  Type *t = ARENA_NEW(m->arena, Type);
  *t = *order;
  want[v] = t;
}

static const Type *own_order(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  bool fixed = f->values.at[v].storage.ordered || (o && o->code == OP_load);
  return fixed ? value_type(f, v) : NULL;
}

/* The order that an element-wise kernel works in: the preferred order of a result, else the given
   order of an operand. */
static const Type *common_order(const Fn *f, const Op *o, const Type **want) {
  for (uint32_t i = 0; i < o->nout; i++)
    if (want[o->out + i]) return want[o->out + i];
  for (uint32_t i = 0; i < o->nin; i++) {
    const Type *t = own_order(f, o->in[i]);
    if (t && o->nout && type_same_dims(t, value_type(f, o->out))) return t;
  }
  return NULL;
}

static void prefer_kernel(Module *m, const Fn *f, const Op *o, const Type **want) {
  if (strcmp(attr_str(&o->callee->attrs, ATTR_family, ""), "elem")) return;
  const Type *order = common_order(f, o, want);
  if (!order) return;
  for (uint32_t i = 0; i < o->nin; i++) prefer(m, want, o->in[i], value_type(f, o->in[i]), order);
  for (uint32_t i = 0; i < o->nout; i++)
    prefer(m, want, o->out + i, value_type(f, o->out + i), order);
}

const Op *order_dot_of(const Fn *kernel) {
  EACH_OP (kernel, o)
    if (o->code == OP_dot) return o;
  return NULL;
}

/* t with the dims over which the dot sums last, if others are between them and one of them is last
   already; else NULL: kernels write neighbours of a result together. */
static const Type *summed_last(Module *m, const Op *dot, const Type *t) {
  Type *order = ARENA_NEW(m->arena, Type);
  int runs = 0;
  if (!t->rank || !op_lists(dot, t->axis[t->rank - 1].dim)) return NULL;
  *order = *t, order->rank = 0;
  for (int last = 0; last < 2; last++)
    for (int i = 0; i < t->rank; i++) {
      bool sums = op_lists(dot, t->axis[i].dim);
      if (sums == last) order->axis[order->rank++] = t->axis[i];
      if (last && sums) runs += !i || !op_lists(dot, t->axis[i - 1].dim);
    }
  return runs > 1 ? order : NULL;
}

/* A processor's product over several dims that are neighbours in both operands is one over a single
   dim, whose panels are packed while others are multiplied (product_sliced). The gradient of a
   stack of queries, keys and values is made with the stacked dim first, which no product wants:
   dims that are summed together come last. */
static void prefer_product(Module *m, const Fn *f, const Op *o, const Type **want) {
  const Fn *k = o->callee;
  const Op *dot = order_dot_of(k);
  if (module_on_gpu(m) || !dot) return;
  for (uint32_t i = 0; i < o->nin; i++) {
    const Op *def = value_def(f, o->in[i]);
    bool factor = dot->in[0] == k->args.at[i] || dot->in[1] == k->args.at[i];
    if (!factor || !def || def->code != OP_kernel || order_dot_of(def->callee)) continue;
    const Type *order = summed_last(m, dot, value_type(f, o->in[i]));
    if (order) prefer(m, want, o->in[i], value_type(f, o->in[i]), order);
  }
}

/* The result of loop o that continues v, or NO_VALUE. */
static ValueId continued(const Op *o, ValueId v) {
  for (uint32_t i = 0; o->code == OP_loop && i < o->nout; i++)
    if (loop_continues(o, i) != NO_VALUE && o->in[loop_continues(o, i)] == v) return o->out + i;
  return NO_VALUE;
}

/* Is v, or a view of it, laid into a concat? */
static bool is_laid(const Fn *f, ValueId v) {
  EACH_OP (f, o) {
    for (uint32_t k = 0; k < o->nin; k++) {
      bool view = op_flags(o->code) & VIEW && o->nout == 1;
      if (o->in[k] == v && (o->code == OP_concat || (view && is_laid(f, o->out)))) return true;
    }
  }
  return false;
}

bool order_stored(const Fn *f, ValueId v) {
  if (is_laid(f, v)) return true;
  for (OpId i = 0; i < f->ops.n; i++) {
    ValueId next = continued(&f->ops.at[i], v);
    if (next != NO_VALUE && order_stored(f, next)) return true;
  }
  for (OpId i = 0; i < f->ops.n; i++)
    if ((f->ops.at[i].code == OP_store || op_between_buffers(f->ops.at[i].code)) &&
        f->ops.at[i].in[0] == v)
      return true;
  return false;
}

/* The loop stacks slices in front, whatever is wished: only the order inside a slice can be chosen.
 */
static void order_result(Fn *body, uint32_t i, const Type *stacked, Str dim, Pad pad) {
  Value *v = &body->values.at[body->results.at[i]];
  if (v->storage.ordered) return;
  Type slice = stacked ? type_without(stacked, &dim, 1) : v->type;
  layout_set(v, &slice, pad);
}

static void prefer_loop(Module *m, const Fn *f, const Op *o, const Type **want) {
  LoopShape shape = loop_shape(o);
  for (uint32_t i = shape.carry; i < o->nout; i++) {
    const Op *def = value_def(o->callee, o->callee->results.at[i]);
    Pad pad = order_stored(f, o->out + i) ? (Pad){0} : layout_pad(m);
    if (def && def->code == OP_kernel)
      order_result(o->callee, i, want[o->out + i], shape.axis.dim, pad);
    uint32_t on = loop_continues(o, i);
    if (on != NO_VALUE && want[o->out + i])
      prefer(m, want, o->in[on], value_type(f, o->in[on]), want[o->out + i]);
  }
  for (uint32_t i = 0; i < shape.carry; i++)
    if (want[o->out + i]) prefer(m, want, o->in[i], value_type(f, o->in[i]), want[o->out + i]);
}

/* An op's operand has these dims in this order, if its result is dense in the order of t. */
static bool unmapped(const Op *o, const Type *operand, Type *t) {
  Type r = {.elem = t->elem, .tier = t->tier};
  for (int i = 0; i < t->rank; i++) {
    const Group *group = NULL;
    for (int k = 0; k < o->ngroups && !group; k++)
      for (int d = 0; d < o->group[k].nto; d++)
        if (o->group[k].to[d] == t->axis[i].dim) group = &o->group[k];
    for (int d = 0; group && d < group->nto; d++)
      if (i + d >= t->rank || t->axis[i + d].dim != group->to[d]) return false;
    for (int d = 0; d < (group ? group->nfrom : 1); d++) {
      if (r.rank == MAX_RANK) return false;
      Str dim = group ? group->from[d] : t->axis[i].dim;
      r.axis[r.rank++] = (Axis){dim, type_size(operand, dim)};
    }
    if (group) i += group->nto - 1;
  }
  *t = r;
  return true;
}

/* An operand that is laid out inside a concat has the concat's layout. */
static void prefer_concat(Module *m, const Fn *f, const Op *o, const Type **want) {
  Str to = o->group[0].to[0];
  for (uint32_t k = 0; k < o->nin; k++) {
    ValueId v = o->in[k];
    Str dim = o->group[0].from[k];
    Type t = {.elem = value_type(f, v)->elem,
              .rank = 1,
              .axis = {{dim, type_size(value_type(f, v), dim)}}};
    for (int i = 0; i < value_type(f, o->out)->rank; i++)
      if (value_type(f, o->out)->axis[i].dim != to)
        t.axis[t.rank++] = value_type(f, o->out)->axis[i];
    const Op *def = value_def(f, v);
    for (; def && op_flags(def->code) & VIEW && def->code != OP_unstack && def->code != OP_slice;
         def = value_def(f, v)) {
      if (!unmapped(def, value_type(f, def->in[0]), &t)) break;
      v = def->in[0];
    }
    if (def && !(op_flags(def->code) & VIEW)) prefer(m, want, v, value_type(f, v), &t);
  }
}

const Type **order_preferences(Module *m, const Fn *f) {
  const Type **want = ARENA_ARRAY(m->arena, const Type *, f->values.n + 1);
  for (ValueId v = 0; v < f->values.n; v++)
    if (f->values.at[v].storage.ordered) want[v] = &f->values.at[v].type;
  order_prefer_codes(m, f, want);
  for (OpId i = f->ops.n; i-- > 0;) {
    const Op *o = &f->ops.at[i];
    if (o->code == OP_store) prefer(m, want, o->in[0], value_type(f, o->in[0]), &o->global->type);
    if (o->code == OP_kernel) prefer_kernel(m, f, o, want);
    if (o->code == OP_kernel) prefer_product(m, f, o, want);
    if (o->code == OP_concat) prefer_concat(m, f, o, want);
    if (o->code == OP_loop) prefer_loop(m, f, o, want);
  }
  return want;
}
