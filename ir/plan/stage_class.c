/* Classes of ranks: see stage_class.h. */
#include "stage_class.h"
#include "ir/shape/placement.h"
#include "stage_offload.h"
#include <stdlib.h>
#include <string.h>

static const char stages_key[] = "made.stages", chunks_key[] = "made.chunks",
                  class_key[] = "made.class";

static const char first_name[] = "first", middle_name[] = "middle", last_name[] = "last";

void module_set_stages(Module *m, Str axis, int64_t chunks) {
  module_set(m, stages_key, "%s", axis);
  if (chunks > 1) module_set(m, chunks_key, "%lld", (long long)chunks);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

int64_t module_chunks(const Module *m) { return (int64_t)module_number(m, chunks_key, 1); }

static int stage_axis(const Module *m) {
  Str name = module_setting(m, stages_key, NULL);
  return name ? mesh_find(m, name) : -1;
}

int64_t stage_chunks(const Module *m, const Placement *p, Str dim) {
  int axis = stage_axis(m);
  return axis >= 0 && p->on[axis] == dim ? module_chunks(m) : 1;
}

bool dim_counts_layers(const Module *m, Str dim) {
  EACH_GLOBAL (m, g) {
    int stacked = 0, at = type_find(&g->type, dim);
    for (const char *c = g->name; *c; c++) stacked += *c == '*';
    if (g->kind == GLOBAL_PARAM && at >= 0 && at < stacked) return true;
  }
  return false;
}

const Dim *stages_dim(const Module *m) {
  int axis = stage_axis(m);
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; k < m->rules.at[i].dims.n; k++) {
      const PlaceRule *rule = &m->rules.at[i];
      if (axis < 0 || !rule->axes.n || mesh_find(m, rule->axes.at[0]) != axis) continue;
      for (uint32_t d = 0; d < m->dims.n; d++)
        if (m->dims.at[d].name == rule->dims.at[k] && dim_counts_layers(m, m->dims.at[d].name))
          return &m->dims.at[d];
    }
  return NULL;
}

bool stage_room_fits(int64_t layers, int64_t stages, int64_t n) {
  return n * stages >= layers && n * (stages - 2) < layers && n <= layers;
}

int64_t stage_layers(const Module *m, int64_t stage) {
  const Dim *dim = stages_dim(m);
  int64_t chunks = module_chunks(m), stages = dim ? m->mesh.at[stage_axis(m)].size : 1, all = 0;
  for (int64_t c = 0; dim && c < chunks; c++) {
    int64_t room = dim->stored / (stages * chunks), left = dim->size - (c * stages + stage) * room;
    all += left < 0 ? 0 : left < room ? left : room;
  }
  return all;
}

/* ---- classes ---- */

/* middle_1, middle_2_5 */
static bool read_between(const char *name, int64_t *first, int64_t *last) {
  char *end;
  size_t n = sizeof middle_name - 1;
  if (strncmp(name, middle_name, n) || name[n] != '_' || !is_digit(name[n + 1])) return false;
  *first = *last = strtoll(name + n + 1, &end, 10);
  if (*end == '_' && is_digit(end[1])) *last = strtoll(end + 1, &end, 10);
  return !*end && *first <= *last;
}

/* Stages of that name; `first` above `last`: none are. False: no class is ever called so. */
static bool class_named(const Module *m, int axis, const char *name, StageClass *class) {
  int64_t end = axis < 0 ? 0 : m->mesh.at[axis].size - 1;
  *class = (StageClass){name, axis, 0, 0};
  if (!strcmp(name, first_name)) return true;
  class->first = class->last = end;
  if (!strcmp(name, last_name)) return true;
  class->first = 1, class->last = end - 1;
  return !strcmp(name, middle_name) || read_between(name, &class->first, &class->last);
}

bool module_choose_class(Module *m, const char *name) {
  StageClass class;
  if (!class_named(m, -1, name, &class)) return false;
  return module_set(m, class_key, "%s", name), true;
}

int module_ends(const Module *m, StageClass *out) {
  static const char *const names[STAGE_ENDS] = {first_name, middle_name, last_name};
  int axis = stage_axis(m), n = 0;
  if (axis < 0 || m->mesh.at[axis].size < 2) return 0;
  for (int i = 0; i < STAGE_ENDS; i++)
    if (class_named(m, axis, names[i], &out[n]) && out[n].first <= out[n].last) n++;
  return n;
}

/* The stages from `first` to `last`, of those between the first and the last stage. */
static StageClass between(const Module *m, StageClass all, int64_t first, int64_t last) {
  StageClass class = {all.name, all.axis, first, last};
  if (first == all.first && last == all.last) return class;
  class.name = first == last
                   ? intern_printf(m->ctx->names, "%s_%lld", middle_name, (long long)first)
                   : intern_printf(m->ctx->names, "%s_%lld_%lld", middle_name, (long long)first,
                                   (long long)last);
  return class;
}

int module_classes(const Module *m, StageClass *out) {
  StageClass end[STAGE_ENDS];
  int ends = module_ends(m, end), n = 0;
  for (int i = 0; i < ends; i++)
    for (int64_t first = end[i].first, next; first <= end[i].last; first = next) {
      for (next = first + 1; next <= end[i].last && stages_offload_alike(m, first, next);) next++;
      if (n < STAGE_CLASSES) out[n] = between(m, end[i], first, next - 1);
      n++;
    }
  return n;
}

Str module_class_name(const Module *m) {
  return module_setting(m, class_key, intern(m->ctx->names, ""));
}

bool module_has_class(const Module *m) {
  StageClass class[STAGE_CLASSES];
  Str name = module_setting(m, class_key, NULL);
  int n = module_classes(m, class);
  for (int i = 0; i < n && i < STAGE_CLASSES; i++)
    if (name && !strcmp(class[i].name, name)) return true;
  return !name;
}

StageClass module_class(const Module *m) {
  Str name = module_class_name(m);
  StageClass all = {"", stage_axis(m), 0, 0}, class;
  if (all.axis < 0) return all;
  if (class_named(m, all.axis, name, &class)) return class;
  all.last = m->mesh.at[all.axis].size - 1;
  return all;
}

bool global_is_held(const Module *m, const Global *g) {
  StageClass class;
  if (!g->stages || !*(class = module_class(m)).name) return true;
  return ((g->stages & STAGES_FIRST) && !class.first) ||
         ((g->stages & STAGES_LAST) && class.last == m->mesh.at[class.axis].size - 1);
}

int64_t global_bytes(const Module *m, const Global *g) {
  return global_is_held(m, g) ? type_dense_bytes(&g->type) : 0;
}
