/* Which model, train block and plan are meant when the command line does not say (the rules of the
   language), and the sizes that follow: from the file, the variant, the train block, the command
   line. */
#include "lower_build.h"
#include <stdlib.h>
#include <string.h>

static Span nowhere(void) { return (Span){0}; }

static Str place_of(World *w, const Decl *decl) {
  uint32_t line, column;
  diag_line_column(w->ctx->diag, decl->span, &line, &column);
  return arena_printf(w->ctx->arena, "%s:%u", world_file_name(w, decl->span.file), line);
}

typedef VEC(const Decl *) Decls;

static Decls all_of(World *w, Space s, bool own, bool models_only) {
  Decls r = {0};
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(w, s, &at));)
    if ((!own || decl->span.file == w->top) && (!models_only || decl->item->kind == ITEM_MODEL))
      vec_push(w->ctx->arena, r, decl);
  return r;
}

static void list_names(World *w, Space s, Report *r) {
  VEC(const char *) names = {0};
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(w, s, &at));)
    vec_push(w->ctx->arena, names, decl->name);
  if (names.n) diag_help(r, "names that exist: %s", diag_list(w->ctx->arena, names.at, names.n));
}

static const Decl *named(World *w, Space s, const char *name, const char *word) {
  const Decl *decl = world_find(w, s, intern(w->ctx->names, name), false);
  if (decl) return decl;
  const char *near = world_nearest(w, s, name);
  Report *r = world_error(w, "E0201", nowhere(), "no %s named `%s`", word, name);
  if (near) diag_near(r, "one", near);
  else list_names(w, s, r);
  return NULL;
}

static const Decl *model_for(World *w, const Decl *block) {
  if (!block || !block->item->base.text) return NULL;
  const Decl *decl = world_find(w, SPACE_MODEL, block->item->base.text, false);
  if (decl) return decl;
  const char *near = world_nearest(w, SPACE_MODEL, block->item->base.text);
  Report *r = world_error(w, "E0201", block->item->base.span, "no model named `%s`",
                          block->item->base.text);
  diag_near(r, "a model", near);
  return NULL;
}

const Decl *choose_only_model(World *w) {
  Decls own = all_of(w, SPACE_MODEL, true, false), any = all_of(w, SPACE_MODEL, false, false);
  return own.n == 1 ? own.at[0] : any.n == 1 ? any.at[0] : NULL;
}

static const Decl *only_model(World *w) {
  Decls own = all_of(w, SPACE_MODEL, true, false), base = all_of(w, SPACE_MODEL, true, true),
        any = all_of(w, SPACE_MODEL, false, true);
  const Decl *only = choose_only_model(w);
  if (only) return only;
  if (base.n == 1) {
    Report *r =
        world_error(w, "N0601", base.at[0]->span, "model `%s` was chosen", base.at[0]->name);
    diag_help(r, "to choose another: `--model %s`", own.at[own.at[0] == base.at[0]]->name);
    return base.at[0];
  }
  if (any.n == 1 && !own.n) return any.at[0];
  Decls list = own.n ? own : any;
  Report *r = world_error(w, "E0605", nowhere(),
                          list.n ? "several models fit" : "no model in %s and the files it uses",
                          world_file_name(w, w->top));
  for (uint32_t i = 0; i < list.n; i++)
    diag_fact(r, "`%s` at %s", list.at[i]->name, place_of(w, list.at[i]));
  if (list.n) diag_help(r, "choose one: `--model %s`", list.at[0]->name);
  return NULL;
}

static bool set_base(World *w, Choice *choice) {
  const AstItem *item = choice->model->item;
  choice->base = item, choice->variant = NULL;
  if (item->kind == ITEM_MODEL) return true;
  const Decl *base = world_find(w, SPACE_MODEL, item->base.text, false);
  choice->variant = item, choice->base = base ? base->item : NULL;
  if (base && base->item->kind == ITEM_MODEL) return true;
  if (world_lost(w, SPACE_MODEL)) return false;
  const char *near = world_nearest(w, SPACE_MODEL, item->base.text);
  Report *r = world_error(w, "E0201", item->base.span, "no model named `%s`", item->base.text);
  diag_near(r, "a model", near);
  return false;
}

