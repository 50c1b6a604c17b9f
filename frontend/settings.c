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

static const char *value_word(const AstValue *v) {
  if (v->kind == VALUE_PATH) return v->path->text;
  return v->kind == VALUE_NUMBER && v->number.text ? v->number.text : "";
}

bool settings_plans(const PlannedRow *p, const char *word) {
  size_t n = strlen(word);
  for (const char *at = p->value; at && n; at = strchr(at, '|')) {
    at += *at == '|';
    if (!strncmp(at, word, n) && (!at[n] || at[n] == '|')) return true;
  }
  return false;
}

bool settings_asks(const PlannedRow *p, const AstValue *v) {
  if (!p->value) return true;
  if (!v) return false;
  return p->value[0] == '!' ? strcmp(value_word(v), p->value + 1) != 0
                            : settings_plans(p, value_word(v));
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
      "a number of steps, a share of all below 100%, or auto",
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

const AstSetting *settings_line(const AstItem *item, const char *word) {
  const AstSetting *found = NULL;
  for (uint32_t i = 0; item && item->block && i < item->block->settings.n; i++) {
    const AstSetting *s = item->block->settings.at[i];
    if (s->arrow != ARROW_LEFT && !strcmp(s->path->text, word)) found = s;
  }
  return found;
}

const AstValue *setting_option(const AstSetting *s, const char *key) {
  for (uint32_t i = 0; s && i < s->values.n; i++)
    if (s->values.at[i].key && !strcmp(s->values.at[i].key->text, key))
      return s->values.at[i].value;
  return NULL;
}

static bool is_over(const AstPair *p) {
  return !p->key && p->value->kind == VALUE_PATH && !strcmp(p->value->path->text, "over");
}

static uint32_t bare_values(Ctx *c, const AstSetting *s, bool over, const AstValue ***out) {
  VEC(const AstValue *) found = {0};
  bool behind = false;
  for (uint32_t i = 0; s && i < s->values.n; i++) {
    const AstPair *p = &s->values.at[i];
    if (is_over(p)) behind = true;
    else if (!p->key && behind == over) vec_push(c->arena, found, p->value);
  }
  *out = found.at;
  return found.n;
}

uint32_t setting_operands(Ctx *c, const AstSetting *s, const AstValue ***out) {
  return bare_values(c, s, false, out);
}
uint32_t setting_over(Ctx *c, const AstSetting *s, const AstValue ***out) {
  return bare_values(c, s, true, out);
}

static const AstValue *first_operand(const AstSetting *s) {
  if (!s || !s->values.n || s->values.at[0].key || is_over(&s->values.at[0])) return NULL;
  return s->values.at[0].value;
}

const AstValue *settings_value(const AstItem *item, const char *word, const char *key) {
  const AstSetting *s = settings_line(item, word);
  return key ? setting_option(s, key) : first_operand(s);
}

bool settings_has(const AstItem *item, const char *word, const char *key) {
  return settings_value(item, word, key) != NULL;
}

/* ---- with defaults ---- */

/* The operand of a line of type WORD, as written or by default; "" for others. */
static const char *choice_of(const AstItem *item, AstItemKind kind, const char *word) {
  const AstValue *v = settings_value(item, word, NULL);
  if (v && v->kind == VALUE_PATH) return v->path->text;
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
    const SettingRow *r = &rows[i];
    if (r->block != kind || r->kind == ROW_CHOICE || (r->key == NULL) != (key == NULL)) continue;
    if (belongs_to(r->word, word, choice) && (!key || !strcmp(r->key, key))) return r->otherwise;
  }
  return "";
}

static double number_of_text(const char *text) {
  AstNumber n;
  return ast_number_unit(text, strcspn(text, " "), &n) ? n.value : 0;
}

double settings_number(const AstItem *item, AstItemKind kind, const char *word, const char *key) {
  const AstValue *v = settings_value(item, word, key);
  if (v) return v->kind == VALUE_NUMBER ? v->number.value : 0;
  return number_of_text(default_text(item, kind, word, key));
}

int64_t settings_integer(const AstItem *item, AstItemKind kind, const char *word, const char *key) {
  const AstValue *v = settings_value(item, word, key);
  if (v && v->kind == VALUE_NUMBER && v->number.integer) return v->number.integral;
  return (int64_t)settings_number(item, kind, word, key);
}

