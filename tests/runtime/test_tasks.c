/* Samples that the tasks make from a file of tokens: windows and documents, masked tokens and their
   labels, document numbers, positions, padding. */
#include "folder.h"
#include "runtime/data/data.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 8, SEQ = 16, VOCAB = 256, MASK = 103, EOT = 7, PAD = 1, IGNORE = -100 };

static void nothing(rt_ctx *rt) { (void)rt; }
static const rt_entry no_entries[] = {{.name = "step", .run = nothing}};
#define INPUT(name_, elem_, width, of_, at)                                                        \
  {                                                                                                \
    .name = name_, .kind = RT_INPUT, .elem = elem_, .rank = 2, .dim = {"Batch", "Seq"},            \
    .size = {BATCH, SEQ}, .of = of_, .of_size = of_ ? VOCAB : 0, .arena = RT_IO, .offset = at,     \
    .bytes = BATCH * SEQ * width                                                                   \
  }
static const rt_tensor inputs[] = {
    INPUT("tokens", RT_I32, 4, "Vocab", 0),   INPUT("labels", RT_I32, 4, "Vocab", 512),
    INPUT("doc", RT_I32, 4, NULL, 1024),      INPUT("pos", RT_I32, 4, NULL, 1536),
    INPUT("types", RT_I32, 4, "Vocab", 2048), INPUT("valid", RT_BOOL, 1, NULL, 2560)};

typedef struct Bench { /* a data set over one file, and where its inputs are filled */
  Data data;
  Device device;
  const int32_t *tokens, *labels, *doc, *pos, *types;
  const bool *valid;
  char path[300];
} Bench;

static void write_tokens(const char *path, const uint8_t *data, size_t n) {
  FILE *o = fopen(path, "wb");
  assert_non_null(o);
  assert_int_equal(fwrite(data, 1, n, o), n);
  fclose(o);
}

static void open_bench(Bench *b, const char *folder, const uint8_t *data, size_t n,
                       const rt_setting *more, int nmore, int ninputs) {
  rt_setting s[16] = {{"data.train", b->path},    {"data.format", "bytes"},
                      {"data.shuffle", "off"},    {"data.task.from", "tokens"},
                      {"data.task.to", "labels"}, {"data.ignore.labels", "-100"}};
  memcpy(s + 6, more, sizeof *s * (size_t)nmore);
  snprintf(b->path, sizeof b->path, "%s/tokens", folder);
  write_tokens(b->path, data, n);
  rt_program p = {.abi = RT_ABI_VERSION,
                  .model = "T",
                  .workers = 1,
                  .scratch = 64,
                  .arena_bytes = {64, 64, 4096, 64},
                  .tensors = inputs,
                  .ntensors = ninputs,
                  .entries = no_entries,
                  .nentries = 1,
                  .settings = s,
                  .nsettings = 6 + nmore};
  DataOptions o = {.shuffle = -1};
  Fault f;
  assert_true(rt_data_open(&b->data, &p, &o, &f));
  assert_true(rt_device_start(&b->device, &p, NULL, &(DeviceOptions){.threads = 1}, &f));
  b->tokens = rt_tensor_read(&b->device, &inputs[0]);
  b->labels = rt_tensor_read(&b->device, &inputs[1]);
  b->doc = rt_tensor_read(&b->device, &inputs[2]), b->pos = rt_tensor_read(&b->device, &inputs[3]);
  b->types = rt_tensor_read(&b->device, &inputs[4]);
  b->valid = rt_tensor_read(&b->device, &inputs[5]);
}

static void fill(Bench *b, const DataSet *s, int64_t cursor, const uint64_t *seed) {
  Fault f;
  assert_true(rt_data_fill(&b->data, s, &b->device, cursor, seed, &f));
}

static void close_bench(Bench *b) {
  rt_device_stop(&b->device);
  rt_data_close(&b->data);
}

static const rt_setting mlm[] = {{"data.task", "mlm"},         {"data.mask_id", "103"},
                                 {"data.special", "7 9"},      {"data.task.rate", "0.3"},
                                 {"data.task.mask", "0.5"},    {"data.task.random", "0.25"},
                                 {"data.task.types", "types"}, {"data.task.valid", "valid"}};

