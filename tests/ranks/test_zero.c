/* ZeRO stages 0 to 3 over data {1, 2, 4} x tensor {1, 2, 4} x `else Seq` {off, on} x accumulation
   {1, 4}: three steps, an evaluation and logits equal one rank; stages that add in the same order
   give the same bits; what is sent is 2, 2, M + 1 and M (2 + 1) times the parameters. Arguments:
   the folder of the models; `all`: every combination, not a part of them; or the name of one test.
   */
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "check.h"
#include "ir/shape/placement.h"
#include <stdio.h>

static const char *folder;
static int every; /* one of this number of combinations is tried */

typedef struct Model {
  const char *file, *rules;
} Model;

static const Model models[] = {
    {"gpt2_ranks", "place Batch -> data\nplace Heads, Mlp, Vocab -> tensor"},
    {"llama_ranks", "place Batch -> data\nplace Kv, Mlp, Vocab -> tensor"},
    {"bert_ranks", "place Batch -> data\nplace Heads, Mlp, Vocab -> tensor"},
    {"mixer_ranks", "place Batch -> data\nplace Places, Wide, Class -> tensor"},
    {"padded_ranks", "place Batch -> data\nplace Heads, Mlp, Vocab -> tensor"},
};
enum { BATCH = 16, COMBINATIONS = 4 * 36 };

typedef struct Case {
  int zero, data, tensor, rounds;
  bool seq;
  const char *settings;
} Case;

static Outcome run(Ctx *c, const Model *m, Case k) {
  Trial t = {.file = arena_printf(c->arena, "%s/%s.shard", folder, m->file), .steps = 3};
  t.plan.mesh = arena_printf(c->arena, "data = %d, tensor = %d", k.data, k.tensor);
  t.plan.rules = arena_printf(c->arena, "%s%s\n", m->rules, k.seq ? " else Seq" : "");
  t.plan.micro = k.rounds > 1 ? BATCH / k.data / k.rounds : 0;
  t.plan.zero = k.zero, t.plan.settings = k.settings;
  return trial_run(c, &t);
}

static Case combination(int i) {
  static const int sizes[] = {1, 2, 4};
  return (Case){.zero = i % 4,
                .data = sizes[i / 4 % 3],
                .tensor = sizes[i / 12 % 3],
                .rounds = i / 36 % 2 ? 4 : 1,
                .seq = i / 72,
                .settings = i % 5 ? "plan.zero.bucket=1500" : NULL};
}

static void check_model(const Model *m, int first) {
  for (int i = first % every; i < COMBINATIONS; i += every) {
    Ctx *c = ctx_new();
    Case k = combination(i);
    Outcome o = run(c, m, k);
    if (o.error || o.worst > 1e-6)
      fail_msg("%s, zero %d, data %d, tensor %d, else Seq %d, %d rounds: %s %g at %s", m->file,
               k.zero, k.data, k.tensor, k.seq, k.rounds, o.error ? o.error : "", o.worst, o.where);
    ctx_free(c);
  }
}

static void gpt2(void **state) { (void)state, check_model(&models[0], 0); }
static void llama(void **state) { (void)state, check_model(&models[1], 3); }
static void bert(void **state) { (void)state, check_model(&models[2], 5); }
static void mixer(void **state) { (void)state, check_model(&models[3], 6); }

static void padded(void **state) { (void)state, check_model(&models[4], 2); }

static void precision(void **state) {
  (void)state;
  for (int i = 0; i < 8; i++) {
    Ctx *c = ctx_new();
    Case k = {.zero = i % 4,
              .data = 2,
              .tensor = 2,
              .rounds = i / 4 ? 4 : 1,
              .settings = "plan.precision=bf16"};
    Outcome o = run(c, &models[i % 2], k);
    if (o.error || o.worst > 1e-6)
      fail_msg("zero %d in bf16: %s %g at %s", k.zero, o.error ? o.error : "", o.worst, o.where);
    ctx_free(c);
  }
}

/* Batch over two axes: partitioned over one and replicated over the other, or over both; small
   parameters that stay whole, all gathered once per step. */
