/* fuse, second half: which of a group's values are written to memory.

   What is outside a group but can compute on the way in (an element-wise expression of another
   group) does not need the very value that it names: it may read other values and compute it again.
   For each group, from the last to the first, the cheapest set of values to write and read is a
   minimum vertex cut between what cannot be computed again (the anchor's results, values in
   buffers) and the values that later groups want. Writing and reading a value costs twice its
   bytes, reading one that is in a buffer anyway costs them once. Of equal cuts the one nearest the
   users is taken: it repeats the least work. Values that must have a buffer (operands of
   contractions, loops, stores) are given. */
#include "passes/fuse.h"

typedef struct Edge {
  uint32_t to, back; /* back: index of the reverse edge in the list of `to` */
  int64_t room;
} Edge;

typedef VEC(Edge) EdgeList;

typedef struct Net {
  Fuse *u;
  uint32_t group, n;
  EdgeList *edges;   /* by node: source, sink, then (in, out) of each value */
  uint32_t *node_of; /* by ValueId: its `in` node, 0: not in the net */
  ValueList values;  /* by (node - 2) / 2 */
} Net;

enum { SOURCE = 0, SINK = 1 };
static const int64_t UNBOUNDED = INT64_MAX / 4;

static void edge(Net *t, uint32_t a, uint32_t b, int64_t room) {
  vec_push(t->u->arena, t->edges[a], (Edge){b, t->edges[b].n, room});
  vec_push(t->u->arena, t->edges[b], (Edge){a, t->edges[a].n - 1, 0});
}

/* An expression for this group: lazy, or with a home that is later. */
static bool is_free(const Fuse *u, uint32_t g, ValueId v) {
  const FuseValue *x = &u->value[v];
  return x->where == LAZY || (x->where == HOMED && x->home > g);
}

static bool is_own(const Fuse *u, uint32_t g, ValueId v) {
  const FuseValue *x = &u->value[v];
  return x->where == HOMED && x->home == g;
}

static const Op *computed_by(const Net *t, ValueId v) {
  const Op *o = value_def(t->u->f, v);
  if (is_free(t->u, t->group, v)) return o;
  bool again = o && is_own(t->u, t->group, v) && !t->u->value[v].stored;
  if (value_type(t->u->f, v)->rank == 0) return NULL; /* one number: never for every element */
  return again && op_flags(o->code) & POINT && !fuse_heavy(o->code) ? o : NULL;
}

static int64_t cost_of(const Net *t, ValueId v) {
  const Type *type = value_type(t->u->f, v);
  int64_t bytes = type_count(type) * elem_bytes(type->elem);
  if (is_free(t->u, t->group, v)) return UNBOUNDED;
  return is_own(t->u, t->group, v) && !t->u->value[v].stored ? 2 * bytes : bytes;
}

/* Adds v and everything it may be computed from. */
static uint32_t add_value(Net *t, ValueId v) {
  if (t->node_of[v]) return t->node_of[v];
  uint32_t in = t->n;
  t->node_of[v] = in, t->n += 2;
  vec_push(t->u->arena, t->values, v);
  edge(t, in, in + 1, cost_of(t, v));
  const Op *o = computed_by(t, v);
  if (!o) edge(t, SOURCE, in, UNBOUNDED);
  for (uint32_t i = 0; o && i < o->nin; i++) edge(t, add_value(t, o->in[i]) + 1, in, UNBOUNDED);
  return in;
}

/* One augmenting path by depth-first search; returns what it added. */
static int64_t augment(Net *t, uint32_t at, int64_t flow, bool *seen) {
  if (at == SINK) return flow;
  seen[at] = true;
  for (uint32_t i = 0; i < t->edges[at].n; i++) {
    Edge *e = &t->edges[at].at[i];
    if (!e->room || seen[e->to]) continue;
    int64_t got = augment(t, e->to, e->room < flow ? e->room : flow, seen);
    if (!got) continue;
    t->edges[at].at[i].room -= got;
    t->edges[e->to].at[e->back].room += got;
    return got;
  }
  return 0;
}

