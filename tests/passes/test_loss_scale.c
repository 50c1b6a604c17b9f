/* Loss scaling: a step of f16 in the interpreter, which rounds, against the rule written out in
   this file. Every number is a small power of two, so that nothing but an overflow rounds. */
#include "common.h"
#include <math.h>
#include <string.h>

/* loss = sum over N, B of t * (x w): the gradient of w[a, b] is the sum over n of x[n, a] t[n, b]
 */
static const char text[] =
    "shardc-ir 1\nmodel T\nafter lower\ndim Batch = 4\n"
    "set plan.precision = \"f16\"\n%s"
    "param @w : f32[A:2, B:3]\ninput @x : f32[Batch:4, A:2]\ninput @t : f32[Batch:4, B:3]\n"
    "output @loss : f32[]\n"
    "entry @init {\n%%0 = const {value = 1} : f32[]\n%%1 = expand[A, B] %%0 : f32[A:2, B:3]\n"
    "store @w, %%1\n}\n"
    "entry @step {\n%%0 = load @w : f32[A:2, B:3]\n%%1 = load @x : f32[Batch:4, A:2]\n"
    "%%2 = load @t : f32[Batch:4, B:3]\n%%3 = dot[A] %%1, %%0 : f32[Batch:4, B:3]\n"
    "%%4 = mul %%3, %%2 : f32[Batch:4, B:3]\n%%5 = sum[Batch, B] %%4 : f32[]\n"
    "store @loss, %%5\n}\n";

#define SET(key, value) "set " key " = \"" value "\"\n"
#define RATE SET("train.optim.lr", "0.25")
#define SGD SET("train.optim", "sgd") RATE
#define TINY_EPS SET("train.optim.eps", "1e-30")
#define ADAM SET("train.optim", "adamw") RATE SET("train.optim.weight_decay", "0") TINY_EPS

enum { N = 6 };

typedef struct Case {
  Ctx *c;
  Interp *in;
  int step;
} Case;

static Case begin(const char *settings) {
  Case k = {.c = ctx_new()};
  Module *m = module_from(k.c, arena_printf(k.c->arena, text, settings));
  run_until(m, "clean");
  k.in = interp_filled(m, false);
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->kind == GLOBAL_STATE) interp_set_all(k.in, m->globals.at[i]->name, 0);
  must_run(k.in, "init");
  interp_set_all(k.in, "x", 0.5);
  return k;
}

static double state_of(const Case *k, const char *name) { return interp_get(k->in, name)->at[0]; }
static double weight(const Case *k) { return state_of(k, "w"); }

/* One step with gradient 2 t everywhere. */
static void step(Case *k, double t) {
  interp_set_all(k->in, "t", t);
  interp_set(k->in, "step", (double[]){k->step++});
  must_run(k->in, "step");
}

static void expect(const Case *k, double scale, int good, int skipped, double w) {
  assert_true(state_of(k, "scale.of.loss") == scale);
  assert_true(state_of(k, "good.of.loss") == good);
  assert_true(state_of(k, "skipped.of.loss") == skipped);
  assert_true(output_of(k->in, "loss.skipped") == skipped);
  for (int i = 0; i < N; i++) assert_true(interp_get(k->in, "w")->at[i] == w);
}

/* 65536 / 2 is more than f16 holds, 32768 / 2 is not. Steps that are left out change no weight. */
static void halves_and_doubles(void **state) {
  (void)state;
  Case k = begin(SGD SET("plan.precision.init_scale", "262144")
                     SET("plan.precision.growth_interval", "3"));
  expect(&k, 262144, 0, 0, 1);
  double scale = 262144, w = 1;
  for (int i = 1; i <= 3; i++) {
    step(&k, 0.5); /* the gradient of the product is 0.5 scale, that of w 1 scale */
    scale /= 2;
    expect(&k, scale, 0, i, 1);
    assert_true(output_of(k.in, "loss.overflow") == 1);
    assert_true(output_of(k.in, "loss.scale") == 2 * scale);
    assert_true(!isfinite(output_of(k.in, "norm.of.gradients")));
  }
  for (int i = 1; i <= 2; i++) {
    step(&k, 0.5);
    expect(&k, scale, i, 3, w -= 0.25);
    assert_true(output_of(k.in, "loss.overflow") == 0);
    assert_true(fabs(output_of(k.in, "norm.of.gradients") - sqrt(N)) < 1e-6);
  }
  step(&k, 0.5);
  expect(&k, 2 * scale, 0, 3, w -= 0.25);
  step(&k, 0.5); /* once too much again */
  expect(&k, scale, 0, 4, w);
  ctx_free(k.c);
}

