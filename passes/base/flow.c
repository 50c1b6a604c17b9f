/* Maximum flow by blocking flows (flow.h). Capacities are doubles; a capacity below 1e-13 of the
   largest finite one is rounding error and counts as none. */
#include "flow.h"
#include "ir/support/diag.h"
#include <float.h>
#include <math.h>
#include <string.h>

Flow flow_new(Arena *a, uint32_t nodes, uint32_t most_arcs) {
  must(nodes >= FLOW_NODES, "a net of %u nodes has no source and sink", nodes);
  Flow flow = {.nodes = nodes, .narcs = 2, .most = 2 * most_arcs + 2};
  flow.first = ARENA_ARRAY(a, uint32_t, nodes), flow.now = ARENA_ARRAY(a, uint32_t, nodes);
  flow.level = ARENA_ARRAY(a, uint32_t, nodes), flow.queue = ARENA_ARRAY(a, uint32_t, nodes);
  flow.arc = ARENA_ARRAY(a, FlowArc, 2 * most_arcs + 2);
  return flow;
}

uint32_t flow_join(Flow *flow, uint32_t from, uint32_t to, double room) {
  must(from < flow->nodes && to < flow->nodes && from != to, "an arc from node %u to %u of %u",
       from, to, flow->nodes);
  must(flow->narcs < flow->most, "a net of more than %u arcs", flow->most / 2 - 1);
  flow->arc[flow->narcs] = (FlowArc){to, flow->first[from], 0};
  flow->first[from] = flow->narcs++;
  flow->arc[flow->narcs] = (FlowArc){from, flow->first[to], 0};
  flow->first[to] = flow->narcs++;
  flow_set(flow, flow->narcs - 2, room);
  return flow->narcs - 2;
}

void flow_set(Flow *flow, uint32_t arc, double room) {
  must(arc >= 2 && arc < flow->narcs, "a net has no arc %u", arc);
  must(room >= 0, "an arc with room for %g", room);
  flow->arc[arc].room = room, flow->arc[arc ^ 1].room = 0;
  if (isfinite(room)) flow->least = fmax(flow->least, room * 1e-13);
}

static bool find_levels(Flow *flow) {
  uint32_t head = 0, tail = 0;
  memset(flow->level, 0, sizeof *flow->level * flow->nodes);
  flow->level[FLOW_SOURCE] = 1, flow->queue[tail++] = FLOW_SOURCE;
  while (head < tail) {
    uint32_t at = flow->queue[head++];
    for (uint32_t i = flow->first[at]; i; i = flow->arc[i].next) {
      if (flow->arc[i].room <= flow->least || flow->level[flow->arc[i].to]) continue;
      flow->level[flow->arc[i].to] = flow->level[at] + 1;
      flow->queue[tail++] = flow->arc[i].to;
    }
  }
  return flow->level[FLOW_SINK] > 0;
}

static double push(Flow *flow, uint32_t at, double most) {
  if (at == FLOW_SINK) return most;
  for (uint32_t *i = &flow->now[at]; *i; *i = flow->arc[*i].next) {
    FlowArc *arc = &flow->arc[*i];
    if (arc->room <= flow->least || flow->level[arc->to] != flow->level[at] + 1) continue;
    double sent = push(flow, arc->to, fmin(most, arc->room));
    if (sent <= 0) continue;
    arc->room -= sent, flow->arc[*i ^ 1].room += sent;
    return sent;
  }
  return 0;
}

double flow_run(Flow *flow) {
  double sum = 0, sent;
  while (find_levels(flow) && sum < DBL_MAX) {
    memcpy(flow->now, flow->first, sizeof *flow->now * flow->nodes);
    while ((sent = push(flow, FLOW_SOURCE, INFINITY)) > 0 && isfinite(sent)) sum += sent;
    if (isinf(sent)) return INFINITY;
  }
  return sum;
}
