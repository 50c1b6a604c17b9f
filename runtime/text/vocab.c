/* The vocabulary of a tokenizer: tokens by text (a hash table with linear probing), by id (sorted),
   pairs that merge (a hash table). The text of all tokens is in one block that is as large as the
   file, so no count in a file can request more memory than the file justifies. Byte-level files
   spell bytes as letters (GPT-2's alphabet: printable Latin-1 as itself, the others from U+0100
   on); rt_vocab_finish turns them back into bytes. Must not: read files. */
#include "tokenizer_in.h"
#include <stdio.h>
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
  Tokenizer *tokenizer = rt_alloc(sizeof *tokenizer);
  tokenizer->text = rt_alloc((size_t)text_room + 1);
  tokenizer->room = text_room + 1, tokenizer->unknown = -1;
  return tokenizer;
}

static bool full(Fault *f) { return rt_fault(f, 206, "damaged tokenizer: too many entries"); }

bool rt_vocab_add(Tokenizer *tokenizer, TokenPiece text, int64_t id, VocabToken **out, Fault *f) {
  int64_t room = tokenizer->token_room;
  if (id < 0 || id > INT32_MAX)
    return rt_fault(f, 206, "damaged tokenizer: token `%.*s` has id %lld",
                    (int)(text.n < 80 ? text.n : 80), (char *)tokenizer->text + text.at,
                    (long long)id);
  if (tokenizer->ntokens >= 1 << 26) return full(f);
  tokenizer->token =
      rt_vocab_grow(tokenizer->token, &room, tokenizer->ntokens + 1, sizeof *tokenizer->token);
  tokenizer->token_room = (int32_t)room;
  tokenizer->token[tokenizer->ntokens] = (VocabToken){.text = text, .id = (int32_t)id};
  if (out) *out = &tokenizer->token[tokenizer->ntokens];
  tokenizer->ntokens++;
  return true;
}

bool rt_vocab_add_merge(Tokenizer *tokenizer, TokenPiece left, TokenPiece right, Fault *f) {
  int64_t room = tokenizer->merge_room;
  if (tokenizer->nmerges >= 1 << 26) return full(f);
  tokenizer->merge =
      rt_vocab_grow(tokenizer->merge, &room, tokenizer->nmerges + 1, sizeof *tokenizer->merge);
  tokenizer->merge_room = (int32_t)room;
  tokenizer->merge[tokenizer->nmerges++] = (Merge){left, right};
  return true;
}

/* ---- tables ---- */

static uint32_t size_for(int64_t n) {
  uint32_t size = 16;
  while (size < 2 * n) size *= 2;
  return size;
}

static bool spells(const Tokenizer *tokenizer, int32_t place, const uint8_t *text, int64_t n) {
  const VocabToken *token = &tokenizer->token[place];
  return token->text.n == n && !memcmp(tokenizer->text + token->text.at, text, (size_t)n);
}

int32_t rt_vocab_find(const Tokenizer *tokenizer, const uint8_t *text, int64_t n) {
  uint32_t i = (uint32_t)rt_hash_of(text, (size_t)n) & tokenizer->mask;
  for (; tokenizer->slot[i] >= 0; i = (i + 1) & tokenizer->mask)
    if (spells(tokenizer, tokenizer->slot[i], text, n)) return tokenizer->slot[i];
  return -1;
}

/* If two tokens have the same text, the later one counts, but an added token never hides a plain
   one. */
static void enter(Tokenizer *tokenizer, int32_t place) {
  const VocabToken *token = &tokenizer->token[place];
  const uint8_t *text = tokenizer->text + token->text.at;
  uint32_t i = (uint32_t)rt_hash_of(text, token->text.n) & tokenizer->mask;
  while (tokenizer->slot[i] >= 0 && !spells(tokenizer, tokenizer->slot[i], text, token->text.n))
    i = (i + 1) & tokenizer->mask;
  if (tokenizer->slot[i] < 0 || !token->added) tokenizer->slot[i] = place;
}

