/* fuse, second half: which of a group's values are written to memory.

   What is outside a group but can compute on the way in (an element-wise expression of another
   group) does not need the very value that it names: it may read other values and compute it again.
   For each group, from the last to the first, the cheapest set of values to write and read is a
   minimum vertex cut between what cannot be computed again (the anchor's results, values in
   buffers) and the values that later groups want. Writing and reading a value costs twice its
   bytes, reading one that is in a buffer anyway costs them once. Of equal cuts the one nearest the
   users is taken: it repeats the least work. Values that must have a buffer (operands of
   contractions, loops, stores) are given. */
#include "passes/flow.h"
#include "passes/fuse.h"
#include <math.h>

/* It runs from what is wanted to what cannot be computed again, so that the cut next to FLOW_SOURCE
   is the one nearest the users. A value is two nodes, `used` and behind it `made`. */
typedef struct Net {
  Fuse *u;
  uint32_t group, arcs;
  uint32_t *node_of; /* by ValueId: its node `used`, 0: not in the net */
  ValueList values;  /* of the net */
} Net;

/* An expression for this group: inlined, or with a group that is later. */
static bool is_free(const Fuse *u, uint32_t g, ValueId v) {
  const FuseValue *x = &u->value[v];
  return x->where == INLINED || (x->where == MATERIALISED && x->group > g);
}

static bool is_own(const Fuse *u, uint32_t g, ValueId v) {
  const FuseValue *x = &u->value[v];
  return x->where == MATERIALISED && x->group == g;
}

/* Wanted by a later group, without a buffer so far. */
static bool computed_again(const Fuse *u, uint32_t g, ValueId v) {
  return is_own(u, g, v) && u->value[v].wanted && !u->value[v].stored;
}

static const Op *computed_by(const Net *t, ValueId v) {
  const Op *o = value_def(t->u->f, v);
  if (is_free(t->u, t->group, v)) return o;
  bool again = o && is_own(t->u, t->group, v) && !t->u->value[v].stored;
  if (value_type(t->u->f, v)->rank == 0) return NULL; /* one number: never for every element */
  return again && op_flags(o->code) & POINT && !fuse_expensive(o->code) ? o : NULL;
}

static double cost_of(const Net *t, ValueId v) {
  const Type *type = value_type(t->u->f, v);
  double bytes = (double)type_count(type) * elem_bytes(type->elem);
  if (is_free(t->u, t->group, v)) return INFINITY;
  return is_own(t->u, t->group, v) && !t->u->value[v].stored ? 2 * bytes : bytes;
}

/* Adds v and everything it may be computed from. */
static void add_value(Net *t, ValueId v) {
  if (t->node_of[v]) return;
  t->node_of[v] = FLOW_NODES + 2 * t->values.n;
  vec_push(t->u->arena, t->values, v);
  const Op *o = computed_by(t, v);
  t->arcs += 2 + (o ? o->nin : 0);
  for (uint32_t i = 0; o && i < o->nin; i++) add_value(t, o->in[i]);
}

static void join_value(const Net *t, Flow *n, ValueId v) {
  uint32_t used = t->node_of[v];
  const Op *o = computed_by(t, v);
  flow_join(n, used, used + 1, cost_of(t, v));
  if (!o) flow_join(n, used + 1, FLOW_SINK, INFINITY);
  for (uint32_t i = 0; o && i < o->nin; i++) flow_join(n, used + 1, t->node_of[o->in[i]], INFINITY);
}

static void solve(const Net *t, uint32_t wanted) {
  Flow n = flow_new(t->u->arena, FLOW_NODES + 2 * t->values.n, t->arcs + wanted);
  for (uint32_t i = 0; i < t->values.n; i++) join_value(t, &n, t->values.at[i]);
  for (uint32_t i = 0; i < t->values.n; i++)
    if (computed_again(t->u, t->group, t->values.at[i]))
      flow_join(&n, FLOW_SOURCE, t->node_of[t->values.at[i]], INFINITY);
  flow_run(&n);
  for (uint32_t i = 0; i < t->values.n; i++) {
    FuseValue *x = &t->u->value[t->values.at[i]];
    uint32_t used = t->node_of[t->values.at[i]];
    bool cut = n.level[used] && !n.level[used + 1];
    if (cut && x->where == MATERIALISED && x->group == t->group) x->stored = true;
  }
}

/* ---- what later groups want ---- */

typedef struct InlineWalk {
  Fuse *u;
  uint32_t group; /* the values of later groups are decided already */
  bool *wanted, *inside;
} InlineWalk;

static void want(InlineWalk *w, ValueId v);

static void want_operands(InlineWalk *w, ValueId v) {
  const Op *o = value_def(w->u->f, v);
  for (uint32_t i = 0; o && i < o->nin; i++) want(w, o->in[i]);
}

/* v is read: marks the values of this and earlier groups that it is computed from. */
static void want(InlineWalk *w, ValueId v) {
  FuseValue *x = &w->u->value[v];
  if (w->wanted[v]) return;
  w->wanted[v] = true;
  if (is_free(w->u, w->group, v)) want_operands(w, v);
  else if (x->where == MATERIALISED) x->wanted |= !x->stored;
}

/* The operands of everything that the group really computes. */
static void want_inside(InlineWalk *w, ValueId v) {
  if (!is_free(w->u, w->group, v) && !is_own(w->u, w->group, v)) {
    want(w, v);
    return;
  }
  const Op *o = value_def(w->u->f, v);
  if (w->inside[v]) return;
  w->inside[v] = true;
  for (uint32_t i = 0; o && i < o->nin; i++) want_inside(w, o->in[i]);
}

static void cut_group(InlineWalk *w) {
  Fuse *u = w->u;
  Net t = {.u = u, .group = w->group};
  uint32_t wanted = 0;
  t.node_of = ARENA_ARRAY(u->arena, uint32_t, u->f->values.n + 1);
  for (ValueId v = 0; v < u->f->values.n; v++)
    if (computed_again(u, w->group, v)) add_value(&t, v), wanted++;
  if (wanted) solve(&t, wanted);
}

/* What users compute again reads other values, perhaps of the same group: to a fixed point. */
static void spread(InlineWalk *w) {
  uint32_t n = w->u->f->values.n;
  bool *done = ARENA_ARRAY(w->u->arena, bool, n + 1);
  for (bool more = true; more;) {
    more = false;
    for (ValueId v = n; v-- > 0;)
      if (computed_again(w->u, w->group, v) && !done[v]) {
        done[v] = more = true;
        want_operands(w, v);
      }
  }
}

void fuse_cut(Fuse *u) {
  uint32_t n = u->f->values.n;
  for (uint32_t g = u->groups.n; g-- > 0;) {
    InlineWalk w = {u, g, ARENA_ARRAY(u->arena, bool, n + 1), ARENA_ARRAY(u->arena, bool, n + 1)};
    cut_group(&w);
    spread(&w);
    for (ValueId v = 0; v < n; v++)
      if (is_own(u, g, v) && u->value[v].stored) want_inside(&w, v);
  }
}
