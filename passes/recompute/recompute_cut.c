/* recompute: one body, a price per operation and per byte: a minimum cut.

   Two boolean unknowns. a(v): is v available in the backward pass? c(o): does the backward pass
   compute o again? Needed values are available; an op that is computed has its inputs available; a
   value that is available without its op being computed was kept, and its bytes are paid. Every
   cost depends on one unknown or on one `yes` with one `no`, so the cheapest answer is a minimum
   cut between yes (source) and no (sink):

     source -> a(v)  infinite    v is needed
     a(v) -> c(o)    bytes       o makes v (infinite where v may not be kept)
     c(o) -> a(u)    infinite    o reads u
     c(o) -> sink    flop
     a(v) -> sink    bytes       v is an input of the layer

   The algorithm takes the cut next to the source, so that equal costs are always decided the same
   way. A value that a search has settled as kept has a price of its own to its op: a(v) holds and
   c(o) does not.

   Numbers are doubles; the final comparison uses the exact sums of keep_cost. */
#include "recompute_cut.h"
#include "ir/support/diag.h"
#include "passes/base/flow.h"
#include <math.h>
#include <string.h>

struct KeepNet {
  const KeepBody *body;
  Flow flow;
  uint32_t *of_value, *of_op;           /* nodes, 0: nothing needs it */
  uint32_t *need, *bytes, *kept, *flop; /* arcs, by value and by op, 0: none */
  bool *needed, *done;                  /* for keep_cost */
};

/* ---- the cost of a set ---- */

static bool cost_of(const KeepBody *body, const bool *keep, bool *needed, bool *done,
                    KeepCost *cost) {
  memset(done, 0, body->nops);
  *cost = (KeepCost){0};
  for (uint32_t v = 0; v < body->nvalues; v++) needed[v] = body->value[v].needed;
  for (uint32_t v = body->nvalues; v-- > 0;) {
    const KeepValue *value = &body->value[v];
    if (keep[v]) cost->bytes += value->bytes;
    if (!needed[v] || keep[v] || value->known) continue;
    if (value->op == KEEP_NO_OP) return false;
    if (done[value->op]) continue;
    done[value->op] = true, cost->flop += body->op[value->op].flop;
    for (uint32_t k = 0; k < body->op[value->op].nin; k++) needed[body->op[value->op].in[k]] = true;
  }
  return true;
}

bool keep_cost(Arena *arena, const KeepBody *body, const bool *keep, KeepCost *cost) {
  return cost_of(body, keep, ARENA_ARRAY(arena, bool, body->nvalues + 1),
                 ARENA_ARRAY(arena, bool, body->nops + 1), cost);
}

/* ---- relevant values ---- */

typedef struct Relevant {
  bool *value;     /* something needed is computed from it */
  uint32_t *users; /* by value: relevant ops that read it */
  uint32_t *user;  /* the last of them */
} Relevant;

static Relevant find_relevant(Arena *arena, const KeepBody *body) {
  Relevant relevant = {ARENA_ARRAY(arena, bool, body->nvalues + 1),
                       ARENA_ARRAY(arena, uint32_t, body->nvalues + 1),
                       ARENA_ARRAY(arena, uint32_t, body->nvalues + 1)};
  bool *op = ARENA_ARRAY(arena, bool, body->nops + 1);
  for (uint32_t v = body->nvalues; v-- > 0;) {
    relevant.value[v] |= body->value[v].needed;
    uint32_t o = body->value[v].op;
    if (!relevant.value[v] || o == KEEP_NO_OP || op[o]) continue;
    op[o] = true;
    for (uint32_t k = 0; k < body->op[o].nin; k++) relevant.value[body->op[o].in[k]] = true;
  }
  for (uint32_t o = 0; o < body->nops; o++)
    for (uint32_t k = 0; op[o] && k < body->op[o].nin; k++) {
      uint32_t v = body->op[o].in[k];
      bool twice = false;
      for (uint32_t j = 0; j < k; j++) twice |= body->op[o].in[j] == v;
      relevant.users[v] += !twice, relevant.user[v] = o;
    }
  return relevant;
}

