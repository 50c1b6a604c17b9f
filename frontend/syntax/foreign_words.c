/* Looking up words of other tools. Must not: know where a word of the language can be written. */
#include "foreign_words.h"
#include "ir/support/diag.h"
#include "ir/support/num.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct {
  const char *meant, *words;
} meanings[] = {
#define MEANS(meant, words) {#meant, words},
#define SAYS(place, words, text)
#include "foreign_words.def"
#undef MEANS
#undef SAYS
};

static const struct {
  ForeignPlace place;
  const char *words, *text;
} texts[] = {
#define MEANS(meant, words)
#define SAYS(place, words, text) {FOREIGN_##place, words, text},
#include "foreign_words.def"
#undef MEANS
#undef SAYS
};

/* ---- equal words ---- */

static const char *skip_marks(const char *s) { return s + strspn(s, "_-"); }

/* a of n characters is b, but for case, `_` and `-`. */
static bool same_word(const char *a, size_t n, const char *b) {
  const char *end = a + n;
  for (a = skip_marks(a), b = skip_marks(b); a < end && *b;
       a = skip_marks(a + 1), b = skip_marks(b + 1))
    if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
  return a >= end && !*b;
}

static bool is_listed(const char *words, const char *word) {
  for (size_t n; *words; words += n, words += *words == ' ') {
    n = strcspn(words, " ");
    if (same_word(words, n, word)) return true;
  }
  return false;
}

const char *foreign_last_part(const char *word) {
  static const char *const modules[] = {"torch", "nn",  "functional", "F",  "optim",
                                        "jax",   "jnp", "np",         "tf", "keras"};
  for (bool found = true; found;) {
    size_t n = strcspn(word, ".");
    found = false;
    for (size_t i = 0; word[n] && i < COUNT_OF(modules); i++)
      found |= strlen(modules[i]) == n && !strncmp(word, modules[i], n);
    if (found) word += n + 1;
  }
  return word;
}

/* ---- what is said about them ---- */

const char *foreign_meaning(const char *word, uint32_t *at) {
  word = foreign_last_part(word);
  while (*at < COUNT_OF(meanings)) {
    uint32_t i = (*at)++;
    if (is_listed(meanings[i].words, word)) return meanings[i].meant;
  }
  return NULL;
}

const char *foreign_name(const char *word, const char *const *names, uint32_t n) {
  uint32_t at = 0;
  for (const char *meant; (meant = foreign_meaning(word, &at));)
    for (uint32_t i = 0; i < n; i++)
      if (!strcmp(names[i], meant)) return names[i];
  return NULL;
}

static bool is_asked(ForeignPlace place, ForeignPlace row) {
  if (place == FOREIGN_SETTING || row == FOREIGN_SETTING) return place == row;
  return row <= place;
}

const char *foreign_text(ForeignPlace place, const char *word) {
  word = foreign_last_part(word);
  for (size_t i = 0; i < COUNT_OF(texts); i++)
    if (is_asked(place, texts[i].place) && is_listed(texts[i].words, word)) return texts[i].text;
  return NULL;
}

const char *foreign_option_text(const char *line, const char *key) {
  char both[96];
  snprintf(both, sizeof both, "%s.%s", line, key);
  const char *text = foreign_text(FOREIGN_SETTING, both);
  return text ? text : foreign_text(FOREIGN_SETTING, key);
}

const char *foreign_or_near(const char *word, const char *const *names, uint32_t n) {
  const char *meant = foreign_name(word, names, n);
  return meant ? meant : diag_nearest(word, names, n);
}
