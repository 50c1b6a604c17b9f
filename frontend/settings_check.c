/* Checks a settings block against the table settings.def: known words and options (E0601), values
   of the right type, unit and range (E0602), nothing missing or written twice (E0606). One error
   per value; what names mean is checked elsewhere. */
#include "keywords.h"
#include "settings.h"
#include <stdlib.h>

typedef struct Check {
  Ctx *c;
  const AstItem *item;
  const SettingRow *rows;
  uint32_t nrows;
} Check;

/* ---- rows ---- */

static const SettingRow *find_line(const Check *k, const char *word) {
  for (uint32_t i = 0; i < k->nrows; i++)
    if (k->rows[i].kind == ROW_LINE && k->rows[i].block == k->item->kind &&
        !strcmp(k->rows[i].word, word))
      return &k->rows[i];
  return NULL;
}

/* Options of `optim` and, with the choice adamw, of `optim.adamw`. */
static bool option_of(const Check *k, const SettingRow *r, const char *word, const char *choice) {
  size_t n = strlen(word);
  if (r->kind != ROW_OPTION || r->block != k->item->kind || strncmp(r->word, word, n)) return false;
  return !r->word[n] || (r->word[n] == '.' && choice && !strcmp(r->word + n + 1, choice));
}

static const SettingRow *find_option(const Check *k, const char *word, const char *choice,
                                     const char *key) {
  for (uint32_t i = 0; i < k->nrows; i++)
    if (option_of(k, &k->rows[i], word, choice) && !strcmp(k->rows[i].key, key)) return &k->rows[i];
  return NULL;
}

typedef VEC(const char *) SettingWords;

static SettingWords words_of(const Check *k, SettingRowKind kind, const char *word,
                             const char *choice) {
  SettingWords w = {0};
  for (uint32_t i = 0; i < k->nrows; i++) {
    const SettingRow *r = &k->rows[i];
    if (r->kind != kind || r->block != k->item->kind) continue;
    if (kind == ROW_LINE) vec_push(k->c->arena, w, r->word);
    else if (kind == ROW_CHOICE ? !strcmp(r->word, word) : option_of(k, r, word, choice))
      vec_push(k->c->arena, w, r->key);
  }
  return w;
}

static const char *words_text(const Check *k, const SettingWords *w, const char *between,
                              uint32_t most) {
  const char *text = w->n ? w->at[0] : "";
  for (uint32_t i = 1; i < w->n && i < most; i++)
    text = arena_printf(k->c->arena, "%s%s%s", text, between, w->at[i]);
  return w->n > most ? arena_printf(k->c->arena, "%s%s...", text, between) : text;
}

/* A word that was meant: a small slip, or a known word with something behind it (zero_stage). */
static const char *meant(const char *wrong, const SettingWords *w) {
  const char *near = keyword_meant(wrong, w->at, w->n);
  for (uint32_t i = 0; !near && i < w->n; i++) {
    size_t n = strlen(w->at[i]);
    if (n > 2 && !strncmp(wrong, w->at[i], n) && wrong[n] == '_') near = w->at[i];
  }
  return near;
}

/* The source line from the wrong word on, with the right word in its place. */
static const char *mended(const Check *k, Span wrong, Span whole, const char *right) {
  const char *rest =
      span_text(k->c, (Span){whole.file, wrong.offset + wrong.length,
                             whole.offset + whole.length - wrong.offset - wrong.length});
  size_t n = strcspn(rest, "\n#{");
  while (n && (rest[n - 1] == ' ' || rest[n - 1] == '\r')) n--;
  return arena_printf(k->c->arena, "%s%.*s", right, (int)n, rest);
}

/* ---- E0601 ---- */

static void edit_near(Report *r, Span at, const char *near) {
  if (near) diag_edit(r, at, "%s", near);
}

