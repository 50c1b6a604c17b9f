/* `shardc check`: every model, variant, layer, train, plan, machine and weights block of FILE. Used
   files are read, and checked where FILE builds on them. */
#include "lower_build.h"
#include "frontend/settings/settings.h"
#include "ir/word_patterns.h"
#include <string.h>

static bool own(const World *w, const Decl *decl) { return decl->span.file == w->top; }

static void check_settings(World *w) {
  static const Space spaces[] = {SPACE_TRAIN, SPACE_PLAN, SPACE_MACHINE, SPACE_WEIGHTS, SPACE_FN};
  for (size_t s = 0; s < sizeof spaces / sizeof *spaces; s++) {
    uint32_t at = 0;
    for (const Decl *decl; (decl = world_next(w, spaces[s], &at));)
      if (own(w, decl) && decl->item->block && !decl->item->bad) {
        if (!settings_check(w->ctx, decl->item)) vec_push(w->ctx->arena, w->wrong, decl->item);
        else {
          if (decl->item->kind == ITEM_MACHINE) check_machine_block(w, decl->item);
          check_unbuilt(w, decl->item);
        }
      }
  }
}

static bool sound(const World *w, const AstItem *item) {
  for (uint32_t i = 0; i < w->wrong.n; i++)
    if (w->wrong.at[i] == item) return false;
  return !item->bad;
}

/* ---- models ---- */

/* NULL: something is wrong with the model, and nothing more is said about what is built on it. */
static Eval *walk(World *w, const Choice *choice) {
  uint32_t before = w->errors;
  Eval *e = eval_new(w, choice_sizes(w, choice), MODE_CHECK, NULL);
  bool sized = choice->train && sound(w, choice->train->item) && w->errors == before;
  e->sized = sized, e->train = sized ? choice->train->item : NULL;
  if (choice->train && sound(w, choice->train->item))
    e->adapters = read_lora(w->ctx, choice->train->item);
  sizes_compute(e->sizes);
  watch_sizes(e, choice->model->name);
  if (!choice->base->bad) eval_model(e, choice->base);
  return w->errors == before && !world_has_bad(w) ? e : NULL;
}

static void count(const Eval *e, CheckedModel *model) {
  model->counted = true;
  for (uint32_t i = 0; i < e->params.n; i++) {
    const Param *param = e->params.at[i];
    int64_t n = 1;
    for (int k = 0; k < param->lead.n; k++) n *= size_of(e->sizes, param->lead.at[k]);
    for (int k = 0; k < param->dims.n; k++) n *= size_of(e->sizes, param->dims.at[k]);
    model->counted &= n > 0;
    model->parameters += n;
  }
}

/* ---- data ---- */

static void list_files(Ctx *c, CheckedData *data, const AstValue *source) {
  if (!source) return;
  if (source->kind == VALUE_STRING)
    vec_push(c->arena, data->files, (CheckedFile){source->string, source->span});
  for (uint32_t i = 0; source->kind == VALUE_CALL && i < source->args.n; i++)
    list_files(c, data, source->args.at[i].value);
}

static bool all_sized(const Eval *e) {
  for (uint32_t i = 0; i < e->inputs.n; i++) {
    const Val *type = &e->inputs.at[i]->type;
    if (type->kind == VAL_INDEX && size_of(e->sizes, type->of) <= 0) return false;
    for (int k = 0; k < type->dims.n; k++)
      if (size_of(e->sizes, type->dims.at[k]) <= 0) return false;
  }
  return e->inputs.n;
}

/* Collects the inputs that the files of the data line feed; a caller that may open files checks
   them. */
static void check_sources(Eval *e, const Choice *choice, CheckResult *out) {
  const AstSetting *line = settings_line(choice->train->item, "data");
  uint32_t before = e->w->errors;
  check_data(e, choice);
  if (!out || !line || e->w->errors != before || !all_sized(e)) return;
  CheckedData data = {.m = lower_inputs(e->w, e, choice), .line = line->span};
  list_files(e->ctx, &data, settings_value(choice->train->item, "data", NULL));
  list_files(e->ctx, &data, setting_option(line, "valid"));
  list_files(e->ctx, &data, setting_option(line, "tokenizer"));
  vec_push(e->ctx->arena, out->data, data);
}

