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
static bool is_free(const Fuse *fuse, uint32_t g, ValueId value) {
  const FuseValue *x = &fuse->value[value];
  return x->where == INLINED || (x->where == MATERIALISED && x->group > g);
}

static bool is_own(const Fuse *fuse, uint32_t g, ValueId value) {
  const FuseValue *x = &fuse->value[value];
  return x->where == MATERIALISED && x->group == g;
}

/* Wanted by a later group, without a buffer so far. */
static bool computed_again(const Fuse *fuse, uint32_t g, ValueId value) {
  return is_own(fuse, g, value) && fuse->value[value].wanted && !fuse->value[value].stored;
}

static const Op *computed_by(const Net *t, ValueId v) {
  const Op *o = value_def(t->u->f, v);
  if (is_free(t->u, t->group, v)) return o;
  bool again = o && is_own(t->u, t->group, v) && !t->u->value[v].stored;
  if (value_type(t->u->f, v)->rank == 0) return NULL; /* one number: never for every element */
  return again && op_flags(o->code) & POINT && !fuse_expensive(o->code) ? o : NULL;
}

static double cost_of(const Net *t, ValueId value) {
  const Type *type = value_type(t->u->f, value);
  double bytes = (double)type_count(type) * elem_bytes(type->elem);
  if (is_free(t->u, t->group, value)) return INFINITY;
  return is_own(t->u, t->group, value) && !t->u->value[value].stored ? 2 * bytes : bytes;
}

/* Adds v and everything it may be computed from. */
static void add_value(Net *t, ValueId value) {
  if (t->node_of[value]) return;
  t->node_of[value] = FLOW_NODES + 2 * t->values.n;
  vec_push(t->u->arena, t->values, value);
  const Op *op = computed_by(t, value);
  t->arcs += 2 + (op ? op->nin : 0);
  for (uint32_t i = 0; op && i < op->nin; i++) add_value(t, op->in[i]);
}

static void join_value(const Net *t, Flow *n, ValueId value) {
  uint32_t used = t->node_of[value];
  const Op *op = computed_by(t, value);
  flow_join(n, used, used + 1, cost_of(t, value));
  if (!op) flow_join(n, used + 1, FLOW_SINK, INFINITY);
  for (uint32_t i = 0; op && i < op->nin; i++)
    flow_join(n, used + 1, t->node_of[op->in[i]], INFINITY);
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

static void want_operands(InlineWalk *w, ValueId value) {
  const Op *op = value_def(w->u->f, value);
  for (uint32_t i = 0; op && i < op->nin; i++) want(w, op->in[i]);
}

/* v is read: marks the values of this and earlier groups that it is computed from. */
static void want(InlineWalk *w, ValueId value) {
  FuseValue *x = &w->u->value[value];
  if (w->wanted[value]) return;
  w->wanted[value] = true;
  if (is_free(w->u, w->group, value)) want_operands(w, value);
  else if (x->where == MATERIALISED) x->wanted |= !x->stored;
}

/* The operands of everything that the group really computes. */
static void want_inside(InlineWalk *w, ValueId value) {
  if (!is_free(w->u, w->group, value) && !is_own(w->u, w->group, value)) {
    want(w, value);
    return;
  }
  const Op *op = value_def(w->u->f, value);
  if (w->inside[value]) return;
  w->inside[value] = true;
  for (uint32_t i = 0; op && i < op->nin; i++) want_inside(w, op->in[i]);
}

static void cut_group(InlineWalk *w) {
  Fuse *fuse = w->u;
  Net t = {.u = fuse, .group = w->group};
  uint32_t wanted = 0;
  t.node_of = ARENA_ARRAY(fuse->arena, uint32_t, fuse->f->values.n + 1);
  for (ValueId value = 0; value < fuse->f->values.n; value++)
    if (computed_again(fuse, w->group, value)) add_value(&t, value), wanted++;
  if (wanted) solve(&t, wanted);
}

/* What users compute again reads other values, perhaps of the same group: to a fixed point. */
static void spread(InlineWalk *w) {
  uint32_t n = w->u->f->values.n;
  bool *done = ARENA_ARRAY(w->u->arena, bool, n + 1);
  for (bool more = true; more;) {
    more = false;
    for (ValueId value = n; value-- > 0;)
      if (computed_again(w->u, w->group, value) && !done[value]) {
        done[value] = more = true;
        want_operands(w, value);
      }
  }
}

void fuse_cut(Fuse *fuse) {
  uint32_t n = fuse->f->values.n;
  for (uint32_t g = fuse->groups.n; g-- > 0;) {
    InlineWalk w = {fuse, g, ARENA_ARRAY(fuse->arena, bool, n + 1),
                    ARENA_ARRAY(fuse->arena, bool, n + 1)};
    cut_group(&w);
    spread(&w);
    for (ValueId value = 0; value < n; value++)
      if (is_own(fuse, g, value) && fuse->value[value].stored) want_inside(&w, value);
  }
}