static void unknown_line(const Check *k, const AstSetting *s) {
  const char *block = ast_item_word(k->item->kind);
  SettingWords w = words_of(k, ROW_LINE, "", NULL);
  const char *unlike = keyword_unlike(s->path->text), *all = words_text(k, &w, " ", 6);
  const char *near = unlike ? NULL : meant(s->path->text, &w);
  if (k->item->kind == ITEM_PLAN) all = "on mesh place micro pipeline zero ...";
  Report *r = diag_at(k->c->diag, "E0601", s->path->span, "%s blocks have no setting `%s`", block,
                      s->path->text);
  diag_label(r, "unknown setting");
  edit_near(r, s->path->span, near);
  if (unlike) diag_help(r, "%s", unlike);
  else if (near)
    diag_help(r, "write `%s` (settings of %s: %s)", mended(k, s->path->span, s->span, near), block,
              all);
  else diag_help(r, "settings of %s: %s", block, all);
}

static void unknown_option(const Check *k, const AstSetting *s, const AstPair *p,
                           const char *choice) {
  SettingWords w = words_of(k, ROW_OPTION, s->path->text, choice);
  const char *near = meant(p->key->text, &w), *word = s->path->text;
  if (choice) word = arena_printf(k->c->arena, "%s %s", word, choice);
  Report *r =
      diag_at(k->c->diag, "E0601", p->key->span, "`%s` has no option `%s`", word, p->key->text);
  diag_label(r, "unknown option");
  edit_near(r, p->key->span, near);
  if (near) diag_help(r, "write `%s`", mended(k, p->key->span, p->span, near));
  else if (w.n) diag_help(r, "options of `%s`: %s", word, words_text(k, &w, " ", 12));
}

/* ---- E0602 ---- */

static const char *shown(const Check *k, Span s) {
  const char *text = span_text(k->c, s);
  return strlen(text) > 40 || strchr(text, '\n') ? NULL : text;
}

static Report *wrong_value(const Check *k, const char *what, const AstValue *v,
                           const char *wanted) {
  const char *found = shown(k, v->span);
  Report *r =
      found ? diag_at(k->c->diag, "E0602", v->span, "%s wants %s, found `%s`", what, wanted, found)
            : diag_at(k->c->diag, "E0602", v->span, "%s wants %s", what, wanted);
  if (v->kind == VALUE_NUMBER && v->number.unit != UNIT_NONE)
    diag_label(r, "in %s",
               v->number.unit == UNIT_SHARE ? "percent" : ast_unit_name(v->number.unit));
  return r;
}

/* sm_100 is no slip for sm_80. */
static bool other_number(const char *a, const char *b) {
  a = strpbrk(a, "0123456789"), b = strpbrk(b, "0123456789");
  return a && b && strtol(a, NULL, 10) != strtol(b, NULL, 10);
}

static void wrong_choice(const Check *k, const char *what, const AstValue *v, const char *choices) {
  SettingWords w = words_of(k, ROW_CHOICE, choices, NULL);
  const char *unlike = v->kind == VALUE_PATH ? keyword_unlike(v->path->text) : NULL;
  const char *near = v->kind == VALUE_PATH && !unlike ? meant(v->path->text, &w) : NULL;
  Report *r =
      wrong_value(k, what, v, arena_printf(k->c->arena, "one of %s", words_text(k, &w, ", ", 12)));
  if (near && other_number(v->path->text, near)) near = NULL;
  if (!near && !unlike && w.n == 1) near = w.at[0];
  if (unlike) diag_help(r, "%s", unlike);
  if (near) diag_help(r, "write `%s`", near);
  edit_near(r, v->span, near);
}

static bool whole_number(const AstNumber *n, double least) {
  return n->integer && n->unit == UNIT_NONE && n->value >= least;
}

