/* recompute: one body, a price per operation and per byte: a minimum cut.

   Two yes-or-no questions. a(v): is v there in the backward pass? c(o): does the backward pass
   compute o again? What is needed is there; an op that is computed has its inputs there; a value
   that is there without its op being computed was kept, and its bytes are paid. Every cost depends
   on one question or on one `yes` with one `no`, so the cheapest answer is a minimum cut between
   yes (source) and no (sink):

     source -> a(v)  infinite    v is needed
     a(v) -> c(o)    bytes       o makes v (infinite where v may not be kept)
     c(o) -> a(u)    infinite    o reads u
     c(o) -> sink    flop
     a(v) -> sink    bytes       v is an input of the layer

   The cut that is taken is the one next
   to the source, so that equal costs are decided the same way always. A value that a search has
   settled as kept has a price of its own to its op: a(v) holds and c(o) does not.

   Numbers are doubles: what is compared in the end are the exact sums of keep_cost. */
#include "passes/recompute_cut.h"
#include "ir/support/diag.h"
#include "passes/flow.h"
#include <math.h>
#include <string.h>

struct KeepNet {
  const KeepBody *body;
  Flow flow;
  uint32_t *of_value, *of_op;           /* nodes, 0: nothing needs it */
  uint32_t *need, *bytes, *kept, *flop; /* arcs, by value and by op, 0: none */
  bool *there, *done;                   /* for keep_cost */
};

/* ---- the cost of a set ---- */

static bool cost_of(const KeepBody *b, const bool *keep, bool *there, bool *done, KeepCost *cost) {
  memset(done, 0, b->nops);
  *cost = (KeepCost){0};
  for (uint32_t v = 0; v < b->nvalues; v++) there[v] = b->value[v].needed;
  for (uint32_t v = b->nvalues; v-- > 0;) {
    const KeepValue *x = &b->value[v];
    if (keep[v]) cost->bytes += x->bytes;
    if (!there[v] || keep[v] || x->known) continue;
    if (x->op == KEEP_NO_OP) return false;
    if (done[x->op]) continue;
    done[x->op] = true, cost->flop += b->op[x->op].flop;
    for (uint32_t k = 0; k < b->op[x->op].nin; k++) there[b->op[x->op].in[k]] = true;
  }
  return true;
}

bool keep_cost(Arena *a, const KeepBody *b, const bool *keep, KeepCost *cost) {
  return cost_of(b, keep, ARENA_ARRAY(a, bool, b->nvalues + 1), ARENA_ARRAY(a, bool, b->nops + 1),
                 cost);
}

/* ---- what matters ---- */

typedef struct Relevant {
  bool *value;     /* something needed is computed from it */
  uint32_t *users; /* by value: relevant ops that read it */
  uint32_t *user;  /* the last of them */
} Relevant;

static Relevant find_relevant(Arena *a, const KeepBody *b) {
  Relevant r = {ARENA_ARRAY(a, bool, b->nvalues + 1), ARENA_ARRAY(a, uint32_t, b->nvalues + 1),
                ARENA_ARRAY(a, uint32_t, b->nvalues + 1)};
  bool *op = ARENA_ARRAY(a, bool, b->nops + 1);
  for (uint32_t v = b->nvalues; v-- > 0;) {
    r.value[v] |= b->value[v].needed;
    uint32_t o = b->value[v].op;
    if (!r.value[v] || o == KEEP_NO_OP || op[o]) continue;
    op[o] = true;
    for (uint32_t k = 0; k < b->op[o].nin; k++) r.value[b->op[o].in[k]] = true;
  }
  for (uint32_t o = 0; o < b->nops; o++)
    for (uint32_t k = 0; op[o] && k < b->op[o].nin; k++) {
      uint32_t v = b->op[o].in[k];
      bool twice = false;
      for (uint32_t j = 0; j < k; j++) twice |= b->op[o].in[j] == v;
      r.users[v] += !twice, r.user[v] = o;
    }
  return r;
}

/* The only relevant value that op o makes, or KEEP_NO_OP. */
static uint32_t only_result(const KeepBody *b, const Relevant *r, uint32_t o) {
  uint32_t found = KEEP_NO_OP, n = 0;
  for (uint32_t v = 0; v < b->nvalues; v++)
    if (b->value[v].op == o && r->value[v]) found = v, n++;
  return n == 1 ? found : KEEP_NO_OP;
}

/* ---- the net of a body ---- */

/* Values that are never kept share the node of their op, where it has no other result. */
static void number_nodes(KeepNet *n, const Relevant *r, const KeepState *never) {
  const KeepBody *b = n->body;
  n->flow.nodes = FLOW_NODES;
  for (uint32_t v = 0; v < b->nvalues; v++) {
    uint32_t o = b->value[v].op;
    if (!r->value[v] || b->value[v].known) continue;
    if (o != KEEP_NO_OP && !n->of_op[o]) n->of_op[o] = n->flow.nodes++;
    bool alone = o != KEEP_NO_OP && never[v] == KEEP_NOT && only_result(b, r, o) == v;
    n->of_value[v] = alone ? n->of_op[o] : n->flow.nodes++;
  }
}

static void join_value(KeepNet *n, uint32_t v) {
  const KeepValue *x = &n->body->value[v];
  uint32_t at = n->of_value[v], op = x->op == KEEP_NO_OP ? FLOW_SINK : n->of_op[x->op];
  if (!at) return;
  n->need[v] = flow_join(&n->flow, FLOW_SOURCE, at, 0);
  if (at == op) return;
  n->bytes[v] = flow_join(&n->flow, at, op, 0);
  if (op != FLOW_SINK) n->kept[v] = flow_join(&n->flow, op, FLOW_SINK, 0);
}

