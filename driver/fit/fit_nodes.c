/* W0701: the order of the mesh's axes, which determines the ranks that share a node (fit.h). The
   traffic of ranks is known once pass `memory` has run, so nothing is assumed about axes by their
   names or the dims that they split: under `zero 3` with many micro-batches data parallelism may
   send more than tensor parallelism. All orders are compared by the bytes per step that leave nodes
   (nodes.h), and the best one with the plan by the forecast of the step, where there is one. The
   traffic depends only on the order of the axes that split Batch: data reduced over the first axis
   is not sent over the next. So the plan is compiled for each order of these axes, and once more as
   proposed, to report that plan's own bytes: once written, it gets no such warning. Must not: warn
   when ranks run on this machine, whatever the plan's machine is. */
#include "fit.h"
#include "ir/cost/count.h"
#include "ir/cost/forecast.h"
#include "ir/cost/machine.h"
#include "ir/cost/nodes.h"

const char *mesh_words(const Module *m) {
  const char *text = "";
  for (uint32_t i = 0; i < m->mesh.n; i++)
    text =
        arena_list(m->arena, text, "%s = %lld", m->mesh.at[i].name, (long long)m->mesh.at[i].size);
  return text;
}

/* data = 4, as it is written; no position in a module that was read from text. */
static Span axis_at(const Module *m, int axis) {
  return module_written(m, arena_printf(m->arena, "plan.mesh.%s", m->mesh.at[axis].name)).all;
}

typedef struct MeshOrder { /* the plan, or the one that is proposed */
  const Programs *programs;
  NodeTraffic traffic;
  double seconds; /* of a step, by the forecast; 0: there is none */
} MeshOrder;

static MeshOrder order_of(const Programs *programs, int64_t in_node) {
  MeshOrder order = {programs, node_traffic(programs->at, programs->n, in_node), 0};
  Forecast forecast = plan_forecast(programs->at, programs->n, ir_main_entry(programs->at[0]));
  if (forecast.known) order.seconds = forecast.step.time.total;
  return order;
}

/* By a hundredth. */
static bool is_better(const MeshOrder *then, const MeshOrder *now) {
  bool timed = then->seconds > 0 && now->seconds > 0;
  return then->traffic.sum < NODE_GAIN * now->traffic.sum &&
         (!timed || then->seconds < NODE_GAIN * now->seconds);
}

static void warn(Cli *o, const MeshOrder *from, const MeshOrder *to) {
  Ctx *c = o->c;
  const Module *m = from->programs->at[0], *proposed = to->programs->at[0];
  const NodeTraffic *now = &from->traffic, *then = &to->traffic;
  double after[MAX_MESH], most = 0;
  int at = 0, n = (int)m->mesh.n;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      if (!strcmp(m->mesh.at[i].name, proposed->mesh.at[k].name)) after[i] = then->leaves[k];
  for (int i = 0; i < n; i++)
    if (now->leaves[i] - after[i] > most) most = now->leaves[i] - after[i], at = i;
  const char *mesh = mesh_words(proposed);
  Report *r = diag_at(c->diag, "W0701", axis_at(m, at),
                      "mesh axis `%s` sends %s per step between nodes; in another order %s",
                      m->mesh.at[at].name, arena_amount(c->arena, now->leaves[at]),
                      arena_amount(c->arena, after[at]));
  diag_fact(r, "all axes: %s per step between nodes of %lld ranks; with `mesh %s` %s",
            arena_amount(c->arena, now->sum), (long long)plan_machine(m).in_node, mesh,
            arena_amount(c->arena, then->sum));
  if (from->seconds > 0 && to->seconds > 0)
    diag_fact(r, "a step: %.3g s by the forecast; with `mesh %s` %.3g s", from->seconds, mesh,
              to->seconds);
  diag_help(r, "the axis that varies fastest comes first: `mesh %s`", mesh);
  for (int i = 0; i < n; i++)
    diag_edit(r, axis_at(m, i), "%s = %lld", proposed->mesh.at[i].name,
              (long long)proposed->mesh.at[i].size);
}

void nodes_warn(Cli *o, const Programs *programs) {
  const Module *m = programs->at[0];
  if (!m->mesh.n || !axis_at(m, 0).file || o->here || o->value[OPT_CLASS]) return;
  int64_t in_node = plan_machine(m).in_node;
  MeshOrder now = order_of(programs, in_node);
  if (now.traffic.sum <= 0) return;
  ChangeSearch search = search_new(o, m, BY_NODES);
  search.device = search.host = INT64_MAX;
  search.best = (Try){.made = true, .cost = search_cost(&search, programs)};
  search_run(&search, 1u << TRY_ORDER);
  if (search.best.cost.leaves >= NODE_GAIN * now.traffic.sum) return;
  Change change = change_with(o->c->arena, search.base, "mesh", "%s", search.best.cost.mesh);
  Programs proposed;
  Ctx *c;
  if (!change_programs(o, &change, &c, &proposed)) return;
  MeshOrder then = order_of(&proposed, in_node);
  if (is_better(&then, &now)) warn(o, &now, &then);
  ctx_free(c);
}
