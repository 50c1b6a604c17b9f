/* Text to ids and back. The text is searched for added tokens first; what lies between goes through
   the model: pieces by a splitter, then merging (bpe.c), or words (wordpiece.c). Pieces seen before
   come out of a small cache. Must not: read files (tokenizer_open.c). */
#include "tokenizer_in.h"
#include <stdlib.h>
#include <string.h>

void rt_ids_add(Ids *out, int32_t id) {
  out->at = rt_vocab_grow(out->at, &out->room, out->n + 1, sizeof *out->at);
  out->at[out->n++] = id;
}

void rt_remembered(Tokenizer *t, Work *work, const uint8_t *p, const uint8_t *end, Ids *out) {
  ptrdiff_t n = end - p;
  Cached *c = &t->cache[rt_hash_of(p, (size_t)n) % CACHE_SLOTS];
  if (c->n == n && !memcmp(c->text, p, (size_t)n)) {
    for (int i = 0; i < c->count; i++) rt_ids_add(out, c->id[i]);
    return;
  }
  int64_t first = out->n;
  work(t, p, end, out);
  int64_t count = out->n - first;
  if (n > CACHE_TEXT || count > CACHE_IDS) return;
  memcpy(c->text, p, (size_t)n);
  for (int64_t i = 0; i < count; i++) c->id[i] = out->at[first + i];
  c->n = (uint8_t)n, c->count = (uint8_t)count;
}

/* ---- added tokens ---- */

static bool is_word(const Tokenizer *t, int32_t c) {
  return c == '_' || (c >= 0 && t->classes[c] & (RT_LETTER | RT_NUMBER | RT_MARK));
}

/* The character that ends at p > start; -1 if that is no UTF-8. */
static int32_t character_before(const uint8_t *start, const uint8_t *p, const uint8_t **at) {
  int n;
  const uint8_t *q = p - 1;
  while (q > start && p - q < 4 && (*q & 0xc0) == 0x80) q--;
  int32_t c = rt_utf8_next(q, p, &n);
  *at = q + n == p ? q : p - 1;
  return q + n == p ? c : -1;
}

static bool stands_alone(const Encoding *e, const Tokenizer *t, const uint8_t *p,
                         const uint8_t *end) {
  int n;
  const uint8_t *q;
  if (p > e->at && is_word(t, character_before(e->at, p, &q))) return false;
  return end == e->end || !is_word(t, rt_utf8_next(end, e->end, &n));
}

/* Spaces on both sides that the token takes. */
static void widen(Encoding *e, const Tokenizer *t, const VocabToken *k) {
  int32_t c;
  const uint8_t *q;
  while (k->left && e->stop > e->at && (c = character_before(e->at, e->stop, &q)) >= 0 &&
         t->classes[c] & RT_SPACE)
    e->stop = q;
  for (int n; k->right && e->next < e->end && (c = rt_utf8_next(e->next, e->end, &n)) >= 0 &&
              t->classes[c] & RT_SPACE;)
    e->next += n;
}

static bool found_at(Encoding *e, const Tokenizer *t, const uint8_t *p) {
  for (int32_t i = 0; i < t->nadded; i++) {
    const VocabToken *k = &t->token[t->added[i]];
    const uint8_t *end = p + k->text.n;
    if ((k->special && !e->special) || e->end - p < (ptrdiff_t)k->text.n ||
        memcmp(p, t->text + k->text.at, k->text.n) || (k->alone && !stands_alone(e, t, p, end)))
      continue;
    e->found = t->added[i], e->stop = p, e->next = end;
    widen(e, t, k);
    return true;
  }
  return false;
}

static void find_next(Encoding *e, const Tokenizer *t) {
  e->found = -1, e->fresh = true;
  for (const uint8_t *p = e->at; t->nadded && p < e->end; p++)
    if (t->starts[*p] && found_at(e, t, p)) return;
  e->stop = e->next = e->end;
}

/* ---- encoding ---- */

/* A stretch begins with a space where the tokenizer wants one: the first piece comes from a copy.
 */
static const uint8_t *first_piece(const Encoding *e, Tokenizer *t, Ids *out) {
  enum { MOST = 1 << 24 };
  int64_t n = e->stop - e->at < MOST ? e->stop - e->at : MOST;
  uint8_t *copy = rt_alloc((size_t)n + 1);
  copy[0] = ' ';
  memcpy(copy + 1, e->at, (size_t)n);
  SplitText text = {copy, copy + n + 1, t->classes};
  const uint8_t *end = t->split(&text, copy);
  rt_remembered(t, rt_bpe_piece, copy, end, out);
  n = end - copy - 1;
  free(copy);
  return e->at + n;
}

static void plain_text(Encoding *e, Tokenizer *t, int64_t enough, Ids *out) {
  if (t->model == MODEL_WORDPIECE) {
    e->at = rt_words(t, e->at, e->stop, enough, out);
    return;
  }
  SplitText text = {e->at, e->stop, t->classes};
  if (e->fresh && t->prefix_space && *e->at != ' ') e->at = first_piece(e, t, out);
  e->fresh = false;
  while (e->at < e->stop && out->n < enough) {
    const uint8_t *end = t->split(&text, e->at);
    rt_remembered(t, rt_bpe_piece, e->at, end, out);
    e->at = end;
  }
}

