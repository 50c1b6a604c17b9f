/* The stages that keep a value on the host: see stage_offload.h. Only the first layer of a stage is
   looked at; that its other layers agree is checked elsewhere. */
#include "stage_offload.h"
#include "layer_range.h"
#include "module_settings.h"
#include "ir/shape/placement.h"
#include "stage_class.h"
#include <string.h>

/* For a parameter: are its layers cut by the stages? */
static bool is_cut(const Dim *stages, const Global *global) {
  return global->kind == GLOBAL_PARAM && global->type.rank &&
         global->type.axis[0].dim == stages->name && layer_star(global->name);
}

/* Is a parameter, or what is named after it, of a stack whose layers are on stages? */
static bool is_of_stages(const Module *m, Str param) {
  const Dim *stages = stages_dim(m);
  const char *star = layer_star(param);
  for (uint32_t i = 0; stages && star && i < m->globals.n; i++)
    if (is_cut(stages, m->globals.at[i]) &&
        !strncmp(m->globals.at[i]->name, param, (size_t)(star - param) + 2))
      return true;
  return false;
}

int64_t layers_ranks(const Module *m, const Global *global) {
  bool stack = global->kind == GLOBAL_PARAM && global->type.rank && layer_star(global->name);
  int64_t ranks = 1;
  for (uint32_t i = 0; stack && i < m->rules.n; i++)
    for (uint32_t k = 0; k < m->rules.at[i].dims.n; k++)
      for (uint32_t a = 0; a < m->rules.at[i].axes.n; a++) {
        int axis = mesh_find(m, m->rules.at[i].axes.at[a]);
        bool layers = m->rules.at[i].dims.at[k] == global->type.axis[0].dim;
        if (layers && axis >= 0) ranks *= m->mesh.at[axis].size;
      }
  return ranks;
}

/* A stage without layers has what the last layer has: its rooms are laid out like those. */
static int64_t first_layer(const Module *m, int64_t stage) {
  const Dim *dim = stages_dim(m);
  int64_t stages = m->mesh.at[module_class(m).axis].size,
          first = stage * (dim->stored / (stages * module_chunks(m)));
  return first < dim->size ? first : dim->size - 1;
}

static bool stage_has(const Module *m, int64_t stage, OffloadWord word, Str param) {
  int64_t layer = first_layer(m, stage);
  return plan_offloads(m, word, layer_named(m, param, layer, layer));
}

bool word_names_layers(const Module *m, OffloadWord word) {
  LayerPath layers;
  for (uint32_t i = 0; i < m->offload.n; i++) {
    const OffloadLine *line = &m->offload.at[i];
    if (line->word == word && line->path && layer_path(line->path, strlen(line->path), &layers))
      return true;
  }
  return false;
}

bool stages_offload_alike(const Module *m, int64_t a, int64_t b) {
  const Dim *stages = stages_dim(m);
  for (OffloadWord k = 0; stages && k < OFFLOAD_WORDS; k++) {
    if (!word_names_layers(m, k)) continue;
    EACH_GLOBAL (m, global) {
      if (is_cut(stages, global) &&
          stage_has(m, a, k, global->name) != stage_has(m, b, k, global->name))
        return false;
    }
  }
  return true;
}

bool class_offloads(const Module *m, OffloadWord word, Str param) {
  StageClass class = module_class(m);
  if (!plan_offloads(m, word, param)) return false;
  if (!*class.name || !is_of_stages(m, param)) return true;
  return stage_has(m, class.first, word, param);
}
