/* Placements: axes of the mesh, blocks, local types, their text. See placement.h. */
#include "placement.h"

const char PARTIAL_SUM[] = "+", PARTIAL_MAX[] = "max";

int mesh_find(const Module *m, Str name) {
  for (uint32_t i = 0; i < m->mesh.n; i++)
    if (m->mesh.at[i].name == name) return (int)i;
  return -1;
}

int64_t mesh_ranks(const Module *m) {
  int64_t n = 1;
  for (uint32_t i = 0; i < m->mesh.n; i++) n *= m->mesh.at[i].size;
  return n;
}

static bool among(const int *axes, int n, int axis) {
  for (int i = 0; i < n; i++)
    if (axes[i] == axis) return true;
  return false;
}

/* Does the axis split a dim in some values only (`else`) that another axis splits in all? */
static bool is_finer(const Module *m, Str axis) {
  for (uint32_t i = 0; i < m->rules.n; i++) {
    const PlaceRule *some = &m->rules.at[i];
    for (uint32_t d = 0;
         names_have(some->axes.at, (int)some->axes.n, axis) && d < some->otherwise.n; d++)
      for (uint32_t k = 0; k < m->rules.n; k++) {
        const PlaceRule *all = &m->rules.at[k];
        if (names_have(all->dims.at, (int)all->dims.n, some->otherwise.at[d]) &&
            !names_have(all->axes.at, (int)all->axes.n, axis))
          return true;
      }
  }
  return false;
}

static int add_axes(const Module *m, const PlaceRule *rule, int *axes, int n) {
  for (uint32_t k = 0; k < rule->axes.n; k++) {
    int axis = mesh_find(m, rule->axes.at[k]);
    if (axis >= 0 && !among(axes, n, axis)) axes[n++] = axis;
  }
  return n;
}

int mesh_order(const Module *m, int *axes) {
  int n = 0;
  for (uint32_t i = 0; i < m->rules.n; i++)
    if (m->rules.at[i].pieces) n = add_axes(m, &m->rules.at[i], axes, n);
  for (int finer = 0; finer < 2; finer++)
    for (uint32_t i = 0; i < m->rules.n; i++)
      for (uint32_t k = 0; k < m->rules.at[i].axes.n; k++) {
        Str name = m->rules.at[i].axes.at[k];
        int axis = mesh_find(m, name);
        if (axis >= 0 && !among(axes, n, axis) && is_finer(m, name) == finer) axes[n++] = axis;
      }
  for (int i = 0; i < (int)m->mesh.n; i++)
    if (!among(axes, n, i)) axes[n++] = i;
  return n;
}

int64_t mesh_coordinate(const Module *m, int64_t rank, int axis) {
  for (int i = 0; i < axis; i++) rank /= m->mesh.at[i].size;
  return rank % m->mesh.at[axis].size;
}

bool placement_equal(const Placement *a, const Placement *b) {
  for (int i = 0; i < MAX_MESH; i++)
    if (a->on[i] != b->on[i]) return false;
  return true;
}

bool placement_is_whole(const Placement *p) { return placement_equal(p, &(Placement){0}); }

int64_t placement_ways(const Module *m, const Placement *p, Str dim) {
  int64_t n = 1;
  for (uint32_t i = 0; i < m->mesh.n; i++)
    if (p->on[i] == dim) n *= m->mesh.at[i].size;
  return n;
}

bool placement_fits(const Module *m, const Type *t, const Placement *p) {
  for (uint32_t i = 0; i < m->mesh.n; i++)
    if (is_split(p->on[i]) && type_find(t, p->on[i]) < 0) return false;
  for (int i = 0; i < t->rank; i++)
    if (t->axis[i].size % placement_ways(m, p, t->axis[i].dim)) return false;
  return true;
}

Type placement_local(const Module *m, const Type *t, const Placement *p) {
  Type r = *t;
  for (int i = 0; i < r.rank; i++) r.axis[i].size /= placement_ways(m, p, r.axis[i].dim);
  return r;
}

int64_t placement_logical(const Module *m, Str dim, int64_t whole) {
  for (uint32_t i = 0; i < m->dims.n; i++)
    if (m->dims.at[i].name == dim && m->dims.at[i].stored == whole) return m->dims.at[i].size;
  return whole;
}

int64_t placement_held(const Module *m, const Type *t, const Placement *p) {
  Type local = placement_local(m, t, p);
  return type_count(&local);
}

const PlaceRule *rule_of_dim(const Module *m, Str dim) {
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; k < m->rules.at[i].dims.n; k++)
      if (m->rules.at[i].axes.n && m->rules.at[i].dims.at[k] == dim) return &m->rules.at[i];
  return NULL;
}

bool rule_cuts_batch(const PlaceRule *r) {
  for (uint32_t k = 0; k < r->dims.n; k++)
    if (!strcmp(r->dims.at[k], "Batch")) return true;
  for (uint32_t k = 0; k < r->otherwise.n; k++)
    if (!strcmp(r->otherwise.at[k], "Batch")) return true;
  return false;
}

int64_t mesh_batch_ranks(const Module *m) {
  int64_t n = 1;
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; rule_cuts_batch(&m->rules.at[i]) && k < m->rules.at[i].axes.n; k++) {
      int axis = mesh_find(m, m->rules.at[i].axes.at[k]);
      if (axis >= 0) n *= m->mesh.at[axis].size;
    }
  return n;
}
