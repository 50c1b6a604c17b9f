/* An executable that starts the ranks of its machine itself, as torchrun would: `--nnodes N
   --node-rank K --nproc-per-node M --meet PLACE`. Options come first; without them the process asks
   the variables of a Kubeflow pod (PET_*), which are those of torchrun's own options. The number of
   the node may also come from an Indexed Job of Kubernetes, or from a Slurm step with one task per
   node. Ranks of node K have the numbers from K x M on. Must not: start ranks in a process that
   another launcher started as a rank. */
#include "run.h"
#include "start_ranks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct NodeOfJob {
  int64_t nodes, number, ranks; /* ranks: of each node */
  const char *meet;             /* NULL: not known */
} NodeOfJob;

static const char *said(const char *name) {
  const char *text = getenv(name);
  return text && *text ? text : NULL;
}

/* The variable by which another launcher says that this process is a rank; NULL: none does. */
static const char *rank_already(void) {
  static const char *const names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
  const char *tasks = said("SLURM_STEP_NUM_TASKS"), *nodes = said("SLURM_STEP_NUM_NODES");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (said(names[i])) return names[i];
  return said("SLURM_STEP_ID") && tasks && nodes && strcmp(tasks, nodes) ? "SLURM_PROCID" : NULL;
}

/* False: neither the option nor a variable of the list says it, or f says why not. */
static bool count_of(const Run *r, OptionId o, const char *const *names, int64_t *to, Fault *f) {
  char *end;
  if (r->o.at[o].given) return *to = r->o.at[o].count, true;
  for (; names && *names; names++) {
    const char *text = said(*names);
    if (!text) continue;
    *to = strtoll(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end) return true;
    rt_fault(f, 101, "%s is `%s`: not a number", *names, text);
    if (strchr(text, ':')) rt_help(f, "the mesh of a plan has a fixed number of ranks");
    return false;
  }
  return false;
}

static int plans_in(const rt_program *first) {
  int n = 1;
  for (const rt_program *p = first; p->next; p = p->next)
    n += rt_mesh_ranks(p->next) != rt_mesh_ranks(p);
  return n;
}

static bool count_ranks(const Run *r, NodeOfJob *node, Fault *f) {
  static const char *const names[] = {"PET_NPROC_PER_NODE", NULL};
  const char *word = said(*names);
  bool automatic = word && (!strcmp(word, "auto") || !strcmp(word, "gpu") || !strcmp(word, "cpu"));
  int64_t ranks = rt_mesh_ranks(r->first), plans = plans_in(r->first);
  if (count_of(r, OPT_nproc_per_node, automatic ? NULL : names, &node->ranks, f))
    return (node->ranks >= 1 && node->ranks <= RT_MOST_RANKS) ||
           rt_fault(f, 103, "--nproc-per-node takes 1 to %d, not %lld", RT_MOST_RANKS,
                    (long long)node->ranks);
  if (f->code) return false;
  node->ranks = ranks / node->nodes;
  if (plans == 1 && ranks % node->nodes == 0 && node->ranks <= RT_MOST_RANKS) return true;
  if (plans == 1)
    return rt_fault(f, 101, "the %lld ranks of this executable cannot be divided among %lld nodes",
                    (long long)ranks, (long long)node->nodes);
  rt_fault(f, 104, "this executable has %lld plans", (long long)plans);
  return rt_help(f,
                 "--nproc-per-node N, with --nnodes, says by the number of ranks which one runs");
}

static bool number_node(const Run *r, NodeOfJob *node, Fault *f) {
  static const char *const names[] = {"PET_NODE_RANK", "JOB_COMPLETION_INDEX", "SLURM_NODEID",
                                      NULL};
  if (!count_of(r, OPT_node_rank, names, &node->number, f)) {
    if (f->code) return false;
    if (node->nodes == 1) return true;
    rt_fault(f, 104, "--nnodes %lld, but not which of them this is", (long long)node->nodes);
    return rt_help(f,
                   "--node-rank 0 to %lld, PET_NODE_RANK, JOB_COMPLETION_INDEX (an Indexed Job) "
                   "or SLURM_NODEID says it",
                   (long long)node->nodes - 1);
  }
  if (node->number < node->nodes) return true;
  rt_fault(f, 101, "this is node %lld of %lld: nodes count from 0", (long long)node->number,
           (long long)node->nodes);
  return rt_help(f, "--nnodes says how many there are");
}

/* That will run, or the first; ranks that no plan has are an error of theirs. */
static const rt_program *program_of(const rt_program *first, int64_t ranks) {
  for (const rt_program *p = first; p; p = p->next)
    if (rt_mesh_ranks(p) == ranks) return p;
  return first;
}

/* Ranks of several nodes read the meeting place as torchrun's ranks do. */
static bool find_meeting(const Run *r, const NodeOfJob *node, Fault *f) {
  const char *kind = program_of(r->first, node->nodes * node->ranks)->communicator;
  const char *host = said("PET_MASTER_ADDR"), *port = said("PET_MASTER_PORT");
  if (kind && !strcmp(kind, "mpi")) {
    rt_fault(f, 104, "--nnodes: the ranks of this executable are started by mpirun or srun");
    return rt_help(f, "compile without `--comm mpi`");
  }
  if (node->nodes == 1) return true;
  if (!kind || strcmp(kind, "nccl")) {
    rt_fault(f, 104, "--nnodes %lld: the ranks of this executable share the memory of one machine",
             (long long)node->nodes);
    return rt_help(f, "over several machines: ranks with GPUs, or `compile --comm mpi`");
  }
  if (host && !said("MASTER_ADDR")) setenv("MASTER_ADDR", host, 1);
  if (port && !said("MASTER_PORT")) setenv("MASTER_PORT", port, 1);
  if (r->o.at[OPT_meet].given || said("MASTER_ADDR")) return true;
  rt_fault(f, 108, "--nnodes %lld: no place where the ranks meet is given", (long long)node->nodes);
  return rt_help(f, "--meet HOST:PORT with the address of node 0, or MASTER_ADDR and MASTER_PORT");
}

static bool find_node(const Run *r, NodeOfJob *node, Fault *f) {
  static const char *const names[] = {"PET_NNODES", NULL};
  *node = (NodeOfJob){.nodes = 1};
  if (!count_of(r, OPT_nnodes, names, &node->nodes, f) && f->code) return false;
  if (node->nodes < 1) return rt_fault(f, 103, "--nnodes takes a whole number from 1");
  if (!number_node(r, node, f) || !count_ranks(r, node, f)) return false;
  if (node->nodes * node->ranks > 1 << 24) return rt_fault(f, 101, "too many ranks");
  return find_meeting(r, node, f);
}

bool rt_start_node(Run *r, const char *program, Fault *f) {
  const OptionValue *option = r->o.at;
  bool asked =
      option[OPT_nnodes].given || option[OPT_nproc_per_node].given || option[OPT_node_rank].given;
  const char *already = rank_already();
  NodeOfJob node;
  *f = (Fault){0};
  if (!asked && (already || !said("PET_NNODES"))) return true;
  if (already) {
    rt_fault(f, 104, "--nnodes starts ranks, and %s says that this process is one", already);
    return rt_help(f, "start one process per node, or leave out --nnodes");
  }
  if (!find_node(r, &node, f)) return false;
  int status = rt_start_ranks(&(RankStart){
      .program = program,
      .n = (int)node.ranks,
      .first = (int)(node.number * node.ranks),
      .world = (int)(node.nodes * node.ranks),
      .bind = true,
      .gpus = r->first->sm > 0,
  });
  if (status != RT_IS_RANK) exit(status);
  return true;
}
