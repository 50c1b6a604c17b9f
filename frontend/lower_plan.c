/* Writes the mesh and the place lines of a plan into the module. Their rules were checked before
   (sema_plan.c); a plan without a mesh adds nothing to the module. */
#include "lower_build.h"
#include "frontend/settings/settings.h"
#include "ir/plan/optimizers.h"
#include <string.h>

static void write_axes(Build *build, const AstSetting *mesh) {
  for (uint32_t i = 0; i < mesh->values.n; i++) {
    const AstPair *v = &mesh->values.at[i];
    if (v->key && v->value->kind == VALUE_NUMBER)
      vec_push(build->m->arena, build->m->mesh,
               (MeshAxis){v->key->text, v->value->number.integral});
  }
}

static void write_operand(Build *build, const Sizes *sizes, PlaceRule *rule, const AstValue *value,
                          bool otherwise) {
  if (value->kind != VALUE_PATH) return;
  Str name = intern(build->m->ctx->names, value->path->text);
  if (!sizes_find(sizes, name)) vec_push(build->m->arena, rule->paths, name);
  else if (otherwise) vec_push(build->m->arena, rule->otherwise, name);
  else vec_push(build->m->arena, rule->dims, name);
}

enum { BALANCED_PIECES = 2 };

static void write_target(Build *build, const Sizes *sizes, PlaceRule *rule,
                         const AstSetting *line) {
  bool otherwise = false;
  for (uint32_t i = 0; i < line->target.n; i++) {
    const AstValue *value = line->target.at[i].value;
    if (value->kind != VALUE_PATH || line->target.at[i].key) continue;
    Str name = intern(build->m->ctx->names, value->path->text);
    if (!strcmp(name, "else")) otherwise = true;
    else if (!otherwise && !strcmp(name, "balanced")) rule->pieces = BALANCED_PIECES;
    else if (!otherwise && !strcmp(name, "activations")) rule->activations = true;
    else if (!otherwise && !strcmp(name, "ring")) rule->ring = true;
    else if (otherwise) write_operand(build, sizes, rule, value, true);
    else if (strcmp(name, "none")) vec_push(build->m->arena, rule->axes, name);
  }
}

static void write_rule(Build *build, const Sizes *sizes, const AstSetting *line) {
  PlaceRule rule = {.loc = build_loc(build, line->path->span)};
  for (uint32_t i = 0; i < line->values.n; i++)
    if (!line->values.at[i].key)
      write_operand(build, sizes, &rule, line->values.at[i].value, false);
  write_target(build, sizes, &rule, line);
  vec_push(build->m->arena, build->m->rules, rule);
}

/* Which dims are read like which others: rules speak of the latter. */
static void write_likes(Module *m, const Sizes *sizes) {
  for (uint32_t i = 0; i < m->dims.n; i++) {
    const DimInfo *d = sizes_find(sizes, m->dims.at[i].name);
    if (d && d->def && d->def->like.text) m->dims.at[i].like = d->def->like.text;
  }
}

/* ---- what is written ---- */

/* All names after `of`, in the lines for groups of parameters. */
static void written_groups(Module *m, WrittenBlocks *to, const AstItem *train) {
  const SettingGroup *group;
  uint32_t n = settings_groups(m->ctx, train, "optim", &group);
  for (uint32_t i = 0; i < n; i++) {
    Span all = group[i].path[0]->span, last = group[i].path[group[i].paths - 1]->span;
    all.length = last.offset + last.length - all.offset;
    vec_push(m->arena, to->settings,
             ((WrittenSetting){optimizer_key(m, (int)i + 1, "train.optim.of"), all, all, all}));
  }
}

static void written_line(Module *m, WrittenBlocks *to, const char *block, const AstSetting *line) {
  WrittenSetting whole = {
      arena_printf(m->arena, "%s.%s", block, line->path->text), line->span, line->path->span, {0}};
  for (uint32_t i = 0; i < line->values.n; i++) {
    const AstPair *pair = &line->values.at[i];
    if (!pair->key && !whole.value.file) whole.value = pair->value->span;
    if (pair->key)
      vec_push(m->arena, to->settings,
               ((WrittenSetting){arena_printf(m->arena, "%s.%s", whole.key, pair->key->text),
                                 pair->span, pair->key->span, pair->value->span}));
  }
  vec_push(m->arena, to->settings, whole);
}

static void written_block(Module *m, WrittenBlocks *to, const char *block, const AstItem *item) {
  for (uint32_t i = 0; item && item->block && i < item->block->settings.n; i++)
    if (!setting_is_group(item, item->block->settings.at[i]))
      written_line(m, to, block, item->block->settings.at[i]);
}

void write_written_blocks(Module *m, World *w, const Choice *choice) {
  WrittenBlocks *to = ARENA_NEW(m->arena, WrittenBlocks);
  if (choice->plan) to->plan = choice->plan->name, to->plan_at = choice->plan->span;
  else to->plan_left = choose_plan_left(w, choice);
  to->train = choose_train_name(w, choice);
  written_block(m, to, "plan", choice->plan ? choice->plan->item : NULL);
  written_block(m, to, "train", choice->train ? choice->train->item : NULL);
  written_groups(m, to, choice->train ? choice->train->item : NULL);
  m->written = to;
}

void write_mesh(Build *build, const Sizes *sizes, const AstItem *plan) {
  const AstSetting *mesh = settings_line(plan, "mesh");
  if (!mesh) return;
  write_axes(build, mesh);
  write_likes(build->m, sizes);
  for (uint32_t i = 0; i < plan->block->settings.n; i++) {
    const AstSetting *line = plan->block->settings.at[i];
    if (!strcmp(line->path->text, "place") && line->arrow == ARROW_RIGHT)
      write_rule(build, sizes, line);
  }
}
