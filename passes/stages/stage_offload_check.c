/* Lines `offload` of some layers whose stack pipeline stages share (stage_offload.h): all layers
   of a stage are on the host, or none. The layers of each stage are known from pass `pad` on. A
   line that cuts a stage, or a pipeline whose stages run one program, is refused (E0901), and so
   is a plan with more programs than an executable has room for. The frontend reports the same,
   with the edit, if it knows the stages (sema_offload_stages.c). Must not: change the module. */
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

/* h[0..1], h[4..5] */
static Str layers_of(const Module *m, Str stack, const LayerBlocks *blocks, int64_t stage) {
  Str text = "";
  for (int64_t first = 0, end; first < blocks->dim->size; first = end) {
    for (end = first + 1; end < blocks->dim->size && end % blocks->room;) end++;
    if (stage_of(blocks, first) == stage)
      text = arena_printf(m->arena, "%s%s`%s`", text, *text ? ", " : "",
                          layer_range(m, stack, first, end - first));
  }
  return text;
}

/* Refuses a line if all ranks run one program. */
static void refuse_one(Module *m, Report *r, Str stack) {
  bool alone = !strcmp(plan_schedule(m), "sequential");
  diag_label(
      r, alone
             ? "with `pipeline sequential` all stages run one program, so all must offload the same"
             : "with one micro-batch all stages run one program, so all must offload the same");
  diag_help(r, "name all layers: `%s.*`; or use %s", stack,
            alone ? "another schedule" : "several micro-batches: a smaller `micro`");
}

static void refuse(Module *m, OffloadWord word, Str param, const LayerBlocks *blocks,
                   int64_t layer) {
  bool one = blocks->stages == 1;
  int64_t stage = stage_of(blocks, layer);
  Str stack = intern_n(m->ctx->names, param, strcspn(param, "*") - 1);
  Report *r = diag_at(m->ctx->diag, "E0901", plan_offload_at(m),
                      "`offload %s` of some layers of a %s is not built yet", offload_word(word),
                      one ? "pipeline" : "stage");
  if (one) {
    refuse_one(m, r, stack);
    return;
  }
  diag_label(r, "offload all layers of a stage, or none");
  diag_help(r, "stage %lld has %s", (long long)stage, layers_of(m, stack, blocks, stage));
}

/* False: refused. */
static bool is_whole(Module *m, const Global *global, OffloadWord word) {
  LayerBlocks blocks = blocks_of(m, global);
  int8_t *seen = ARENA_ARRAY(m->arena, int8_t, blocks.stages); /* 1: has not, 2: has */
  for (int64_t layer = 0; layer < blocks.dim->size; layer++) {
    int8_t *stage = &seen[stage_of(&blocks, layer)],
           has = plan_offloads(m, word, layer_named(m, global->name, layer, layer)) ? 2 : 1;
    if (*stage && *stage != has) return refuse(m, word, global->name, &blocks, layer), false;
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

/* If all ranks run one program, the class may be any of the plan's. */
static void check_class(Module *m) {
  StageClass class[STAGE_CLASSES];
  Str names = "";
  int n = module_classes(m, class);
  if (!n || module_has_class(m)) return;
  for (int i = 0; i < n; i++)
    names = arena_printf(m->arena, "%s%s%s", names, i ? ", " : "", class[i].name);
  Report *r = diag_at(m->ctx->diag, "E1207", (Span){0}, "no ranks of this plan are called `%s`",
                      module_class_name(m));
  diag_help(r, "`--class` is one of %s", names);
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
