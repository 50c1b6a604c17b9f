/* Checks a settings block against the table settings.def: known words and options (E0601), values
   of the right type, unit and range (E0602), nothing missing or written twice (E0606). One error
   per value; what names mean is checked elsewhere. */
#include "frontend/syntax/keywords.h"
#include "settings.h"
#include <stdlib.h>

typedef struct Check {
  Ctx *c;
  const AstItem *item;
  const SettingRow *rows;
  uint32_t nrows;
} Check;

/* ---- rows ---- */

static const SettingRow *find_line(const Check *check, const char *word) {
  for (uint32_t i = 0; i < check->nrows; i++)
    if (check->rows[i].kind == ROW_LINE && check->rows[i].block == check->item->kind &&
        !strcmp(check->rows[i].word, word))
      return &check->rows[i];
  return NULL;
}

/* Options of `optim` and, with the choice adamw, of `optim.adamw`. */
static bool option_of(const Check *check, const SettingRow *row, const char *word,
                      const char *choice) {
  size_t n = strlen(word);
  if (row->kind != ROW_OPTION || row->block != check->item->kind || strncmp(row->word, word, n))
    return false;
  return !row->word[n] || (row->word[n] == '.' && choice && !strcmp(row->word + n + 1, choice));
}

static const SettingRow *find_option(const Check *check, const char *word, const char *choice,
                                     const char *key) {
  for (uint32_t i = 0; i < check->nrows; i++)
    if (option_of(check, &check->rows[i], word, choice) && !strcmp(check->rows[i].key, key))
      return &check->rows[i];
  return NULL;
}

typedef VEC(const char *) SettingWords;

static SettingWords words_of(const Check *check, SettingRowKind kind, const char *word,
                             const char *choice) {
  SettingWords words = {0};
  for (uint32_t i = 0; i < check->nrows; i++) {
    const SettingRow *row = &check->rows[i];
    if (row->kind != kind || row->block != check->item->kind) continue;
    if (kind == ROW_LINE) vec_push(check->c->arena, words, row->word);
    else if (kind == ROW_CHOICE ? !strcmp(row->word, word) : option_of(check, row, word, choice))
      vec_push(check->c->arena, words, row->key);
  }
  return words;
}

static const char *words_text(const Check *check, const SettingWords *words, const char *between,
                              uint32_t most) {
  const char *text = words->n ? words->at[0] : "";
  for (uint32_t i = 1; i < words->n && i < most; i++)
    text = arena_printf(check->c->arena, "%s%s%s", text, between, words->at[i]);
  return words->n > most ? arena_printf(check->c->arena, "%s%s...", text, between) : text;
}

/* A word that was meant: a small slip, or a known word with something behind it (zero_stage). */
static const char *meant(const char *wrong, const SettingWords *words) {
  const char *near = keyword_meant(wrong, words->at, words->n);
  for (uint32_t i = 0; !near && i < words->n; i++) {
    size_t n = strlen(words->at[i]);
    if (n > 2 && !strncmp(wrong, words->at[i], n) && wrong[n] == '_') near = words->at[i];
  }
  return near;
}

/* The source line from the wrong word on, with the right word in its place. */
static const char *mended(const Check *check, Span wrong, Span whole, const char *right) {
  const char *rest =
      span_text(check->c, (Span){whole.file, wrong.offset + wrong.length,
                                 whole.offset + whole.length - wrong.offset - wrong.length});
  size_t n = strcspn(rest, "\n#{");
  while (n && (rest[n - 1] == ' ' || rest[n - 1] == '\r')) n--;
  return arena_printf(check->c->arena, "%s%.*s", right, (int)n, rest);
}

/* ---- E0601 ---- */

static void edit_near(Report *r, Span at, const char *near) {
  if (near) diag_edit(r, at, "%s", near);
}

