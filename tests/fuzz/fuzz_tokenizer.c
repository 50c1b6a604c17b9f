/* Fuzzing tokenizers: the first byte says which kind of file, the second how much of the rest is
   text; what is accepted encodes the text, whole and in parts, which must agree, and decodes it. */
#include "runtime/text/tokenizer.h"
#include <stdlib.h>
#include <string.h>

static bool open_any(int kind, Bytes b, Tokenizer **t, Fault *f) {
  const uint8_t *cut = b.n ? memchr(b.at, 0xff, (size_t)b.n) : NULL;
  int64_t n = cut ? cut - b.at : b.n;
  if (kind == 0) return rt_tokenizer_read(b, t, f);
  if (kind == 1) return rt_tokenizer_read_pair((Bytes){b.at, n}, (Bytes){b.at + n, b.n - n}, t, f);
  return rt_tokenizer_read_words(b, kind == 2, t, f);
}

static void use(Tokenizer *t, Bytes text, bool special) {
  Ids whole = {0}, parts = {0};
  Encoding e;
  Spelling s = {0};
  char *out = NULL;
  size_t n;
  FILE *o = open_memstream(&out, &n);
  rt_encode(t, text, special, &whole);
  rt_encode_start(&e, t, text, special);
  while (rt_encode_some(&e, t, parts.n + 3, &parts)) {}
  if (whole.n != parts.n) abort();
  for (int64_t i = 0; i < whole.n; i++) {
    if (whole.at[i] != parts.at[i]) abort();
    rt_decode(t, whole.at[i], &s, o);
  }
  rt_decode_end(&s, o);
  fclose(o), free(out), free(whole.at), free(parts.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  Tokenizer *t;
  Fault f;
  if (n < 2) return 0;
  int64_t rest = (int64_t)n - 2, text = data[1] < rest ? data[1] : rest;
  uint8_t *copy = malloc((size_t)rest + 1); /* so that reading one byte too many is seen */
  memcpy(copy, data + 2, (size_t)rest);
  if (open_any(data[0] & 3, (Bytes){copy, rest - text}, &t, &f)) {
    use(t, (Bytes){copy + rest - text, text}, data[0] & 4);
    rt_tokenizer_close(t);
  }
  free(copy);
  return 0;
}
