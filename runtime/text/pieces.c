/* Text in which spaces are marks (U+2581), as Metaspace and the normalizers of Llama 2 have it: cut
   into pieces, each merged from characters (bpe.c), or spelled by the tokens whose scores add up to
   the most (Unigram). If no token crosses the beginning of a word, cutting at words changes no id
   and keeps memory small; else a piece ends after 16 MiB. Must not: read past the end of the
   stretch. */
#include "tokenizer_in.h"
#include <string.h>

enum { LONGEST = 1 << 24 };

/* ---- Unigram ---- */

static void reach(BestPath *best, int64_t at, int32_t from, int32_t token, double score) {
  if (best[at].token != -2 && best[at].score >= score) return;
  best[at] = (BestPath){score, from, token, 0};
}

static void reach_all(Tokenizer *tokenizer, const uint8_t *p, int64_t at, int64_t n) {
  BestPath *best = tokenizer->best;
  int first, k;
  rt_utf8_next(p + at, p + n, &first);
  bool alone = false;
  int64_t most = n - at < tokenizer->longest_text ? n - at : tokenizer->longest_text;
  for (int64_t length = first; length <= most; length += k) {
    int32_t token = rt_vocab_find(tokenizer, p + at, length);
    bool plain = token >= 0 && !tokenizer->token[token].added;
    if (plain)
      reach(best, at + length, (int32_t)at, token, best[at].score + tokenizer->token[token].score);
    alone |= plain && length == first;
    k = 1;
    if (at + length < n) rt_utf8_next(p + at + length, p + n, &k);
  }
  if (!alone) reach(best, at + first, (int32_t)at, -1, best[at].score + tokenizer->least - 10);
}

static void put_unknown(Tokenizer *tokenizer, const uint8_t *p, int64_t n, Ids *out) {
  bool bytes = tokenizer->byte_fallback;
  for (int64_t i = 0; bytes && i < n; i++) bytes = tokenizer->of_byte[p[i]] >= 0;
  for (int64_t i = 0; bytes && i < n; i++)
    rt_ids_add(out, tokenizer->token[tokenizer->of_byte[p[i]]].id);
  if (!bytes) rt_ids_add(out, tokenizer->token[tokenizer->unknown].id);
}

static void unigram_piece(Tokenizer *tokenizer, const uint8_t *p, const uint8_t *end, Ids *out) {
  int64_t n = end - p;
  tokenizer->best =
      rt_vocab_grow(tokenizer->best, &tokenizer->best_room, n + 1, sizeof *tokenizer->best);
  BestPath *best = tokenizer->best;
  for (int64_t i = 0; i <= n; i++) best[i] = (BestPath){.token = -2};
  best[0].token = -1;
  for (int64_t at = 0; at < n; at++)
    if (best[at].token != -2) reach_all(tokenizer, p, at, n);
  for (int64_t at = n; at > 0; at = best[at].from) best[best[at].from].next = (int32_t)at;
  for (int64_t at = 0, k; at < n; at = k) {
    int32_t token = best[k = best[at].next].token;
    while (token < 0 && k < n && best[best[k].next].token < 0) k = best[k].next;
    if (token >= 0) rt_ids_add(out, tokenizer->token[token].id);
    else put_unknown(tokenizer, p + at, k - at, out);
  }
}

/* ---- pieces ---- */

static void put(Tokenizer *tokenizer, int64_t *n, const void *text, int64_t k) {
  tokenizer->spelled = rt_vocab_grow(tokenizer->spelled, &tokenizer->spelled_room, *n + k, 1);
  memcpy(tokenizer->spelled + *n, text, (size_t)k);
  *n += k;
}

static bool is_mark(const Tokenizer *tokenizer, const uint8_t *p, const uint8_t *end, int *n) {
  bool space = tokenizer->marks && *p == ' ';
  *n = space ? 1 : 3;
  return space || (end - p >= 3 && !memcmp(p, RT_MARK_TEXT, 3));
}

static bool prepends(const Tokenizer *tokenizer, const Encoding *encoding) {
  int n;
  bool has = is_mark(tokenizer, encoding->at, encoding->stop, &n);
  switch (tokenizer->prepend) {
  case PREPEND_NOT: return false;
  case PREPEND_ALWAYS: return true;
  case PREPEND_MISSING: return !has;
  case PREPEND_FIRST: return encoding->first && !has;
  }
  return false;
}

const uint8_t *rt_marked_piece(Tokenizer *tokenizer, const Encoding *encoding, Ids *out) {
  const uint8_t *p = encoding->at, *end = encoding->stop;
  int64_t n = 0;
  bool word = false, began = false; /* something else than marks; a mark */
  if (encoding->fresh && prepends(tokenizer, encoding)) put(tokenizer, &n, RT_MARK_TEXT, 3);
  began = n > 0;
  for (int k; p < end && n < LONGEST; p += k) {
    bool mark = is_mark(tokenizer, p, end, &k);
    if (mark &&
        ((tokenizer->cut_at_marks && (word || began)) || (tokenizer->cut_before_marks && word)))
      break;
    if (!mark) rt_utf8_next(p, end, &k);
    put(tokenizer, &n, mark ? (const void *)RT_MARK_TEXT : p, mark ? 3 : k);
    began |= mark, word |= !mark;
  }
  uint8_t *piece = tokenizer->spelled;
  rt_remembered(tokenizer, tokenizer->model == MODEL_UNIGRAM ? unigram_piece : rt_bpe_piece, piece,
                piece + n, out);
  return p;
}
