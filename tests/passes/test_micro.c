/* micro: a batch in parts gives the loss, gradients and updates of the whole batch; what may not be
 * cut is refused. */
#include "common.h"
#include <string.h>

#define SET(key, value) "set " key " = \"" value "\"\n"
#define HEAD "shardc-ir 1\nmodel T\nafter lower\n"

/* Embedding, two layers with dropout, a loss over the positions that count, tied weights; a stored
 * value per sample. */
static const char model[] =
    HEAD SET("train.optim", "sgd") SET("train.optim.lr", "0.1") SET("train.clip", "0.5")
        SET("debug.gradients",
            "on") "%s" /* plan.micro */
                  "param @wte : f32[Vocab:5, Embed:4] {decay}\nparam @h.*.w : f32[Layers:2, "
                  "Embed:4, Out:4] {decay}\nparam @g : f32[Embed:4]\n"
                  "input @tokens : i32[Batch:6, Seq:3] of Vocab\ninput @targets : i32[Batch:6, "
                  "Seq:3] of Vocab\n"
                  "output @loss : f32[]\noutput @each : f32[Batch:6]\noutput @eval.loss : "
                  "f32[]\nscalar @seed : i64[]\nscalar @step : i32[]\n"
                  "body @h(%%0 : i32[], %%1 : f32[Batch:6, Seq:3, Embed:4], %%2 : f32[Embed:4], "
                  "%%3 : i64[], %%4 : i32[], %%5 : f32[Embed:4, Out:4]) {\n"
                  "%%6 = mul %%1, %%2 : f32[Batch:6, Seq:3, Embed:4]\n%%7 = dot[Embed] %%6, %%5 : "
                  "f32[Batch:6, Seq:3, Out:4]\n"
                  "%%8 = tanh %%7 : f32[Batch:6, Seq:3, Out:4]\n%%9 = rename[Out -> Embed] %%8 : "
                  "f32[Batch:6, Seq:3, Embed:4]\n"
                  "%%10 = const {value = 72} : i32[]\n%%11 = mul %%0, %%10 : i32[]\n"
                  "%%12 = rand[Batch, Seq, Embed] %%3, %%4, %%11 {key = 77, strides = [12, 4, 1]} "
                  ": f32[Batch:6, Seq:3, Embed:4]\n"
                  "%%13 = const {value = 0.25} : f32[]\n%%14 = lt %%12, %%13 : bool[Batch:6, "
                  "Seq:3, Embed:4]\n%%15 = const {value = 0} : f32[]\n"
                  "%%16 = where %%14, %%15, %%9 : f32[Batch:6, Seq:3, Embed:4]\n%%17 = add %%1, "
                  "%%16 : f32[Batch:6, Seq:3, Embed:4]\nreturn %%17\n}\n"
                  "body @forward(%%0 : i32[Batch:6, Seq:3], %%1 : i32[Batch:6, Seq:3], %%2 : "
                  "f32[Vocab:5, Embed:4], %%3 : f32[Layers:2, Embed:4, Out:4], "
                  "%%4 : f32[Embed:4], %%5 : i64[], %%6 : i32[]) {\n"
                  "%%7 = gather[Vocab] %%2, %%0 : f32[Batch:6, Seq:3, Embed:4]\n"
                  "%%8 = loop[Layers] @h, %%7, %%4, %%5, %%6, %%3 {carry = 1, invariant = 3, trip "
                  "= 2} : f32[Batch:6, Seq:3, Embed:4]\n"
                  "%%9 = dot[Embed] %%8, %%2 : f32[Batch:6, Seq:3, Vocab:5]\n%%10 = exp %%9 : "
                  "f32[Batch:6, Seq:3, Vocab:5]\n"
                  "%%11 = sum[Vocab] %%10 : f32[Batch:6, Seq:3]\n%%12 = log %%11 : f32[Batch:6, "
                  "Seq:3]\n"
                  "%%13 = gather[Vocab] %%9, %%1 : f32[Batch:6, Seq:3]\n%%14 = sub %%12, %%13 : "
                  "f32[Batch:6, Seq:3]\n"
                  "%%15 = const {value = 1} : i32[]\n%%16 = eq %%1, %%15 : bool[Batch:6, "
                  "Seq:3]\n%%17 = not %%16 : bool[Batch:6, Seq:3]\n"
                  "%%18 = cast %%17 : f32[Batch:6, Seq:3]\n%%19 = mul %%14, %%18 : f32[Batch:6, "
                  "Seq:3]\n%%20 = sum[Batch, Seq] %%19 : f32[]\n"
                  "%%21 = sum[Batch, Seq] %%18 : f32[]\n%%22 = const {value = 1} : f32[]\n%%23 = "
                  "max %%21, %%22 : f32[]\n%%24 = div %%20, %%23 : f32[]\n"
                  "%%25 = sum[Seq] %%19 : f32[Batch:6]\nreturn %%24, %%25\n}\n"
                  "entry @step {\n%%0 = load @tokens : i32[Batch:6, Seq:3]\n%%1 = load @targets : "
                  "i32[Batch:6, Seq:3]\n%%2 = load @wte : f32[Vocab:5, Embed:4]\n"
                  "%%3 = load @h.*.w : f32[Layers:2, Embed:4, Out:4]\n%%4 = load @g : "
                  "f32[Embed:4]\n%%5 = load @seed : i64[]\n%%6 = load @step : i32[]\n"
                  "%%7, %%8 = call @forward, %%0, %%1, %%2, %%3, %%4, %%5, %%6 : f32[], "
                  "f32[Batch:6]\nstore @loss, %%7\nstore @each, %%8\n}\n"
                  "entry @eval {\n%%0 = load @tokens : i32[Batch:6, Seq:3]\n%%1 = load @targets : "
                  "i32[Batch:6, Seq:3]\n%%2 = load @wte : f32[Vocab:5, Embed:4]\n"
                  "%%3 = load @h.*.w : f32[Layers:2, Embed:4, Out:4]\n%%4 = load @g : "
                  "f32[Embed:4]\n%%5 = load @seed : i64[]\n%%6 = load @step : i32[]\n"
                  "%%7, %%8 = call @forward, %%0, %%1, %%2, %%3, %%4, %%5, %%6 : f32[], "
                  "f32[Batch:6]\nstore @eval.loss, %%7\n}\n";

