/* sample --stop. A stop text may begin in one token and end in another, or in the middle of one, so
   what was sampled is searched as bytes: the new ones with as many before them as a text can have
   begun in. The prompt does not count. Where tokens are printed as numbers, a stop is a number. */
#include "sample_stop.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool add(SampleStop *stop, const char *text, size_t n, Fault *f) {
  char *end, *copy = rt_copy_text(text, n);
  bool number = rt_run_tokenizer_numbers(stop->tokenizer);
  stop->text[stop->n++] = copy;
  if (n > stop->longest) stop->longest = n;
  if (!n) return rt_fault(f, 103, "--stop needs a text");
  if (!number || (strtoll(copy, &end, 10) >= 0 && !*end)) return true;
  rt_fault(f, 103, "--stop takes a token's number, not `%s`: there is no tokenizer", copy);
  return rt_help(f, "--tokenizer FILE gives the text of tokens");
}

bool rt_sample_stop_open(SampleStop *stop, const Run *r, RunTokenizer *tokenizer, Fault *f) {
  const OptionValue *given = &r->o.at[OPT_stop];
  int n = 1;
  *stop = (SampleStop){.tokenizer = tokenizer, .goes_on = r->o.at[OPT_ignore_eos].given};
  for (const char *c = given->given ? given->text : ""; *c; c++) n += *c == RT_BETWEEN;
  stop->text = rt_alloc(sizeof *stop->text * (size_t)n);
  for (const char *at = given->given ? given->text : NULL; at;) {
    const char *end = strchr(at, RT_BETWEEN);
    if (!add(stop, at, end ? (size_t)(end - at) : strlen(at), f)) return false;
    at = end ? end + 1 : NULL;
  }
  stop->tail = rt_alloc(stop->longest + 1);
  return true;
}

/* Behind the first stop text that ends in the last `fresh` of n bytes; 0: there is none. */
static size_t find_end(const SampleStop *stop, const char *at, size_t n, size_t fresh) {
  for (size_t end = n - fresh + 1; end <= n; end++)
    for (int i = 0; i < stop->n; i++) {
      size_t size = strlen(stop->text[i]);
      if (size <= end && !memcmp(at + end - size, stop->text[i], size)) return end;
    }
  return 0;
}

/* Prints the `fresh` bytes at the end of n, up to a stop text. */
static bool put_text(SampleStop *stop, const char *at, size_t n, size_t fresh) {
  size_t end = find_end(stop, at, n, fresh), from = n - fresh;
  fwrite(at + from, 1, (end ? end : n) - from, stdout);
  stop->have = n < stop->longest ? n : stop->longest;
  memcpy(stop->tail, at + n - stop->have, stop->have);
  return !end;
}

bool rt_sample_stop_put(SampleStop *stop, int32_t token) {
  if (!stop->goes_on && rt_run_tokenizer_ends(stop->tokenizer, token)) return false;
  if (!stop->n || rt_run_tokenizer_numbers(stop->tokenizer)) {
    rt_run_tokenizer_put(stop->tokenizer, token, stdout);
    for (int i = 0; i < stop->n; i++)
      if (strtoll(stop->text[i], NULL, 10) == token) return false;
    return true;
  }
  char *text = NULL;
  size_t n = 0;
  FILE *file = open_memstream(&text, &n);
  if (!file) rt_fail(701, "no memory");
  fwrite(stop->tail, 1, stop->have, file);
  rt_run_tokenizer_put(stop->tokenizer, token, file);
  fclose(file);
  bool goes_on = put_text(stop, text, n, n - stop->have);
  free(text);
  return goes_on;
}

void rt_sample_stop_close(SampleStop *stop) {
  for (int i = 0; i < stop->n; i++) free(stop->text[i]);
  free(stop->text), free(stop->tail);
}
