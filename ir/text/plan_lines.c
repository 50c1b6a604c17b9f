/* Lines of a plan in the text of a module:

     place Heads, Mlp -> tensor else Seq
     recompute h[0..5], dec keep = auto budget = 4294967296 offload = host over tensor, node
     recompute h keep = [h.*.attn.q, h.*.attn.k]  loc(f1:22:3+37)
     offload optimizer loc(f1:24:3+9) of h[0..3].attn loc(f1:24:16+12)

   The position of a line `recompute` follows it, then those of the axes,
   `over(f1:23:33+6)`, and of `host`, `offload(f1:23:30+4)`. Old dumps have the same text as
   settings, `set plan.recompute.1 = "h keep = all"`, `set plan.offload = "optimizer, grads"`, and
   the paths of a word as `set plan.offload.grads = "h.*, wte"`.
   As long as element types are not final, the module must have the stacks and parameters that they
   name. They may be renamed or removed later. Must not: know the names of values. */
#include "parse.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/setting_default.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include "ir/word_patterns.h"

static const char *const offload_words[] = {"optimizer", "grads", "params", "auto"};
static const char *const keep_words[] = {"all", "input", "none", "auto"};

const char *offload_word(OffloadWord word) { return offload_words[word]; }

bool offload_find(const char *text, OffloadWord *word) {
  for (size_t i = 0; i < COUNT_OF(offload_words); i++)
    if (!strcmp(text, offload_words[i])) return *word = (OffloadWord)i, true;
  return false;
}

bool keep_find(const char *word, KeepWord *keep) {
  for (size_t i = 0; i < COUNT_OF(keep_words); i++)
    if (!strcmp(word, keep_words[i])) return *keep = (KeepWord)i, true;
  return false;
}

/* ---- names ---- */

static void note_name(Parser *p, Str path, bool stack, size_t at) {
  PlanName name = {layer_path_whole(p->m->ctx->names, path), stack, lex_span(p, at)};
  vec_push(p->m->arena, p->plan_names, name);
}

static bool is_path_of_loop(const Module *m, Str path) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      Str of = attr_str(&m->fns.at[i]->ops.at[k].attrs, ATTR_path, NULL);
      if (of && layer_whole(m, of) == path) return true;
    }
  return false;
}

/* A stack has parameters under `h.*`, or a loop with its path. */
static bool is_known(const Module *m, const PlanName *name) {
  const char *path = name->stack ? arena_printf(m->arena, "%s.*", name->path) : name->path;
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->kind == GLOBAL_PARAM &&
        layer_path_names(path, strlen(path), layer_whole(m, m->globals.at[i]->name)))
      return true;
  return name->stack && is_path_of_loop(m, name->path);
}

void check_plan_names(Parser *p) {
  if (!p->m->fns.n || module_is_typed(p->m)) return;
  for (uint32_t i = 0; i < p->plan_names.n; i++) {
    const PlanName *name = &p->plan_names.at[i];
    if (is_known(p->m, name)) continue;
    diag_at(p->m->ctx->diag, "E1003", name->span, "no %s named `%s`",
            name->stack ? "stack" : "parameter", name->path);
    p->failed = true;
  }
}

/* ---- reading ---- */

static Str read_params(Parser *p, Str (*read)(Parser *p)) {
  lex_blanks(p);
  size_t at = p->at;
  Str path = read(p);
  note_name(p, path, false, at);
  return path;
}

static Str read_axis(Parser *p) {
  lex_blanks(p);
  size_t at = p->at;
  Str name = lex_word(p, "a mesh axis");
  if (mesh_find(p->m, name) < 0) lex_fail(p, "E1003", at, "the mesh has no axis `%s`", name);
  return name;
}

static void read_pieces(Parser *p, PlaceRule *rule) {
  if (!lex_keyword(p, "balanced")) return;
  size_t at = p->at;
  rule->pieces = lex_int(p);
  if (rule->pieces < 2 || rule->pieces % 2 || rule->axes.n != 1)
    lex_fail(p, "E1001", at, "`balanced` takes an even number of pieces, and one axis");
}

