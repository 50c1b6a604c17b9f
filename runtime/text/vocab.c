/* The vocabulary of a tokenizer: tokens by text (a hash table with linear probing), by id (sorted),
   pairs that merge (a hash table). Text of all tokens lies in one block that is as large as the
   file, so no count in a file can ask for more memory than the file justifies. Byte-level files
   spell bytes as letters (GPT-2's alphabet: printable Latin-1 as itself, the others from U+0100
   on); rt_vocab_finish turns them back into bytes. Must not: read files. */
#include "tokenizer_in.h"
#include <stdlib.h>
#include <string.h>

void *rt_vocab_grow(void *at, int64_t *room, int64_t need, size_t size) {
  if (need <= *room) return at;
  int64_t n = *room ? *room : 64;
  while (n < need) n *= 2;
  void *grown = rt_alloc((size_t)n * size);
  if (at) memcpy(grown, at, (size_t)*room * size);
  free(at);
  *room = n;
  return grown;
}

Tokenizer *rt_vocab_new(int64_t text_room) {
  Tokenizer *t = rt_alloc(sizeof *t);
  t->text = rt_alloc((size_t)text_room + 1);
  t->room = text_room + 1, t->unknown = -1;
  return t;
}

static bool full(Fault *f) { return rt_fault(f, 206, "damaged tokenizer: too many entries"); }

bool rt_vocab_add(Tokenizer *t, TokenPiece text, int64_t id, VocabToken **out, Fault *f) {
  int64_t room = t->token_room;
  if (id < 0 || id > INT32_MAX)
    return rt_fault(f, 206, "damaged tokenizer: token `%.*s` has id %lld",
                    (int)(text.n < 80 ? text.n : 80), (char *)t->text + text.at, (long long)id);
  if (t->ntokens >= 1 << 26) return full(f);
  t->token = rt_vocab_grow(t->token, &room, t->ntokens + 1, sizeof *t->token);
  t->token_room = (int32_t)room;
  t->token[t->ntokens] = (VocabToken){.text = text, .id = (int32_t)id};
  if (out) *out = &t->token[t->ntokens];
  t->ntokens++;
  return true;
}

bool rt_vocab_add_merge(Tokenizer *t, TokenPiece left, TokenPiece right, Fault *f) {
  int64_t room = t->merge_room;
  if (t->nmerges >= 1 << 26) return full(f);
  t->merge = rt_vocab_grow(t->merge, &room, t->nmerges + 1, sizeof *t->merge);
  t->merge_room = (int32_t)room;
  t->merge[t->nmerges++] = (Merge){left, right};
  return true;
}

/* ---- tables ---- */

static uint32_t size_for(int64_t n) {
  uint32_t size = 16;
  while (size < 2 * n) size *= 2;
  return size;
}

static bool spells(const Tokenizer *t, int32_t place, const uint8_t *text, int64_t n) {
  const VocabToken *k = &t->token[place];
  return k->text.n == n && !memcmp(t->text + k->text.at, text, (size_t)n);
}

int32_t rt_vocab_find(const Tokenizer *t, const uint8_t *text, int64_t n) {
  uint32_t i = (uint32_t)rt_hash_of(text, (size_t)n) & t->mask;
  for (; t->slot[i] >= 0; i = (i + 1) & t->mask)
    if (spells(t, t->slot[i], text, n)) return t->slot[i];
  return -1;
}

/* Of two tokens of one text the later one counts, but an added one never hides a plain one. */
static void enter(Tokenizer *t, int32_t place) {
  const VocabToken *k = &t->token[place];
  const uint8_t *text = t->text + k->text.at;
  uint32_t i = (uint32_t)rt_hash_of(text, k->text.n) & t->mask;
  while (t->slot[i] >= 0 && !spells(t, t->slot[i], text, k->text.n)) i = (i + 1) & t->mask;
  if (t->slot[i] < 0 || !k->added) t->slot[i] = place;
}

static uint32_t pair_slot(const Tokenizer *t, uint64_t key) {
  uint32_t i = (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32) & t->pair_mask;
  while (t->pair[i].key && t->pair[i].key != key) i = (i + 1) & t->pair_mask;
  return i;
}

static uint64_t pair_key(int32_t left, int32_t right) {
  return (uint64_t)(left + 1) << 32 | (uint32_t)(right + 1);
}

const MergePair *rt_vocab_pair(const Tokenizer *t, int32_t left, int32_t right) {
  const MergePair *p = &t->pair[pair_slot(t, pair_key(left, right))];
  return p->key ? p : NULL;
}

/* ---- letters for bytes ---- */

static bool plain(int b) { return (b > 32 && b < 127) || (b > 160 && b != 173); }

/* The byte for which a letter stands: U+0100 and on count the bytes that are not plain. */
static int byte_of(int32_t letter) {
  if (letter < 256) return letter > 0 && plain(letter) ? letter : -1;
  int k = letter - 256;
  for (int b = 0; b < 256; b++)
    if (!plain(b) && k-- == 0) return b;
  return -1;
}

/* In place: bytes are never more than letters. False: text that is not in the alphabet. */
static bool to_bytes(Tokenizer *t, TokenPiece *piece) {
  uint8_t *p = t->text + piece->at, *end = p + piece->n, *to = p;
  for (const uint8_t *q = p; q < end;) {
    int n, b = byte_of(rt_utf8_next(q, end, &n));
    if (b < 0) return false;
    q += n;
  }
  while (p < end) {
    int n, b = byte_of(rt_utf8_next(p, end, &n));
    p += n, *to++ = (uint8_t)b;
  }
  piece->n = (uint32_t)(to - (t->text + piece->at));
  return true;
}

