/* Five models over data {1, 2, 4} x tensor {1, 2, 4} x `else Seq` {off, on} x accumulation {1, 4}:
   three steps, an evaluation and logits equal one rank; what a block sends is counted exactly.
   Arguments: the folder of the models; `all`: every combination, not a part of them; or the test to
   run alone. */
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "check.h"
#include <stdio.h>

static const char *folder;
static int every; /* one of this number of combinations is tried, different ones for each model */

typedef struct Model {
  const char *file, *rules, *otherwise;
} Model;

static const Model models[] = {
    {"gpt2_ranks", "place Batch -> data\nplace Heads, Mlp, Vocab -> tensor", "Seq"},
    {"llama_ranks", "place Batch -> data\nplace Kv, Mlp, Vocab -> tensor", "Seq"},
    {"bert_ranks", "place Batch -> data\nplace Heads, Mlp, Vocab -> tensor", "Seq"},
    {"mixer_ranks", "place Batch -> data\nplace Places, Wide, Class -> tensor", "Seq"},
    {"sparse_ranks", "place Batch -> data\nplace Heads, Mlp, Vocab -> tensor", "Seq"},
};
enum { MODELS = sizeof models / sizeof *models, BATCH = 16 };

/* Three steps of the model in this file of the folder, by one rank and by the plan. */
static void same_results(Ctx *c, const char *file, Trial *t, const char *what) {
  t->file = arena_printf(c->arena, "%s/%s.shard", folder, file), t->steps = 3;
  Outcome o = trial_run(c, t);
  if (o.error || o.worst > 1e-9)
    fail_msg("%s: %s %g at %s", what, o.error ? o.error : "", o.worst, o.where);
  ctx_free(c);
}

static Outcome trial(Ctx *c, const Model *m, int data, int tensor, bool seq, int rounds,
                     const char *dim) {
  Trial t = {.file = arena_printf(c->arena, "%s/%s.shard", folder, m->file), .steps = 3};
  t.plan.mesh = arena_printf(c->arena, "data = %d, tensor = %d", data, tensor);
  t.plan.rules =
      arena_printf(c->arena, "%s%s%s\n", m->rules, seq ? " else " : "", seq ? m->otherwise : "");
  t.plan.micro = rounds > 1 ? BATCH / data / rounds : 0;
  t.dim = dim;
  return trial_run(c, &t);
}

static void check_model(const Model *m) {
  static const int sizes[] = {1, 2, 4};
  for (int i = (int)(m - models) % every; i < 36; i += every) {
    int data = sizes[i % 3], tensor = sizes[i / 3 % 3], rounds = i / 9 % 2 ? 4 : 1;
    Ctx *c = ctx_new();
    Outcome o = trial(c, m, data, tensor, i / 18, rounds, NULL);
    if (o.error || o.worst > 1e-9)
      fail_msg("%s, data %d, tensor %d, else Seq %d, %d rounds: %s %g at %s", m->file, data, tensor,
               i / 18, rounds, o.error ? o.error : "", o.worst, o.where);
    ctx_free(c);
  }
}

static void gpt2(void **state) { (void)state, check_model(&models[0]); }
static void llama(void **state) { (void)state, check_model(&models[1]); }
static void bert(void **state) { (void)state, check_model(&models[2]); }
static void mixer(void **state) { (void)state, check_model(&models[3]); }
static void sparse(void **state) { (void)state, check_model(&models[4]); }

#define PIPE "place Layers -> pipe\n"
#define DATA "place Batch -> data\n"
#define HEADS "place Heads, Mlp, Vocab -> tensor else Seq\n"
#define KV "place Kv, Mlp, Vocab -> tensor\n"

/* Layers over ranks, combined with the other axes, ZeRO, accumulation and saved values; also in
   bytes. */
