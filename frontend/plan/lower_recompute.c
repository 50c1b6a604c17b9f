/* The `recompute` lines of a plan: checked against the model's stacks, written as lines of the
   module for pass `recompute`.

   A path is a stack as parameters name it, without the final `.*`. Values that a line lists get
   their name in the IR (attribute `names`) when they are assigned; writing ops depends on nothing
   else of a plan. */
#include "plan.h"
#include "frontend/settings/settings.h"
#include "ir/plan/setting_default.h"
#include <string.h>

typedef struct RecomputeStacks { /* a path of a plan */
  Str path;                      /* h, h.*.sub */
  const Param *param;            /* one of its parameters, NULL: there is no such stack */
  int64_t first, last;           /* of its layers; last -1: all */
} RecomputeStacks;

static Str part_text(Eval *e, const AstPart *p) {
  switch (p->kind) {
  case PART_NAME: return p->name;
  case PART_INDEX: return intern_printf(e->ctx->names, "%lld", (long long)p->first);
  default: return intern(e->ctx->names, "*");
  }
}

static const Param *param_under(const Eval *e, Str path) {
  size_t n = strlen(path);
  for (uint32_t i = 0; i < e->params.n; i++)
    if (!strncmp(e->params.at[i]->path, path, n) && !strncmp(e->params.at[i]->path + n, ".*.", 3))
      return e->params.at[i];
  return NULL;
}

/* h, h.*, h[0..5], h.3; before that, every stack around it whole: h.*.sub[0..1] */
static RecomputeStacks read_path(Eval *e, const AstPath *path) {
  const AstPart *end = &path->parts.at[path->parts.n - 1];
  bool layers = path->parts.n > 1 && end->kind != PART_NAME;
  RecomputeStacks stacks = {.last = -1};
  for (uint32_t i = 0; i < path->parts.n - layers; i++)
    stacks.path =
        i ? intern_printf(e->ctx->names, "%s.%s", stacks.path, part_text(e, &path->parts.at[i]))
          : part_text(e, &path->parts.at[i]);
  if (layers && end->kind != PART_ANY)
    stacks.first = end->first, stacks.last = end->kind == PART_RANGE ? end->last : end->first;
  stacks.param = param_under(e, stacks.path);
  return stacks;
}

static bool ranges_inside(const AstPath *path) {
  for (uint32_t i = 1; i + 1 < path->parts.n; i++)
    if (path->parts.at[i].kind == PART_RANGE || path->parts.at[i].kind == PART_INDEX) return true;
  return false;
}

static bool begins_path(const Eval *e, Str first) {
  size_t n = strlen(first);
  for (uint32_t i = 0; i < e->params.n; i++)
    if (!strncmp(e->params.at[i]->path, first, n) && e->params.at[i]->path[n] == '.') return true;
  return false;
}

/* Unknown paths and layers that are not there are found before (sema_plan.c). */
static void check_stack(Eval *e, const AstValue *v) {
  RecomputeStacks stacks = read_path(e, v->path);
  if (stacks.param && !ranges_inside(v->path)) return;
  if (!begins_path(e, v->path->parts.at[0].name)) return;
  Report *r = world_unbuilt(e->w, v->span, "recomputation of `%s` is", v->path->text);
  diag_label(r, "no whole layers of a stack");
  diag_help(r, "name a stack: `h.*`, or some of its layers: `h[0..5]`");
}

/* ---- names of kept values ---- */

static Str full_name(Eval *e, Str stack, const AstValue *name) {
  return intern_printf(e->ctx->names, "%s.*.%s", stack, name->path->text);
}

static void check_name(Eval *e, Str stack, const AstValue *name) {
  Str full = full_name(e, stack, name);
  for (uint32_t i = 0; i < e->assigned.n; i++)
    if (e->assigned.at[i] == full) return;
  Report *r = world_error(e->w, "E0709", name->span, "no value `%s` in the layers of `%s`",
                          name->path->text, stack);
  diag_label(r, "the layer assigns no value of that name");
  diag_help(r, "names are written from the layer on: `attn.q` is `q` of its sub `attn`");
}