/* The first block of several, and those that give the model another number of parameters. */
static void list_model(World *w, const Eval *e, const Choice *choice, CheckResult *out) {
  CheckedModel model = {.name = choice->model->name};
  if (choice->train) model.train = choice->train->name;
  count(e, &model);
  uint32_t n = out->models.n;
  const CheckedModel *last = n ? &out->models.at[n - 1] : NULL;
  bool same = last && last->name == model.name && last->parameters == model.parameters;
  if (!same) vec_push(w->ctx->arena, out->models, model);
}

static void check_model(World *w, const Decl *decl, CheckResult *out) {
  Choice choice;
  bool next = choose_for_model(w, decl, &choice);
  for (bool first = true; next; next = choose_next_train(w, &choice), first = false) {
    Eval *e = walk(w, &choice);
    if (!e) continue;
    if (choice.train && sound(w, choice.train->item)) check_sources(e, &choice, out);
    LayoutList layouts = {0};
    if (first) layouts_of(e, &layouts);
    for (uint32_t i = 0; out && i < layouts.n; i++)
      vec_push(w->ctx->arena, out->layouts, (CheckedLayout){decl->name, layouts.at[i]});
    if (out) list_model(w, e, &choice, out);
  }
}

/* The model that a block is `for`; without `for` the one with which it is compiled, if the files
   leave no choice. */
static bool choose_for_block(World *w, const Decl *block, Choice *choice) {
  Str base = block->item->base.text;
  const Decl *model = base ? world_find(w, SPACE_MODEL, base, false) : choose_only_model(w);
  if (!model && (!base || world_lost(w, SPACE_MODEL))) return false;
  if (!model) {
    const char *near = world_nearest(w, SPACE_MODEL, base);
    Report *r = world_error(w, "E0201", block->item->base.span, "no model named `%s`", base);
    diag_near(r, "a model", near);
    return false;
  }
  return choose_for_model(w, model, choice);
}

/* A model of another file, for which FILE has a block: once for each number of its parameters. */
static void list_used(World *w, const Eval *e, const Choice *choice, CheckResult *out) {
  CheckedModel model = {.name = choice->model->name};
  if (!out || own(w, choice->model)) return;
  count(e, &model);
  for (uint32_t i = 0; i < out->models.n; i++)
    if (out->models.at[i].name == model.name && out->models.at[i].parameters == model.parameters)
      return;
  list_model(w, e, choice, out);
}

/* The model that FILE means, if it declares none and has no block for one. */
static void check_used(World *w, CheckResult *out) {
  const Decl *model = out && !out->models.n && !out->plans.n ? choose_only_model(w) : NULL;
  Choice choice;
  Eval *e =
      model && !own(w, model) && choose_for_model(w, model, &choice) ? walk(w, &choice) : NULL;
  if (e) list_used(w, e, &choice, out);
}

/* Those for models of other files. */
static void check_trains(World *w, CheckResult *out) {
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(w, SPACE_TRAIN, &at));) {
    Choice choice;
    if (!own(w, decl) || !sound(w, decl->item) || !choose_for_block(w, decl, &choice)) continue;
    if (own(w, choice.model)) continue;
    choice.train = decl;
    Eval *e = walk(w, &choice);
    if (!e) continue;
    check_sources(e, &choice, out);
    list_used(w, e, &choice, out);
  }
}

static bool names_layers(const AstValue *path) {
  for (uint32_t p = 0; path->kind == VALUE_PATH && p < path->path->parts.n; p++)
    if (path->path->parts.at[p].kind == PART_INDEX || path->path->parts.at[p].kind == PART_RANGE)
      return true;
  return false;
}

static bool early_gathers(const AstItem *plan) {
  int64_t stage = settings_integer(plan, ITEM_PLAN, "zero", NULL);
  return stage == 1 || stage == 2;
}

