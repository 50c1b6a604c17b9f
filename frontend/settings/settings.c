/* The settings table and the reading of checked blocks. Checking is in settings_check.c. */
#include "settings.h"
#include "ir/support/num.h"
#include <math.h>
#include <stdlib.h>

#define NEEDED SETTING_NEEDED
#define MANY SETTING_MANY
#define KEYS SETTING_KEYS
#define ARROW SETTING_ARROW
#define FREE SETTING_FREE
#define GROUPS SETTING_GROUPS
static const SettingRow rows[] = {
#define LINE(block, word, type, least, most, flags, otherwise, help)                               \
  {ROW_LINE, ITEM_##block, #word, NULL, TYPE_##type, least, most, flags, otherwise, help},
#define OPTION(block, word, key, type, otherwise, help)                                            \
  {ROW_OPTION, ITEM_##block, #word, #key, TYPE_##type, 1, 1, 0, otherwise, help},
#define CHOICE(block, word, value, help)                                                           \
  {ROW_CHOICE, ITEM_##block, #word, #value, TYPE_WORD, 1, 1, 0, "", help},
#define PLANNED(block, word, key, value, what)
#include "settings.def"
#undef LINE
#undef OPTION
#undef CHOICE
#undef PLANNED
};

static const PlannedRow planned[] = {
#define LINE(block, word, type, least, most, flags, otherwise, help)
#define OPTION(block, word, key, type, otherwise, help)
#define CHOICE(block, word, value, help)
#define PLANNED(block, word, key, value, what) {ITEM_##block, word, key, value, what},
#include "settings.def"
};

const PlannedRow *settings_planned(uint32_t *n) {
  *n = sizeof planned / sizeof *planned;
  return planned;
}

const PlannedRow *settings_planned_row(AstItemKind block, const char *word, const char *key) {
  for (size_t i = 0; i < sizeof planned / sizeof *planned; i++) {
    const PlannedRow *p = &planned[i];
    bool same_key = p->key && key ? !strcmp(p->key, key) : !p->key;
    if (p->block == block && !strcmp(p->word, word) && same_key && (p->key || !key || !p->value))
      return p;
  }
  return NULL;
}

static const char *value_word(const AstValue *value) {
  if (value->kind == VALUE_PATH) return value->path->text;
  return value->kind == VALUE_NUMBER && value->number.text ? value->number.text : "";
}

bool settings_plans(const PlannedRow *p, const char *word) {
  size_t n = strlen(word);
  for (const char *at = p->value; at && n; at = strchr(at, '|')) {
    at += *at == '|';
    if (!strncmp(at, word, n) && (!at[n] || at[n] == '|')) return true;
  }
  return false;
}

bool settings_asks(const PlannedRow *p, const AstValue *value) {
  if (!p->value) return true;
  if (!value) return false;
  return p->value[0] == '!' ? strcmp(value_word(value), p->value + 1) != 0
                            : settings_plans(p, value_word(value));
}

const SettingRow *settings_table(uint32_t *n) {
  *n = sizeof rows / sizeof *rows;
  return rows;
}

const char *setting_type_text(SettingType t) {
  static const char *const texts[] = {
      "nothing",
      "a whole number of at least 1",
      "a whole number",
      "a number",
      "a number above 0",
      "a number of at least 0",
      "a number from 0 to below 1",
      "a share: 0 to 1, or a percentage",
      "a number of steps or a share of all, above 0 and below 100%, or auto",
      "a stage: 0, 1, 2 or 3",
      "a number of bytes, such as 25MiB",
      "a number of layers, or of bytes, such as 512MiB",
      "bytes per second, such as 300GB/s",
      "operations per second, such as 312TFLOPS",
      "a time, such as 20us",
      "`on` or `off`",
      "a word",
      "a name",
      "names",
      "names",
      "a string in double quotes",
      "a number or a list of numbers",
      "a list of two numbers from 0 to below 1",
      "a string in double quotes or `columns(..)`",
      "a string in double quotes, `columns(..)` or a share",
      "`next(a -> b)` or `mlm(a -> b)`",
      "`all`, `input`, `none`, `auto` or a list of names",
  };
  _Static_assert(COUNT_OF(texts) == TYPE_KEEP + 1, "words per SettingType");
  return texts[t];
}

/* ---- lines and values ---- */

static bool has_word(const AstSetting *setting, const char *word) {
  for (uint32_t i = 0; i < setting->values.n; i++) {
    const AstPair *pair = &setting->values.at[i];
    if (!pair->key && pair->value->kind == VALUE_PATH && !strcmp(pair->value->path->text, word))
      return true;
  }
  return false;
}

bool setting_is_group(const AstItem *item, const AstSetting *setting) {
  for (size_t i = 0; has_word(setting, "of") && i < COUNT_OF(rows); i++)
    if (rows[i].flags & SETTING_GROUPS && rows[i].block == item->kind &&
        !strcmp(rows[i].word, setting->path->text))
      return true;
  return false;
}

const AstSetting *settings_line(const AstItem *item, const char *word) {
  const AstSetting *found = NULL;
  for (uint32_t i = 0; item && item->block && i < item->block->settings.n; i++) {
    const AstSetting *setting = item->block->settings.at[i];
    if (setting->arrow != ARROW_LEFT && !strcmp(setting->path->text, word) &&
        !setting_is_group(item, setting))
      found = setting;
  }
  return found;
}

const AstValue *setting_option(const AstSetting *setting, const char *key) {
  for (uint32_t i = 0; setting && i < setting->values.n; i++)
    if (setting->values.at[i].key && !strcmp(setting->values.at[i].key->text, key))
      return setting->values.at[i].value;
  return NULL;
}

bool settings_is_word(const AstValue *value, const char *word) {
  return value && value->kind == VALUE_PATH && !strcmp(value->path->text, word);
}

/* Words that separate two lists of bare values. */
static const char *const separator_words[] = {"over", "of"};

static const char *separator_of(const AstPair *pair) {
  if (pair->key || pair->value->kind != VALUE_PATH) return NULL;
  for (size_t i = 0; i < COUNT_OF(separator_words); i++)
    if (!strcmp(pair->value->path->text, separator_words[i])) return separator_words[i];
  return NULL;
}

/* word NULL: before all such words. */
static uint32_t bare_values(Ctx *c, const AstSetting *setting, const char *word,
                            const AstValue ***out) {
  VEC(const AstValue *) found = {0};
  const char *after = NULL;
  for (uint32_t i = 0; setting && i < setting->values.n; i++) {
    const AstPair *pair = &setting->values.at[i];
    bool asked = word ? after && !strcmp(after, word) : !after;
    if (separator_of(pair)) after = separator_of(pair);
    else if (!pair->key && asked) vec_push(c->arena, found, pair->value);
  }
  *out = found.at;
  return found.n;
}

uint32_t setting_operands(Ctx *c, const AstSetting *setting, const AstValue ***out) {
  return bare_values(c, setting, NULL, out);
}
uint32_t setting_over(Ctx *c, const AstSetting *setting, const AstValue ***out) {
  return bare_values(c, setting, "over", out);
}
uint32_t setting_of(Ctx *c, const AstSetting *setting, const AstValue ***out) {
  return bare_values(c, setting, "of", out);
}

/* The line without `of` and names. */
static AstSetting *without_of(Ctx *c, const AstSetting *line) {
  AstSetting *alone = ARENA_NEW(c->arena, AstSetting);
  const char *after = NULL;
  *alone = *line, alone->values = (AstPairs){0};
  for (uint32_t i = 0; i < line->values.n; i++) {
    const AstPair *pair = &line->values.at[i];
    if (separator_of(pair)) after = separator_of(pair);
    if (pair->key || !after || strcmp(after, "of") != 0) vec_push(c->arena, alone->values, *pair);
  }
  return alone;
}

static const AstItem *with_group(Ctx *c, const AstItem *item, const AstSetting *line) {
  AstItem *copy = ARENA_NEW(c->arena, AstItem);
  AstBlock *block = ARENA_NEW(c->arena, AstBlock);
  *copy = *item, copy->block = block, block->span = item->block->span;
  for (uint32_t i = 0; i < item->block->settings.n; i++) {
    AstSetting *other = item->block->settings.at[i];
    if (other == line) vec_push(c->arena, block->settings, without_of(c, line));
    else if (strcmp(other->path->text, line->path->text) != 0)
      vec_push(c->arena, block->settings, other);
  }
  return copy;
}

uint32_t settings_groups(Ctx *c, const AstItem *item, const char *word, const SettingGroup **out) {
  VEC(SettingGroup) found = {0};
  for (uint32_t i = 0; item && item->block && i < item->block->settings.n; i++) {
    const AstSetting *line = item->block->settings.at[i];
    if (strcmp(line->path->text, word) != 0 || !setting_is_group(item, line)) continue;
    SettingGroup group = {.item = with_group(c, item, line)};
    group.paths = setting_of(c, line, &group.path);
    vec_push(c->arena, found, group);
  }
  *out = found.at;
  return found.n;
}

static const AstValue *first_operand(const AstSetting *setting) {
  if (!setting || !setting->values.n || setting->values.at[0].key ||
      separator_of(&setting->values.at[0]))
    return NULL;
  return setting->values.at[0].value;
}

const AstValue *settings_value(const AstItem *item, const char *word, const char *key) {
  const AstSetting *setting = settings_line(item, word);
  return key ? setting_option(setting, key) : first_operand(setting);
}

bool settings_has(const AstItem *item, const char *word, const char *key) {
  return settings_value(item, word, key) != NULL;
}

/* ---- with defaults ---- */

/* The operand of a line of type WORD, as written or by default; "" for others. */
static const char *choice_of(const AstItem *item, AstItemKind kind, const char *word) {
  const AstValue *value = settings_value(item, word, NULL);
  if (value && value->kind == VALUE_PATH) return value->path->text;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].kind == ROW_LINE && rows[i].block == kind && !strcmp(rows[i].word, word))
      return rows[i].otherwise;
  return "";
}

/* `optim.adamw` for the word `optim` if adamw was chosen. */
static bool belongs_to(const char *row_word, const char *word, const char *choice) {
  size_t n = strlen(word);
  if (strncmp(row_word, word, n)) return false;
  return !row_word[n] || (row_word[n] == '.' && !strcmp(row_word + n + 1, choice));
}

static const char *default_text(const AstItem *item, AstItemKind kind, const char *word,
                                const char *key) {
  const char *choice = choice_of(item, kind, word);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const SettingRow *row = &rows[i];
    if (row->block != kind || row->kind == ROW_CHOICE || (row->key == NULL) != (key == NULL))
      continue;
    if (belongs_to(row->word, word, choice) && (!key || !strcmp(row->key, key)))
      return row->otherwise;
  }
  return "";
}