static bool runs_in_parts(const Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (strstr(m->fns.at[i]->name, "step.micro")) return true;
  return false;
}

static Interp *trained(Ctx *c, const char *micro, const char *until) {
  Module *m = module_from(c, arena_printf(c->arena, model, micro));
  run_until(m, until);
  assert_true(runs_in_parts(m) == (micro[0] && !strstr(micro, "\"6\"")));
  Interp *in = interp_filled(m, true);
  must_run(in, "step");
  must_run(in, "eval");
  return in;
}

static void parts_equal_whole(void **state) {
  static const char *const sizes[] = {SET("plan.micro", "1"), SET("plan.micro", "2"),
                                      SET("plan.micro", "3"), SET("plan.micro", "6")};
  static const char *const outputs[] = {"loss",     "each",       "eval.loss", "norm.of.gradients",
                                        "grad.wte", "grad.h.*.w", "grad.g",    "wte",
                                        "h.*.w",    "g"};
  static const char *const until[] = {"micro", "recompute", "clean"};
  (void)state;
  Ctx *c = ctx_new();
  Interp *whole = trained(c, "", "clean");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t u = 0; u < sizeof until / sizeof *until; u++) {
      Interp *parts = trained(c, sizes[i], until[u]);
      for (size_t k = 0; k < sizeof outputs / sizeof *outputs; k++)
        expect_same(whole, parts, outputs[k], 1e-12);
    }
  ctx_free(c);
}

/* Regularizers in front of a stack and in its layers: whole terms of a carried sum, of which
 * another term is a sum over samples where asked for. */