/* Lines that only passes can judge: for `offload .. of h[0..3]`, pass `pipeline` knows which layers
   a stage has; for `recompute .. budget = N`, pass `recompute` knows what layers keep at least; for
   `prefetch` of stages 1 and 2, pass `zero` knows which parameters can be gathered ahead. */
static bool needs_passes(World *w, const AstItem *plan) {
  for (uint32_t i = 0; plan->block && i < plan->block->settings.n; i++) {
    const AstSetting *line = plan->block->settings.at[i];
    const AstValue **path;
    if (!strcmp(line->path->text, "recompute") && setting_option(line, "budget")) return true;
    if (!strcmp(line->path->text, "zero") && setting_option(line, "prefetch") &&
        early_gathers(plan))
      return true;
    uint32_t n = strcmp(line->path->text, "offload") ? 0 : setting_of(w->ctx, line, &path);
    for (uint32_t k = 0; k < n; k++)
      if (names_layers(path[k])) return true;
  }
  return false;
}

static void list_plan(World *w, const Decl *decl, const Choice *choice, bool whole,
                      CheckResult *out) {
  const Decl *machine = plan_machine_of(w, decl);
  CheckedPlan plan = {.name = decl->name, .span = decl->span};
  whole = whole && choice->train;
  if (whole) plan.train = choice->train->name;
  plan.sized = whole && machine && settings_has(machine->item, "node", "memory");
  plan.judged = plan.sized || (whole && needs_passes(w, decl->item));
  vec_push(w->ctx->arena, out->plans, plan);
}

static void check_plans(World *w, CheckResult *out) {
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(w, SPACE_PLAN, &at));) {
    Choice choice = {0};
    Eval *e = own(w, decl) && sound(w, decl->item) && choose_for_block(w, decl, &choice)
                  ? walk(w, &choice)
                  : NULL;
    uint32_t before = w->errors;
    if (e) check_plan(e, &choice, decl->item), list_used(w, e, &choice, out);
    if (own(w, decl) && out) list_plan(w, decl, &choice, e, out);
    while (e && w->errors == before && choose_next_train(w, &choice)) {
      if (!(e = walk(w, &choice))) continue;
      check_plan(e, &choice, decl->item), list_used(w, e, &choice, out);
      if (out) list_plan(w, decl, &choice, true, out);
    }
  }
}

static void check_all_weights(World *w) {
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(w, SPACE_WEIGHTS, &at));) {
    Choice choice;
    Eval *e = own(w, decl) && sound(w, decl->item) && choose_for_block(w, decl, &choice)
                  ? walk(w, &choice)
                  : NULL;
    if (e) check_weights(e, decl->item);
  }
}

/* ---- layers that no model uses: once, with their axes as open dims ---- */

static bool walked(const World *w, const Decl *decl) {
  uint32_t at;
  return names_find(w->walked, 0, decl->name, &at);
}

static void add_dim(Sizes *sizes, const AstName *name) {
  Arena *arena = sizes->w->ctx->arena;
  Decl *decl = ARENA_NEW(arena, Decl);
  AstDim *def = ARENA_NEW(arena, AstDim);
  if (!strcmp(name->text, "*") || sizes_find(sizes, name->text)) return;
  def->name = *name, def->span = name->span;
  *decl = (Decl){.space = SPACE_DIM, .name = name->text, .span = name->span, .dim = def};
  DimInfo *more = ARENA_ARRAY(arena, DimInfo, sizes->n + 1);
  memcpy(more, sizes->dim, sizeof *more * sizes->n);
  more[sizes->n++] = (DimInfo){.decl = decl, .def = def};
  sizes->dim = more;
}

static void check_layer(World *w, const Decl *decl) {
  Sizes *sizes = sizes_new(w, NULL);
  for (uint32_t g = 0; decl->item->axes && g < decl->item->axes->groups.n; g++) {
    const AstGroup *group = &decl->item->axes->groups.at[g];
    for (uint32_t i = 0; i < group->from.n; i++) add_dim(sizes, &group->from.at[i]);
    for (uint32_t i = 0; i < group->to.n; i++) add_dim(sizes, &group->to.at[i]);
  }
  Eval *e = eval_new(w, sizes, MODE_CHECK, NULL);
  eval_layer(e, decl);
}

