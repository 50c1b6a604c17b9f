/* WordPiece as BERT has it. A word is normalised (controls out, ideographs apart, accents off,
   lower case), cut at punctuation, and each part spelled by the longest tokens from the left; parts
   that cannot be spelled are the unknown token. Canonical order of combining characters matters
   within a word only, so words are worked one by one. Must not: look beyond a word. */
#include "tokenizer_in.h"
#include <string.h>

/* ---- a part of a word, as UTF-8 ---- */

/* The token that begins at p, at most `n` bytes; `inner`: after the first token of a word. */
static int32_t longest_at(const Tokenizer *tokenizer, const uint8_t *p, int64_t n, bool inner,
                          int64_t *took) {
  uint8_t key[4096];
  int64_t k = inner ? (int64_t)strlen(tokenizer->prefix) : 0;
  if (n > tokenizer->longest_text) n = tokenizer->longest_text;
  if (n > (int64_t)sizeof key - k) n = (int64_t)sizeof key - k;
  memcpy(key, tokenizer->prefix, (size_t)k), memcpy(key + k, p, (size_t)n);
  for (; n > 0; n--) {
    if (n < *took && (p[n] & 0xc0) == 0x80) continue; /* inside of a character */
    int32_t place = rt_vocab_find(tokenizer, key, k + n);
    if (place >= 0) return *took = n, place;
  }
  return -1;
}

static int64_t characters(const uint8_t *p, const uint8_t *end) {
  int64_t n = 0;
  for (; p < end; p++) n += (*p & 0xc0) != 0x80;
  return n;
}

static void spell(Tokenizer *tokenizer, const uint8_t *p, const uint8_t *end, Ids *out) {
  int64_t first = out->n;
  bool good = characters(p, end) <= tokenizer->longest;
  for (const uint8_t *q = p; good && q < end;) {
    int64_t took = end - q;
    int32_t place = longest_at(tokenizer, q, took, q > p, &took);
    if ((good = place >= 0)) rt_ids_add(out, tokenizer->token[place].id), q += took;
  }
  if (good) return;
  out->n = first;
  rt_ids_add(out, tokenizer->token[tokenizer->unknown].id);
}

/* ---- a word, as characters ---- */

static void put(Tokenizer *tokenizer, int32_t c) {
  tokenizer->word = rt_vocab_grow(tokenizer->word, &tokenizer->word_room, tokenizer->nword + 1,
                                  sizeof *tokenizer->word);
  tokenizer->word[tokenizer->nword++] = c;
}

/* Combining characters in the order of their classes: insertion, since runs are short; a run that
 * is not stays in quadratic bounds by the cut in read_word. */
static void settle(Tokenizer *tokenizer) {
  int32_t c = tokenizer->word[tokenizer->nword - 1];
  int64_t i = tokenizer->nword - 1;
  int order = rt_unicode_order(c);
  for (; order && i > 0 && rt_unicode_order(tokenizer->word[i - 1]) > order; i--)
    tokenizer->word[i] = tokenizer->word[i - 1];
  tokenizer->word[i] = c;
}

static void put_normal(Tokenizer *tokenizer, int32_t c) {
  int32_t parts[4];
  int n = tokenizer->strip && c >= 128 ? rt_unicode_decompose(c, parts) : 1;
  if (n == 1 && (!tokenizer->strip || c < 128)) parts[0] = c;
  for (int i = 0; i < n; i++) {
    put(tokenizer, parts[i]);
    if (tokenizer->strip) settle(tokenizer);
  }
}

/* Writes the normalised word as text: without accents, in lower case. */
static int64_t write_word(Tokenizer *tokenizer) {
  int64_t n = 0;
  tokenizer->spelled =
      rt_vocab_grow(tokenizer->spelled, &tokenizer->spelled_room, 8 * tokenizer->nword + 8, 1);
  for (int64_t i = 0; i < tokenizer->nword; i++) {
    int32_t c = tokenizer->word[i], small[2] = {c};
    if (tokenizer->strip && tokenizer->classes[c] & RT_MARK) continue;
    int k = tokenizer->lower ? rt_unicode_lower(c, small) : 1;
    for (int j = 0; j < k; j++) n += rt_utf8_put(small[j], (char *)tokenizer->spelled + n);
  }
  tokenizer->nword = 0;
  return n;
}

static void end_word(Tokenizer *tokenizer, Ids *out) {
  if (!tokenizer->nword) return;
  int64_t n = write_word(tokenizer);
  const uint8_t *p = tokenizer->spelled, *end = p + n, *start = p;
  for (int k; p < end; p += k) {
    int32_t c = rt_utf8_next(p, end, &k);
    if (!(tokenizer->classes[c] & (RT_PUNCT | RT_SPACE))) continue;
    if (p > start) rt_remembered(tokenizer, spell, start, p, out);
    if (tokenizer->classes[c] & RT_PUNCT) rt_remembered(tokenizer, spell, p, p + k, out);
    start = p + k;
  }
  if (end > start) rt_remembered(tokenizer, spell, start, end, out);
}

const uint8_t *rt_words(Tokenizer *tokenizer, const uint8_t *p, const uint8_t *end, int64_t enough,
                        Ids *out) {
  for (int n; p < end; p += n) {
    int32_t c = rt_utf8_next(p, end, &n);
    if (c < 0) c = 0xfffd;
    int class = tokenizer->classes[c];
    bool apart = tokenizer->ideographs && class & RT_IDEOGRAPH;
    if (tokenizer->clean && class & RT_CONTROL) continue;
    if (apart || class & RT_SPACE) end_word(tokenizer, out);
    if (apart) put_normal(tokenizer, c), end_word(tokenizer, out);
    else if (!(class & RT_SPACE)) put_normal(tokenizer, c);
    if (out->n >= enough && !tokenizer->nword) return p + n;
  }
  end_word(tokenizer, out);
  return p;
}
