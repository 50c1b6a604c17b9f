/* Lowering: every example becomes a module that verifies and reads back from its text; every
   operator of the language computes what it promises, in the interpreter, on small inputs with
   results by hand; stacks, options per round, shared subs, loss terms and initial values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "frontend/lower.h"
#include "ir/interp/interp.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 24 };

static Module *lowered(Ctx *c, const char *path, const char *model) {
  LowerOptions o = {.path = path, .model = model};
  Module *m = lower_program(c, &o);
  if (!m) diag_print(c->diag, stderr, DIAG_HUMAN, false);
  assert_non_null(m);
  assert_int_equal(diag_errors(c->diag), 0);
  if (!ir_verify(m)) diag_print(c->diag, stderr, DIAG_HUMAN, false);
  assert_int_equal(diag_errors(c->diag), 0);
  return m;
}

static Module *lowered_text(Ctx *c, const char *text) {
  char path[] = "/tmp/shardc-lower-XXXXXX.shard";
  int fd = mkstemps(path, 6);
  assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
  close(fd);
  Module *m = lowered(c, path, NULL);
  unlink(path);
  return m;
}

/* ---- examples ---- */

static void test_examples(void **state) {
  static const char *const names[] = {"gpt2", "gpt1t", "llama",      "vit", "mnist",
                                      "mlp",  "tiny",  "tiny_llama", "ops", "plans"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    Ctx *c = ctx_new(), *again = ctx_new();
    size_t n, k;
    char *text =
        ir_print(lowered(c, arena_printf(c->arena, EXAMPLES "/%s.shard", names[i]), NULL), &n);
    Module *m = ir_parse(again, "dump", text, n);
    assert_non_null(m);
    assert_string_equal(ir_print(m, &k), text);
    ctx_free(c), ctx_free(again);
  }
}

static void test_counts(void **state) {
  static const struct {
    const char *file, *model;
    long long n;
  } want[] = {{"gpt2", "GPT2", 124439808},
              {"gpt2", "GPT2_XL", 1557611200},
              {"llama", "Llama3", 8030261248},
              {"gpt1t", "GPT_1T", 1008038758400},
              {"bert", "BertBigBird", 112266810},
              {"vit", "ViT", 86566120},
              {"moe", "MoE", 322634496},
              {"mixtral", "Mixtral", 46702792704},
              {"qwen3_moe", "Qwen3MoE", 30532122624},
              {"mnist", "Mnist", 101770}};
  (void)state;
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    Ctx *c = ctx_new();
    CheckResult r = {0};
    long long n = -1;
    assert_true(check_program(c, arena_printf(c->arena, EXAMPLES "/%s.shard", want[i].file), &r));
    assert_int_equal(diag_errors(c->diag), 0);
    for (uint32_t k = 0; k < r.models.n; k++)
      if (!strcmp(r.models.at[k].name, want[i].model)) n = r.models.at[k].parameters;
    assert_int_equal(n, want[i].n);
    ctx_free(c);
  }
}

/* ---- operators ---- */

typedef struct Case {
  const char *lines; /* ends with a definition of z */
  double want[MOST];
} Case;

/* x = 1 -2 3 0.5; m = 1 2 3 / 4 5 6; i = 2; k = 1 0 3; b = 1 0 1 1 */
static const char frame[] =
    "use \"std\"\n"
    "dims { Batch; D = 4; E like D; R = 2; C = 3; Half = 2; Six = 6; Seven = 7; P = 6; One = 1; K "
    "like C; Rows = 3 }\n"
    "%s"
    "model M {\n"
    "  input x [Batch, D] f32\n  input m [Batch, R, C] f32\n  input i [Batch] of D\n  input k "
    "[Batch, C] of D\n"
    "  input b [Batch, D] bool\n  input n [Batch, C] i32\n"
    "%s\n  output z\n  loss mean[*](x)\n}\n"
    "train t for M { batch 2; steps 1; optim adamw lr = 1e-3\n"
    "  data columns(x = \"x\", m = \"m\", i = \"i\", k = \"k\", b = \"b\", n = \"n\") }\n";

