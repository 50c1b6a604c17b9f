/* Maximum flow and minimum cut of a network: nodes and directed arcs with a capacity, from node
   FLOW_SOURCE to FLOW_SINK. The algorithm is Dinic's: blocking flows over shortest paths. Arcs are
   stored in pairs (the second one is the reverse arc), numbered from 2. After flow_run the nodes
   with a level are on the source's side of the minimum cut that is closest to the source. */
#ifndef SHARDC_PASSES_FLOW_H
#define SHARDC_PASSES_FLOW_H
#include "ir/support/arena.h"
#include <stdbool.h>
#include <stdint.h>

enum { FLOW_SOURCE, FLOW_SINK, FLOW_NODES }; /* FLOW_NODES: the first number of other nodes */

typedef struct FlowArc {
  uint32_t to, next; /* next arc of the same node, 0: none */
  double room;
} FlowArc;

typedef struct Flow {
  uint32_t nodes, narcs, most;           /* most: arcs that there is room for, both ways */
  uint32_t *first, *now, *level, *queue; /* by node */
  FlowArc *arc;
  double least; /* room below this is none */
} Flow;

Flow flow_new(Arena *a, uint32_t nodes, uint32_t most_arcs);
uint32_t flow_join(Flow *flow, uint32_t from, uint32_t to, double room); /* the arc */
void flow_set(Flow *flow, uint32_t arc, double room); /* empty again, with this room */
double flow_run(Flow *flow);                          /* INFINITY: source and sink cannot be cut */
#endif