static bool number_fits(SettingType t, const AstNumber *n) {
  switch (t) {
  case TYPE_COUNT: return whole_number(n, 1);
  case TYPE_INTEGER: return whole_number(n, 0);
  case TYPE_STAGE: return whole_number(n, 0) && n->value <= 3;
  case TYPE_NUMBER:
  case TYPE_NUMBERS: return n->unit == UNIT_NONE;
  case TYPE_POSITIVE: return n->unit == UNIT_NONE && n->value > 0;
  case TYPE_AT_LEAST_0: return n->unit == UNIT_NONE && n->value >= 0;
  case TYPE_PAIR: /* of each */
  case TYPE_BELOW_1: return n->unit == UNIT_NONE && n->value >= 0 && n->value < 1;
  case TYPE_SHARE:
  case TYPE_VALID:
    return (n->unit == UNIT_NONE || n->unit == UNIT_SHARE) && n->value >= 0 && n->value <= 1;
  case TYPE_STEPS:
    return whole_number(n, 1) ||
           ((n->unit == UNIT_NONE || n->unit == UNIT_SHARE) && n->value > 0 && n->value < 1);
  case TYPE_BYTES:
    return (n->unit == UNIT_BYTES || whole_number(n, 0)) && n->value >= 0 && n->value < 0x1p63;
  case TYPE_AHEAD:
    return whole_number(n, 0) || (n->unit == UNIT_BYTES && number_fits(TYPE_BYTES, n));
  case TYPE_RATE: return n->unit == UNIT_BYTES_PER_SECOND && n->value > 0;
  case TYPE_FLOPS: return n->unit == UNIT_FLOPS && n->value > 0;
  case TYPE_SECONDS: return n->unit == UNIT_SECONDS && n->value >= 0;
  default: return false;
  }
}

static bool list_fits(SettingType t, const AstValue *v) {
  if (t == TYPE_PAIR && v->items.n != 2) return false;
  for (uint32_t i = 0; i < v->items.n; i++) {
    const AstValue *item = v->items.at[i];
    bool number = item->kind == VALUE_NUMBER && number_fits(t, &item->number);
    if (t == TYPE_KEEP || t == TYPE_NAMES ? item->kind != VALUE_PATH : !number) return false;
  }
  return t == TYPE_PAIR || t == TYPE_NUMBERS || t == TYPE_KEEP || t == TYPE_NAMES;
}

static bool path_fits(SettingType t, const AstValue *v) {
  const char *text = v->path->text;
  if (t == TYPE_SWITCH) return !strcmp(text, "on") || !strcmp(text, "off");
  if (t == TYPE_STEPS) return !strcmp(text, "auto");
  if (t == TYPE_NAME) return v->path->parts.n == 1;
  return t == TYPE_WORD || t == TYPE_KEEP || t == TYPE_NAMES || t == TYPE_PATHS;
}

static bool call_fits(SettingType t, const AstValue *v) {
  const char *text = v->path->text;
  if (t == TYPE_TASK) return (!strcmp(text, "next") || !strcmp(text, "mlm")) && v->arrow;
  return (t == TYPE_SOURCE || t == TYPE_VALID) && !strcmp(text, "columns") && !v->arrow;
}

static bool value_fits(SettingType t, const AstValue *v) {
  switch (v->kind) {
  case VALUE_NUMBER: return t != TYPE_PAIR && number_fits(t, &v->number);
  case VALUE_STRING: return t == TYPE_STRING || t == TYPE_SOURCE || t == TYPE_VALID;
  case VALUE_PATH: return path_fits(t, v);
  case VALUE_CALL: return call_fits(t, v);
  case VALUE_LIST: return list_fits(t, v);
  case VALUE_EXPR: return false;
  }
  return false;
}

