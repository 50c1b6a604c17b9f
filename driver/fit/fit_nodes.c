/* W0701: the order of the mesh's axes, which determines the ranks that share a node (fit.h). The
   traffic of ranks is known once pass `memory` has run, so nothing is assumed about axes by their
   names or the dims that they split: under `zero 3` with many micro-batches data parallelism may
   send more than tensor parallelism. All orders are compared by the bytes per step that leave nodes
   (nodes.h). The traffic depends only on the order of the axes that split Batch: data reduced over
   the first axis is not sent over the next. So the plan is compiled for each order of these axes,
   and once more as proposed, to report that plan's own bytes: once written, it gets no such
   warning. Must not: warn when ranks run on this machine, whatever the plan's machine is. */
#include "fit.h"
#include "ir/cost/machine.h"
#include "ir/plan/module_settings.h"
#include "ir/cost/nodes.h"
#include "ir/shape/placement.h"

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

static void warn(Cli *o, const Module *m, const NodeTraffic *now, const Module *proposed,
                 const NodeTraffic *then) {
  Ctx *c = o->c;
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
  diag_help(r, "the axis that varies fastest comes first: `mesh %s`", mesh);
  for (int i = 0; i < n; i++)
    diag_edit(r, axis_at(m, i), "%s = %lld", proposed->mesh.at[i].name,
              (long long)proposed->mesh.at[i].size);
}

void nodes_warn(Cli *o, const Programs *programs) {
  const Module *m = programs->at[0];
  if (!m->mesh.n || !axis_at(m, 0).file || o->here || o->value[OPT_CLASS]) return;
  int64_t in_node = plan_machine(m).in_node;
  NodeTraffic now = node_traffic(programs->at, programs->n, in_node), then;
  if (now.sum <= 0) return;
  ChangeSearch search = search_new(o, m, BY_NODES);
  search.device = search.host = INT64_MAX;
  search.best = (Try){.made = true, .cost = search_cost(&search, programs)};
  search_run(&search, 1u << TRY_ORDER);
  if (search.best.cost.leaves >= NODE_GAIN * now.sum) return;
  Change change = change_with(o->c->arena, search.base, "mesh", "%s", search.best.cost.mesh);
  Programs proposed;
  Ctx *c;
  if (!change_programs(o, &change, &c, &proposed)) return;
  then = node_traffic(proposed.at, proposed.n, in_node);
  if (then.sum < NODE_GAIN * now.sum) warn(o, m, &now, proposed.at[0], &then);
  ctx_free(c);
}