void read_rule(Parser *p) {
  PlaceRule rule = {0};
  do {
    if (lex_is(p, '@')) vec_push(p->m->arena, rule.paths, read_params(p, lex_symbol));
    else vec_push(p->m->arena, rule.dims, lex_word(p, "a dim"));
  } while (lex_take(p, ','));
  size_t at = p->at;
  if (!lex_arrow(p)) lex_fail(p, "E1001", at, "a place line needs `->`");
  if (!lex_keyword(p, "none")) do {
      vec_push(p->m->arena, rule.axes, read_axis(p));
    } while (lex_take(p, ','));
  read_pieces(p, &rule);
  rule.ring = lex_keyword(p, "ring");
  rule.activations = lex_keyword(p, "activations");
  if (lex_keyword(p, "else")) do
      vec_push(p->m->arena, rule.otherwise, lex_word(p, "a dim"));
    while (lex_take(p, ','));
  lex_loc(p, "loc", &rule.loc);
  vec_push(p->m->arena, p->m->rules, rule);
}

void note_group(Parser *p, Str key) {
  size_t start = p->at, line = setting_line_length(key), group = setting_group_length(key);
  if (!group || strcmp(key + line + group, ".of") != 0) return;
  lex_expect(p, '"');
  do read_params(p, lex_layers);
  while (lex_take(p, ','));
  p->at = start;
}

static LayerRange read_layers(Parser *p) {
  lex_blanks(p);
  size_t at = p->at;
  LayerRange layers = {.stack = lex_path(p), .last = -1};
  note_name(p, layers.stack, true, at);
  if (!lex_take(p, '[')) return layers;
  at = p->at;
  layers.first = lex_int(p);
  if (!lex_rest(p)) lex_fail(p, "E1001", p->at, "layers are a range, `h[0..5]`");
  layers.last = lex_int(p);
  if (layers.first < 0 || layers.last < layers.first)
    lex_fail(p, "E1001", at, "no layers are from %lld to %lld", (long long)layers.first,
             (long long)layers.last);
  lex_expect(p, ']');
  return layers;
}

static void read_names(Parser *p, RecomputeLine *line) {
  line->keep = KEEPS_NAMES;
  if (!lex_is(p, ']')) do
      vec_push(p->m->arena, line->names, lex_path(p));
    while (lex_take(p, ','));
  lex_expect(p, ']');
}

static void read_keep(Parser *p, RecomputeLine *line) {
  if (lex_take(p, '[')) {
    read_names(p, line);
    return;
  }
  lex_blanks(p);
  size_t at = p->at;
  if (!keep_find(lex_word(p, "what layers keep"), &line->keep))
    lex_fail(p, "E1001", at, "`keep` is all, input, none, auto, or a list of names");
}

static Str read_axes(Parser *p) {
  const char *text = "";
  do {
    lex_blanks(p);
    size_t at = p->at;
    Str name = read_axis(p);
    if (text_lists(text, name)) lex_fail(p, "E1001", at, "axis `%s` is named twice", name);
    text = arena_list(p->m->arena, text, "%s", name);
  } while (lex_take(p, ','));
  return intern(p->m->ctx->names, text);
}

static double read_budget(Parser *p, KeepWord keep) {
  size_t at = p->at;
  if (keep != KEEPS_AUTO) lex_fail(p, "E1001", at, "a `budget` without `keep = auto`");
  lex_expect(p, '=');
  lex_blanks(p), at = p->at;
  double bytes = lex_float(p);
  if (!(bytes >= 1 && bytes < (double)INT64_MAX))
    lex_fail(p, "E1001", at, "a budget is a number of bytes of at least 1");
  return bytes;
}

void read_recompute(Parser *p) {
  RecomputeLine line = {0};
  do vec_push(p->m->arena, line.stacks, read_layers(p));
  while (lex_take(p, ','));
  size_t at = p->at;
  if (!lex_keyword(p, "keep")) lex_fail(p, "E1001", at, "a line `recompute` needs `keep = ..`");
  lex_expect(p, '=');
  read_keep(p, &line);
  if (lex_keyword(p, "budget")) line.budget = read_budget(p, line.keep);
  if (lex_keyword(p, "offload")) {
    lex_expect(p, '=');
    at = p->at;
    if (!lex_keyword(p, "host")) lex_fail(p, "E1001", at, "kept values wait on the `host`");
    line.offload = true;
  }
  if (lex_keyword(p, "over")) line.over = read_axes(p);
  lex_loc(p, "loc", &line.loc);
  lex_loc(p, "over", &line.over_loc);
  lex_loc(p, "offload", &line.offload_loc);
  vec_push(p->m->arena, p->m->recompute, line);
}

static OffloadWord read_offload_word(Parser *p) {
  OffloadWord word = OFFLOAD_AUTO;
  lex_blanks(p);
  size_t at = p->at;
  if (!offload_find(lex_word(p, "what is on the host"), &word))
    lex_fail(p, "E1001", at, "`offload` takes optimizer, grads, params or auto");
  return word;
}

