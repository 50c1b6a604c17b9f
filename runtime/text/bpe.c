/* Merging byte pairs: a piece begins as its bytes; of all neighbours that may merge, the pair of
   the lowest rank does, the leftmost first, until none is left. Short pieces look through all
   neighbours each time; long ones keep them in a heap, so n bytes take n log n. Outdated entries of
   the heap are known by what they would make. Must not: care where pieces come from. */
#include "tokenizer_in.h"
#include <string.h>

enum { SHORT = 24 };

static void join(Tokenizer *tokenizer, int32_t at, int32_t made) {
  Symbol *s = &tokenizer->symbol[at];
  int32_t gone = s->after;
  s->token = made, s->after = tokenizer->symbol[gone].after;
  if (s->after >= 0) tokenizer->symbol[s->after].before = at;
  tokenizer->symbol[gone].token = -1;
}

static const MergePair *pair_at(const Tokenizer *tokenizer, int32_t at) {
  const Symbol *s = &tokenizer->symbol[at];
  return s->token < 0 || s->after < 0
             ? NULL
             : rt_vocab_pair(tokenizer, s->token, tokenizer->symbol[s->after].token);
}

static void merge_short(Tokenizer *tokenizer) {
  for (;;) {
    const MergePair *best = NULL;
    int32_t at = 0;
    for (int32_t i = 0; i >= 0; i = tokenizer->symbol[i].after) {
      const MergePair *pair = pair_at(tokenizer, i);
      if (pair && (!best || pair->rank < best->rank)) best = pair, at = i;
    }
    if (!best) return;
    join(tokenizer, at, best->made);
  }
}

/* ---- the heap: heap[0] is the first, the children of i are 2 i + 1 and 2 i + 2 ---- */

static bool before(Candidate a, Candidate b) {
  return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void push(Tokenizer *tokenizer, int64_t *n, int32_t at) {
  const MergePair *pair = at >= 0 ? pair_at(tokenizer, at) : NULL;
  if (!pair) return;
  Candidate candidate = {pair->rank, at, pair->made};
  int64_t i = (*n)++;
  tokenizer->heap =
      rt_vocab_grow(tokenizer->heap, &tokenizer->heap_room, *n, sizeof *tokenizer->heap);
  for (; i && before(candidate, tokenizer->heap[(i - 1) / 2]); i = (i - 1) / 2)
    tokenizer->heap[i] = tokenizer->heap[(i - 1) / 2];
  tokenizer->heap[i] = candidate;
}

static Candidate pop(Tokenizer *tokenizer, int64_t *n) {
  Candidate first = tokenizer->heap[0], last = tokenizer->heap[--*n];
  int64_t i = 0;
  for (int64_t k; (k = 2 * i + 1) < *n; i = k) {
    if (k + 1 < *n && before(tokenizer->heap[k + 1], tokenizer->heap[k])) k++;
    if (!before(tokenizer->heap[k], last)) break;
    tokenizer->heap[i] = tokenizer->heap[k];
  }
  tokenizer->heap[i] = last;
  return first;
}

static void merge_long(Tokenizer *tokenizer, int32_t count) {
  int64_t n = 0;
  for (int32_t i = 0; i < count; i++) push(tokenizer, &n, i);
  while (n > 0) {
    Candidate candidate = pop(tokenizer, &n);
    const MergePair *pair = pair_at(tokenizer, candidate.at);
    if (!pair || pair->made != candidate.made) continue;
    join(tokenizer, candidate.at, candidate.made);
    push(tokenizer, &n, tokenizer->symbol[candidate.at].before), push(tokenizer, &n, candidate.at);
  }
}

/* ---- pieces ---- */

/* Characters; bytes of one without a token, or the unknown token, one for neighbours. */
static int32_t start_characters(Tokenizer *tokenizer, const uint8_t *p, const uint8_t *end) {
  int32_t n = 0;
  bool unknown = false;
  for (int k; p < end; p += k) {
    rt_utf8_next(p, end, &k);
    int32_t token = rt_vocab_find(tokenizer, p, k);
    bool bytes = token < 0 && tokenizer->byte_fallback;
    for (int i = 0; bytes && i < k; i++) bytes = tokenizer->of_byte[p[i]] >= 0;
    bool skip =
        token < 0 && !bytes && (tokenizer->unknown < 0 || (unknown && tokenizer->fuse_unknown));
    unknown = token < 0 && !bytes;
    if (unknown) token = tokenizer->unknown;
    for (int i = 0; !skip && i < (bytes ? k : 1); i++, n++)
      tokenizer->symbol[n] = (Symbol){bytes ? tokenizer->of_byte[p[i]] : token, n - 1, n + 1};
  }
  if (n) tokenizer->symbol[n - 1].after = -1;
  return n;
}

static int32_t start(Tokenizer *tokenizer, const uint8_t *p, const uint8_t *end) {
  int32_t n = 0;
  tokenizer->symbol =
      rt_vocab_grow(tokenizer->symbol, &tokenizer->symbol_room, end - p, sizeof *tokenizer->symbol);
  if (tokenizer->model == MODEL_CHARACTERS) return start_characters(tokenizer, p, end);
  for (; p < end; p++) {
    int32_t token = tokenizer->of_byte[*p] >= 0 ? tokenizer->of_byte[*p] : tokenizer->unknown;
    if (token < 0) continue; /* as in the reference: what has no token is left out */
    tokenizer->symbol[n] = (Symbol){token, n - 1, n + 1};
    n++;
  }
  if (n) tokenizer->symbol[n - 1].after = -1;
  return n;
}

void rt_bpe_piece(Tokenizer *tokenizer, const uint8_t *p, const uint8_t *end, Ids *out) {
  int32_t whole = tokenizer->whole_words ? rt_vocab_find(tokenizer, p, end - p) : -1;
  if (whole >= 0) {
    rt_ids_add(out, tokenizer->token[whole].id);
    return;
  }
  int32_t n = start(tokenizer, p, end);
  if (n == 0) return;
  if (n <= SHORT) merge_short(tokenizer);
  else merge_long(tokenizer, n);
  for (int32_t i = 0; i >= 0; i = tokenizer->symbol[i].after)
    rt_ids_add(out, tokenizer->token[tokenizer->symbol[i].token].id);
}
