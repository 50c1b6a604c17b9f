/* Optimizers, clipping and schedules: three steps through the interpreter against the formulas
 * written out in C. */
#include "common.h"
#include <math.h>

enum { N = 6, STEPS = 3 };

/* loss = sum(c * w * w) / 2 + .. : the gradient of w is c * w */
static const char text[] =
    "shardc-ir 1\nmodel T\nafter lower\n%s"
    "param @w : f32[R:2, C:3] {decay}\nparam @b : f32[R:2, C:3]\ninput @c : f32[R:2, C:3]\n"
    "output @loss : f32[]\nscalar @step : i32[]\n"
    "entry @init {\n%%0 = const {value = 1} : f32[]\n%%1 = expand[R, C] %%0 : f32[R:2, C:3]\n"
    "store @w, %%1\nstore @b, %%1\n}\n"
    "entry @step {\n%%0 = load @w : f32[R:2, C:3]\n%%1 = load @c : f32[R:2, C:3]\n"
    "%%2 = load @b : f32[R:2, C:3]\n%%3 = add %%0, %%2 : f32[R:2, C:3]\n"
    "%%4 = mul %%3, %%3 : f32[R:2, C:3]\n%%5 = mul %%4, %%1 : f32[R:2, C:3]\n"
    "%%6 = sum[R, C] %%5 : f32[]\n%%7 = const {value = 0.5} : f32[]\n%%8 = mul %%6, %%7 : f32[]\n"
    "store @loss, %%8\n}\n";

typedef struct Setup {
  const char *settings;
  bool adam, nesterov;
  double lr, b1, b2, eps, decay, momentum, clip;
  double factor[STEPS];
} Setup;

typedef struct Weight {
  double w, m, v;
} Weight;

static void adamw(const Setup *s, Weight *x, double g, double decay, int t) {
  double lr = s->lr * s->factor[t];
  x->w *= 1 - lr * decay;
  x->m = s->b1 * x->m + (1 - s->b1) * g;
  x->v = s->b2 * x->v + (1 - s->b2) * g * g;
  double c1 = 1 - pow(s->b1, t + 1), c2 = 1 - pow(s->b2, t + 1);
  x->w -= lr / c1 * x->m / (sqrt(x->v) / sqrt(c2) + s->eps);
}

static void sgd(const Setup *s, Weight *x, double g, double decay, int t) {
  g += decay * x->w;
  if (s->momentum != 0) {
    x->m = t == 0 ? g : s->momentum * x->m + g;
    g = s->nesterov ? g + s->momentum * x->m : x->m;
  }
  x->w -= s->lr * s->factor[t] * g;
}

static double clip_factor(const Setup *s, const double *g, double *norm) {
  double sum = 0;
  for (int i = 0; i < N; i++) sum += 2 * g[i] * g[i]; /* w and b have the same gradient */
  *norm = sqrt(sum);
  return s->clip > 0 ? fmin(1, s->clip / (*norm + 1e-6)) : 1;
}

static void step(const Setup *s, Weight *w, Weight *b, const double *c, int t, double *norm) {
  double g[N];
  for (int i = 0; i < N; i++) g[i] = c[i] * (w[i].w + b[i].w);
  double k = clip_factor(s, g, norm);
  for (int i = 0; i < N; i++) {
    (s->adam ? adamw : sgd)(s, &w[i], k * g[i], s->decay, t);
    (s->adam ? adamw : sgd)(s, &b[i], k * g[i], 0, t);
  }
}

static void near(double have, double want) {
  if (!(fabs(have - want) <= 1e-10 * (1 + fabs(want))))
    fail_msg("%.17g, expected %.17g", have, want);
}

static void compare(Interp *in, const Weight *w, const Weight *b, int t) {
  (void)t;
  for (int i = 0; i < N; i++) {
    near(interp_get(in, "w")->at[i], w[i].w);
    near(interp_get(in, "b")->at[i], b[i].w);
  }
}

static void states_begin(Interp *in, const Module *m) {
  static const double none[N];
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->kind == GLOBAL_STATE) interp_set(in, m->globals.at[i]->name, none);
}

