/* Text to ids and back. The text is searched for added tokens first; the text between them is
   encoded by the model: pieces by a splitter, then merging (bpe.c), or words (wordpiece.c). Pieces
   seen before are taken from a small cache. Must not: read files (tokenizer_open.c). */
#include "tokenizer_in.h"
#include <stdlib.h>
#include <string.h>

void rt_ids_add(Ids *out, int32_t id) {
  out->at = rt_vocab_grow(out->at, &out->room, out->n + 1, sizeof *out->at);
  out->at[out->n++] = id;
}

void rt_remembered(Tokenizer *tokenizer, Work *work, const uint8_t *p, const uint8_t *end,
                   Ids *out) {
  ptrdiff_t n = end - p;
  Cached *cached = &tokenizer->cache[rt_hash_of(p, (size_t)n) % CACHE_SLOTS];
  if (cached->n == n && !memcmp(cached->text, p, (size_t)n)) {
    for (int i = 0; i < cached->count; i++) rt_ids_add(out, cached->id[i]);
    return;
  }
  int64_t first = out->n;
  work(tokenizer, p, end, out);
  int64_t count = out->n - first;
  if (n > CACHE_TEXT || count > CACHE_IDS) return;
  memcpy(cached->text, p, (size_t)n);
  for (int64_t i = 0; i < count; i++) cached->id[i] = out->at[first + i];
  cached->n = (uint8_t)n, cached->count = (uint8_t)count;
}

/* ---- added tokens ---- */