static double number_of_text(const char *text) {
  AstNumber number;
  return ast_number_unit(text, strcspn(text, " "), &number) ? number.value : 0;
}

double settings_number(const AstItem *item, AstItemKind kind, const char *word, const char *key) {
  const AstValue *value = settings_value(item, word, key);
  if (value) return value->kind == VALUE_NUMBER ? value->number.value : 0;
  return number_of_text(default_text(item, kind, word, key));
}

int64_t settings_integer(const AstItem *item, AstItemKind kind, const char *word, const char *key) {
  const AstValue *value = settings_value(item, word, key);
  if (value && value->kind == VALUE_NUMBER && value->number.integer) return value->number.integral;
  return (int64_t)settings_number(item, kind, word, key);
}

Str settings_word(Ctx *c, const AstItem *item, AstItemKind kind, const char *word,
                  const char *key) {
  const AstValue *value = settings_value(item, word, key);
  if (value)
    return value->kind == VALUE_PATH     ? value->path->text
           : value->kind == VALUE_STRING ? value->string
                                         : NULL;
  const char *text = default_text(item, kind, word, key);
  return *text ? intern(c->names, text) : NULL;
}

bool settings_on(const AstItem *item, AstItemKind kind, const char *word, const char *key) {
  const AstValue *value = settings_value(item, word, key);
  if (value) return value->kind == VALUE_PATH && !strcmp(value->path->text, "on");
  return !strcmp(default_text(item, kind, word, key), "on");
}