/* The first update is the first one that Adam counts: its size is lr, whatever came before. */
static void left_out_steps_are_not_counted(void **state) {
  (void)state;
  Case k = begin(ADAM SET("plan.precision.init_scale", "262144"));
  for (int i = 0; i < 3; i++) step(&k, 0.5);
  expect(&k, 32768, 0, 3, 1);
  assert_true(state_of(&k, "w.m") == 0 && state_of(&k, "w.v") == 0);
  step(&k, 0.5);
  assert_true(fabs(weight(&k) - 0.75) < 1e-6);
  step(&k, 0.5);
  assert_true(fabs(weight(&k) - 0.5) < 1e-6);
  ctx_free(k.c);
}

/* A loss that is not finite, or gradients at the least scale, are no matter of the scale. */
static void faults_change_nothing(void **state) {
  (void)state;
  Case k = begin(SGD SET("plan.precision.init_scale", "8") SET("plan.precision.min_scale", "4"));
  step(&k, INFINITY);
  expect(&k, 8, 0, 0, 1);
  assert_true(output_of(k.in, "loss.overflow") == 0);
  step(&k, 16384);
  expect(&k, 4, 0, 1, 1);
  step(&k, 32768);
  expect(&k, 4, 0, 1, 1);
  assert_true(output_of(k.in, "loss.overflow") == 0);
  assert_true(isfinite(output_of(k.in, "loss")));
  ctx_free(k.c);
}

/* Clipping sees gradients without the scale; micro-batches add up with it. */
static void clipped_and_in_parts(void **state) {
  (void)state;
  static const char *const micro[] = {"", SET("plan.micro", "1"), SET("plan.micro", "2")};
  for (int i = 0; i < 3; i++) {
    Ctx *c = ctx_new();
    Case k = begin(arena_printf(c->arena, "%s%s%s", SGD, SET("train.clip", "1"), micro[i]));
    double want = 1;
    expect(&k, 65536, 0, 0, 1);
    step(&k, 0.25);
    want -= 0.25 / sqrt(N);
    assert_true(fabs(weight(&k) - want * 1) < 2e-6);
    assert_true(fabs(output_of(k.in, "norm.of.gradients") - 0.5 * sqrt(N)) < 1e-6);
    assert_true(state_of(&k, "good.of.loss") == 1);
    ctx_free(k.c), ctx_free(c);
  }
}

/* debug.gradients keeps them as outputs: as they are, not scaled. */
static void gradients_as_outputs(void **state) {
  (void)state;
  Case k = begin(SGD SET("debug.gradients", "on") SET("plan.precision.init_scale", "1024"));
  step(&k, 0.5);
  for (int i = 0; i < N; i++) assert_true(interp_get(k.in, "grad.of.w")->at[i] == 1);
  ctx_free(k.c);
}

/* Only f16 has a scale. */
static void others_have_none(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  char *s = arena_printf(c->arena, text, SGD);
  memcpy(strstr(s, "\"f16\""), "\"f32\"", 5);
  Module *m = module_from(c, s);
  run_until(m, "clean");
  assert_null(module_global(m, intern(c->names, "scale.of.loss")));
  ctx_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(halves_and_doubles),    cmocka_unit_test(left_out_steps_are_not_counted),
      cmocka_unit_test(faults_change_nothing), cmocka_unit_test(clipped_and_in_parts),
      cmocka_unit_test(gradients_as_outputs),  cmocka_unit_test(others_have_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
