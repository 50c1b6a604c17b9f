/* order, before layouts: a body that returns views of a value returns the value itself, and the
   caller takes the views.

   What a layer saves for its gradient are often slices of one result (queries, keys, values). A
   kernel per slice would copy them into the stacked buffers; the whole result is written there by
   its own kernel, at no cost. Done where the views together are most of the value, or where the
   value is returned anyway, and only for bodies with one caller. */
#include "passes/order.h"

typedef struct Returns {
  Module *m;
  Fn *body, *caller;
  const Op *loop;
  uint32_t carry;
  ValueId *root;     /* by result: the value that it is a view of, or itself */
  VEC(ValueId) kept; /* the new results */
  VEC(int64_t) into; /* by stacked one of them: as attribute `into` has it */
} Returns;

static bool is_view(const Op *o) { return o && op_flags(o->code) & VIEW; }

static ValueId root_of(const Fn *f, ValueId v) {
  for (const Op *o = value_def(f, v); is_view(o); o = value_def(f, v)) v = o->in[0];
  return v;
}

static int64_t bytes_of(const Fn *f, ValueId v) {
  const Type *t = value_type(f, v);
  return type_count(t) * elem_bytes(t->elem);
}

/* No value between v and its root may have the dim that the loop stacks along, nor be too deep for
 * one more. */
static bool can_stack(const Returns *r, ValueId v) {
  for (;;) {
    const Type *t = value_type(r->body, v);
    const Op *o = value_def(r->body, v);
    if (t->rank == MAX_RANK || type_find(t, r->loop->group[0].from[0]) >= 0) return false;
    if (!is_view(o)) return o && order_owns(o);
    v = o->in[0];
  }
}

static bool worth_it(const Returns *r, ValueId root) {
  int64_t bytes = 0;
  for (uint32_t i = r->carry; i < r->body->results.n; i++) {
    if (r->body->results.at[i] == root) return true;
    if (root_of(r->body, r->body->results.at[i]) == root)
      bytes += bytes_of(r->body, r->body->results.at[i]);
  }
  return 4 * bytes >= 3 * bytes_of(r->body, root);
}

/* Results that other loops write, too, stay what they are. */
static bool is_own(const Returns *r, uint32_t i) {
  return loop_continues(r->loop, i) == NO_VALUE && !loop_begins(r->loop, i);
}

static bool choose_roots(Returns *r) {
  bool any = false;
  for (uint32_t i = 0; i < r->body->results.n; i++) {
    ValueId v = r->body->results.at[i], root = root_of(r->body, v);
    bool whole = i >= r->carry && is_own(r, i) && root != v && can_stack(r, v) && worth_it(r, root);
    r->root[i] = whole ? root : v;
    any |= whole;
  }
  return any;
}

/* Carried results first; each root once, and each that other loops write, too. */
static void choose_results(Returns *r) {
  LoopShape s = loop_shape(r->loop);
  for (uint32_t i = 0; i < r->body->results.n; i++) {
    bool there = false;
    for (uint32_t k = r->carry; k < r->kept.n && i >= r->carry && is_own(r, i); k++)
      there |= r->kept.at[k] == r->root[i] && r->into.at[k - r->carry] == INTO_OWN;
    if (!there) vec_push(r->m->arena, r->kept, r->root[i]);
    if (!there && i >= r->carry) vec_push(r->m->arena, r->into, loop_into(&s, i));
  }
}

/* ---- the caller ---- */

static Type stacked(const Returns *r, ValueId v, int64_t into) {
  const Type *t = value_type(r->body, v);
  LoopShape s = loop_shape(r->loop);
  must(t->rank < MAX_RANK, "order: a stack of values of %d dims", t->rank);
  int64_t size = into == INTO_OWN ? s.trip : s.of;
  Type whole = {.elem = t->elem, .rank = 1, .axis = {{s.axis.dim, size}}, .tier = t->tier};
  for (int i = 0; i < t->rank; i++) whole.axis[whole.rank++] = t->axis[i];
  return whole;
}