void read_offload(Parser *p) {
  OffloadLine line = {.word = read_offload_word(p)};
  lex_loc(p, "loc", &line.loc);
  if (lex_keyword(p, "of"))
    line.path = read_params(p, lex_layers), lex_loc(p, "loc", &line.path_loc);
  vec_push(p->m->arena, p->m->offload, line);
}

/* The lines of a word, whose setting with paths is before or after that with all words. */
static void read_old_paths(Parser *p, OffloadWord word) {
  OffloadLine line = {.word = word};
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->m->offload.n; i++) {
    const OffloadLine *had = &p->m->offload.at[i];
    if (had->word == word && !had->path) line.loc = had->loc;
    else p->m->offload.at[n++] = *had;
  }
  p->m->offload.n = n;
  do {
    line.path = read_params(p, lex_layers);
    vec_push(p->m->arena, p->m->offload, line);
  } while (lex_take(p, ','));
}

static void read_old_words(Parser *p) {
  uint32_t first = p->m->offload.n;
  Loc loc = {0};
  if (!lex_keyword(p, "none")) do {
      OffloadLine line = {.path = NULL};
      if (lex_keyword(p, "saved")) continue; /* the lines `recompute` say so */
      line.word = read_offload_word(p);
      for (uint32_t i = 0; i < first; i++) /* their paths are known */
        if (p->m->offload.at[i].word == line.word) line.path = p->m->offload.at[i].path;
      if (!line.path) vec_push(p->m->arena, p->m->offload, line);
    } while (lex_take(p, ','));
  lex_loc(p, "loc", &loc);
  for (uint32_t i = 0; i < p->m->offload.n; i++) p->m->offload.at[i].loc = loc;
}

bool read_old_line(Parser *p, Str key) {
  static const char recompute[] = "plan.recompute.", offload[] = "plan.offload";
  size_t n = sizeof offload - 1;
  OffloadWord word = OFFLOAD_AUTO;
  bool lines = !strncmp(key, recompute, sizeof recompute - 1), words = !strcmp(key, offload),
       paths = !strncmp(key, offload, n) && key[n] == '.' && offload_find(key + n + 1, &word);
  if (!lines && !words && !paths) return false;
  lex_expect(p, '"');
  if (lines) read_recompute(p);
  else if (words) read_old_words(p);
  else read_old_paths(p, word);
  lex_expect(p, '"');
  return true;
}

/* ---- writing ---- */

static const char *names_text(Arena *a, const StrList *names) {
  const char *text = "";
  for (uint32_t i = 0; i < names->n; i++) text = arena_list(a, text, "%s", names->at[i]);
  return arena_printf(a, "[%s]", text);
}

const char *recompute_text(Arena *a, const RecomputeLine *line) {
  const char *text = "";
  for (uint32_t i = 0; i < line->stacks.n; i++) {
    const LayerRange *layers = &line->stacks.at[i];
    text = arena_list(a, text, "%s", layers->stack);
    if (layers->last >= 0)
      text = arena_printf(a, "%s[%lld..%lld]", text, (long long)layers->first,
                          (long long)layers->last);
  }
  const char *what =
      line->keep == KEEPS_NAMES ? names_text(a, &line->names) : keep_words[line->keep];
  text = arena_printf(a, "%s keep = %s", text, what);
  if (line->budget > 0) text = arena_printf(a, "%s budget = %.0f", text, line->budget);
  return arena_printf(a, "%s%s%s%s", text, line->offload ? " offload = host" : "",
                      line->over ? " over " : "", line->over ? line->over : "");
}

SettingRows module_rows(const Module *m) {
  SettingRows rows = {0};
  for (uint32_t i = 0; i < m->settings.n; i++) vec_push(m->arena, rows, m->settings.at[i]);
  for (uint32_t i = 0; i < m->recompute.n; i++) {
    Setting row = {.key = intern_printf(m->ctx->names, "plan.recompute.%u", i + 1),
                   .value = recompute_text(m->arena, &m->recompute.at[i])};
    vec_push(m->arena, rows, row);
  }
  for (uint32_t i = 0; i < m->offload.n; i++) {
    const OffloadLine *line = &m->offload.at[i];
    Setting row = {.key = intern_printf(m->ctx->names, "plan.offload.%u", i + 1),
                   .value = arena_printf(m->arena, "%s%s%s", offload_words[line->word],
                                         line->path ? " of " : "", line->path ? line->path : "")};
    vec_push(m->arena, rows, row);
  }
  return rows;
}