static void unknown_line(const Check *check, const AstSetting *setting) {
  const char *block = ast_item_word(check->item->kind);
  SettingWords words = words_of(check, ROW_LINE, "", NULL);
  const char *unlike = keyword_unlike(setting->path->text),
             *all = words_text(check, &words, " ", 6);
  const char *near = unlike ? NULL : meant(setting->path->text, &words);
  if (check->item->kind == ITEM_PLAN) all = "on mesh place micro pipeline zero ...";
  Report *r = diag_at(check->c->diag, "E0601", setting->path->span,
                      "%s blocks have no setting `%s`", block, setting->path->text);
  diag_label(r, "unknown setting");
  edit_near(r, setting->path->span, near);
  if (unlike) diag_help(r, "%s", unlike);
  else if (near)
    diag_help(r, "write `%s` (settings of %s: %s)",
              mended(check, setting->path->span, setting->span, near), block, all);
  else diag_help(r, "settings of %s: %s", block, all);
}

static void unknown_option(const Check *check, const AstSetting *setting, const AstPair *pair,
                           const char *choice) {
  SettingWords words = words_of(check, ROW_OPTION, setting->path->text, choice);
  const char *near = meant(pair->key->text, &words), *word = setting->path->text;
  if (choice) word = arena_printf(check->c->arena, "%s %s", word, choice);
  Report *r = diag_at(check->c->diag, "E0601", pair->key->span, "`%s` has no option `%s`", word,
                      pair->key->text);
  diag_label(r, "unknown option");
  edit_near(r, pair->key->span, near);
  if (near) diag_help(r, "write `%s`", mended(check, pair->key->span, pair->span, near));
  else if (words.n) diag_help(r, "options of `%s`: %s", word, words_text(check, &words, " ", 12));
}

/* ---- E0602 ---- */

static const char *shown(const Check *check, Span s) {
  const char *text = span_text(check->c, s);
  return strlen(text) > 40 || strchr(text, '\n') ? NULL : text;
}

static Report *wrong_value(const Check *check, const char *what, const AstValue *value,
                           const char *wanted) {
  const char *found = shown(check, value->span);
  Report *r = found ? diag_at(check->c->diag, "E0602", value->span, "%s wants %s, found `%s`", what,
                              wanted, found)
                    : diag_at(check->c->diag, "E0602", value->span, "%s wants %s", what, wanted);
  if (value->kind == VALUE_NUMBER && value->number.unit != UNIT_NONE)
    diag_label(r, "in %s",
               value->number.unit == UNIT_SHARE ? "percent" : ast_unit_name(value->number.unit));
  return r;
}

/* sm_100 is no slip for sm_80. */
static bool other_number(const char *a, const char *b) {
  a = strpbrk(a, "0123456789"), b = strpbrk(b, "0123456789");
  return a && b && strtol(a, NULL, 10) != strtol(b, NULL, 10);
}

static void wrong_choice(const Check *check, const char *what, const AstValue *value,
                         const char *choices) {
  SettingWords words = words_of(check, ROW_CHOICE, choices, NULL);
  const char *unlike = value->kind == VALUE_PATH ? keyword_unlike(value->path->text) : NULL;
  const char *near = value->kind == VALUE_PATH && !unlike ? meant(value->path->text, &words) : NULL;
  Report *r =
      wrong_value(check, what, value,
                  arena_printf(check->c->arena, "one of %s", words_text(check, &words, ", ", 12)));
  if (near && other_number(value->path->text, near)) near = NULL;
  if (!near && !unlike && words.n == 1) near = words.at[0];
  if (unlike) diag_help(r, "%s", unlike);
  if (near) diag_help(r, "write `%s`", near);
  edit_near(r, value->span, near);
}

static bool whole_number(const AstNumber *number, double least) {
  return number->integer && number->unit == UNIT_NONE && number->value >= least;
}

