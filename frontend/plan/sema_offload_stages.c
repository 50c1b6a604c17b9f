/* Lines `offload` of some layers of a stack that is split into stages: all lines of a word together
   must offload all layers of a stage, or none (E0901). The layers of a stage are known at this
   point if the plan names its schedule and all stages have the same number; else pass `pipeline`
   checks (passes/stages/stage_offload_check.c). Must not: check paths that match nothing. */
#include "sema_offload.h"
#include <string.h>

typedef struct StageLayers { /* of a path that names layers of a pipeline */
  const PlaceLine *line;
  int64_t layers, stages, room; /* room: layers in a block; stages 1: they run one program */
} StageLayers;

typedef struct OffloadCheck {
  PlanCheck *check;
  uint32_t n;
  const Offloaded *list;
} OffloadCheck;

/* The line that puts layers of this stack on several ranks; NULL: there is none. */
static const PlaceLine *stages_of(const PlanCheck *check, Str layers) {
  for (uint32_t k = 0; layers && k < check->rules.n; k++)
    for (uint32_t d = 0; d < check->rules.at[k].dims.n; d++)
      if (check->rules.at[k].dims.at[d].dim == layers && plan_ranks_of(&check->rules.at[k]) > 1)
        return &check->rules.at[k];
  return NULL;
}

/* False: no stages, or not known yet. */
static bool find_stages(const PlanCheck *check, const AstValue *value, StageLayers *at) {
  Str dim = plan_layers_of(check, plan_stack_of(check, value));
  at->line = stages_of(check, dim);
  if (!at->line) return false;
  at->layers = size_of(check->e->sizes, dim), at->stages = plan_ranks_of(at->line);
  at->room = plan_stage_room(check, at->layers, at->stages);
  if (at->room == at->layers) at->stages = 1;
  return at->room > 0;
}

static int64_t stage_at(const StageLayers *at, int64_t layer) {
  return layer / at->room % at->stages;
}

/* Has a line this of the layer of a parameter? */
static bool has(const OffloadCheck *lines, const Offloaded *word, Str param, int64_t layer) {
  for (uint32_t i = 0; i < lines->n; i++) {
    const Offloaded *other = &lines->list[i];
    if (!offload_same_word(other, word)) continue;
    if (!other->path) return true;
    OffloadPath path = offload_path(lines->check, other->path);
    if (path_starts(param, path.whole) &&
        (path.last < 0 || (path.first <= layer && layer <= path.last)))
      return true;
  }
  return false;
}

static bool meets_stage(const StageLayers *at, const OffloadPath *path, int64_t stage) {
  for (int64_t layer = path->first; layer <= path->last; layer++)
    if (stage_at(at, layer) == stage) return true;
  return false;
}

/* Does a stage have some layers of the path but not all of its layers? */
static bool cuts(const OffloadCheck *lines, const Offloaded *of, const StageLayers *at) {
  OffloadPath path = offload_path(lines->check, of->path);
  for (uint32_t i = 0; i < lines->check->e->params.n; i++) {
    Str param = lines->check->e->params.at[i]->path;
    if (!path_starts(param, path.whole)) continue;
    for (int64_t layer = 0; layer < at->layers; layer++)
      if (meets_stage(at, &path, stage_at(at, layer)) && !has(lines, of, param, layer)) return true;
  }
  return false;
}

/* ---- the edit ---- */

/* h[0..3].attn, h.5.attn */
static Str path_text(const OffloadCheck *lines, Str stack, int64_t first, int64_t last, Str rest) {
  Arena *arena = lines->check->e->arena;
  if (first == last) return arena_printf(arena, "%s.%lld%s", stack, (long long)first, rest);
  return arena_printf(arena, "%s[%lld..%lld]%s", stack, (long long)first, (long long)last, rest);
}

/* The path, of all layers of its stages: h[0..3], h[8..11]. */
static Str widened(const OffloadCheck *lines, const Offloaded *of, const StageLayers *at) {
  OffloadPath path = offload_path(lines->check, of->path);
  Str stack = plan_stack_of(lines->check, of->path), text = "";
  for (int64_t first = 0, end; first < at->layers; first = end) {
    end = first + 1;
    if (!meets_stage(at, &path, stage_at(at, first))) continue;
    while (end < at->layers && meets_stage(at, &path, stage_at(at, end))) end++;
    if (!first && end == at->layers) return path.whole;
    text = arena_printf(lines->check->e->arena, "%s%s%s", text, *text ? ", " : "",
                        path_text(lines, stack, first, end - 1, path.rest));
  }
  return text;
}

/* Has no other path of one of these words layers of the same stages? */
static bool is_alone(const OffloadCheck *lines, const Offloaded *of, const StageLayers *at) {
  OffloadPath path = offload_path(lines->check, of->path);
  for (uint32_t i = 0; i < lines->n; i++) {
    bool word = false;
    for (uint32_t k = 0; k < lines->n; k++)
      word |=
          lines->list[k].path == of->path && offload_same_word(&lines->list[k], &lines->list[i]);
    if (!word || !lines->list[i].path || lines->list[i].path == of->path) continue;
    OffloadPath other = offload_path(lines->check, lines->list[i].path);
    bool near = path_starts(other.whole, path.whole) || path_starts(path.whole, other.whole);
    for (int64_t layer = other.first; near && layer <= other.last; layer++)
      if (meets_stage(at, &path, stage_at(at, layer))) return false;
  }
  return true;
}

static void refuse(const OffloadCheck *lines, const Offloaded *of, const StageLayers *at) {
  bool one = at->stages == 1;
  Report *r = world_unbuilt(lines->check->w, of->path->span, "`offload` of some layers of a %s is",
                            one ? "pipeline" : "stage");
  diag_also(r, at->line->target, "layers over stages");
  diag_label(r, one ? "with `pipeline sequential` stages run one program: each must offload the "
                      "same layers"
                    : "offload all layers of a stage, or none");
  Str text = widened(lines, of, at);
  diag_help(r, one ? "of all layers: `%s`; or another schedule" : "of whole stages: `%s`", text);
  if (is_alone(lines, of, at)) diag_edit(r, of->path->span, "%s", text);
}

void check_offload_stages(PlanCheck *check, uint32_t n, const Offloaded *list) {
  OffloadCheck lines = {check, n, list};
  for (uint32_t i = 0; i < n; i++) {
    StageLayers at;
    if (!list[i].path || offload_path(check, list[i].path).last < 0) continue;
    if (!find_stages(check, list[i].path, &at) || !cuts(&lines, &list[i], &at)) continue;
    refuse(&lines, &list[i], &at);
    return;
  }
}