static bool is_word(const Tokenizer *tokenizer, int32_t c) {
  return c == '_' || (c >= 0 && tokenizer->classes[c] & (RT_LETTER | RT_NUMBER | RT_MARK));
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

static bool stands_alone(const Encoding *encoding, const Tokenizer *tokenizer, const uint8_t *p,
                         const uint8_t *end) {
  int n;
  const uint8_t *q;
  if (p > encoding->at && is_word(tokenizer, character_before(encoding->at, p, &q))) return false;
  return end == encoding->end || !is_word(tokenizer, rt_utf8_next(end, encoding->end, &n));
}

/* Spaces on both sides that the token takes. */
static void widen(Encoding *encoding, const Tokenizer *tokenizer, const VocabToken *token) {
  int32_t c;
  const uint8_t *q;
  while (token->left && encoding->stop > encoding->at &&
         (c = character_before(encoding->at, encoding->stop, &q)) >= 0 &&
         tokenizer->classes[c] & RT_SPACE)
    encoding->stop = q;
  for (int n; token->right && encoding->next < encoding->end &&
              (c = rt_utf8_next(encoding->next, encoding->end, &n)) >= 0 &&
              tokenizer->classes[c] & RT_SPACE;)
    encoding->next += n;
}

static bool found_at(Encoding *encoding, const Tokenizer *tokenizer, const uint8_t *p) {
  for (int32_t i = 0; i < tokenizer->nadded; i++) {
    const VocabToken *token = &tokenizer->token[tokenizer->added[i]];
    const uint8_t *end = p + token->text.n;
    if ((token->special && !encoding->special) || encoding->end - p < (ptrdiff_t)token->text.n ||
        memcmp(p, tokenizer->text + token->text.at, token->text.n) ||
        (token->alone && !stands_alone(encoding, tokenizer, p, end)))
      continue;
    encoding->found = tokenizer->added[i], encoding->stop = p, encoding->next = end;
    widen(encoding, tokenizer, token);
    return true;
  }
  return false;
}

static void find_next(Encoding *encoding, const Tokenizer *tokenizer) {
  encoding->found = -1, encoding->fresh = true;
  for (const uint8_t *p = encoding->at; tokenizer->nadded && p < encoding->end; p++)
    if (tokenizer->starts[*p] && found_at(encoding, tokenizer, p)) return;
  encoding->stop = encoding->next = encoding->end;
}

/* ---- encoding ---- */

/* A stretch begins with a space where the tokenizer wants one: the first piece comes from a copy.
 */
static const uint8_t *first_piece(const Encoding *encoding, Tokenizer *tokenizer, Ids *out) {
  enum { MOST = 1 << 24 };
  int64_t n = encoding->stop - encoding->at < MOST ? encoding->stop - encoding->at : MOST;
  uint8_t *copy = rt_alloc((size_t)n + 1);
  copy[0] = ' ';
  memcpy(copy + 1, encoding->at, (size_t)n);
  SplitText text = {copy, copy + n + 1, tokenizer->classes};
  const uint8_t *end = tokenizer->split(&text, copy);
  rt_remembered(tokenizer, rt_bpe_piece, copy, end, out);
  n = end - copy - 1;
  free(copy);
  return encoding->at + n;
}

static void plain_text(Encoding *encoding, Tokenizer *tokenizer, int64_t enough, Ids *out) {
  if (tokenizer->model == MODEL_WORDPIECE) {
    encoding->at = rt_words(tokenizer, encoding->at, encoding->stop, enough, out);
    return;
  }
  if (tokenizer->model != MODEL_BPE) {
    while (encoding->at < encoding->stop && out->n < enough) {
      encoding->at = rt_marked_piece(tokenizer, encoding, out);
      encoding->fresh = encoding->first = false;
    }
    return;
  }
  SplitText text = {encoding->at, encoding->stop, tokenizer->classes};
  if (encoding->fresh && tokenizer->prefix_space && *encoding->at != ' ')
    encoding->at = first_piece(encoding, tokenizer, out);
  encoding->fresh = false;
  while (encoding->at < encoding->stop && out->n < enough) {
    const uint8_t *end = tokenizer->split(&text, encoding->at);
    rt_remembered(tokenizer, rt_bpe_piece, encoding->at, end, out);
    encoding->at = end;
  }
}

void rt_encode_start(Encoding *encoding, Tokenizer *tokenizer, Bytes text, bool special) {
  *encoding = (Encoding){.at = text.at, .end = text.at + text.n, .special = special, .first = true};
  find_next(encoding, tokenizer);
}

bool rt_encode_some(Encoding *encoding, Tokenizer *tokenizer, int64_t enough, Ids *out) {
  while (out->n < enough) {
    if (encoding->at < encoding->stop) plain_text(encoding, tokenizer, enough, out);
    if (encoding->at < encoding->stop) continue;
    if (encoding->found < 0) return false;
    rt_ids_add(out, tokenizer->token[encoding->found].id);
    encoding->at = encoding->next, encoding->first = false;
    find_next(encoding, tokenizer);
  }
  return true;
}

void rt_encode(Tokenizer *tokenizer, Bytes text, bool special, Ids *out) {
  Encoding encoding;
  rt_encode_start(&encoding, tokenizer, text, special);
  while (rt_encode_some(&encoding, tokenizer, INT64_MAX, out)) {}
}

int32_t rt_tokenizer_next_name(Tokenizer *tokenizer, Bytes text, Bytes *name) {
  Encoding encoding;
  rt_encode_start(&encoding, tokenizer, text, true);
  *name = (Bytes){encoding.stop, encoding.next - encoding.stop};
  return encoding.found < 0 ? -1 : tokenizer->token[encoding.found].id;
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

static void put_byte(Spelling *spelling, uint8_t b, FILE *out) {
  int n;
  spelling->rest[spelling->n++] = (char)b;
  const uint8_t *p = (const uint8_t *)spelling->rest;
  if (rt_utf8_next(p, p + spelling->n, &n) >= 0) {
    fwrite(p, 1, (size_t)spelling->n, out);
    spelling->n = 0;
  } else if (!hopeful(p, spelling->n)) {
    bool alone = spelling->n == 1;
    fputs("\xef\xbf\xbd", out);
    spelling->n = 0;
    if (!alone) put_byte(spelling, b, out);
  }
}

void rt_decode_end(Spelling *spelling, FILE *out) {
  if (spelling->n) fputs("\xef\xbf\xbd", out);
  *spelling = (Spelling){0};
}

static const VocabToken *token_of(const Tokenizer *tokenizer, int32_t id) {
  int32_t low = 0, high = tokenizer->ntokens;
  while (low < high) { /* the first of that id */
    int32_t middle = low + (high - low) / 2;
    if (tokenizer->token[tokenizer->by_id[middle]].id < id) low = middle + 1;
    else high = middle;
  }
  return low < tokenizer->ntokens && tokenizer->token[tokenizer->by_id[low]].id == id
             ? &tokenizer->token[tokenizer->by_id[low]]
             : NULL;
}

/* Words of WordPiece are separated by spaces, but not punctuation at the end of a sentence. */
static bool joins(const Tokenizer *tokenizer, const uint8_t *p, uint32_t n, uint32_t *skip) {
  size_t k = strlen(tokenizer->prefix);
  *skip = k && n >= k && !memcmp(p, tokenizer->prefix, k) ? (uint32_t)k : 0;
  return *skip || (n == 1 && strchr(".?!,", *p));
}

/* <0x0A> is a byte, a mark a space; the mark that was put before a text is not part of it. */
static void decode_marked(const Tokenizer *tokenizer, const uint8_t *p, uint32_t n,
                          Spelling *spelling, FILE *out) {
  bool drop = !spelling->begun && tokenizer->prepend != PREPEND_NOT;
  unsigned byte;
  char close;
  spelling->begun = true;
  if (n == 6 && sscanf((const char *)p, "<0x%2X%c", &byte, &close) == 2 && close == '>') {
    put_byte(spelling, (uint8_t)byte, out);
    return;
  }
  for (uint32_t i = 0; i < n; drop = false)
    if (n - i >= 3 && !memcmp(p + i, RT_MARK_TEXT, 3)) {
      if (!drop) put_byte(spelling, ' ', out);
      i += 3;
    } else put_byte(spelling, p[i++], out);
}

void rt_decode(const Tokenizer *tokenizer, int32_t id, Spelling *spelling, FILE *out) {
  const VocabToken *token = token_of(tokenizer, id);
  uint32_t skip = 0;
  if (!token) {
    rt_decode_end(spelling, out);
    fprintf(out, "<%d>", id);
    return;
  }
  const uint8_t *p = tokenizer->text + token->text.at;
  if (tokenizer->marks && !token->added) {
    decode_marked(tokenizer, p, token->text.n, spelling, out);
    return;
  }
  if (tokenizer->model == MODEL_WORDPIECE && spelling->begun &&
      !joins(tokenizer, p, token->text.n, &skip))
    fputc(' ', out);
  spelling->begun = true;
  for (uint32_t i = skip; i < token->text.n; i++) put_byte(spelling, p[i], out);
}

/* ---- questions ---- */

int64_t rt_tokenizer_limit(const Tokenizer *tokenizer) {
  return (int64_t)tokenizer->token[tokenizer->by_id[tokenizer->ntokens - 1]].id + 1;
}

int32_t rt_tokenizer_id(const Tokenizer *tokenizer, const char *name) {
  int32_t place = rt_vocab_find(tokenizer, (const uint8_t *)name, (int64_t)strlen(name));
  return place < 0 ? -1 : tokenizer->token[place].id;
}

bool rt_tokenizer_special(const Tokenizer *tokenizer, int32_t id) {
  const VocabToken *token = token_of(tokenizer, id);
  return token && token->special;
}

void rt_tokenizer_close(Tokenizer *tokenizer) {
  void *parts[] = {tokenizer->classes, tokenizer->text,  tokenizer->token,   tokenizer->slot,
                   tokenizer->by_id,   tokenizer->merge, tokenizer->pair,    tokenizer->added,
                   tokenizer->symbol,  tokenizer->heap,  tokenizer->spelled, tokenizer->word,
                   tokenizer->cache,   tokenizer->best,  tokenizer};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}
