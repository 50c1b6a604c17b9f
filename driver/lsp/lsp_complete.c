/* Completion: the parser reads the text up to the word at the place and says which tokens may
   follow; names come from the files as they are, words and their help from the tables of the
   language. */
#include "lsp.h"
#include "frontend/lower.h"
#include "frontend/model/sema.h"
#include "frontend/settings/settings.h"
#include "frontend/syntax/keywords.h"
#include "frontend/syntax/operators.h"

enum { /* of the protocol */
       KIND_FUNCTION = 3,
       KIND_VARIABLE = 6,
       KIND_CLASS = 7,
       KIND_MODULE = 9,
       KIND_PROPERTY = 10,
       KIND_VALUE = 12,
       KIND_KEYWORD = 14,
       KIND_CONSTANT = 21
};

typedef struct Completion {
  Request *request;
  World *w;
  AstCursor cursor;
  const AstItem *item; /* around the place; NULL: none */
  const char *typed;   /* the text of the line up to the place */
  NameMap *given;
} Completion;

static void offer(Completion *all, int kind, const char *label, const char *insert,
                  const char *help) {
  FILE *out = all->request->out;
  uint32_t before;
  if (!label || names_find(all->given, 0, label, &before)) return;
  names_put(all->given, 0, label, 1);
  fputs(",{\"label\":", out);
  json_put_string(out, label);
  fprintf(out, ",\"kind\":%d,\"insertText\":", kind);
  json_put_string(out, insert ? insert : label);
  if (help && *help) fputs(",\"documentation\":", out), json_put_string(out, help);
  fputc('}', out);
}

static bool expects(const Completion *all, const char *token) {
  for (int i = 0; i < all->cursor.n; i++)
    if (!strcmp(all->cursor.expected[i], token)) return true;
  return false;
}

/* ---- names ---- */

static void offer_space(Completion *all, Space space, int kind) {
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(all->w, space, &at));)
    offer(all, kind, decl->name, NULL, NULL);
}

static void offer_axes(Completion *all) {
  const AstAxes *axes = all->item ? all->item->axes : NULL;
  for (uint32_t i = 0; axes && i < axes->groups.n; i++) {
    for (uint32_t k = 0; k < axes->groups.at[i].from.n; k++)
      offer(all, KIND_CONSTANT, axes->groups.at[i].from.at[k].text, NULL, NULL);
    for (uint32_t k = 0; k < axes->groups.at[i].to.n; k++)
      offer(all, KIND_CONSTANT, axes->groups.at[i].to.at[k].text, NULL, NULL);
  }
}

static void offer_dims(Completion *all) {
  offer_axes(all);
  offer_space(all, SPACE_DIM, KIND_CONSTANT);
}

static void offer_options(Completion *all, const AstOptions *options, const char *after) {
  for (uint32_t i = 0; i < options->n; i++) {
    const char *name = options->at[i].name.text;
    offer(all, KIND_VARIABLE, name, arena_printf(all->request->c->arena, "%s%s", name, after),
          NULL);
  }
}

/* Names that the body has assigned or declared up to the place. */
static void offer_locals(Completion *all) {
  if (!all->item) return;
  for (uint32_t i = 0; i < all->item->body.n; i++) {
    const AstStmt *stmt = all->item->body.at[i];
    for (uint32_t k = 0; stmt->span.offset < all->request->at && k < stmt->names.n; k++)
      offer(all, KIND_VARIABLE, stmt->names.at[k].text, NULL, NULL);
  }
  for (uint32_t i = 0; i < all->item->formals.n; i++)
    offer(all, KIND_VARIABLE, all->item->formals.at[i].name.text, NULL, NULL);
  offer_options(all, &all->item->operands, "");
  offer_options(all, &all->item->with, "");
}

static void offer_operators(Completion *all, bool layers) {
  uint32_t n;
  const Operator *operator= operator_table(&n);
  for (uint32_t i = 0; i < n; i++)
    if ((operator[i].section == SECTION_LAYER) == layers)
      offer(
          all, layers ? KIND_CLASS : KIND_FUNCTION, operator[i].name, NULL,
          arena_printf(all->request->c->arena, "%s\n\n%s", operator[i].form, operator[i].meaning));
}