static uint32_t pair_slot(const Tokenizer *tokenizer, uint64_t key) {
  uint32_t i = (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32) & tokenizer->pair_mask;
  while (tokenizer->pair[i].key && tokenizer->pair[i].key != key)
    i = (i + 1) & tokenizer->pair_mask;
  return i;
}

static uint64_t pair_key(int32_t left, int32_t right) {
  return (uint64_t)(left + 1) << 32 | (uint32_t)(right + 1);
}

const MergePair *rt_vocab_pair(const Tokenizer *tokenizer, int32_t left, int32_t right) {
  const MergePair *p = &tokenizer->pair[pair_slot(tokenizer, pair_key(left, right))];
  return p->key ? p : NULL;
}

/* ---- letters for bytes ---- */

static bool plain(int b) { return (b > 32 && b < 127) || (b > 160 && b != 173); }

/* The byte that a letter represents: U+0100 and later count the bytes that are not plain. */
static int byte_of(int32_t letter) {
  if (letter < 256) return letter > 0 && plain(letter) ? letter : -1;
  int k = letter - 256;
  for (int b = 0; b < 256; b++)
    if (!plain(b) && k-- == 0) return b;
  return -1;
}

/* In place: bytes are never more than letters. False: text that is not in the alphabet. */
static bool to_bytes(Tokenizer *tokenizer, TokenPiece *piece) {
  uint8_t *p = tokenizer->text + piece->at, *end = p + piece->n, *to = p;
  for (const uint8_t *q = p; q < end;) {
    int n, b = byte_of(rt_utf8_next(q, end, &n));
    if (b < 0) return false;
    q += n;
  }
  while (p < end) {
    int n, b = byte_of(rt_utf8_next(p, end, &n));
    p += n, *to++ = (uint8_t)b;
  }
  piece->n = (uint32_t)(to - (tokenizer->text + piece->at));
  return true;
}

/* ---- after reading ---- */

static bool no_token(const Tokenizer *tokenizer, int32_t merge, TokenPiece text, Fault *f) {
  rt_fault(f, 206, "merge %d needs the token `%.*s`, which the vocabulary lacks", merge + 1,
           (int)(text.n < 80 ? text.n : 80), (char *)tokenizer->text + text.at);
  return rt_help(f, "vocabulary and merges must come from the same tokenizer");
}

static bool enter_merge(Tokenizer *tokenizer, int32_t i, uint8_t *both, Fault *f) {
  Merge merge = tokenizer->merge[i];
  bool bytes = tokenizer->model == MODEL_BPE;
  if (bytes && !to_bytes(tokenizer, &merge.left)) return no_token(tokenizer, i, merge.left, f);
  if (bytes && !to_bytes(tokenizer, &merge.right)) return no_token(tokenizer, i, merge.right, f);
  memcpy(both, tokenizer->text + merge.left.at, merge.left.n);
  memcpy(both + merge.left.n, tokenizer->text + merge.right.at, merge.right.n);
  int32_t left = rt_vocab_find(tokenizer, both, merge.left.n),
          right = rt_vocab_find(tokenizer, both + merge.left.n, merge.right.n),
          made = rt_vocab_find(tokenizer, both, (int64_t)merge.left.n + merge.right.n);
  if (left < 0) return no_token(tokenizer, i, merge.left, f);
  if (right < 0) return no_token(tokenizer, i, merge.right, f);
  if (made < 0) return rt_fault(f, 206, "merge %d makes a token that the vocabulary lacks", i + 1);
  uint64_t key = pair_key(left, right);
  tokenizer->pair[pair_slot(tokenizer, key)] = (MergePair){key, i, made};
  const uint8_t *right_text = both + merge.left.n;
  if (merge.right.n >= 3 && !memcmp(right_text, RT_MARK_TEXT, 3) &&
      (merge.left.n < 3 || memcmp(right_text - 3, RT_MARK_TEXT, 3)))
    tokenizer->cut_before_marks = false; /* something grows over the begin of a word */
  return true;
}