static void set_input(Interp *in, const char *name, const double *v) {
  if (interp_get(in, name)) interp_set(in, name, v);
}

static const Tensor *run_lines(Ctx *c, const char *top, const char *lines) {
  Module *m = lowered_text(c, arena_printf(c->arena, frame, top, lines));
  Interp *in = interp_new(m, c->arena);
  set_input(in, "logits.x", (double[]){1, -2, 3, 0.5});
  set_input(in, "logits.m", (double[]){1, 2, 3, 4, 5, 6});
  set_input(in, "logits.i", (double[]){2});
  set_input(in, "logits.k", (double[]){1, 0, 3});
  set_input(in, "logits.b", (double[]){1, 0, 1, 1});
  set_input(in, "logits.n", (double[]){7, -7, 2});
  if (!interp_run(in, "init") || !interp_run(in, "logits"))
    fail_msg("%s: %s", lines, interp_error(in));
  return interp_get(in, "out.z");
}

static void check_case(const char *top, const Case *t) {
  Ctx *c = ctx_new();
  const Tensor *z = run_lines(c, top, t->lines);
  for (int64_t i = 0; i < type_count(&z->type); i++)
    if (!(fabs(z->at[i] - t->want[i]) <= 1e-6 * (1 + fabs(t->want[i]))))
      fail_msg("%s, element %d: %.9g, expected %.9g", t->lines, (int)i, z->at[i], t->want[i]);
  ctx_free(c);
}

static const Case elementwise[] = {
    {"  z = x + 1", {2, -1, 4, 1.5}},
    {"  z = 1 - x", {0, 3, -2, 0.5}},
    {"  z = 2 * x / 4", {0.5, -1, 1.5, 0.25}},
    {"  z = -x", {-1, 2, -3, -0.5}},
    {"  z = x ^ 2", {1, 4, 9, 0.25}},
    {"  z = 2 ^ 3 ^ 2 * x", {512, -1024, 1536, 256}},
    {"  z = min(x, 1)", {1, -2, 1, 0.5}},
    {"  z = max(0, x)", {1, 0, 3, 0.5}},
    {"  z = abs(x)", {1, 2, 3, 0.5}},
    {"  z = sqrt(abs(x) + 1) * rsqrt(abs(x) + 1)", {1, 1, 1, 1}},
    {"  z = log(exp(x))", {1, -2, 3, 0.5}},
    {"  z = sin(x)^2 + cos(x)^2", {1, 1, 1, 1}},
    {"  z = sign(x) + floor(x)", {2, -3, 4, 1}},
    {"  z = tanh(0 * x) + erf(0 * x) + sigmoid(0 * x)", {0.5, 0.5, 0.5, 0.5}},
    {"  z = float(x < 1)", {0, 1, 0, 1}},
    {"  z = float(x <= 1)", {1, 1, 0, 1}},
    {"  z = float(x > 1)", {0, 0, 1, 0}},
    {"  z = float(x >= 1)", {1, 0, 1, 0}},
    {"  z = float(x == 1)", {1, 0, 0, 0}},
    {"  z = float(x != 1)", {0, 1, 1, 1}},
    {"  z = float(b & x > 0)", {1, 0, 1, 1}},
    {"  z = float(not(b) | x > 1)", {0, 1, 1, 0}},
    {"  z = where(b, x, 10)", {1, 10, 3, 0.5}},
    {"  z = float(n)", {7, -7, 2}},
    {"  z = float(n != -7)", {1, 0, 1}},
    {"  z = float(n != none)", {1, 1, 1}},
    {"  z = float(k == 3)", {0, 0, 1}},
    {"  z = stop_gradient(x)", {1, -2, 3, 0.5}},
    {"  z = relu(x)", {1, 0, 3, 0.5}},
    {"  z = clamp(x, -1, 1)", {1, -1, 1, 0.5}},
    {"  z = softplus(0 * x)", {0.69314718, 0.69314718, 0.69314718, 0.69314718}},
    {"  z = 1e18 * softplus(0 * x - 40)", {4.24835426, 4.24835426, 4.24835426, 4.24835426}},
    {"  z = x |> relu\n    |> relu", {1, 0, 3, 0.5}},
};

