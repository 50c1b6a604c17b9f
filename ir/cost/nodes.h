/* Nodes of a plan's machine, and the messages of a step that leave them. Ranks are assigned to
   nodes in order, `in_node` to each; the first axis of the mesh varies fastest.

   Ranks along an axis send in a ring, each to the next one; in an all-to-all exchange, each to
   every other one; stages of a pipeline send to the next or the previous stage. A message leaves
   its node if its receiver is on another one. Messages are counted rank by rank, hence also for
   axes whose size is not a multiple of the node's. */
#ifndef SHARDC_IR_NODES_H
#define SHARDC_IR_NODES_H
#include "ir/ir.h"
#include "ir/plan/stage_class.h"

#define NODE_GAIN 0.99 /* what saves less is no reason to write another order */

typedef struct NodeSends { /* of the ranks of one program, over one axis, in bytes of a step */
  double own;              /* that they send out of a node, of those that they are in the most */
  double all;              /* the same of all ranks of a node that has such a rank */
} NodeSends;

typedef struct NodeTraffic {
  double leaves[MAX_MESH]; /* bytes of a step that leave nodes, over an axis, from all nodes */
  double sum;              /* over all axes */
  NodeSends from[MAX_MESH][STAGE_CLASSES]; /* by program */
} NodeTraffic;

/* For the programs of a plan (one, or one for each class of ranks) after pass `order`, per step. */
NodeTraffic node_traffic(Module *const *programs, uint32_t n, int64_t in_node);
/* Bytes of a step that leave nodes in the order of axes, fastest-varying first, in which the fewest
   do if each rank sends what it does now; of those within a hundredth the nearest to the order that
   there is. Axes of which `keep` has the bit stay as they are among themselves. */
double node_order(Module *const *programs, uint32_t n, int64_t in_node, uint32_t keep, int *order);
/* The largest number of ranks of one ring over the axis that share one of the `cpus` processors of
   a node; 1: of one node. Ranks of a node are assigned to its processors in order. */
int64_t node_joined(const Module *m, int axis, int64_t in_node, int64_t cpus);
/* Sets of nodes, none with a rank that sends over the axis to a rank of another set. */
int64_t node_sets(const Module *m, int axis, int64_t in_node);
#endif
