/* Values of a settings block against the table settings.def: type, unit, range, choice (E0602),
   with help that writes the right one. Must not: know which lines and options there are to be. */
#include "frontend/syntax/foreign_words.h"
#include "settings_values.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

/* ---- rows ---- */

const SettingRow *setting_find_line(const Check *check, const char *word) {
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

const SettingRow *setting_find_option(const Check *check, const char *word, const char *choice,
                                      const char *key) {
  for (uint32_t i = 0; i < check->nrows; i++)
    if (option_of(check, &check->rows[i], word, choice) && !strcmp(check->rows[i].key, key))
      return &check->rows[i];
  return NULL;
}

SettingWords setting_words_of(const Check *check, SettingRowKind kind, const char *word,
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

const char *setting_words_text(const Check *check, const SettingWords *words, const char *between,
                               uint32_t most) {
  const char *text = words->n ? words->at[0] : "";
  for (uint32_t i = 1; i < words->n && i < most; i++)
    text = arena_printf(check->c->arena, "%s%s%s", text, between, words->at[i]);
  return words->n > most ? arena_printf(check->c->arena, "%s%s...", text, between) : text;
}

/* ---- E0602 ---- */

void setting_edit_near(Report *r, Span at, const char *near) {
  if (near) diag_edit(r, at, "%s", near);
}

static const char *shown(const Check *check, Span s) {
  const char *text = span_text(check->c, s);
  return strlen(text) > 40 || strchr(text, '\n') ? NULL : text;
}

Report *setting_wrong_value(const Check *check, const char *what, const AstValue *value,
                            const char *wanted) {
  const char *found = shown(check, value->span);
  Report *r = found ? diag_at(check->c->diag, "E0602", value->span, "%s takes %s, found `%s`", what,
                              wanted, found)
                    : diag_at(check->c->diag, "E0602", value->span, "%s takes %s", what, wanted);
  if (value->kind == VALUE_NUMBER && value->number.unit != UNIT_NONE)
    diag_label(r, "in %s",
               value->number.unit == UNIT_SHARE ? "percent" : ast_unit_name(value->number.unit));
  return r;
}

/* sm_60 is no slip for sm_80. */
static bool other_number(const char *a, const char *b) {
  a = strpbrk(a, "0123456789"), b = strpbrk(b, "0123456789");
  return a && b && strtol(a, NULL, 10) != strtol(b, NULL, 10);
}

/* `mesh` takes axes, or a word. */
static bool takes_names(const Check *check, const char *choices) {
  const SettingRow *line = strchr(choices, '.') ? NULL : setting_find_line(check, choices);
  return line && line->flags & SETTING_KEYS;
}

static Meant meant_choice(const Check *check, const AstValue *value, const char *choices,
                          const SettingWords *words) {
  bool option = strchr(choices, '.');
  if (value->kind == VALUE_NUMBER && !option)
    return (Meant){.text = settings_option_named(check->c, check->item->kind, choices)};
  if (value->kind != VALUE_PATH) return (Meant){0};
  const char *wrong = value->path->text, *text = foreign_text(FOREIGN_SETTING, wrong);
  if (text) return (Meant){.text = text};
  const char *name = foreign_name(wrong, words->at, words->n);
  const char *near = name ? name : diag_spelt(wrong, words->at, words->n);
  if (near && other_number(wrong, near)) near = NULL;
  if (!near && takes_names(check, choices))
    return (Meant){.text = arena_printf(check->c->arena, "with a number: `%s = 2`", wrong)};
  if (!near && words->n == 1) near = words->at[0];
  return (Meant){.word = near};
}

static const char *choices_text(const Check *check, const char *choices,
                                const SettingWords *words) {
  const char *text = words->n == 1 ? arena_printf(check->c->arena, "`%s`", words->at[0])
                                   : arena_printf(check->c->arena, "one of %s",
                                                  setting_words_text(check, words, ", ", 12));
  return takes_names(check, choices)
             ? arena_printf(check->c->arena, "names with numbers, or %s", text)
             : text;
}

static void wrong_choice(const Check *check, const char *what, const AstValue *value,
                         const char *choices) {
  SettingWords words = setting_words_of(check, ROW_CHOICE, choices, NULL);
  Meant meant = meant_choice(check, value, choices, &words);
  Report *r = setting_wrong_value(check, what, value, choices_text(check, choices, &words));
  if (meant.text) diag_help(r, "%s", meant.text);
  if (meant.word) diag_help(r, "write `%s`", meant.word);
  setting_edit_near(r, value->span, meant.word);
}

static bool whole_number(const AstNumber *number, double least) {
  return number->integer && number->unit == UNIT_NONE && number->value >= least;
}

/* Kernels have numbers in 32 bits, where 1e39 is infinite and 1e-60 is 0. */
static bool in_f32(const AstNumber *number) {
  double size = fabs(number->value);
  return number->unit == UNIT_NONE && size <= FLT_MAX && (size == 0 || size >= FLT_MIN);
}

/* Passes multiply such numbers; the verifier has the same limits (check_settings). */
static const double MOST_COUNT = 1e15, MOST_BYTES = 1e18, MOST_SECONDS = 1e10; /* 317 years */
static const double LEAST_RATE = 1, MOST_RATE = 1e24; /* whose times and products are finite */

static bool is_rate(const AstNumber *number) {
  return number->value >= LEAST_RATE && number->value <= MOST_RATE;
}

static bool number_fits(SettingType type, const AstNumber *number) {
  switch (type) {
  case TYPE_COUNT: return whole_number(number, 1) && number->value <= MOST_COUNT;
  case TYPE_INTEGER: return whole_number(number, 0);
  case TYPE_STAGE: return whole_number(number, 0) && number->value <= 3;
  case TYPE_NUMBER:
  case TYPE_NUMBERS: return in_f32(number);
  case TYPE_POSITIVE: return in_f32(number) && number->value > 0;
  case TYPE_AT_LEAST_0: return in_f32(number) && number->value >= 0;
  case TYPE_PAIR: /* of each */
  case TYPE_BELOW_1: return in_f32(number) && number->value >= 0 && (float)number->value < 1;
  case TYPE_SHARE:
  case TYPE_VALID:
    return (number->unit == UNIT_NONE || number->unit == UNIT_SHARE) && number->value >= 0 &&
           number->value <= 1;
  case TYPE_STEPS:
    return whole_number(number, 1) || ((number->unit == UNIT_NONE || number->unit == UNIT_SHARE) &&
                                       number->value > 0 && number->value < 1);
  case TYPE_BYTES:
    return (number->unit == UNIT_BYTES || whole_number(number, 0)) && number->value >= 0 &&
           number->value < MOST_BYTES;
  case TYPE_AHEAD:
    return whole_number(number, 0) ||
           (number->unit == UNIT_BYTES && number_fits(TYPE_BYTES, number));
  case TYPE_RATE: return number->unit == UNIT_BYTES_PER_SECOND && is_rate(number);
  case TYPE_FLOPS: return number->unit == UNIT_FLOPS && is_rate(number);
  case TYPE_SECONDS:
    return number->unit == UNIT_SECONDS && number->value >= 0 && number->value <= MOST_SECONDS;
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

bool setting_value_fits(SettingType type, const AstValue *value) {
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

static bool is_no_number(const AstValue *value) {
  static const char *const words[] = {"nan", "inf", "infinity"};
  for (size_t i = 0; value->kind == VALUE_PATH && i < sizeof words / sizeof *words; i++)
    if (!strcasecmp(value->path->text, words[i])) return true;
  return false;
}

/* blend(..), a list of files, and other words of other tools */
static const char *said_of_value(SettingType type, const AstValue *value) {
  if (is_no_number(value)) return "numbers of settings are finite";
  if (value->kind == VALUE_LIST && type == TYPE_SOURCE)
    return foreign_text(FOREIGN_SETTING, "blend");
  return value->kind == VALUE_PATH || value->kind == VALUE_CALL
             ? foreign_text(FOREIGN_SETTING, value->path->text)
             : NULL;
}

/* yes for on; 40GB/s where bytes are wanted, or the other way round; "512" for 512. */
static void help_value(const Check *check, SettingType type, const char *line,
                       const AstValue *value, Report *r) {
  static const char *const switches[] = {"on", "off"};
  const char *text = span_text(check->c, value->span), *with = NULL;
  size_t n = strlen(text);
  if (type == TYPE_SWITCH) {
    with = value->kind == VALUE_PATH ? foreign_name(text, switches, 2) : NULL;
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
  bool number = value->kind == VALUE_NUMBER && value->number.unit == UNIT_NONE;
  if (number && value->number.value != 0 && !in_f32(&value->number))
    diag_help(r, "in 32 bits it is %s", fabs(value->number.value) > 1 ? "infinite" : "0");
  else if (number && value->number.value < 1 && (float)value->number.value >= 1)
    diag_help(r, "in 32 bits it is 1");
  if (type == TYPE_COUNT && value->kind == VALUE_NUMBER && value->number.value > MOST_COUNT)
    diag_help(r, "10^15 at most");
  if (type == TYPE_BYTES && value->kind == VALUE_NUMBER && value->number.value >= MOST_BYTES)
    diag_help(r, "less than 10^18 bytes");
  if (type == TYPE_SECONDS && value->kind == VALUE_NUMBER && value->number.value > MOST_SECONDS)
    diag_help(r, "10^10 s at most");
  if (type == TYPE_RATE && value->kind == VALUE_NUMBER && value->number.value <= 0)
    diag_help(r, "more than 0, or leave it out: then no time is told");
  else if ((type == TYPE_RATE || type == TYPE_FLOPS) && value->kind == VALUE_NUMBER &&
           value->number.unit == (type == TYPE_RATE ? UNIT_BYTES_PER_SECOND : UNIT_FLOPS))
    diag_help(r, "1 to 10^24 a second");
  const char *said = with                ? NULL
                     : type == TYPE_NAME ? foreign_option_text(line, "name")
                                         : said_of_value(type, value);
  if (said) diag_help(r, "%s", said);
  else if (!with && value->kind == VALUE_PATH && (type == TYPE_SOURCE || type == TYPE_STRING))
    with = arena_printf(check->c->arena, "\"%s\"", text);
  if (!with || !*with) return;
  diag_help(r, "write `%s`", with);
  diag_edit(r, value->span, "%s", with);
}

/* Is it one of the choices, where there are any? */
bool setting_choice_fits(const Check *check, SettingType type, const char *choices,
                         const AstValue *value) {
  SettingWords words = setting_words_of(check, ROW_CHOICE, choices, NULL);
  bool listed = words.n == 0 || value->kind != VALUE_PATH;
  for (uint32_t i = 0; !listed && i < words.n; i++)
    listed = !strcmp(words.at[i], value->path->text);
  return listed && !(words.n && type == TYPE_WORD && value->kind != VALUE_PATH);
}

void setting_check_value(const Check *check, SettingType type, const char *what,
                         const char *choices, const AstValue *value) {
  if (!setting_choice_fits(check, type, choices, value)) wrong_choice(check, what, value, choices);
  else if (!setting_value_fits(type, value))
    help_value(check, type, choices, value,
               setting_wrong_value(check, what, value, setting_type_text(type)));
  else if (value->kind == VALUE_CALL)
    for (uint32_t i = 0; i < value->args.n; i++) setting_quoted_key(check, &value->args.at[i]);
}

bool setting_quoted_key(const Check *check, const AstPair *pair) {
  if (!pair->key || pair->key->parts.n) return false;
  Report *r = diag_at(check->c->diag, "E0602", pair->key->span,
                      "a name is expected before `=`, found a string");
  diag_help(r, "without quotes: `%s = ..`", pair->key->text);
  diag_edit(r, pair->key->span, "%s", pair->key->text);
  return true;
}
