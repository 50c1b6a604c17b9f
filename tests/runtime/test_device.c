/* The pool, the processor and the data sets: every chunk once whatever the number of workers,
   waking after sleep, scratch of one's own; permutations, windows, columns, splits. */
#include "folder.h"
#include "tests/common/by_hand.h"
#include "runtime/data/data.h"
#include "runtime/data/shuffle.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { CHUNKS = 1000 };

static void count_chunk(void *const *b, int64_t chunk, void *scratch) {
  atomic_fetch_add(&((atomic_int *)b[0])[chunk], 1);
  if ((uintptr_t)scratch % 64) atomic_store((atomic_int *)b[1], 1);
  memset(scratch, (int)chunk, 100); /* the whole of it may be used */
}

static void test_pool(void **state) {
  static atomic_int seen[CHUNKS], wrong;
  void *buffers[] = {seen, &wrong};
  (void)state;
  for (int workers = 1; workers <= 8; workers++) {
    Fault f;
    Pool *p = rt_pool_start(workers, 100, &f);
    assert_non_null(p);
    memset(seen, 0, sizeof seen);
    for (int round = 0; round < 300; round++) {
      rt_pool_run(p, count_chunk, buffers, round % 3 ? CHUNKS / 10 : round % 5);
      if (round % 100 == 50)
        nanosleep(&(struct timespec){0, 20000000}, NULL); /* long enough to fall asleep */
    }
    int sum = 0;
    for (int i = 0; i < CHUNKS; i++) sum += seen[i];
    assert_int_equal(sum, 200 * (CHUNKS / 10) + 20 * (0 + 3 + 1 + 4 + 2));
    assert_false(wrong);
    rt_pool_stop(p);
  }
}

static void test_pool_stops(void **state) { /* at any moment, asleep or not */
  static atomic_int seen[CHUNKS], wrong;
  void *buffers[] = {seen, &wrong};
  (void)state;
  for (int i = 0; i < 200; i++) {
    Fault f;
    Pool *p = rt_pool_start(3, 100, &f);
    for (int k = 0; k < i % 4; k++) rt_pool_run(p, count_chunk, buffers, 2 + k);
    if (i % 50 == 0) nanosleep(&(struct timespec){0, 8000000}, NULL);
    rt_pool_stop(p);
  }
}

static void test_permutation(void **state) {
  static char seen[5000];
  (void)state;
  for (int64_t n = 1; n < 5000; n = n * 3 / 2 + 1) {
    int fixed = 0;
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < n; i++) {
      int64_t at = rt_permute(3, 1, n, i);
      assert_true(at >= 0 && at < n && !seen[at]++);
      fixed += at == i;
    }
    assert_true(n < 100 || fixed < 12);
  }
  assert_int_not_equal(rt_permute(3, 1, 4000, 5), rt_permute(3, 2, 4000, 5));
  int64_t huge = (int64_t)1 << 60;
  assert_true(rt_permute(1, 0, huge, huge - 1) >= 0 && rt_permute(1, 0, huge, huge - 1) < huge);
}

static void test_philox(void **state) { /* known answers of the generator's authors */
  uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u}, out[4];
  (void)state;
  rt_philox(0, zero, out);
  assert_true(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c &&
              out[3] == 0x9b00dbd8);
  rt_philox(~0ull, ones, out);
  assert_true(out[0] == 0x408f276d && out[1] == 0x41c83b0e && out[2] == 0xa20bc7c6 &&
              out[3] == 0x6d5451fd);
}

/* ---- data ---- */

enum { BATCH = 2, SEQ = 4 };

static void nothing(rt_ctx *rt) { (void)rt; }
static const rt_entry no_entries[] = {{.name = "step", .run = nothing}};
static const rt_tensor token_inputs[] = {INPUT("tokens", BATCH, SEQ, 200, AT(RT_IO, 0, 32)),
                                         INPUT("targets", BATCH, SEQ, 200, AT(RT_IO, 64, 32))};
static const rt_tensor column_inputs[] = {
    VALUE("image", RT_INPUT, RT_F32, AT(RT_IO, 0, 24), .rank = 2, .dim = {"Batch", "Pixel"},
          .size = {BATCH, 3}),
    VALUE("label", RT_INPUT, RT_I32, AT(RT_IO, 64, 8), .rank = 1, .dim = {"Batch"}, .size = {BATCH},
          .of = "Class", .of_size = 10)};

static rt_program program(const rt_tensor *t, int n, const rt_setting *s, int ns) {
  return (rt_program){.abi = RT_ABI_VERSION,
                      .model = "T",
                      .workers = 1,
                      .scratch = 64,
                      .arena_bytes = {64, 64, 128, 64},
                      .tensors = t,
                      .ntensors = n,
                      .entries = no_entries,
                      .nentries = 1,
                      .settings = s,
                      .nsettings = ns};
}

