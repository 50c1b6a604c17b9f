/* place: every dim meets its mesh axis. Says of every value where it belongs (its assigned
   placement); what ops make of that is the business of `collect`.

   The rules of an axis are read in their order: the first dim before `else` that the tensor has is
   cut over the axis, without one the first behind `else`. A dim `K like D`, and the primed D',
   answer to the rules of D where D itself is absent. A parameter that a line `PATH -> none` names,
   its states and its gradient stay whole. Sizes that an axis does not divide: E0701 for tensors
   that have the whole dim, whole for others (the one sample of `logits`). Outputs are whole: the
   runtime reads them. Loops over layers that an axis cuts are marked as stages (place_stages.c).
   What loops keep for others may be split further (place_kept.c). Nothing is
   done without a mesh. */
#include "ir/made.h"
#include "ir/plan/layer_range.h"
#include "ir/shape/placement.h"
#include "place.h"
#include <string.h>

/* The dim of t that answers to rules about `dim`, or NULL. */
static Str answers(const Module *m, const Type *t, Str dim) {
  if (type_find(t, dim) >= 0) return dim;
  for (int i = 0; i < t->rank; i++) {
    Str own = t->axis[i].dim;
    if (dim_is_primed(own, dim)) return own;
    for (uint32_t k = 0; k < m->dims.n; k++)
      if (m->dims.at[k].name == own && m->dims.at[k].like == dim) return own;
  }
  return NULL;
}

static bool names_axis(const PlaceRule *rule, Str axis) {
  for (uint32_t i = 0; i < rule->axes.n; i++)
    if (rule->axes.at[i] == axis) return true;
  return false;
}

/* The dim of t that axis `name` cuts; *rule is the line that says so. */
static Str dim_for(const Module *m, const Type *t, Str name, const PlaceRule **rule) {
  for (int otherwise = 0; otherwise < 2; otherwise++)
    for (uint32_t i = 0; i < m->rules.n; i++) {
      const PlaceRule *place_rule = *rule = &m->rules.at[i];
      if (!names_axis(place_rule, name)) continue;
      uint32_t n = otherwise ? place_rule->otherwise.n : place_rule->dims.n;
      for (uint32_t k = 0; k < n; k++) {
        Str dim = answers(m, t, otherwise ? place_rule->otherwise.at[k] : place_rule->dims.at[k]);
        if (dim) return dim;
      }
    }
  return NULL;
}

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
  diag_fact(d, "blocks are equal on all ranks");
  diag_help(d, "another size of `%s`, or another dim in its place", a->name);
}

typedef struct Placer {
  Module *m;
  int axis[MAX_MESH], n; /* in the order of the rules */
  bool failed;
} Placer;

static Placement placement_of(Placer *placer, const Type *t, bool must_divide) {
  Placement placement = {0};
  for (int i = 0; i < placer->n; i++) {
    const PlaceRule *rule;
    int axis = placer->axis[i];
    Str dim = dim_for(placer->m, t, placer->m->mesh.at[axis].name, &rule);
    if (!dim || placer->m->mesh.at[axis].size == 1) continue;
    placement.on[axis] = dim;
    if (placement_fits(placer->m, t, &placement)) continue;
    placement.on[axis] = NULL;
    if (must_divide && !placer->failed)
      indivisible(placer->m, rule, dim, type_size(t, dim), axis), placer->failed = true;
  }
  return placement;
}

static void place_global(Placer *placer, Global *g) {
  if (g->kind == GLOBAL_OUTPUT || g->kind == GLOBAL_SCALAR || stays_whole(placer->m, g->name))
    return;
  bool weights = g->kind == GLOBAL_PARAM || g->kind == GLOBAL_STATE;
  g->placed = placement_of(placer, &g->type, weights);
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
  Placer placer = {.m = m};
  placer.n = mesh_order(m, placer.axis);
  for (uint32_t i = 0; i < m->globals.n; i++) place_global(&placer, m->globals.at[i]);
  for (uint32_t i = 0; i < m->fns.n; i++) place_values(&placer, m->fns.at[i]);
  if (!placer.failed) place_stages(m);
  if (!placer.failed && !diag_errors(m->ctx->diag)) place_kept(m);
}
