/* The kernels' mathematics against libm: relative errors over the ranges that matter, scalars and
 * vectors. */
#include "harness.h"
#include "codegen/expr.h"
#include "ir/interp/interp.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

typedef struct Case {
  const char *op;
  double low, high, tolerance;
} Case;

static const Case cases[] = {
#define FUNCTION(name, value, gradient, low, high, error, at, is, meaning)                         \
  {#name, low, high, error},
#include "ir/functions.def"
#undef FUNCTION
    {"exp", -80, 80, 2e-7},
    {"exp", -1, 1, 2e-7},
    {"log", 1e-30, 1e-3, 2e-7},
    {"log", 0.5, 2, 3e-7},
    {"log", 1, 1e30, 2e-7},
    {"log1p", 1e-12, 1e-3, 2e-7},
    {"tanh", -0.7, 0.7, 4e-7},
    {"tanh", -12, 12, 4e-7},
    {"sigmoid", -80, 80, 4e-7},
    {"erf", -1.2, 1.2, 4e-7},
    {"erf", -6, 6, 4e-7},
    {"erfinv", -0.9, 0.9, 1e-6},
    {"erfinv", -0.999999, 0.999999, 1e-6},
    {"rsqrt", 1e-20, 1e20, 2e-7},
    {"sqrt", 0, 1e10, 1e-7},
    {"floor", -100, 100, 0},
    {"sign", -1, 1, 0},
    {"abs", -3, 3, 0},
    {"neg", -3, 3, 0},
};

/* sin and cos near their zeros have an absolute error */
static const Case waves[] = {
    {"sin", -3, 3, 2e-7},
    {"cos", -3, 3, 2e-7},
    {"sin", -1e5, 1e5, 2e-7},
    {"cos", -1e5, 1e5, 2e-7},
};

static int run_case(const Case *c, const char *target, bool relative) {
  Harness *h = harness_new(target);
  h->low = c->low, h->high = c->high, h->relative = relative;
  harness_add(h,
              "kernel @v(%%0 : f32[A:5003]) {family = \"elem\"} {\n  %%1 = %s %%0 : f32[A:5003]\n  "
              "return %%1\n}\n",
              c->op);
  harness_add(h,
              "kernel @s(%%0 : f32[A:3]) {family = \"elem\"} {\n  %%1 = %s %%0 : f32[A:3]\n  "
              "return %%1\n}\n",
              c->op);
  int failed = harness_run(h, c->tolerance + 1e-12);
  harness_free(h);
  return failed;
}

static void test_accuracy(void **state) {
  const char *target = *state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(run_case(&cases[i], target, true), 0);
  for (size_t i = 0; i < sizeof waves / sizeof *waves; i++)
    assert_int_equal(run_case(&waves[i], target, false), 0);
}

static void test_powers(void **state) {
  static const double exponents[] = {0, 1, 2, 3, 7, -1, -2, 0.5, -0.5, 1.5, 0.25, -3.25};
  Harness *h = harness_new(*state);
  h->low = 0.01, h->high = 20, h->relative = true;
  for (size_t i = 0; i < sizeof exponents / sizeof *exponents; i++)
    harness_add(h,
                "kernel @p%zu(%%0 : f32[A:1003]) {family = \"elem\"} {\n  %%1 = pow %%0 {value = "
                "%g} : f32[A:1003]\n  return %%1\n}\n",
                i, exponents[i]);
  assert_int_equal(harness_run(h, 3e-6), 0);
  harness_free(h);
}

/* infinities, zeros, NaN: one kernel per op and number, the number a constant of the kernel */
static void test_special(void **state) {
  static const char *const ops[] = {"exp", "log", "tanh",   "sigmoid", "erf", "sqrt",
                                    "sin", "cos", "erfinv", "abs",     "sign"};
  static const char *const numbers[] = {"inf", "-inf",  "nan", "0",   "-1",
                                        "1",   "1e-42", "100", "-100"};
  Harness *h = harness_new(*state);
  for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
      harness_add(
          h,
          "kernel @s%zu_%zu(%%0 : bool[A:33]) {family = \"elem\"} {\n  %%1 = const {value = %s} : "
          "f32[]\n  %%2 = const {value = 0.5} : f32[]\n"
          "  %%3 = where %%0, %%1, %%2 : f32[A:33]\n  %%4 = %s %%3 : f32[A:33]\n  return %%4\n}\n",
          o, i, numbers[i], ops[o]);
  assert_int_equal(harness_run(h, 1e-6), 0);
  harness_free(h);
}

/* Two numbers that have no finite sum of exponentials, or one that is all of it. */
static void test_special_sums(void **state) {
  static const char *const numbers[] = {"inf", "-inf", "nan", "0", "-100", "1e30"};
  Harness *h = harness_new(*state);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
      harness_add(
          h,
          "kernel @s%zu_%zu(%%0 : bool[A:33]) {family = \"elem\"} {\n  %%1 = const {value = %s} : "
          "f32[]\n  %%2 = const {value = %s} : f32[]\n  %%3 = const {value = 0.5} : f32[]\n"
          "  %%4 = where %%0, %%1, %%3 : f32[A:33]\n  %%5 = where %%0, %%2, %%3 : f32[A:33]\n"
          "  %%6 = logaddexp %%4, %%5 : f32[A:33]\n  return %%6\n}\n",
          i, k, numbers[i], numbers[k]);
  assert_int_equal(harness_run(h, 1e-6), 0);
  harness_free(h);
}

static void test_doubles(void **state) {
  static const char *const ops[] = {"exp",  "log", "tanh", "sigmoid", "erf",
                                    "sqrt", "sin", "cos",  "erfinv",  "rsqrt"};
  Harness *h = harness_new(*state);
  h->low = 0.1, h->high = 0.9, h->relative = true;
  for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
    harness_add(h,
                "kernel @d%zu(%%0 : f64[], %%1 : f64[A:37]) {family = \"elem\"} {\n  %%2 = %s %%0 "
                ": f64[]\n  %%3 = %s %%1 : f64[A:37]\n"
                "  %%4 = pow %%3 {value = 1.7} : f64[A:37]\n  return %%2, %%4\n}\n",
                o, ops[o], ops[o]);
  assert_int_equal(harness_run(h, 1e-12), 0);
  harness_free(h);
}

static void test_random_numbers(void **state) {
  Harness *h = harness_new(*state);
  h->int_low = -1000000, h->int_high = 1000000000000;
  harness_add(
      h, "kernel @r(%%0 : i64[], %%1 : i32[], %%2 : i64[]) {family = \"elem\"} {\n"
         "  %%3 = rand[A, B] %%0, %%1, %%2 {key = 123456789, strides = [70, 1]} : f32[A:33, B:70]\n"
         "  %%4 = rand[B] %%0, %%1, %%2 {key = 4000000000, strides = [3]} : f32[B:70]\n  return "
         "%%3, %%4\n}\n");
  assert_int_equal(harness_run(h, 0), 0);
  harness_free(h);
}

static const double ROUNDED_TO[] = {0.004, 0.1, 3, 12, 200};

static void run_up_to(void **state, double to, const char *kernel, double tolerance) {
  Harness *h = harness_new(*state);
  h->low = -to, h->high = to;
  harness_add(h, "%s", kernel);
  assert_int_equal(harness_run(h, tolerance), 0);
  harness_free(h);
}

/* Rounded to 16 bits: to one unit in the last place of f16, small numbers and ends included. */
static void test_rounded(void **state) {
  for (size_t i = 0; i < sizeof ROUNDED_TO / sizeof *ROUNDED_TO; i++) {
    double to = ROUNDED_TO[i];
    run_up_to(state, to,
              "kernel @t(%0 : f32[A:4003]) {family = \"elem\"} {\n  %1 = tanh %0 : f32[A:4003]\n"
              "  %2 = mul %1, %0 : f32[A:4003]\n  %3 = add %2, %1 : f32[A:4003]\n"
              "  %4 = cast %1 : f16[A:4003]\n  %5 = cast %3 : f16[A:4003]\n  return %4, %5\n}\n",
              fmin(to, 1) * 0x1p-10 * (1 + to));
  }
}

/* Functions for bf16, and products that read them, are within 2^-11 of the value, plus rounding. */
static void test_rounded_bf16(void **state) {
  for (size_t i = 0; i < sizeof ROUNDED_TO / sizeof *ROUNDED_TO; i++) {
    double to = ROUNDED_TO[i];
    run_up_to(state, to,
              "kernel @t(%0 : f32[A:4003]) {family = \"elem\"} {\n  %1 = tanh %0 : f32[A:4003]\n"
              "  %2 = mul %1, %0 : f32[A:4003]\n  %3 = cast %1 : bf16[A:4003]\n"
              "  %4 = cast %2 : bf16[A:4003]\n  return %3, %4\n}\n",
              fmin(to, 1) * 0x1.2p-8 * fmax(1, to));
  }
}

/* A sum, a result and what leads to them are seen as they are. */
static void test_who_sees(void **state) {
  static const char text[] =
      "shardc-ir 1\nmodel Test\nafter fuse\nkernel @k(%0 : f32[A:8]) {family = \"elem\"} {\n  %1 = "
      "exp %0 : f32[A:8]\n"
      "  %2 = tanh %1 : f32[A:8]\n  %3 = cast %2 : bf16[A:8]\n  %4 = exp %1 : f32[A:8]\n"
      "  %5 = tanh %0 : f32[A:8]\n  %6 = mul %5, %5 : f32[A:8]\n  %7 = cast %6 : bf16[A:8]\n"
      "  %8 = tanh %0 : f32[A:8]\n  %9 = sum[A] %8 : f32[]\n  %10 = cast %9 : bf16[]\n"
      "  %11 = tanh %0 : f32[A:8]\n  %12 = cast %11 : f16[A:8]\n  %13 = cast %11 : bf16[A:8]\n"
      "  return %3, %4, %7, %10, %12, %13\n}\n";
  const Rounding NO = ROUNDED_NOT, BF16 = ROUNDED_bf16;
  const Rounding expected[] = {NO, NO, BF16, NO, NO, BF16, BF16, NO, NO, BF16, NO, ROUNDED_f16};
  Ctx *c = ctx_new();
  Module *m = ir_parse(c, "test", text, sizeof text - 1);
  assert_non_null(m);
  const Rounding *is = rounded_values(m->arena, m->fns.at[0]);
  (void)state;
  for (size_t v = 0; v < sizeof expected / sizeof *expected; v++)
    assert_int_equal(is[v], expected[v]);
  ctx_free(c);
}

int main(int argc, char **argv) {
  const char *target = argc > 1 ? argv[1] : "native";
  if (harness_tested(target)) return HARNESS_SKIPPED;
#define TEST(f) cmocka_unit_test_prestate(f, (void *)target)
  const struct CMUnitTest tests[] = {
      TEST(test_accuracy),     TEST(test_powers),       TEST(test_special),
      TEST(test_special_sums), TEST(test_doubles),      TEST(test_random_numbers),
      TEST(test_rounded),      TEST(test_rounded_bf16), TEST(test_who_sees)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