static bool number_fits(SettingType type, const AstNumber *number) {
  switch (type) {
  case TYPE_COUNT: return whole_number(number, 1);
  case TYPE_INTEGER: return whole_number(number, 0);
  case TYPE_STAGE: return whole_number(number, 0) && number->value <= 3;
  case TYPE_NUMBER:
  case TYPE_NUMBERS: return number->unit == UNIT_NONE;
  case TYPE_POSITIVE: return number->unit == UNIT_NONE && number->value > 0;
  case TYPE_AT_LEAST_0: return number->unit == UNIT_NONE && number->value >= 0;
  case TYPE_PAIR: /* of each */
  case TYPE_BELOW_1: return number->unit == UNIT_NONE && number->value >= 0 && number->value < 1;
  case TYPE_SHARE:
  case TYPE_VALID:
    return (number->unit == UNIT_NONE || number->unit == UNIT_SHARE) && number->value >= 0 &&
           number->value <= 1;
  case TYPE_STEPS:
    return whole_number(number, 1) || ((number->unit == UNIT_NONE || number->unit == UNIT_SHARE) &&
                                       number->value > 0 && number->value < 1);
  case TYPE_BYTES:
    return (number->unit == UNIT_BYTES || whole_number(number, 0)) && number->value >= 0 &&
           number->value < 0x1p63;
  case TYPE_AHEAD:
    return whole_number(number, 0) ||
           (number->unit == UNIT_BYTES && number_fits(TYPE_BYTES, number));
  case TYPE_RATE: return number->unit == UNIT_BYTES_PER_SECOND && number->value > 0;
  case TYPE_FLOPS: return number->unit == UNIT_FLOPS && number->value > 0;
  case TYPE_SECONDS: return number->unit == UNIT_SECONDS && number->value >= 0;
  default: return false;
  }
}

static bool list_fits(SettingType type, const AstValue *value) {
  if (type == TYPE_PAIR && value->items.n != 2) return false;
  for (uint32_t i = 0; i < value->items.n; i++) {
    const AstValue *item = value->items.at[i];
    bool number = item->kind == VALUE_NUMBER && number_fits(type, &item->number);
    if (type == TYPE_KEEP || type == TYPE_NAMES ? item->kind != VALUE_PATH : !number) return false;
  }
  return type == TYPE_PAIR || type == TYPE_NUMBERS || type == TYPE_KEEP || type == TYPE_NAMES;
}

static bool path_fits(SettingType type, const AstValue *value) {
  const char *text = value->path->text;
  if (type == TYPE_SWITCH) return !strcmp(text, "on") || !strcmp(text, "off");
  if (type == TYPE_STEPS) return !strcmp(text, "auto");
  if (type == TYPE_NAME) return value->path->parts.n == 1;
  return type == TYPE_WORD || type == TYPE_KEEP || type == TYPE_NAMES || type == TYPE_PATHS;
}

static bool call_fits(SettingType type, const AstValue *value) {
  const char *text = value->path->text;
  if (type == TYPE_TASK) return (!strcmp(text, "next") || !strcmp(text, "mlm")) && value->arrow;
  return (type == TYPE_SOURCE || type == TYPE_VALID) && !strcmp(text, "columns") && !value->arrow;
}

static bool value_fits(SettingType type, const AstValue *value) {
  switch (value->kind) {
  case VALUE_NUMBER: return type != TYPE_PAIR && number_fits(type, &value->number);
  case VALUE_STRING: return type == TYPE_STRING || type == TYPE_SOURCE || type == TYPE_VALID;
  case VALUE_PATH: return path_fits(type, value);
  case VALUE_CALL: return call_fits(type, value);
  case VALUE_LIST: return list_fits(type, value);
  case VALUE_OBJECT:
  case VALUE_EXPR: return false;
  }
  return false;
}

/* yes for on; 40GB/s where bytes are wanted, or the other way round; "512" for 512. */
static void help_value(const Check *check, SettingType type, const AstValue *value, Report *r) {
  static const char *const switches[] = {"on", "off"};
  const char *text = span_text(check->c, value->span), *with = NULL;
  size_t n = strlen(text);
  if (type == TYPE_SWITCH) {
    with = value->kind == VALUE_PATH ? keyword_foreign(text, switches, 2) : NULL;
    if (value->kind == VALUE_NUMBER && value->number.integer)
      with = value->number.integral ? "on" : "off";
  } else if (value->kind == VALUE_NUMBER && (type == TYPE_BYTES || type == TYPE_AHEAD) &&
             value->number.unit == UNIT_BYTES_PER_SECOND)
    with = arena_strndup(check->c->arena, text, n - 2);
  else if (value->kind == VALUE_NUMBER && type == TYPE_RATE && value->number.unit == UNIT_BYTES)
    with = arena_printf(check->c->arena, "%s/s", text);
  else if (value->kind == VALUE_STRING &&
           (type == TYPE_COUNT || type == TYPE_INTEGER || type == TYPE_AHEAD) &&
           strspn(value->string, "0123456789") == strlen(value->string))
    with = value->string;
  if (type == TYPE_RATE && value->kind == VALUE_NUMBER && value->number.value <= 0)
    diag_help(r, "more than 0, or leave it out: then no time is told");
  if (!with || !*with) return;
  diag_help(r, "write `%s`", with);
  diag_edit(r, value->span, "%s", with);
}

