/* Lines `offload` of some layers whose stack pipeline stages share (stage_offload.h): all layers
   of a stage are on the host, or none. The layers of each stage are known from pass `pad` on. A
   line that cuts a stage, or a pipeline whose stages run one program, is refused (E0901), and so
   is a plan with more programs than an executable has room for. Must not: change the module. */
#include "ir/shape/placement.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_class.h"
#include "ir/plan/stage_offload.h"
#include "classes.h"
#include <string.h>

/* Layers of one program: those of a stage, or all. */
typedef struct LayerBlocks {
  const Dim *dim;
  int64_t stages, room; /* stages 1: all layers are one */
} LayerBlocks;

static int64_t stage_of(const LayerBlocks *blocks, int64_t layer) {
  return layer / blocks->room % blocks->stages;
}

static LayerBlocks blocks_of(const Module *m, const Global *global) {
  const Dim *dim = dim_find(m, global->type.axis[0].dim);
  LayerBlocks blocks = {dim, 1, dim->stored};
  if (dim != stages_dim(m)) return blocks;
  blocks.stages = m->mesh.at[module_class(m).axis].size;
  blocks.room = dim->stored / (blocks.stages * module_chunks(m));
  return blocks;
}

/* ---- the refusal: at a path, with the path of whole stages ---- */

typedef struct PathRefusal {
  Module *m;
  const OffloadLine *line;
  LayerPath layers; /* of its path */
  LayerBlocks blocks;
} PathRefusal;

static bool meets(const PathRefusal *refusal, const LayerPath *layers, int64_t stage) {
  for (int64_t layer = layers->first; layer <= layers->last; layer++)
    if (stage_of(&refusal->blocks, layer) == stage) return true;
  return false;
}

/* h[0..3].attn, h.5.attn: the path, of all layers of its stages. */
static Str widened(const PathRefusal *refusal) {
  Arena *arena = refusal->m->arena;
  Str path = refusal->line->path, text = "";
  const LayerPath *layers = &refusal->layers;
  int64_t size = refusal->blocks.dim->size;
  for (int64_t first = 0, end; first < size; first = end) {
    end = first + 1;
    if (!meets(refusal, layers, stage_of(&refusal->blocks, first))) continue;
    while (end < size && meets(refusal, layers, stage_of(&refusal->blocks, end))) end++;
    if (!first && end == size) return layer_path_whole(refusal->m->ctx->names, path);
    const char *range = end == first + 1 ? arena_printf(arena, ".%lld", (long long)first)
                                         : arena_printf(arena, "[%lld..%lld]", (long long)first,
                                                        (long long)end - 1);
    text = arena_list(arena, text, "%.*s%s%s", (int)layers->stack, path, range, layers->rest);
  }
  return text;
}

/* Do lines with the path in the same place, of this word or another, have this word? */
static bool shares_word(const PathRefusal *refusal, OffloadWord word) {
  const Module *m = refusal->m;
  for (uint32_t i = 0; i < m->offload.n; i++)
    if (m->offload.at[i].word == word &&
        !memcmp(&m->offload.at[i].path_loc, &refusal->line->path_loc, sizeof(Loc)))
      return true;
  return false;
}

static bool starts(Str path, Str with) { return !strncmp(path, with, strlen(with)); }

/* Has no other path of its words layers of the same stages? Else the wider path would have them a
   second time. */
static bool is_alone(const PathRefusal *refusal) {
  Interner *names = refusal->m->ctx->names;
  Str whole = layer_path_whole(names, refusal->line->path);
  for (uint32_t i = 0; i < refusal->m->offload.n; i++) {
    const OffloadLine *other = &refusal->m->offload.at[i];
    LayerPath layers;
    if (!other->path || other->path == refusal->line->path || !shares_word(refusal, other->word) ||
        !layer_path(other->path, strlen(other->path), &layers))
      continue;
    Str path = layer_path_whole(names, other->path);
    for (int64_t k = layers.first; (starts(path, whole) || starts(whole, path)) && k <= layers.last;
         k++)
      if (meets(refusal, &refusal->layers, stage_of(&refusal->blocks, k))) return false;
  }
  return true;
}

static void add_rule(Report *r, const PathRefusal *refusal) {
  const PlaceRule *rule = rule_of_dim(refusal->m, refusal->blocks.dim->name);
  if (rule) diag_also(r, loc_span(refusal->m, rule->loc), "layers over stages");
}