Str settings_word(Ctx *c, const AstItem *item, AstItemKind kind, const char *word,
                  const char *key) {
  const AstValue *v = settings_value(item, word, key);
  if (v) return v->kind == VALUE_PATH ? v->path->text : v->kind == VALUE_STRING ? v->string : NULL;
  const char *text = default_text(item, kind, word, key);
  return *text ? intern(c->names, text) : NULL;
}

bool settings_on(const AstItem *item, AstItemKind kind, const char *word, const char *key) {
  const AstValue *v = settings_value(item, word, key);
  if (v) return v->kind == VALUE_PATH && !strcmp(v->path->text, "on");
  return !strcmp(default_text(item, kind, word, key), "on");
}

static uint32_t numbers_of_text(const char *text, double *out, uint32_t most) {
  uint32_t n = 0;
  for (; *text && n < most; text += strcspn(text, " "), text += *text == ' ')
    out[n++] = number_of_text(text);
  return n;
}

uint32_t settings_numbers(const AstItem *item, AstItemKind kind, const char *word, const char *key,
                          double *out, uint32_t most) {
  const AstValue *v = settings_value(item, word, key);
  uint32_t n = 0;
  if (!v) return numbers_of_text(default_text(item, kind, word, key), out, most);
  if (v->kind == VALUE_NUMBER && most) out[n++] = v->number.value;
  for (uint32_t i = 0; v->kind == VALUE_LIST && i < v->items.n && n < most; i++)
    out[n++] = v->items.at[i]->number.value;
  return n;
}

/* ---- all of a block, as text ---- */

/* Bytes are whole: 13.57MiB loses a part of one. Else the fewest digits that read back to the same
   number. */
static const char *number_text(Ctx *c, const AstNumber *n) {
  char text[32];
  if (n->integer) return arena_printf(c->arena, "%lld", (long long)n->integral);
  if (n->unit == UNIT_BYTES) return arena_printf(c->arena, "%.0f", floor(n->value));
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, n->value);
    if (strtod(text, NULL) == n->value) break;
  }
  return arena_printf(c->arena, "%s", text);
}

const char *setting_value_text(Ctx *c, const AstValue *v) {
  if (v->kind == VALUE_NUMBER) return number_text(c, &v->number);
  if (v->kind == VALUE_STRING) return v->string;
  if (v->kind == VALUE_PATH) return v->path->text;
  if (v->kind != VALUE_LIST) return NULL;
  const char *text = "";
  for (uint32_t i = 0; i < v->items.n; i++) {
    const char *item = setting_value_text(c, v->items.at[i]);
    if (item) text = arena_printf(c->arena, "%s%s%s", text, i ? " " : "", item);
  }
  return text;
}

static const char *default_value(Ctx *c, const char *text) {
  AstNumber n;
  return !strchr(text, ' ') && ast_number_unit(text, strlen(text), &n) ? number_text(c, &n) : text;
}

static bool resolved_elsewhere(const SettingRow *r) {
  return r->kind == ROW_CHOICE || r->type == TYPE_NOTHING || r->type == TYPE_SOURCE ||
         r->type == TYPE_VALID || r->type == TYPE_TASK || r->type == TYPE_PATHS ||
         r->type == TYPE_NAMES || (r->flags & SETTING_MANY);
}

static void resolve_row(Ctx *c, const AstItem *item, const SettingRow *r, SettingSink *sink,
                        void *data) {
  char word[32];
  snprintf(word, sizeof word, "%.*s", (int)strcspn(r->word, "."), r->word);
  if (r->key && !belongs_to(r->word, word, choice_of(item, r->block, word))) return;
  const AstValue *v = settings_value(item, word, r->key);
  const char *value = v ? setting_value_text(c, v) : default_value(c, r->otherwise);
  bool bytes = v && v->kind == VALUE_NUMBER && v->number.unit == UNIT_BYTES;
  if (r->type == TYPE_AHEAD && bytes) value = arena_printf(c->arena, "%s bytes", value);
  if (!value || !*value) return;
  const char *block = ast_item_word(r->block), *dot = r->key ? "." : "";
  sink(data, arena_printf(c->arena, "%s.%s%s%s", block, word, dot, r->key ? r->key : ""), value);
}

void settings_resolve(Ctx *c, const AstItem *item, AstItemKind kind, SettingSink *sink,
                      void *data) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].block == kind && !resolved_elsewhere(&rows[i]))
      resolve_row(c, item, &rows[i], sink, data);
}