static const Case structures[] = {
    {"  z = sum[D](x)", {2.5}},
    {"  z = max[D](x) + min[D](x)", {1}},
    {"  z = sum[R, C](m)", {21}},
    {"  z = mean[D](x)", {0.625}},
    {"  z = var[C](m)", {2.0 / 3, 2.0 / 3}},
    {"  z = float(argmax[D](x))", {2}},
    {"  z = cumsum[C](m)", {1, 3, 6, 4, 9, 15}},
    {"  z = logsumexp[R, C](0 * m)", {1.791759469}},
    {"  z = softmax[D](0 * x)", {0.25, 0.25, 0.25, 0.25}},
    {"  z = 0 * x + alibi_slopes[D](most = 4)", {0.5, 0.25, 0.125, 0.0625}},
    {"  z = dot[D](x, x)", {14.25}},
    {"  z = dot[C](m, rename[R -> One](slice[R -> One](m)))", {14, 32}},
    {"  z = sum[R](outer(sum[C](m), x))", {21, -42, 63, 10.5}},
    {"  z = float(m > 0.05 * outer(sum[R](m), sum[C](m)))", {0, 1, 0, 0, 1, 0}}, /* [C, R] */
    {"  z = float(m >= 0.05 * outer(sum[R](m), sum[C](m)))", {0, 1, 0, 0, 1, 0}},
    {"  z = expand[R](x)", {1, 1, -2, -2, 3, 3, 0.5, 0.5}},
    {"  z = rename[D -> E](x)", {1, -2, 3, 0.5}},
    {"  z = split[D -> R, Half](x)", {1, -2, 3, 0.5}},
    {"  z = merge[R, C -> Six](m)", {1, 2, 3, 4, 5, 6}},
    {"  p, q = unstack[R](m)\n  z = q - p", {3, 3, 3}},
    {"  z = unstack[One](slice[C -> One](m))", {1, 4}},
    {"  z = concat[D, C -> Seven](x, float(n))", {1, -2, 3, 0.5, 7, -7, 2}},
    {"  z = slice[D -> Half](x, at = 1)", {-2, 3}},
    {"  z = pad[D -> Six](x, at = 1, value = 9)", {9, 1, -2, 3, 0.5, 9}},
    {"  z = shift[D](x)", {0, 1, -2, 3}},
    {"  z = shift[D](x, by = -1, fill = 8)", {-2, 3, 0.5, 8}},
    {"  z = float(iota(D)) * x", {0, -2, 6, 1.5}},
    {"  z = one_hot[D](k)", {0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1}},
    {"  z = x[D = k]", {-2, 1, 0.5}},
    {"  z = x[D = i]", {3}},
    {"  z = scatter_add[C -> D](float(n), k)", {-7, 7, 0, 2}},
    {"  z = nll[D](0 * x, i)", {1.386294361}},
    {"  z = cross_entropy[D](expand[C](0 * x), k, ignore = 3)", {1.386294361}},
    {"  z = nll[D](log(0 * x), i, ignore = 2)", {0}},
    {"  y = where(x == 0.5, log(0 * x), 0 * x)\n"
     "  z = cross_entropy[D](expand[C](y), k, ignore = 3)",
     {1.098612289}},
    {"  z = bce(0 * x, float(b))", {0.69314718}},
    {"  z = 1e18 * bce(0 * x - 40, 0 * x)", {4.24835426}},
    {"  z = mse(x, 0 * x)", {3.5625}},
    {"  z = slice[C -> One](rope[C; R](m))", {1, 4}},
    {"  z = sum[R](rope[C; R](m)^2)", {17, 29, 45}},
};

