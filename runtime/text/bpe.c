/* Merging byte pairs: a piece begins as its bytes; of all neighbours that may merge, the pair of
   the lowest rank does, the leftmost first, until none is left. Short pieces look through all
   neighbours each time; long ones keep them in a heap, so n bytes take n log n. Outdated entries of
   the heap are known by what they would make. Must not: care where pieces come from. */
#include "tokenizer_in.h"
#include <string.h>

enum { SHORT = 24 };

static void join(Tokenizer *t, int32_t at, int32_t made) {
  Symbol *s = &t->symbol[at];
  int32_t gone = s->after;
  s->token = made, s->after = t->symbol[gone].after;
  if (s->after >= 0) t->symbol[s->after].before = at;
  t->symbol[gone].token = -1;
}

static const MergePair *pair_at(const Tokenizer *t, int32_t at) {
  const Symbol *s = &t->symbol[at];
  return s->token < 0 || s->after < 0 ? NULL
                                      : rt_vocab_pair(t, s->token, t->symbol[s->after].token);
}

static void merge_short(Tokenizer *t) {
  for (;;) {
    const MergePair *best = NULL;
    int32_t at = 0;
    for (int32_t i = 0; i >= 0; i = t->symbol[i].after) {
      const MergePair *p = pair_at(t, i);
      if (p && (!best || p->rank < best->rank)) best = p, at = i;
    }
    if (!best) return;
    join(t, at, best->made);
  }
}

/* ---- the heap: heap[0] is the first, the children of i are 2 i + 1 and 2 i + 2 ---- */

static bool before(Candidate a, Candidate b) {
  return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void push(Tokenizer *t, int64_t *n, int32_t at) {
  const MergePair *p = at >= 0 ? pair_at(t, at) : NULL;
  if (!p) return;
  Candidate c = {p->rank, at, p->made};
  int64_t i = (*n)++;
  t->heap = rt_vocab_grow(t->heap, &t->heap_room, *n, sizeof *t->heap);
  for (; i && before(c, t->heap[(i - 1) / 2]); i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
  t->heap[i] = c;
}

static Candidate pop(Tokenizer *t, int64_t *n) {
  Candidate first = t->heap[0], last = t->heap[--*n];
  int64_t i = 0;
  for (int64_t k; (k = 2 * i + 1) < *n; i = k) {
    if (k + 1 < *n && before(t->heap[k + 1], t->heap[k])) k++;
    if (!before(t->heap[k], last)) break;
    t->heap[i] = t->heap[k];
  }
  t->heap[i] = last;
  return first;
}

static void merge_long(Tokenizer *t, int32_t count) {
  int64_t n = 0;
  for (int32_t i = 0; i < count; i++) push(t, &n, i);
  while (n > 0) {
    Candidate c = pop(t, &n);
    const MergePair *p = pair_at(t, c.at);
    if (!p || p->made != c.made) continue;
    join(t, c.at, c.made);
    push(t, &n, t->symbol[c.at].before), push(t, &n, c.at);
  }
}

/* ---- pieces ---- */

static int32_t start(Tokenizer *t, const uint8_t *p, const uint8_t *end) {
  int32_t n = 0;
  t->symbol = rt_vocab_grow(t->symbol, &t->symbol_room, end - p, sizeof *t->symbol);
  for (; p < end; p++) {
    int32_t token = t->of_byte[*p] >= 0 ? t->of_byte[*p] : t->unknown;
    if (token < 0) continue; /* as in the reference: what has no token is left out */
    t->symbol[n] = (Symbol){token, n - 1, n + 1};
    n++;
  }
  if (n) t->symbol[n - 1].after = -1;
  return n;
}

void rt_bpe_piece(Tokenizer *t, const uint8_t *p, const uint8_t *end, Ids *out) {
  int32_t whole = t->whole_words ? rt_vocab_find(t, p, end - p) : -1;
  if (whole >= 0) {
    rt_ids_add(out, t->token[whole].id);
    return;
  }
  int32_t n = start(t, p, end);
  if (n == 0) return;
  if (n <= SHORT) merge_short(t);
  else merge_long(t, n);
  for (int32_t i = 0; i >= 0; i = t->symbol[i].after)
    rt_ids_add(out, t->token[t->symbol[i].token].id);
}