static void write_loop(Returns *r, Rebuild *to, ValueId *of) {
  Type *types = ARENA_ARRAY(r->m->arena, Type, r->kept.n + 1);
  ValueId *in = ARENA_ARRAY(r->m->arena, ValueId, r->loop->nin + 1);
  for (uint32_t i = 0; i < r->kept.n; i++)
    types[i] = i < r->carry ? *value_type(r->caller, r->loop->out + i)
                            : stacked(r, r->kept.at[i], r->into.at[i - r->carry]);
  for (uint32_t i = 0; i < r->loop->nin; i++) in[i] = to->map[r->loop->in[i]];
  Op *o = fn_op(r->m, to->to, OP_loop, r->loop->nin, in, r->kept.n, types, r->loop->loc);
  op_add_group(r->m, o, r->loop->group[0]);
  for (uint32_t i = 0; i < r->loop->attrs.n; i++)
    vec_push(r->m->arena, o->attrs, r->loop->attrs.at[i]);
  if (attr_get(&o->attrs, ATTR_into))
    attr_set_ints(r->m, &o->attrs, ATTR_into, (int)r->into.n, r->into.at);
  o->callee = r->body;
  for (uint32_t i = 0; i < r->carry; i++) to->map[r->loop->out + i] = o->out + i;
  for (uint32_t i = r->carry; i < r->kept.n; i++)
    if (r->into.at[i - r->carry] == INTO_OWN) of[r->kept.at[i]] = o->out + i;
  for (uint32_t i = r->carry, k = r->carry; i < r->loop->nout; i++) {
    if (is_own(r, i)) continue;
    while (r->into.at[k - r->carry] == INTO_OWN) k++;
    to->map[r->loop->out + i] = o->out + k++;
  }
}

/* The stacked form of v of the body, whose root's is known. */
static ValueId stacked_view(Returns *r, Rebuild *to, ValueId *of, ValueId v) {
  if (of[v] != NO_VALUE) return of[v];
  const Op *o = value_def(r->body, v);
  ValueId in = stacked_view(r, to, of, o->in[0]);
  Type *types = ARENA_ARRAY(r->m->arena, Type, o->nout);
  for (uint32_t i = 0; i < o->nout; i++) types[i] = stacked(r, o->out + i, INTO_OWN);
  Op *c = fn_op(r->m, to->to, o->code, 1, &in, o->nout, types, o->loc);
  for (int i = 0; i < o->ngroups; i++) op_add_group(r->m, c, o->group[i]);
  for (uint32_t i = 0; i < o->attrs.n; i++) vec_push(r->m->arena, c->attrs, o->attrs.at[i]);
  for (uint32_t i = 0; i < o->nout; i++) of[o->out + i] = c->out + i;
  return of[v];
}

static void rewrite(Returns *r) {
  Rebuild to = rebuild_begin(r->m, r->caller);
  ValueId *of = value_map(r->m, r->body);
  for (OpId i = 0; i < r->caller->ops.n; i++) {
    const Op *o = &r->caller->ops.at[i];
    if (o != r->loop) {
      rebuild_op(&to, o);
      continue;
    }
    write_loop(r, &to, of);
    for (uint32_t k = r->carry; k < o->nout; k++)
      if (is_own(r, k)) to.map[o->out + k] = stacked_view(r, &to, of, r->body->results.at[k]);
  }
  rebuild_results(&to);
  r->body->results.n = 0;
  for (uint32_t i = 0; i < r->kept.n; i++) fn_result(r->m, r->body, r->kept.at[i]);
  module_replace(r->m, r->caller, to.to);
}

/* The only loop that calls body, or NULL. */
static const Op *only_loop(const Module *m, const Fn *body, Fn **caller) {
  const Op *found = NULL;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId j = 0; j < m->fns.at[i]->ops.n; j++) {
      const Op *o = &m->fns.at[i]->ops.at[j];
      if (o->callee != body) continue;
      if (found) return NULL;
      found = o, *caller = m->fns.at[i];
    }
  return found && found->code == OP_loop ? found : NULL;
}

void order_results(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Returns r = {.m = m, .body = m->fns.at[i]};
    r.loop = r.body->kind == FN_BODY ? only_loop(m, r.body, &r.caller) : NULL;
    if (!r.loop) continue;
    r.carry = loop_shape(r.loop).carry;
    r.root = ARENA_ARRAY(m->arena, ValueId, r.body->results.n + 1);
    if (!choose_roots(&r)) continue;
    choose_results(&r);
    rewrite(&r);
  }
}
