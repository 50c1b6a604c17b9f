/* Shared by the checks of a settings block: rows of its kind of block, values against them. */
#ifndef SHARDC_SETTINGS_VALUES_H
#define SHARDC_SETTINGS_VALUES_H
#include "settings_meant.h"

typedef struct Check {
  Ctx *c;
  const AstItem *item;
  const SettingRow *rows;
  uint32_t nrows;
} Check;

typedef VEC(const char *) SettingWords;

/* Help for an unknown word: a line of text, or else a word that can replace it. */
typedef struct Meant {
  const char *text, *word;
} Meant;

const SettingRow *setting_find_line(const Check *check, const char *word); /* NULL: there is none */
/* Options of `optim` and, with the choice adamw, of `optim.adamw`. NULL: there is none. */
const SettingRow *setting_find_option(const Check *check, const char *word, const char *choice,
                                      const char *key);
SettingWords setting_words_of(const Check *check, SettingRowKind kind, const char *word,
                              const char *choice);
const char *setting_words_text(const Check *check, const SettingWords *words, const char *between,
                               uint32_t most);
void setting_edit_near(Report *r, Span at, const char *near); /* near NULL: no edit */
Report *setting_wrong_value(const Check *check, const char *what, const AstValue *value,
                            const char *wanted);
bool setting_value_fits(SettingType type, const AstValue *value);
/* Is it one of the choices, where there are any? */
bool setting_choice_fits(const Check *check, SettingType type, const char *choices,
                         const AstValue *value);
/* E0602 if it is none. `choices`: the word of the CHOICE rows. */
void setting_check_value(const Check *check, SettingType type, const char *what,
                         const char *choices, const AstValue *value);
/* E0602: a key in quotes. */
bool setting_quoted_key(const Check *check, const AstPair *pair);
#endif
