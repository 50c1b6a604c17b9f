/* fuse, second half: which of a group's values are written to memory.

   A user outside a group that can compute while it reads (an element-wise expression of another
   group) does not need the very value that it names: it may read other values and compute it
   again. For each group, from the last to the first, the cheapest set of values to write and read
   is a minimum vertex cut between the values that cannot be computed again (the anchor's results,
   values in buffers) and the values that later groups want.

   Writing and reading a value costs twice its bytes; reading one that is in a buffer anyway costs
   them once. Among equal cuts the one nearest the users is taken: it repeats the least work. Values
   that must have a buffer (operands of contractions, loops, stores) are given. */
#include "passes/base/flow.h"
#include "fuse.h"
#include <math.h>

/* The net runs from the values wanted to the values that cannot be computed again, so that the cut
   next to FLOW_SOURCE is the one nearest the users. A value is two nodes: `used`, then `made`. */
typedef struct Net {
  Fuse *u;
  uint32_t group, arcs;
  uint32_t *node_of; /* by ValueId: its node `used`, 0: not in the net */
  ValueList values;  /* of the net */
} Net;

/* An expression for this group: inlined, or with a group that is later. */
static bool is_free(const Fuse *fuse, uint32_t g, ValueId value) {
  const FuseValue *fuse_value = &fuse->value[value];
  return fuse_value->where == INLINED ||
         (fuse_value->where == MATERIALISED && fuse_value->group > g);
}

static bool is_own(const Fuse *fuse, uint32_t g, ValueId value) {
  const FuseValue *fuse_value = &fuse->value[value];
  return fuse_value->where == MATERIALISED && fuse_value->group == g;
}

/* Read by a later group, and without a buffer so far. */
static bool computed_again(const Fuse *fuse, uint32_t g, ValueId value) {
  return is_own(fuse, g, value) && fuse->value[value].wanted && !fuse->value[value].stored;
}

static const Op *computed_by(const Net *net, ValueId v) {
  const Op *o = value_def(net->u->f, v);
  if (is_free(net->u, net->group, v)) return o;
  bool again = o && is_own(net->u, net->group, v) && !net->u->value[v].stored;
  if (value_type(net->u->f, v)->rank == 0) return NULL; /* one number: never for every element */
  return again && op_flags(o->code) & POINT && !fuse_expensive(o->code) ? o : NULL;
}

static double cost_of(const Net *net, ValueId value) {
  const Type *type = value_type(net->u->f, value);
  double bytes = (double)type_dense_bytes(type);
  if (is_free(net->u, net->group, value)) return INFINITY;
  return is_own(net->u, net->group, value) && !net->u->value[value].stored ? 2 * bytes : bytes;
}

/* Adds v and everything it may be computed from. */
static void add_value(Net *net, ValueId value) {
  if (net->node_of[value]) return;
  net->node_of[value] = FLOW_NODES + 2 * net->values.n;
  vec_push(net->u->arena, net->values, value);
  const Op *op = computed_by(net, value);
  net->arcs += 2 + (op ? op->nin : 0);
  for (uint32_t i = 0; op && i < op->nin; i++) add_value(net, op->in[i]);
}

static void join_value(const Net *net, Flow *flow, ValueId value) {
  uint32_t used = net->node_of[value];
  const Op *op = computed_by(net, value);
  flow_join(flow, used, used + 1, cost_of(net, value));
  if (!op) flow_join(flow, used + 1, FLOW_SINK, INFINITY);
  for (uint32_t i = 0; op && i < op->nin; i++)
    flow_join(flow, used + 1, net->node_of[op->in[i]], INFINITY);
}

static void solve(const Net *net, uint32_t wanted) {
  Flow flow = flow_new(net->u->arena, FLOW_NODES + 2 * net->values.n, net->arcs + wanted);
  for (uint32_t i = 0; i < net->values.n; i++) join_value(net, &flow, net->values.at[i]);
  for (uint32_t i = 0; i < net->values.n; i++)
    if (computed_again(net->u, net->group, net->values.at[i]))
      flow_join(&flow, FLOW_SOURCE, net->node_of[net->values.at[i]], INFINITY);
  flow_run(&flow);
  for (uint32_t i = 0; i < net->values.n; i++) {
    FuseValue *fuse_value = &net->u->value[net->values.at[i]];
    uint32_t used = net->node_of[net->values.at[i]];
    bool cut = flow.level[used] && !flow.level[used + 1];
    if (cut && fuse_value->where == MATERIALISED && fuse_value->group == net->group)
      fuse_value->stored = true;
  }
}

/* ---- values that later groups read ---- */

typedef struct InlineWalk {
  Fuse *u;
  uint32_t group; /* the values of later groups are decided already */
  bool *wanted, *inside;
} InlineWalk;

static void want(InlineWalk *walk, ValueId v);

static void want_operands(InlineWalk *walk, ValueId value) {
  const Op *op = value_def(walk->u->f, value);
  for (uint32_t i = 0; op && i < op->nin; i++) want(walk, op->in[i]);
}

/* v is read: marks the values of this and earlier groups that it is computed from. */
static void want(InlineWalk *walk, ValueId value) {
  FuseValue *fuse_value = &walk->u->value[value];
  if (walk->wanted[value]) return;
  walk->wanted[value] = true;
  if (is_free(walk->u, walk->group, value)) want_operands(walk, value);
  else if (fuse_value->where == MATERIALISED) fuse_value->wanted |= !fuse_value->stored;
}

/* The operands of everything that the group really computes. */
static void want_inside(InlineWalk *walk, ValueId value) {
  if (!is_free(walk->u, walk->group, value) && !is_own(walk->u, walk->group, value)) {
    want(walk, value);
    return;
  }
  const Op *op = value_def(walk->u->f, value);
  if (walk->inside[value]) return;
  walk->inside[value] = true;
  for (uint32_t i = 0; op && i < op->nin; i++) want_inside(walk, op->in[i]);
}

static void cut_group(InlineWalk *walk) {
  Fuse *fuse = walk->u;
  Net net = {.u = fuse, .group = walk->group};
  uint32_t wanted = 0;
  net.node_of = ARENA_ARRAY(fuse->arena, uint32_t, fuse->f->values.n + 1);
  for (ValueId value = 0; value < fuse->f->values.n; value++)
    if (computed_again(fuse, walk->group, value)) add_value(&net, value), wanted++;
  if (wanted) solve(&net, wanted);
}

/* A recomputed expression reads other values, perhaps of the same group, which may be recomputed
   as well: iterate to a fixed point. */
static void spread(InlineWalk *walk) {
  uint32_t n = walk->u->f->values.n;
  bool *done = ARENA_ARRAY(walk->u->arena, bool, n + 1);
  for (bool more = true; more;) {
    more = false;
    for (ValueId value = n; value-- > 0;)
      if (computed_again(walk->u, walk->group, value) && !done[value]) {
        done[value] = more = true;
        want_operands(walk, value);
      }
  }
}

void fuse_cut(Fuse *fuse) {
  uint32_t n = fuse->f->values.n;
  for (uint32_t g = fuse->groups.n; g-- > 0;) {
    InlineWalk walk = {fuse, g, ARENA_ARRAY(fuse->arena, bool, n + 1),
                       ARENA_ARRAY(fuse->arena, bool, n + 1)};
    cut_group(&walk);
    spread(&walk);
    for (ValueId value = 0; value < n; value++)
      if (is_own(fuse, g, value) && fuse->value[value].stored) want_inside(&walk, value);
  }
}