/* The only relevant value that op o makes, or KEEP_NO_OP. */
static uint32_t only_result(const KeepBody *body, const Relevant *relevant, uint32_t o) {
  uint32_t found = KEEP_NO_OP, n = 0;
  for (uint32_t v = 0; v < body->nvalues; v++)
    if (body->value[v].op == o && relevant->value[v]) found = v, n++;
  return n == 1 ? found : KEEP_NO_OP;
}

/* ---- the net of a body ---- */

/* Values that are never kept share the node of their op, where it has no other result. */
static void number_nodes(KeepNet *net, const Relevant *relevant, const KeepState *never) {
  const KeepBody *body = net->body;
  net->flow.nodes = FLOW_NODES;
  for (uint32_t v = 0; v < body->nvalues; v++) {
    uint32_t o = body->value[v].op;
    if (!relevant->value[v] || body->value[v].known) continue;
    if (o != KEEP_NO_OP && !net->of_op[o]) net->of_op[o] = net->flow.nodes++;
    bool alone = o != KEEP_NO_OP && never[v] == KEEP_NOT && only_result(body, relevant, o) == v;
    net->of_value[v] = alone ? net->of_op[o] : net->flow.nodes++;
  }
}

static void join_value(KeepNet *net, uint32_t v) {
  const KeepValue *value = &net->body->value[v];
  uint32_t at = net->of_value[v], op = value->op == KEEP_NO_OP ? FLOW_SINK : net->of_op[value->op];
  if (!at) return;
  net->need[v] = flow_join(&net->flow, FLOW_SOURCE, at, 0);
  if (at == op) return;
  net->bytes[v] = flow_join(&net->flow, at, op, 0);
  if (op != FLOW_SINK) net->kept[v] = flow_join(&net->flow, op, FLOW_SINK, 0);
}

static void join_op(KeepNet *net, uint32_t o) {
  const KeepOp *x = &net->body->op[o];
  if (!net->of_op[o]) return;
  net->flop[o] = flow_join(&net->flow, net->of_op[o], FLOW_SINK, 0);
  for (uint32_t k = 0; k < x->nin; k++)
    if (net->of_value[x->in[k]])
      flow_join(&net->flow, net->of_op[o], net->of_value[x->in[k]], INFINITY);
}

KeepNet *keep_net(Arena *arena, const KeepBody *body, const KeepState *never) {
  for (uint32_t i = 0; i < body->nops; i++)
    must(body->op[i].flop >= 0, "recompute: op %u costs %g", i, body->op[i].flop);
  uint32_t arcs = 3 * body->nvalues + body->nops, v = body->nvalues + 1, o = body->nops + 1;
  for (uint32_t i = 0; i < body->nops; i++) arcs += body->op[i].nin;
  KeepNet *net = ARENA_NEW(arena, KeepNet);
  Relevant relevant = find_relevant(arena, body);
  net->body = body;
  net->of_value = ARENA_ARRAY(arena, uint32_t, v), net->of_op = ARENA_ARRAY(arena, uint32_t, o);
  number_nodes(net, &relevant, never);
  net->flow = flow_new(arena, net->flow.nodes, arcs);
  net->need = ARENA_ARRAY(arena, uint32_t, v), net->bytes = ARENA_ARRAY(arena, uint32_t, v);
  net->kept = ARENA_ARRAY(arena, uint32_t, v), net->flop = ARENA_ARRAY(arena, uint32_t, o);
  net->needed = ARENA_ARRAY(arena, bool, v), net->done = ARENA_ARRAY(arena, bool, o);
  for (uint32_t i = 0; i < body->nvalues; i++) join_value(net, i);
  for (uint32_t i = 0; i < body->nops; i++) join_op(net, i);
  return net;
}

