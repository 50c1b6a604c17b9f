/* Data files by name: Megatron's pairs by each of their names, patterns, documents, false indexes,
   and a hundred gigabytes of tokens that open at once (sparse files). */
#include "runtime/data/data_file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SEQUENCES = 4, ENTRIES = 3, TOKENS = 10, HEAD = 34 };
enum { LENGTHS = HEAD, PLACES = HEAD + 4 * SEQUENCES, DOCUMENTS = PLACES + 8 * SEQUENCES };
enum { INDEX = DOCUMENTS + 8 * ENTRIES };

static void put(uint8_t *at, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(v >> 8 * i);
}

/* Sequences of 3, 2, 1, 4 tokens; two documents: three sequences and one. */
static void make_index(uint8_t out[INDEX]) {
  static const int lengths[SEQUENCES] = {3, 2, 1, 4};
  memset(out, 0, INDEX);
  memcpy(out, "MMIDIDX\0\0", 9);
  put(out + 9, 1, 8), put(out + 17, 8, 1), put(out + 18, SEQUENCES, 8), put(out + 26, ENTRIES, 8);
  for (int i = 0, at = 0; i < SEQUENCES; at += 2 * lengths[i++])
    put(out + LENGTHS + 4 * i, (uint64_t)lengths[i], 4), put(out + PLACES + 8 * i, (uint64_t)at, 8);
  put(out + DOCUMENTS + 8, 3, 8), put(out + DOCUMENTS + 16, 4, 8);
}

static char folder[] = "/tmp/shardrt_files_XXXXXX";

static char *in_folder(const char *name) { return rt_format("%s/%s", folder, name); }

static void write_file(const char *name, const void *data, size_t n) {
  char *path = in_folder(name);
  FILE *o = fopen(path, "wb");
  assert_non_null(o);
  assert_int_equal(fwrite(data, 1, n, o), n);
  fclose(o), free(path);
}

static void write_pair(const char *name) {
  uint8_t index[INDEX], tokens[2 * TOKENS];
  make_index(index);
  for (int i = 0; i < TOKENS; i++) put(tokens + 2 * i, (uint64_t)(100 + i), 2);
  char *a = rt_format("%s.idx", name), *b = rt_format("%s.bin", name);
  write_file(a, index, INDEX), write_file(b, tokens, sizeof tokens);
  free(a), free(b);
}

static void check_pair(const char *name, const char *format) {
  DataFile p;
  Fault f = {0};
  char *path = in_folder(name);
  if (!rt_part_open(path, format, &p, &f)) fail_msg("%s: %s", name, f.what);
  assert_string_equal(p.array.format, "megatron");
  assert_true(p.array.count == TOKENS && rt_array_int(&p.array, 9) == 109);
  assert_true(strstr(p.path, ".bin") && p.array.documents == ENTRIES);
  assert_true(rt_array_document(&p.array, 1) == 6 && rt_array_document(&p.array, 2) == TOKENS);
  for (int i = 0; i < TOKENS; i++) assert_int_equal(rt_array_ends(&p.array, i), i == 5 || i == 9);
  rt_part_close(&p), free(path);
}

static void test_pairs(void **state) {
  (void)state;
  write_pair("pair");
  check_pair("pair", NULL), check_pair("pair.bin", NULL), check_pair("pair.idx", NULL);
  check_pair("pair", "megatron"), check_pair("pair.bin", "megatron");
}

static void test_patterns(void **state) {
  DataFile *parts;
  Fault f;
  int n;
  (void)state;
  write_pair("many_a"), write_pair("many_b");
  write_file("many_c.bin", "\1\0\2\0", 4); /* without an index file: 16-bit tokens */
  char *pattern = in_folder("many_*");
  assert_true(rt_parts_open(pattern, NULL, &parts, &n, &f));
  assert_int_equal(n, 3);
  assert_string_equal(parts[1].array.format, "megatron");
  assert_string_equal(parts[2].array.format, "u16");
  for (int i = 0; i < n; i++) rt_part_close(&parts[i]);
  free(parts), free(pattern);
}