static void refuse(const PathRefusal *refusal) {
  Module *m = refusal->m;
  bool one = refusal->blocks.stages == 1, alone = !strcmp(plan_schedule(m), "sequential");
  Report *r = diag_at(m->ctx->diag, "E0901", loc_span(m, refusal->line->path_loc),
                      "`offload %s` of some layers of a %s is not built yet",
                      offload_word(refusal->line->word), one ? "pipeline" : "stage");
  Str text = widened(refusal);
  add_rule(r, refusal);
  if (one) {
    diag_label(r, "with %s stages run one program: each must offload the same layers",
               alone ? "`pipeline sequential`" : "one micro-batch");
    diag_help(r, "of all layers: `%s`; or %s", text,
              alone ? "another schedule" : "several micro-batches: a smaller `micro`");
  } else {
    diag_label(r, "offload all layers of a stage, or none");
    diag_help(r, "of whole stages: `%s`", text);
  }
  bool known = !module_said(m, "made.stage_layers"); /* else the edit would change the stages */
  if (known && refusal->line->path_loc.file && is_alone(refusal))
    diag_edit(r, loc_span(m, refusal->line->path_loc), "%s", text);
}

/* Refuses the first path of this word with layers of this stage. */
static void refuse_stage(Module *m, OffloadWord word, Str param, const LayerBlocks *blocks,
                         int64_t stage) {
  PathRefusal refusal = {.m = m, .blocks = *blocks};
  for (uint32_t i = 0; i < m->offload.n; i++) {
    refusal.line = &m->offload.at[i];
    if (refusal.line->word != word || !refusal.line->path) continue;
    size_t n = strlen(refusal.line->path);
    if (!layer_path(refusal.line->path, n, &refusal.layers)) continue;
    for (int64_t k = refusal.layers.first; k <= refusal.layers.last; k++)
      if (stage_of(blocks, k) == stage &&
          layer_path_names(refusal.line->path, n, layer_named(m, param, k, k))) {
        refuse(&refusal);
        return;
      }
  }
  bug("no line offloads layers of stage %lld", (long long)stage);
}

/* False: refused. */
static bool is_whole(Module *m, const Global *global, OffloadWord word) {
  LayerBlocks blocks = blocks_of(m, global);
  int8_t *seen = ARENA_ARRAY(m->arena, int8_t, blocks.stages); /* 1: has not, 2: has */
  for (int64_t layer = 0; layer < blocks.dim->size; layer++) {
    int8_t *stage = &seen[stage_of(&blocks, layer)],
           has = plan_offloads(m, word, layer_named(m, global->name, layer, layer)) ? 2 : 1;
    if (*stage && *stage != has)
      return refuse_stage(m, word, global->name, &blocks, stage_of(&blocks, layer)), false;
    *stage = has;
  }
  return true;
}

static void refuse_many(Module *m, int n) {
  Report *r = diag_at(m->ctx->diag, "E0901", plan_offload_at(m),
                      "`offload` lines that need %d different programs are not built yet", n);
  diag_label(r, "adjacent stages that offload the same share a program: at most %d programs",
             STAGE_CLASSES);
  diag_help(r, "offload the layers of adjacent stages");
}

static void check_class(Module *m) {
  StageClass class[STAGE_CLASSES];
  Str names = "";
  int n = module_classes(m, class);
  if (module_has_class(m)) return;
  for (int i = 0; i < n; i++) names = arena_list(m->arena, names, "%s", class[i].name);
  Report *r = diag_at(m->ctx->diag, "E1207", (Span){0}, "no ranks of this plan are called `%s`",
                      module_class_name(m));
  if (n) diag_help(r, "`--class` is one of %s", names);
  else diag_help(r, "all ranks run one program: leave `--class` out");
}

void stage_tiers_check(Module *m) {
  StageClass class[STAGE_CLASSES];
  for (OffloadWord k = 0; k < OFFLOAD_WORDS; k++)
    for (uint32_t i = 0; word_names_layers(m, k) && i < m->globals.n; i++)
      if (layers_ranks(m, m->globals.at[i]) > 1 && !is_whole(m, m->globals.at[i], k)) return;
  int n = module_classes(m, class);
  if (n > STAGE_CLASSES) refuse_many(m, n);
  else check_class(m);
}