static char *file(const char *folder, const char *name, const void *data, size_t n) {
  static char path[4][300];
  static int next;
  char *p = path[next++ % 4];
  snprintf(p, 300, "%s/%s", folder, name);
  FILE *o = fopen(p, "wb");
  fwrite(data, 1, n, o);
  fclose(o);
  return p;
}

static void test_windows(void **state) {
  const char *folder = *state;
  uint8_t text[43];
  for (int i = 0; i < 43; i++) text[i] = (uint8_t)i;
  rt_setting s[] = {{"data.train", file(folder, "t.txt", text, 43)},
                    {"data.valid", "50%"},
                    {"data.task", "next"},
                    {"data.task.from", "tokens"},
                    {"data.task.to", "targets"}};
  rt_program p = program(token_inputs, 2, s, 5);
  DataOptions o = {.format = "bytes", .shuffle = 0};
  Data d;
  Device dev;
  Fault f;
  assert_true(rt_data_open(&d, &p, &o, &f));
  assert_int_equal(d.train.samples, 5); /* 22 tokens: windows at 0, 4, .. 16 */
  assert_int_equal(d.valid.samples, 5); /* 21 tokens from 22 */
  assert_true(d.batch == BATCH && d.tokens == SEQ);
  assert_true(rt_device_start(&dev, &p, NULL, &(DeviceOptions){.threads = 1}, &f));
  assert_true(rt_data_fill(&d, &d.train, &dev, 4, NULL, &f)); /* samples 4 and, round the end, 0 */
  const int32_t *tokens = rt_tensor_read(&dev, &token_inputs[0]),
                *targets = rt_tensor_read(&dev, &token_inputs[1]);
  assert_true(tokens[0] == 16 && tokens[3] == 19 && targets[0] == 17 && targets[3] == 20 &&
              tokens[4] == 0);
  assert_true(rt_data_fill(&d, &d.valid, &dev, 0, NULL, &f));
  assert_true(tokens[0] == 22 && targets[7] == 30);
  uint64_t seed = 9;
  int seen[5] = {0};
  d.shuffle = true;
  for (int i = 0; i < 10; i++) { /* two epochs in one order each */
    assert_true(rt_data_fill(&d, &d.train, &dev, i, &seed, &f));
    seen[tokens[0] / 4]++;
  }
  for (int i = 0; i < 5; i++) assert_int_equal(seen[i], 2);
  rt_device_stop(&dev);
  rt_data_close(&d);
}

/* Batches read by a concurrent thread: the same numbers, and the error of a batch is reported when
   it is asked for. */
static void test_ahead(void **state) {
  const char *folder = *state;
  uint8_t text[43];
  for (int i = 0; i < 43; i++) text[i] = (uint8_t)i;
  const char *path = file(folder, "ahead.txt", text, 43);
  rt_setting s[] = {{"data.train", path},
                    {"data.task", "next"},
                    {"data.task.from", "tokens"},
                    {"data.task.to", "targets"}};
  rt_program p = program(token_inputs, 2, s, 4);
  DataOptions o = {.format = "bytes", .shuffle = 1};
  Data d;
  Device dev;
  Fault f;
  uint64_t seed = 7, other = 8;
  double begin, end;
  assert_true(rt_data_open(&d, &p, &o, &f) &&
              rt_device_start(&dev, &p, NULL, &(DeviceOptions){.threads = 1}, &f));
  const int32_t *tokens = rt_tensor_read(&dev, &token_inputs[0]);
  int32_t alone[4][2 * SEQ];
  for (int i = 0; i < 4; i++) {
    assert_true(rt_data_fill(&d, &d.train, &dev, 2 * i, &seed, &f));
    memcpy(alone[i], tokens, sizeof alone[i]);
  }
  assert_true(rt_data_beside(&d, &dev, &f) && !rt_data_read_at(&d, &begin, &end));
  for (int i = 0; i < 4; i++) { /* the third comes from elsewhere, as after an evaluation */
    if (i != 2) rt_data_ahead(&d, &d.train, 2 * i, &seed);
    else rt_data_ahead(&d, &d.train, 2 * i, &other);
    assert_true(rt_data_fill_rows(&d, &d.train, &dev, 0, 1, 1, &f) && tokens[0] == 0);
    assert_true(rt_data_fill(&d, &d.train, &dev, 2 * i, &seed, &f));
    assert_memory_equal(alone[i], tokens, sizeof alone[i]);
    assert_true(rt_data_read_at(&d, &begin, &end) == (i != 2));
  }
  FILE *again = fopen(path, "r+b"); /* in the last window an index that is too large */
  assert_true(again && !fseek(again, 38, SEEK_SET) && fputc(200, again) == 200 && !fclose(again));
  rt_data_ahead(&d, &d.train, 9, NULL);
  assert_true(rt_data_fill(&d, &d.train, &dev, 0, NULL, &f));
  rt_data_ahead(&d, &d.train, 9, NULL);
  assert_false(rt_data_fill(&d, &d.train, &dev, 9, NULL, &f));
  assert_true(f.code == 204 && f.position == 38 && strstr(f.what, "200"));
  rt_data_ahead(&d, &d.train, 0, NULL); /* ends while it is read */
  rt_data_close(&d);
  rt_device_stop(&dev);
}