/* ---- the train block ---- */

static Decls train_for(World *w, Str model) {
  Decls r = {0};
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(w, SPACE_TRAIN, &at));)
    if (decl->item->base.text == model) vec_push(w->ctx->arena, r, decl);
  return r;
}

static bool pick_train(World *w, Decls near, Choice *choice) {
  const Decl *own = NULL;
  int n = 0;
  for (uint32_t i = 0; i < near.n; i++)
    if (near.at[i]->span.file == w->top) own = near.at[i], n++;
  choice->train = near.n == 1 ? near.at[0] : n == 1 ? own : NULL;
  if (choice->train) return true;
  Report *r = world_error(w, "E0603", near.at[0]->span, "several train blocks fit model `%s`",
                          choice->model->name);
  for (uint32_t i = 0; i < near.n; i++)
    diag_fact(r, "`%s` at %s", near.at[i]->name, place_of(w, near.at[i]));
  diag_help(r, "choose one: `--train %s`", near.at[0]->name);
  return false;
}

static Decls trains_of(World *w, const Choice *choice) {
  const Str names[] = {choice->model->name, choice->base->name.text, NULL};
  Decls near = {0};
  for (int i = 0; i < 3 && !near.n; i++) near = train_for(w, names[i]);
  return near;
}

static bool choose_train(World *w, Choice *choice) {
  Decls near = trains_of(w, choice);
  choice->train = NULL;
  return near.n ? pick_train(w, near, choice) : true;
}

bool choose_for_model(World *w, const Decl *model, Choice *out) {
  *out = (Choice){.model = model};
  if (!set_base(w, out)) return false;
  Decls near = trains_of(w, out);
  out->train = near.n ? near.at[0] : NULL;
  for (uint32_t i = near.n; i-- > 0;)
    if (near.at[i]->span.file == w->top) out->train = near.at[i];
  return true;
}

bool choose_next_train(World *w, Choice *choice) {
  Decls near = trains_of(w, choice);
  bool mine = choice->train && choice->train->span.file == w->top, seen = false;
  for (uint32_t i = 0; i < near.n; i++) {
    if (seen && (!mine || near.at[i]->span.file == w->top)) return choice->train = near.at[i], true;
    seen = seen || near.at[i] == choice->train;
  }
  return false;
}

Str choose_train_name(World *w, const Choice *choice) {
  Decls near = trains_of(w, choice);
  bool mine = choice->train && choice->train->span.file == w->top;
  uint32_t n = 0;
  for (uint32_t i = 0; i < near.n; i++) n += !mine || near.at[i]->span.file == w->top;
  return choice->train && n > 1 ? choice->train->name : NULL;
}

/* Blocks for a base serve its variants. */
static bool serves(const Decl *block, const Choice *choice) {
  return block->item->base.text == choice->model->name ||
         block->item->base.text == choice->base->name.text;
}

Str choose_plan_left(World *w, const Choice *choice) {
  Decls own = all_of(w, SPACE_PLAN, true, false);
  for (uint32_t i = 0; i < own.n; i++)
    if (!own.at[i]->item->base.text || serves(own.at[i], choice)) return own.at[i]->name;
  return NULL;
}

bool choose_program(World *w, const LowerOptions *options, Choice *out) {
  *out = (Choice){0};
  const Decl *plan = options->plan ? named(w, SPACE_PLAN, options->plan, "plan") : NULL;
  const Decl *train = options->train ? named(w, SPACE_TRAIN, options->train, "train block") : NULL;
  if ((options->plan && !plan) || (options->train && !train)) return false;
  out->plan = plan;
  if (options->model) out->model = named(w, SPACE_MODEL, options->model, "model");
  else if (plan && plan->item->base.text) out->model = model_for(w, plan);
  else if (train && train->item->base.text) out->model = model_for(w, train);
  else out->model = only_model(w);
  if (!out->model || !set_base(w, out)) return false;
  out->train = train;
  if (plan && plan->item->base.text && !serves(plan, out)) {
    world_error(w, "E0605", nowhere(), "plan `%s` is for `%s`, not for `%s`", plan->name,
                plan->item->base.text, out->model->name);
    return false;
  }
  if (train && train->item->base.text && !serves(train, out)) {
    world_error(w, "E0605", nowhere(), "train block `%s` is for `%s`, not for `%s`", train->name,
                train->item->base.text, out->model->name);
    return false;
  }
  return train ? true : choose_train(w, out);
}

