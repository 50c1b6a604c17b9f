/* Paths of parameters in plans: h.*.attn, h[0..3].attn, wte. A path matches the parameter of that
   name, or all parameters under it. Paths that match nothing, and layers that a stack does not
   have, are E0709 with a suggestion: the first unknown word of the path and a similar existing
   word. Must not: know what a setting does with the parameters. */
#include "frontend/settings/settings_meant.h"
#include "sema_plan.h"
#include "ir/plan/layer_range.h"
#include <string.h>

bool plan_has_path(const PlanCheck *check, Str path) {
  size_t n = strlen(path);
  for (uint32_t i = 0; i < check->e->params.n; i++) {
    Str param = check->e->params.at[i]->path;
    if (!strncmp(param, path, n) && (param[n] == '.' || !param[n])) return true;
  }
  return false;
}

/* h.*.w for h.w, also in a sub: the star of a stack is missing; NULL: another mistake. */
static const char *with_star(const PlanCheck *check, const char *path) {
  for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
    const char *text = arena_printf(check->e->arena, "%.*s.*%s", (int)(dot - path), path, dot);
    if (plan_has_path(check, text)) return text;
  }
  return NULL;
}

typedef VEC(const char *) PathWords;

/* The words that follow the first `n` letters of `path` in paths of parameters, each once. */
static PathWords words_after(const PlanCheck *check, const char *path, size_t n) {
  PathWords words = {0};
  for (uint32_t i = 0; i < check->e->params.n; i++) {
    Str param = check->e->params.at[i]->path;
    if (strncmp(param, path, n)) continue;
    const char *word = arena_strndup(check->e->arena, param + n, strcspn(param + n, "."));
    bool known = false;
    for (uint32_t k = 0; k < words.n; k++) known |= !strcmp(words.at[k], word);
    if (!known) vec_push(check->e->arena, words, word);
  }
  return words;
}

/* The number of letters of `path` up to its first unknown word, including the dot before it. */
static size_t known_letters(const PlanCheck *check, const char *path) {
  size_t known = 0;
  for (size_t n = strcspn(path, "."); path[n]; n += 1 + strcspn(path + n + 1, ".")) {
    if (!plan_has_path(check, arena_strndup(check->e->arena, path, n))) break;
    known = n + 1;
  }
  return known;
}

/* The path with another word in that place, if that names something; NULL: none is near. */
static const char *mended(const PlanCheck *check, const char *path) {
  size_t n = known_letters(check, path), word = strcspn(path + n, ".");
  PathWords words = words_after(check, path, n);
  const char *near =
      diag_nearest(arena_strndup(check->e->arena, path + n, word), words.at, words.n);
  if (!near || !strcmp(near, "*")) return NULL;
  const char *text = arena_printf(check->e->arena, "%.*s%s%s", (int)n, path, near, path + n + word);
  return plan_has_path(check, text) ? text : NULL;
}

static void help_words(const PlanCheck *check, Report *r, const char *path) {
  size_t n = known_letters(check, path);
  PathWords words = words_after(check, path, n);
  const char *all = diag_list(check->e->arena, words.at, words.n);
  const char *said = n ? NULL : settings_foreign("recompute", path);
  if (said) diag_help(r, "%s", said);
  else if (words.n == 1 && !strcmp(all, "*"))
    diag_help(r, "`%.*s*` names all layers of the stack", (int)n, path);
  else if (n) diag_help(r, "in `%.*s` are %s", (int)n - 1, path, all);
  else diag_help(r, "parameters are in %s", all);
}

/* `whole`: the path with a star for the layers that it names. */
static void names_nothing(PlanCheck *check, const AstValue *value, Str whole) {
  Str text = value->path->text;
  LayerPath layers;
  const char *near = with_star(check, whole);
  if (!near) near = mended(check, whole);
  Report *r = world_error(check->w, "E0709", value->span, "`%s` names no parameter of model `%s`",
                          text, check->c->model->name);
  const char *star = near ? strstr(near, ".*") : NULL;
  if (star && layer_path(text, strlen(text), &layers))
    near = arena_printf(check->e->arena, "%.*s%.*s%s", (int)(star - near), near,
                        (int)(layers.rest - text - (ptrdiff_t)layers.stack), text + layers.stack,
                        star + 2);
  if (near) diag_near(r, "a parameter", near);
  else help_words(check, r, whole);
}

