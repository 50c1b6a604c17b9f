/* Where the place rules of a plan want a value (placement.h): the rules of an axis are read in
   their order, the first dim before `else` that the tensor has is cut over the axis, without one
   the first after `else`. A dim `K like D`, and the primed D', answer to the rules of D where D
   itself is absent. */
#include "placement.h"
#include "ir/made.h"

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
static Str dim_for(const Module *m, const Type *t, bool weight, Str name, const PlaceRule **rule) {
  for (int otherwise = 0; otherwise < 2; otherwise++)
    for (uint32_t i = 0; i < m->rules.n; i++) {
      const PlaceRule *place_rule = *rule = &m->rules.at[i];
      if (!names_axis(place_rule, name)) continue;
      uint32_t n = otherwise ? place_rule->otherwise.n : place_rule->dims.n;
      for (uint32_t k = 0; k < n; k++) {
        Str dim = answers(m, t, otherwise ? place_rule->otherwise.at[k] : place_rule->dims.at[k]);
        if (dim) return weight && !otherwise && place_rule->activations ? NULL : dim;
      }
    }
  return NULL;
}

Dealt dim_dealt(const Module *m, Str dim) {
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; m->rules.at[i].pieces && k < m->rules.at[i].dims.n; k++) {
      const Type t = type_of(ELEM_i32, 1, &(Axis){dim, 1});
      if (answers(m, &t, m->rules.at[i].dims.at[k]))
        return (Dealt){mesh_find(m, m->rules.at[i].axes.at[0]), m->rules.at[i].pieces};
    }
  return (Dealt){-1, 0};
}

int dim_ring(const Module *m, Str dim) {
  const Type t = type_of(ELEM_i32, 1, &(Axis){dim, 1});
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; m->rules.at[i].ring && k < m->rules.at[i].dims.n; k++)
      if (answers(m, &t, m->rules.at[i].dims.at[k])) return mesh_find(m, m->rules.at[i].axes.at[0]);
  return -1;
}

static Placement place(const Module *m, const Type *t, bool weight, RuleMiss *miss) {
  Placement placement = {0};
  int axes[MAX_MESH], n = mesh_order(m, axes);
  for (int i = 0; i < n; i++) {
    const PlaceRule *rule;
    Str dim = dim_for(m, t, weight, m->mesh.at[axes[i]].name, &rule);
    if (!dim || m->mesh.at[axes[i]].size == 1) continue;
    placement.on[axes[i]] = dim;
    if (placement_fits(m, t, &placement)) continue;
    placement.on[axes[i]] = NULL;
    if (miss && !miss->rule) *miss = (RuleMiss){rule, dim, axes[i]};
  }
  return placement;
}

Placement placement_by_rules(const Module *m, const Type *t, RuleMiss *miss) {
  return place(m, t, false, miss);
}

Placement placement_of_weight(const Module *m, const Type *t, RuleMiss *miss) {
  return place(m, t, true, miss);
}