static bool enter_merges(Tokenizer *tokenizer, Fault *f) {
  uint8_t *both = rt_alloc((size_t)tokenizer->room);
  bool ok = true;
  tokenizer->pair_mask = size_for(tokenizer->nmerges) - 1;
  tokenizer->pair = rt_alloc(sizeof *tokenizer->pair * ((size_t)tokenizer->pair_mask + 1));
  for (int32_t i = 0; ok && i < tokenizer->nmerges; i++) ok = enter_merge(tokenizer, i, both, f);
  free(both), free(tokenizer->merge);
  tokenizer->merge = NULL;
  return ok;
}

/* A byte is its own text, or <0x0A> among characters. */
static void find_bytes(Tokenizer *tokenizer) {
  for (int b = 0; b < 256; b++) {
    char name[8] = {(char)b};
    int n = tokenizer->model == MODEL_BPE ? 1 : snprintf(name, sizeof name, "<0x%02X>", b);
    tokenizer->of_byte[b] = rt_vocab_find(tokenizer, (uint8_t *)name, n);
  }
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

static void list_added(Tokenizer *tokenizer) {
  tokenizer->added = rt_alloc(sizeof *tokenizer->added * (size_t)(tokenizer->ntokens + 1));
  for (int32_t i = 0; i < tokenizer->ntokens; i++) {
    if (!tokenizer->token[i].added || !tokenizer->token[i].text.n) continue;
    tokenizer->added[tokenizer->nadded++] = i;
    tokenizer->starts[tokenizer->text[tokenizer->token[i].text.at]] = true;
  }
  qsort_r(tokenizer->added, (size_t)tokenizer->nadded, sizeof *tokenizer->added, longest_first,
          tokenizer);
}

static bool has_unknown(const Tokenizer *tokenizer, Fault *f) {
  return tokenizer->unknown >= 0 ||
         rt_fault(f, 206, "the vocabulary lacks the unknown token `%s`", tokenizer->unknown_name);
}

bool rt_vocab_finish(Tokenizer *tokenizer, Fault *f) {
  if (!tokenizer->ntokens) return rt_fault(f, 206, "damaged tokenizer: it has no tokens");
  tokenizer->mask = size_for(tokenizer->ntokens) - 1;
  tokenizer->slot = rt_alloc(sizeof *tokenizer->slot * ((size_t)tokenizer->mask + 1));
  tokenizer->by_id = rt_alloc(sizeof *tokenizer->by_id * (size_t)tokenizer->ntokens);
  memset(tokenizer->slot, 0xff, sizeof *tokenizer->slot * ((size_t)tokenizer->mask + 1));
  for (int32_t i = 0; i < tokenizer->ntokens; i++) {
    VocabToken *token = &tokenizer->token[i];
    if (tokenizer->model == MODEL_BPE && !token->added) to_bytes(tokenizer, &token->text);
    if (token->text.n > tokenizer->longest_text) tokenizer->longest_text = token->text.n;
    tokenizer->by_id[i] = i;
    enter(tokenizer, i);
  }
  qsort_r(tokenizer->by_id, (size_t)tokenizer->ntokens, sizeof *tokenizer->by_id, by_id, tokenizer);
  list_added(tokenizer);
  if (*tokenizer->unknown_name)
    tokenizer->unknown = rt_vocab_find(tokenizer, (uint8_t *)tokenizer->unknown_name,
                                       (int64_t)strlen(tokenizer->unknown_name));
  bool merges = tokenizer->model == MODEL_BPE || tokenizer->model == MODEL_CHARACTERS;
  bool ok = merges ? enter_merges(tokenizer, f) : has_unknown(tokenizer, f);
  find_bytes(tokenizer);
  if (!ok) return false;
  tokenizer->classes = rt_unicode_classes();
  tokenizer->cache = rt_alloc(sizeof *tokenizer->cache * CACHE_SLOTS);
  return true;
}