/* Nodes from which the sink can still be reached. */
static void mark_sink_side(const Net *t, uint32_t at, bool *side) {
  if (side[at]) return;
  side[at] = true;
  for (uint32_t i = 0; i < t->edges[at].n; i++) {
    const Edge *e = &t->edges[at].at[i];
    if (t->edges[e->to].at[e->back].room) mark_sink_side(t, e->to, side);
  }
}

static void solve(Net *t) {
  bool *seen = ARENA_ARRAY(t->u->arena, bool, t->n);
  while (augment(t, SOURCE, UNBOUNDED, seen)) memset(seen, 0, t->n);
  memset(seen, 0, t->n);
  mark_sink_side(t, SINK, seen);
  for (uint32_t i = 0; i < t->values.n; i++) {
    FuseValue *x = &t->u->value[t->values.at[i]];
    bool cut = !seen[2 + 2 * i] && seen[3 + 2 * i];
    if (cut && x->where == HOMED && x->home == t->group) x->stored = true;
  }
}

/* ---- what later groups want ---- */

typedef struct Walk {
  Fuse *u;
  uint32_t group; /* the values of later groups are decided already */
  bool *wanted, *inside;
} Walk;

static void want(Walk *w, ValueId v);

static void want_operands(Walk *w, ValueId v) {
  const Op *o = value_def(w->u->f, v);
  for (uint32_t i = 0; o && i < o->nin; i++) want(w, o->in[i]);
}

/* v is read: marks the values of this and earlier groups that it is computed from. */
static void want(Walk *w, ValueId v) {
  FuseValue *x = &w->u->value[v];
  if (w->wanted[v]) return;
  w->wanted[v] = true;
  if (is_free(w->u, w->group, v)) want_operands(w, v);
  else if (x->where == HOMED) x->wanted |= !x->stored;
}

/* The operands of everything that the group really computes. */
static void want_inside(Walk *w, ValueId v) {
  if (!is_free(w->u, w->group, v) && !is_own(w->u, w->group, v)) {
    want(w, v);
    return;
  }
  const Op *o = value_def(w->u->f, v);
  if (w->inside[v]) return;
  w->inside[v] = true;
  for (uint32_t i = 0; o && i < o->nin; i++) want_inside(w, o->in[i]);
}

static bool computed_again(const Walk *w, ValueId v) {
  const FuseValue *x = &w->u->value[v];
  return is_own(w->u, w->group, v) && x->wanted && !x->stored;
}

static void cut_group(Walk *w) {
  Fuse *u = w->u;
  uint32_t n = u->f->values.n;
  Net t = {.u = u, .group = w->group, .n = 2};
  t.edges = ARENA_ARRAY(u->arena, EdgeList, 2 * n + 2);
  t.node_of = ARENA_ARRAY(u->arena, uint32_t, n + 1);
  for (ValueId v = 0; v < n; v++)
    if (computed_again(w, v)) edge(&t, add_value(&t, v) + 1, SINK, UNBOUNDED);
  if (t.n > 2) solve(&t);
}

/* What users compute again reads other values, perhaps of the same group: to a fixed point. */
static void spread(Walk *w) {
  uint32_t n = w->u->f->values.n;
  bool *done = ARENA_ARRAY(w->u->arena, bool, n + 1);
  for (bool more = true; more;) {
    more = false;
    for (ValueId v = n; v-- > 0;)
      if (computed_again(w, v) && !done[v]) {
        done[v] = more = true;
        want_operands(w, v);
      }
  }
}

void fuse_cut(Fuse *u) {
  uint32_t n = u->f->values.n;
  for (uint32_t g = u->groups.n; g-- > 0;) {
    Walk w = {u, g, ARENA_ARRAY(u->arena, bool, n + 1), ARENA_ARRAY(u->arena, bool, n + 1)};
    cut_group(&w);
    spread(&w);
    for (ValueId v = 0; v < n; v++)
      if (is_own(u, g, v) && u->value[v].stored) want_inside(&w, v);
  }
}
