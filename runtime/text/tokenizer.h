/* Tokenizers: byte-level BPE (GPT-2, Llama 3), BPE of characters (Llama 2), Unigram (T5), and
   WordPiece (BERT), read from the files that the
   Hugging Face tools write. Text to ids and back, equal to the reference `tokenizers`. */
#ifndef SHARDC_RT_TOKENIZER_H
#define SHARDC_RT_TOKENIZER_H
#include "runtime/base/base.h"
#include <stdio.h>

typedef struct Tokenizer Tokenizer; /* caches words as it works, so it belongs to one thread */

typedef struct Ids {
  int32_t *at;
  int64_t n, room;
} Ids;

/* tokenizer.json; vocab.json with merges.txt in the same folder; vocab.txt of WordPiece; or a
   folder with one of them. files: the names read, at most two, in new memory; may be NULL. */
bool rt_tokenizer_open(const char *path, Tokenizer **tokenizer, char *files[2], Fault *f);
/* The same from bytes: of a tokenizer.json; of vocab.json and merges.txt; of vocab.txt. */
bool rt_tokenizer_read(Bytes json, Tokenizer **t, Fault *f);
bool rt_tokenizer_read_pair(Bytes vocab, Bytes merges, Tokenizer **t, Fault *f);
bool rt_tokenizer_read_words(Bytes lines, bool lower, Tokenizer **t, Fault *f);
void rt_tokenizer_close(Tokenizer *tokenizer);

/* Appends the ids of a text. special: names of special tokens, such as <|endoftext|>, are read as
   these tokens; otherwise they are ordinary text. */
void rt_encode(Tokenizer *tokenizer, Bytes text, bool special, Ids *out);

void rt_ids_add(Ids *out, int32_t id);

typedef struct Encoding {                /* the same in parts, for long texts */
  const uint8_t *at, *stop, *next, *end; /* stop: where an added token begins that ends at next */
  int32_t found;                         /* its place; -1: none */
  bool special, fresh, first; /* fresh: at the start of a stretch of plain text; first: of all */
} Encoding;
void rt_encode_start(Encoding *encoding, Tokenizer *tokenizer, Bytes text, bool special);
bool rt_encode_some(Encoding *encoding, Tokenizer *tokenizer, int64_t enough,
                    Ids *out); /* false: that was all */

/* The first name of a special or other added token in a text: its id, and where it is; -1: there is
   none, and `name` is empty, at the end. */
int32_t rt_tokenizer_next_name(Tokenizer *tokenizer, Bytes text, Bytes *name);

typedef struct Spelling { /* of ids one by one: a character may need several of them */
  char rest[4];
  int n;
  bool begun;
} Spelling;
void rt_decode(const Tokenizer *tokenizer, int32_t id, Spelling *spelling, FILE *out);
void rt_decode_end(Spelling *spelling, FILE *out); /* what is no whole character prints as U+FFFD */

int64_t rt_tokenizer_limit(const Tokenizer *tokenizer); /* the largest id + 1 */
int32_t rt_tokenizer_id(const Tokenizer *tokenizer,
                        const char *name); /* by its text in the file; or -1 */
bool rt_tokenizer_special(const Tokenizer *tokenizer, int32_t id);
#endif
