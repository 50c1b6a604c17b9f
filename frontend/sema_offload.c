/* The lines `offload` of a plan: what each word names of the parameters, once (E0606); paths that
   name some, whole stacks (E0709, E0901); gradients whose update is on the host, too (E0901).
   `speculate` wants both of a layer, and no delay (E0602, E0901).

   `optimizer of h.*, wte`: a path takes all parameters that it is, or that are under it; without
   `of` a word takes all there are. Lines add up. Must not: judge whether the target has a host. */
#include "frontend/sema_plan.h"
#include <string.h>

typedef struct Offloaded {     /* a word with one of its paths */
  const AstValue *word, *path; /* path NULL: all parameters */
} Offloaded;

typedef struct OffloadLines {
  PlanCheck *check;
  VEC(Offloaded) list;
} OffloadLines;

/* Is all that `path` names under `above`, too? */
static bool is_under(const AstValue *above, const AstValue *path) {
  if (!above || !path) return !above;
  size_t n = strlen(above->path->text);
  const char *text = path->path->text;
  return !strncmp(text, above->path->text, n) && (!text[n] || text[n] == '.' || text[n] == '[');
}

static bool same_word(const Offloaded *a, const Offloaded *b) {
  return !strcmp(a->word->path->text, b->word->path->text);
}

/* `h.*.attn` for h[0..3].attn and h.0.attn */
static Str in_all_layers(PlanCheck *check, const AstPath *path) {
  const char *rest = strchr(path->text, path->parts.at[1].kind == PART_RANGE ? ']' : '.') + 1;
  if (path->parts.at[1].kind == PART_INDEX) rest += strspn(rest, "0123456789");
  return arena_printf(check->e->arena, "%s.*%s", path->parts.at[0].name, rest);
}

/* A stack's states are one group: it goes as a whole. */
static void check_whole(PlanCheck *check, const AstValue *value) {
  const AstPath *path = value->path;
  if (path->parts.n < 2) return;
  AstPartKind kind = path->parts.at[1].kind;
  if (kind != PART_RANGE && kind != PART_INDEX) return;
  Report *r = world_unbuilt(check->w, value->span, "`offload` of some layers of a stack is");
  diag_label(r, "states of all its layers are one group");
  Str all = in_all_layers(check, path);
  diag_help(r, "of all layers: `%s`; or `offload auto -> host`, which moves what does not fit",
            all);
  diag_edit(r, value->span, "%s", all);
}

static void check_twice(OffloadLines *lines, const Offloaded *last) {
  for (uint32_t i = 0; i < lines->list.n; i++) {
    const Offloaded *first = &lines->list.at[i];
    if (!same_word(first, last) ||
        !(is_under(first->path, last->path) || is_under(last->path, first->path)))
      continue;
    const AstValue *at = last->path ? last->path : last->word,
                   *before = first->path ? first->path : first->word;
    Report *r = world_error(
        lines->check->w, "E0606", at->span, "`offload %s` has %s twice", last->word->path->text,
        last->path ? arena_printf(lines->check->e->arena, "`%s`", at->path->text)
                   : "these parameters");
    diag_also(r, before->span, "first here");
    diag_help(r, "lines add up: each parameter once");
    return;
  }
}

static void add(OffloadLines *lines, const AstValue *word, const AstValue *path) {
  Offloaded last = {word, path};
  check_twice(lines, &last);
  vec_push(lines->check->e->arena, lines->list, last);
}

static void read_line(OffloadLines *lines, const AstSetting *line) {
  const AstValue **word, **path;
  Ctx *c = lines->check->e->ctx;
  uint32_t words = setting_operands(c, line, &word), paths = setting_of(c, line, &path);
  for (uint32_t i = 0; i < paths; i++)
    if (path[i]->kind == VALUE_PATH && plan_names_params(lines->check, path[i]))
      check_whole(lines->check, path[i]);
  for (uint32_t i = 0; i < words; i++) {
    if (!paths) add(lines, word[i], NULL);
    for (uint32_t k = 0; k < paths; k++)
      if (path[k]->kind == VALUE_PATH) add(lines, word[i], path[k]);
  }
}