static void join_op(KeepNet *n, uint32_t o) {
  const KeepOp *x = &n->body->op[o];
  if (!n->of_op[o]) return;
  n->flop[o] = flow_join(&n->flow, n->of_op[o], FLOW_SINK, 0);
  for (uint32_t k = 0; k < x->nin; k++)
    if (n->of_value[x->in[k]]) flow_join(&n->flow, n->of_op[o], n->of_value[x->in[k]], INFINITY);
}

KeepNet *keep_net(Arena *a, const KeepBody *b, const KeepState *never) {
  for (uint32_t i = 0; i < b->nops; i++)
    must(b->op[i].flop >= 0, "recompute: op %u costs %g", i, b->op[i].flop);
  uint32_t arcs = 3 * b->nvalues + b->nops, v = b->nvalues + 1, o = b->nops + 1;
  for (uint32_t i = 0; i < b->nops; i++) arcs += b->op[i].nin;
  KeepNet *n = ARENA_NEW(a, KeepNet);
  Relevant r = find_relevant(a, b);
  n->body = b;
  n->of_value = ARENA_ARRAY(a, uint32_t, v), n->of_op = ARENA_ARRAY(a, uint32_t, o);
  number_nodes(n, &r, never);
  n->flow = flow_new(a, n->flow.nodes, arcs);
  n->need = ARENA_ARRAY(a, uint32_t, v), n->bytes = ARENA_ARRAY(a, uint32_t, v);
  n->kept = ARENA_ARRAY(a, uint32_t, v), n->flop = ARENA_ARRAY(a, uint32_t, o);
  n->there = ARENA_ARRAY(a, bool, v), n->done = ARENA_ARRAY(a, bool, o);
  for (uint32_t i = 0; i < b->nvalues; i++) join_value(n, i);
  for (uint32_t i = 0; i < b->nops; i++) join_op(n, i);
  return n;
}

static void price(KeepNet *n, uint32_t arc, double room) {
  if (arc) flow_set(&n->flow, arc, room);
}

static void price_net(KeepNet *n, const KeepState *state, double flop_price, double byte_price) {
  const KeepBody *b = n->body;
  n->flow.least = 0;
  for (uint32_t i = 2; i < n->flow.narcs; i += 2) flow_set(&n->flow, i, INFINITY);
  for (uint32_t v = 0; v < b->nvalues; v++) {
    const KeepValue *x = &b->value[v];
    bool may = x->possible && state[v] != KEEP_NOT, must = state[v] == KEEP_ALWAYS;
    price(n, n->need[v], x->needed || must ? INFINITY : 0);
    price(n, n->bytes[v], may ? x->bytes * byte_price : INFINITY);
    price(n, n->kept[v], must ? INFINITY : 0);
  }
  for (uint32_t i = 0; i < b->nops; i++) price(n, n->flop[i], b->op[i].flop * flop_price);
}

bool keep_cheapest(KeepNet *n, const KeepState *state, double flop_price, double byte_price,
                   bool *keep, KeepCost *cost) {
  const KeepBody *b = n->body;
  must(flop_price >= 0 && byte_price >= 0, "recompute: prices of %g and %g", flop_price,
       byte_price);
  price_net(n, state, flop_price, byte_price);
  if (isinf(flow_run(&n->flow))) return false;
  for (uint32_t v = 0; v < b->nvalues; v++) {
    uint32_t at = n->of_value[v], o = b->value[v].op;
    bool computed = o != KEEP_NO_OP && n->flow.level[n->of_op[o]];
    keep[v] = at && n->flow.level[at] && !computed;
  }
  return cost_of(b, keep, n->there, n->done, cost);
}

/* ---- what no set needs ---- */

/* Its only use is to compute a value that is not larger: that one is kept instead. */
static bool replaced_by_user(const KeepBody *b, const Relevant *r, uint32_t v) {
  if (b->value[v].needed || r->users[v] != 1) return false;
  uint32_t w = only_result(b, r, r->user[v]);
  return w != KEEP_NO_OP && b->value[w].possible && b->value[w].bytes <= b->value[v].bytes;
}

/* It follows without operations from one value that is not larger: that one is kept instead. */
static bool replaced_by_input(const KeepBody *b, const KeepState *s, const bool *before,
                              uint32_t v) {
  const KeepValue *x = &b->value[v];
  if (x->op == KEEP_NO_OP || b->op[x->op].flop > 0) return false;
  uint32_t from = KEEP_NO_OP;
  for (uint32_t k = 0; k < b->op[x->op].nin; k++) {
    uint32_t u = b->op[x->op].in[k];
    if (b->value[u].known || u == from) continue;
    if (from != KEEP_NO_OP) return false;
    from = u;
  }
  if (from == KEEP_NO_OP) return true;
  return b->value[from].possible && (s[from] != KEEP_NOT || before[from]) &&
         b->value[from].bytes <= x->bytes;
}

KeepState *keep_states(Arena *a, const KeepBody *b) {
  KeepState *s = ARENA_ARRAY(a, KeepState, b->nvalues + 1);
  bool *before = ARENA_ARRAY(a, bool, b->nvalues + 1); /* replaced by what it is made of */
  Relevant r = find_relevant(a, b);
  for (uint32_t v = 0; v < b->nvalues; v++)
    if (!r.value[v] || b->value[v].known || !b->value[v].possible) s[v] = KEEP_NOT;
  for (uint32_t v = b->nvalues; v-- > 0;)
    if (s[v] == KEEP_OPEN && replaced_by_user(b, &r, v)) s[v] = KEEP_NOT;
  for (uint32_t v = 0; v < b->nvalues; v++)
    if (s[v] == KEEP_OPEN && replaced_by_input(b, s, before, v)) s[v] = KEEP_NOT, before[v] = true;
  return s;
}