static uint32_t numbers_of_text(const char *text, double *out, uint32_t most) {
  uint32_t n = 0;
  for (; *text && n < most; text += strcspn(text, " "), text += *text == ' ')
    out[n++] = number_of_text(text);
  return n;
}

uint32_t settings_numbers(const AstItem *train, const char *word, const char *key, double *out,
                          uint32_t most) {
  const AstValue *value = settings_value(train, word, key);
  uint32_t n = 0;
  if (!value) return numbers_of_text(default_text(train, ITEM_TRAIN, word, key), out, most);
  if (value->kind == VALUE_NUMBER && most) out[n++] = value->number.value;
  for (uint32_t i = 0; value->kind == VALUE_LIST && i < value->items.n && n < most; i++)
    out[n++] = value->items.at[i]->number.value;
  return n;
}

/* ---- all of a block, as text ---- */

/* Bytes are whole: 13.57MiB loses a part of one. Else the fewest digits that read back to the same
   number. */
static const char *number_text(Ctx *c, const AstNumber *number) {
  char text[32];
  if (number->integer) return arena_printf(c->arena, "%lld", (long long)number->integral);
  if (number->unit == UNIT_BYTES) return arena_printf(c->arena, "%.0f", floor(number->value));
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, number->value);
    if (strtod(text, NULL) == number->value) break;
  }
  return arena_printf(c->arena, "%s", text);
}

