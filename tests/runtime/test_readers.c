/* Readers of the runtime: sums, JSON, safetensors, data formats, element types. Files that they
   must accept or refuse, and the position of the fault in the message. */
#include "runtime/store/checkpoint.h"
#include "runtime/base/file.h"
#include "runtime/data/formats.h"
#include "runtime/base/json.h"
#include "runtime/metrics.h"
#include "runtime/store/safetensors.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void test_hash(void **state) {
  (void)state;
  assert_true(rt_hash_of("", 0) == 0xef46db3751d8e999u);
  assert_true(rt_hash_of("abc", 3) == 0x44bc2cf5ad770999u);
  assert_true(rt_hash_of("Nobody inspects the spammish repetition", 39) == 0xfbcea83c8a378bf1u);
  uint8_t data[1000];
  for (int i = 0; i < 1000; i++) data[i] = (uint8_t)(i * 7);
  for (size_t cut = 0; cut < 1000; cut += 13) { /* pieces give the same sum */
    Hash h;
    rt_hash_start(&h);
    rt_hash_add(&h, data, cut), rt_hash_add(&h, data + cut, 1000 - cut);
    assert_true(rt_hash_end(&h) == rt_hash_of(data, 1000));
  }
}

static bool valid_json(const char *text) {
  Json j = rt_json(text, (int64_t)strlen(text));
  rt_json_skip(&j);
  return rt_json_done(&j);
}

static void test_json_strict(void **state) {
  static const char *const good[] = {"{}",
                                     "[]",
                                     " [1, -0.5e+3, 0, true, false, null] ",
                                     "{\"a\":{\"b\":[[]]}}",
                                     "\"\\u00e9\\ud83d\\ude00\\n\"",
                                     "12"};
  static const char *const bad[] = {
      "",          "{",   "[1,]", "{\"a\":1,}", "[1 2]",   "{a:1}",       "01",          "1.",
      ".5",        "+1",  "nul",  "tru",        "\"\\x\"", "\"\\ud800\"", "\"\\u0000\"", "[1]]",
      "{\"a\" 1}", "\"a", "NaN",  "[,1]",       "\"\t\"",  "--1",         "1e"};
  (void)state;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(valid_json(good[i]));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (valid_json(bad[i])) fail_msg("accepted: %s", bad[i]);
  char deep[400];
  memset(deep, '[', 200), memset(deep + 200, ']', 200);
  Json j = rt_json(deep, 400);
  assert_false(rt_json_skip(&j));
}

static void test_json_values(void **state) {
  const char *text = "{\"n\":-42,\"x\":2.5,\"s\":\"a\\\"\\u00e9\",\"big\":99999999999999999999}";
  char key[16], s[16];
  int64_t n = 0, big;
  double x = 0;
  (void)state;
  Json j = rt_json(text, (int64_t)strlen(text));
  assert_true(rt_json_object(&j));
  while (rt_json_member(&j, key, sizeof key)) {
    if (!strcmp(key, "n")) assert_true(rt_json_int(&j, &n));
    else if (!strcmp(key, "x")) assert_true(rt_json_number(&j, &x));
    else if (!strcmp(key, "s")) assert_true(rt_json_string(&j, s, sizeof s));
    else assert_false(rt_json_int(&j, &big));
  }
  assert_int_equal(n, -42);
  assert_true(x == 2.5);
  assert_string_equal(s, "a\"\xc3\xa9");
  assert_non_null(j.error);
}