static void offer_values(Completion *all) {
  static const char *const words[] = {"none", "on", "off", "pi", "inf", "causal", "all"};
  offer_locals(all);
  offer_axes(all);
  offer_operators(all, false);
  offer_space(all, SPACE_FN, KIND_FUNCTION);
  offer_space(all, SPACE_CONST, KIND_CONSTANT);
  offer_space(all, SPACE_DIM, KIND_CONSTANT);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    offer(all, KIND_VALUE, words[i], NULL, NULL);
}

static void offer_layers(Completion *all) {
  if (all->w->std) offer_operators(all, true);
  offer_space(all, SPACE_LAYER, KIND_CLASS);
}

/* `sub a = Block with `: options of the layer named on this line. */
static void offer_layer_options(Completion *all) {
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(all->w, SPACE_LAYER, &at));) {
    const char *named = strstr(all->typed, decl->name);
    size_t n = strlen(decl->name);
    if (named && (named[n] == ' ' || named[n] == '[')) offer_options(all, &decl->item->with, " = ");
  }
}

static void offer_keywords(Completion *all) {
  uint32_t n;
  const Keyword *word = keyword_table(&n);
  for (uint32_t i = 0; i < n; i++)
    if (word[i].token && expects(all, word[i].word) && strcmp(word[i].word, "extern"))
      offer(all, KIND_KEYWORD, word[i].word, NULL, NULL);
}

static void offer_code(Completion *all) {
  const AstCursor *cursor = &all->cursor;
  bool stack = !strcmp(cursor->line, "stack"), sub = !strcmp(cursor->line, "sub");
  offer_keywords(all);
  if (!expects(all, "a name")) return;
  if (!strcmp(cursor->before, "@")) {
    static const char *const attributes[] = {"nodecay", "f32", "frozen"};
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
      offer(all, KIND_PROPERTY, attributes[i], NULL, NULL);
  } else if (!strcmp(cursor->before, "for") ||
             (!strcmp(cursor->before, "of") && !strcmp(cursor->line, "variant")))
    offer_space(all, SPACE_MODEL, KIND_MODULE);
  else if (!strcmp(cursor->before, "with")) offer_layer_options(all);
  else if ((sub && !strcmp(cursor->before, "=") && !expects(all, "a number")) ||
           (stack && (!strcmp(cursor->before, "of") || !strcmp(cursor->before, "("))))
    offer_layers(all);
  else if (expects(all, "a number")) offer_values(all);
  else if (cursor->dims || !strcmp(cursor->before, "of") || !strcmp(cursor->before, "like"))
    offer_dims(all);
}

/* ---- settings blocks ---- */

static AstItemKind block_kind(const Completion *all) {
  static const AstItemKind kinds[] = {ITEM_TRAIN, ITEM_PLAN, ITEM_MACHINE, ITEM_WEIGHTS};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(ast_item_word(kinds[i]), all->cursor.item)) return kinds[i];
  return ITEM_USE; /* of none */
}

/* Is `word` the line itself, or `line.x` with x on this line? */
static bool applies(const Completion *all, const char *word) {
  size_t n = strlen(all->cursor.line);
  if (strncmp(word, all->cursor.line, n) != 0) return false;
  return !word[n] || (word[n] == '.' && strstr(all->typed, word + n + 1));
}

/* Is `word` the values of `key` on this line: line.key, or line.x.key? */
static bool values_of(const Completion *all, const char *word, const char *key) {
  size_t n = strlen(all->cursor.line);
  const char *last = strrchr(word, '.');
  return last && !strncmp(word, all->cursor.line, n) && word[n] == '.' && !strcmp(last + 1, key);
}

static void offer_mesh(Completion *all) {
  const AstBlock *block = all->item ? all->item->block : NULL;
  for (uint32_t i = 0; block && i < block->settings.n; i++) {
    const AstSetting *line = block->settings.at[i];
    for (uint32_t k = 0; !strcmp(line->path->text, "mesh") && k < line->values.n; k++)
      if (line->values.at[k].key)
        offer(all, KIND_VARIABLE, line->values.at[k].key->text, NULL, "an axis of the mesh");
  }
}

