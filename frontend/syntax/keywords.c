/* Looking up keywords. The words differ in length and first letters, so a short list per length is
   enough: most names are compared with no word or with one. */
#include "keywords.h"
#include "ast_reading.h"
#include "frontend/grammar.h"

static const Keyword table[] = {
#define KEYWORD(token, word, role) {#word, token, KEYWORD_##role},
#define WORD(word) {#word, 0, KEYWORD_WORD},
#define HABIT(word, text)
#define FOREIGN(word, meant)
#define UNLIKE(word, text)
#include "keywords.def"
#undef UNLIKE
#undef KEYWORD
#undef WORD
#undef HABIT
#undef FOREIGN
};

static const struct {
  const char *word, *meant;
} foreign[] = {
#define KEYWORD(token, word, role)
#define WORD(word)
#define HABIT(word, text)
#define FOREIGN(word, meant) {word, meant},
#define UNLIKE(word, text)
#include "keywords.def"
#undef UNLIKE
#undef HABIT
#undef FOREIGN
};

static const struct {
  const char *word, *text;
} habits[] = {
#define HABIT(word, text) {word, text},
#define FOREIGN(word, meant)
#define UNLIKE(word, text)
#include "keywords.def"
#undef UNLIKE
#undef KEYWORD
#undef WORD
#undef HABIT
#undef FOREIGN
};

static const struct {
  const char *word, *text;
} unlike[] = {
#define KEYWORD(token, word, role)
#define WORD(word)
#define HABIT(word, text)
#define FOREIGN(word, meant)
#define UNLIKE(word, text) {word, text},
#include "keywords.def"
#undef KEYWORD
#undef WORD
#undef HABIT
#undef FOREIGN
#undef UNLIKE
};

const Keyword *keyword_table(uint32_t *n) {
  *n = sizeof table / sizeof *table;
  return table;
}

const char *keyword_foreign(const char *word, const char *const *names, uint32_t n) {
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    for (uint32_t k = 0; k < n && !strcmp(foreign[i].word, word); k++)
      if (!strcmp(foreign[i].meant, names[k])) return names[k];
  return NULL;
}

const char *keyword_habit(const char *word) {
  for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
    if (!strcmp(habits[i].word, word)) return habits[i].text;
  return NULL;
}

const char *keyword_unlike(const char *word) {
  for (size_t i = 0; i < sizeof unlike / sizeof *unlike; i++)
    if (!strcmp(unlike[i].word, word)) return unlike[i].text;
  return NULL;
}

const char *keyword_meant(const char *word, const char *const *names, uint32_t n) {
  const char *meant = keyword_foreign(word, names, n);
  return meant ? meant : diag_nearest(word, names, n);
}

const Keyword *keyword_find(const char *text, size_t n) {
  if (n < 2 || n > 7) return NULL;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const Keyword *k = &table[i];
    bool same = k->word[0] == text[0] && k->word[1] == text[1] && !strncmp(k->word, text, n);
    if (same && !k->word[n]) return k->token ? k : NULL;
  }
  return NULL;
}

static bool has_role(int token, KeywordRole a, KeywordRole b) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].token == token) return table[i].role == a || table[i].role == b;
  return false;
}

bool keyword_begins_item(int token) { return has_role(token, KEYWORD_ITEM, KEYWORD_BLOCK); }
bool keyword_begins_settings(int token) { return has_role(token, KEYWORD_BLOCK, KEYWORD_BLOCK); }
