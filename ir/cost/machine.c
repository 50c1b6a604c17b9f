/* The machine of a plan as numbers (machine.h), from the settings machine.* of a module.

   A node with GPUs has a rank per GPU, and memory, reserve and peaks are each rank's; without, the
   ranks of a node share its memory, and peaks are the node's. Ranks fill nodes one after another;
   the first axis of the mesh varies fastest. A ring over an axis that leaves the node is as fast as
   its slowest link: it gets the share of the node's network that its ranks in the node have, and is
   no faster than a processor that carries its bytes; an all-to-all sends from every rank to every
   other one. Each of its hops has the latency of
   the link (alpha-beta model; Hockney). Times are bounds: peaks that are reached, messages that
   never wait.

   Where ranks outnumber the cores of a node (`node cores`), each has its share of a core while all
   compute, and a whole one while the others wait; copies between them share the cores as well. */
#include "machine.h"
#include "message_time.h"
#include "ir/schedule/message.h"
#include "ir/shape/placement.h"
#include <stdlib.h>
#include "ir/plan/module_settings.h"

static const char RESERVE[] = "machine.node.reserve";

/* The peak of the type that the plan computes in; 0: the machine does not say it. */
static double peak(const Module *m) {
  Str said = module_said(m, arena_printf(m->arena, "machine.node.%s", plan_precision(m)));
  return said ? strtod(said, NULL) : 0;
}

static int64_t ranks_in_node(const Module *m, int64_t gpus) {
  int64_t ranks = mesh_ranks(m), nodes = module_whole(m, "plan.on.nodes");
  int64_t most = gpus ? gpus : (ranks + nodes - 1) / nodes;
  return most < ranks ? most : ranks;
}

/* A program has at most as many threads for a rank as it was cut for. */
static int64_t threads_of(const Module *m, const Machine *machine) {
  int64_t cores = module_whole(m, "machine.node.cores"), most = m->target.workers;
  int64_t share = (cores > 0 ? cores : most) / (machine->in_node > 0 ? machine->in_node : 1);
  share = share < most ? share : most;
  return machine->gpus || share < 1 ? 1 : share;
}

static double ranks_on_core(const Module *m, const Machine *machine) {
  int64_t cores = module_whole(m, "machine.node.cores");
  return machine->gpus || cores < 1 || cores >= machine->in_node
             ? 1
             : (double)machine->in_node / (double)cores;
}

Machine plan_machine(const Module *m) {
  int64_t gpus = module_whole(m, "machine.node.gpus");
  Machine machine = {.gpus = gpus > 0};
  machine.in_node = ranks_in_node(m, gpus);
  double share = machine.gpus ? 1 : (double)machine.in_node;
  double reserve = machine.gpus ? GPU_RESERVE : 0;
  machine.memory = (int64_t)(machine_node_memory(m) / share);
  if (module_said(m, RESERVE)) reserve = module_amount(m, RESERVE);
  machine.reserve = machine.memory ? (int64_t)(reserve / share) : 0;
  machine.flops = peak(m) / share;
  machine.hbm = module_amount(m, "machine.node.hbm") / share;
  machine.cpus = module_whole(m, "machine.node.cpus");
  machine.on_core = ranks_on_core(m, &machine);
  machine.threads = threads_of(m, &machine);
  machine.between = module_amount(m, "machine.link.cpus");
  machine.intra = module_amount(m, "machine.link.intra");
  machine.inter = module_amount(m, "machine.link.inter");
  machine.latency = module_amount(m, "machine.link.latency");
  machine.carries = module_amount(m, "machine.link.per_core");
  if (!machine.gpus) return machine;
  machine.host = (int64_t)(module_amount(m, "machine.host.memory") / (double)machine.in_node);
  machine.pcie = module_amount(m, "machine.host.pcie"),
  machine.copy = module_amount(m, "machine.host.latency");
  machine.dram = module_amount(m, "machine.host.dram") / (double)machine.in_node;
  return machine;
}

int64_t plan_capacity(const Machine *machine) { return machine->memory - machine->reserve; }

/* ---- time ---- */

static int64_t stride_of(const Module *m, int axis) {
  int64_t n = 1;
  for (int i = 0; i < axis; i++) n *= m->mesh.at[i].size;
  return n;
}

/* Ranks of one ring over the axis that are in one node. */
int64_t axis_joined(const Module *m, const Machine *machine, int axis) {
  int64_t n = machine->in_node / stride_of(m, axis), size = m->mesh.at[axis].size;
  return n < 1 ? 1 : n < size ? n : size;
}

/* Rings of n ranks, `stride` apart, fill blocks of stride x n ranks. */
bool axis_crosses(const Module *m, const Machine *machine, int axis) {
  int64_t n = m->mesh.at[axis].size;
  return n > 1 && machine->in_node % (stride_of(m, axis) * n) != 0;
}

/* The same inside of a node, where the ranks of a processor share its link: a ring gets the share
   of the ranks that it joins. */
static double rate_inside(const Module *m, const Machine *machine, int axis) {
  int64_t here = machine->cpus > 1 ? (machine->in_node + machine->cpus - 1) / machine->cpus : 0;
  int64_t stride = stride_of(m, axis), n = m->mesh.at[axis].size;
  if (machine->between <= 0 || !here || n == 1 || here % (stride * n) == 0) return machine->intra;
  int64_t k = here / stride < 1 ? 1 : here / stride;
  double out = machine->between * (double)k / (double)here;
  return machine->intra > 0 && machine->intra < out ? machine->intra : out;
}

