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
#include "ir/placement.h"
#include "passes/internal.h"
#include <string.h>

/* The dim of t that answers to rules about `dim`, or NULL. */
static Str answers(const Module *m, const Type *t, Str dim) {
  if (type_find(t, dim) >= 0) return dim;
  for (int i = 0; i < t->rank; i++) {
    Str own = t->axis[i].dim;
    size_t n = strlen(dim);
    if (!strncmp(own, dim, n) && own[n] == '\'') return own;
    for (uint32_t k = 0; k < m->dims.n; k++)
      if (m->dims.at[k].name == own && m->dims.at[k].like == dim) return own;
  }
  return NULL;
}

static bool names_axis(const PlaceRule *r, Str axis) {
  for (uint32_t i = 0; i < r->axes.n; i++)
    if (r->axes.at[i] == axis) return true;
  return false;
}

/* The dim of t that axis `name` cuts; *rule is the line that says so. */
static Str dim_for(const Module *m, const Type *t, Str name, const PlaceRule **rule) {
  for (int otherwise = 0; otherwise < 2; otherwise++)
    for (uint32_t i = 0; i < m->rules.n; i++) {
      const PlaceRule *r = *rule = &m->rules.at[i];
      if (!names_axis(r, name)) continue;
      uint32_t n = otherwise ? r->otherwise.n : r->dims.n;
      for (uint32_t k = 0; k < n; k++) {
        Str dim = answers(m, t, otherwise ? r->otherwise.at[k] : r->dims.at[k]);
        if (dim) return dim;
      }
    }
  return NULL;
}

static bool stays_whole(const Module *m, Str path) {
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; !m->rules.at[i].axes.n && k < m->rules.at[i].paths.n; k++) {
      Str p = m->rules.at[i].paths.at[k];
      size_t n = strlen(p);
      if (!strncmp(path, p, n) && (!path[n] || path[n] == '.')) return true;
    }
  return false;
}

static void indivisible(Module *m, const PlaceRule *r, Str dim, int64_t size, int axis) {
  const MeshAxis *a = &m->mesh.at[axis];
  Report *d = diag_at(m->ctx->diag, "E0701", span_of(m, r->loc),
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

static Placement placement_of(Placer *h, const Type *t, bool must_divide) {
  Placement p = {0};
  for (int i = 0; i < h->n; i++) {
    const PlaceRule *rule;
    int axis = h->axis[i];
    Str dim = dim_for(h->m, t, h->m->mesh.at[axis].name, &rule);
    if (!dim || h->m->mesh.at[axis].size == 1) continue;
    p.on[axis] = dim;
    if (placement_fits(h->m, t, &p)) continue;
    p.on[axis] = NULL;
    if (must_divide && !h->failed)
      indivisible(h->m, rule, dim, type_size(t, dim), axis), h->failed = true;
  }
  return p;
}

static void place_global(Placer *h, Global *g) {
  if (g->kind == GLOBAL_OUTPUT || g->kind == GLOBAL_SCALAR || stays_whole(h->m, g->name)) return;
  bool weights = g->kind == GLOBAL_PARAM || g->kind == GLOBAL_STATE;
  g->placed = placement_of(h, &g->type, weights);
}

static void place_values(Placer *h, Fn *f) {
  for (uint32_t i = 0; i < f->values.n; i++) {
    Value *v = &f->values.at[i];
    const Op *def = value_def(f, i);
    v->placed =
        def && def->code == OP_load ? def->global->placed : placement_of(h, &v->type, false);
  }
}

void pass_place(Module *m) {
  if (!m->mesh.n) return;
  Placer h = {.m = m};
  h.n = mesh_order(m, h.axis);
  for (uint32_t i = 0; i < m->globals.n; i++) place_global(&h, m->globals.at[i]);
  for (uint32_t i = 0; i < m->fns.n; i++) place_values(&h, m->fns.at[i]);
  if (!h.failed) place_stages(m);
  if (!h.failed && !diag_errors(m->ctx->diag)) place_kept(m);
}