/* The part of the path that names layers, h[0..3] or h.5, also in a sub or a layer; NULL: none. */
static const AstPart *layers_part(const AstPath *path) {
  for (uint32_t i = path->parts.n; i-- > 1;) {
    const AstPart *part = &path->parts.at[i];
    if (part->kind == PART_RANGE || part->kind == PART_INDEX) return part;
  }
  return NULL;
}

/* In h[5..0].attn only the range is wrong. */
static void help_range(const PlanCheck *check, Report *r, const AstValue *value, int64_t first,
                       int64_t last) {
  const char *text = value->path->text;
  diag_help(r, "`%s[%lld..%lld]%s`", plan_stack_of(check, value), (long long)first, (long long)last,
            strrchr(text, ']') + 1);
  diag_edit(r, layers_part(value->path)->span, "%lld..%lld", (long long)first, (long long)last);
}

Str plan_stack_of(const PlanCheck *check, const AstValue *value) {
  const AstPath *path = value->path;
  const AstPart *layers = layers_part(path);
  Interner *names = check->e->ctx->names;
  Str stack = path->parts.at[0].name;
  for (uint32_t i = 1; layers && &path->parts.at[i] != layers; i++) {
    const AstPart *part = &path->parts.at[i];
    stack = intern_printf(names, "%s.%s", stack, part->kind == PART_NAME ? part->name : "*");
  }
  return stack;
}

static Str layers_of(const PlanCheck *check, Str stack) {
  size_t n = strlen(stack);
  uint32_t around = 0;
  for (const char *star = strchr(stack, '*'); star; star = strchr(star + 1, '*')) around++;
  for (uint32_t i = 0; i < check->e->params.n; i++) {
    const Param *param = check->e->params.at[i];
    if (!strncmp(param->path, stack, n) && !strncmp(param->path + n, ".*.", 3) &&
        around < (uint32_t)param->lead.n)
      return param->lead.at[around];
  }
  return NULL;
}

/* h[0..5]: six of the rounds that there are. */
static void check_rounds(PlanCheck *check, const AstValue *value) {
  const AstPart *part = layers_part(value->path);
  if (!part) return;
  Str stack = plan_stack_of(check, value), dim = layers_of(check, stack);
  int64_t rounds = dim ? size_of(check->e->sizes, dim) : 0,
          last = part->kind == PART_RANGE ? part->last : part->first;
  bool turned = part->kind == PART_RANGE && part->last < part->first;
  if (rounds <= 0 || (!turned && last < rounds)) return;
  Report *r = turned ? world_error(check->w, "E0709", part->span,
                                   "the range `%s` ends before it begins", value->path->text)
                     : world_error(check->w, "E0709", part->span, "`%s` has no layer %lld", stack,
                                   (long long)last);
  diag_label(r, "its layers are 0 to %lld; a range includes both ends", (long long)rounds - 1);
  if (turned) help_range(check, r, value, part->last, part->first);
  else if (part->kind == PART_RANGE && part->first < rounds)
    help_range(check, r, value, part->first, rounds - 1);
  else diag_help(r, "the last one is `%s.%lld`", stack, (long long)rounds - 1);
}

bool plan_names_params(PlanCheck *check, const AstValue *value) {
  uint32_t before = check->w->errors;
  Str whole = layer_path_whole(check->e->ctx->names, value->path->text);
  if (!plan_has_path(check, whole)) names_nothing(check, value, whole);
  else check_rounds(check, value);
  return check->w->errors == before;
}

void plan_names_part(PlanCheck *check, const AstValue *value) {
  if (value->kind != VALUE_PATH || !value->path->parts.n) return;
  Str first = value->path->parts.at[0].name;
  if (plan_has_path(check, first)) {
    check_rounds(check, value);
    return;
  }
  Report *r = world_error(check->w, "E0709", value->span, "`%s` names no part of model `%s`",
                          value->path->text, check->c->model->name);
  diag_label(r, "no stack, sub or parameter `%s`", first);
  help_words(check, r, first);
}