/* ---- sizes ---- */

/* The last one wins. A dim `like` another one has its size: two sizes would make two dims. */
static void give_size(World *w, Sizes *sizes, Str dim, int64_t size, Span where) {
  const DimInfo *info = sizes_find(sizes, dim);
  Str like = info->def->like.text;
  if (!like) {
    sizes_give(sizes, dim, size, where);
    return;
  }
  Report *r =
      world_error(w, "E0602", where, "`%s` is `like %s` and has no size of its own", dim, like);
  if (where.file) diag_label(r, "has the size of `%s`", like);
  diag_also(r, info->def->span, "declared here");
  diag_help(r, where.file ? "write `%s = %lld`" : "write `-D %s=%lld`", like, (long long)size);
}

static void give_sizes(World *w, Sizes *sizes, const AstSetting *line) {
  for (uint32_t i = 0; i < line->values.n; i++) {
    const AstPair *pair = &line->values.at[i];
    if (!pair->key) continue;
    if (!sizes_find(sizes, pair->key->text)) explain_no_dim(w, pair->key->span, pair->key->text);
    else if (pair->value->kind == VALUE_NUMBER && pair->value->number.integer &&
             pair->value->number.integral > 0)
      give_size(w, sizes, pair->key->text, pair->value->number.integral, pair->span);
    else if (pair->value->kind == VALUE_LIST) {
      Report *r = world_unbuilt(w, pair->value->span, "a list of sizes is");
      diag_label(r, "one specialisation each");
      const AstNumber *first = &pair->value->items.at[0]->number;
      if (w->checking && first->integer)
        give_size(w, sizes, pair->key->text, first->integral, pair->span);
    }
  }
}

static void give_train(World *w, Sizes *sizes, const AstItem *train) {
  for (uint32_t i = 0; train->block && i < train->block->settings.n; i++) {
    const AstSetting *line = train->block->settings.at[i];
    if (!strcmp(line->path->text, "size")) give_sizes(w, sizes, line);
    const AstValue *value =
        line->values.n && !line->values.at[0].key ? line->values.at[0].value : NULL;
    if (strcmp(line->path->text, "batch") || !value || value->kind != VALUE_NUMBER ||
        !value->number.integer || value->number.integral < 1)
      continue;
    Str batch = intern(w->ctx->names, "Batch");
    if (sizes_find(sizes, batch)) sizes_give(sizes, batch, value->number.integral, line->span);
  }
}

Sizes *choice_sizes(World *w, const Choice *choice) {
  Sizes *sizes = sizes_new(w, choice->variant);
  if (choice->train) give_train(w, sizes, choice->train->item);
  return sizes;
}

void give_command_line(World *w, Sizes *sizes, const LowerOptions *options) {
  for (uint32_t i = 0; i < options->ndims; i++) {
    const char *eq = strchr(options->dims[i], '=');
    char *end = NULL;
    long long size = eq ? strtoll(eq + 1, &end, 10) : 0;
    Str name =
        eq ? intern_n(w->ctx->names, options->dims[i], (size_t)(eq - options->dims[i])) : NULL;
    if (!eq || end == eq + 1 || *end || size < 1)
      world_error(w, "E0602", nowhere(),
                  "`-D %s`: a dimension and a positive whole number are wanted, as in `-D Seq=64`",
                  options->dims[i]);
    else if (!sizes_find(sizes, name)) {
      const char *near = world_nearest(w, SPACE_DIM, name);
      Report *r = world_error(w, "E0201", nowhere(), "no dimension named `%s` (from `-D %s`)", name,
                              options->dims[i]);
      diag_near(r, "a dimension", near);
    } else give_size(w, sizes, name, size, nowhere());
  }
}
