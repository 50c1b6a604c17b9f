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
bool keyword_begins_item(int token);
bool keyword_begins_settings(int token); /* its block holds settings */
#endif
