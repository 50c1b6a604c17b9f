/* `shardc check`: every model, variant, layer, train, plan, machine and weights block of FILE. Used
   files are read, and checked where FILE builds on them. */
#include "frontend/lower_build.h"
#include "frontend/settings.h"
#include <string.h>

static bool own(const World *w, const Decl *d) { return d->span.file == w->top; }

static void check_settings(World *w) {
  static const Space spaces[] = {SPACE_TRAIN, SPACE_PLAN, SPACE_MACHINE, SPACE_WEIGHTS, SPACE_FN};
  for (size_t s = 0; s < sizeof spaces / sizeof *spaces; s++) {
    uint32_t at = 0;
    for (const Decl *d; (d = world_next(w, spaces[s], &at));)
      if (own(w, d) && d->item->block && !d->item->bad) {
        if (!settings_check(w->ctx, d->item)) vec_push(w->ctx->arena, w->wrong, d->item);
        else {
          if (d->item->kind == ITEM_MACHINE) check_machine_block(w, d->item);
          check_unbuilt(w, d->item);
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

static bool has_bad(const World *w) {
  for (uint32_t i = 0; i < w->files.n; i++)
    for (uint32_t k = 0; k < w->files.at[i]->items.n; k++)
      if (w->files.at[i]->items.at[k]->bad) return true;
  return false;
}

/* NULL: something is wrong with the model, and nothing more is said about what is built on it. */
static Eval *walk(World *w, const Choice *c) {
  uint32_t before = w->errors;
  Eval *e = eval_new(w, choice_sizes(w, c), MODE_CHECK, NULL);
  bool sized = c->train && sound(w, c->train->item) && w->errors == before;
  e->sized = sized, e->train = sized ? c->train->item : NULL;
  sizes_compute(e->sizes);
  if (!c->base->bad) eval_model(e, c->base);
  return w->errors == before && !has_bad(w) ? e : NULL;
}

static void count(const Eval *e, CheckedModel *m) {
  m->counted = true;
  for (uint32_t i = 0; i < e->params.n; i++) {
    const Param *p = e->params.at[i];
    int64_t n = 1;
    for (int k = 0; k < p->lead.n; k++) n *= size_of(e->sizes, p->lead.at[k]);
    for (int k = 0; k < p->dims.n; k++) n *= size_of(e->sizes, p->dims.at[k]);
    m->counted &= n > 0;
    m->parameters += n;
  }
}

static void check_model(World *w, const Decl *d, CheckResult *out) {
  Choice c;
  if (!choose_for_model(w, d, &c)) return;
  Eval *e = walk(w, &c);
  if (!e) return;
  if (c.train && sound(w, c.train->item)) check_data(e, &c);
  CheckedModel m = {.name = d->name};
  count(e, &m);
  LayoutList layouts = {0};
  layouts_of(e, &layouts);
  for (uint32_t i = 0; out && i < layouts.n; i++)
    vec_push(w->ctx->arena, out->layouts, (CheckedLayout){d->name, layouts.at[i]});
  if (out) vec_push(w->ctx->arena, out->models, m);
}

/* The model that a block is `for`; without `for`, every model of FILE is checked with it anyway. */
static bool choose_for_block(World *w, const Decl *block, Choice *c) {
  if (!block->item->base.text) return false;
  const Decl *model = world_find(w, SPACE_MODEL, block->item->base.text, false);
  if (!model && world_lost(w, SPACE_MODEL)) return false;
  if (!model) {
    const char *near = world_nearest(w, SPACE_MODEL, block->item->base.text);
    Report *r = world_error(w, "E0201", block->item->base.span, "no model named `%s`",
                            block->item->base.text);
    diag_near(r, "a model", near);
    return false;
  }
  return choose_for_model(w, model, c);
}

static void check_trains(World *w) {
  uint32_t at = 0;
  for (const Decl *d; (d = world_next(w, SPACE_TRAIN, &at));) {
    Choice c;
    if (!own(w, d) || !sound(w, d->item) || !choose_for_block(w, d, &c)) continue;
    c.train = d;
    Eval *e = walk(w, &c);
    if (e) check_data(e, &c);
  }
}

static void list_plan(World *w, const Decl *d, bool whole, CheckResult *out) {
  const Decl *machine = plan_machine_of(w, d);
  CheckedPlan p = {.name = d->name, .span = d->span};
  p.judged = whole && machine && settings_has(machine->item, "node", "memory");
  vec_push(w->ctx->arena, out->plans, p);
}

static void check_plans(World *w, CheckResult *out) {
  uint32_t at = 0;
  for (const Decl *d; (d = world_next(w, SPACE_PLAN, &at));) {
    Choice c = {0};
    Eval *e = own(w, d) && sound(w, d->item) && choose_for_block(w, d, &c) ? walk(w, &c) : NULL;
    if (e) check_plan(e, &c, d->item);
    if (own(w, d) && out) list_plan(w, d, e && c.train, out);
  }
}

static void check_all_weights(World *w) {
  uint32_t at = 0;
  for (const Decl *d; (d = world_next(w, SPACE_WEIGHTS, &at));) {
    Choice c;
    Eval *e = own(w, d) && sound(w, d->item) && choose_for_block(w, d, &c) ? walk(w, &c) : NULL;
    if (e) check_weights(e, d->item);
  }
}

/* ---- layers that no model uses: once, with their axes as open dims ---- */

static bool walked(const World *w, const Decl *d) {
  uint32_t at;
  return names_find(w->walked, 0, d->name, &at);
}

static void add_dim(Sizes *s, const AstName *n) {
  Arena *a = s->w->ctx->arena;
  Decl *d = ARENA_NEW(a, Decl);
  AstDim *def = ARENA_NEW(a, AstDim);
  if (!strcmp(n->text, "*") || sizes_find(s, n->text)) return;
  def->name = *n, def->span = n->span;
  *d = (Decl){.space = SPACE_DIM, .name = n->text, .span = n->span, .dim = def};
  DimInfo *more = ARENA_ARRAY(a, DimInfo, s->n + 1);
  memcpy(more, s->dim, sizeof *more * s->n);
  more[s->n++] = (DimInfo){.decl = d, .def = def};
  s->dim = more;
}

static void check_layer(World *w, const Decl *d) {
  Sizes *s = sizes_new(w, NULL);
  for (uint32_t g = 0; d->item->axes && g < d->item->axes->groups.n; g++) {
    const AstGroup *group = &d->item->axes->groups.at[g];
    for (uint32_t i = 0; i < group->from.n; i++) add_dim(s, &group->from.at[i]);
    for (uint32_t i = 0; i < group->to.n; i++) add_dim(s, &group->to.at[i]);
  }
  Eval *e = eval_new(w, s, MODE_CHECK, NULL);
  eval_layer(e, d);
}

static void check_layers(World *w) {
  uint32_t at = 0;
  for (const Decl *d; (d = world_next(w, SPACE_LAYER, &at));)
    if (own(w, d) && !d->item->bad && !walked(w, d)) check_layer(w, d);
}

/* A gradient by hand belongs to a function. */
static void check_grads(World *w) {
  uint32_t at = 0;
  for (const Decl *d; (d = world_next(w, SPACE_GRAD, &at));) {
    if (!own(w, d) || world_find(w, SPACE_FN, d->name, false) || world_lost(w, SPACE_FN)) continue;
    Report *r = world_error(w, "E0201", d->span, "no function named `%s`", d->name);
    diag_near(r, "one", world_nearest(w, SPACE_FN, d->name));
  }
}

static void check_functions(World *w) {
  uint32_t at = 0, seen;
  for (const Decl *d; (d = world_next(w, SPACE_FN, &at));)
    if (own(w, d) && d->item->kind == ITEM_FN && !d->item->bad &&
        !names_find(w->walked, 1, d->name, &seen))
      check_unused_function(w, d);
}

/* Sizes and constants, for their mistakes: used or not. */
static void check_numbers(World *w) {
  Sizes *s = sizes_new(w, NULL);
  uint32_t at = 0;
  double value;
  sizes_compute(s);
  for (const Decl *d; (d = world_next(w, SPACE_CONST, &at));)
    if (own(w, d) && !d->item->bad && !diag_full(w->ctx->diag))
      number_eval(s, d->item->value, &value);
}

const char *program_plans(Ctx *c, const char *path) {
  World *w = world_load(c, path);
  const char *names = "";
  uint32_t at = 0;
  if (!w || diag_errors(c->diag)) return NULL;
  for (const Decl *d; (d = world_next(w, SPACE_PLAN, &at));)
    if (own(w, d)) names = arena_printf(c->arena, "%s%s%s", names, *names ? "," : "", d->name);
  return names;
}

bool check_program(Ctx *c, const char *path, CheckResult *out) {
  World *w = world_load(c, path);
  uint32_t at = 0;
  if (!w) return false;
  w->checking = true;
  check_settings(w);
  check_numbers(w);
  check_grads(w);
  for (const Decl *d; (d = world_next(w, SPACE_MODEL, &at));)
    if (own(w, d) && !d->item->bad) check_model(w, d, out);
  check_trains(w);
  check_plans(w, out);
  check_all_weights(w);
  check_layers(w);
  check_functions(w);
  world_flush_warnings(w);
  return true;
}
