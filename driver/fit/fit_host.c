/* Checks that the host memory of the ranks of a node fits (E0801): data that the plan offloads, and
   memory that the runtime pins. If all ranks run one program, each has an equal share; with classes
   of ranks (stage_class.h) the node with the largest sum is checked. Must not: check CPU targets,
   whose memory is host memory anyway (fit.c). */
#include "fit.h"
#include "ir/cost/machine.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"

typedef struct HostNeed { /* of a rank, or of all ranks of a node */
  HostBudget budget;
  int64_t pinned, all;
} HostNeed;

static HostNeed need_of(const Module *m) {
  HostBudget budget = module_host(m);
  Pinned fixed = module_pinned(m);
  return (HostNeed){budget, pinned_all(&fixed), budget.total + pinned_all(&fixed)};
}

static void add(HostNeed *sum, const HostNeed *one, int64_t ranks) {
  sum->budget.weights += ranks * one->budget.weights;
  sum->budget.gradients += ranks * one->budget.gradients;
  sum->budget.optimizer += ranks * one->budget.optimizer;
  sum->budget.saved += ranks * one->budget.saved;
  sum->budget.working += ranks * one->budget.working;
  sum->budget.snapshot += ranks * one->budget.snapshot;
  sum->pinned += ranks * one->pinned, sum->all += ranks * one->all;
}

typedef struct HostNode {
  int64_t number;               /* -1: a rank's share is judged */
  int64_t ranks[STAGE_CLASSES]; /* by program */
  HostNeed need;
} HostNode;

static uint32_t program_of(const Programs *programs, int64_t rank) {
  for (uint32_t i = 0; i < programs->n; i++) {
    StageClass class = module_class(programs->at[i]);
    int64_t at = mesh_coordinate(programs->at[i], rank, class.axis);
    if (at >= class.first && at <= class.last) return i;
  }
  bug("rank %lld runs no program", (long long)rank);
}

static HostNode node_at(const Programs *programs, const HostNeed *need, int64_t number,
                        int64_t in_node) {
  HostNode node = {.number = number};
  int64_t all = mesh_ranks(programs->at[0]);
  for (int64_t rank = number * in_node; rank < (number + 1) * in_node && rank < all; rank++)
    node.ranks[program_of(programs, rank)]++;
  for (uint32_t i = 0; i < programs->n; i++) add(&node.need, &need[i], node.ranks[i]);
  return node;
}

/* The node that has the most, or, of ranks that are alike, one of them. */
static HostNode fullest(const Programs *programs, const HostNeed *need, int64_t in_node) {
  HostNode most = {.number = -1, .need = need[0]};
  for (int64_t i = 0; programs->n > 1 && i * in_node < mesh_ranks(programs->at[0]); i++) {
    HostNode node = node_at(programs, need, i, in_node);
    if (!i || node.need.all > most.need.all) most = node;
  }
  return most;
}

static const char *amount(Ctx *c, int64_t bytes) { return arena_amount(c->arena, (double)bytes); }

/* 2 of `first` 1.00 GiB each, 1 of `middle_1` 93.42 MiB */
static void say_ranks(Ctx *c, Report *r, const Programs *programs, const HostNeed *need,
                      const HostNode *node) {
  const char *text = "";
  for (uint32_t i = 0; i < programs->n; i++)
    if (node->ranks[i])
      text = arena_list(c->arena, text, "%lld of `%s` %s%s", (long long)node->ranks[i],
                        module_class(programs->at[i]).name, amount(c, need[i].all),
                        node->ranks[i] > 1 ? " each" : "");
  diag_fact(r, "of its ranks %s", text);
}

static void say_parts(Ctx *c, Report *r, const HostNeed *need) {
  const HostBudget *budget = &need->budget;
  diag_fact(r,
            "weights %s, gradients %s, optimizer %s, saved %s, working %s, snapshot %s, pinned for "
            "the runtime %s",
            amount(c, budget->weights), amount(c, budget->gradients), amount(c, budget->optimizer),
            amount(c, budget->saved), amount(c, budget->working), amount(c, budget->snapshot),
            amount(c, need->pinned));
}

bool fit_hosts(Cli *o, const Programs *programs) {
  Module *m = programs->at[0];
  Machine machine = fit_machine(o, m);
  HostNeed need[STAGE_CLASSES] = {{{0}, 0, 0}};
  if (!machine.host || !module_on_gpu(m)) return true;
  for (uint32_t i = 0; i < programs->n; i++) need[i] = need_of(programs->at[i]);
  HostNode node = fullest(programs, need, machine.in_node);
  bool one = node.number < 0;
  int64_t capacity = one ? machine.host : machine.host * machine.in_node;
  if (node.need.all <= capacity) return true;
  Span at = plan_offload_at(m), async = module_written(m, "train.save.async").value;
  Report *r = diag_at(o->c->diag, "E0801", at.file ? at : m->written->plan_at,
                      "%s needs %s of the host's memory on %s %lld, capacity is %s", fit_subject(m),
                      amount(o->c, node.need.all), one ? "rank" : "node",
                      one ? 0LL : (long long)node.number, amount(o->c, capacity));
  say_parts(o->c, r, &node.need);
  if (!one) say_ranks(o->c, r, programs, need, &node);
  else if (machine.in_node > 1)
    diag_fact(r, "capacity: the host memory of a node, divided by its %lld ranks",
              (long long)machine.in_node);
  int64_t sync = node.need.all - node.need.budget.snapshot;
  if (node.need.budget.snapshot && sync <= capacity) {
    diag_help(r, "`save async = off` would need %s", amount(o->c, sync));
    if (async.file) diag_edit(r, async, "off");
    return false;
  }
  diag_help(r, "offload less to the host, or partition it over more ranks with `zero`");
  return false;
}