/* s: x for route 0, 0 for route 1 */
#define SCORES "  s = pad[One -> R](expand[One](x))\n"
static const Case routed[] = {
    {"  z = float(top[D](x))", {0, 0, 1, 0}},
    {"  z = float(top[D](x, k = 2))", {1, 0, 1, 0}},
    {"  z = float(top[D](x, k = 4))", {1, 1, 1, 1}},
    {"  z = float(top[D](0 * x, k = 2))", {1, 1, 0, 0}},
    {"  z = float(top[D](where(b, x, log(0 * x)), k = 4))", {1, 0, 1, 1}},
    {"  z = float(top[D](log(x), k = 4))", {1, 0, 1, 1}},
    {"  at, g = route[C -> One; R -> Half](m)\n  z = float(at)", {-1, 0}},
    {"  at, g = route[C -> One; R -> Half](m)\n  z = g", {0, 4}},
    {"  at, g = route[C -> K; R -> Half](m, k = 2)\n  z = float(at)", {0, 1, 2, 0, 1, 2}},
    {"  at, g = route[C -> K; R -> Half](m, k = 2)\n  z = g", {1, 2, 3, 4, 5, 6}},
    {"  at, g = route[C -> One; R -> Half](m, by = -m)\n  z = float(at)", {0, -1}},
    {"  at, g = route[C -> One; R -> Half](m, by = -m)\n  z = g", {1, 0}},
    {SCORES "  at, g = route[D -> C; R -> Half](s, k = 2)\n  z = float(at)", {0, 2, 3, 1, 0, 2}},
    {SCORES "  at, g = route[D -> C; R -> Half](s + 1, k = 2)\n  z = g", {2, 4, 1.5, 1, 1, 1}},
    {SCORES "  at, g = route[D -> C; R -> Half](s + 1, k = 2)\n  e = x[D = at]\n"
            "  z = scatter_add[Half, C -> D](e * g, at)",
     {3, -2, 15, 0.75}},
    {SCORES "  z = load_balance[R; D](sigmoid(0 * s) + 0.1 * s, k = 1)", {1.09375}},
};

static void test_elementwise(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof elementwise / sizeof *elementwise; i++)
    check_case("", &elementwise[i]);
}

static void test_structures(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof structures / sizeof *structures; i++)
    check_case("", &structures[i]);
}

static void test_routed(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof routed / sizeof *routed; i++) check_case("", &routed[i]);
}

/* ---- layers, stacks ---- */

static const char layers[] =
    "layer Add(x: [*, D]) -> [*, D] with p = 0 {\n  return x + p\n}\n"
    "layer Twice(x: [*, D]) -> [*, D] {\n  return 2 * x\n}\n"
    "layer AddTwice(x: [*, D]) -> [*, D] with p = 0 {\n  return 2 * (x + p)\n}\n"
    "layer Deep(x: [*, D]) -> [*, D] {\n  stack inner [C] of Add with p = [1, 2, 3]\n  return 2 * "
    "inner(x)\n}\n"
    "layer Bias(x: [*, D]) -> [*, D] {\n  param p [D] = 3\n  return x + p\n}\n"
    "layer More(x: [*, D], y: [*, D]) -> [*, D] {\n  return x + y\n}\n"
    "layer Term(x: [*, D]) -> [*, D] {\n  aux 2 + 0 * mean[*](x)\n  return x\n}\n"
    "layer Start(x: [*, D]) -> [*, D] with v = 0 {\n  param p [D] = v\n  return x + p\n}\n"
    "layer Index(i: [*] of D, x: [*, D]) -> [*] {\n  return x[D = i]\n}\n";