/* yes for on; 40GB/s where bytes are wanted, or the other way round; "512" for 512. */
static void help_value(const Check *k, SettingType t, const AstValue *v, Report *r) {
  static const char *const switches[] = {"on", "off"};
  const char *text = span_text(k->c, v->span), *with = NULL;
  size_t n = strlen(text);
  if (t == TYPE_SWITCH) {
    with = v->kind == VALUE_PATH ? keyword_foreign(text, switches, 2) : NULL;
    if (v->kind == VALUE_NUMBER && v->number.integer) with = v->number.integral ? "on" : "off";
  } else if (v->kind == VALUE_NUMBER && (t == TYPE_BYTES || t == TYPE_AHEAD) &&
             v->number.unit == UNIT_BYTES_PER_SECOND)
    with = arena_strndup(k->c->arena, text, n - 2);
  else if (v->kind == VALUE_NUMBER && t == TYPE_RATE && v->number.unit == UNIT_BYTES)
    with = arena_printf(k->c->arena, "%s/s", text);
  else if (v->kind == VALUE_STRING && (t == TYPE_COUNT || t == TYPE_INTEGER || t == TYPE_AHEAD) &&
           strspn(v->string, "0123456789") == strlen(v->string))
    with = v->string;
  if (!with || !*with) return;
  diag_help(r, "write `%s`", with);
  diag_edit(r, v->span, "%s", with);
}

static void check_value(const Check *k, SettingType t, const char *what, const char *choices,
                        const AstValue *v) {
  SettingWords w = words_of(k, ROW_CHOICE, choices, NULL);
  bool listed = w.n == 0 || v->kind != VALUE_PATH;
  for (uint32_t i = 0; !listed && i < w.n; i++) listed = !strcmp(w.at[i], v->path->text);
  if (!listed || (w.n && t == TYPE_WORD && v->kind != VALUE_PATH))
    wrong_choice(k, what, v, choices);
  else if (!value_fits(t, v)) help_value(k, t, v, wrong_value(k, what, v, setting_type_text(t)));
}

/* ---- lines ---- */

static const char *choice_word(const Check *k, const SettingRow *row, const AstSetting *s);

/* optim adamw lr 6e-4: the option lacks its `=`. */
static void help_option(const Check *k, const SettingRow *row, const AstSetting *s,
                        const AstValue *v, Report *r) {
  if (v->kind != VALUE_PATH || !find_option(k, row->word, choice_word(k, row, s), v->path->text))
    return;
  diag_help(r, "an option is written with `=`: `%s = ..`", v->path->text);
  diag_edit(r, (Span){v->span.file, v->span.offset + v->span.length, 0}, " =");
}

static void check_operands(const Check *k, const SettingRow *row, const AstSetting *s) {
  const AstValue **at;
  uint32_t n = setting_operands(k->c, s, &at);
  const char *what = arena_printf(k->c->arena, "`%s`", row->word);
  for (uint32_t i = 0; i < n && i < (uint32_t)row->most; i++)
    check_value(k, row->type, what, row->word, at[i]);
  if (n < (uint32_t)row->least) {
    Report *r = diag_at(k->c->diag, "E0602", s->path->span, "`%s` wants %s", row->word,
                        setting_type_text(row->type));
    diag_label(r, "nothing follows");
  } else if (n > (uint32_t)row->most) {
    const char *some = row->most == 0   ? "no value of its own"
                       : row->most == 1 ? "one value"
                                        : "fewer values";
    Report *r = diag_at(k->c->diag, "E0602", at[row->most]->span, "`%s` takes %s", row->word, some);
    diag_label(r, "one too many");
    help_option(k, row, s, at[row->most], r);
  }
}

static bool written_before(const AstSetting *s, uint32_t pair, Span *before) {
  for (uint32_t i = 0; i < pair; i++)
    if (s->values.at[i].key && s->values.at[i].key->text == s->values.at[pair].key->text)
      return *before = s->values.at[i].key->span, true;
  return false;
}

static void report_twice(const Check *k, Span at, Span before, const char *what) {
  Report *r = diag_at(k->c->diag, "E0606", at, "`%s` is written twice", what);
  diag_label(r, "again here");
  diag_also(r, before, "first here");
}