static void stages(void **state) {
  static const struct {
    const char *file, *schedule, *mesh, *rules, *recompute;
    int zero, micro;
  } plans[] = {
      {"gpt2_ranks", "sequential", "pipe = 2", PIPE, NULL, 0, 0},
      {"gpt2_ranks", "sequential", "pipe = 2", "place Layers, Vocab -> pipe\n", "h keep = input", 0,
       4},
      {"llama_ranks", "sequential", "data = 2, pipe = 2", PIPE DATA, NULL, 3, 4},
      {"bert_ranks", "sequential", "data = 2, pipe = 2", PIPE DATA, NULL, 2, 4},
      {"gpt2_ranks", "sequential", "tensor = 2, data = 2, pipe = 2", PIPE DATA HEADS, NULL, 1, 2},
      {"gpt2_ranks", "gpipe", "pipe = 2", PIPE, NULL, 0, 16},
      {"gpt2_ranks", "gpipe", "pipe = 2", PIPE, "h keep = input", 0, 2},
      {"llama_ranks", "gpipe", "data = 2, pipe = 2", PIPE DATA, NULL, 3, 4},
      {"bert_ranks", "gpipe", "data = 2, pipe = 2", PIPE DATA, NULL, 2, 4},
      {"gpt2_ranks", "gpipe", "tensor = 2, data = 2, pipe = 2", PIPE DATA HEADS, NULL, 1, 2},
      {"llama_ranks", "gpipe", "tensor = 2, data = 2, pipe = 2", PIPE DATA KV,
       "layers keep = input", 3, 1},
      {"gpt2_ranks", "one_f_one_b", "pipe = 2", PIPE, NULL, 0, 16},
      {"gpt2_ranks", "one_f_one_b", "pipe = 2", PIPE, "h keep = input", 0, 2},
      {"llama_ranks", "one_f_one_b", "data = 2, pipe = 2", PIPE DATA, NULL, 3, 2},
      {"bert_ranks", "one_f_one_b", "data = 2, pipe = 2", PIPE DATA, NULL, 2, 1},
      {"gpt2_ranks", "one_f_one_b", "tensor = 2, data = 2, pipe = 2", PIPE DATA HEADS, NULL, 1, 2},
      {"llama_ranks", "one_f_one_b", "tensor = 2, data = 2, pipe = 2", PIPE DATA KV,
       "layers keep = input", 3, 1},
      {"llama_ranks", "one_f_one_b", "data = 2, pipe = 2", PIPE DATA, "layers keep = input", 3, 1},
      {"gpt2_ranks", "zero_bubble", "pipe = 2", PIPE, NULL, 0, 16},
      {"gpt2_ranks", "zero_bubble", "pipe = 2", PIPE, "h keep = input", 0, 2},
      {"llama_ranks", "zero_bubble", "data = 2, pipe = 2", PIPE DATA, NULL, 3, 2},
      {"bert_ranks", "zero_bubble", "data = 2, pipe = 2", PIPE DATA, NULL, 2, 1},
      {"gpt2_ranks", "zero_bubble", "tensor = 2, data = 2, pipe = 2", PIPE DATA HEADS, NULL, 1, 2},
      {"llama_ranks", "zero_bubble", "tensor = 2, data = 2, pipe = 2", PIPE DATA KV,
       "layers keep = input", 3, 1},
      {"tied_ranks", "interleaved", "pipe = 2", PIPE, NULL, 0, 16},
      {"tied_ranks", "interleaved", "pipe = 2", PIPE, "h keep = input", 0, 2},
      {"deep_ranks", "interleaved", "data = 2, pipe = 2", PIPE DATA, NULL, 3, 2},
      {"deep_ranks", "interleaved", "data = 2, pipe = 2", PIPE DATA, NULL, 2, 1},
      {"deep_ranks", "interleaved", "data = 2, pipe = 2", PIPE DATA, "layers.* keep = input", 2, 2},
      {"normless_ranks", "gpipe", "pipe = 4", PIPE, NULL, 0, 4},
      {"normless_ranks", "one_f_one_b", "pipe = 4", PIPE, NULL, 0, 4},
      {"normless_ranks", "zero_bubble", "data = 2, pipe = 4", PIPE DATA, NULL, 1, 2},
      {"normless_ranks", "one_f_one_b", "data = 2, pipe = 4", PIPE DATA, NULL, 1, 2},
      {"normless_ranks", "interleaved", "data = 2, pipe = 2", PIPE DATA, NULL, 1, 2},
      {"normless_ranks", "interleaved", "tensor = 2, data = 2, pipe = 2", PIPE DATA HEADS, NULL, 1,
       2},
      {"tied_ranks", "interleaved", "tensor = 2, data = 2, pipe = 2", PIPE DATA HEADS, NULL, 1, 2},
  };
  (void)state;
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    Ctx *c = ctx_new();
    Trial t = {.placed = i % 2};
    t.plan = (Plan){.mesh = plans[i].mesh, .rules = plans[i].rules, .zero = plans[i].zero};
    t.plan.recompute = plans[i].recompute, t.plan.micro = plans[i].micro;
    t.plan.settings = arena_printf(c->arena, "plan.pipeline=%s", plans[i].schedule);
    same_results(c, plans[i].file, &t, arena_printf(c->arena, "plan %zu", i));
  }
}