const char *setting_value_text(Ctx *c, const AstValue *value) {
  if (value->kind == VALUE_NUMBER) return number_text(c, &value->number);
  if (value->kind == VALUE_STRING) return value->string;
  if (value->kind == VALUE_PATH) return value->path->text;
  if (value->kind != VALUE_LIST) return NULL;
  const char *text = "";
  for (uint32_t i = 0; i < value->items.n; i++) {
    const char *item = setting_value_text(c, value->items.at[i]);
    if (item) text = arena_printf(c->arena, "%s%s%s", text, i ? " " : "", item);
  }
  return text;
}

static const char *default_value(Ctx *c, const char *text) {
  AstNumber number;
  return !strchr(text, ' ') && ast_number_unit(text, strlen(text), &number)
             ? number_text(c, &number)
             : text;
}

static bool resolved_elsewhere(const SettingRow *row) {
  return row->kind == ROW_CHOICE || row->type == TYPE_NOTHING || row->type == TYPE_SOURCE ||
         row->type == TYPE_VALID || row->type == TYPE_TASK || row->type == TYPE_PATHS ||
         row->type == TYPE_NAMES || (row->flags & SETTING_MANY);
}

static void resolve_row(Ctx *c, const AstItem *item, const SettingRow *row, SettingSink *sink,
                        void *data) {
  char word[32];
  snprintf(word, sizeof word, "%.*s", (int)strcspn(row->word, "."), row->word);
  if (row->key && !belongs_to(row->word, word, choice_of(item, row->block, word))) return;
  const AstValue *ast_value = settings_value(item, word, row->key);
  const char *value =
      ast_value ? setting_value_text(c, ast_value) : default_value(c, row->otherwise);
  bool bytes = ast_value && ast_value->kind == VALUE_NUMBER && ast_value->number.unit == UNIT_BYTES;
  if (row->type == TYPE_AHEAD && bytes) value = arena_printf(c->arena, "%s bytes", value);
  if (!value || !*value) return;
  const char *block = ast_item_word(row->block), *dot = row->key ? "." : "";
  sink(data, arena_printf(c->arena, "%s.%s%s%s", block, word, dot, row->key ? row->key : ""),
       value);
}

void settings_resolve(Ctx *c, const AstItem *item, AstItemKind kind, SettingSink *sink,
                      void *data) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].block == kind && !resolved_elsewhere(&rows[i]))
      resolve_row(c, item, &rows[i], sink, data);
}