static void check_layers(World *w) {
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(w, SPACE_LAYER, &at));)
    if (own(w, decl) && !decl->item->bad && !walked(w, decl)) check_layer(w, decl);
}

/* A gradient by hand belongs to a function. */
static void check_grads(World *w) {
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(w, SPACE_GRAD, &at));) {
    if (!own(w, decl) || world_find(w, SPACE_FN, decl->name, false) || world_lost(w, SPACE_FN))
      continue;
    Report *r = world_error(w, "E0201", decl->span, "no function named `%s`", decl->name);
    diag_near(r, "one", world_nearest(w, SPACE_FN, decl->name));
  }
}

static void check_functions(World *w) {
  uint32_t at = 0, seen;
  for (const Decl *decl; (decl = world_next(w, SPACE_FN, &at));)
    if (own(w, decl) && decl->item->kind == ITEM_FN && !decl->item->bad &&
        !names_find(w->walked, 1, decl->name, &seen))
      check_unused_function(w, decl);
}

/* Sizes and constants, for their mistakes: used or not. */
static void check_numbers(World *w) {
  Sizes *sizes = sizes_new(w, NULL);
  uint32_t at = 0;
  double value;
  sizes_compute(sizes);
  for (const Decl *decl; (decl = world_next(w, SPACE_CONST, &at));)
    if (own(w, decl) && !decl->item->bad && !diag_full(w->ctx->diag))
      number_eval(sizes, decl->item->value, &value);
}

const char *program_plans(Ctx *c, const char *path) {
  World *w = world_load(c, path);
  const char *names = "";
  uint32_t at = 0;
  if (!w || diag_errors(c->diag)) return NULL;
  for (const Decl *decl; (decl = world_next(w, SPACE_PLAN, &at));)
    if (own(w, decl))
      names = arena_printf(c->arena, "%s%s%s", names, *names ? "," : "", decl->name);
  return names;
}

bool program_has_machine(Ctx *c, const char *path, const char *on) {
  World *w = world_load(c, path);
  size_t n = strcspn(on, " \t");
  const char *name = arena_strndup(c->arena, on, n);
  if (!w || world_find(w, SPACE_MACHINE, intern(c->names, name), false)) return w != NULL;
  uint32_t file = diag_add_source(c->diag, "--on", on, strlen(on));
  report_no_machine(w, (Span){file, 0, (uint32_t)n}, name);
  return false;
}

bool program_plan_text(Ctx *c, const char *path, const char *plan, const char *without,
                       PlanText *out) {
  World *w = world_load(c, path);
  const Decl *decl = w ? world_find(w, SPACE_PLAN, intern(c->names, plan), false) : NULL;
  *out = (PlanText){"", "", ""};
  if (!decl || !decl->item->block || diag_errors(c->diag)) return false;
  if (decl->item->base.text) out->model = decl->item->base.text;
  for (uint32_t i = 0; i < decl->item->block->settings.n; i++) {
    const AstSetting *line = decl->item->block->settings.at[i];
    const char *word = line->path->text, *text = span_text(c, line->span);
    const char *values = text + strlen(word);
    if (!strcmp(word, "on")) out->on = values + strspn(values, " \t");
    if (!text_lists(without, word)) out->rest = arena_printf(c->arena, "%s  %s\n", out->rest, text);
  }
  return true;
}

bool check_program(Ctx *c, const char *path, CheckResult *out) {
  World *w = world_load(c, path);
  uint32_t at = 0;
  if (!w) return false;
  w->checking = true, w->watch = out ? out->watch : NULL;
  if (out) out->world = w;
  check_settings(w);
  check_numbers(w);
  check_grads(w);
  for (const Decl *decl; (decl = world_next(w, SPACE_MODEL, &at));)
    if (own(w, decl) && !decl->item->bad) check_model(w, decl, out);
  check_trains(w, out);
  check_plans(w, out);
  check_used(w, out);
  check_all_weights(w);
  check_layers(w);
  check_functions(w);
  world_flush_warnings(w);
  return true;
}