static void test_index_limit(void **state) {
  const char *folder = *state;
  uint8_t text[30] = {0};
  text[11] = 200;
  rt_setting s[] = {{"data.train", file(folder, "limit.txt", text, 30)}};
  rt_program p = program(token_inputs, 2, s, 1);
  DataOptions o = {.format = "bytes", .shuffle = 0};
  Data d;
  Device dev;
  Fault f;
  assert_true(rt_data_open(&d, &p, &o, &f) &&
              rt_device_start(&dev, &p, NULL, &(DeviceOptions){.threads = 1}, &f));
  assert_true(rt_data_fill(&d, &d.train, &dev, 0, NULL, &f));
  assert_false(rt_data_fill(&d, &d.train, &dev, 1, NULL, &f));
  assert_true(f.code == 204 && f.position == 11 && strstr(f.where, "limit.txt") &&
              strstr(f.what, "200"));
  rt_device_stop(&dev);
  rt_data_close(&d);
}

static void test_columns(void **state) {
  const char *folder = *state;
  uint8_t images[4 + 4 * 3 + 12] = {0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 3, 255, 0, 51};
  uint8_t labels[4 + 4 + 4] = {0, 0, 8, 1, 0, 0, 0, 4, 3, 1, 4, 9};
  rt_setting s[] = {{"data.columns.image", file(folder, "i.idx", images, sizeof images)},
                    {"data.columns.label", file(folder, "l.idx", labels, sizeof labels)},
                    {"data.valid", "25%"},
                    {"data.mean", "0.5 0 0.1"},
                    {"data.std", "0.25"}};
  rt_program p = program(column_inputs, 2, s, 3);
  DataOptions o = {.shuffle = 0};
  Data d;
  Device dev;
  Fault f;
  assert_true(rt_data_open(&d, &p, &o, &f));
  assert_true(d.train.samples == 3 && d.valid.samples == 1);
  assert_true(rt_device_start(&dev, &p, NULL, &(DeviceOptions){.threads = 1}, &f));
  assert_true(rt_data_fill(&d, &d.train, &dev, 0, NULL, &f));
  const float *image = rt_tensor_read(&dev, &column_inputs[0]);
  const int32_t *label = rt_tensor_read(&dev, &column_inputs[1]);
  assert_true(image[0] == 1 && image[1] == 0 && image[2] == (float)(51 * (float)(1.0 / 255)));
  assert_true(label[0] == 3 && label[1] == 1);
  assert_true(rt_data_fill(&d, &d.valid, &dev, 0, NULL, &f) && label[0] == 9);
  rt_data_close(&d);
  p.nsettings = 5;
  assert_true(rt_data_open(&d, &p, &o, &f) && rt_data_fill(&d, &d.train, &dev, 0, NULL, &f));
  assert_true(image[0] > 1.9999f && image[0] < 2.0001f && image[1] == 0 && image[2] > 0.3999f &&
              image[2] < 0.4001f);
  rt_data_close(&d);
  s[3].value = "1 2";
  assert_false(rt_data_open(&d, &p, &o, &f));
  rt_data_close(&d);
  p.nsettings = 3;
  rt_device_stop(&dev);
  rt_data_close(&d);
  labels[7] = 3; /* one label less */
  s[1].value = file(folder, "l2.idx", labels, sizeof labels);
  assert_false(rt_data_open(&d, &p, &o, &f));
  assert_int_equal(f.code, 205);
  rt_data_close(&d);
}

static void test_processor(void **state) {
  (void)state;
  Fault f = {0};
  rt_program p = {.target = "x86_64_v9"};
  assert_true(rt_processor_fits(&p, &f)); /* asks for nothing */
  p.needs = "";
  assert_true(rt_processor_fits(&p, &f));
  p.needs = "+avx2,+fma,";
  assert_int_equal(rt_processor_fits(&p, &f),
                   __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  f = (Fault){0}, p.needs = "+avx9,+amx-tile,";
  assert_false(rt_processor_fits(&p, &f));
  assert_int_equal(f.code, 109);
  assert_non_null(strstr(f.what, "x86_64_v9: the processor lacks avx9"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_processor),  cmocka_unit_test(test_pool),
      cmocka_unit_test(test_pool_stops), cmocka_unit_test(test_permutation),
      cmocka_unit_test(test_philox),     cmocka_unit_test(test_windows),
      cmocka_unit_test(test_ahead),      cmocka_unit_test(test_index_limit),
      cmocka_unit_test(test_columns)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