static const Case repeated[] = {
    {"  stack h [R] of Add with p = [1, 10]\n  z = h(x)", {12, 9, 14, 11.5}},
    {"  stack h [R] of Add with p = 5\n  z = h(x)", {11, 8, 13, 10.5}},
    {"  stack h [R] of (Add, Twice) with p = [1, 10]\n  z = h(x)", {28, 16, 36, 26}},
    {"  stack h [R] of Deep\n  z = h(x)", {40, 28, 48, 38}},
    {"  sub a = Bias\n  z = a(a(x))", {7, 4, 9, 6.5}},
    {"  sub a = Bias\n  y = a(x)\n  z = y - a.p", {1, -2, 3, 0.5}},
    {"  stack h [C] of Bias\n  z = h(x)", {10, 7, 12, 9.5}},
    {"  stack h [C] of More\n  z = h(x, x)", {4, -8, 12, 2}},
    {"  stack h [C] of Bias\n  z = h(h(x))", {19, 16, 21, 18.5}},
    {"  stack h [R] of Start with v = [1, 10]\n  z = h(x)", {12, 9, 14, 11.5}},
    {"  sub a = Index\n  z = a(i, x)", {3}},
    {"  sub a = Linear[D -> D] with init = uniform(2, 2), bias = 1\n  z = a(x)", {6, 6, 6, 6}},
    {"  sub a = Linear[D -> D] with init = uniform(2, 2), bias = none\n  z = a(x)", {5, 5, 5, 5}},
    {"  sub a = LayerNorm[R, C]\n  z = sum[R, C](a(m))", {0}},
    {"  z = dropout(x, p = 0.9)", {1, -2, 3, 0.5}},
};

static void test_stacks(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) check_case(layers, &repeated[i]);
}

static double loss_of(const char *top, const char *lines) {
  Ctx *c = ctx_new();
  Module *m = lowered_text(c, arena_printf(c->arena, frame, top, lines));
  Interp *in = interp_new(m, c->arena);
  interp_set_all(in, "x", 1);
  interp_set_all(in, "seed", 1);
  assert_true(interp_run(in, "init") && interp_run(in, "eval"));
  double loss = interp_get(in, "eval.loss")->at[0];
  assert_true(interp_run(in, "step"));
  assert_true(interp_get(in, "loss")->at[0] == loss);
  ctx_free(c);
  return loss;
}

/* mean(x) is 1; every aux counts, in a stack once per round, whatever its layer's result becomes */
static void test_aux(void **state) {
  (void)state;
  assert_true(loss_of(layers, "  z = x") == 1);
  assert_true(loss_of(layers, "  z = x\n  aux 3") == 4);
  assert_true(loss_of(layers, "  sub t = Term\n  z = t(t(x))\n  aux mean[*](z)") == 6);
  assert_true(loss_of(layers, "  stack h [C] of Term\n  z = h(x)") == 7);
  assert_true(loss_of(layers, "  sub t = Term\n  z = x + 0 * t(x)") == 3);
  assert_true(loss_of(layers, "  sub t = Term\n  z = x + t(x) * 0") == 3);
  assert_true(loss_of(layers, "  stack h [C] of (Term, Term)\n  z = h(x)") == 13);
}

/* ---- attention against its definition, walked from a file's own function ---- */

static const char own[] =
    "fn own[Q -> K; H](q, k, v, mask = all) {\n  s = dot[H](q, rename[Q -> K](k)) / sqrt(H)\n"
    "  e = where(mask, exp(s), 0)\n  z = sum[K](e)\n  return dot[K](e / where(z > 0, z, 1), "
    "rename[Q -> K](v))\n}\n"
    "fn error(a, b) = sum[*]((a - b)^2)\n";