static void check_names(Eval *e, const AstSetting *line, const AstValue *keep) {
  const AstValue **paths;
  uint32_t n = setting_operands(e->ctx, line, &paths);
  for (uint32_t i = 0; i < n; i++) {
    RecomputeStacks stacks = read_path(e, paths[i]->path);
    for (uint32_t k = 0; stacks.param && k < keep->items.n; k++)
      check_name(e, stacks.path, keep->items.at[k]);
  }
}

static void check_budget(Eval *e, const AstSetting *line, const AstValue *keep) {
  bool is_auto = keep && keep->kind == VALUE_PATH && !strcmp(keep->path->text, "auto");
  const AstValue *budget = setting_option(line, "budget");
  if (is_auto && !budget) {
    Report *r = world_error(e->w, "E0606", keep->span, "`keep = auto` needs a budget");
    diag_help(r, "`keep = auto budget = 4GiB`: bytes that one rank may hold");
  } else if (budget && !is_auto) {
    Report *r = world_error(e->w, "E0602", budget->span, "a budget is for `keep = auto` only");
    diag_label(r, "this line chooses nothing");
  }
}

static void check_host(Eval *e, const AstSetting *line, const AstValue *keep) {
  const AstValue *host = setting_option(line, "offload");
  bool nothing = keep && keep->kind == VALUE_PATH && !strcmp(keep->path->text, "none");
  if (!host || !nothing) return;
  Report *r = world_error(e->w, "E0602", host->span, "`keep = none` keeps nothing that could wait");
  diag_help(r, "`keep = input offload = host` keeps each layer's input in host memory");
}

void check_recompute(Eval *e, const AstSetting *line) {
  const AstValue **paths, *keep = setting_option(line, "keep");
  uint32_t n = setting_operands(e->ctx, line, &paths);
  for (uint32_t i = 0; i < n; i++) check_stack(e, paths[i]);
  check_budget(e, line, keep);
  check_host(e, line, keep);
  if (keep && keep->kind == VALUE_LIST) check_names(e, line, keep);
}

/* ---- lines of the module ---- */

static void write_paths(const Build *build, Eval *e, const AstSetting *line, RecomputeLine *to) {
  const AstValue **paths, *keep = setting_option(line, "keep");
  uint32_t n = setting_operands(e->ctx, line, &paths);
  for (uint32_t i = 0; i < n; i++) {
    RecomputeStacks stacks = read_path(e, paths[i]->path);
    vec_push(build->m->arena, to->stacks, (LayerRange){stacks.path, stacks.first, stacks.last});
    for (uint32_t k = 0; keep && k < keep->items.n; k++)
      vec_push(build->m->arena, to->names, full_name(e, stacks.path, keep->items.at[k]));
  }
}

static KeepWord keep_word(const AstValue *keep) {
  const char *text = keep && keep->kind == VALUE_PATH ? keep->path->text
                                                      : setting_default("plan.recompute.keep", "");
  KeepWord word = KEEPS_NAMES;
  if (!keep || keep->kind != VALUE_LIST) must(keep_find(text, &word), "`keep = %s`", text);
  return word;
}

static void write_axes(const Build *build, const AstSetting *line, RecomputeLine *to) {
  const AstValue **axis;
  const char *text = "";
  uint32_t n = setting_over(build->m->ctx, line, &axis);
  for (uint32_t i = 0; i < n; i++)
    text = arena_list(build->m->arena, text, "%s", axis[i]->path->text);
  if (n)
    to->over = intern(build->m->ctx->names, text), to->over_loc = build_loc(build, axis[0]->span);
}

void write_recompute(const Build *build, Eval *e, const AstItem *plan) {
  for (uint32_t i = 0; plan && plan->block && i < plan->block->settings.n; i++) {
    const AstSetting *line = plan->block->settings.at[i];
    if (strcmp(line->path->text, "recompute") != 0) continue;
    const AstValue *budget = setting_option(line, "budget"),
                   *host = setting_option(line, "offload");
    RecomputeLine to = {.keep = keep_word(setting_option(line, "keep")),
                        .budget = budget ? budget->number.value : 0,
                        .offload = host != NULL,
                        .offload_loc = host ? build_loc(build, host->span) : (Loc){0},
                        .loc = build_loc(build, line->span)};
    write_paths(build, e, line, &to);
    write_axes(build, line, &to);
    vec_push(build->m->arena, build->m->recompute, to);
  }
}