static void test_other_half_lost(void **state) {
  DataFile p;
  Fault f = {0};
  uint8_t index[INDEX];
  (void)state;
  make_index(index);
  write_file("lost.idx", index, INDEX);
  char *path = in_folder("lost.idx");
  assert_false(rt_part_open(path, NULL, &p, &f));
  assert_int_equal(f.code, 201);
  rt_part_close(&p), free(path);
  path = in_folder("many_c.bin");
  assert_false(rt_part_open(path, "megatron", &p, &f));
  assert_true(f.code == 202 && strstr(f.what, ".idx in the same folder"));
  rt_part_close(&p), free(path);
}

static bool accepts(const uint8_t *index, int64_t n, int64_t bytes) {
  static const uint8_t tokens[2 * TOKENS + 2];
  Array a;
  Fault f;
  bool ok = rt_megatron_open((Bytes){index, n}, (Bytes){tokens, bytes}, &a, &f);
  assert_true(ok || f.code == 202);
  return ok;
}

/* One number changed: refused. */
static bool lies(int at, uint64_t v, int bytes) {
  uint8_t index[INDEX];
  make_index(index);
  put(index + at, v, bytes);
  return !accepts(index, INDEX, 2 * TOKENS);
}

static void test_lies(void **state) {
  uint8_t index[INDEX + SEQUENCES] = {0};
  (void)state;
  make_index(index);
  assert_true(accepts(index, INDEX, 2 * TOKENS));
  assert_true(accepts(index, INDEX + SEQUENCES, 2 * TOKENS)); /* with modes */
  assert_false(accepts(index, INDEX + 1, 2 * TOKENS));
  assert_false(accepts(index, INDEX, 2 * TOKENS + 2));
  assert_false(accepts(index, INDEX, 2 * TOKENS - 2));
  for (int n = 0; n < INDEX; n++) assert_false(accepts(index, n, 2 * TOKENS));
  assert_true(lies(0, 'T', 1) && lies(9, 2, 8) && lies(17, 0, 1) && lies(17, 9, 1) &&
              lies(17, 4, 1));
  assert_true(lies(18, 5, 8) && lies(18, UINT64_MAX, 8) && lies(18, 1ull << 62, 8));
  assert_true(lies(26, 2, 8) && lies(26, UINT64_MAX, 8) && lies(26, 1ull << 61, 8));
  assert_true(lies(LENGTHS, 4, 4) && lies(LENGTHS, 0x80000000u, 4));
  assert_true(lies(PLACES, 2, 8) && lies(PLACES + 8, 4, 8));
  assert_true(lies(DOCUMENTS, 1, 8) && lies(DOCUMENTS + 8, 5, 8) && lies(DOCUMENTS + 16, 3, 8));
}

static void test_hundred_gigabytes(void **state) {
  enum { FILES = 100 };
  int32_t head[256] = {20240520, 1, 500000000};
  DataFile *parts;
  Fault f;
  int n;
  (void)state;
  for (int i = 0; i < FILES; i++) {
    char name[32];
    snprintf(name, sizeof name, "huge_%03d.bin", i);
    write_file(name, head, sizeof head);
    char *path = in_folder(name);
    bool sparse = !truncate(path, 1024 + 1000000000);
    free(path);
    if (!sparse) skip();
  }
  char *pattern = in_folder("huge_*.bin");
  double began = rt_now();
  assert_true(rt_parts_open(pattern, NULL, &parts, &n, &f));
  double took = rt_now() - began;
  printf("%d files of 1 GB open in %.4f s\n", n, took);
  assert_true(n == FILES && parts[99].array.count == 500000000 && took < 1);
  assert_int_equal(rt_array_int(&parts[99].array, 499999999), 0);
  for (int i = 0; i < n; i++) unlink(parts[i].path), rt_part_close(&parts[i]);
  free(parts), free(pattern);
}

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  char *command = rt_format("rm -r '%s'", folder);
  (void)state;
  int r = system(command);
  free(command);
  return r;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_patterns),
                                     cmocka_unit_test(test_other_half_lost),
                                     cmocka_unit_test(test_lies),
                                     cmocka_unit_test(test_hundred_gigabytes)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