static void test_elements(void **state) {
  (void)state;
  for (uint32_t i = 0; i < 65536; i++) { /* every half and bfloat is converted in both directions */
    uint16_t in = (uint16_t)i, out;
    for (int elem = RT_BF16; elem <= RT_F16; elem++) {
      double v = rt_elem_get(elem, &in, 0);
      rt_elem_put(elem, &out, 0, v);
      assert_true(isnan(v) || out == in);
    }
  }
  uint16_t h;
  rt_elem_put(RT_F16, &h, 0, 65519.0), assert_int_equal(h, 0x7bff);
  rt_elem_put(RT_F16, &h, 0, 65520.0), assert_int_equal(h, 0x7c00);
  rt_elem_put(RT_BF16, &h, 0, 1.00390625), assert_int_equal(h, 0x3f80); /* a tie goes to even */
  int32_t whole;
  rt_elem_put(RT_I32, &whole, 0, 1e20), assert_int_equal(whole, INT32_MAX);
  for (int i = 0; i < 256; i++) { /* a byte is 0 to 255 */
    uint8_t in = (uint8_t)i, out = (uint8_t)~i;
    rt_elem_put(RT_U8, &out, 0, rt_elem_get(RT_U8, &in, 0)), assert_int_equal(out, i);
  }
  uint8_t byte;
  rt_elem_put(RT_U8, &byte, 0, 300), assert_int_equal(byte, 255);
  rt_elem_put(RT_U8, &byte, 0, NAN), assert_int_equal(byte, 0);
}

/* ---- safetensors ---- */

static Bytes with_header(const char *header, int64_t data) {
  size_t n = strlen(header);
  uint8_t *file = calloc(1, 8 + n + (size_t)data);
  uint64_t length = n;
  memcpy(file, &length, 8), memcpy(file + 8, header, n);
  return (Bytes){file, (int64_t)n + 8 + data};
}

static bool accepts(const char *header, int64_t data) {
  Bytes b = with_header(header, data);
  SafeFile s;
  Fault f;
  bool ok = rt_safe_read(b, &s, &f);
  if (ok) rt_safe_free(&s);
  else assert_int_equal(f.code, 302);
  free((void *)b.at);
  return ok;
}

