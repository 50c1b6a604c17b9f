/* order, before layouts: a body that returns views of a value returns the value itself, and the
   caller takes the views.

   The values that a layer saves for its gradient are often slices of one result (queries, keys,
   values). A kernel per slice would copy them into the stacked buffers; instead the kernel of the
   whole result writes it to the stacked buffer at no cost. Done where the views together are most
   of the value, or where the value is returned anyway, and only for bodies with one caller. */
#include "order.h"

typedef struct Returns {
  Module *m;
  Fn *body, *caller;
  const Op *loop;
  uint32_t carry;
  ValueId *root;     /* by result: the value that it is a view of, or itself */
  VEC(ValueId) kept; /* the new results */
  VEC(int64_t) into; /* by stacked one of them: as attribute `continues` has it */
} Returns;

static bool is_view(const Op *o) { return o && op_flags(o->code) & VIEW; }

static ValueId root_of(const Fn *f, ValueId v) {
  for (const Op *o = value_def(f, v); is_view(o); o = value_def(f, v)) v = o->in[0];
  return v;
}

/* No value between v and its root may have the dim that the loop stacks along, nor be too deep for
 * one more. */
static bool can_stack(const Returns *returns, ValueId v) {
  for (;;) {
    const Type *t = value_type(returns->body, v);
    const Op *o = value_def(returns->body, v);
    if (t->rank == MAX_RANK || type_find(t, returns->loop->group[0].from[0]) >= 0) return false;
    if (!is_view(o)) return o && order_owns(o);
    v = o->in[0];
  }
}

static bool worth_it(const Returns *returns, ValueId root) {
  int64_t bytes = 0;
  for (uint32_t i = returns->carry; i < returns->body->results.n; i++) {
    if (returns->body->results.at[i] == root) return true;
    if (root_of(returns->body, returns->body->results.at[i]) == root)
      bytes += value_dense_bytes(returns->body, returns->body->results.at[i]);
  }
  return 4 * bytes >= 3 * value_dense_bytes(returns->body, root);
}

/* Results whose stack other loops also write do not change. */
static bool is_own(const Returns *returns, uint32_t i) {
  return loop_continues(returns->loop, i) == NO_VALUE && !loop_begins(returns->loop, i);
}

static bool choose_roots(Returns *returns) {
  bool any = false;
  for (uint32_t i = 0; i < returns->body->results.n; i++) {
    ValueId v = returns->body->results.at[i], root = root_of(returns->body, v);
    bool whole = i >= returns->carry && is_own(returns, i) && root != v && can_stack(returns, v) &&
                 worth_it(returns, root);
    returns->root[i] = whole ? root : v;
    any |= whole;
  }
  return any;
}

/* Carried results first; then each root once, and each result whose stack other loops also
   write. */
static void choose_results(Returns *returns) {
  LoopShape shape = loop_shape(returns->loop);
  for (uint32_t i = 0; i < returns->body->results.n; i++) {
    bool there = false;
    for (uint32_t k = returns->carry;
         k < returns->kept.n && i >= returns->carry && is_own(returns, i); k++)
      there |= returns->kept.at[k] == returns->root[i] &&
               returns->into.at[k - returns->carry] == INTO_OWN;
    if (!there) vec_push(returns->m->arena, returns->kept, returns->root[i]);
    if (!there && i >= returns->carry)
      vec_push(returns->m->arena, returns->into, loop_into(&shape, i));
  }
}

/* ---- the caller ---- */

static Type stacked(const Returns *returns, ValueId v, int64_t into) {
  const Type *t = value_type(returns->body, v);
  LoopShape shape = loop_shape(returns->loop);
  must(t->rank < MAX_RANK, "order: a stack of values of %d dims", t->rank);
  int64_t size = into == INTO_OWN ? shape.trip : shape.of;
  Type whole = {.elem = t->elem, .rank = 1, .axis = {{shape.axis.dim, size}}, .tier = t->tier};
  for (int i = 0; i < t->rank; i++) whole.axis[whole.rank++] = t->axis[i];
  return whole;
}