static void check(const Setup *s) {
  Ctx *k = ctx_new();
  Module *m = module_from(k, arena_printf(k->arena, text, s->settings));
  run_until(m, "clean");
  Interp *in = interp_filled(m, true);
  double c[N], norm;
  Weight w[N], b[N];
  for (int i = 0; i < N; i++)
    c[i] = filled(m, module_global(m, intern(k->names, "c")), i), w[i] = b[i] = (Weight){1, 0, 0};
  must_run(in, "init"), states_begin(in, m);
  for (int t = 0; t < STEPS; t++) {
    interp_set(in, "step", (double[]){t});
    must_run(in, "step");
    step(s, w, b, c, t, &norm);
    compare(in, w, b, t);
    near(output_of(in, "lr"), s->lr * s->factor[t]);
    if (s->clip > 0) near(output_of(in, "norm.of.gradients"), norm);
  }
  ctx_free(k);
}

#define SET(key, value) "set " key " = \"" value "\"\n"

static void adamw_steps(void **state) {
  (void)state;
  check(&(Setup){SET("train.optim", "adamw") SET("train.optim.lr", "0.125") SET("train.optim.betas",
                                                                                "0.75 0.875")
                     SET("train.optim.weight_decay", "0.0625") SET("train.optim.eps", "0.00390625"),
                 true,
                 false,
                 0.125,
                 0.75,
                 0.875,
                 0.00390625,
                 0.0625,
                 0,
                 0,
                 {1, 1, 1}});
}

static void adamw_clipped(void **state) {
  (void)state;
  check(&(Setup){SET("train.optim", "adamw") SET("train.optim.lr", "0.5")
                     SET("train.optim.betas", "[0.5, 0.75]") SET("train.optim.weight_decay", "0")
                         SET("train.optim.eps", "0.5") SET("train.clip", "0.25"),
                 true,
                 false,
                 0.5,
                 0.5,
                 0.75,
                 0.5,
                 0,
                 0,
                 0.25,
                 {1, 1, 1}});
}

static void sgd_steps(void **state) {
  (void)state;
  check(&(Setup){SET("train.optim", "sgd") SET("train.optim.lr", "0.25"),
                 false,
                 false,
                 0.25,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 {1, 1, 1}});
  check(&(Setup){SET("train.optim", "sgd") SET("train.optim.lr", "0.25")
                     SET("train.optim.momentum", "0.5") SET("train.optim.weight_decay", "0.125"),
                 false,
                 false,
                 0.25,
                 0,
                 0,
                 0,
                 0.125,
                 0.5,
                 0,
                 {1, 1, 1}});
  check(&(Setup){SET("train.optim", "sgd") SET("train.optim.lr", "0.25")
                     SET("train.optim.momentum", "0.5") SET("train.optim.nesterov", "on"),
                 false,
                 true,
                 0.25,
                 0,
                 0,
                 0,
                 0,
                 0.5,
                 0,
                 {1, 1, 1}});
}

#define SGD SET("train.optim", "sgd") SET("train.optim.lr", "0.25")
#define SCHEDULE(words, ...)                                                                       \
  check(&(Setup){SGD words, false, false, 0.25, 0, 0, 0, 0, 0, 0, __VA_ARGS__})

static void schedules(void **state) {
  (void)state;
  SCHEDULE(SET("train.lr", "constant") SET("train.lr.warmup", "2") SET("train.steps", "3"),
           {0.5, 1, 1});
  SCHEDULE(SET("train.lr", "linear") SET("train.lr.floor", "0.5") SET("train.steps", "4"),
           {1, 0.875, 0.75});
  SCHEDULE(SET("train.lr", "cosine") SET("train.lr.warmup", "1") SET("train.lr.floor", "10%")
               SET("train.steps", "5"),
           {1, 1, 0.1 + 0.9 * (1 + cos(acos(-1) / 4)) / 2});
  SCHEDULE(SET("train.lr", "wsd") SET("train.lr.decay", "50%") SET("train.lr.floor", "0.25")
               SET("train.steps", "4"),
           {1, 1, 1});
  SCHEDULE(SET("train.lr", "wsd") SET("train.lr.decay", "0.5") SET("train.steps", "2"), {1, 1, 0});
  SCHEDULE(SET("train.lr", "wsd") SET("train.lr.decay", "0") SET("train.steps", "1"), {1, 1, 1});
  SCHEDULE(SET("train.lr", "inverse_sqrt") SET("train.lr.warmup", "1"),
           {1, sqrt(0.5), sqrt(1. / 3)});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adamw_steps),
      cmocka_unit_test(adamw_clipped),
      cmocka_unit_test(sgd_steps),
      cmocka_unit_test(schedules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
