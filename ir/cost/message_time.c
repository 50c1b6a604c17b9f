/* Seconds of messages in a forecast (message_time.h).

   A message takes its bytes over the slowest link of its axis, at the share of that link which long
   messages reach (arch.def, applied by forecast.c), and the latency of its hops: of a ring of n
   ranks, k of them in each node, n / k hops between nodes, and the others inside. An all-reduce may
   take a tree instead, as NCCL does where that is faster: log2(n) hops up and as many down, at
   TREE_RATE of the ring's rate. Each call also takes the launch of a kernel. */
#include "message_time.h"
#include "ir/collective.h"
#include <math.h>

static const double TREE_RATE = 0.92; /* NCCL's own factor for trees of its simple protocol */

/* Latency of one turn of a ring of n ranks. */
static double ring_latency(const Module *m, const Machine *machine, int axis, double n) {
  if (!axis_crosses(m, machine, axis)) return (n - 1) * machine->reach->hop_inside;
  double between = n / (double)axis_joined(m, machine, axis);
  between = between < n - 1 ? between : n - 1;
  return between * machine->latency + (n - 1 - between) * machine->reach->hop_inside;
}

/* .. of the way to the root of a tree. */
static double tree_latency(const Module *m, const Machine *machine, int axis, double n) {
  double inside = (double)axis_joined(m, machine, axis);
  if (!axis_crosses(m, machine, axis)) return ceil(log2(n)) * machine->reach->hop_inside;
  return (inside - 1) * machine->reach->hop_inside + ceil(log2(n / inside)) * machine->latency;
}

/* Bytes per second of a rank. A ring that enters and leaves each node once uses one network card;
   an all-reduce uses several rings. */
static double rate_of(const Module *m, const Machine *machine, int axis, OpCode kind) {
  double rate = axis_rate(m, machine, axis), rail = machine->reach->rail;
  bool one = kind != OP_all_reduce && axis_crosses(m, machine, axis);
  return one && rail > 0 && rail < rate ? rail : rate;
}

LinkTime message_time(const Module *m, const Machine *machine, int axis, OpCode kind, double calls,
                      double bytes) {
  double n = (double)m->mesh.at[axis].size, rate = rate_of(m, machine, axis, kind);
  if (rate <= 0 || n <= 1) return (LinkTime){0};
  double sent =
      op_is_p2p(kind) ? bytes / rate : sending_seconds(m, machine, axis, kind, rate, bytes);
  double hop = ring_latency(m, machine, axis, n);
  if (op_is_p2p(kind) || op_collective(kind)->way == SEND_SHIFT)
    hop = axis_crosses(m, machine, axis) ? machine->latency : machine->reach->hop_inside;
  else hop *= op_collective(kind)->passes;
  double late = calls * (hop + machine->reach->launch), all = sent + late;
  if (kind == OP_all_reduce) {
    double up = calls * (2 * tree_latency(m, machine, axis, n) + machine->reach->launch);
    if (sent / TREE_RATE + up < all) late = up, all = sent / TREE_RATE + up;
  }
  return (LinkTime){all, late};
}