/* Blocks are no terms of a partial sum. */
static void terms_of_gradients(void **state) {
  static const char *const rules[] = {"place Heads -> t\n", "place Batch -> t\n",
                                      "place Heads, Batch -> t\n", "place Out -> t\n"};
  (void)state;
  for (int i = 0; i < 8; i++) {
    Ctx *c = ctx_new();
    Trial t = {.plan = {.mesh = "t = 2", .rules = rules[i / 2], .zero = i % 2 * 3}};
    same_results(c, "merged_ranks", &t,
                 arena_printf(c->arena, "%s, zero %d", rules[i / 2], i % 2 * 3));
  }
}

/* Every result of an op that works on the logical part is padded along all of its dims. */
static void padded_gradients_of_attention(void **state) {
  static const char *const rules[] = {"place Keys, Feat, Rows -> t\n", "place Feat, Keys -> t\n"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    Ctx *c = ctx_new();
    Trial t = {.plan = {.mesh = "t = 2", .rules = rules[i]}};
    same_results(c, "cross_ranks", &t, rules[i]);
  }
}

/* ---- volumes ---- */

static int64_t all_sent(const Outcome *o, int axis) {
  int64_t n = 0;
  for (int c = 0; c < OP_COUNT; c++) n += o->sent[axis][c];
  return n;
}

/* Per block and step: 8 zb, 10 zb with `else Seq`, zb = samples of a rank x Seq x Embed. Beside
   that each block's place in the norms of parameters that are cut, or in gradients that are
   partial. */
static void sent_per_block(void **state) {
  (void)state;
  static const struct {
    int model, norms, partial; /* cut parameters of a block; elements of whole ones */
  } cases[] = {{0, 6, 6 * 16}, {1, 7, 2 * 16}, {2, 10, 6 * 16}};
  for (int i = 0; i < 12; i++) {
    int seq = i % 2, tensor = i / 2 % 2 ? 4 : 2, k = i / 4, data = 2;
    int64_t zb = BATCH / data * 8 * 16, sent[2];
    for (int layers = 0; layers < 2; layers++) {
      Ctx *c = ctx_new();
      Outcome o =
          trial(c, &models[cases[k].model], data, tensor, seq, 1, layers ? "Layers=3" : "Layers=2");
      if (o.error) fail_msg("%s", o.error);
      sent[layers] = all_sent(&o, 1);
      ctx_free(c);
    }
    int64_t small = 2 * cases[k].norms + (seq ? 2 * cases[k].partial : 0);
    int64_t want = 3 * ((seq ? 10 : 8) * zb + small);
    if (sent[1] - sent[0] != want)
      fail_msg("%s, tensor %d, else Seq %d: %lld elements per block, expected %lld (zb %lld)",
               models[cases[k].model].file, tensor, seq, (long long)(sent[1] - sent[0]),
               (long long)want, (long long)zb);
  }
}

