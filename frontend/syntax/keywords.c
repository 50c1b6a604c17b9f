/* Looking up keywords. The words differ in length and first letters, so a short list per length is
   enough: most names are compared with no word or with one. */
#include "keywords.h"
#include "frontend/grammar.h"

static const Keyword table[] = {
#define KEYWORD(token, word, role) {#word, token, KEYWORD_##role},
#define WORD(word) {#word, 0, KEYWORD_WORD},
#include "keywords.def"
#undef KEYWORD
#undef WORD
};

const Keyword *keyword_table(uint32_t *n) {
  *n = sizeof table / sizeof *table;
  return table;
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
