/* Checks a settings block against the table settings.def: known words and options (E0601), values
   of the right type, unit and range (E0602, settings_values.c), nothing missing or written twice
   (E0606), numbers that agree with each other (settings_limits.c). One error per value; what names
   mean is checked elsewhere. */
#include "frontend/syntax/foreign_words.h"
#include "settings_values.h"

/* ---- E0601 ---- */

/* A small slip, or a known word with a suffix (zero_stage). */
static const char *near_line(const char *wrong, const SettingWords *words) {
  const char *near = diag_nearest(wrong, words->at, words->n);
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

/* A word that is not known: of a line, or, with `pair`, of an option of it. */
typedef struct Unknown {
  const Check *check;
  const AstSetting *setting;
  const AstPair *pair;
  const char *choice;
  SettingWords words;
} Unknown;

static bool line_fits(const Check *check, const SettingRow *row, const AstSetting *setting);
static bool option_fits(const Check *check, const SettingRow *row, const AstValue *value);

static const SettingRow *row_named(const Unknown *unknown, const char *name) {
  if (!unknown->pair) return setting_find_line(unknown->check, name);
  return setting_find_option(unknown->check, unknown->setting->path->text, unknown->choice, name);
}

/* Would it be read, with this word in its place? */
static bool fits(const Unknown *unknown, const char *name) {
  const SettingRow *row = row_named(unknown, name);
  return unknown->pair ? option_fits(unknown->check, row, unknown->pair->value)
                       : line_fits(unknown->check, row, unknown->setting);
}

static Meant meant(const Unknown *unknown) {
  const Check *check = unknown->check;
  const SettingWords *words = &unknown->words;
  const char *line = unknown->pair ? unknown->setting->path->text : NULL;
  const char *wrong = line ? unknown->pair->key->text : unknown->setting->path->text;
  const char *text = line ? foreign_option_text(line, wrong) : foreign_text(FOREIGN_SETTING, wrong);
  if (text) return (Meant){.text = text};
  const char *name = foreign_name(wrong, words->at, words->n);
  if (name && fits(unknown, name)) return (Meant){.word = name};
  if (name)
    return (Meant){.text = arena_printf(check->c->arena, "that is `%s`: %s", name,
                                        row_named(unknown, name)->help)};
  if ((text = settings_place(check->c, check->item->kind, line, wrong)))
    return (Meant){.text = text};
  const char *near = line ? diag_nearest(wrong, words->at, words->n) : near_line(wrong, words);
  return (Meant){.word = near && fits(unknown, near) ? near : NULL};
}

static void unknown_line(const Check *check, const AstSetting *setting) {
  const char *block = ast_item_word(check->item->kind);
  SettingWords words = setting_words_of(check, ROW_LINE, "", NULL);
  const char *all = setting_words_text(check, &words, " ", 6);
  Meant right = meant(&(Unknown){check, setting, NULL, NULL, words});
  if (check->item->kind == ITEM_PLAN) all = "on mesh place micro pipeline zero ...";
  Report *r = diag_at(check->c->diag, "E0601", setting->path->span,
                      "%s blocks have no setting `%s`", block, setting->path->text);
  diag_label(r, "unknown setting");
  setting_edit_near(r, setting->path->span, right.word);
  if (right.text) diag_help(r, "%s", right.text);
  else if (right.word)
    diag_help(r, "write `%s` (settings of %s: %s)",
              mended(check, setting->path->span, setting->span, right.word), block, all);
  else diag_help(r, "settings of %s: %s", block, all);
}

static void unknown_option(const Check *check, const AstSetting *setting, const AstPair *pair,
                           const char *choice) {
  SettingWords words = setting_words_of(check, ROW_OPTION, setting->path->text, choice);
  const char *word = setting->path->text;
  Meant right = meant(&(Unknown){check, setting, pair, choice, words});
  if (choice) word = arena_printf(check->c->arena, "%s %s", word, choice);
  Report *r = diag_at(check->c->diag, "E0601", pair->key->span, "`%s` has no option `%s`", word,
                      pair->key->text);
  diag_label(r, "unknown option");
  setting_edit_near(r, pair->key->span, right.word);
  if (right.text) diag_help(r, "%s", right.text);
  else if (right.word)
    diag_help(r, "write `%s`", mended(check, pair->key->span, pair->span, right.word));
  else if (words.n)
    diag_help(r, "options of `%s`: %s", word, setting_words_text(check, &words, " ", 12));
  else diag_help(r, "`%s` has no options", word);
}

static bool option_fits(const Check *check, const SettingRow *row, const AstValue *value) {
  const char *choices = arena_printf(check->c->arena, "%s.%s", row->word, row->key);
  return setting_choice_fits(check, row->type, choices, value) &&
         setting_value_fits(row->type, value);
}

static bool line_fits(const Check *check, const SettingRow *row, const AstSetting *setting) {
  const AstValue **at;
  uint32_t n = setting_operands(check->c, setting, &at);
  if (n < (uint32_t)row->least || n > (uint32_t)row->most) return false;
  for (uint32_t i = 0; i < n; i++)
    if (!setting_choice_fits(check, row->type, row->word, at[i]) ||
        !setting_value_fits(row->type, at[i]))
      return false;
  const char *choice = n && at[0]->kind == VALUE_PATH ? at[0]->path->text : NULL;
  for (uint32_t i = 0; i < setting->values.n && !(row->flags & (SETTING_KEYS | SETTING_FREE));
       i++) {
    const AstPair *pair = &setting->values.at[i];
    if (pair->key && !setting_find_option(check, row->word, choice, pair->key->text)) return false;
  }
  return true;
}

/* ---- lines ---- */

static const char *choice_word(const Check *k, const SettingRow *row, const AstSetting *s);

/* optim adamw lr 6e-4: the option lacks its `=`. */
static void help_option(const Check *check, const SettingRow *row, const AstSetting *setting,
                        const AstValue *value, Report *r) {
  if (value->kind != VALUE_PATH ||
      !setting_find_option(check, row->word, choice_word(check, row, setting), value->path->text))
    return;
  diag_help(r, "an option is written with `=`: `%s = ..`", value->path->text);
  diag_edit(r, (Span){value->span.file, value->span.offset + value->span.length, 0}, " =");
}

/* precision backward = e5m2 fp8: readers take a line's first value. */
static void check_order(const Check *check, const AstSetting *setting, const AstValue *operand) {
  const AstPair *first = &setting->values.at[0];
  if (!first->key) return;
  Report *r = diag_at(check->c->diag, "E0602", operand->span, "a value of `%s` after an option",
                      setting->path->text);
  diag_also(r, first->span, "the option");
  diag_help(r, "values come first: `%s %s %s`", setting->path->text,
            span_text(check->c, operand->span), span_text(check->c, first->span));
}

static void check_operands(const Check *check, const SettingRow *row, const AstSetting *setting) {
  const AstValue **at;
  uint32_t n = setting_operands(check->c, setting, &at);
  const char *what = arena_printf(check->c->arena, "`%s`", row->word);
  for (uint32_t i = 0; i < n && i < (uint32_t)row->most; i++)
    setting_check_value(check, row->type, what, row->word, at[i]);
  if (n && !(row->flags & SETTING_KEYS)) check_order(check, setting, at[0]);
  if (n < (uint32_t)row->least) {
    Report *r = diag_at(check->c->diag, "E0602", setting->path->span, "`%s` takes %s", row->word,
                        setting_type_text(row->type));
    diag_label(r, "nothing follows");
  } else if (n > (uint32_t)row->most) {
    const char *some = row->most == 0   ? "no value of its own"
                       : row->most == 1 ? "one value"
                                        : "fewer values";
    Report *r =
        diag_at(check->c->diag, "E0602", at[row->most]->span, "`%s` takes %s", row->word, some);
    diag_label(r, "one too many");
    if (row->type == TYPE_SOURCE) diag_help(r, "%s", foreign_text(FOREIGN_SETTING, "blend"));
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

/* size Seq = 8, and on another line size Seq = 16 */
static bool on_line_before(const Check *check, const AstSetting *setting, const AstPair *pair,
                           Span *before) {
  const AstBlock *block = check->item->block;
  for (uint32_t i = 0; i < block->settings.n && block->settings.at[i] != setting; i++) {
    const AstSetting *line = block->settings.at[i];
    if (line->path->text != setting->path->text) continue;
    for (uint32_t k = 0; k < line->values.n; k++)
      if (line->values.at[k].key && line->values.at[k].key->text == pair->key->text)
        return *before = line->values.at[k].key->span, true;
  }
  return false;
}

static Report *report_twice(const Check *check, Span at, Span before, const char *what) {
  Report *r = diag_at(check->c->diag, "E0606", at, "`%s` is written twice", what);
  diag_label(r, "the second one");
  diag_also(r, before, "the first one");
  return r;
}

/* A size or mesh axis: a whole number; sizes may be a list of them. */
static void check_key_value(const Check *check, const AstPair *pair, const char *word) {
  const char *what = arena_printf(check->c->arena, "`%s` of `%s`", pair->key->text, word);
  if (!strcmp(word, "size") && pair->value->kind == VALUE_LIST)
    for (uint32_t i = 0; i < pair->value->items.n; i++)
      setting_check_value(check, TYPE_COUNT, what, "", pair->value->items.at[i]);
  else setting_check_value(check, TYPE_COUNT, what, "", pair->value);
}

static void check_option(const Check *check, const SettingRow *row, const AstSetting *setting,
                         uint32_t pair, const char *choice) {
  const AstPair *ast_pair = &setting->values.at[pair];
  const SettingRow *option = setting_find_option(check, row->word, choice, ast_pair->key->text);
  Span before;
  if (setting_quoted_key(check, ast_pair)) return;
  bool keys = row->flags & SETTING_KEYS;
  if (written_before(setting, pair, &before) ||
      (keys && on_line_before(check, setting, ast_pair, &before)))
    report_twice(check, ast_pair->key->span, before, ast_pair->key->text);
  else if (row->flags & SETTING_KEYS) check_key_value(check, ast_pair, row->word);
  else if (row->flags & SETTING_FREE) return;
  else if (!option) unknown_option(check, setting, ast_pair, choice);
  else {
    const char *what = arena_printf(check->c->arena, "`%s` of `%s`", option->key, row->word);
    setting_check_value(check, option->type, what,
                        arena_printf(check->c->arena, "%s.%s", option->word, option->key),
                        ast_pair->value);
  }
}

static bool is_word(const AstPair *pair, const char *word) {
  return !pair->key && pair->value->kind == VALUE_PATH && !strcmp(pair->value->path->text, word);
}

/* Checks the values after `over` and `of`. */
static void check_behind(const Check *check, const SettingRow *row, const AstSetting *setting,
                         const char *choice) {
  for (int of = 0; of < 2; of++) {
    const AstValue **at;
    const char *word = of ? "of" : "over";
    uint32_t n = of ? setting_of(check->c, setting, &at) : setting_over(check->c, setting, &at);
    if (n && !setting_find_option(check, row->word, choice, word))
      diag_at(check->c->diag, "E0601", at[0]->span, "`%s` takes nothing with `%s`", row->word,
              word);
    for (uint32_t i = 0; i < setting->values.n && !n; i++)
      if (is_word(&setting->values.at[i], word))
        diag_label(diag_at(check->c->diag, "E0602", setting->values.at[i].span,
                           "`%s` of `%s` needs names", word, row->word),
                   "nothing follows");
    for (uint32_t i = 0; i < n; i++)
      setting_check_value(check, TYPE_NAMES,
                          arena_printf(check->c->arena, "`%s` of `%s`", word, row->word), "",
                          at[i]);
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
  SettingWords words = setting_words_of(check, ROW_CHOICE, row->word, NULL);
  for (uint32_t i = 0; choice && i < words.n; i++)
    if (!strcmp(words.at[i], choice)) return true;
  return !choice || !words.n;
}

static void check_target(const Check *check, const SettingRow *row, const AstSetting *setting) {
  bool wanted = row->flags & SETTING_ARROW, offload = !strcmp(row->word, "offload");
  if (setting->arrow == ARROW_NONE && wanted) {
    Report *r = diag_at(check->c->diag, "E0602", setting->path->span, "`%s` needs `->` and a place",
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
      diag_at(check->c->diag, "E0602", pair->span, "`%s` needs names after `->`", row->word);
    else if (offload && strcmp(pair->value->path->text, "host")) {
      const char *said = foreign_text(FOREIGN_SETTING, pair->value->path->text);
      Report *r = setting_wrong_value(check, "`offload`", pair->value, "`host` after `->`");
      diag_help(r, "%s", said ? said : "write `host`");
      setting_edit_near(r, pair->value->span, said ? NULL : "host");
    } else if (offload && i) {
      Report *r = diag_at(check->c->diag, "E0606", pair->span, "`offload` names its place twice");
      diag_also(r, setting->target.at[0].span, "the first one");
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

/* Written before, in a line that is no group's. */
static const AstSetting *earlier_line(const AstItem *item, uint32_t at) {
  const AstBlock *block = item->block;
  for (uint32_t i = 0; i < at && !setting_is_group(item, block->settings.at[at]); i++)
    if (block->settings.at[i]->path->text == block->settings.at[at]->path->text &&
        block->settings.at[i]->arrow != ARROW_LEFT &&
        !setting_is_group(item, block->settings.at[i]))
      return block->settings.at[i];
  return NULL;
}

/* A misspelt line was reported already; that the right one is missing need not be said too. */
static bool meant_by_another(const Check *check, const char *word) {
  SettingWords words = setting_words_of(check, ROW_LINE, "", NULL);
  for (uint32_t i = 0; i < check->item->block->settings.n; i++) {
    const AstSetting *setting = check->item->block->settings.at[i];
    if (setting_find_line(check, setting->path->text)) continue;
    Meant right =
        meant(&(Unknown){check, setting, NULL, NULL, words}); /* its help names the word */
    if (right.word && !strcmp(right.word, word)) return true;
    if (right.text && strstr(right.text, arena_printf(check->c->arena, "`%s", word))) return true;
  }
  return false;
}

static bool has_group(const Check *check, const char *word) {
  const SettingGroup *group;
  return settings_groups(check->c, check->item, word, &group) > 0;
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
    if (row->flags & SETTING_GROUPS && has_group(check, row->word))
      diag_help(r, "a line without `of`, for the parameters that no other line names");
    else diag_help(r, "`%s`: %s", row->word, row->help);
  }
}

static void help_again(Report *r, const SettingRow *row) {
  if (row->flags & SETTING_GROUPS)
    diag_help(r, "a line for some parameters names them: `%s .. of NAME, ..`", row->word);
}

bool settings_check(Ctx *c, const AstItem *item) {
  Check check = {.c = c, .item = item};
  uint32_t before = diag_errors(c->diag);
  check.rows = settings_table(&check.nrows);
  for (uint32_t i = 0; item->block && i < item->block->settings.n; i++) {
    const AstSetting *setting = item->block->settings.at[i], *first;
    const SettingRow *row = setting_find_line(&check, setting->path->text);
    if (item->kind == ITEM_WEIGHTS && setting->arrow == ARROW_LEFT) continue;
    if (!row) unknown_line(&check, setting);
    else if (!(row->flags & SETTING_MANY) && (first = earlier_line(item, i)))
      help_again(report_twice(&check, setting->path->span, first->path->span, row->word), row);
    else check_line(&check, row, setting);
  }
  if (!item->bad) check_missing(&check);
  if (diag_errors(c->diag) == before) settings_check_limits(c, item);
  return diag_errors(c->diag) == before;
}
