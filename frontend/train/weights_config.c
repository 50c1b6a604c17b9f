/* The `config` lines of weights blocks: the entries of config.json, as JSON. Objects are nested as
   the lines nest them. Entries that JSON, or a reader of config.json, cannot represent are refused:
   a key with a dot would be one flat key that readers ignore. */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

Str config_number(Ctx *c, double v) {
  char text[40];
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    if (strtod(text, NULL) == v) break;
  }
  if (v == trunc(v) && fabs(v) < 1e15) snprintf(text, sizeof text, "%.0f", v);
  return arena_strndup(c->arena, text, strlen(text));
}

static Str json_string(Ctx *c, const char *s) {
  VEC(char) out = {0};
  vec_push(c->arena, out, '"');
  for (; *s; s++) {
    char code[8];
    if (*s == '"' || *s == '\\') vec_push(c->arena, out, '\\');
    if ((unsigned char)*s >= ' ') {
      vec_push(c->arena, out, *s);
      continue;
    }
    snprintf(code, sizeof code, "\\u%04x", (unsigned char)*s);
    for (const char *k = code; *k; k++) vec_push(c->arena, out, *k);
  }
  vec_push(c->arena, out, '"');
  return arena_strndup(c->arena, out.at, out.n);
}

static Str json_word(Eval *e, const char *word) {
  static const char *const words[][2] = {{"on", "true"}, {"off", "false"}, {"none", "null"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(word, words[i][0])) return words[i][1];
  Str dim = intern(e->ctx->names, word);
  int64_t size = sizes_find(e->sizes, dim) ? size_of(e->sizes, dim) : 0;
  return size > 0 ? config_number(e->ctx, (double)size) : NULL;
}

static Str json_list(Eval *e, const AstValue *value) {
  Str text = "";
  for (uint32_t i = 0; i < value->items.n; i++) {
    Str item = config_json(e, value->items.at[i]);
    if (!item) return NULL;
    text = arena_list(e->arena, text, "%s", item);
  }
  return arena_printf(e->arena, "[%s]", text);
}

static Str json_object(Eval *e, const AstValue *value) {
  Str text = "";
  for (uint32_t i = 0; i < value->args.n; i++) {
    Str item = config_json(e, value->args.at[i].value);
    if (!item) return NULL;
    text = arena_list(e->arena, text, "\"%s\": %s", value->args.at[i].key->text, item);
  }
  return arena_printf(e->arena, "{%s}", text);
}

/* NULL: a name that is no dim, a call, or a number that is not known. */
Str config_json(Eval *e, const AstValue *value) {
  double number;
  switch (value->kind) {
  case VALUE_NUMBER:
    if (value->number.unit != UNIT_NONE || !isfinite(value->number.value)) return NULL;
    return value->number.integer ? arena_printf(e->arena, "%lld", (long long)value->number.integral)
                                 : config_number(e->ctx, value->number.value);
  case VALUE_STRING: return json_string(e->ctx, value->string);
  case VALUE_PATH: return json_word(e, value->path->text);
  case VALUE_EXPR:
    return number_eval(e->sizes, value->expr, &number) == NUM_KNOWN && isfinite(number)
               ? config_number(e->ctx, number)
               : NULL;
  case VALUE_CALL: return NULL;
  case VALUE_LIST: return json_list(e, value);
  case VALUE_OBJECT: return json_object(e, value);
  }
  return NULL;
}

/* ---- checks ---- */

/* Does the value depend on sizes that are not known yet? */
static bool waits(Eval *e, const AstValue *value) {
  if (value->kind == VALUE_PATH) return sizes_find(e->sizes, value->path->text) != NULL;
  return value->kind == VALUE_EXPR && !e->sized;
}

static void no_value(Eval *e, const AstPair *pair, const AstValue *value) {
  if (value->kind == VALUE_PATH && value->path->parts.n == 1) {
    explain_no_dim(e->w, value->span, value->path->text);
    return;
  }
  Report *r =
      world_error(e->w, "E0201", value->span, "`%s` has no value for config.json", pair->key->text);
  diag_help(r,
            "a number without a unit, \"text\", on, off, none, a dim, (an expression), a [list] of "
            "them, or an object: [key = value, ..]");
}

static void check_members(Eval *e, const AstPairs *pairs);

static void check_config_value(Eval *e, const AstPair *pair, const AstValue *value) {
  if (value->kind == VALUE_OBJECT) check_members(e, &value->args);
  else if (value->kind == VALUE_LIST)
    for (uint32_t i = 0; i < value->items.n; i++) check_config_value(e, pair, value->items.at[i]);
  else if (!config_json(e, value) && !waits(e, value)) no_value(e, pair, value);
}

static size_t first_part(const AstPair *pair) { return strcspn(pair->key->text, "."); }

static bool same_object(const AstPair *a, const AstPair *b) {
  size_t n = first_part(a);
  return b->key && b->key->text[n] == '.' && !strncmp(a->key->text, b->key->text, n);
}

/* Keys of one head that follow each other, with dots, become one object; returns how many. */
static uint32_t refuse_dotted(Eval *e, const AstPairs *pairs, uint32_t from) {
  const AstPair *first = &pairs->at[from];
  uint32_t n = 1;
  size_t head = first_part(first);
  while (from + n < pairs->n && same_object(first, &pairs->at[from + n])) n++;
  Str text = "";
  for (uint32_t i = 0; i < n; i++) {
    const AstPair *pair = &pairs->at[from + i];
    text = arena_list(e->arena, text, "%s = %s", pair->key->text + head + 1,
                      span_text(e->ctx, pair->value->span));
  }
  Report *r =
      world_error(e->w, "E0602", first->key->span,
                  "`%s` would be one key of config.json, with a dot in it", first->key->text);
  diag_label(r, "readers look for an object `%.*s`", (int)head, first->key->text);
  diag_help(r, "write `%.*s = [%s]`", (int)head, first->key->text, text);
  diag_edit(r, span_join(first->span, pairs->at[from + n - 1].span), "%.*s = [%s]", (int)head,
            first->key->text, text);
  return n;
}

static void written_twice(Eval *e, const AstPairs *pairs, uint32_t at) {
  for (uint32_t i = 0; i < at; i++) {
    if (!pairs->at[i].key || strcmp(pairs->at[i].key->text, pairs->at[at].key->text)) continue;
    Report *r = world_error(e->w, "E0606", pairs->at[at].key->span, "`%s` is written twice",
                            pairs->at[at].key->text);
    diag_also(r, pairs->at[i].key->span, "the first one");
    return;
  }
}

/* Names of config.json for what the operators compute with. */
const char *config_known(const char *key) {
  static const char *const names[][2] = {{"rope_theta", "rope_theta"},
                                         {"rms_norm_eps", "rms_norm_eps"},
                                         {"layer_norm_eps", "layer_norm_eps"},
                                         {"layer_norm_epsilon", "layer_norm_eps"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(key, names[i][0])) return names[i][1];
  return NULL;
}

static void check_known(Eval *e, const AstPair *pair) {
  const char *name = config_known(pair->key->text);
  const KnownNumber *known = name ? eval_known(e, name) : NULL;
  if (!known || pair->value->kind != VALUE_NUMBER || pair->value->number.value == known->number)
    return;
  Str text = config_number(e->ctx, known->number);
  Report *r = world_error(e->w, "E0504", pair->value->span, "the model computes with %s = %s",
                          pair->key->text, text);
  diag_also(r, known->at, "here");
  diag_help(r, "config.json says what the model computes: write %s, or change the model", text);
  diag_edit(r, pair->value->span, "%s", text);
}

static void check_members(Eval *e, const AstPairs *pairs) {
  for (uint32_t i = 0; i < pairs->n; i++) {
    const AstPair *pair = &pairs->at[i];
    if (!pair->key) continue; /* said by the check of the line */
    if (pair->key->text[first_part(pair)]) {
      i += refuse_dotted(e, pairs, i) - 1;
      continue;
    }
    written_twice(e, pairs, i);
    check_config_value(e, pair, pair->value);
    check_known(e, pair);
  }
}

void check_weights_config(Eval *e, const AstItem *block) {
  AstPairs all = {0};
  for (uint32_t i = 0; block->block && i < block->block->settings.n; i++) {
    const AstSetting *line = block->block->settings.at[i];
    if (line->arrow != ARROW_NONE || strcmp(line->path->text, "config")) continue;
    for (uint32_t k = 0; k < line->values.n; k++) vec_push(e->arena, all, line->values.at[k]);
  }
  check_members(e, &all);
}
