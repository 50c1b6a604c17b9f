/* The table foreign_words.def: words of other tools, and how the language says them. */
#ifndef SHARDC_FOREIGN_WORDS_H
#define SHARDC_FOREIGN_WORDS_H
#include <stdint.h>

/* LINE: what begins a line of code, LAYER: where a layer is named; CODE asks LINE as well, LAYER
   CODE. */
typedef enum ForeignPlace {
  FOREIGN_LINE,
  FOREIGN_CODE,
  FOREIGN_LAYER,
  FOREIGN_SETTING
} ForeignPlace;

/* The one of `names` that means the same as this word; NULL: none. */
const char *foreign_name(const char *word, const char *const *names, uint32_t n);
/* The words of the language that mean the same, whatever they name: count up `at` from 0; NULL:
   no more. */
const char *foreign_meaning(const char *word, uint32_t *at);
/* The replacement, or the reason why none exists; NULL: the word is unknown. */
const char *foreign_text(ForeignPlace place, const char *word);
/* The same of an option; what is said about options of this line alone comes first. */
const char *foreign_option_text(const char *line, const char *key);
/* The word without modules: gelu of torch.nn.functional.gelu. */
const char *foreign_last_part(const char *word);
/* The name that means the same, or the one nearest by spelling. */
const char *foreign_or_near(const char *word, const char *const *names, uint32_t n);
#endif
