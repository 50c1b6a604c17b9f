/* Maximum flow by blocking flows (flow.h). Rooms are doubles; what is smaller than 1e-13 of the
   largest finite room is rounding and counts as none. */
#include "passes/flow.h"
#include "ir/support/diag.h"
#include <float.h>
#include <math.h>
#include <string.h>

Flow flow_new(Arena *a, uint32_t nodes, uint32_t most_arcs) {
  must(nodes >= FLOW_NODES, "a net of %u nodes has no source and sink", nodes);
  Flow n = {.nodes = nodes, .narcs = 2, .most = 2 * most_arcs + 2};
  n.first = ARENA_ARRAY(a, uint32_t, nodes), n.now = ARENA_ARRAY(a, uint32_t, nodes);
  n.level = ARENA_ARRAY(a, uint32_t, nodes), n.queue = ARENA_ARRAY(a, uint32_t, nodes);
  n.arc = ARENA_ARRAY(a, FlowArc, 2 * most_arcs + 2);
  return n;
}

uint32_t flow_join(Flow *n, uint32_t from, uint32_t to, double room) {
  must(from < n->nodes && to < n->nodes && from != to, "an arc from node %u to %u of %u", from, to,
       n->nodes);
  must(n->narcs < n->most, "a net of more than %u arcs", n->most / 2 - 1);
  n->arc[n->narcs] = (FlowArc){to, n->first[from], 0};
  n->first[from] = n->narcs++;
  n->arc[n->narcs] = (FlowArc){from, n->first[to], 0};
  n->first[to] = n->narcs++;
  flow_set(n, n->narcs - 2, room);
  return n->narcs - 2;
}

void flow_set(Flow *n, uint32_t arc, double room) {
  must(arc >= 2 && arc < n->narcs, "a net has no arc %u", arc);
  must(room >= 0, "an arc with room for %g", room);
  n->arc[arc].room = room, n->arc[arc ^ 1].room = 0;
  if (isfinite(room)) n->least = fmax(n->least, room * 1e-13);
}

static bool find_levels(Flow *n) {
  uint32_t head = 0, tail = 0;
  memset(n->level, 0, sizeof *n->level * n->nodes);
  n->level[FLOW_SOURCE] = 1, n->queue[tail++] = FLOW_SOURCE;
  while (head < tail) {
    uint32_t at = n->queue[head++];
    for (uint32_t i = n->first[at]; i; i = n->arc[i].next) {
      if (n->arc[i].room <= n->least || n->level[n->arc[i].to]) continue;
      n->level[n->arc[i].to] = n->level[at] + 1;
      n->queue[tail++] = n->arc[i].to;
    }
  }
  return n->level[FLOW_SINK] > 0;
}

static double push(Flow *n, uint32_t at, double most) {
  if (at == FLOW_SINK) return most;
  for (uint32_t *i = &n->now[at]; *i; *i = n->arc[*i].next) {
    FlowArc *a = &n->arc[*i];
    if (a->room <= n->least || n->level[a->to] != n->level[at] + 1) continue;
    double sent = push(n, a->to, fmin(most, a->room));
    if (sent <= 0) continue;
    a->room -= sent, n->arc[*i ^ 1].room += sent;
    return sent;
  }
  return 0;
}

double flow_run(Flow *n) {
  double sum = 0, sent;
  while (find_levels(n) && sum < DBL_MAX) {
    memcpy(n->now, n->first, sizeof *n->now * n->nodes);
    while ((sent = push(n, FLOW_SOURCE, INFINITY)) > 0 && isfinite(sent)) sum += sent;
    if (isinf(sent)) return INFINITY;
  }
  return sum;
}