static void offer_key_values(Completion *all, AstItemKind kind, const char *key) {
  uint32_t n;
  const SettingRow *row = settings_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    if (row[i].block != kind) continue;
    if (row[i].kind == ROW_CHOICE && values_of(all, row[i].word, key))
      offer(all, KIND_VALUE, row[i].key, NULL, row[i].help);
    if (row[i].kind != ROW_OPTION || strcmp(row[i].key, key) || !applies(all, row[i].word))
      continue;
    if (row[i].type == TYPE_SWITCH) offer(all, KIND_VALUE, "on", NULL, row[i].help);
    if (row[i].type == TYPE_SWITCH) offer(all, KIND_VALUE, "off", NULL, row[i].help);
  }
}

static bool takes_names(SettingType type) {
  return type == TYPE_NAME || type == TYPE_NAMES || type == TYPE_PATHS;
}

/* After the first word of a line. */
static void offer_parts(Completion *all, const SettingRow *row) {
  Arena *arena = all->request->c->arena;
  bool names = takes_names(row->type), on = !strcmp(row->word, "on");
  if (row->kind == ROW_CHOICE) offer(all, KIND_VALUE, row->key, NULL, row->help);
  else if (row->kind == ROW_OPTION)
    offer(all, KIND_PROPERTY, row->key, arena_printf(arena, "%s%s", row->key, names ? " " : " = "),
          row->help);
  else if (row->type == TYPE_SWITCH)
    offer(all, KIND_VALUE, "on", NULL, NULL), offer(all, KIND_VALUE, "off", NULL, NULL);
  else if (row->block == ITEM_PLAN && on) offer_space(all, SPACE_MACHINE, KIND_MODULE);
  else if (row->block != ITEM_MACHINE && (names || row->flags & (SETTING_KEYS | SETTING_ARROW)))
    offer_mesh(all), offer_space(all, SPACE_DIM, KIND_CONSTANT);
}

static void offer_line(Completion *all, AstItemKind kind) {
  uint32_t n;
  const SettingRow *row = settings_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    const char *key = row[i].kind == ROW_LINE ? NULL : row[i].key;
    const PlannedRow *later = settings_planned_row(row[i].block, row[i].word, key);
    if (row[i].block != kind || (later && !later->value)) continue;
    if (all->cursor.fresh && row[i].kind == ROW_LINE)
      offer(all, KIND_PROPERTY, row[i].word, NULL, row[i].help);
    else if (!all->cursor.fresh && applies(all, row[i].word)) offer_parts(all, &row[i]);
  }
}

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static void offer_settings(Completion *all) {
  AstItemKind kind = block_kind(all);
  Arena *arena = all->request->c->arena;
  if (!strcmp(all->cursor.before, "=")) {
    const char *end = all->typed + strlen(all->typed);
    while (end > all->typed && (end[-1] == ' ' || end[-1] == '=')) end--;
    const char *key = end;
    while (key > all->typed && is_word(key[-1])) key--;
    offer_key_values(all, kind, arena_strndup(arena, key, (size_t)(end - key)));
  } else if (!strcmp(all->cursor.before, "over")) offer_mesh(all);
  else if (expects(all, "a name")) offer_line(all, kind);
}

/* ---- the answer ---- */

static const AstItem *item_around(const World *w, size_t at) {
  const AstFile *file = w->files.at[0];
  for (uint32_t i = 0; i < file->items.n; i++) {
    Span span = file->items.at[i]->span;
    if (span.offset <= at && at <= span.offset + span.length) return file->items.at[i];
  }
  return NULL;
}

void answer_complete(Request *request) {
  const char *text = request->document->text;
  Completion all = {.request = request, .given = names_new(request->c->arena)};
  size_t at = request->at, line;
  while (at && is_word(text[at - 1])) at--;
  for (line = at; line && text[line - 1] != '\n';) line--;
  all.typed = arena_strndup(request->c->arena, text + line, at - line);
  all.w = world_load(request->c, request->document->path);
  bool fits = all.w && all.w->files.n && ast_cursor(request->c, text, at, &all.cursor);
  fputs("{\"isIncomplete\":false,\"items\":[", request->out);
  char *items = NULL;
  size_t n = 0;
  FILE *out = request->out;
  if (fits) {
    request->out = heap_stream(&items, &n);
    all.item = item_around(all.w, at);
    if (all.cursor.settings) offer_settings(&all);
    else offer_code(&all);
    fclose(request->out);
  }
  request->out = out;
  if (n) fputs(items + 1, out); /* without the first comma */
  fputs("]}", out);
}
