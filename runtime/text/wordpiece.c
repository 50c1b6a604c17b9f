/* WordPiece as BERT has it. A word is normalised (controls out, ideographs apart, accents off,
   lower case), cut at punctuation, and each part spelled by the longest tokens from the left; parts
   that cannot be spelled are the unknown token. Canonical order of combining characters matters
   within a word only, so words are worked one by one. Must not: look beyond a word. */
#include "tokenizer_in.h"
#include <string.h>

/* ---- a part of a word, as UTF-8 ---- */

/* The token that begins at p, at most `n` bytes; `inner`: behind the first one of a part. */
static int32_t longest_at(const Tokenizer *t, const uint8_t *p, int64_t n, bool inner,
                          int64_t *took) {
  uint8_t key[4096];
  int64_t k = inner ? (int64_t)strlen(t->prefix) : 0;
  if (n > t->longest_text) n = t->longest_text;
  if (n > (int64_t)sizeof key - k) n = (int64_t)sizeof key - k;
  memcpy(key, t->prefix, (size_t)k), memcpy(key + k, p, (size_t)n);
  for (; n > 0; n--) {
    if (n < *took && (p[n] & 0xc0) == 0x80) continue; /* inside of a character */
    int32_t place = rt_vocab_find(t, key, k + n);
    if (place >= 0) return *took = n, place;
  }
  return -1;
}

static int64_t characters(const uint8_t *p, const uint8_t *end) {
  int64_t n = 0;
  for (; p < end; p++) n += (*p & 0xc0) != 0x80;
  return n;
}

static void spell(Tokenizer *t, const uint8_t *p, const uint8_t *end, Ids *out) {
  int64_t first = out->n;
  bool good = characters(p, end) <= t->longest;
  for (const uint8_t *q = p; good && q < end;) {
    int64_t took = end - q;
    int32_t place = longest_at(t, q, took, q > p, &took);
    if ((good = place >= 0)) rt_ids_add(out, t->token[place].id), q += took;
  }
  if (good) return;
  out->n = first;
  rt_ids_add(out, t->token[t->unknown].id);
}

/* ---- a word, as characters ---- */

static void put(Tokenizer *t, int32_t c) {
  t->word = rt_vocab_grow(t->word, &t->word_room, t->nword + 1, sizeof *t->word);
  t->word[t->nword++] = c;
}

/* Combining characters in the order of their classes: insertion, since runs are short; a run that
 * is not stays in quadratic bounds by the cut in read_word. */
static void settle(Tokenizer *t) {
  int32_t c = t->word[t->nword - 1];
  int64_t i = t->nword - 1;
  int order = rt_unicode_order(c);
  for (; order && i > 0 && rt_unicode_order(t->word[i - 1]) > order; i--)
    t->word[i] = t->word[i - 1];
  t->word[i] = c;
}

static void put_normal(Tokenizer *t, int32_t c) {
  int32_t parts[4];
  int n = t->strip && c >= 128 ? rt_unicode_decompose(c, parts) : 1;
  if (n == 1 && (!t->strip || c < 128)) parts[0] = c;
  for (int i = 0; i < n; i++) {
    put(t, parts[i]);
    if (t->strip) settle(t);
  }
}

/* What is left of the word, as text: marks off, small letters. */
static int64_t write_word(Tokenizer *t) {
  int64_t n = 0;
  t->spelled = rt_vocab_grow(t->spelled, &t->spelled_room, 8 * t->nword + 8, 1);
  for (int64_t i = 0; i < t->nword; i++) {
    int32_t c = t->word[i], small[2] = {c};
    if (t->strip && t->classes[c] & RT_MARK) continue;
    int k = t->lower ? rt_unicode_lower(c, small) : 1;
    for (int j = 0; j < k; j++) n += rt_utf8_put(small[j], (char *)t->spelled + n);
  }
  t->nword = 0;
  return n;
}

static void end_word(Tokenizer *t, Ids *out) {
  if (!t->nword) return;
  int64_t n = write_word(t);
  const uint8_t *p = t->spelled, *end = p + n, *start = p;
  for (int k; p < end; p += k) {
    int32_t c = rt_utf8_next(p, end, &k);
    if (!(t->classes[c] & (RT_PUNCT | RT_SPACE))) continue;
    if (p > start) rt_remembered(t, spell, start, p, out);
    if (t->classes[c] & RT_PUNCT) rt_remembered(t, spell, p, p + k, out);
    start = p + k;
  }
  if (end > start) rt_remembered(t, spell, start, end, out);
}

const uint8_t *rt_words(Tokenizer *t, const uint8_t *p, const uint8_t *end, int64_t enough,
                        Ids *out) {
  for (int n; p < end; p += n) {
    int32_t c = rt_utf8_next(p, end, &n);
    if (c < 0) c = 0xfffd;
    int class = t->classes[c];
    bool apart = t->ideographs && class & RT_IDEOGRAPH;
    if (t->clean && class & RT_CONTROL) continue;
    if (apart || class & RT_SPACE) end_word(t, out);
    if (apart) put_normal(t, c), end_word(t, out);
    else if (!(class & RT_SPACE)) put_normal(t, c);
    if (out->n >= enough && !t->nword) return p + n;
  }
  end_word(t, out);
  return p;
}
