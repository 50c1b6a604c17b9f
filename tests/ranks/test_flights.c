/* Messages in flight (pass prefetch): models under every stage of ZeRO with gathers ahead and
   messages concurrent with the computation equal one rank, and give, in bytes, the bits of the
   interpreter that does every collective at once, whether they arrive as late or as early as they
   can. The IR must contain the messages in flight that a plan asks for. Argument: the folder of the
   models. */
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "check.h"
#include "ir/schedule/flight.h"

static const char *folder;

typedef struct Flown { /* collectives by how they fly */
  int here, ahead, late, chained;
} Flown;

static Flown count(const Module *m) {
  Flown n = {0};
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      int64_t rounds = attr_int(&o->attrs, ATTR_flight, 0);
      n.here += op_flies(o) && !rounds, n.ahead += rounds<0, n.late += rounds> 0;
      n.chained += flight_before(m->fns.at[i], o) != NULL;
    }
  return n;
}

static Flown fly_with(const char *model, Plan plan, const char *dim) {
  Ctx *c = ctx_new();
  Trial t = {
      .file = arena_printf(c->arena, "%s/%s.shard", folder, model), .steps = 2, .plan = plan};
  t.placed = true, t.dim = dim;
  Outcome o = trial_run(c, &t);
  if (o.error || o.worst > 1e-6)
    fail_msg("%s, %s, zero %d, %s: %s %g at %s", model, plan.mesh, plan.zero, plan.settings,
             o.error ? o.error : "", o.worst, o.where);
  Flown n = count(o.m);
  ctx_free(c);
  return n;
}

static Flown fly(const char *model, Plan plan) { return fly_with(model, plan, NULL); }

#define RULES "place Batch -> data\nplace Heads, Mlp, Vocab -> tensor\n"
#define BOTH "plan.zero.prefetch=1 plan.zero.overlap=on"

static void stages(void **state) {
  (void)state;
  for (int zero = 0; zero < 4; zero++)
    for (int parts = zero == 2; parts < (zero < 2 ? 1 : 2); parts++) {
      Plan p = {.mesh = "data = 2, tensor = 2", .rules = RULES, .zero = zero, .settings = BOTH};
      p.micro = parts ? 4 : 0;
      Flown n = fly("gpt2_ranks", p);
      assert_true(n.here > 0);
      assert_int_equal(n.ahead > 0, zero == 3 || (zero && !parts));
      if (zero == 3 && !parts) assert_true(n.late > 0);
    }
}

/* Stages 1 and 2 of ZeRO, and stage 3 with keep_gathered, gather layers in the forward, once a
   step. */
static void in_the_forward(void **state) {
  (void)state;
  static const struct {
    const char *model, *mesh, *rules, *recompute, *settings;
  } rows[] = {
      {"bert_ranks", "data = 4", "place Batch -> data\n", "", ""},
      {"gpt2_ranks", "data = 2, tensor = 2", RULES, "", "plan.precision=bf16 "},
      {"llama_ranks", "data = 2, node = 2", "place Batch -> node, data\n", "",
       "plan.zero.over=data "},
      {"gpt2_ranks", "data = 2", "place Batch -> data\n", "h[0..1] keep = input", ""},
  };
  for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++)
    for (int zero = 1; zero < 4; zero++) {
      char settings[160];
      snprintf(settings, sizeof settings, "%s%s" BOTH, rows[i].settings,
               zero < 3 ? "" : "plan.zero.keep_gathered=on ");
      Plan p = {.mesh = rows[i].mesh,
                .rules = rows[i].rules,
                .zero = zero,
                .settings = settings,
                .recompute = *rows[i].recompute ? rows[i].recompute : NULL};
      Flown n = fly_with(rows[i].model, p, *rows[i].recompute ? "Layers=4" : NULL);
      assert_true(n.ahead > 0);
    }
}

static void depths(void **state) {
  (void)state;
  static const char *const settings[] = {"plan.zero.prefetch=1", "plan.zero.prefetch=2",
                                         "plan.zero.overlap=on",
                                         "plan.zero.prefetch=9 plan.zero.overlap=on"};
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    Plan p = {
        .mesh = "data = 4", .rules = "place Batch -> data\n", .zero = 3, .settings = settings[i]};
    Flown n = fly("bert_ranks", p);
    assert_int_equal(n.ahead > 0, i != 2);
    assert_int_equal(n.late > 0, i >= 2);
  }
}