/* Shares over many samples, and labels that agree with the tokens. */
static void test_masking(void **state) {
  static uint8_t text[SEQ * 4000];
  int chosen = 0, masked = 0, kept = 0, total = 0;
  Bench b;
  uint64_t seed = 5;
  for (size_t i = 0; i < sizeof text; i++) text[i] = (uint8_t)(110 + i % 97);
  for (size_t i = 0; i < sizeof text; i += 13) text[i] = i % 2 ? 7 : 9;
  open_bench(&b, *state, text, sizeof text, mlm, 8, 6);
  assert_int_equal(b.data.train.samples, 4000); /* windows of Seq, not Seq + 1 */
  for (int64_t c = 0; c < 4000; c += BATCH) {
    fill(&b, &b.data.train, c, &seed);
    for (int k = 0; k < BATCH * SEQ; k++) {
      uint8_t truth = text[c * SEQ + k];
      bool special = truth == 7 || truth == 9;
      assert_true(b.valid[k] && b.types[k] == 0);
      assert_true(b.labels[k] == IGNORE ? b.tokens[k] == truth : b.labels[k] == truth && !special);
      total += !special, chosen += b.labels[k] != IGNORE;
      masked += b.tokens[k] == MASK, kept += b.labels[k] == truth && b.tokens[k] == truth;
    }
  }
  assert_true(chosen > total * 0.29 && chosen < total * 0.31);
  assert_true(masked > chosen * 0.48 && masked < chosen * 0.52);
  assert_true(kept > chosen * 0.23 && kept < chosen * 0.27);
  close_bench(&b);
}

/* A function of (seed, epoch, sample): again the same, elsewhere another; none while evaluating. */
static void test_masks_repeat(void **state) {
  uint8_t text[SEQ * BATCH];
  int32_t first[SEQ * BATCH];
  uint64_t seed = 5, other = 6;
  Bench b;
  memset(text, 200, sizeof text);
  open_bench(&b, *state, text, sizeof text, mlm, 8, 6);
  fill(&b, &b.data.train, 0, &seed);
  memcpy(first, b.tokens, sizeof first);
  fill(&b, &b.data.train, BATCH, &seed); /* the next epoch */
  assert_memory_not_equal(first, b.tokens, sizeof first);
  fill(&b, &b.data.train, 0, &other);
  assert_memory_not_equal(first, b.tokens, sizeof first);
  fill(&b, &b.data.train, 0, &seed);
  assert_memory_equal(first, b.tokens, sizeof first);
  fill(&b, &b.data.train, 0, NULL);
  memcpy(first, b.tokens, sizeof first);
  fill(&b, &b.data.train, BATCH, NULL);
  assert_memory_equal(first, b.tokens, sizeof first);
  close_bench(&b);
}

static void test_doc_and_pos(void **state) {
  static const rt_setting s[] = {
      {"data.task", "next"}, {"data.eot", "7"}, {"data.task.doc", "doc"}, {"data.task.pos", "pos"}};
  uint8_t text[SEQ * BATCH + 1];
  Bench b;
  memset(text, 50, sizeof text);
  text[3] = text[4] = text[SEQ - 1] = 7;
  open_bench(&b, *state, text, sizeof text, s, 4, 4);
  fill(&b, &b.data.train, 0, NULL);
  assert_true(b.doc[0] == 0 && b.doc[3] == 0 && b.doc[4] == 1 && b.doc[5] == 2 && b.doc[15] == 2);
  assert_true(b.pos[3] == 3 && b.pos[4] == 0 && b.pos[5] == 0 && b.pos[15] == 10);
  assert_true(b.doc[SEQ] == 0 && b.pos[SEQ] == 0 && b.labels[2] == 7);
  close_bench(&b);
}

/* More documents in a sample than the input has indexes: a fault, not an index out of range. */
static void test_too_many_documents(void **state) {
  static const rt_setting s[] = {
      {"data.task", "next"}, {"data.eot", "7"}, {"data.task.doc", "doc"}, {"data.task.pos", "pos"}};
  uint8_t text[SEQ * BATCH + 1];
  rt_tensor docs = inputs[2];
  Fault f = {0};
  Bench b;
  memset(text, 50, sizeof text);
  text[SEQ + 3] = text[SEQ + 9] = 7; /* three documents in the second sample */
  open_bench(&b, *state, text, sizeof text, s, 4, 4);
  for (int i = 0; i < b.data.train.nfeeds; i++)
    if (b.data.train.feed[i].role == ROLE_DOC) b.data.train.feed[i].input = &docs;
  docs.of = "Docs", docs.of_size = 3;
  assert_true(rt_data_fill(&b.data, &b.data.train, &b.device, 0, NULL, &f));
  docs.of_size = 2;
  assert_false(rt_data_fill(&b.data, &b.data.train, &b.device, 0, NULL, &f));
  assert_int_equal(f.code, 204);
  assert_string_equal(f.what,
                      "document 2 of a sample is not an index of Docs: input doc takes 0 to 1");
  close_bench(&b);
}

