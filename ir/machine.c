/* The machine of a plan as numbers (machine.h), from the settings machine.* of a module.

   A node with GPUs has a rank per GPU, and memory, reserve and peaks are each rank's; without, the
   ranks of a node share its memory, and peaks are the node's. Ranks stand in nodes one after
   another, the first axis of the mesh varies fastest. A ring over an axis that leaves the node is
   as fast as its slowest link: of a node's way out it has the share of the ranks that it joins
   there, and no faster than a processor that carries its bytes. Each of its hops has the latency of
   the link (alpha-beta model; Hockney). Times are bounds: peaks that are reached, messages that
   never wait. */
#include "machine.h"
#include "message.h"
#include "placement.h"
#include <stdlib.h>
#include "module_settings.h"

enum { GPU_RESERVE = 1536 };
static const char RESERVE[] = "machine.node.reserve";

/* Of the type that the plan computes in; 0: the machine does not say it. */
static double peak(const Module *m) {
  Str said = module_said(m, arena_printf(m->arena, "machine.node.%s", plan_precision(m)));
  return said ? strtod(said, NULL) : 0;
}

static int64_t ranks_in_node(const Module *m, int64_t gpus) {
  int64_t ranks = mesh_ranks(m), nodes = module_whole(m, "plan.on.nodes");
  int64_t most = gpus ? gpus : (ranks + nodes - 1) / nodes;
  return most < ranks ? most : ranks;
}

Machine plan_machine(const Module *m) {
  int64_t gpus = module_whole(m, "machine.node.gpus");
  Machine x = {.gpus = gpus > 0};
  x.in_node = ranks_in_node(m, gpus);
  double share = x.gpus ? 1 : (double)x.in_node;
  double reserve = x.gpus ? (double)GPU_RESERVE * (1 << 20) : 0;
  x.memory = (int64_t)(machine_node_memory(m) / share);
  if (module_said(m, RESERVE)) reserve = module_amount(m, RESERVE);
  x.reserve = x.memory ? (int64_t)(reserve / share) : 0;
  x.flops = peak(m) / share;
  x.hbm = module_amount(m, "machine.node.hbm") / share;
  x.intra = module_amount(m, "machine.link.intra");
  x.inter = module_amount(m, "machine.link.inter");
  x.latency = module_amount(m, "machine.link.latency");
  x.carries = module_amount(m, "machine.link.per_core");
  if (!x.gpus) return x;
  x.host = (int64_t)(module_amount(m, "machine.host.memory") / (double)x.in_node);
  x.pcie = module_amount(m, "machine.host.pcie"), x.copy = module_amount(m, "machine.host.latency");
  x.dram = module_amount(m, "machine.host.dram") / (double)x.in_node;
  return x;
}

int64_t plan_capacity(const Machine *x) { return x->memory - x->reserve; }

/* ---- time ---- */

static int64_t stride_of(const Module *m, int axis) {
  int64_t n = 1;
  for (int i = 0; i < axis; i++) n *= m->mesh.at[i].size;
  return n;
}

/* Ranks of one ring over the axis that stand in one node. */
static int64_t joined(const Module *m, const Machine *x, int axis) {
  int64_t n = x->in_node / stride_of(m, axis), size = m->mesh.at[axis].size;
  return n < 1 ? 1 : n < size ? n : size;
}

bool axis_crosses(const Module *m, const Machine *x, int axis) {
  return joined(m, x, axis) < m->mesh.at[axis].size;
}

/* Bytes per second that a rank sends over an axis, 0: not known. */
static double rate_over(const Module *m, const Machine *x, int axis) {
  int64_t k = joined(m, x, axis);
  if (!axis_crosses(m, x, axis) || x->inter <= 0) return x->intra;
  double out = x->inter * (double)k / (double)x->in_node;
  if (x->carries > 0 && x->carries < out) out = x->carries;
  return k > 1 && x->intra > 0 && x->intra < out ? x->intra : out;
}

static double hops_of(OpCode kind, double n) {
  return op_is_hop(kind) ? 1 : kind == OP_all_reduce ? 2 * (n - 1) : n - 1;
}

/* Of bytes in paper counting, a ring of n sends (n - 1) / n. */
static double seconds_over(const Module *m, const Machine *x, int axis, OpCode kind, double calls,
                           double bytes) {
  double n = (double)m->mesh.at[axis].size, rate = rate_over(m, x, axis);
  double late = axis_crosses(m, x, axis) ? calls * hops_of(kind, n) * x->latency : 0;
  return rate > 0 ? bytes * (n - 1) / n / rate + late : 0;
}

double message_load(const Module *m, const Machine *x, int axis) {
  if (x->carries <= 0 || !axis_crosses(m, x, axis)) return 0;
  double workers = m->target.workers > 1 ? (double)m->target.workers : 1;
  return rate_over(m, x, axis) / x->carries / workers;
}

bool machine_is_known(const Module *m, const Machine *x) {
  bool known = x->flops > 0;
  for (int i = 0; i < (int)m->mesh.n; i++) known &= rate_over(m, x, i) > 0;
  return known;
}

double message_seconds(const Module *m, const Machine *x, const Fn *f, const Op *o) {
  int axis = mesh_find(m, attr_str(&o->attrs, ATTR_axis, ""));
  Message one = message_of(f, o);
  return seconds_over(m, x, axis, o->code, (double)(one.times * one.pieces),
                      message_traffic(f, o) * elem_bytes(value_type(f, o->out)->elem));
}

static bool add_messages(StepTime *t, const Module *m, const Machine *x, const Traffic *sent) {
  double seconds = seconds_over(m, x, sent->axis, sent->kind, sent->calls, sent->bytes);
  t->axis[sent->axis] += seconds, t->exposed[sent->axis] += seconds;
  return seconds > 0 || sent->bytes <= 0 || m->mesh.at[sent->axis].size == 1;
}

double move_seconds(const Machine *x, const Moves *moves) {
  return x->pcie > 0 ? (moves->down + moves->up) / x->pcie + moves->calls * x->copy : 0;
}

static double larger(double a, double b) { return a > b ? a : b; }

StepTime plan_time(const Module *m, const Machine *x, const TrafficList *traffic,
                   const Moves *moves, const IrCount *beside, double flop, double bytes) {
  StepTime t = {.pcie = move_seconds(x, moves), .host = x->dram > 0 ? beside->bytes / x->dram : 0};
  const double down = x->pcie > 0 ? moves->down / x->pcie : 0,
               up = x->pcie > 0 ? moves->up / x->pcie : 0;
  t.longest = larger(t.host, larger(down, up));
  bool known = x->flops > 0 && (beside->bytes <= 0 || x->dram > 0) &&
               (!x->gpus || !moves->calls || x->pcie > 0);
  if (x->flops > 0) t.compute = flop / x->flops;
  if (x->hbm > 0) t.memory = bytes / x->hbm;
  for (uint32_t i = 0; i < traffic->n; i++) known &= add_messages(&t, m, x, &traffic->at[i]);
  if (!known) return t;
  t.total = (t.compute > t.memory ? t.compute : t.memory) + t.pcie + t.host;
  for (uint32_t i = 0; i < m->mesh.n; i++) t.total += t.axis[i];
  return t;
}