static void hybrid(void **state) {
  (void)state;
  static const char *const settings[] = {
      "plan.zero.over=data",
      "plan.zero.over=node plan.zero.bucket=1500",
      NULL,
      "plan.zero.persist=64 plan.zero.over=data",
      "plan.zero.keep_gathered=on plan.zero.bucket=1500",
      "plan.zero.keep_root=off",
      "plan.precision=bf16 plan.zero.persist=64",
      "plan.precision=bf16 plan.zero.keep_gathered=on",
  };
  enum { SETTINGS = sizeof settings / sizeof *settings };
  for (int i = 0; i<4 * SETTINGS; i += every> 1 ? 3 : 1) {
    Ctx *c = ctx_new();
    Trial t = {.file = arena_printf(c->arena, "%s/%s.shard", folder, models[i % 4].file)};
    bool tensor = i / SETTINGS % 2, seq = tensor && i % 2;
    t.plan.mesh = tensor ? "data = 2, node = 2, tensor = 2" : "data = 2, node = 2";
    t.plan.rules =
        arena_printf(c->arena, "place Batch -> node, data\n%s%s\n",
                     tensor ? strchr(models[i % 4].rules, '\n') + 1 : "", seq ? " else Seq" : "");
    t.steps = 3, t.plan.micro = i % 3 ? 2 : 0;
    t.plan.zero = i % SETTINGS == 2 ? i / SETTINGS % 4 : 3;
    t.plan.settings = settings[i % SETTINGS];
    Outcome o = trial_run(c, &t);
    if (o.error || o.worst > 1e-6)
      fail_msg("%s, %s, %s, zero %d, micro %lld: %s %g at %s", t.file, t.plan.rules,
               t.plan.settings ? t.plan.settings : "", t.plan.zero, (long long)t.plan.micro,
               o.error ? o.error : "", o.worst, o.where);
    ctx_free(c);
  }
}

/* Every parameter is in a group, though a part of its gradient is no sum over ranks. */
static void all_within(const Module *m) {
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    bool group = !strncmp(g->name, "zero.of.", 8);
    if (g->kind == GLOBAL_PARAM && !group && !g->within) fail_msg("%s is in no group", g->name);
  }
}

static void penalty(void **state) {
  (void)state;
  for (int i = 0; i < 16; i++) {
    Ctx *c = ctx_new();
    Trial t = {.file = arena_printf(c->arena, "%s/penalty_ranks.shard", folder), .steps = 3};
    t.plan.mesh = i % 3 ? "data = 2" : "data = 2, node = 2";
    t.plan.rules = i % 3 ? "place Batch -> data\n" : "place Batch -> node, data\n";
    t.plan.zero = i % 4, t.plan.micro = i / 4 % 2 ? 1 : 0;
    t.plan.settings = i / 8 ? "plan.zero.bucket=1500" : "plan.zero.over=data";
    t.train = i % 5 ? NULL : "train.optim=sgd";
    Outcome o = trial_run(c, &t);
    if (o.error || o.worst > 1e-6)
      fail_msg("zero %d, micro %lld, %s: %s %g at %s", t.plan.zero, (long long)t.plan.micro,
               t.plan.mesh, o.error ? o.error : "", o.worst, o.where);
    all_within(o.m);
    ctx_free(c);
  }
}

/* Norms of parameters: stages 0 to 3, of the flat parts of each. */
static void lamb(void **state) {
  (void)state;
  static const char *const settings[] = {NULL, "plan.zero.bucket=1500", "plan.zero.over=data",
                                         "plan.precision=bf16", "plan.zero.persist=64"};
  for (int i = 0; i<40; i += every> 1 ? 3 : 1) {
    Ctx *c = ctx_new();
    const Model *m = &models[i % 5];
    Trial t = {.file = arena_printf(c->arena, "%s/%s.shard", folder, m->file), .steps = 3};
    bool tensor = i / 4 % 2, seq = i / 8 % 2;
    t.plan.mesh = tensor ? "data = 4, tensor = 2" : "data = 2, node = 2";
    t.plan.rules = tensor ? arena_printf(c->arena, "%s%s\n", m->rules, seq ? " else Seq" : "")
                          : "place Batch -> node, data\n";
    t.plan.micro = i % 3 ? 2 : 0, t.plan.zero = i % 4, t.plan.settings = settings[i / 4 % 5];
    t.train = "train.optim=lamb train.optim.weight_decay=0.05", t.rate = "0.02";
    Outcome o = trial_run(c, &t);
    if (o.error || o.worst > 1e-6)
      fail_msg("%s, %s, zero %d, micro %lld, %s: %s %g at %s", t.file, t.plan.mesh, t.plan.zero,
               (long long)t.plan.micro, t.plan.settings ? t.plan.settings : "",
               o.error ? o.error : "", o.worst, o.where);
    ctx_free(c);
  }
}

