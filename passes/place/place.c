/* place: assigns dims to mesh axes. It gives every value its assigned placement; `collect` derives
   the placement in which ops really work.

   The rules of an axis are read in order: the first dim before `else` that the tensor has is cut
   over the axis; if there is none, the first dim after `else`. A dim `K like D`, and the primed
   D', follow the rules of D if the tensor does not have D itself. A parameter that a line `PATH ->
   none` names, its states and its gradient stay whole, and so do globals along balanced
   dims, where an entry reads them in pieces. Sizes that an axis does not divide: E0701
   for tensors that have the whole dim, whole for others (the one sample of `logits`). Outputs are
   whole: the runtime reads them.

   Before that, layouts decide how many pieces ranks have of balanced dims (place_pieces.c). Loops
   over layers that an axis cuts are marked as stages (place_stages.c). Values that loops keep for
   other loops may be split further (place_kept.c). Without a mesh the pass does nothing. */
#include "ir/plan/layer_range.h"
#include "ir/shape/placement.h"
#include "place.h"
#include <string.h>

static bool stays_whole(const Module *m, Str path) {
  path = layer_whole(m, path);
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; !m->rules.at[i].axes.n && k < m->rules.at[i].paths.n; k++) {
      Str p = m->rules.at[i].paths.at[k];
      size_t n = strlen(p);
      if (!strncmp(path, p, n) && (!path[n] || path[n] == '.')) return true;
    }
  return false;
}

static void indivisible(Module *m, const PlaceRule *rule, Str dim, int64_t size, int axis) {
  const MeshAxis *a = &m->mesh.at[axis];
  Report *d = diag_at(m->ctx->diag, "E0701", span_of(m, rule->loc),
                      "cannot split `%s` (%lld) over mesh axis `%s` (%lld)", dim, (long long)size,
                      a->name, (long long)a->size);
  diag_fact(d, "all ranks must have blocks of equal size");
  diag_help(d, "choose another size of `%s`, or split another dim", a->name);
}

typedef struct Placer {
  Module *m;
  bool failed;
} Placer;

static Placement placement_of(Placer *placer, const Type *t, bool weight) {
  RuleMiss miss = {0};
  Placement placement =
      weight ? placement_of_weight(placer->m, t, &miss) : placement_by_rules(placer->m, t, &miss);
  if (weight && miss.rule && !placer->failed)
    indivisible(placer->m, miss.rule, miss.dim, type_size(t, miss.dim), miss.axis),
        placer->failed = true;
  return placement;
}

static bool is_read_in_pieces(const Module *m, const Global *global) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; entry_deals(m->fns.at[i]) && k < m->fns.at[i]->ops.n; k++)
      if (m->fns.at[i]->ops.at[k].global == global) return true;
  return false;
}

static void place_global(Placer *placer, Global *g) {
  if (g->kind == GLOBAL_OUTPUT || g->kind == GLOBAL_SCALAR || stays_whole(placer->m, g->name))
    return;
  bool weights = g->kind == GLOBAL_PARAM || g->kind == GLOBAL_STATE;
  g->placed = placement_of(placer, &g->type, weights);
  for (uint32_t i = 0; i < placer->m->mesh.n; i++)
    if (g->placed.on[i] && dim_dealt(placer->m, g->placed.on[i]).axis >= 0 &&
        is_read_in_pieces(placer->m, g))
      g->placed.on[i] = NULL;
}

static void place_values(Placer *placer, Fn *f) {
  for (uint32_t i = 0; i < f->values.n; i++) {
    Value *v = &f->values.at[i];
    const Op *def = value_def(f, i);
    v->placed =
        def && def->code == OP_load ? def->global->placed : placement_of(placer, &v->type, false);
  }
}

void pass_place(Module *m) {
  if (!m->mesh.n) return;
  place_pieces(m);
  Placer placer = {.m = m};
  for (uint32_t i = 0; i < m->globals.n; i++) place_global(&placer, m->globals.at[i]);
  for (uint32_t i = 0; i < m->fns.n; i++) place_values(&placer, m->fns.at[i]);
  if (!placer.failed) place_stages(m);
  if (!placer.failed && !diag_errors(m->ctx->diag)) place_kept(m);
}