/* Bytes per second that a rank sends over an axis, 0: not known. */
double axis_rate(const Module *m, const Machine *machine, int axis) {
  int64_t k = axis_joined(m, machine, axis);
  if (!axis_crosses(m, machine, axis) || machine->inter <= 0) return rate_inside(m, machine, axis);
  double out = machine->inter * (double)k / (double)machine->in_node;
  if (machine->carries > 0 && machine->carries < out) out = machine->carries;
  return k > 1 && machine->intra > 0 && machine->intra < out ? machine->intra : out;
}

static double hops_of(OpCode kind, double n) {
  return op_is_p2p(kind) ? 1 : collective_hops(kind, n);
}

static double larger(double a, double b) { return a > b ? a : b; }

/* A ring of n ranks sends (n - 1) / n of the bytes that papers count, and leaves a node over one of
   its links. An all-to-all of k ranks in each node sends (n - k) / n out of it from every rank:
   each has its share of the node's network, and sends the others theirs at the same time. */
double sending_seconds(const Module *m, const Machine *machine, int axis, OpCode kind, double rate,
                       double bytes) {
  double n = (double)m->mesh.at[axis].size, k = (double)axis_joined(m, machine, axis);
  bool each = op_collective(kind)->way == SEND_EACH;
  if (!each || k <= 1 || !axis_crosses(m, machine, axis) || machine->inter <= 0)
    return bytes * collective_share(kind, n) / rate;
  double share = machine->inter / (double)machine->in_node;
  if (machine->carries > 0 && machine->carries < share) share = machine->carries;
  double inside = machine->intra > 0 ? bytes * (k - 1) / n / machine->intra : 0;
  return larger(bytes * (n - k) / n / share, inside);
}

LinkTime link_time(const Module *m, const Machine *machine, int axis, OpCode kind, double calls,
                   double bytes) {
  if (machine->endless) return (LinkTime){machine->endless >> axis & 1 ? calls * ENDLESS : 0, 0};
  if (machine->reach) return message_time(m, machine, axis, kind, calls, bytes);
  double n = (double)m->mesh.at[axis].size, rate = axis_rate(m, machine, axis);
  double late = axis_crosses(m, machine, axis) ? calls * hops_of(kind, n) * machine->latency : 0;
  if (rate <= 0) return (LinkTime){0};
  return (LinkTime){sending_seconds(m, machine, axis, kind, rate, bytes) + late, late};
}

double machine_waits(const Machine *machine, double own, double waited) {
  double left = (own + waited) / machine->on_core - own;
  return left > 0 ? left : 0;
}

double message_load(const Module *m, const Machine *machine, int axis) {
  if (machine->carries <= 0 || (machine->gpus && !axis_crosses(m, machine, axis))) return 0;
  double busy = axis_rate(m, machine, axis) / machine->carries;
  return (busy < 1 ? busy : 1) / ((double)machine->threads * machine->on_core);
}

bool machine_is_known(const Module *m, const Machine *machine) {
  bool known = machine->flops > 0;
  for (int i = 0; i < (int)m->mesh.n; i++) known &= axis_rate(m, machine, i) > 0;
  return known;
}

double message_seconds(const Module *m, const Machine *machine, const Fn *f, const Op *o) {
  int axis = mesh_find(m, attr_str(&o->attrs, ATTR_axis, ""));
  Message one = message_of(f, o);
  return link_time(m, machine, axis, o->code, (double)(one.times * one.pieces),
                   message_traffic(f, o) * elem_bytes(value_type(f, o->out)->elem))
      .seconds;
}

static bool add_messages(StepTime *step_time, const Module *m, const Machine *machine,
                         const Traffic *sent) {
  LinkTime sending = link_time(m, machine, sent->axis, sent->kind, sent->calls, sent->bytes);
  step_time->axis[sent->axis] += sending.seconds, step_time->exposed[sent->axis] += sending.seconds;
  step_time->latency[sent->axis] += sending.latency;
  return sending.seconds > 0 || sent->bytes <= 0 || m->mesh.at[sent->axis].size == 1 ||
         machine->endless;
}

/* 0: unknown, or nothing moves */
static double move_seconds(const Machine *machine, const Moves *moves) {
  return machine->pcie > 0
             ? (moves->down + moves->up) / machine->pcie + moves->calls * machine->copy
             : 0;
}

StepTime plan_time(const Module *m, const Machine *machine, const TrafficList *traffic,
                   const Moves *moves, const IrCount *on_host, double compute, double memory) {
  StepTime step_time = {.pcie = move_seconds(machine, moves),
                        .host = machine->dram > 0 ? on_host->bytes / machine->dram : 0};
  const double down = machine->pcie > 0 ? moves->down / machine->pcie : 0,
               up = machine->pcie > 0 ? moves->up / machine->pcie : 0;
  step_time.longest = larger(step_time.host, larger(down, up));
  bool known = machine->flops > 0 && (on_host->bytes <= 0 || machine->dram > 0) &&
               (!machine->gpus || !moves->calls || machine->pcie > 0);
  step_time.compute = compute, step_time.memory = memory;
  for (uint32_t i = 0; i < traffic->n; i++)
    known &= add_messages(&step_time, m, machine, &traffic->at[i]);
  if (!known) return step_time;
  step_time.total = (step_time.compute > step_time.memory ? step_time.compute : step_time.memory) +
                    step_time.pcie + step_time.host;
  for (uint32_t i = 0; i < m->mesh.n; i++) step_time.total += step_time.axis[i];
  return step_time;
}