/* ---- volumes ---- */

/* Elements of parameters as they are laid out, padding included: of all, and outside of stacks. */
static int64_t laid_out(const Module *m, int data) {
  int64_t n = 0;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    bool shard = !g->within && g->kind == GLOBAL_PARAM && !placement_is_whole(&g->placed);
    if (g->kind == GLOBAL_PARAM && !g->within) n += type_count(&g->type) * (shard ? data : 1);
  }
  return n;
}

static int64_t norms(const Module *m, int data) { /* one number per round, bucket and owner */
  int64_t n = 0;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    if (g->kind != GLOBAL_PARAM || g->within) continue;
    n += (g->type.rank && strcmp(g->type.axis[0].dim, "Layers") == 0 ? g->type.axis[0].size : 1) *
         data;
  }
  return n;
}

/* The position table is longer than Seq: its gradient is computed after the loop over
   micro-batches, and is sent once. */
static int64_t sent_late(const Module *m, int data) {
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *w = m->globals.at[i]->within;
    if (w && !strcmp(m->globals.at[i]->name, "wpe"))
      return type_count(&w->type) * (placement_is_whole(&w->placed) ? 1 : data);
  }
  return 0;
}

static void volume(int zero, int rounds, int64_t times_sum, int64_t times_gather) {
  Ctx *c = ctx_new();
  Case k = {.zero = zero, .data = 4, .tensor = 1, .rounds = rounds};
  Outcome o = run(c, &models[0], k);
  if (o.error) fail_msg("%s", o.error);
  int64_t all = laid_out(o.m, 4), small = zero ? norms(o.m, 4) : 0;
  int64_t reduced = o.sent[0][OP_all_reduce] - 3 * 2; /* in addition to the loss */
  int64_t sum = o.sent[0][OP_reduce_scatter] + (zero ? 0 : reduced);
  int64_t late = zero >= 2 ? (times_sum - 1) * sent_late(o.m, 4) : 0;
  assert_int_equal(sum, 3 * (times_sum * all - late));
  if (times_gather >= 0) assert_int_equal(o.sent[0][OP_all_gather], 3 * times_gather * all);
  if (zero) assert_int_equal(reduced, 3 * 2 * small);
  ctx_free(c);
}

static void sent_by_stage(void **state) {
  (void)state;
  volume(0, 1, 2, 0), volume(0, 4, 2, 0);
  volume(1, 1, 1, 1), volume(1, 4, 1, 1);
  volume(2, 1, 1, 1), volume(2, 4, 4, 1);
  volume(3, 1, 1, -1), volume(3, 4, 4, -1);
}

/* The parameters outside of the stack are partitioned over two ranks, those of the stack over four:
   128 bytes are 64 per rank of the first group alone. */
static void small_buckets(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    bool large;
  } cases[] = {{"64", false}, {"128", false}, {"255", false}, {"256", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Ctx *c = ctx_new();
    const char *settings =
        arena_printf(c->arena, "plan.zero.over=data,tensor plan.zero.bucket=%s", cases[i].bytes);
    Case k = {.zero = 2, .data = 2, .tensor = 2, .seq = true, .settings = settings};
    Outcome o = run(c, &models[0], k);
    if (cases[i].large) assert_null(o.error);
    else assert_non_null(strstr(o.error ? o.error : "", "64 per rank, i.e. 256"));
    ctx_free(c);
  }
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  if (argc > 2 && strcmp(argv[2], "all")) cmocka_set_test_filter(argv[2]);
  folder = argv[1], every = argc > 2 && !strcmp(argv[2], "all") ? 1 : 11;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt2),    cmocka_unit_test(llama),         cmocka_unit_test(bert),
      cmocka_unit_test(mixer),   cmocka_unit_test(padded),        cmocka_unit_test(precision),
      cmocka_unit_test(hybrid),  cmocka_unit_test(lamb),          cmocka_unit_test(sent_by_stage),
      cmocka_unit_test(penalty), cmocka_unit_test(small_buckets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