static const Case masks[] = {
    {"  q = merge[R, C -> Six](m)\n  z = error(q, q)", {0}},
    {"  y = split[Six -> C, Half](merge[R, C -> Six](m))\n  z = error(attention[C -> K; Half](y, y "
     "/ 2, y), own[C -> K; Half](y, y / 2, y))",
     {0}},
    {"  y = split[Six -> C, Half](merge[R, C -> Six](m)) / 4\n"
     "  z = error(attention[C -> K; Half](y, y, y, mask = causal), own[C -> K; Half](y, y, y, mask "
     "= causal))",
     {0}},
    {"  y = split[Six -> C, Half](merge[R, C -> Six](m)) / 4\n"
     "  z = error(attention[C -> K; Half](y, y, y, mask = causal & sliding(2)), own[C -> K; "
     "Half](y, y, y, mask = causal & sliding(2)))",
     {0}},
    {"  y = split[Six -> C, Half](merge[R, C -> Six](m)) / 4\n"
     "  z = error(attention[C -> K; Half](y, y, y, mask = same(k) | causal), own[C -> K; Half](y, "
     "y, y, mask = same(k) | causal))",
     {0}},
    {"  y = split[Six -> C, Half](merge[R, C -> Six](m)) / 4\n"
     "  z = error(attention[C -> K; Half](y, y, y, mask = padding(n < 5)), own[C -> K; Half](y, y, "
     "y, mask = padding(n < 5)))",
     {0}},
    {"  y = split[Six -> C, Half](merge[R, C -> Six](m)) / 4\n  v = expand[D](sum[Half](y))\n"
     "  z = error(attention[C -> K; Half](y, y, v), own[C -> K; Half](y, y, v))",
     {0}},
    {"  y = split[Six -> C, Half](merge[R, C -> Six](m)) / 4\n  v = expand[D](sum[Half](y))\n"
     "  z = error(attention[C -> K; Half](y, y, v, mask = causal), own[C -> K; Half](y, y, v, mask "
     "= causal))",
     {0}},
    {"  y = split[Six -> C, Half](merge[R, C -> Six](m))\n  z = sum[Half](attention[C -> K; "
     "Half](y, y, y, mask = rename[C -> K](n > 100)))",
     {0, 0, 0}},
};

static void test_masks(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) check_case(own, &masks[i]);
}

/* ---- parameters ---- */

static const char starts[] =
    "use \"std\"\ndims { Batch; N = 4000 pad 128; L = 2 }\n"
    "layer Lay(x: [*, N]) -> [*, N] with s = 1 {\n  param w [N] ~ normal(s, mean = 3) @frozen\n  "
    "return x * w\n}\n"
    "model M {\n  input x [Batch, N] f32\n  param a [N] ~ normal(2)\n  param b [N] ~ "
    "truncated_normal(2) @nodecay\n"
    "  param c [N] ~ uniform(-1, 3)\n  stack h [L] of Lay with s = [0.5, 2]\n"
    "  loss mean[*](h(x) * a * b * c)\n}\ntrain t for M { batch 1; steps 1; data columns(x = "
    "\"x\"); optim adamw lr = 1e-3 }\n";

static void expect_spread(Interp *in, const char *name, int64_t from, double mean, double std,
                          double least, double most) {
  const double *v = interp_get(in, name)->at + from;
  double sum = 0, squares = 0;
  for (int i = 0; i < 4000; i++) {
    assert_true(v[i] >= least && v[i] <= most);
    sum += v[i], squares += v[i] * v[i];
  }
  assert_true(fabs(sum / 4000 - mean) < 0.06 * std);
  assert_true(fabs(sqrt(squares / 4000 - sum / 4000 * sum / 4000) - std) < 0.05 * std);
}

static void test_init(void **state) {
  Ctx *c = ctx_new();
  Module *m = lowered_text(c, starts);
  Interp *in = interp_new(m, c->arena);
  (void)state;
  interp_set_all(in, "seed", 7);
  assert_true(interp_run(in, "init"));
  expect_spread(in, "a", 0, 0, 2, -20, 20);
  expect_spread(in, "b", 0, 0, 2 * 0.8796, -4, 4);
  expect_spread(in, "c", 0, 1, 4 / sqrt(12), -1, 3);
  expect_spread(in, "h.*.w", 0, 3, 0.5, -20, 20);
  expect_spread(in, "h.*.w", 4000, 3, 2, -20, 20);
  assert_true(module_global(m, intern(c->names, "a"))->decay &&
              !module_global(m, intern(c->names, "b"))->decay);
  assert_true(module_global(m, intern(c->names, "h.*.w"))->frozen);
  ctx_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_examples),    cmocka_unit_test(test_counts),
      cmocka_unit_test(test_elementwise), cmocka_unit_test(test_structures),
      cmocka_unit_test(test_routed),      cmocka_unit_test(test_stacks),
      cmocka_unit_test(test_aux),         cmocka_unit_test(test_masks),
      cmocka_unit_test(test_init)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
