/* Checks that the launcher placed the ranks on nodes as the plan expects: the same number per node,
   numbered consecutively. Only counts that a launcher provides are checked, and only for plans with
   a machine. A rank that is number i of n on its machine assumes that the machine's ranks start at
   its own number minus i; so launchers that distribute ranks round robin are detected. If an axis
   that stays inside of nodes in the plan leaves this node, its messages would use the network:
   R0101. If no axis does, the run is correct, and rank 0 prints once that `plan` assumed other
   nodes. Must not: wait for other ranks, which have not met yet. */
#include "comm.h"
#include "runtime/base/setting.h"
#include <stdlib.h>

static int64_t whole(const rt_program *program, const char *key) {
  const char *text = rt_setting_of(program, key);
  return text ? atoll(text) : 0;
}

/* In the plan (ir/cost/machine.c); 0: it has no machine. */
static int64_t planned(const rt_program *program) {
  int64_t ranks = rt_mesh_ranks(program), gpus = whole(program, "machine.node.gpus"),
          nodes = whole(program, "plan.on.nodes");
  if (!rt_setting_said(program, "machine.node.arch")) return 0;
  int64_t most = gpus > 0 ? gpus : nodes > 0 ? (ranks + nodes - 1) / nodes : ranks;
  return most < ranks ? most : ranks;
}

/* Are all ranks of this rank's group along the axis on this machine? */
static bool holds(const Launch *launch, const rt_axis *axis) {
  int64_t at = launch->rank / axis->stride % axis->size, here = launch->rank - launch->local_rank;
  int64_t from = launch->rank - at * axis->stride, last = from + (axis->size - 1) * axis->stride;
  return from >= here && last < here + launch->local_world;
}

/* The first axis that is inside of nodes in the plan but not in this launch; NULL: none. */
static const rt_axis *torn(const rt_program *program, const Launch *launch, int64_t in_node) {
  for (int i = 0; i < program->naxes; i++) {
    const rt_axis *axis = &program->mesh[i];
    bool inside = in_node % (axis->stride * axis->size) == 0;
    if (axis->size > 1 && inside && !holds(launch, axis)) return axis;
  }
  return NULL;
}

/* How launchers are told, and how the plan is. */
static bool help(const rt_program *program, const Launch *launch, int64_t in_node, Fault *f) {
  bool gpus = whole(program, "machine.node.gpus") > 0;
  int64_t nodes = (launch->world + launch->local_world - 1) / launch->local_world;
  return rt_help(f,
                 "start %lld on each node, numbered node by node (`srun --ntasks-per-node=%lld "
                 "--distribution=block`, `mpirun --map-by ppr:%lld:node`, `torchrun "
                 "--nproc-per-node %lld`), or compile for these: `--set %s=%lld`",
                 (long long)in_node, (long long)in_node, (long long)in_node, (long long)in_node,
                 gpus ? "machine.node.gpus" : "plan.on.nodes",
                 gpus ? (long long)launch->local_world : (long long)nodes);
}

bool rt_nodes_fit(const rt_program *program, const Launch *launch, Fault *f) {
  int64_t in_node = planned(program), left = launch->world - launch->rank + launch->local_rank;
  if (!in_node || !launch->counted || launch->local_world == launch->world) return true;
  const rt_axis *axis = torn(program, launch, in_node);
  if (axis) {
    rt_fault(f, 101,
             "rank %d is number %d of %d on this machine, so mesh axis `%s` of %lld ranks leaves "
             "its node: the plan has %lld ranks in each, and the axis inside",
             launch->rank, launch->local_rank, launch->local_world, axis->name,
             (long long)axis->size, (long long)in_node);
    return help(program, launch, in_node, f);
  }
  Fault other = {0};
  if (launch->rank || launch->local_world == in_node || launch->local_world == left) return true;
  rt_fault(&other, 101,
           "%d ranks on this machine, and the plan has %lld on each node: what `plan` "
           "says of nodes, links and memory is of those",
           launch->local_world, (long long)in_node);
  help(program, launch, in_node, &other);
  rt_print_fault(&other, "warning");
  return true;
}
