/* Inside of the tokenizers: the vocabulary, and what its readers and its users share. */
#ifndef SHARDC_RT_TOKENIZER_IN_H
#define SHARDC_RT_TOKENIZER_IN_H
#include "split.h"
#include "tokenizer.h"
#include "unicode.h"

/* BPE: of bytes; CHARACTERS: BPE of characters; UNIGRAM: the likeliest tokens. The last two cut
   text at marks, which replace spaces (pieces.c). */
enum { MODEL_NONE, MODEL_BPE, MODEL_WORDPIECE, MODEL_CHARACTERS, MODEL_UNIGRAM };
/* When a mark is put before a stretch of text: never; always; if it does not begin with one; the
   same, but only at the beginning of the text. */
typedef enum Prepend { PREPEND_NOT, PREPEND_ALWAYS, PREPEND_MISSING, PREPEND_FIRST } Prepend;

typedef struct TokenPiece { /* of the text of all tokens */
  uint32_t at, n;
} TokenPiece;

typedef struct VocabToken {
  TokenPiece text; /* of BPE: the bytes of the token */
  int32_t id;
  bool added, special, left, right; /* left, right: includes the spaces on that side */
  double score;                     /* of Unigram: its logarithm */
  bool alone, normalized;           /* whole words only; searched for after the normalizer */
} VocabToken;

typedef struct Merge { /* as read; then pair table */
  TokenPiece left, right;
} Merge;

typedef struct MergePair { /* left, right: tokens by place; key 0: empty */
  uint64_t key;
  int32_t rank, made;
} MergePair;

#define RT_MARK_TEXT "\xe2\x96\x81" /* U+2581 */
enum { CACHE_SLOTS = 1 << 14, CACHE_TEXT = 40, CACHE_IDS = 12 };
typedef struct Cached { /* the ids of a piece that was seen before */
  uint8_t text[CACHE_TEXT], n, count;
  int32_t id[CACHE_IDS];
} Cached;

typedef struct Symbol { /* of a piece that is merged: tokens in a list */
  int32_t token, before, after;
} Symbol;

typedef struct Candidate { /* two neighbours that may merge, in a heap by rank, then place */
  int32_t rank, at, made;
} Candidate;

typedef struct BestPath { /* token -2: nothing ends at it; -1: unknown */
  double score;
  int32_t from, token, next; /* next: on the best way to the end */
} BestPath;

struct Tokenizer {
  int model;
  uint16_t *classes;
  uint8_t *text; /* of all tokens and merges */
  int64_t used, room;
  VocabToken *token;
  int32_t ntokens, token_room;
  int32_t *slot; /* hash table: text of a token -> its place, -1: empty */
  int32_t *by_id;
  uint32_t mask, pair_mask;
  Merge *merge;
  int32_t nmerges, merge_room;
  MergePair *pair;
  int32_t *added; /* places of the added tokens, the longest first */
  int32_t nadded;
  bool starts[256]; /* first bytes of the added tokens */
  int32_t unknown;  /* its place; -1: none */
  char unknown_name[256], prefix[64];
  /* BPE */
  Split *split;
  bool prefix_space, whole_words; /* whole_words: a piece that is a token is never cut */
  int32_t of_byte[256];
  Symbol *symbol;
  Candidate *heap;
  int64_t symbol_room, heap_room;
  /* of characters, Unigram */
  bool marks; /* spaces become marks, U+2581 */
  Prepend prepend;
  bool cut_at_marks, cut_before_marks; /* at each one; before a run of them */
  bool byte_fallback, fuse_unknown;
  double least;   /* score of a token */
  BestPath *best; /* of Unigram: the best way to each place of a piece */
  int64_t best_room;
  /* WordPiece */
  bool clean, ideographs, strip, lower;
  int64_t longest, longest_text; /* characters of a word, bytes of a token */
  int32_t *word;                 /* characters of the word that is read, and its text */
  int64_t nword, word_room, spelled_room;
  uint8_t *spelled;
  Cached *cache;
};

Tokenizer *rt_vocab_new(int64_t text_room);
bool rt_vocab_add(Tokenizer *tokenizer, TokenPiece text, int64_t id, VocabToken **out, Fault *f);
bool rt_vocab_add_merge(Tokenizer *tokenizer, TokenPiece left, TokenPiece right, Fault *f);
/* Behind the last token and merge: bytes for letters, the tables, the checks. */
bool rt_vocab_finish(Tokenizer *tokenizer, Fault *f);
int32_t rt_vocab_find(const Tokenizer *tokenizer, const uint8_t *text,
                      int64_t n); /* its place; or -1 */
const MergePair *rt_vocab_pair(const Tokenizer *tokenizer, int32_t left, int32_t right);
void *rt_vocab_grow(void *at, int64_t *room, int64_t need, size_t size);

typedef void Work(Tokenizer *t, const uint8_t *p, const uint8_t *end, Ids *out);
void rt_remembered(Tokenizer *tokenizer, Work *work, const uint8_t *p, const uint8_t *end,
                   Ids *out);
Work rt_bpe_piece;
/* The next piece of a stretch with marks for spaces; returns how far it came (pieces.c). */
const uint8_t *rt_marked_piece(Tokenizer *tokenizer, const Encoding *encoding, Ids *out);
/* The words of p .. end up to `enough` ids; returns how far it came. */
const uint8_t *rt_words(Tokenizer *tokenizer, const uint8_t *p, const uint8_t *end, int64_t enough,
                        Ids *out);
#endif