static void check_value(const Check *check, SettingType type, const char *what, const char *choices,
                        const AstValue *value) {
  SettingWords words = words_of(check, ROW_CHOICE, choices, NULL);
  bool listed = words.n == 0 || value->kind != VALUE_PATH;
  for (uint32_t i = 0; !listed && i < words.n; i++)
    listed = !strcmp(words.at[i], value->path->text);
  if (!listed || (words.n && type == TYPE_WORD && value->kind != VALUE_PATH))
    wrong_choice(check, what, value, choices);
  else if (!value_fits(type, value))
    help_value(check, type, value, wrong_value(check, what, value, setting_type_text(type)));
}

/* ---- lines ---- */

static const char *choice_word(const Check *k, const SettingRow *row, const AstSetting *s);

/* optim adamw lr 6e-4: the option lacks its `=`. */
static void help_option(const Check *check, const SettingRow *row, const AstSetting *setting,
                        const AstValue *value, Report *r) {
  if (value->kind != VALUE_PATH ||
      !find_option(check, row->word, choice_word(check, row, setting), value->path->text))
    return;
  diag_help(r, "an option is written with `=`: `%s = ..`", value->path->text);
  diag_edit(r, (Span){value->span.file, value->span.offset + value->span.length, 0}, " =");
}

static void check_operands(const Check *check, const SettingRow *row, const AstSetting *setting) {
  const AstValue **at;
  uint32_t n = setting_operands(check->c, setting, &at);
  const char *what = arena_printf(check->c->arena, "`%s`", row->word);
  for (uint32_t i = 0; i < n && i < (uint32_t)row->most; i++)
    check_value(check, row->type, what, row->word, at[i]);
  if (n < (uint32_t)row->least) {
    Report *r = diag_at(check->c->diag, "E0602", setting->path->span, "`%s` wants %s", row->word,
                        setting_type_text(row->type));
    diag_label(r, "nothing follows");
  } else if (n > (uint32_t)row->most) {
    const char *some = row->most == 0   ? "no value of its own"
                       : row->most == 1 ? "one value"
                                        : "fewer values";
    Report *r =
        diag_at(check->c->diag, "E0602", at[row->most]->span, "`%s` takes %s", row->word, some);
    diag_label(r, "one too many");
    help_option(check, row, setting, at[row->most], r);
  }
}

static bool written_before(const AstSetting *setting, uint32_t pair, Span *before) {
  for (uint32_t i = 0; i < pair; i++)
    if (setting->values.at[i].key &&
        setting->values.at[i].key->text == setting->values.at[pair].key->text)
      return *before = setting->values.at[i].key->span, true;
  return false;
}

static void report_twice(const Check *check, Span at, Span before, const char *what) {
  Report *r = diag_at(check->c->diag, "E0606", at, "`%s` is written twice", what);
  diag_label(r, "again here");
  diag_also(r, before, "first here");
}

/* A size or mesh axis: a whole number; sizes may be a list of them. */
static void check_key_value(const Check *check, const AstPair *pair, const char *word) {
  const char *what = arena_printf(check->c->arena, "`%s` of `%s`", pair->key->text, word);
  if (!strcmp(word, "size") && pair->value->kind == VALUE_LIST)
    for (uint32_t i = 0; i < pair->value->items.n; i++)
      check_value(check, TYPE_COUNT, what, "", pair->value->items.at[i]);
  else check_value(check, TYPE_COUNT, what, "", pair->value);
}