/* A size or mesh axis: a whole number; sizes may be a list of them. */
static void check_key_value(const Check *k, const AstPair *p, const char *word) {
  const char *what = arena_printf(k->c->arena, "`%s` of `%s`", p->key->text, word);
  if (!strcmp(word, "size") && p->value->kind == VALUE_LIST)
    for (uint32_t i = 0; i < p->value->items.n; i++)
      check_value(k, TYPE_COUNT, what, "", p->value->items.at[i]);
  else check_value(k, TYPE_COUNT, what, "", p->value);
}

static void check_option(const Check *k, const SettingRow *row, const AstSetting *s, uint32_t pair,
                         const char *choice) {
  const AstPair *p = &s->values.at[pair];
  const SettingRow *option = find_option(k, row->word, choice, p->key->text);
  Span before;
  if (written_before(s, pair, &before)) report_twice(k, p->key->span, before, p->key->text);
  else if (row->flags & SETTING_KEYS) check_key_value(k, p, row->word);
  else if (row->flags & SETTING_FREE) return;
  else if (!option) unknown_option(k, s, p, choice);
  else {
    const char *what = arena_printf(k->c->arena, "`%s` of `%s`", option->key, row->word);
    check_value(k, option->type, what, arena_printf(k->c->arena, "%s.%s", row->word, option->key),
                p->value);
  }
}

static void check_over(const Check *k, const SettingRow *row, const AstSetting *s,
                       const char *choice) {
  const AstValue **at;
  uint32_t n = setting_over(k->c, s, &at);
  if (!n) return;
  if (!find_option(k, row->word, choice, "over"))
    diag_at(k->c->diag, "E0601", at[0]->span, "`%s` takes nothing with `over`", row->word);
  for (uint32_t i = 0; i < n; i++)
    check_value(k, TYPE_NAMES, arena_printf(k->c->arena, "`over` of `%s`", row->word), "", at[i]);
}

/* The word that decides which options there are: adamw in `optim adamw`. */
static const char *choice_word(const Check *k, const SettingRow *row, const AstSetting *s) {
  const AstValue **at;
  uint32_t n = setting_operands(k->c, s, &at);
  return row->type == TYPE_WORD && row->most == 1 && n && at[0]->kind == VALUE_PATH
             ? at[0]->path->text
             : NULL;
}

/* False if the choice itself is wrong: then nothing is said about its options. */
static bool known_choice(const Check *k, const SettingRow *row, const char *choice) {
  SettingWords w = words_of(k, ROW_CHOICE, row->word, NULL);
  for (uint32_t i = 0; choice && i < w.n; i++)
    if (!strcmp(w.at[i], choice)) return true;
  return !choice || !w.n;
}

static void check_target(const Check *k, const SettingRow *row, const AstSetting *s) {
  bool wanted = row->flags & SETTING_ARROW, offload = !strcmp(row->word, "offload");
  if (s->arrow == ARROW_NONE && wanted) {
    Report *r =
        diag_at(k->c->diag, "E0602", s->path->span, "`%s` wants `->` and a place", row->word);
    diag_help(r, "%s", row->help);
  } else if (s->arrow == ARROW_LEFT || (s->arrow == ARROW_RIGHT && !wanted)) {
    diag_at(k->c->diag, "E0602", s->arrow_span, "`%s` takes no `%s`", row->word,
            s->arrow == ARROW_LEFT ? "<-" : "->");
  }
  for (uint32_t i = 0; wanted && i < s->target.n; i++) {
    const AstPair *p = &s->target.at[i];
    bool name = !p->key && p->value->kind == VALUE_PATH;
    if (!name) diag_at(k->c->diag, "E0602", p->span, "`%s` wants names behind `->`", row->word);
    else if (offload && strcmp(p->value->path->text, "host"))
      diag_edit(wrong_value(k, "`offload`", p->value, "`host` behind `->`"), p->value->span,
                "host");
  }
}

