/* The lines `offload` of a plan. Each word names a parameter at most once (E0606); paths must match
   parameters (E0709) that are updated (E0602); gradients only if their update is also on the host
   (E0901). `optimizer of h.*, wte`: a path matches the parameter of that name, or all parameters
   under it, `h[0..3].attn` those of these layers; without `of` a word applies to all parameters.
   Lines add up. Must not: check that the target has a host, nor which layers a pipeline stage has
   (passes/stages/stage_offload_check.c). */
#include "sema_plan.h"
#include "ir/plan/layer_range.h"
#include <string.h>

typedef struct Offloaded {     /* a word with one of its paths */
  const AstValue *word, *path; /* path NULL: all parameters */
} Offloaded;

typedef struct OffloadPath { /* h.*.attn, h[0..3].attn, wte */
  Str whole;                 /* with a star for the layers */
  int64_t first, last;       /* last -1: no layers are named */
} OffloadPath;

typedef struct OffloadLines {
  PlanCheck *check;
  VEC(Offloaded) list;
} OffloadLines;

static OffloadPath offload_path(const PlanCheck *check, const AstValue *value) {
  Str text = intern(check->e->ctx->names, value->path->text);
  OffloadPath path = {.whole = text, .last = -1};
  LayerPath layers;
  if (!layer_path(text, strlen(text), &layers)) return path;
  path.first = layers.first, path.last = layers.last;
  path.whole = layer_path_whole(check->e->ctx->names, text);
  return path;
}

/* Is the path `with`, or under it? */
static bool path_starts(Str path, Str with) {
  size_t n = strlen(with);
  return !strncmp(path, with, n) && (!path[n] || path[n] == '.');
}

/* Has `above` layer `layer` of all that `path` names? NULL: all parameters. */
static bool has_layer(const PlanCheck *check, const AstValue *above, const AstValue *path,
                      int64_t layer) {
  if (!above || !path) return !above;
  OffloadPath a = offload_path(check, above), p = offload_path(check, path);
  return path_starts(p.whole, a.whole) &&
         (a.last < 0 || (p.last >= 0 && a.first <= layer && layer <= a.last));
}

/* Have two paths a parameter in common? */
static bool meet(const PlanCheck *check, const AstValue *a, const AstValue *b) {
  if (!a || !b) return true;
  OffloadPath p = offload_path(check, a), q = offload_path(check, b);
  if (!path_starts(p.whole, q.whole) && !path_starts(q.whole, p.whole)) return false;
  return p.last < 0 || q.last < 0 || (p.first <= q.last && q.first <= p.last);
}

static bool same_word(const Offloaded *a, const Offloaded *b) {
  return !strcmp(a->word->path->text, b->word->path->text);
}

static void check_twice(OffloadLines *lines, const Offloaded *last) {
  for (uint32_t i = 0; i < lines->list.n; i++) {
    const Offloaded *first = &lines->list.at[i];
    if (!same_word(first, last) || !meet(lines->check, first->path, last->path)) continue;
    const AstValue *at = last->path ? last->path : last->word,
                   *before = first->path ? first->path : first->word;
    Report *r = world_error(
        lines->check->w, "E0606", at->span, "`offload %s` has %s twice", last->word->path->text,
        last->path ? arena_printf(lines->check->e->arena, "`%s`", at->path->text)
                   : "these parameters");
    diag_also(r, before->span, "the first one");
    diag_help(r, "lines add up: each parameter once");
    return;
  }
}

static void add(OffloadLines *lines, const AstValue *word, const AstValue *path) {
  Offloaded last = {word, path};
  check_twice(lines, &last);
  vec_push(lines->check->e->arena, lines->list, last);
}

/* Parameters without an update have neither gradient nor states. */
static void check_updated(PlanCheck *check, uint32_t words, const AstValue **word,
                          const AstValue *path) {
  Str whole = offload_path(check, path).whole;
  uint32_t wrong = 0;
  while (wrong < words && !strcmp(word[wrong]->path->text, "params")) wrong++;
  if (wrong == words) return;
  for (uint32_t i = 0; i < check->e->params.n; i++)
    if (path_starts(check->e->params.at[i]->path, whole) && !check->e->params.at[i]->frozen) return;
  Report *r = world_error(check->w, "E0602", path->span,
                          "`offload %s` names only frozen parameters", word[wrong]->path->text);
  diag_label(r, "no update writes them");
  diag_help(r, "leave it out; the parameter itself goes by `offload params of %s -> host`",
            path->path->text);
}

static void read_line(OffloadLines *lines, const AstSetting *line) {
  const AstValue **word, **path;
  Ctx *c = lines->check->e->ctx;
  uint32_t words = setting_operands(c, line, &word), paths = setting_of(c, line, &path);
  bool named = paths > 0;
  for (uint32_t i = 0; i < paths; i++)
    named &= path[i]->kind == VALUE_PATH && plan_names_params(lines->check, path[i]);
  for (uint32_t i = 0; named && i < paths; i++) check_updated(lines->check, words, word, path[i]);
  for (uint32_t i = 0; i < words; i++) {
    if (!paths) add(lines, word[i], NULL);
    for (uint32_t k = 0; k < paths; k++)
      if (path[k]->kind == VALUE_PATH) add(lines, word[i], path[k]);
  }
}

