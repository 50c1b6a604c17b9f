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

enum { MOST_CUTTING = 3 }; /* axes that cut Batch: six orders of them; of more the one written */

typedef struct MeshSearch {
  Cli *o;
  const Programs *written;
  int64_t in_node;
  int cutting[MAX_MESH]; /* axes of the mesh that cut Batch, in the order that is tried */
  int n;
  double best;
  const char *mesh[MAX_MESH]; /* the names in the best order; NULL: as written */
} MeshSearch;

FitChange fit_as_written(const Module *m, const LowerFacts *facts) {
  FitChange change = {.micro = facts->micro ? 0 : plan_micro(m)};
  if (facts->pipeline.file) change.schedule = plan_schedule(m);
  if (facts->pipeline.file && plan_chunks(m) > 1) change.chunks = plan_chunks(m);
  if (facts->pipeline.file && plan_ahead(m) > 1) change.ahead = plan_ahead(m);
  change.layers = (int64_t)module_number(m, "made.stage_layers", 0);
  return change;
}

static void find_cutting(MeshSearch *search) {
  const Module *m = search->written->at[0];
  for (int i = 0; i < (int)m->mesh.n; i++)
    for (uint32_t k = 0; k < m->rules.n; k++)
      for (uint32_t j = 0; rule_cuts_batch(&m->rules.at[k]) && j < m->rules.at[k].axes.n; j++)
        if (m->rules.at[k].axes.at[j] == m->mesh.at[i].name) search->cutting[search->n++] = i;
}

static bool in_written_order(const MeshSearch *search) {
  for (int i = 1; i < search->n; i++)
    if (search->cutting[i] < search->cutting[i - 1]) return false;
  return true;
}

/* The best order of all axes with these programs. */
static void search_with(MeshSearch *search, const Programs *programs) {
  const Module *m = programs->at[0];
  uint32_t keep = 0;
  int order[MAX_MESH];
  for (int i = 0; i < (int)m->mesh.n; i++)
    for (int k = 0; k < search->n; k++)
      if (!strcmp(m->mesh.at[i].name, search->written->at[0]->mesh.at[search->cutting[k]].name))
        keep |= 1u << i;
  double sum = node_order(programs->at, programs->n, search->in_node, keep, order);
  if (sum >= NODE_GAIN * search->best) return;
  search->best = sum;
  for (uint32_t i = 0; i < m->mesh.n; i++)
    search->mesh[i] = arena_printf(search->o->c->arena, "%s", m->mesh.at[order[i]].name);
}

/* Axes that cut Batch change places with each other, others stay. */
static void try_cutting(MeshSearch *search) {
  const Module *m = search->written->at[0];
  FitChange change = fit_as_written(m, search->o->facts);
  Programs programs;
  Ctx *c;
  int next = 0;
  if (in_written_order(search)) {
    search_with(search, search->written);
    return;
  }
  for (uint32_t i = 0; i < m->mesh.n; i++) {
    bool cuts = false;
    for (int k = 0; k < search->n; k++) cuts |= search->cutting[k] == (int)i;
    change.mesh[i] = m->mesh.at[cuts ? search->cutting[next++] : (int)i].name;
  }
  if (!fit_programs(search->o, &change, &c, &programs)) return;
  search_with(search, &programs);
  ctx_free(c);
}

static void each_cutting(MeshSearch *search, int from) {
  if (from + 1 >= search->n || search->n > MOST_CUTTING) {
    try_cutting(search);
    return;
  }
  for (int i = from; i < search->n; i++) {
    int first = search->cutting[from];
    search->cutting[from] = search->cutting[i], search->cutting[i] = first;
    each_cutting(search, from + 1);
    search->cutting[i] = search->cutting[from], search->cutting[from] = first;
  }
}

static int written_as(const Module *m, const char *name) {
  for (int i = 0; i < (int)m->mesh.n; i++)
    if (!strcmp(m->mesh.at[i].name, name)) return i;
  bug("no axis %s", name);
}

/* tensor = 4, data = 2 */
static const char *mesh_words(Arena *arena, const Module *m, const char *const *names) {
  const char *text = "";
  for (uint32_t i = 0; i < m->mesh.n; i++)
    text = arena_printf(arena, "%s%s%s = %lld", text, i ? ", " : "", names[i],
                        (long long)m->mesh.at[written_as(m, names[i])].size);
  return text;
}

static void warn(MeshSearch *search, const NodeTraffic *now, const NodeTraffic *then) {
  Ctx *c = search->o->c;
  const LowerFacts *facts = search->o->facts;
  const Module *m = search->written->at[0];
  double after[MAX_MESH], most = 0;
  int at = 0, n = (int)m->mesh.n;
  for (int i = 0; i < n; i++) after[written_as(m, search->mesh[i])] = then->leaves[i];
  for (int i = 0; i < n; i++)
    if (now->leaves[i] - after[i] > most) most = now->leaves[i] - after[i], at = i;
  const char *mesh = mesh_words(c->arena, m, search->mesh);
  Report *r = diag_at(c->diag, "W0701", facts->axis[at],
                      "over mesh axis `%s` %s of a step leave nodes, in another order %s would",
                      m->mesh.at[at].name, arena_amount(c->arena, now->leaves[at]),
                      arena_amount(c->arena, after[at]));
  diag_fact(r, "over all axes %s of a step leave nodes of %lld ranks; as `mesh %s` %s would",
            arena_amount(c->arena, now->sum), (long long)search->in_node, mesh,
            arena_amount(c->arena, then->sum));
  diag_help(r, "the axis that varies fastest comes first: `mesh %s`", mesh);
  for (int i = 0; i < n; i++)
    diag_edit(r, facts->axis[i], "%s = %lld", search->mesh[i],
              (long long)m->mesh.at[written_as(m, search->mesh[i])].size);
}

void nodes_warn(Cli *o, const Programs *programs) {
  const Module *m = programs->at[0];
  if (!o->facts || !o->facts->axis[0].file || o->here || o->value[OPT_CLASS]) return;
  MeshSearch search = {.o = o, .written = programs, .in_node = plan_machine(m).in_node};
  NodeTraffic now = node_traffic(programs->at, programs->n, search.in_node), then;
  search.best = now.sum;
  if (now.sum <= 0) return;
  find_cutting(&search), each_cutting(&search, 0);
  if (!search.mesh[0]) return;
  FitChange change = fit_as_written(m, o->facts);
  Programs proposed;
  Ctx *c;
  memcpy(change.mesh, search.mesh, sizeof change.mesh);
  if (!fit_programs(o, &change, &c, &proposed)) return;
  then = node_traffic(proposed.at, proposed.n, search.in_node);
  if (then.sum < NODE_GAIN * now.sum) warn(&search, &now, &then);
  ctx_free(c);
}
