/* Tokenizers against vectors that the reference made (tests/runtime/text/make.py): strings, a
   megabyte of mixed script, every single character; in parts; back to text; false files. */
#include "runtime/base/file.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/unicode.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static Tokenizer *named(const char *name) {
  char path[RT_PATH];
  Tokenizer *t = NULL;
  Fault f = {0};
  snprintf(path, sizeof path, "%s/%s", TEXT_DIR, name);
  if (!rt_tokenizer_open(path, &t, NULL, &f)) fail_msg("%s: %s", path, f.what);
  return t;
}

/* ---- the same text as in make.py ---- */

static const int32_t ranges[][2] = {
    {0x20, 0x7e},       {0x61, 0x7a},     {0xa0, 0x24f},    {0x300, 0x36f},     {0x370, 0x3ff},
    {0x400, 0x52f},     {0x590, 0x5ff},   {0x600, 0x6ff},   {0x900, 0x97f},     {0xe00, 0xe7f},
    {0x1e00, 0x1fff},   {0x2000, 0x206f}, {0x2460, 0x27bf}, {0x3000, 0x30ff},   {0x4e00, 0x5fff},
    {0xac00, 0xd7a3},   {0xf900, 0xfaff}, {0xff00, 0xffef}, {0x1d100, 0x1d7ff}, {0x1f300, 0x1f6ff},
    {0x10400, 0x1044f}, {0, 0xd7ff}};
static const char *const words[] = {" the",
                                    "The",
                                    " of",
                                    "and ",
                                    "ing",
                                    "'s ",
                                    "'LL ",
                                    "'\u017f",
                                    "n't",
                                    ". ",
                                    "...\n",
                                    "\r\n",
                                    "\n\n  ",
                                    "   ",
                                    "\t",
                                    " 1234567 ",
                                    "\u0664\u0665",
                                    "Stra\u00dfe",
                                    "\u0130stanbul",
                                    "e\u0301\u0327",
                                    "<|endoftext|>",
                                    "[SEP]",
                                    "##",
                                    "\u3000",
                                    "\ud55c\uad6d",
                                    ""};

static uint32_t draw(uint64_t *x, uint32_t k) {
  *x = *x * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((*x >> 33) % k);
}

static Bytes mixed(int64_t size) {
  char *text = rt_alloc((size_t)size + 256);
  int64_t n = 0;
  uint64_t x = 1;
  while (n < size) {
    const int32_t *r = ranges[draw(&x, sizeof ranges / sizeof *ranges)];
    uint32_t letters = 1 + draw(&x, 8);
    while (letters--)
      n += rt_utf8_put(r[0] + (int32_t)draw(&x, (uint32_t)(r[1] - r[0] + 1)), text + n);
    const char *w = words[draw(&x, sizeof words / sizeof *words)];
    memcpy(text + n, w, strlen(w)), n += (int64_t)strlen(w);
  }
  return (Bytes){(uint8_t *)text, n};
}

static uint64_t summed(uint64_t h, const Ids *ids) {
  for (int64_t i = 0; i < ids->n; i++) h = (h ^ (uint64_t)(ids->at[i] + 1)) * 0x100000001b3u;
  return h;
}

static const uint64_t start = 0xcbf29ce484222325u;

static uint64_t every(Tokenizer *t) {
  static const char *const before[] = {"", "a"}, *const behind[] = {"", "b"};
  uint64_t h = start;
  Ids ids = {0};
  for (int k = 0; k < 2; k++)
    for (int32_t c = 0; c < RT_CHARACTERS; c++) {
      char text[8];
      int n = (int)strlen(before[k]);
      if (c >= 0xd800 && c <= 0xdfff) continue;
      memcpy(text, before[k], (size_t)n), n += rt_utf8_put(c, text + n);
      memcpy(text + n, behind[k], strlen(behind[k])), n += (int)strlen(behind[k]);
      ids.n = 0;
      rt_encode(t, (Bytes){(uint8_t *)text, n}, false, &ids);
      h = (summed(h, &ids) ^ (uint64_t)-1) * 0x100000001b3u;
    }
  free(ids.at);
  return h;
}

/* ---- vectors ---- */

static int64_t from_hex(const char *hex, uint8_t *out) {
  int64_t n = 0;
  for (unsigned byte; *hex != '-' && *hex && sscanf(hex, "%2x", &byte) == 1; hex += 2)
    out[n++] = (uint8_t)byte;
  return n;
}

static void check_ids(const Ids *ids, const char *want, const char *line) {
  int64_t n = 0;
  for (char *end; *want && *want != '\n'; want = end, n++) {
    long v = strtol(want, &end, 10);
    if (end == want) break;
    if (n >= ids->n || ids->at[n] != v) fail_msg("id %lld differs: %s", (long long)n, line);
  }
  if (n != ids->n) fail_msg("%lld ids: %s", (long long)ids->n, line);
}

