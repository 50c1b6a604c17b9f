/* The `recompute` lines of a plan: checked against the model's stacks, written as settings for pass
   `recompute`, one per line of the plan:

     plan.recompute.1 = h[0..5], dec keep = input loc(f1:20:3+31)
     plan.recompute.2 = h keep = auto budget = 4294967296 loc(f1:21:3+40)
     plan.recompute.3 = h keep = [h.*.attn.q, h.*.attn.k] loc(f1:22:3+37)
     plan.recompute.4 = h keep = input over tensor loc(f1:23:3+36) over(f1:23:33+6)

   A path is a stack as parameters name it, without the final `.*`. Values that a line lists get
   their name in the IR (attribute `names`) when they are assigned; writing ops depends on nothing
   else of a plan. */
#include "frontend/model/lower_emit.h"
#include "plan.h"
#include "frontend/settings/settings.h"
#include "ir/plan/module_settings.h"
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
    Report *r = world_error(e->w, "E0606", keep->span, "`keep = auto` wants a budget");
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

/* ---- settings ---- */

static const char *paths_text(Eval *e, const AstSetting *line) {
  const AstValue **paths;
  uint32_t n = setting_operands(e->ctx, line, &paths);
  const char *text = "";
  for (uint32_t i = 0; i < n; i++) {
    RecomputeStacks stacks = read_path(e, paths[i]->path);
    const char *range = stacks.last < 0
                            ? ""
                            : arena_printf(e->arena, "[%lld..%lld]", (long long)stacks.first,
                                           (long long)stacks.last);
    text = arena_printf(e->arena, "%s%s%s%s", text, i ? ", " : "", stacks.path, range);
  }
  return text;
}

static const char *names_text(Eval *e, const AstSetting *line, const AstValue *keep) {
  const AstValue **paths;
  uint32_t n = setting_operands(e->ctx, line, &paths);
  const char *text = "";
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < keep->items.n; k++)
      text = arena_printf(e->arena, "%s%s%s", text, *text ? ", " : "",
                          full_name(e, read_path(e, paths[i]->path).path, keep->items.at[k]));
  return arena_printf(e->arena, "[%s]", text);
}

/* over tensor, node; and the position of the first. */
static const char *over_text(const Build *build, Eval *e, const AstSetting *line, const char **at) {
  const AstValue **axis;
  uint32_t n = setting_over(e->ctx, line, &axis);
  const char *text = *at = "";
  for (uint32_t i = 0; i < n; i++)
    text = arena_printf(e->arena, "%s%s%s", text, i ? ", " : " over ", axis[i]->path->text);
  if (!n) return text;
  Loc loc = build_loc(build, axis[0]->span);
  *at = arena_printf(e->arena, " over(f%u:%u:%u+%u)", loc.file, loc.line, loc.column, loc.length);
  return text;
}

static void write_line(const Build *build, Eval *e, const AstSetting *line, int number) {
  const AstValue *keep = setting_option(line, "keep"), *budget = setting_option(line, "budget");
  const char *what = !keep                      ? setting_default("plan.recompute.keep", "")
                     : keep->kind == VALUE_LIST ? names_text(e, line, keep)
                                                : keep->path->text;
  const char *bytes = budget ? arena_printf(e->arena, " budget = %.0f", budget->number.value) : "";
  const char *host = setting_option(line, "offload") ? " offload = host" : "";
  const char *over_at, *over = over_text(build, e, line, &over_at);
  Loc at = build_loc(build, line->span);
  module_set(build->m, arena_printf(e->arena, "plan.recompute.%d", number),
             "%s keep = %s%s%s%s loc(f%u:%u:%u+%u)%s", paths_text(e, line), what, bytes, host, over,
             at.file, at.line, at.column, at.length, over_at);
}

void write_recompute(const Build *build, Eval *e, const AstItem *plan) {
  int number = 0;
  for (uint32_t i = 0; plan && plan->block && i < plan->block->settings.n; i++) {
    const AstSetting *line = plan->block->settings.at[i];
    if (!strcmp(line->path->text, "recompute")) write_line(build, e, line, ++number);
  }
}
