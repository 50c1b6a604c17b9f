/* Where a sample ends before its last token: at a text of --stop, or at an end-of-text token. */
#ifndef SHARDC_RT_SAMPLE_STOP_H
#define SHARDC_RT_SAMPLE_STOP_H
#include "run_tokenizer.h"

typedef struct SampleStop {
  RunTokenizer *tokenizer;
  char **text; /* of --stop */
  int n;
  size_t longest;
  char *tail; /* the last characters sampled, fewer than the longest stop text has */
  size_t have;
  bool goes_on; /* after an end of text */
} SampleStop;

bool rt_sample_stop_open(SampleStop *stop, const Run *r, RunTokenizer *tokenizer, Fault *f);
/* Prints a sampled token, up to and including a stop text. False: the sample ends. */
bool rt_sample_stop_put(SampleStop *stop, int32_t token);
void rt_sample_stop_close(SampleStop *stop);
#endif