/* ---- kept values split over an axis ---- */

static Outcome kept(Ctx *c, const Model *m, Plan plan, const char *stack, const char *over) {
  Trial t = {.file = arena_printf(c->arena, "%s/%s.shard", folder, m->file), .steps = 3};
  t.plan = plan;
  t.plan.recompute = arena_printf(c->arena, "%s keep = input%s", stack, over);
  t.placed = plan.zero == 3;
  return trial_run(c, &t);
}

/* Elements of a layer's input, of a sample. */
static int64_t input_of(const Model *m) { return m == &models[3] ? 6 * 16 : 8 * 16; }

/* Layers that keep their input send 10 zb: the attention's sum once more. Split, they send one
   all-gather of the input more, and nothing else; where the axis cuts it already, nothing. */
static void split_inputs(void **state) {
  static const char *const stacks[] = {"h", "layers", "encoder", "h"};
  (void)state;
  for (int i = 0; i < 16; i++) {
    const Model *m = &models[i % 4];
    bool seq = i / 4 == 1, parts = i / 4 == 2;
    int tensor = i / 4 == 3 ? 4 : 2, layers = 2;
    Ctx *c = ctx_new();
    Plan p = {.zero = i / 4, .micro = parts ? 2 : 0};
    p.mesh = arena_printf(c->arena, "data = 2, tensor = %d", tensor);
    p.rules = arena_printf(c->arena, "%s%s\n", m->rules, seq ? " else Seq" : "");
    Outcome whole = kept(c, m, p, stacks[i % 4], ""),
            split = kept(c, m, p, stacks[i % 4], " over tensor");
    if (whole.error || split.error || split.worst > 1e-9)
      fail_msg("%s, %d: %s %g at %s", m->file, i, split.error ? split.error : "", split.worst,
               split.where);
    int64_t more = split.sent[1][OP_all_gather] - whole.sent[1][OP_all_gather];
    int64_t want = seq ? 0 : 3 * layers * BATCH / 2 * input_of(m);
    assert_int_equal(more, want);
    assert_int_equal(all_sent(&split, 1) - all_sent(&whole, 1), more);
    ctx_free(c);
  }
}

/* Gradients over data: twice the parameters once per step, whatever the accumulation. */
static void sent_over_data(void **state) {
  (void)state;
  int64_t sent[2];
  for (int i = 0; i < 2; i++) {
    Ctx *c = ctx_new();
    Outcome o = trial(c, &models[0], 4, 1, false, i ? 4 : 1, NULL);
    if (o.error) fail_msg("%s", o.error);
    sent[i] = all_sent(&o, 0);
    int64_t parameters = 0;
    for (uint32_t g = 0; g < o.m->globals.n; g++)
      if (o.m->globals.at[g]->kind == GLOBAL_PARAM && !o.m->globals.at[g]->within)
        parameters += type_count(&o.m->globals.at[g]->type);
    assert_int_equal(sent[i], 3 * 2 * (parameters + 1)); /* and the loss */
    ctx_free(c);
  }
  assert_int_equal(sent[0], sent[1]);
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  folder = argv[1], every = argc > 2 && !strcmp(argv[2], "all") ? 1 : 5;
  if (argc > 2 && every > 1) cmocka_set_test_filter(argv[2]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt2),
      cmocka_unit_test(llama),
      cmocka_unit_test(bert),
      cmocka_unit_test(mixer),
      cmocka_unit_test(sparse),
      cmocka_unit_test(stages),
      cmocka_unit_test(terms_of_gradients),
      cmocka_unit_test(padded_gradients_of_attention),
      cmocka_unit_test(sent_per_block),
      cmocka_unit_test(split_inputs),
      cmocka_unit_test(sent_over_data),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
