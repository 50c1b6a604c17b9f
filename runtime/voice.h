/* The tokenizer of a run: found for sampling, kept in the run directory by training. */
#ifndef SHARDC_RT_VOICE_H
#define SHARDC_RT_VOICE_H
#include "run.h"
#include "runtime/text/tokenizer.h"

typedef struct Voice {
  Tokenizer *t; /* NULL: tokens are bytes, or numbers where there are more than 256 */
  Spelling spelling;
  int64_t vocab;
} Voice;

bool rt_voice_open(Voice *v, const Run *r, int64_t vocab, Fault *f);
bool rt_voice_read(Voice *v, const char *text, Ids *out, Fault *f); /* a prompt as tokens */
void rt_voice_say(Voice *v, int32_t token);
void rt_voice_end(Voice *v); /* what is left of a character; then a new line */
/* Training: the tokenizer's files go into the run directory, where sampling finds them, or are the
   same as those that are there. */
bool rt_voice_keep(const Run *r, Fault *f);
#endif