static bool is_updated_there(const OffloadLines *lines, const AstValue *path) {
  OffloadPath named = {.last = -1};
  if (path) named = offload_path(lines->check, path);
  int64_t last = named.last < 0 ? 0 : named.last;
  for (int64_t layer = named.first; layer <= last; layer++) {
    bool has = false;
    for (uint32_t i = 0; i < lines->list.n; i++)
      has |= !strcmp(lines->list.at[i].word->path->text, "optimizer") &&
             has_layer(lines->check, lines->list.at[i].path, path, layer);
    if (!has) return false;
  }
  return true;
}

/* Does any parameter of these paths have its update on the host? */
static bool any_updated_there(const OffloadLines *lines, const Offloaded *of) {
  for (uint32_t i = 0; i < lines->list.n; i++)
    for (uint32_t k = 0; k < lines->list.n; k++)
      if (lines->list.at[i].word == of->word &&
          !strcmp(lines->list.at[k].word->path->text, "optimizer") &&
          meet(lines->check, lines->list.at[i].path, lines->list.at[k].path))
        return true;
  return false;
}

/* The update reads the gradients, so on the device it would need them uploaded again. */
static void check_gradients(const OffloadLines *lines) {
  bool any = false;
  for (uint32_t i = 0; i < lines->list.n; i++)
    any |= !strcmp(lines->list.at[i].word->path->text, "optimizer");
  for (uint32_t i = 0; i < lines->list.n; i++) {
    const Offloaded *grads = &lines->list.at[i];
    if (strcmp(grads->word->path->text, "grads") || is_updated_there(lines, grads->path)) continue;
    Report *r = world_unbuilt(lines->check->w, grads->word->span,
                              "offloading of gradients without the optimizer is");
    if (!any) {
      diag_help(r, "`offload optimizer, grads -> host`: the update reads them where it is");
      diag_edit(r, grads->word->span, "optimizer, grads");
    } else {
      diag_help(r, "also `optimizer` of %s", grads->path ? grads->path->path->text : "all");
      if (!any_updated_there(lines, grads)) diag_edit(r, grads->word->span, "optimizer, grads");
    }
    return;
  }
}

/* ---- auto ---- */

static bool says_memory(PlanCheck *check) {
  const AstValue *on = settings_value(check->item, "on", NULL);
  const Decl *decl = on && on->kind == VALUE_PATH
                         ? world_find(check->w, SPACE_MACHINE, on->path->text, false)
                         : NULL;
  return decl && settings_integer(decl->item, ITEM_MACHINE, "node", "gpus") > 0 &&
         settings_has(decl->item, "node", "memory") && settings_has(decl->item, "host", "memory");
}

/* `auto` needs a machine to compare with, and no other setting may be chosen at the same time. */
static void check_auto_needs(PlanCheck *check, Span at) {
  const AstValue *schedule = settings_value(check->item, "pipeline", NULL);
  if (!says_memory(check)) {
    Report *r = world_error(check->w, "E0602", at,
                            "`offload auto` needs a machine with GPUs that says its memory");
    diag_help(r, "`on MACHINE`, a block with `node gpus = .. memory = ..` and `host memory = ..`");
  }
  if (!settings_line(check->item, "micro")) {
    Report *r = world_error(check->w, "E0602", at, "`offload auto` needs `micro`");
    diag_help(r, "what fits depends on it: `micro 1` has the least on the device");
  }
  if (schedule && schedule->kind == VALUE_PATH && !strcmp(schedule->path->text, "auto"))
    diag_help(world_error(check->w, "E0602", at, "`offload auto` together with `pipeline auto`"),
              "name the schedule");
}

static void check_auto(const OffloadLines *lines) {
  const Offloaded *own = NULL;
  for (uint32_t i = 0; i < lines->list.n && !own; i++)
    if (!strcmp(lines->list.at[i].word->path->text, "auto")) own = &lines->list.at[i];
  if (!own) return;
  if (own->path)
    diag_help(
        world_error(lines->check->w, "E0602", own->path->span, "`offload auto` takes no `of`"),
        "it chooses among all; or name what goes: `offload optimizer of %s -> host`",
        own->path->path->text);
  for (uint32_t i = 0; i < lines->list.n; i++)
    if (!same_word(own, &lines->list.at[i])) {
      Report *r = world_error(lines->check->w, "E0602", lines->list.at[i].word->span,
                              "`offload auto` chooses what goes to the host");
      diag_also(r, own->word->span, "here");
      diag_help(r, "leave one of both out");
      return;
    }
  check_auto_needs(lines->check, own->word->span);
}

void check_offload(PlanCheck *check) {
  OffloadLines lines = {.check = check};
  for (uint32_t i = 0; i < check->item->block->settings.n; i++) {
    const AstSetting *line = check->item->block->settings.at[i];
    if (strcmp(line->path->text, "offload") != 0) continue;
    read_line(&lines, line);
  }
  check_gradients(&lines);
  check_auto(&lines);
}