void rt_encode_start(Encoding *e, Tokenizer *t, Bytes text, bool special) {
  *e = (Encoding){.at = text.at, .end = text.at + text.n, .special = special};
  find_next(e, t);
}

bool rt_encode_some(Encoding *e, Tokenizer *t, int64_t enough, Ids *out) {
  while (out->n < enough) {
    if (e->at < e->stop) plain_text(e, t, enough, out);
    if (e->at < e->stop) continue;
    if (e->found < 0) return false;
    rt_ids_add(out, t->token[e->found].id);
    e->at = e->next;
    find_next(e, t);
  }
  return true;
}

void rt_encode(Tokenizer *t, Bytes text, bool special, Ids *out) {
  Encoding e;
  rt_encode_start(&e, t, text, special);
  while (rt_encode_some(&e, t, INT64_MAX, out)) {}
}

/* ---- decoding ---- */

static int wanted(uint8_t lead) {
  return lead >= 0xf0 && lead < 0xf5   ? 4
         : lead >= 0xe0 && lead < 0xf0 ? 3
         : lead >= 0xc2 && lead < 0xe0 ? 2
                                       : 1;
}

/* Can these bytes, fewer than the first one promises, still become a character? */
static bool hopeful(const uint8_t *p, int n) {
  static const uint8_t last[2] = {0x80, 0xbf};
  uint8_t whole[4];
  int want = wanted(p[0]), bytes;
  if (n >= want) return false;
  for (int k = 0; k < 2; k++) { /* the smallest or the largest that it could be */
    for (int i = 0; i < want; i++) whole[i] = i < n ? p[i] : last[k];
    if (rt_utf8_next(whole, whole + want, &bytes) >= 0) return true;
  }
  return false;
}

static void put_byte(Spelling *s, uint8_t b, FILE *out) {
  int n;
  s->rest[s->n++] = (char)b;
  const uint8_t *p = (const uint8_t *)s->rest;
  if (rt_utf8_next(p, p + s->n, &n) >= 0) {
    fwrite(p, 1, (size_t)s->n, out);
    s->n = 0;
  } else if (!hopeful(p, s->n)) {
    bool alone = s->n == 1;
    fputs("\xef\xbf\xbd", out);
    s->n = 0;
    if (!alone) put_byte(s, b, out);
  }
}

void rt_decode_end(Spelling *s, FILE *out) {
  if (s->n) fputs("\xef\xbf\xbd", out);
  *s = (Spelling){0};
}

static const VocabToken *token_of(const Tokenizer *t, int32_t id) {
  int32_t low = 0, high = t->ntokens;
  while (low < high) { /* the first of that id */
    int32_t middle = low + (high - low) / 2;
    if (t->token[t->by_id[middle]].id < id) low = middle + 1;
    else high = middle;
  }
  return low < t->ntokens && t->token[t->by_id[low]].id == id ? &t->token[t->by_id[low]] : NULL;
}

/* Words of WordPiece stand apart, but not the end of a sentence from its last word. */
static bool joins(const Tokenizer *t, const uint8_t *p, uint32_t n, uint32_t *skip) {
  size_t k = strlen(t->prefix);
  *skip = k && n >= k && !memcmp(p, t->prefix, k) ? (uint32_t)k : 0;
  return *skip || (n == 1 && strchr(".?!,", *p));
}

void rt_decode(const Tokenizer *t, int32_t id, Spelling *s, FILE *out) {
  const VocabToken *k = token_of(t, id);
  uint32_t skip = 0;
  if (!k) {
    rt_decode_end(s, out);
    fprintf(out, "<%d>", id);
    return;
  }
  const uint8_t *p = t->text + k->text.at;
  if (t->model == MODEL_WORDPIECE && s->begun && !joins(t, p, k->text.n, &skip)) fputc(' ', out);
  s->begun = true;
  for (uint32_t i = skip; i < k->text.n; i++) put_byte(s, p[i], out);
}

/* ---- questions ---- */

const char *rt_tokenizer_kind(const Tokenizer *t) {
  return t->model == MODEL_BPE ? "byte-level BPE" : "WordPiece";
}

int64_t rt_tokenizer_limit(const Tokenizer *t) {
  return (int64_t)t->token[t->by_id[t->ntokens - 1]].id + 1;
}

int64_t rt_tokenizer_count(const Tokenizer *t) {
  int64_t n = 0;
  for (int32_t i = 0; i < t->ntokens; i++)
    n += i == 0 || t->token[t->by_id[i]].id != t->token[t->by_id[i - 1]].id;
  return n;
}

int32_t rt_tokenizer_id(const Tokenizer *t, const char *name) {
  int32_t place = rt_vocab_find(t, (const uint8_t *)name, (int64_t)strlen(name));
  return place < 0 ? -1 : t->token[place].id;
}

bool rt_tokenizer_special(const Tokenizer *t, int32_t id) {
  const VocabToken *k = token_of(t, id);
  return k && k->special;
}

void rt_tokenizer_close(Tokenizer *t) {
  void *parts[] = {t->classes, t->text,   t->token, t->slot,    t->by_id, t->merge, t->pair,
                   t->added,   t->symbol, t->heap,  t->spelled, t->word,  t->cache, t};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}
