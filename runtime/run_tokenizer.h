/* The tokenizer of a run: found for sampling, kept in the run directory by training. */
#ifndef SHARDC_RT_RUN_TOKENIZER_H
#define SHARDC_RT_RUN_TOKENIZER_H
#include "run.h"
#include "runtime/text/tokenizer.h"

typedef struct RunTokenizer {
  Tokenizer *t; /* NULL: tokens are bytes, or numbers where there are more than 256 */
  Spelling spelling;
  int64_t vocab, eot; /* eot: of the data line; -1: none */
} RunTokenizer;

bool rt_run_tokenizer_open(RunTokenizer *tokenizer, const Run *r, int64_t vocab, Fault *f);
/* A prompt as tokens, at least one; NULL or "": the token that a text begins with. */
bool rt_run_tokenizer_encode(RunTokenizer *tokenizer, const char *text, Ids *out, Fault *f);
void rt_run_tokenizer_put(RunTokenizer *tokenizer, int32_t token, FILE *out);
/* Is it a token that ends a text, by the data line or by its name in the tokenizer? */
bool rt_run_tokenizer_ends(const RunTokenizer *tokenizer, int32_t token);
bool rt_run_tokenizer_numbers(const RunTokenizer *tokenizer); /* tokens are printed as numbers */
void rt_run_tokenizer_close(
    RunTokenizer *tokenizer); /* what is left of a character; then a new line */
/* Training: copies the tokenizer's files into the run directory, where sampling finds them; files
   that exist already must be identical. */
bool rt_run_tokenizer_keep(const Run *r, Fault *f);
/* The path of the tokenizer: from --tokenizer, else the run directory, else the data line; kept:
   buffer for the path. NULL: none. */
const char *rt_run_tokenizer_path(const Run *r, char kept[RT_PATH]);
/* Its files under the names by which other tools find them. */
bool rt_run_tokenizer_copy(const char *path, const char *folder, Fault *f);
/* Beside exported weights: the tokenizer, its special tokens, and what ends a text
   (export_tokenizer.c). */
enum { RT_SPECIALS = 3 };
const char *rt_special_name(int which); /* bos, eos, pad */
/* By `config` lines, the data line, or their names in the tokenizer; -1: none. */
bool rt_export_specials(const Run *r, int64_t id[RT_SPECIALS], Fault *f);
bool rt_export_tokenizer(const Run *r, const int64_t *id, const char *folder, Fault *f);
#endif