static void check_line(Tokenizer *t, const char *line, Bytes text) {
  static uint8_t bytes[4096];
  char what[2048], *colon;
  int special;
  assert_int_equal(sscanf(line, "%*s %d %2047s", &special, what), 2);
  if ((colon = strchr(what, ':'))) *colon = 0;
  const char *rest = strchr(line, ':') + 1;
  Ids ids = {0};
  if (!strcmp(what, "every")) {
    assert_true(every(t) == strtoull(rest, NULL, 16));
  } else if (!strcmp(what, "mixed")) {
    rt_encode(t, text, special, &ids);
    if (summed(start, &ids) != strtoull(rest, NULL, 16)) fail_msg("mixed script: %s", line);
  } else {
    rt_encode(t, (Bytes){bytes, from_hex(what, bytes)}, special, &ids);
    check_ids(&ids, rest, line);
  }
  free(ids.at);
}

static void check_vectors(const char *tokenizer, const char *name) {
  Tokenizer *t = named(tokenizer);
  char path[RT_PATH], line[8192];
  Bytes text = mixed(1100000);
  int lines = 0;
  snprintf(path, sizeof path, "%s/vectors.txt", TEXT_DIR);
  FILE *v = fopen(path, "r");
  assert_non_null(v);
  while (fgets(line, sizeof line, v)) {
    if (strncmp(line, name, strlen(name))) continue;
    check_line(t, line, text), lines++;
  }
  fclose(v), free((void *)text.at);
  rt_tokenizer_close(t);
  assert_true(lines > 25);
}

static void test_gpt2(void **state) { (void)state, check_vectors("gpt2.json", "gpt2"); }
static void test_llama3(void **state) { (void)state, check_vectors("llama3.json", "llama3"); }
static void test_bert(void **state) { (void)state, check_vectors("bert.json", "bert"); }
static void test_o200k(void **state) { (void)state, check_vectors("o200k.json", "o200k"); }
static void test_marked(void **state) { (void)state, check_vectors("marked.json", "marked"); }
static void test_unigram(void **state) { (void)state, check_vectors("unigram.json", "unigram"); }
static void test_gpt2_pair(void **state) { (void)state, check_vectors("gpt2-vocab.json", "gpt2"); }
static void test_bert_words(void **state) { (void)state, check_vectors("bert-vocab.txt", "bert"); }

/* ---- what vectors do not show ---- */

static void test_in_parts(void **state) {
  static const char *const names[] = {"gpt2.json",  "llama3.json", "bert.json",
                                      "o200k.json", "marked.json", "unigram.json"};
  Bytes text = mixed(60000);
  (void)state;
  for (int k = 0; k < 3; k++) {
    Tokenizer *t = named(names[k]);
    Ids whole = {0}, parts = {0};
    Encoding e;
    rt_encode(t, text, true, &whole);
    rt_encode_start(&e, t, text, true);
    for (int64_t n = 1; rt_encode_some(&e, t, n, &parts); n = parts.n + 1 + n % 7) {}
    assert_int_equal(whole.n, parts.n);
    assert_memory_equal(whole.at, parts.at, (size_t)whole.n * sizeof *whole.at);
    free(whole.at), free(parts.at), rt_tokenizer_close(t);
  }
  free((void *)text.at);
}

static char *decoded(const Tokenizer *t, const Ids *ids, size_t *n) {
  char *out = NULL;
  FILE *o = open_memstream(&out, n);
  Spelling s = {0};
  for (int64_t i = 0; i < ids->n; i++) rt_decode(t, ids->at[i], &s, o);
  rt_decode_end(&s, o);
  fclose(o);
  return out;
}

static void test_there_and_back(void **state) {
  static const char *const names[] = {"gpt2.json", "llama3.json"};
  Bytes text = mixed(60000);
  (void)state;
  for (int k = 0; k < 2; k++) {
    Tokenizer *t = named(names[k]);
    Ids ids = {0};
    size_t n;
    rt_encode(t, text, true, &ids);
    char *back = decoded(t, &ids, &n);
    assert_int_equal(n, text.n);
    assert_memory_equal(back, text.at, n);
    free(back), free(ids.at), rt_tokenizer_close(t);
  }
  free((void *)text.at);
}

static void test_broken_characters(void **state) {
  Tokenizer *t = named("gpt2.json");
  const uint8_t text[] = {'a', 0xf0, 0x9f, 0x98, 'b', 0xff, 0xed, 0xa0, 0x80, 0xc3};
  Ids ids = {0};
  size_t n;
  (void)state;
  rt_encode(t, (Bytes){text, sizeof text}, false, &ids);
  char *back = decoded(t, &ids, &n); /* as Rust and Python replace them */
  assert_string_equal(back, "a\ufffdb\ufffd\ufffd\ufffd\ufffd\ufffd");
  free(back), free(ids.at);
  rt_tokenizer_close(t);
}

