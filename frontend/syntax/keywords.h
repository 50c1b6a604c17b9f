/* The table keywords.def: what the lexer, the messages and the files for editors know about words.
 */
#ifndef SHARDC_KEYWORDS_H
#define SHARDC_KEYWORDS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum KeywordRole {
  KEYWORD_ITEM,
  KEYWORD_BLOCK,
  KEYWORD_LINE,
  KEYWORD_PART,
  KEYWORD_WORD
} KeywordRole;

typedef struct Keyword {
  const char *word;
  int token; /* of the grammar; 0 for a WORD */
  KeywordRole role;
} Keyword;

const Keyword *keyword_table(uint32_t *n);
const Keyword *keyword_find(const char *text, size_t n); /* NULL: a plain name */
/* The one of `names` that this word of other languages and libraries means; NULL: none. */
const char *keyword_foreign(const char *word, const char *const *names, uint32_t n);
/* How the language says what this word says elsewhere; NULL: nothing is known about it. */
/* What to write instead of a word for which there is none that means the same; NULL: nothing known.
 */
const char *keyword_unlike(const char *word);
const char *keyword_habit(const char *word);
/* The foreign word's meaning, or the name nearest by spelling. */
const char *keyword_meant(const char *word, const char *const *names, uint32_t n);
bool keyword_begins_item(int token);
bool keyword_begins_settings(int token); /* its block holds settings */
#endif
