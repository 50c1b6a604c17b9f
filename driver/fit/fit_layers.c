/* `uneven = memory`: for how many layers each stage of a pipeline has room (fit.h), all but the
   last one having as many. Each number is tried as the programs that it makes, up to pass `memory`,
   and the one is taken whose largest class needs the fewest bytes. Must not: be asked of chunks of
   layers, which are as equal as can be. */
#include "fit.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"

typedef struct LayerTry {
  int64_t layers, bytes;
} LayerTry;
typedef VEC(LayerTry) LayerTries;

/* Layers and stages of the first `place` line that splits layers into stages; false: none. */
static bool find_stages(const Module *m, int64_t *layers, int64_t *stages) {
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; k < m->rules.at[i].dims.n && m->rules.at[i].axes.n; k++)
      for (uint32_t d = 0; d < m->dims.n; d++) {
        const Dim *dim = &m->dims.at[d];
        int axis = mesh_find(m, m->rules.at[i].axes.at[0]);
        if (dim->name != m->rules.at[i].dims.at[k] || axis < 0) continue;
        *layers = dim->size, *stages = m->mesh.at[axis].size;
        if (dim_counts_layers(m, dim->name)) return true;
      }
  return false;
}

/* Tries all numbers of layers: saved values of layers take the room of n layers, except on a stage
   that has none of them, and equal stages need no padding; so bytes are not monotonic in n. */
static LayerTries try_all(Cli *o, const Module *m, const LowerFacts *facts, int64_t layers,
                          int64_t stages) {
  LayerTries all = {0};
  Cost cost;
  FitChange change = {.micro = facts->micro ? 0 : plan_micro(m), .schedule = plan_schedule(m)};
  if (plan_ahead(m) > 1) change.ahead = plan_ahead(m);
  for (change.layers = ceil_div(layers, stages);
       stage_room_fits(layers, stages, change.layers) && fit_cost(o, &change, &cost);
       change.layers++)
    vec_push(o->c->arena, all, (LayerTry){change.layers, budget_all(&cost.need)});
  return all;
}

void fit_layers(Cli *o, Module *m, const LowerFacts *facts) {
  int64_t layers, stages;
  if (strcmp(module_word(m, "plan.pipeline.uneven"), "memory") != 0 || plan_chunks(m) > 1 ||
      !find_stages(m, &layers, &stages))
    return;
  LayerTries all = try_all(o, m, facts, layers, stages);
  uint32_t best = 0;
  for (uint32_t i = 1; i < all.n; i++)
    if (all.at[i].bytes < all.at[best].bytes) best = i;
  if (!all.n) return; /* the passes say why there is no program */
  module_set(m, "made.stage_layers", "%lld", (long long)all.at[best].layers);
  Report *r = diag_at(o->c->diag, "N0601", facts->pipeline, "%lld layers on a stage were chosen",
                      (long long)all.at[best].layers);
  for (uint32_t i = 0; i < all.n; i++)
    diag_fact(r, "%lld, the last stage has the rest: %s on a rank of the largest class",
              (long long)all.at[i].layers, arena_amount(o->c->arena, (double)all.at[i].bytes));
}