static void write_loop(Returns *returns, Rebuild *to, ValueId *of) {
  Type *types = ARENA_ARRAY(returns->m->arena, Type, returns->kept.n + 1);
  ValueId *in = ARENA_ARRAY(returns->m->arena, ValueId, returns->loop->nin + 1);
  for (uint32_t i = 0; i < returns->kept.n; i++)
    types[i] = i < returns->carry
                   ? *value_type(returns->caller, returns->loop->out + i)
                   : stacked(returns, returns->kept.at[i], returns->into.at[i - returns->carry]);
  for (uint32_t i = 0; i < returns->loop->nin; i++) in[i] = to->map[returns->loop->in[i]];
  Op *o = fn_op(returns->m, to->to, OP_loop, returns->loop->nin, in, returns->kept.n, types,
                returns->loop->loc);
  op_add_group(returns->m, o, returns->loop->group[0]);
  for (uint32_t i = 0; i < returns->loop->attrs.n; i++)
    vec_push(returns->m->arena, o->attrs, returns->loop->attrs.at[i]);
  if (attr_get(&o->attrs, ATTR_continues))
    attr_set_ints(returns->m, &o->attrs, ATTR_continues, (int)returns->into.n, returns->into.at);
  o->callee = returns->body;
  for (uint32_t i = 0; i < returns->carry; i++) to->map[returns->loop->out + i] = o->out + i;
  for (uint32_t i = returns->carry; i < returns->kept.n; i++)
    if (returns->into.at[i - returns->carry] == INTO_OWN) of[returns->kept.at[i]] = o->out + i;
  for (uint32_t i = returns->carry, k = returns->carry; i < returns->loop->nout; i++) {
    if (is_own(returns, i)) continue;
    while (returns->into.at[k - returns->carry] == INTO_OWN) k++;
    to->map[returns->loop->out + i] = o->out + k++;
  }
}

/* The stacked form of v of the body, whose root's is known. */
static ValueId stacked_view(Returns *returns, Rebuild *to, ValueId *of, ValueId v) {
  if (of[v] != NO_VALUE) return of[v];
  const Op *o = value_def(returns->body, v);
  ValueId in = stacked_view(returns, to, of, o->in[0]);
  Type *types = ARENA_ARRAY(returns->m->arena, Type, o->nout);
  for (uint32_t i = 0; i < o->nout; i++) types[i] = stacked(returns, o->out + i, INTO_OWN);
  Op *c = fn_op(returns->m, to->to, o->code, 1, &in, o->nout, types, o->loc);
  for (int i = 0; i < o->ngroups; i++) op_add_group(returns->m, c, o->group[i]);
  for (uint32_t i = 0; i < o->attrs.n; i++) vec_push(returns->m->arena, c->attrs, o->attrs.at[i]);
  for (uint32_t i = 0; i < o->nout; i++) of[o->out + i] = c->out + i;
  return of[v];
}

static void rewrite(Returns *returns) {
  Rebuild to = rebuild_begin(returns->m, returns->caller);
  ValueId *of = value_map(returns->m, returns->body);
  EACH_OP (returns->caller, o) {
    if (o != returns->loop) {
      rebuild_op(&to, o);
      continue;
    }
    write_loop(returns, &to, of);
    for (uint32_t k = returns->carry; k < o->nout; k++)
      if (is_own(returns, k))
        to.map[o->out + k] = stacked_view(returns, &to, of, returns->body->results.at[k]);
  }
  rebuild_results(&to);
  returns->body->results.n = 0;
  for (uint32_t i = 0; i < returns->kept.n; i++)
    fn_result(returns->m, returns->body, returns->kept.at[i]);
  module_replace(returns->m, returns->caller, to.to);
}

/* The only loop that calls body, or NULL. */
static const Op *only_loop(const Module *m, const Fn *body, Fn **caller) {
  const Op *found = NULL;
  for (uint32_t i = 0; i < m->fns.n; i++)
    EACH_OP (m->fns.at[i], o) {
      if (o->callee != body) continue;
      if (found) return NULL;
      found = o, *caller = m->fns.at[i];
    }
  return found && found->code == OP_loop ? found : NULL;
}

void order_results(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Returns returns = {.m = m, .body = m->fns.at[i]};
    returns.loop =
        returns.body->kind == FN_BODY ? only_loop(m, returns.body, &returns.caller) : NULL;
    if (!returns.loop) continue;
    returns.carry = loop_shape(returns.loop).carry;
    returns.root = ARENA_ARRAY(m->arena, ValueId, returns.body->results.n + 1);
    if (!choose_roots(&returns)) continue;
    choose_results(&returns);
    rewrite(&returns);
  }
}