static void check_line(const Check *k, const SettingRow *row, const AstSetting *s) {
  const char *choice = choice_word(k, row, s);
  if (s->paren)
    diag_at(k->c->diag, "E0602", s->paren->span, "`%s` takes no expression in parentheses",
            row->word);
  if (s->block) diag_at(k->c->diag, "E0602", s->block->span, "`%s` takes no block", row->word);
  if (!s->paren) check_operands(k, row, s);
  check_target(k, row, s);
  if (!known_choice(k, row, choice)) return;
  for (uint32_t i = 0; i < s->values.n; i++)
    if (s->values.at[i].key) check_option(k, row, s, i, choice);
  check_over(k, row, s, choice);
}

/* ---- blocks ---- */

static const AstSetting *earlier_line(const AstBlock *b, uint32_t at) {
  for (uint32_t i = 0; i < at; i++)
    if (b->settings.at[i]->path->text == b->settings.at[at]->path->text &&
        b->settings.at[i]->arrow != ARROW_LEFT)
      return b->settings.at[i];
  return NULL;
}

/* A misspelt line was reported already; that the right one is missing need not be said too. */
static bool meant_by_another(const Check *k, const char *word) {
  SettingWords w = words_of(k, ROW_LINE, "", NULL);
  for (uint32_t i = 0; i < k->item->block->settings.n; i++) {
    const char *written = k->item->block->settings.at[i]->path->text;
    const char *near = find_line(k, written) ? NULL : meant(written, &w);
    const char *unlike = keyword_unlike(written); /* its help names the word */
    if (near && !strcmp(near, word)) return true;
    if (unlike && strstr(unlike, arena_printf(k->c->arena, "`%s ", word))) return true;
  }
  return false;
}

static void check_missing(const Check *k) {
  for (uint32_t i = 0; i < k->nrows; i++) {
    const SettingRow *row = &k->rows[i];
    if (row->block != k->item->kind || !(row->flags & SETTING_NEEDED) ||
        settings_line(k->item, row->word))
      continue;
    if (meant_by_another(k, row->word)) continue;
    Report *r = diag_at(k->c->diag, "E0606", k->item->name.span, "%s block `%s` has no `%s`",
                        ast_item_word(k->item->kind), k->item->name.text, row->word);
    diag_help(r, "`%s`: %s", row->word, row->help);
  }
}

/* A warm-up longer than the run. Fewer steps on the command line are the first of a run. */
static void check_warmup(const Check *k) {
  const AstValue *warmup = settings_value(k->item, "lr", "warmup"),
                 *steps = settings_value(k->item, "steps", NULL);
  if (!warmup || !steps || warmup->number.value <= steps->number.value) return;
  if (steps->span.file != k->item->span.file) return;
  Report *r = diag_at(k->c->diag, "E0602", warmup->span, "`warmup` of `lr` is longer than the run");
  diag_also(r, steps->span, "%s steps", setting_value_text(k->c, steps));
}

bool settings_check(Ctx *c, const AstItem *item) {
  Check k = {.c = c, .item = item};
  uint32_t before = diag_errors(c->diag);
  k.rows = settings_table(&k.nrows);
  for (uint32_t i = 0; item->block && i < item->block->settings.n; i++) {
    const AstSetting *s = item->block->settings.at[i], *first;
    const SettingRow *row = find_line(&k, s->path->text);
    if (item->kind == ITEM_WEIGHTS && s->arrow == ARROW_LEFT) continue;
    if (!row) unknown_line(&k, s);
    else if (!(row->flags & SETTING_MANY) && (first = earlier_line(item->block, i)))
      report_twice(&k, s->path->span, first->path->span, row->word);
    else check_line(&k, row, s);
  }
  if (!item->bad) check_missing(&k);
  if (item->kind == ITEM_TRAIN && diag_errors(c->diag) == before) check_warmup(&k);
  return diag_errors(c->diag) == before;
}