static void check_option(const Check *check, const SettingRow *row, const AstSetting *setting,
                         uint32_t pair, const char *choice) {
  const AstPair *ast_pair = &setting->values.at[pair];
  const SettingRow *option = find_option(check, row->word, choice, ast_pair->key->text);
  Span before;
  if (written_before(setting, pair, &before))
    report_twice(check, ast_pair->key->span, before, ast_pair->key->text);
  else if (row->flags & SETTING_KEYS) check_key_value(check, ast_pair, row->word);
  else if (row->flags & SETTING_FREE) return;
  else if (!option) unknown_option(check, setting, ast_pair, choice);
  else {
    const char *what = arena_printf(check->c->arena, "`%s` of `%s`", option->key, row->word);
    check_value(check, option->type, what,
                arena_printf(check->c->arena, "%s.%s", option->word, option->key), ast_pair->value);
  }
}

static bool is_word(const AstPair *pair, const char *word) {
  return !pair->key && pair->value->kind == VALUE_PATH && !strcmp(pair->value->path->text, word);
}

/* What stands behind `over` and `of`. */
static void check_behind(const Check *check, const SettingRow *row, const AstSetting *setting,
                         const char *choice) {
  for (int of = 0; of < 2; of++) {
    const AstValue **at;
    const char *word = of ? "of" : "over";
    uint32_t n = of ? setting_of(check->c, setting, &at) : setting_over(check->c, setting, &at);
    if (n && !find_option(check, row->word, choice, word))
      diag_at(check->c->diag, "E0601", at[0]->span, "`%s` takes nothing with `%s`", row->word,
              word);
    for (uint32_t i = 0; i < setting->values.n && !n; i++)
      if (is_word(&setting->values.at[i], word))
        diag_label(diag_at(check->c->diag, "E0602", setting->values.at[i].span,
                           "`%s` of `%s` wants names", word, row->word),
                   "nothing follows");
    for (uint32_t i = 0; i < n; i++)
      check_value(check, TYPE_NAMES, arena_printf(check->c->arena, "`%s` of `%s`", word, row->word),
                  "", at[i]);
  }
}

/* The word that decides which options there are: adamw in `optim adamw`. */
static const char *choice_word(const Check *check, const SettingRow *row,
                               const AstSetting *setting) {
  const AstValue **at;
  uint32_t n = setting_operands(check->c, setting, &at);
  return row->type == TYPE_WORD && row->most == 1 && n && at[0]->kind == VALUE_PATH
             ? at[0]->path->text
             : NULL;
}

/* False if the choice itself is wrong: then nothing is said about its options. */
static bool known_choice(const Check *check, const SettingRow *row, const char *choice) {
  SettingWords words = words_of(check, ROW_CHOICE, row->word, NULL);
  for (uint32_t i = 0; choice && i < words.n; i++)
    if (!strcmp(words.at[i], choice)) return true;
  return !choice || !words.n;
}

static void check_target(const Check *check, const SettingRow *row, const AstSetting *setting) {
  bool wanted = row->flags & SETTING_ARROW, offload = !strcmp(row->word, "offload");
  if (setting->arrow == ARROW_NONE && wanted) {
    Report *r = diag_at(check->c->diag, "E0602", setting->path->span, "`%s` wants `->` and a place",
                        row->word);
    diag_help(r, "%s", row->help);
  } else if (setting->arrow == ARROW_LEFT || (setting->arrow == ARROW_RIGHT && !wanted)) {
    diag_at(check->c->diag, "E0602", setting->arrow_span, "`%s` takes no `%s`", row->word,
            setting->arrow == ARROW_LEFT ? "<-" : "->");
  }
  for (uint32_t i = 0; wanted && i < setting->target.n; i++) {
    const AstPair *pair = &setting->target.at[i];
    bool name = !pair->key && pair->value->kind == VALUE_PATH;
    if (!name)
      diag_at(check->c->diag, "E0602", pair->span, "`%s` wants names behind `->`", row->word);
    else if (offload && strcmp(pair->value->path->text, "host")) {
      Report *r = wrong_value(check, "`offload`", pair->value, "`host` behind `->`");
      diag_help(r, "write `host`");
      diag_edit(r, pair->value->span, "host");
    } else if (offload && i) {
      Report *r = diag_at(check->c->diag, "E0606", pair->span, "`offload` names its place twice");
      diag_also(r, setting->target.at[0].span, "first here");
      diag_help(r, "once: `-> host`");
    }
  }
}