/* ---- after reading ---- */

static bool no_token(const Tokenizer *t, int32_t merge, TokenPiece text, Fault *f) {
  rt_fault(f, 206, "merge %d needs the token `%.*s`, which the vocabulary lacks", merge + 1,
           (int)(text.n < 80 ? text.n : 80), (char *)t->text + text.at);
  return rt_help(f, "vocabulary and merges must come from the same tokenizer");
}

static bool enter_merge(Tokenizer *t, int32_t i, uint8_t *both, Fault *f) {
  Merge m = t->merge[i];
  if (!to_bytes(t, &m.left)) return no_token(t, i, m.left, f);
  if (!to_bytes(t, &m.right)) return no_token(t, i, m.right, f);
  memcpy(both, t->text + m.left.at, m.left.n);
  memcpy(both + m.left.n, t->text + m.right.at, m.right.n);
  int32_t left = rt_vocab_find(t, both, m.left.n),
          right = rt_vocab_find(t, both + m.left.n, m.right.n),
          made = rt_vocab_find(t, both, (int64_t)m.left.n + m.right.n);
  if (left < 0) return no_token(t, i, m.left, f);
  if (right < 0) return no_token(t, i, m.right, f);
  if (made < 0) return rt_fault(f, 206, "merge %d makes a token that the vocabulary lacks", i + 1);
  uint64_t key = pair_key(left, right);
  t->pair[pair_slot(t, key)] = (MergePair){key, i, made};
  return true;
}

static bool enter_merges(Tokenizer *t, Fault *f) {
  uint8_t *both = rt_alloc((size_t)t->room);
  bool ok = true;
  t->pair_mask = size_for(t->nmerges) - 1;
  t->pair = rt_alloc(sizeof *t->pair * ((size_t)t->pair_mask + 1));
  for (int32_t i = 0; ok && i < t->nmerges; i++) ok = enter_merge(t, i, both, f);
  free(both), free(t->merge);
  t->merge = NULL;
  for (int b = 0; b < 256; b++) {
    uint8_t byte = (uint8_t)b;
    t->of_byte[b] = rt_vocab_find(t, &byte, 1);
  }
  return ok;
}

static int by_id(const void *a, const void *b, void *context) {
  const VocabToken *x = &((Tokenizer *)context)->token[*(const int32_t *)a],
                   *y = &((Tokenizer *)context)->token[*(const int32_t *)b];
  if (x->id != y->id) return (x->id > y->id) - (x->id < y->id);
  return x->added != y->added ? y->added - x->added : *(const int32_t *)a - *(const int32_t *)b;
}

static int longest_first(const void *a, const void *b, void *context) {
  const VocabToken *x = &((Tokenizer *)context)->token[*(const int32_t *)a],
                   *y = &((Tokenizer *)context)->token[*(const int32_t *)b];
  if (x->text.n != y->text.n) return (x->text.n < y->text.n) - (x->text.n > y->text.n);
  return *(const int32_t *)a - *(const int32_t *)b;
}

static void list_added(Tokenizer *t) {
  t->added = rt_alloc(sizeof *t->added * (size_t)(t->ntokens + 1));
  for (int32_t i = 0; i < t->ntokens; i++) {
    if (!t->token[i].added || !t->token[i].text.n) continue;
    t->added[t->nadded++] = i;
    t->starts[t->text[t->token[i].text.at]] = true;
  }
  qsort_r(t->added, (size_t)t->nadded, sizeof *t->added, longest_first, t);
}

static bool has_unknown(const Tokenizer *t, Fault *f) {
  return t->unknown >= 0 ||
         rt_fault(f, 206, "the vocabulary lacks the unknown token `%s`", t->unknown_name);
}

bool rt_vocab_finish(Tokenizer *t, Fault *f) {
  if (!t->ntokens) return rt_fault(f, 206, "damaged tokenizer: it has no tokens");
  t->mask = size_for(t->ntokens) - 1;
  t->slot = rt_alloc(sizeof *t->slot * ((size_t)t->mask + 1));
  t->by_id = rt_alloc(sizeof *t->by_id * (size_t)t->ntokens);
  memset(t->slot, 0xff, sizeof *t->slot * ((size_t)t->mask + 1));
  for (int32_t i = 0; i < t->ntokens; i++) {
    VocabToken *k = &t->token[i];
    if (t->model == MODEL_BPE && !k->added) to_bytes(t, &k->text);
    if (k->text.n > t->longest_text) t->longest_text = k->text.n;
    t->by_id[i] = i;
    enter(t, i);
  }
  qsort_r(t->by_id, (size_t)t->ntokens, sizeof *t->by_id, by_id, t);
  list_added(t);
  if (*t->unknown_name)
    t->unknown = rt_vocab_find(t, (uint8_t *)t->unknown_name, (int64_t)strlen(t->unknown_name));
  bool ok = t->model != MODEL_BPE ? has_unknown(t, f) : enter_merges(t, f);
  if (!ok) return false;
  t->classes = rt_unicode_classes();
  t->cache = rt_alloc(sizeof *t->cache * CACHE_SLOTS);
  return true;
}
