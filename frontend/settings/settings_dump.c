/* Settings of a module that was read from a dump, against the table settings.def: words of blocks,
   and values by their types, as text (settings_resolve). Settings that passes add have no row;
   passes refuse unknown ones. Must not: check settings of a block of a `.shard` file that was read
   in this run, which settings_check.c has checked. */
#include "settings.h"
#include "ir/plan/setting_default.h"
#include <math.h>
#include <stdlib.h>

static const AstItemKind blocks[] = {ITEM_TRAIN, ITEM_PLAN, ITEM_MACHINE};
/* Other first words of the keys of modules. */
static const char *const others[] = {"model",  "comm",  "data", "made",    "sample", "weights",
                                     "layout", "check", "tune", "profile", "debug"};

static bool begins(const char *key, const char *word) {
  size_t n = strlen(word);
  return !strncmp(key, word, n) && (!key[n] || key[n] == '.');
}

/* Behind the word of a block and its dot; NULL: it is none of that block. */
static const char *of_block(const char *key, AstItemKind block) {
  const char *word = ast_item_word(block);
  return begins(key, word) && key[strlen(word)] ? key + strlen(word) + 1 : NULL;
}

/* Is it the row of `optim.lr`, with the choice that the module has of optim? */
static bool is_row(const Module *m, const SettingRow *row, AstItemKind block, const char *rest) {
  if (row->kind == ROW_CHOICE || row->block != block || (row->flags & SETTING_MANY)) return false;
  size_t n = strcspn(row->word, "."), group;
  if (strncmp(row->word, rest, n)) return false;
  group = setting_group_length(rest - strlen(ast_item_word(block)) - 1);
  const char *key = rest + n + group;
  if (row->kind == ROW_LINE) return !*key;
  if (*key != '.' || strcmp(key + 1, row->key)) return false;
  const char *line =
      arena_printf(m->arena, "%s.%.*s", ast_item_word(block), (int)(n + group), rest);
  return !row->word[n] || !strcmp(row->word + n + 1, module_setting(m, line, ""));
}

static bool number_between(const char *text, double least, double most, bool whole) {
  char *end;
  double x = strtod(text, &end);
  return *text && !*end && isfinite(x) && x >= least && x <= most && (!whole || x == floor(x));
}

static bool choice_fits(const Module *m, const SettingRow *row, const char *value) {
  uint32_t n, choices = 0;
  const SettingRow *rows = settings_table(&n);
  const char *word = row->key ? arena_printf(m->arena, "%s.%s", row->word, row->key) : row->word;
  for (uint32_t i = 0; i < n; i++) {
    if (rows[i].kind != ROW_CHOICE || rows[i].block != row->block || strcmp(rows[i].word, word))
      continue;
    if (!strcmp(rows[i].key, value)) return true;
    choices++;
  }
  return !choices;
}

static bool pair_fits(const Module *m, const char *value) {
  const char *space = strchr(value, ' ');
  double most = 1 - 0x1p-53;
  return space && number_between(space + 1, 0, most, false) &&
         number_between(arena_strndup(m->arena, value, (size_t)(space - value)), 0, most, false);
}

static bool text_fits(const Module *m, const SettingRow *row, const char *value) {
  static const double MOST = 0x1p63;
  switch (row->type) {
  case TYPE_COUNT: return number_between(value, 1, MOST, true);
  case TYPE_INTEGER: return number_between(value, 0, MOST, true);
  case TYPE_STAGE: return number_between(value, 0, 3, true);
  case TYPE_NUMBER: return number_between(value, -HUGE_VAL, HUGE_VAL, false);
  case TYPE_POSITIVE: return number_between(value, 0x1p-1074, HUGE_VAL, false);
  case TYPE_BELOW_1: return number_between(value, 0, 1 - 0x1p-53, false);
  case TYPE_RATE:
  case TYPE_FLOPS: return number_between(value, 1, 1e24, false);
  case TYPE_BYTES:
  case TYPE_SECONDS:
  case TYPE_AT_LEAST_0: return number_between(value, 0, HUGE_VAL, false);
  case TYPE_SHARE: return number_between(value, 0, 1, false);
  case TYPE_SWITCH: return !strcmp(value, "on") || !strcmp(value, "off");
  case TYPE_WORD: return choice_fits(m, row, value);
  case TYPE_PAIR: return pair_fits(m, value);
  default: return true;
  }
}

static bool has_line(AstItemKind block, const char *rest) {
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  for (uint32_t i = 0; i < n; i++)
    if (rows[i].kind == ROW_LINE && rows[i].block == block && begins(rest, rows[i].word))
      return true;
  return false;
}

static bool key_known(const Setting *setting) {
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (begins(setting->key, others[i])) return true;
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
    const char *rest = of_block(setting->key, blocks[i]);
    if (rest) return has_line(blocks[i], rest);
  }
  return false;
}

static bool value_known(const Module *m, const Setting *setting) {
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
    const char *rest = of_block(setting->key, blocks[b]);
    for (uint32_t i = 0; rest && i < n; i++)
      if (is_row(m, &rows[i], blocks[b], rest) && !text_fits(m, &rows[i], setting->value)) {
        Report *r = diag_at(m->ctx->diag, "E1103", (Span){0}, "[setting-c3] %s = \"%s\" is not %s",
                            setting->key, setting->value,
                            rows[i].type == TYPE_WORD ? "one of its words"
                                                      : setting_type_text(rows[i].type));
        diag_fact(r, "%s", rows[i].help);
        return false;
      }
  }
  return true;
}

bool settings_check_dump(const Module *m) {
  bool good = true;
  for (uint32_t i = 0; i < m->settings.n; i++) {
    const Setting *setting = &m->settings.at[i];
    if (!key_known(setting)) {
      diag_at(m->ctx->diag, "E1103", (Span){0}, "[setting-c2] no setting is called `%s`",
              setting->key);
      good = false;
    } else {
      good &= value_known(m, setting);
    }
  }
  return good;
}