/* Weighed by figures of a machine, and by bytes: what flies differs, the numbers do not. */
static void weighed(void **state) {
  (void)state;
  static const struct {
    const char *settings;
    bool ahead;
  } rows[] = {{"machine.node.f32=1e9 machine.link.intra=1e9 ", true},
              {"machine.node.f32=1e40 machine.link.intra=1e9 ", false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char settings[160];
    snprintf(settings, sizeof settings, "%s" BOTH, rows[i].settings);
    Plan p = {
        .mesh = "data = 2", .rules = "place Batch -> data\n", .zero = 3, .settings = settings};
    Flown n = fly("gpt2_ranks", p);
    assert_int_equal(n.ahead > 0, rows[i].ahead);
    assert_int_equal(n.late > 0, rows[i].ahead);
  }
}

/* Layers that keep different things are loops of their own, over parts of one stack. */
static void segments(void **state) {
  (void)state;
  Plan p = {.mesh = "data = 2", .rules = "place Batch -> data\n", .zero = 3, .settings = BOTH};
  p.recompute = "h[0..1] keep = input";
  Flown n = fly_with("gpt2_ranks", p, "Layers=4");
  assert_true(n.ahead > 0 && n.late > 0);
}

static void buckets(void **state) {
  (void)state;
  Plan p = {.mesh = "data = 2", .rules = "place Batch -> data\n", .zero = 3};
  p.settings = BOTH " plan.zero.bucket=1500";
  Flown n = fly("llama_ranks", p);
  assert_true(n.ahead > 0 && n.late > 0);
}

/* Shards of one axis, replicas over the other: what is scattered is sent on, layer by layer. */
static void hybrid(void **state) {
  (void)state;
  static const char *const rules[] = {"place Batch -> node, data\n", "place Batch -> data, node\n"};
  static const char *const over[] = {"data", "node", "data,node"};
  for (int k = 0; k < 6; k++) {
    Plan p = {.mesh = "data = 2, node = 2", .rules = rules[k % 2], .zero = 3 - (k == 1)};
    char settings[128];
    snprintf(settings, sizeof settings, BOTH " plan.zero.over=%s", over[k / 2]);
    p.settings = settings;
    Flown n = fly(k == 4 ? "bert_ranks" : "gpt2_ranks", p);
    assert_true(n.chained > 0 && n.late >= 2 * n.chained);
  }
}

/* The last stage gathers what its layers leave for the head, in turn with them: not an iteration
   ahead, when they do not exist. */
static void in_turns(void **state) {
  (void)state;
  static const char *const schedules[] = {"one_f_one_b", "zero_bubble", "interleaved", "gpipe"};
  for (int i = 0; i < 4; i++) {
    Plan p = {.mesh = "tensor = 2, data = 2, pipe = 2", .micro = 1, .zero = 3};
    p.rules = "place Layers -> pipe\nplace Batch -> data\nplace Wide, Out -> tensor else Embed\n";
    char settings[160];
    snprintf(settings, sizeof settings,
             BOTH " plan.zero.over=data plan.zero.accumulate=full plan.pipeline=%s", schedules[i]);
    p.settings = settings;
    Flown n = fly_with("pipe_untied", p, "Layers=8");
    assert_true(n.ahead > 0);
  }
}

/* Without the words nothing flies. */
static void off(void **state) {
  (void)state;
  Plan p = {.mesh = "data = 2", .rules = "place Batch -> data\n", .zero = 3};
  p.settings = "plan.zero.prefetch=0 plan.zero.overlap=off";
  Flown n = fly("gpt2_ranks", p);
  assert_true(!n.here && !n.ahead && !n.late);
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  folder = argv[1];
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stages),   cmocka_unit_test(depths),  cmocka_unit_test(segments),
      cmocka_unit_test(buckets),  cmocka_unit_test(weighed), cmocka_unit_test(hybrid),
      cmocka_unit_test(in_turns), cmocka_unit_test(off),     cmocka_unit_test(in_the_forward)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