static void test_safetensors_refusals(void **state) {
  (void)state;
#define T(name, shape, begin, end)                                                                 \
  "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"
  assert_true(accepts("{}", 0));
  assert_true(accepts("{" T("a", "[2]", 0, 8) "," T("b", "[]", 8, 12) "}", 12));
  assert_true(accepts("{" T("b", "[3]", 8, 20) "," T("a", "[2]", 0, 8) "}   ", 20));
  assert_true(accepts("{" T("a", "[0,5]", 0, 0) "," T("c", "[2]", 0, 8) "}", 8));
  assert_false(accepts("{" T("a", "[2]", 0, 8) "}", 12));  /* data left over */
  assert_false(accepts("{" T("a", "[2]", 0, 8) "}", 4));   /* beyond the file */
  assert_false(accepts("{" T("a", "[2]", 4, 12) "}", 12)); /* hole */
  assert_false(accepts("{" T("a", "[2]", 0, 8) "," T("b", "[2]", 4, 12) "}", 12)); /* overlap */
  assert_false(accepts("{" T("a", "[2]", 0, 8) "," T("a", "[1]", 8, 12) "}", 12)); /* twice */
  assert_false(accepts("{" T("a", "[3]", 0, 8) "}", 8));                           /* shape */
  assert_false(accepts("{" T("a", "[-1,-2]", 0, 8) "}", 8));
  assert_false(accepts("{" T("a", "[4294967296,4294967296,4294967296]", 0, 8) "}", 8));
  assert_false(accepts("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8));
  assert_false(accepts("{\"a\":{\"dtype\":\"Q7\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8));
  assert_false(accepts(" {}", 0));
  assert_false(accepts("", 0));
}

static void test_safetensors_round_trip(void **state) {
  (void)state;
  float a[6] = {1, 2, 3, 4, 5, 6}, b = 7;
  int64_t size[2] = {2, 3}, bytes;
  uint64_t hash;
  SafeItem items[] = {{"w.\"odd\"", RT_F32, 2, size, a, NULL, NULL},
                      {"b", RT_F32, 0, NULL, &b, NULL, NULL}};
  SafePair pair = {"place.b", "x\ny"};
  char path[] = "/tmp/shardrt_XXXXXX";
  int fd = mkstemp(path);
  Fault f;
  assert_true(rt_safe_write(fd, items, 2, &pair, 1, &bytes, &hash, &f));
  close(fd);
  Bytes file;
  SafeFile s;
  assert_true(rt_map_file(path, 301, &file, &f));
  assert_true(file.n == bytes && rt_hash_of(file.at, (size_t)file.n) == hash);
  assert_true(rt_safe_read(file, &s, &f));
  assert_string_equal(rt_safe_meta(&s, "place.b"), "x\ny");
  assert_string_equal(rt_safe_meta(&s, "format"), "pt");
  const SafeTensor *t = rt_safe_find(&s, "w.\"odd\"");
  assert_non_null(t);
  assert_true(t->rank == 2 && t->size[1] == 3 && !memcmp(t->data, a, sizeof a));
  assert_null(rt_safe_find(&s, "c"));
  rt_safe_free(&s), rt_unmap_file(&file), unlink(path);
}

/* ---- data formats ---- */

static bool opens(const void *data, size_t n, const char *name, const char *format, Array *a) {
  Fault f;
  bool ok = rt_array_open((Bytes){data, (int64_t)n}, name, format, a, &f);
  assert_true(ok || f.code == 202);
  return ok;
}

static void refused(const void *data, size_t n, const char *name, const char *format,
                    const char *what, const char *help) {
  Array a;
  Fault f;
  assert_false(rt_array_open((Bytes){data, (int64_t)n}, name, format, &a, &f));
  if (f.code != 202 || !strstr(f.what, what) || !strstr(f.help, help))
    fail_msg("%s: `%s`, `%s` instead of `%s`, `%s`", name, f.what, f.help, what, help);
}

/* Every magic number of the table, under every format. */
static void test_foreign(void **state) {
  static const struct {
    const char *name, *magic, *magic2;
    size_t at, n, at2, n2;
  } rows[] = {
#define FOREIGN(name, at, magic, at2, magic2, cure)                                                \
  {name, magic, magic2, at, sizeof magic - 1, at2, sizeof magic2 - 1},
#define FOREIGN_END(end, name, cure)
#include "runtime/data/foreign.def"
#undef FOREIGN
#undef FOREIGN_END
  };
  static const char *const formats[] = {NULL,  "npy", "llmc", "megatron",
                                        "idx", "u16", "u32",  "f32"};
  Array a;
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint8_t file[512] = {0};
    memcpy(file + rows[i].at, rows[i].magic, rows[i].n);
    memcpy(file + rows[i].at2, rows[i].magic2, rows[i].n2);
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++)
      refused(file, sizeof file, "a.bin", formats[k], rows[i].name, "`format = bytes` insists");
    assert_true(opens(file, sizeof file, "a.bin", "bytes", &a) && a.count == sizeof file);
  }
}

static void test_foreign_ends(void **state) {
  static const char *const ends[] = {
#define FOREIGN(name, at, magic, at2, magic2, cure)
#define FOREIGN_END(end, name, cure) end,
#include "runtime/data/foreign.def"
#undef FOREIGN
#undef FOREIGN_END
  };
  static const char text[] = "a, b\n1, 2\n";
  Array a;
  (void)state;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    char name[64];
    snprintf(name, sizeof name, "a%s", ends[i]);
    refused(text, sizeof text - 1, name, NULL, "not read", "`format = bytes` insists");
    assert_true(opens(text, sizeof text - 1, name, "bytes", &a));
  }
}

/* Files whose name suggests another format than their contents. */
static void test_guesses(void **state) {
  static const char json[] = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n", list[] = " [ {\"a\" : 1} ]",
                    code[] = "{ int a; }", words[] = "[1] a footnote",
                    prose[] = "Letters and lines, as many as a line of a book has,\nand some more.";
  uint16_t wide[64];
  uint32_t wider[64];
  float reals[64];
  Array a;
  (void)state;
  refused(json, sizeof json - 1, "a", NULL, "JSON", "tokenize");
  refused(list, sizeof list - 1, "a.txt", NULL, "JSON", "tokenize");
  assert_true(opens(json, sizeof json - 1, "a", "bytes", &a));
  assert_true(opens(code, sizeof code - 1, "a", NULL, &a) && a.guessed);
  assert_true(opens(words, sizeof words - 1, "a", NULL, &a));
  refused(prose, 64, "a.bin", NULL, "this is text", "`format = bytes`");
  refused(prose, 64, "a.f32", NULL, "this is text", "`format = bytes`");
  assert_true(opens(prose, 64, "a.bin", "u16", &a) && !a.guessed);
  for (int i = 0; i < 64; i++) wide[i] = (uint16_t)(i * 997), wider[i] = (uint32_t)i * 997;
  assert_true(opens(wide, sizeof wide, "a.bin", NULL, &a) && a.width == 2);
  assert_true(opens(wider, sizeof wider, "a.u32", NULL, &a) && a.width == 4);
  refused(wider, sizeof wider, "a.bin", NULL, "every second", "`format = u32`");
  assert_true(opens(wider, sizeof wider, "a.bin", "u16", &a) && a.count == 128);
  for (int i = 0; i < 64; i++) wider[i] = i % 2 ? 0 : (uint32_t)i * 997; /* of 64 bits */
  refused(wider, sizeof wider, "a.u32", NULL, "every second", "numpy.save");
  refused(wider, sizeof wider, "a.bin", NULL, "every second", "numpy.save");
  for (int i = 0; i < 64; i++) reals[i] = (float)i;
  refused(reals, sizeof reals, "a.bin", NULL, "every second", "numpy.save");
  assert_true(opens(reals, sizeof reals, "a.f32", NULL, &a) && a.kind == NUMBER_FLOAT);
}

static void test_bare_formats(void **state) {
  const uint8_t bytes[] = {1, 0, 2, 0, 255, 255, 4, 0};
  Array a;
  (void)state;
  assert_true(opens(bytes, 8, "a.txt", "bytes", &a) && a.count == 8 && rt_array_int(&a, 4) == 255);
  assert_true(opens(bytes, 8, "a.bin", NULL, &a) && a.count == 4 && rt_array_int(&a, 2) == 65535);
  assert_true(opens(bytes, 8, "a.txt", "u32", &a) && a.count == 2 && rt_array_int(&a, 0) == 131073);
  assert_false(opens(bytes, 8, "a.txt", NULL, &a)); /* no text */
  assert_false(opens(bytes, 7, "a.bin", NULL, &a));
  assert_false(opens(bytes, 8, "a", "llmc", &a));
  assert_false(opens(bytes, 8, "a", "npy", &a));
  assert_false(opens(bytes, 8, "a", "idx", &a));
}

static void test_llmc(void **state) {
  static int32_t file[256 + 2] = {20240520, 1, 4};
  Array a;
  (void)state;
  file[256] = 7 | 9 << 16;
  assert_true(opens(file, sizeof file, "a", NULL, &a) && a.count == 4 && a.width == 2 &&
              rt_array_int(&a, 1) == 9);
  file[2] = 5; /* one token more than there is */
  assert_false(opens(file, sizeof file, "a", NULL, &a));
  file[2] = 4, file[1] = 3;
  assert_false(opens(file, sizeof file, "a", NULL, &a));
  assert_false(opens(file, 100, "a", NULL, &a));
}

static void test_idx(void **state) {
  uint8_t file[4 + 8 + 6] = {0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 2, 10, 11, 12, 13, 14, 15};
  Array a;
  (void)state;
  assert_true(opens(file, sizeof file, "a", NULL, &a) && a.rank == 2 && a.size[0] == 3 &&
              rt_array_int(&a, 5) == 15);
  file[7] = 4;
  assert_false(opens(file, sizeof file, "a", NULL, &a));
  file[4] = 255, file[8] = 255; /* sizes whose product overflows */
  assert_false(opens(file, sizeof file, "a", NULL, &a));
}

static size_t npy(uint8_t *out, const char *dictionary, const void *data, size_t n) {
  size_t k = strlen(dictionary);
  memcpy(out, "\x93NUMPY\1\0", 8);
  out[8] = (uint8_t)k, out[9] = (uint8_t)(k >> 8);
  memcpy(out + 10, dictionary, k), memcpy(out + 10 + k, data, n);
  return 10 + k + n;
}

static void test_npy(void **state) {
  uint8_t file[512];
  Array a;
  float reals[] = {1.5f, -2, 3};
  int64_t wide[] = {5, -6};
  (void)state;
  size_t n = npy(file, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", reals, 12);
  assert_true(opens(file, n, "a", NULL, &a) && a.rank == 1 && a.count == 3 &&
              rt_array_real(&a, 0) == 1.5);
  assert_true(rt_array_int(&a, 0) == INT64_MAX && rt_array_int(&a, 1) == -2); /* 1.5 is no index */
  n = npy(file, "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 1), }\n", wide, 16);
  assert_true(opens(file, n, "a", NULL, &a) && a.rank == 2 && rt_array_int(&a, 1) == -6);
  assert_false(opens(file, n - 1, "a", NULL, &a));
  n = npy(file, "{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }\n", reals, 12);
  assert_true(opens(file, n, "a", NULL, &a) && rt_array_real(&a, 2) == 3);
  n = npy(file, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 3), }\n", reals, 12);
  refused(file, n, "a.npy", NULL, "in Fortran order", "ascontiguousarray");
  n = npy(file, "{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 9999999999), }\n",
          reals, 12);
  assert_false(opens(file, n, "a", NULL, &a));
  n = npy(file, "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }\n", reals, 12);
  refused(file, n, "a.npy", NULL, "its type is |O", "astype");
  n = npy(file, "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }\n", reals, 8);
  refused(file, n, "a.npy", NULL, "its type is <c8", "astype");
  uint8_t big[] = {0x3f, 0xc0, 0, 0};
  n = npy(file, "{'descr': '>f4', 'fortran_order': False, 'shape': (), }\n", big, 4);
  assert_true(opens(file, n, "a", NULL, &a) && a.count == 1 && rt_array_real(&a, 0) == 1.5);
}

static void test_curve(void **state) {
  Curve *c = calloc(1, sizeof *c);
  (void)state;
  for (int i = 1; i <= 100000; i++) rt_curve_add(c, i, 5);
  assert_true(c->n <= HISTORY && c->n > HISTORY / 4 && c->value[0] == 5 &&
              c->step[c->n - 1] > 99900);
  rt_curve_add(c, 100001, NAN);
  assert_true(c->n <= HISTORY);
  free(c);
}

/* Counts near 2^63, with a sum that is right. */
static void test_state_counts(void **state) {
  (void)state;
  static const struct {
    const char *samples;
    bool good;
  } rows[] = {
      {"64", true}, {"1152921504606846976", true}, {"9223372036854775807", false}, {"-1", false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[400];
    Fault f;
    int n = snprintf(text, sizeof text,
                     "{\"schema\":1,\"step\":8,\"samples\":%s,\"tokens\":1,\"seed\":1,\"files\":"
                     "[{\"name\":\"a\",\"bytes\":1,\"xxh64\":\"0\"}]",
                     rows[i].samples);
    n += snprintf(text + n, sizeof text - (size_t)n, ",\"check\":\"%016llx\"}\n",
                  (unsigned long long)rt_hash_of(text, (size_t)n));
    assert_int_equal(rt_state_check((Bytes){(uint8_t *)text, n}, &f), rows[i].good);
    if (!rows[i].good) assert_int_equal(f.code, 502);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_hash),
                                     cmocka_unit_test(test_json_strict),
                                     cmocka_unit_test(test_json_values),
                                     cmocka_unit_test(test_elements),
                                     cmocka_unit_test(test_safetensors_refusals),
                                     cmocka_unit_test(test_safetensors_round_trip),
                                     cmocka_unit_test(test_bare_formats),
                                     cmocka_unit_test(test_foreign),
                                     cmocka_unit_test(test_foreign_ends),
                                     cmocka_unit_test(test_guesses),
                                     cmocka_unit_test(test_llmc),
                                     cmocka_unit_test(test_idx),
                                     cmocka_unit_test(test_npy),
                                     cmocka_unit_test(test_curve),
                                     cmocka_unit_test(test_state_counts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