static const char regular[] = HEAD SET("train.optim", "sgd") SET("train.optim.lr", "0.1")
    SET("debug.gradients",
        "on") "%s" /* plan.micro */
              "param @h.*.w : f32[Layers:2, E:3, O:3] {decay}\nparam @g : f32[E:3]\n"
              "input @x : f32[Batch:6, E:3]\noutput @loss : f32[]\noutput @eval.loss : f32[]\n"
              "scalar @seed : i64[]\nscalar @step : i32[]\n"
              "body @h(%%0 : i32[], %%1 : f32[Batch:6, E:3], %%2 : f32[], %%3 : f32[E:3, O:3]) {\n"
              "%%4 = dot[E] %%1, %%3 : f32[Batch:6, O:3]\n%%5 = tanh %%4 : f32[Batch:6, O:3]\n"
              "%%6 = rename[O -> E] %%5 : f32[Batch:6, E:3]\n%%7 = mul %%3, %%3 : f32[E:3, O:3]\n"
              "%%8 = sum[E, O] %%7 : f32[]\n%%9 = sub %%2, %%8 : f32[]\n"
              "%%10 = sum[Batch, E] %%6 : f32[]\n%%11 = add %%9, %%%d : f32[]\n"
              "return %%6, %%11\n}\n"
              "body @forward(%%0 : f32[Batch:6, E:3], %%1 : f32[E:3], %%2 : f32[Layers:2, E:3, "
              "O:3]) {\n%%3 = mul %%1, %%1 : f32[E:3]\n%%4 = sum[E] %%3 : f32[]\n"
              "%%5 = mul %%0, %%1 : f32[Batch:6, E:3]\n"
              "%%6, %%7 = loop[Layers] @h, %%5, %%4, %%2 {carry = 2, invariant = 0, trip = 2} : "
              "f32[Batch:6, E:3], f32[]\n%%8 = mul %%6, %%6 : f32[Batch:6, E:3]\n"
              "%%9 = sum[Batch, E] %%8 : f32[]\n%%10 = add %%9, %%7 : f32[]\nreturn %%10\n}\n"
              "entry @step {\n%%0 = load @x : f32[Batch:6, E:3]\n%%1 = load @g : f32[E:3]\n"
              "%%2 = load @h.*.w : f32[Layers:2, E:3, O:3]\n"
              "%%3 = call @forward, %%0, %%1, %%2 : f32[]\nstore @loss, %%3\n}\n"
              "entry @eval {\n%%0 = load @x : f32[Batch:6, E:3]\n%%1 = load @g : f32[E:3]\n"
              "%%2 = load @h.*.w : f32[Layers:2, E:3, O:3]\n"
              "%%3 = call @forward, %%0, %%1, %%2 : f32[]\nstore @eval.loss, %%3\n}\n";

static Interp *regularized(Ctx *c, const char *micro, int term) {
  Module *m = module_from(c, arena_printf(c->arena, regular, micro, term));
  run_until(m, "clean");
  assert_true(runs_in_parts(m) == (micro[0] != 0));
  assert_string_equal(module_setting(m, "made.eval.separable", "off"), "on");
  Interp *in = interp_filled(m, true);
  must_run(in, "step");
  must_run(in, "eval");
  return in;
}

static void whole_terms_count_once(void **state) {
  static const char *const outputs[] = {"loss", "eval.loss", "grad.h.*.w", "grad.g", "h.*.w"};
  (void)state;
  Ctx *c = ctx_new();
  for (int term = 8; term <= 10; term += 2) {
    Interp *whole = regularized(c, "", term);
    for (int part = 1; part <= 3; part++) {
      const char *set = arena_printf(c->arena, "set plan.micro = \"%d\"\n", part);
      Interp *parts = regularized(c, set, term);
      for (size_t k = 0; k < sizeof outputs / sizeof *outputs; k++)
        expect_same(whole, parts, outputs[k], 1e-12);
    }
  }
  ctx_free(c);
}

static void refused(const char *lines, const char *words) {
  Ctx *c = ctx_new();
  Module *m = module_from(
      c,
      arena_printf(c->arena,
                   "%s%sparam @w : f32[E:3]\ninput @x : f32[Batch:4, E:3]\noutput @loss : f32[]\n"
                   "entry @step {\n%%0 = load @w : f32[E:3]\n%%1 = load @x : f32[Batch:4, E:3]\n"
                   "%%2 = mul %%1, %%0 : f32[Batch:4, E:3]\n%s\nstore @loss, %%9\n}\n",
                   HEAD, SET("plan.micro", "2"), lines));
  expect_error(m, "micro", "E0706", words);
  ctx_free(c);
}

static void not_linear(void **state) {
  (void)state;
  refused("%3 = sum[Batch, E] %2 : f32[]\n%9 = mul %3, %3 : f32[]", "for every sample");
  refused("%3 = rmax[Batch] %2 : f32[E:3]\n%9 = sum[E] %3 : f32[]", "another op than a sum");
  refused("%3 = cumsum[Batch] %2 : f32[Batch:4, E:3]\n%9 = sum[Batch, E] %3 : f32[]",
          "moves samples");
  refused("%3 = sum[Batch] %2 : f32[E:3]\n%4 = sub %2, %3 : f32[Batch:4, E:3]\n%5 = mul %4, %4 : "
          "f32[Batch:4, E:3]\n"
          "%9 = sum[Batch, E] %5 : f32[]",
          "for every sample");
}

static void does_not_divide(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  expect_error(module_from(c, arena_printf(c->arena, model, SET("plan.micro", "4"))), "micro",
               "E0703", "micro = 3");
  ctx_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_equal_whole),
      cmocka_unit_test(whole_terms_count_once),
      cmocka_unit_test(not_linear),
      cmocka_unit_test(does_not_divide),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
