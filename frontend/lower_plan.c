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

static void write_target(Build *build, const Sizes *sizes, PlaceRule *rule,
                         const AstSetting *line) {
  bool otherwise = false;
  for (uint32_t i = 0; i < line->target.n; i++) {
    const AstValue *value = line->target.at[i].value;
    if (value->kind != VALUE_PATH || line->target.at[i].key) continue;
    Str name = intern(build->m->ctx->names, value->path->text);
    if (!strcmp(name, "else")) otherwise = true;
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

/* The places of all names after `of`, in the lines for groups of parameters. */
static void write_group_places(Build *build, const AstItem *train) {
  const SettingGroup *group;
  uint32_t n = settings_groups(build->m->ctx, train, "optim", &group);
  for (uint32_t i = 0; i < n; i++) {
    Span all = group[i].path[0]->span, last = group[i].path[group[i].paths - 1]->span;
    all.length = last.offset + last.length - all.offset;
    module_set_loc(build->m, optimizer_key(build->m, (int)i + 1, "train.optim.of"),
                   build_loc(build, all));
  }
}

void write_setting_places(Build *build, const Choice *choice) {
  const AstSetting *micro = choice->plan ? settings_line(choice->plan->item, "micro") : NULL;
  const AstSetting *optim = choice->train ? settings_line(choice->train->item, "optim") : NULL;
  const AstSetting *zero = choice->plan ? settings_line(choice->plan->item, "zero") : NULL;
  const AstValue *ahead = zero ? setting_option(zero, "prefetch") : NULL;
  if (ahead) module_set_loc(build->m, "plan.zero.prefetch", build_loc(build, ahead->span));
  if (micro) module_set_loc(build->m, "plan.micro", build_loc(build, micro->path->span));
  if (optim) module_set_loc(build->m, "train.optim", build_loc(build, optim->path->span));
  write_group_places(build, choice->train ? choice->train->item : NULL);
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
