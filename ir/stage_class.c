/* Classes of ranks: see stage_class.h. */
#include "stage_class.h"
#include "placement.h"
#include <string.h>

static const char stages_key[] = "made.stages", chunks_key[] = "made.chunks",
                  class_key[] = "made.class";

static const char *const names[STAGE_CLASSES] = {"first", "middle", "last"};

void module_set_stages(Module *m, Str axis, int64_t chunks) {
  module_set(m, stages_key, "%s", axis);
  if (chunks > 1) module_set(m, chunks_key, "%lld", (long long)chunks);
}

int64_t module_chunks(const Module *m) { return (int64_t)module_number(m, chunks_key, 1); }

bool module_choose_class(Module *m, const char *name) {
  for (int i = 0; i < STAGE_CLASSES; i++)
    if (!strcmp(names[i], name)) return module_set(m, class_key, "%s", name), true;
  return false;
}

static int stage_axis(const Module *m) {
  Str name = module_setting(m, stages_key, NULL);
  return name ? mesh_find(m, name) : -1;
}

int64_t stage_chunks(const Module *m, const Placement *p, Str dim) {
  int axis = stage_axis(m);
  return axis >= 0 && p->on[axis] == dim ? module_chunks(m) : 1;
}

bool dim_counts_layers(const Module *m, Str dim) {
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    int stacked = 0, at = type_find(&g->type, dim);
    for (const char *c = g->name; *c; c++) stacked += *c == '*';
    if (g->kind == GLOBAL_PARAM && at >= 0 && at < stacked) return true;
  }
  return false;
}

/* The dim that the stages cut, or NULL. */
static const Dim *layers_dim(const Module *m) {
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
  const Dim *dim = layers_dim(m);
  int64_t chunks = module_chunks(m), stages = dim ? m->mesh.at[stage_axis(m)].size : 1, all = 0;
  for (int64_t c = 0; dim && c < chunks; c++) {
    int64_t room = dim->stored / (stages * chunks), left = dim->size - (c * stages + stage) * room;
    all += left < 0 ? 0 : left < room ? left : room;
  }
  return all;
}

/* By number of the name; `first` above `last`: no stage is of it. */
static StageClass class_at(const Module *m, int axis, int i) {
  int64_t end = m->mesh.at[axis].size - 1;
  const StageClass all[STAGE_CLASSES] = {
      {names[0], axis, 0, 0}, {names[1], axis, 1, end - 1}, {names[2], axis, end, end}};
  return all[i];
}

int module_classes(const Module *m, StageClass *out) {
  int axis = stage_axis(m), n = 0;
  if (axis < 0 || m->mesh.at[axis].size < 2 || module_setting(m, class_key, NULL)) return 0;
  for (int i = 0; i < STAGE_CLASSES; i++) {
    StageClass c = class_at(m, axis, i);
    if (c.first <= c.last) out[n++] = c;
  }
  return n;
}

StageClass module_class(const Module *m) {
  Str name = module_setting(m, class_key, "");
  StageClass all = {"", stage_axis(m), 0, 0};
  if (all.axis < 0) return all;
  for (int i = 0; i < STAGE_CLASSES; i++)
    if (!strcmp(names[i], name)) return class_at(m, all.axis, i);
  all.last = m->mesh.at[all.axis].size - 1;
  return all;
}

bool global_is_held(const Module *m, const Global *g) {
  const char *class = module_class(m).name;
  if (!*class || !g->stages) return true;
  return ((g->stages & STAGES_FIRST) && !strcmp(class, names[0])) ||
         ((g->stages & STAGES_LAST) && !strcmp(class, names[2]));
}

int64_t global_bytes(const Module *m, const Global *g) {
  return global_is_held(m, g) ? type_count(&g->type) * elem_bytes(g->type.elem) : 0;
}
