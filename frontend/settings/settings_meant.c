/* Which word of the table settings.def was meant where another is written: a line of another
   block, an option of another line, a choice without its line. Must not: compare spelling, or
   judge values. */
#include "settings_meant.h"
#include "frontend/syntax/foreign_words.h"

/* The first row with this word in the block, else the first one of all blocks. */
static const SettingRow *row_of(SettingRowKind kind, AstItemKind block, bool here,
                                const char *word) {
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    const char *name = kind == ROW_LINE ? rows[i].word : rows[i].key;
    bool option_value = kind == ROW_CHOICE && strchr(rows[i].word, '.');
    if (rows[i].kind == kind && (rows[i].block == block) == here && !option_value &&
        !strcmp(name, word))
      return &rows[i];
  }
  return NULL;
}

/* optim adamw, of optim.adamw */
static const char *spaced(Ctx *c, const char *word) {
  char *text = arena_strndup(c->arena, word, strlen(word));
  for (char *dot = strchr(text, '.'); dot; dot = strchr(dot, '.')) *dot = ' ';
  return text;
}

/* `lr NAME`, where the line needs a value before its options. */
static const char *line_form(Ctx *c, const SettingRow *option) {
  const SettingRow *line = row_of(ROW_LINE, option->block, true, option->word);
  const char *value = !line || !line->least ? "" : line->type == TYPE_WORD ? " NAME" : " ..";
  return arena_printf(c->arena, "%s%s", spaced(c, option->word), value);
}

static const char *text_of(Ctx *c, AstItemKind block, const SettingRow *row) {
  const char *where = ast_item_word(row->block);
  const char *of = row->block == block ? "" : arena_printf(c->arena, " in %s blocks", where);
  if (row->kind == ROW_LINE)
    return arena_printf(c->arena, "`%s` is a line of its own%s: %s", row->word, of, row->help);
  const char *line = spaced(c, row->word);
  if (row->kind == ROW_CHOICE) return arena_printf(c->arena, "write `%s %s`%s", line, row->key, of);
  return arena_printf(c->arena, "`%s` is an option of `%s`%s: `%s %s = ..`", row->key, line, of,
                      line_form(c, row), row->key);
}

static const char *place_of(Ctx *c, AstItemKind block, const char *line, const char *word) {
  const SettingRow *row =
      line && strcmp(line, word) != 0 ? row_of(ROW_LINE, block, true, word) : NULL;
  if (!row) row = row_of(ROW_OPTION, block, true, word);
  if (!row && !line) row = row_of(ROW_CHOICE, block, true, word);
  if (!row) row = row_of(ROW_LINE, block, false, word);
  if (!row) row = row_of(ROW_OPTION, block, false, word);
  return row ? text_of(c, block, row) : NULL;
}

const char *settings_place(Ctx *c, AstItemKind block, const char *line, const char *word) {
  uint32_t at = 0;
  const char *text = place_of(c, block, line, word);
  for (const char *meant; !text && (meant = foreign_meaning(word, &at));)
    text = place_of(c, block, line, meant);
  return text;
}

const char *settings_option_named(Ctx *c, AstItemKind block, const char *word) {
  const SettingRow *row = row_of(ROW_OPTION, block, true, word);
  return row ? text_of(c, block, row) : NULL;
}

const char *settings_foreign(const char *line, const char *word) {
  return foreign_option_text(line, word);
}