static void test_sentence(void **state) {
  Tokenizer *t = named("bert.json");
  const char *text = "The value of a shape, and the rest. [SEP] What, then.";
  Ids ids = {0};
  size_t n;
  (void)state;
  rt_encode(t, (Bytes){(const uint8_t *)text, (int64_t)strlen(text)}, true, &ids);
  char *back = decoded(t, &ids, &n);
  assert_string_equal(back, "the value of a shape, and the rest. [SEP] what, then.");
  assert_true(rt_tokenizer_special(t, rt_tokenizer_id(t, "[SEP]")));
  assert_int_equal(rt_tokenizer_id(t, "[PAD]"), 0);
  assert_int_equal(rt_tokenizer_id(t, "no such token"), -1);
  free(back), free(ids.at);
  rt_tokenizer_close(t);
}

/* A megabyte without a gap takes moments, not hours. */
static void test_one_long_piece(void **state) {
  Tokenizer *t = named("llama3.json");
  int64_t n = 1000000;
  char *text = rt_alloc((size_t)n);
  Ids ids = {0};
  (void)state;
  memset(text, 'a', (size_t)n);
  double began = rt_now();
  rt_encode(t, (Bytes){(uint8_t *)text, n}, false, &ids);
  assert_true(ids.n > 0 && rt_now() - began < 20);
  free(text), free(ids.at), rt_tokenizer_close(t);
}

#define BPE(more)                                                                                  \
  "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"    \
  "\"b\":1,\"ab\":2}," more "}}"

static void refused(const char *json, const char *says) {
  Tokenizer *t;
  Fault f = {0};
  if (rt_tokenizer_read((Bytes){(const uint8_t *)json, (int64_t)strlen(json)}, &t, &f))
    fail_msg("accepted: %s", json);
  assert_int_equal(f.code, 206);
  if (!strstr(f.what, says)) fail_msg("`%s` does not say `%s`", f.what, says);
}

static void test_refusals(void **state) {
  Tokenizer *t;
  Fault f;
  const char *good = BPE("\"merges\":[\"a b\"]"), *pair = BPE("\"merges\":[[\"a\",\"b\"]]");
  (void)state;
  assert_true(rt_tokenizer_read((Bytes){(const uint8_t *)good, (int64_t)strlen(good)}, &t, &f));
  rt_tokenizer_close(t);
  assert_true(rt_tokenizer_read((Bytes){(const uint8_t *)pair, (int64_t)strlen(pair)}, &t, &f));
  rt_tokenizer_close(t);
  refused("", "damaged");
  refused("{}", "no vocabulary");
  refused(BPE("\"merges\":[\"ab\"]"), "without a blank");
  refused(BPE("\"merges\":[\"b a\"]"), "makes a token");
  refused(BPE("\"merges\":[\"a c\"]"), "needs the token `c`");
  refused(BPE("\"merges\":[[\"a\",\"b\",\"c\"]]"), "more than two");
  refused(BPE("\"end_of_word_suffix\":\"</w>\""), "</w>");
  refused("{\"normalizer\":{\"type\":\"NFKC\"}}", "`NFKC`");
  refused("{\"pre_tokenizer\":{\"type\":\"Metaspace\"}}", "the mark for spaces");
  refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x+\"},"
          "\"behavior\":\"Isolated\",\"invert\":false}}",
          "`x+`");
  refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0.5]]}}", "Unigram");
  refused("{\"normalizer\":{\"type\":\"Precompiled\"}}", "`Precompiled`");
  refused("{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"model\":{\"type\":\"WordPiece\","
          "\"unk_token\":\"?\",\"vocab\":{\"a\":0}}}",
          "unknown token `?`");
  refused("{\"added_tokens\":[{\"id\":-1,\"content\":\"x\"}]}", "id -1");
  refused("{\"model\":{\"vocab\":{\"a\":99999999999}}}", "id 99999999999");
}

/* Ids that are far apart cost nothing. */
static void test_far_ids(void **state) {
  const char *json = "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
                     "\"vocab\":{\"a\":2147483647,\"b\":7},\"merges\":[]}}";
  Tokenizer *t;
  Fault f;
  Ids ids = {0};
  (void)state;
  assert_true(rt_tokenizer_read((Bytes){(const uint8_t *)json, (int64_t)strlen(json)}, &t, &f));
  assert_true(rt_tokenizer_limit(t) == 2147483648);
  rt_encode(t, (Bytes){(const uint8_t *)"bcca", 4}, false, &ids);
  assert_true(ids.n == 2 && ids.at[0] == 7 && ids.at[1] == INT32_MAX);
  free(ids.at), rt_tokenizer_close(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_o200k),
                                     cmocka_unit_test(test_marked),
                                     cmocka_unit_test(test_unigram),
                                     cmocka_unit_test(test_gpt2),
                                     cmocka_unit_test(test_llama3),
                                     cmocka_unit_test(test_bert),
                                     cmocka_unit_test(test_gpt2_pair),
                                     cmocka_unit_test(test_bert_words),
                                     cmocka_unit_test(test_in_parts),
                                     cmocka_unit_test(test_there_and_back),
                                     cmocka_unit_test(test_broken_characters),
                                     cmocka_unit_test(test_sentence),
                                     cmocka_unit_test(test_one_long_piece),
                                     cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_far_ids)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