static void price(KeepNet *net, uint32_t arc, double room) {
  if (arc) flow_set(&net->flow, arc, room);
}

static void price_net(KeepNet *net, const KeepState *state, double flop_price, double byte_price) {
  const KeepBody *body = net->body;
  net->flow.least = 0;
  for (uint32_t i = 2; i < net->flow.narcs; i += 2) flow_set(&net->flow, i, INFINITY);
  for (uint32_t v = 0; v < body->nvalues; v++) {
    const KeepValue *value = &body->value[v];
    bool may = value->possible && state[v] != KEEP_NOT, must = state[v] == KEEP_ALWAYS;
    price(net, net->need[v], value->needed || must ? INFINITY : 0);
    price(net, net->bytes[v], may ? value->bytes * byte_price : INFINITY);
    price(net, net->kept[v], must ? INFINITY : 0);
  }
  for (uint32_t i = 0; i < body->nops; i++) price(net, net->flop[i], body->op[i].flop * flop_price);
}

bool keep_cheapest(KeepNet *net, const KeepState *state, double flop_price, double byte_price,
                   bool *keep, KeepCost *cost) {
  const KeepBody *body = net->body;
  must(flop_price >= 0 && byte_price >= 0, "recompute: prices of %g and %g", flop_price,
       byte_price);
  price_net(net, state, flop_price, byte_price);
  if (isinf(flow_run(&net->flow))) return false;
  for (uint32_t v = 0; v < body->nvalues; v++) {
    uint32_t at = net->of_value[v], o = body->value[v].op;
    bool computed = o != KEEP_NO_OP && net->flow.level[net->of_op[o]];
    keep[v] = at && net->flow.level[at] && !computed;
  }
  return cost_of(body, keep, net->needed, net->done, cost);
}

/* ---- values that no set needs ---- */

/* Its only use is to compute a value that is not larger: that one is kept instead. */
static bool replaced_by_user(const KeepBody *body, const Relevant *relevant, uint32_t v) {
  if (body->value[v].needed || relevant->users[v] != 1) return false;
  uint32_t w = only_result(body, relevant, relevant->user[v]);
  return w != KEEP_NO_OP && body->value[w].possible && body->value[w].bytes <= body->value[v].bytes;
}

/* It follows without operations from one value that is not larger: that one is kept instead. */
static bool replaced_by_input(const KeepBody *body, const KeepState *s, const bool *before,
                              uint32_t v) {
  const KeepValue *value = &body->value[v];
  if (value->op == KEEP_NO_OP || body->op[value->op].flop > 0) return false;
  uint32_t from = KEEP_NO_OP;
  for (uint32_t k = 0; k < body->op[value->op].nin; k++) {
    uint32_t u = body->op[value->op].in[k];
    if (body->value[u].known || u == from) continue;
    if (from != KEEP_NO_OP) return false;
    from = u;
  }
  if (from == KEEP_NO_OP) return true;
  return body->value[from].possible && (s[from] != KEEP_NOT || before[from]) &&
         body->value[from].bytes <= value->bytes;
}

KeepState *keep_states(Arena *arena, const KeepBody *body) {
  KeepState *s = ARENA_ARRAY(arena, KeepState, body->nvalues + 1);
  bool *before = ARENA_ARRAY(arena, bool, body->nvalues + 1); /* replaced by its operand */
  Relevant relevant = find_relevant(arena, body);
  for (uint32_t v = 0; v < body->nvalues; v++)
    if (!relevant.value[v] || body->value[v].known || !body->value[v].possible) s[v] = KEEP_NOT;
  for (uint32_t v = body->nvalues; v-- > 0;)
    if (s[v] == KEEP_OPEN && replaced_by_user(body, &relevant, v)) s[v] = KEEP_NOT;
  for (uint32_t v = 0; v < body->nvalues; v++)
    if (s[v] == KEEP_OPEN && replaced_by_input(body, s, before, v))
      s[v] = KEEP_NOT, before[v] = true;
  return s;
}