static void check_line(const Check *check, const SettingRow *row, const AstSetting *setting) {
  const char *choice = choice_word(check, row, setting);
  if (setting->paren)
    diag_at(check->c->diag, "E0602", setting->paren->span,
            "`%s` takes no expression in parentheses", row->word);
  if (setting->block)
    diag_at(check->c->diag, "E0602", setting->block->span, "`%s` takes no block", row->word);
  if (!setting->paren) check_operands(check, row, setting);
  check_target(check, row, setting);
  if (!known_choice(check, row, choice)) return;
  for (uint32_t i = 0; i < setting->values.n; i++)
    if (setting->values.at[i].key) check_option(check, row, setting, i, choice);
  check_behind(check, row, setting, choice);
}

/* ---- blocks ---- */

static const AstSetting *earlier_line(const AstBlock *block, uint32_t at) {
  for (uint32_t i = 0; i < at; i++)
    if (block->settings.at[i]->path->text == block->settings.at[at]->path->text &&
        block->settings.at[i]->arrow != ARROW_LEFT)
      return block->settings.at[i];
  return NULL;
}

/* A misspelt line was reported already; that the right one is missing need not be said too. */
static bool meant_by_another(const Check *check, const char *word) {
  SettingWords words = words_of(check, ROW_LINE, "", NULL);
  for (uint32_t i = 0; i < check->item->block->settings.n; i++) {
    const char *written = check->item->block->settings.at[i]->path->text;
    const char *near = find_line(check, written) ? NULL : meant(written, &words);
    const char *unlike = keyword_unlike(written); /* its help names the word */
    if (near && !strcmp(near, word)) return true;
    if (unlike && strstr(unlike, arena_printf(check->c->arena, "`%s ", word))) return true;
  }
  return false;
}

static void check_missing(const Check *check) {
  for (uint32_t i = 0; i < check->nrows; i++) {
    const SettingRow *row = &check->rows[i];
    if (row->block != check->item->kind || !(row->flags & SETTING_NEEDED) ||
        settings_line(check->item, row->word))
      continue;
    if (meant_by_another(check, row->word)) continue;
    Report *r =
        diag_at(check->c->diag, "E0606", check->item->name.span, "%s block `%s` has no `%s`",
                ast_item_word(check->item->kind), check->item->name.text, row->word);
    diag_help(r, "`%s`: %s", row->word, row->help);
  }
}

/* A warm-up longer than the run. Fewer steps on the command line are the first of a run. */
static void check_warmup(const Check *check) {
  const AstValue *warmup = settings_value(check->item, "lr", "warmup"),
                 *steps = settings_value(check->item, "steps", NULL);
  if (!warmup || !steps || warmup->number.value <= steps->number.value) return;
  if (steps->span.file != check->item->span.file) return;
  Report *r =
      diag_at(check->c->diag, "E0602", warmup->span, "`warmup` of `lr` is longer than the run");
  diag_also(r, steps->span, "%s steps", setting_value_text(check->c, steps));
}

bool settings_check(Ctx *c, const AstItem *item) {
  Check check = {.c = c, .item = item};
  uint32_t before = diag_errors(c->diag);
  check.rows = settings_table(&check.nrows);
  for (uint32_t i = 0; item->block && i < item->block->settings.n; i++) {
    const AstSetting *setting = item->block->settings.at[i], *first;
    const SettingRow *row = find_line(&check, setting->path->text);
    if (item->kind == ITEM_WEIGHTS && setting->arrow == ARROW_LEFT) continue;
    if (!row) unknown_line(&check, setting);
    else if (!(row->flags & SETTING_MANY) && (first = earlier_line(item->block, i)))
      report_twice(&check, setting->path->span, first->path->span, row->word);
    else check_line(&check, row, setting);
  }
  if (!item->bad) check_missing(&check);
  if (item->kind == ITEM_TRAIN && diag_errors(c->diag) == before) check_warmup(&check);
  return diag_errors(c->diag) == before;
}