static bool is_updated_there(const OffloadLines *lines, const AstValue *path) {
  for (uint32_t i = 0; i < lines->list.n; i++)
    if (!strcmp(lines->list.at[i].word->path->text, "optimizer") &&
        is_under(lines->list.at[i].path, path))
      return true;
  return false;
}

/* The update reads them where it is, so they would come up again. */
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
    } else diag_help(r, "`optimizer` of %s, too", grads->path ? grads->path->path->text : "all");
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

/* What `auto` is judged by has to be there, and nothing else may be chosen at the same time. */
static void check_auto_needs(PlanCheck *check, Span at) {
  const AstValue *schedule = settings_value(check->item, "pipeline", NULL);
  if (!says_memory(check)) {
    Report *r = world_error(check->w, "E0602", at,
                            "`offload auto` wants a machine with GPUs that says its memory");
    diag_help(r, "`on MACHINE`, a block with `node gpus = .. memory = ..` and `host memory = ..`");
  }
  if (!settings_line(check->item, "micro")) {
    Report *r = world_error(check->w, "E0602", at, "`offload auto` wants `micro`");
    diag_help(r, "what fits depends on it: `micro 1` has the least on the device");
  }
  if (schedule && schedule->kind == VALUE_PATH && !strcmp(schedule->path->text, "auto"))
    diag_help(world_error(check->w, "E0602", at, "`offload auto` beside `pipeline auto`"),
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

/* ---- speculate ---- */

static bool has_word(const PlanCheck *check, const AstSetting *line, const char *word) {
  const AstValue **words;
  uint32_t n = setting_operands(check->e->ctx, line, &words);
  for (uint32_t i = 0; i < n; i++)
    if (!strcmp(words[i]->path->text, word)) return true;
  return false;
}

/* What a layer is updated with has to be there when its round is over. */
static void check_early_words(PlanCheck *check, const AstSetting *line, Span at) {
  const AstValue **words;
  bool choice = has_word(check, line, "auto"), params = has_word(check, line, "params");
  if (!choice && has_word(check, line, "optimizer") && has_word(check, line, "grads")) return;
  setting_operands(check->e->ctx, line, &words);
  Report *r = world_error(check->w, "E0602", at,
                          choice ? "`speculate` beside `offload auto`"
                                 : "`speculate` without the update and its gradients there");
  if (choice) diag_help(r, "name what goes: `offload optimizer, grads speculate = on -> host`");
  else diag_help(r, "`offload optimizer, grads speculate = on -> host`");
  if (!choice && !params) diag_edit(r, words[0]->span, "optimizer, grads");
}

static void check_early(PlanCheck *check, const AstSetting *line) {
  const AstValue *on = setting_option(line, "speculate");
  const AstItem *train = check->c->train ? check->c->train->item : NULL;
  const AstSetting *delay = train ? settings_line(train, "delay") : NULL;
  if (!on || on->kind != VALUE_PATH || strcmp(on->path->text, "on")) return;
  check_early_words(check, line, on->span);
  if (!delay) return;
  Report *r = world_unbuilt(check->w, on->span, "`speculate` beside `delay` is");
  diag_also(r, delay->path->span, "late steps update first, with a norm that is known");
  diag_help(r, "one of both");
  diag_edit(r, on->span, "off");
}

void check_offload(PlanCheck *check) {
  OffloadLines lines = {.check = check};
  for (uint32_t i = 0; i < check->item->block->settings.n; i++) {
    const AstSetting *line = check->item->block->settings.at[i];
    if (strcmp(line->path->text, "offload") != 0) continue;
    read_line(&lines, line);
    check_early(check, line);
  }
  check_gradients(&lines);
  check_auto(&lines);
}