/* One document per sample, cut at Seq (+ 1 for `next`), padded after its end. */
static void test_documents(void **state) {
  static const rt_setting s[] = {{"data.task", "next"},        {"data.eot", "7"},
                                 {"data.pack", "off"},         {"data.pad_id", "1"},
                                 {"data.task.valid", "valid"}, {"data.valid", "50%"}};
  uint8_t text[200];
  size_t n = 0;
  int lengths[] = {4, 1, 30, 2}; /* the one of length 1 has nothing to predict */
  Bench b;
  for (int d = 0; d < 4; d++) {
    for (int i = 0; i + 1 < lengths[d]; i++) text[n++] = (uint8_t)(20 + 40 * d + i);
    text[n++] = EOT;
  }
  text[n++] = 99, text[n++] = 98; /* the last document is not ended */
  open_bench(&b, *state, text, n, s, 6, 6);
  assert_int_equal(b.data.train.samples, 2);
  assert_int_equal(b.data.valid.samples, 2);
  fill(&b, &b.data.train, 0, NULL);
  assert_true(b.tokens[0] == 20 && b.tokens[2] == 22 && b.tokens[3] == EOT && b.tokens[4] == PAD);
  assert_true(b.labels[0] == 21 && b.labels[2] == EOT && b.labels[3] == IGNORE);
  assert_true(b.valid[3] && !b.valid[4] && !b.valid[15]);
  assert_true(b.tokens[SEQ] == 100 && b.tokens[SEQ + 15] == 115 && b.labels[SEQ + 15] == 116);
  fill(&b, &b.data.valid, 0, NULL);
  assert_true(b.tokens[0] == 140 && b.tokens[1] == EOT && b.labels[0] == EOT);
  assert_true(b.tokens[SEQ] == 99 && b.labels[SEQ] == 98 && b.labels[SEQ + 1] == IGNORE);
  close_bench(&b);
}

static void expect_fault(const char *folder, const rt_setting *s, int ns, int ninputs,
                         const char *what) {
  char path[300];
  uint8_t text[100] = {0};
  rt_setting all[8] = {{"data.train", path}, {"data.format", "bytes"}};
  snprintf(path, sizeof path, "%s/tokens", folder);
  write_tokens(path, text, sizeof text);
  memcpy(all + 2, s, sizeof *s * (size_t)ns);
  rt_program p = {.abi = RT_ABI_VERSION,
                  .model = "T",
                  .tensors = inputs,
                  .ntensors = ninputs,
                  .settings = all,
                  .nsettings = 2 + ns};
  DataOptions o = {.shuffle = -1};
  Data d;
  Fault f = {0};
  assert_false(rt_data_open(&d, &p, &o, &f));
  assert_int_equal(f.code, 205);
  assert_non_null(strstr(f.what, what));
  rt_data_close(&d);
}

static void test_faults(void **state) {
  static const rt_setting unknown[] = {{"data.task", "guess"}}, no_mask[] = {{"data.task", "mlm"}},
                          no_end[] = {{"data.pack", "off"}},
                          wrong[] = {{"data.task", "next"},
                                     {"data.task.from", "tokens"},
                                     {"data.task.to", "labels"},
                                     {"data.task.doc", "valid"}};
  expect_fault(*state, unknown, 1, 2, "is unknown");
  expect_fault(*state, no_mask, 1, 2, "no mask token");
  expect_fault(*state, no_end, 1, 2, "where documents end");
  expect_fault(*state, wrong, 4, 6, "type that this task cannot feed");
  expect_fault(*state, wrong, 1, 3, "feeds two inputs");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_masking),
                                     cmocka_unit_test(test_masks_repeat),
                                     cmocka_unit_test(test_doc_and_pos),
                                     cmocka_unit_test(test_documents),
                                     cmocka_unit_test(test_too_many_documents),
                                     cmocka_unit_test(test_faults)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
