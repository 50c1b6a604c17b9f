/* Types on the wire: partial sums of activations travel in the compute type, gradients in that of
   `precision reduce`, statistics in f32; and numbers stay those of one rank. Argument: the folder
   of the models. */
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "check.h"

static const char *folder;

typedef struct Case {
  const char *settings;
  Elem activations, gradients;
} Case;

static const Case cases[] = {
    {"", ELEM_f32, ELEM_f32},
    {"plan.precision=bf16", ELEM_bf16, ELEM_f32},
    {"plan.precision=bf16 plan.precision.reduce=bf16", ELEM_bf16, ELEM_bf16},
    {"plan.precision=bf16 plan.precision.grad=bf16", ELEM_bf16, ELEM_bf16},
    {"plan.precision=bf16 plan.precision.grad=bf16 plan.precision.reduce=f32", ELEM_bf16, ELEM_f32},
    {"plan.precision=f16 plan.precision.reduce=f16", ELEM_f16, ELEM_f16},
    {"plan.precision.reduce=bf16", ELEM_f32, ELEM_bf16},
};
enum { CASES = sizeof cases / sizeof *cases };

static Trial trial_of(Ctx *c, const char *model, int zero, bool seq, const char *settings) {
  Trial t = {.file = arena_printf(c->arena, "%s/%s.shard", folder, model), .steps = 2};
  t.plan = (Plan){.mesh = "data = 2, tensor = 2", .zero = zero, .settings = settings};
  t.plan.micro = settings && strstr(settings, "grad=") ? 0 : 4;
  t.plan.rules =
      arena_printf(c->arena, "place Batch -> data\nplace Heads, Mlp, Vocab -> tensor%s\n",
                   seq ? " else Seq" : "");
  return t;
}

typedef struct Found {
  int activations, gradients, statistics;
} Found;

static bool adds(const Op *o) {
  return (o->code == OP_all_reduce && !attr_get(&o->attrs, ATTR_reduce)) ||
         o->code == OP_reduce_scatter;
}

/* Activations are [Batch, Seq, ..]; the others are sums of a softmax, losses and norms. */
static void check_messages(const Module *m, const Fn *f, const Case *k, Found *found) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (!adds(o)) continue;
    const Type *t = value_type(f, o->in[0]);
    bool gradient = attr_int(&o->attrs, ATTR_gradient, 0),
         wide = t->rank >= 3 && type_find(t, intern(m->ctx->names, "Batch")) >= 0;
    Elem want = gradient ? k->gradients : wide ? k->activations : ELEM_f32;
    int *n = gradient ? &found->gradients : wide ? &found->activations : &found->statistics;
    bool label = !gradient && !wide && t->elem == k->activations; /* one term alone is not 0 */
    if (t->elem != want && !label)
      fail_msg("%s: @%s: %s %s", k->settings, f->name, op_name(o->code), type_text((Module *)m, t));
    ++*n;
  }
}

static void types(void **state) {
  (void)state;
  for (int i = 0; i < CASES * 4; i++) {
    Ctx *c = ctx_new();
    Trial t = trial_of(c, "gpt2_ranks", i % 4, i / CASES % 2, cases[i % CASES].settings);
    Module *m = trial_module(c, &t, "clean");
    Found found = {0};
    assert_non_null(m);
    for (uint32_t k = 0; k < m->fns.n; k++)
      check_messages(m, m->fns.at[k], &cases[i % CASES], &found);
    assert_true(found.activations >= 8 && found.gradients >= 3 && found.statistics >= 2);
    ctx_free(c);
  }
}

/* In doubles a cast changes nothing: what is added, and who gets it, is the same. */
static void numbers(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++) {
    Ctx *c = ctx_new();
    Trial t = trial_of(c, i % 2 ? "gpt2_ranks" : "bert_ranks", i % 4, i % 3 == 0, NULL);
    t.train = cases[i].settings, t.placed = true;
    Outcome o = trial_run(c, &t);
    if (o.error || o.worst > 1e-6)
      fail_msg("%s: %s %g at %s", cases[i].settings, o.error ? o.error : "", o.worst, o.where);
    ctx_free(c);
  }
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  folder = argv[1];
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(types),
      cmocka_unit_test(numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
