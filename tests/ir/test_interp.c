/* The interpreter, op by op: small inputs, results by hand or by the C library. An op of ops.def
 * without a case fails. */
#include "common.h"
#include "ir/eights.h"
#include "ir/support/numbers.h"
#include "ir/support/philox.h"
#include <math.h>

static const char globals[] = "shardc-ir 1\nmodel T\n"
                              "input @a : f64[R:2, C:3]\n" /* 1 2 3 / 4 5 6 */
                              "input @b : f64[C:3]\n"      /* 0.5 -1 2 */
                              "input @u : f64[R:2, C:3]\n" /* .1 -.2 .3 / -.4 .5 -.6 */
                              "input @k : i32[R:2]\n"      /* 1 5 */
                              "input @p : bool[C:3]\n"     /* 1 0 1 */
                              "input @w : f64[V:3, E:2]\n" /* 1 2 / 3 4 / 5 6 */
                              "input @j : i32[C:3]\n";     /* 7 -7 2 */

enum { MOST = 24 };

typedef struct Case {
  const char *op, *type; /* result's type */
  const char
      *lines; /* operands: %0 = a, %1 = b, %2 = u, %3 = k, %4 = p, %5 = w, %6 = j; result: %9 */
  double want[MOST];
} Case;

static void set_inputs(Interp *in) {
  interp_set(in, "a", (double[]){1, 2, 3, 4, 5, 6});
  interp_set(in, "b", (double[]){0.5, -1, 2});
  interp_set(in, "u", (double[]){.1, -.2, .3, -.4, .5, -.6});
  interp_set(in, "k", (double[]){1, 5});
  interp_set(in, "p", (double[]){1, 0, 1});
  interp_set(in, "w", (double[]){1, 2, 3, 4, 5, 6});
  interp_set(in, "j", (double[]){7, -7, 2});
}

static void check_case(const Case *t) {
  Ctx *c = ctx_new();
  Module *m = sound_module(
      c,
      arena_printf(
          c->arena,
          "%soutput @y : %s\nentry @e {\n%%0 = load @a : f64[R:2, C:3]\n%%1 = load @b : f64[C:3]\n"
          "%%2 = load @u : f64[R:2, C:3]\n%%3 = load @k : i32[R:2]\n%%4 = load @p : bool[C:3]\n"
          "%%5 = load @w : f64[V:3, E:2]\n%%6 = load @j : i32[C:3]\n%s\nstore @y, %%9\n}\n",
          globals, t->type, t->lines));
  Interp *in = interp_new(m, c->arena);
  set_inputs(in);
  assert_true(interp_run(in, "e"));
  const Tensor *y = interp_get(in, "y");
  for (int64_t i = 0; i < type_count(&y->type); i++)
    if (!(fabs(y->at[i] - t->want[i]) <= 1e-12 * (1 + fabs(t->want[i]))))
      fail_msg("%s, element %d: %.17g, expected %.17g\n%s", t->op, (int)i, y->at[i], t->want[i],
               t->lines);
  ctx_free(c);
}

#define EACH(f)                                                                                    \
  { f(.1), f(-.2), f(.3), f(-.4), f(.5), f(-.6) }
#define EACH_A(f)                                                                                  \
  { f(1.), f(2.), f(3.), f(4.), f(5.), f(6.) }
#define UNARY(op, operand, ...)                                                                    \
  { #op, "f64[R:2, C:3]", "%9 = " #op " " operand " : f64[R:2, C:3]", __VA_ARGS__ }
#define SIGMOID(x) (1 / (1 + exp(-(x))))
#define RSQRT(x) (1 / sqrt(x))
#define NEGATED(x) (-(x))
#define ITSELF(x) (x)
#define SIGN(x) ((x) > 0 ? 1. : -1.)

static uint32_t count_ops(const Case *cases, uint32_t n, bool *seen) {
  for (uint32_t i = 0; i < n; i++) {
    OpCode op;
    assert_true(op_find(cases[i].op, &op));
    seen[op] = true;
  }
  return n;
}

static void elements(bool *seen) {
  const Case cases[] = {
#define FUNCTION(name, value, gradient, low, high, error, at, is, meaning)                         \
  {#name, "f64[]", "%8 = const {value = " #at "} : f64[]\n%9 = " #name " %8 : f64[]", {is}},
#include "ir/functions.def"
#undef FUNCTION
      UNARY(neg, "%2", EACH(NEGATED)),
      UNARY(abs, "%2", EACH(fabs)),
      UNARY(exp, "%2", EACH(exp)),
      UNARY(log, "%0", EACH_A(log)),
      UNARY(sqrt, "%0", EACH_A(sqrt)),
      UNARY(rsqrt, "%0", EACH_A(RSQRT)),
      UNARY(sin, "%2", EACH(sin)),
      UNARY(cos, "%2", EACH(cos)),
      UNARY(tanh, "%2", EACH(tanh)),
      UNARY(sigmoid, "%2", EACH(SIGMOID)),
      UNARY(erf, "%2", EACH(erf)),
      UNARY(floor, "%2", EACH(floor)),
      UNARY(sign, "%2", EACH(SIGN)),
      UNARY(copy, "%2", EACH(ITSELF)),
      UNARY(stop, "%2", EACH(ITSELF)),
      UNARY(wide, "%2", EACH(ITSELF)),
      UNARY(estimate, "%2", EACH(ITSELF)),
      UNARY(share, "%2", EACH(ITSELF)),
      {"erfinv", "f64[R:2, C:3]", "%8 = erf %2 : f64[R:2, C:3]\n%9 = erfinv %8 : f64[R:2, C:3]",
       EACH(ITSELF)},
      {"sign",
       "f64[C:3]",
       "%7 = const {value = 0} : f64[]\n%8 = mul %1, %7 : f64[C:3]\n%9 = sign %8 : f64[C:3]",
       {0}},
      {"not", "bool[C:3]", "%9 = not %4 : bool[C:3]", {0, 1, 0}},
      {"cast",
       "i32[R:2, C:3]",
       "%8 = mul %0, %2 : f64[R:2, C:3]\n%9 = cast %8 : i32[R:2, C:3]",
       {0, 0, 0, -1, 2, -3}},
      {"cast", "f32[C:3]", "%9 = cast %4 : f32[C:3]", {1, 0, 1}},
      {"cast", "bool[C:3]", "%9 = cast %6 : bool[C:3]", {1, 1, 1}},
      {"cast", "u8[C:3]", "%9 = cast %6 : u8[C:3]", {7, 0, 2}},
      {"cast",
       "u8[R:2, C:3]",
       "%8 = mul %0, %0 : f64[R:2, C:3]\n%7 = mul %8, %8 : f64[R:2, C:3]\n"
       "%9 = cast %7 : u8[R:2, C:3]",
       {1, 16, 81, 255, 255, 255}},
      {"add", "f64[R:2, C:3]", "%9 = add %0, %1 : f64[R:2, C:3]", {1.5, 1, 5, 4.5, 4, 8}},
      {"sub", "f64[R:2, C:3]", "%9 = sub %1, %0 : f64[R:2, C:3]", {-.5, -3, -1, -3.5, -6, -4}},
      {"mul", "f64[R:2, C:3]", "%9 = mul %0, %1 : f64[R:2, C:3]", {.5, -2, 6, 2, -5, 12}},
      {"div", "f64[R:2, C:3]", "%9 = div %0, %1 : f64[R:2, C:3]", {2, -2, 1.5, 8, -5, 3}},
      {"div", "i32[C:3]", "%8 = const {value = 2} : i32[]\n%9 = div %6, %8 : i32[C:3]", {3, -3, 1}},
      {"pow", "f64[R:2, C:3]", "%9 = pow %0 {value = 3} : f64[R:2, C:3]", {1, 8, 27, 64, 125, 216}},
      {"min", "f64[R:2, C:3]", "%9 = min %0, %1 : f64[R:2, C:3]", {.5, -1, 2, .5, -1, 2}},
      {"max", "f64[R:2, C:3]", "%9 = max %1, %2 : f64[R:2, C:3]", {.5, -.2, 2, .5, .5, 2}},
      {"logaddexp",
       "f64[R:2, C:3]",
       "%9 = logaddexp %0, %1 : f64[R:2, C:3]",
       {1.47407698418011, 2.04858735157374, 3.31326168751822, 4.02975041827262, 5.00247568513773,
        6.01814992791781}},
      {"quantize",
       "f32[R:2, C:3]",
       "%7 = cast %0 : f32[R:2, C:3]\n%8 = const {value = 240000} : f32[]\n"
       "%9 = quantize %7, %8 {format = \"e4m3\"} : f32[R:2, C:3]", /* in steps of 2 */
       {0, 2, 4, 4, 4, 6}},
      {"lt", "bool[R:2, C:3]", "%9 = lt %2, %1 : bool[R:2, C:3]", {1, 0, 1, 1, 0, 1}},
      {"le", "bool[C:3]", "%9 = le %6, %6 : bool[C:3]", {1, 1, 1}},
      {"eq",
       "bool[R:2, C:3]",
       "%8 = const {value = 5} : f64[]\n%9 = eq %0, %8 : bool[R:2, C:3]",
       {0, 0, 0, 0, 1, 0}},
      {"and", "bool[C:3]", "%8 = lt %1, %1 : bool[C:3]\n%9 = and %4, %8 : bool[C:3]", {0}},
      {"or", "bool[C:3]", "%8 = not %4 : bool[C:3]\n%9 = or %4, %8 : bool[C:3]", {1, 1, 1}},
      {"lookup",
       "bool[C:3, R:2]",
       "%7 = iota[R] : i32[R:2]\n%8 = expand[R] %6 : i32[C:3, R:2]\n%9 = lookup %7, %8 {columns = "
       "8, runs = [7, 2, 5, 1]} : bool[C:3, R:2]",
       {1, 0, 0, 0, 0, 0}},
      {"where", "f64[R:2, C:3]", "%9 = where %4, %0, %1 : f64[R:2, C:3]", {1, -1, 3, 4, -1, 6}},
  };
  uint32_t n = count_ops(cases, sizeof cases / sizeof *cases, seen);
  for (uint32_t i = 0; i < n; i++) check_case(&cases[i]);
}

static void reductions(bool *seen) {
  const Case cases[] = {
      {"sum", "f64[R:2]", "%9 = sum[C] %0 : f64[R:2]", {6, 15}},
      {"sum", "f64[]", "%9 = sum[R, C] %0 : f64[]", {21}},
      {"rmax", "f64[C:3]", "%9 = rmax[R] %2 : f64[C:3]", {.1, .5, .3}},
      {"rmin", "f64[R:2]", "%9 = rmin[C] %2 : f64[R:2]", {-.2, -.6}},
      {"argmax", "i32[R:2]", "%9 = argmax[C] %2 : i32[R:2]", {2, 1}},
      {"cumsum", "f64[R:2, C:3]", "%9 = cumsum[C] %0 : f64[R:2, C:3]", {1, 3, 6, 4, 9, 15}},
      {"cumsum",
       "f64[R:2, C:3]",
       "%9 = cumsum[C] %0 {inverse = 1} : f64[R:2, C:3]",
       {6, 5, 3, 15, 11, 6}},
      {"dot", "f64[R:2]", "%9 = dot[C] %0, %1 : f64[R:2]", {4.5, 9}},
      {"dot",
       "f64[C:3, E:2]",
       "%7 = rename[V -> R] %5 : f64[R:3, E:2]\n%8 = slice[R -> R] %7 {at = 1} : f64[R:2, E:2]\n"
       "%9 = dot[R] %0, %8 : f64[C:3, E:2]",
       {23, 28, 31, 38, 39, 48}},
      {"gather", "f64[R:2, E:2]", "%9 = gather[V] %5, %3 : f64[R:2, E:2]", {3, 4, 0, 0}},
      {"gather", "f64[R:2]", "%9 = gather[C] %0, %3 : f64[R:2]", {2, 0}},
      {"scatter",
       "f64[C:3, D:3]",
       "%9 = scatter[R -> D] %0, %3 : f64[C:3, D:3]",
       {0, 1, 0, 0, 2, 0, 0, 3, 0}},
      {"scatter",
       "f64[D:2, R:2]",
       "%8 = const {value = 0} : i32[]\n%7 = mul %6, %8 : i32[C:3]\n"
       "%9 = scatter[C -> D] %0, %7 : f64[D:2, R:2]",
       {6, 15, 0, 0}},
  };
  uint32_t n = count_ops(cases, sizeof cases / sizeof *cases, seen);
  for (uint32_t i = 0; i < n; i++) check_case(&cases[i]);
}

static void structure(bool *seen) {
  const double c1 = cos(1), s1 = sin(1), c2 = cos(.1), s2 = sin(.1);
  const Case cases[] = {
      {"const", "f64[]", "%9 = const {value = 2.5} : f64[]", {2.5}},
      {"iota", "i32[N:4]", "%9 = iota[N] : i32[N:4]", {0, 1, 2, 3}},
      {"expand", "f64[C:3, N:2]", "%9 = expand[N] %1 : f64[C:3, N:2]", {.5, .5, -1, -1, 2, 2}},
      {"rename",
       "f64[C:2, R:3]",
       "%9 = rename[R -> C; C -> R] %0 : f64[C:2, R:3]",
       {1, 2, 3, 4, 5, 6}},
      {"split",
       "f64[R:2, C:3, N:1]",
       "%9 = split[C -> C, N] %0 : f64[R:2, C:3, N:1]",
       {1, 2, 3, 4, 5, 6}},
      {"split",
       "f64[A:3, B:2]",
       "%8 = merge[R, C -> D] %0 : f64[D:6]\n%9 = split[D -> A, B] %8 : f64[A:3, B:2]",
       {1, 2, 3, 4, 5, 6}},
      {"merge", "f64[D:6]", "%9 = merge[C, R -> D] %0 : f64[D:6]", {1, 4, 2, 5, 3, 6}},
      {"pack_bits",
       "u8[S:3, E:2]",
       "%10 = iota[D] : i32[D:16]\n%11 = expand[S] %10 : i32[S:3, D:16]\n%12 = rename[C -> S] %6 : "
       "i32[S:3]\n"
       "%13 = le %11, %12 : bool[S:3, D:16]\n%9 = pack_bits[D -> E] %13 : u8[S:3, E:2]",
       {255, 0, 0, 0, 7, 0}},
      {"unpack_bits",
       "bool[D:8, R:2]",
       "%8 = cast %3 : u8[R:2]\n%10 = stack[E] %8 : u8[E:1, R:2]\n"
       "%9 = unpack_bits[E -> D] %10 : bool[D:8, R:2]",
       {1, 1, 0, 0, 0, 1}},
      {"slice", "f64[R:2, N:2]", "%9 = slice[C -> N] %0 {at = 1} : f64[R:2, N:2]", {2, 3, 5, 6}},
      {"pad", "f64[N:5]", "%9 = pad[C -> N] %1 {at = 1, fill = 9} : f64[N:5]", {9, .5, -1, 2, 9}},
      {"shift",
       "f64[R:2, C:3]",
       "%9 = shift[C] %0 {by = 1, fill = 7} : f64[R:2, C:3]",
       {7, 1, 2, 7, 4, 5}},
      {"shift", "f64[R:2, C:3]", "%9 = shift[C] %0 {by = -2} : f64[R:2, C:3]", {3, 0, 0, 6, 0, 0}},
      {"shift", "f64[C:3]", "%9 = shift[C] %1 {by = 5} : f64[C:3]", {0}},
      {"unstack", "f64[C:3]", "%7, %9 = unstack[R] %0 : f64[C:3], f64[C:3]", {4, 5, 6}},
      {"stack", "f64[N:2, C:3]", "%9 = stack[N] %1, %1 : f64[N:2, C:3]", {.5, -1, 2, .5, -1, 2}},
      {"concat",
       "f64[R:2, D:6]",
       "%9 = concat[C, C -> D] %0, %2 : f64[R:2, D:6]",
       {1, 2, 3, .1, -.2, .3, 4, 5, 6, -.4, .5, -.6}},
      {"rope",
       "f64[V:3, E:2]",
       "%9 = rope[V; E] %5 {theta = 100} : f64[V:3, E:2]",
       {1, 2, 3 * c1 - 4 * s1, 4 * c1 + 3 * s1, 5 * cos(2) - 6 * sin(2), 6 * cos(2) + 5 * sin(2)}},
      {"rope",
       "f64[V:3, E:2]",
       "%8 = rope[V; E] %5 {theta = 100} : f64[V:3, E:2]\n"
       "%9 = rope[V; E] %8 {theta = 100, inverse = 1} : f64[V:3, E:2]",
       {1, 2, 3, 4, 5, 6}},
  };
  uint32_t n = count_ops(cases, sizeof cases / sizeof *cases, seen);
  for (uint32_t i = 0; i < n; i++) check_case(&cases[i]);
  const Case positions = {
      "rope",
      "f64[S:2, D:4]",
      "%10 = iota[D] : i32[D:4]\n%11 = expand[S] %10 : i32[S:2, D:4]\n%12 = cast %11 : f64[S:2, "
      "D:4]\n"
      "%13 = iota[S] : i32[S:2]\n%9 = rope[S; D] %12, %13 {theta = 100} : f64[S:2, D:4]",
      {0, 1, 2, 3, 0 * c1 - 2 * s1, 1 * c2 - 3 * s2, 2 * c1 + 0 * s1, 3 * c2 + 1 * s2}};
  check_case(&positions);
}

/* y, lse and gradients against the same mathematics written with small ops, f64; dims of grouped
 * heads. */
static const char attention[] =
    "shardc-ir 1\nmodel T\ninput @q : f64[S:3, G:2, D:2]\ninput @k : f64[K:4, D:2]\ninput @v : "
    "f64[K:4, D:2]\n"
    "input @g : f64[S:3, G:2, D:2]\noutput @y : f64[S:3, G:2, D:2]\noutput @lse : f32[S:3, G:2]\n"
    "output @z : f64[S:3, G:2, D:2]\noutput @loss : f64[]\n"
    "output @dq : f64[S:3, G:2, D:2]\noutput @dk : f64[K:4, D:2]\noutput @dv : f64[K:4, D:2]\n"
    "entry @e {\n"
    "%0 = load @q : f64[S:3, G:2, D:2]\n%1 = load @k : f64[K:4, D:2]\n%2 = load @v : f64[K:4, "
    "D:2]\n"
    "%3 = iota[S] : i32[S:3]\n%4 = iota[K] : i32[K:4]\n%5 = expand[S] %4 : i32[S:3, K:4]\n%6 = le "
    "%5, %3 : bool[S:3, K:4]\n"
    "%7, %8 = attention[S -> K; D] %0, %1, %2, %6 {scale = 0.7} : f64[S:3, G:2, D:2], f32[S:3, "
    "G:2]\n"
    "store @y, %7\nstore @lse, %8\n"
    "%9 = dot[D] %0, %1 : f64[S:3, G:2, K:4]\n%10 = const {value = 0.7} : f64[]\n%11 = mul %9, %10 "
    ": f64[S:3, G:2, K:4]\n"
    "%12 = const {value = -1e9} : f64[]\n%13 = where %6, %11, %12 : f64[S:3, G:2, K:4]\n"
    "%14 = rmax[K] %13 : f64[S:3, G:2]\n%15 = sub %13, %14 : f64[S:3, G:2, K:4]\n%16 = exp %15 : "
    "f64[S:3, G:2, K:4]\n"
    "%17 = sum[K] %16 : f64[S:3, G:2]\n%18 = div %16, %17 : f64[S:3, G:2, K:4]\n"
    "%19 = dot[K] %18, %2 : f64[S:3, G:2, D:2]\nstore @z, %19\n"
    "%20 = load @g : f64[S:3, G:2, D:2]\n%21 = mul %7, %20 : f64[S:3, G:2, D:2]\n%22 = sum[S, G, "
    "D] %21 : f64[]\n"
    "store @loss, %22\n"
    "%23, %24, %25 = attention_grad[S -> K; D] %0, %1, %2, %7, %8, %20, %6 {scale = 0.7} : "
    "f64[S:3, G:2, D:2], "
    "f64[K:4, D:2], f64[K:4, D:2]\nstore @dq, %23\nstore @dk, %24\nstore @dv, %25\n}\n";

static double loss_with(Interp *in, const char *name, double *data, int i, double h) {
  data[i] += h;
  interp_set(in, name, data);
  interp_run(in, "e");
  data[i] -= h;
  return interp_get(in, "loss")->at[0];
}

static void check_gradient(Interp *in, const char *name, const char *gradient, double *data,
                           int n) {
  for (int i = 0; i < n; i++) {
    double up = loss_with(in, name, data, i, 1e-5), down = loss_with(in, name, data, i, -1e-5);
    interp_set(in, name, data);
    interp_run(in, "e");
    assert_true(fabs((up - down) / 2e-5 - interp_get(in, gradient)->at[i]) < 1e-8);
  }
}

static void attention_and_its_gradient(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Interp *in = interp_new(sound_module(c, attention), c->arena);
  interp_set_round(in, false);
  double q[12], k[8], v[8], g[12];
  for (int i = 0; i < 12; i++) q[i] = sin(i + 1), g[i] = cos(3 * i);
  for (int i = 0; i < 8; i++) k[i] = sin(2 * i + .5), v[i] = cos(i * i);
  interp_set(in, "q", q), interp_set(in, "k", k), interp_set(in, "v", v), interp_set(in, "g", g);
  assert_true(interp_run(in, "e"));
  for (int i = 0; i < 12; i++)
    assert_true(fabs(interp_get(in, "y")->at[i] - interp_get(in, "z")->at[i]) < 1e-13);
  check_gradient(in, "q", "dq", q, 12);
  check_gradient(in, "k", "dk", k, 8);
  check_gradient(in, "v", "dv", v, 8);
  ctx_free(c);
}

static void a_query_without_keys_gives_zero(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = sound_module(
      c,
      "shardc-ir 1\nmodel T\ninput @q : f32[S:2, D:2]\ninput @k : f32[K:2, D:2]\ninput @m : "
      "bool[S:2, K:2]\n"
      "output @y : f32[S:2, D:2]\noutput @l : f32[S:2]\nentry @e {\n%0 = load @q : f32[S:2, D:2]\n"
      "%1 = load @k : f32[K:2, D:2]\n%2 = load @m : bool[S:2, K:2]\n"
      "%3, %4 = attention[S -> K; D] %0, %1, %1, %2 {scale = 1} : f32[S:2, D:2], f32[S:2]\n"
      "store @y, %3\nstore @l, %4\n}\n");
  Interp *in = interp_new(m, c->arena);
  interp_set_all(in, "q", 1), interp_set(in, "k", (double[]){1, 2, 3, 4}),
      interp_set(in, "m", (double[]){0, 0, 0, 1});
  assert_true(interp_run(in, "e"));
  const double *y = interp_get(in, "y")->at;
  assert_true(y[0] == 0 && y[1] == 0 && y[2] == 3 && y[3] == 4);
  assert_true(interp_get(in, "l")->at[0] == -INFINITY && interp_get(in, "l")->at[1] == 7);
  ctx_free(c);
}

/* x <- x + s[i] * i over the rounds; x before each round is delivered stacked. */
static void check_loop(const char *reverse, const double *want, const double *before) {
  Ctx *c = ctx_new();
  Module *m = sound_module(
      c,
      arena_printf(
          c->arena,
          "shardc-ir 1\nmodel T\ninput @x : f64[A:2]\ninput @s : f64[L:3, A:2]\ninput @i : f64[]\n"
          "output @y : f64[A:2]\noutput @z : f64[L:3, A:2]\n"
          "body @b(%%0 : i32[], %%1 : f64[A:2], %%2 : f64[], %%3 : f64[A:2]) {\n"
          "%%4 = cast %%0 : f64[]\n%%5 = mul %%3, %%4 : f64[A:2]\n%%6 = mul %%5, %%2 : f64[A:2]\n"
          "%%7 = mul %%1, %%2 : f64[A:2]\n%%8 = add %%7, %%6 : f64[A:2]\nreturn %%8, %%1\n}\n"
          "entry @e {\n%%0 = load @x : f64[A:2]\n%%1 = load @s : f64[L:3, A:2]\n%%2 = load @i : "
          "f64[]\n"
          "%%3, %%4 = loop[L] @b, %%0, %%2, %%1 {carry = 1, invariant = 1, trip = 3%s} : f64[A:2], "
          "f64[L:3, A:2]\nstore @y, %%3\nstore @z, %%4\n}\n",
          reverse));
  Interp *in = interp_new(m, c->arena);
  interp_set(in, "x", (double[]){1, 2}), interp_set_all(in, "i", 2);
  interp_set(in, "s", (double[]){10, 20, 30, 40, 50, 60});
  assert_true(interp_run(in, "e"));
  for (int i = 0; i < 2; i++) assert_true(interp_get(in, "y")->at[i] == want[i]);
  for (int i = 0; i < 6; i++) assert_true(interp_get(in, "z")->at[i] == before[i]);
  ctx_free(c);
}

static void loops(void **state) {
  (void)state;
  check_loop("", (double[]){328, 416}, (double[]){1, 2, 2, 4, 64, 88});
  check_loop(", reverse = 1", (double[]){928, 1136}, (double[]){464, 568, 202, 244, 1, 2});
}

/* Rounds 2 and 3, then 0 and 1, of four: squares of the counter added to slices of s; one loop
   keeps its results for itself, two write one stack of all, a third reads slices 1 to 2 of that. */
static void parts_of_loops(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = sound_module(
      c,
      "shardc-ir 1\nmodel T\ninput @s : f64[L:4]\noutput @y : f64[L:4]\noutput @z : f64[L:2]\n"
      "output @x : f64[]\nbody @b(%0 : i32[], %1 : f64[]) {\n%2 = cast %0 : f64[]\n%3 = mul %2, "
      "%2 : f64[]\n%4 = add %3, %1 : f64[]\nreturn %4, %4\n}\n"
      "body @n(%0 : i32[], %1 : f64[], %2 : f64[]) {\n%3 = cast %0 : f64[]\n%4 = mul %3, %3 : "
      "f64[]\n%5 = add %4, %1 : f64[]\nreturn %5\n}\n"
      "body @t(%0 : i32[], %1 : f64[], %2 : f64[], %3 : f64[]) {\n%4 = add %2, %3 : f64[]\n%5 = "
      "add %1, %4 : f64[]\nreturn %5\n}\n"
      "entry @e {\n%0 = load @s : f64[L:4]\n"
      "%1, %2 = loop[L] @b, %0 {carry = 0, invariant = 0, trip = 2, start = 2, stack_length = "
      "4, continues = "
      "[-2, -1], reverse = 1} : f64[L:4], f64[L:2]\n"
      "%3 = loop[L] @n, %0, %1 {carry = 0, invariant = 0, trip = 2, stack_length = 4, continues = "
      "[1]} : "
      "f64[L:4]\n%4 = const {value = 0} : f64[]\n"
      "%5 = loop[L] @t, %4, %3, %2 {carry = 1, invariant = 0, trip = 2, start = 1, stack_length "
      "= 4} : "
      "f64[]\nstore @y, %3\nstore @z, %2\nstore @x, %5\n}\n");
  Interp *in = interp_new(m, c->arena);
  interp_set(in, "s", (double[]){10, 20, 30, 40});
  assert_true(interp_run(in, "e"));
  const double all[] = {10, 21, 34, 49};
  for (int i = 0; i < 4; i++) assert_true(interp_get(in, "y")->at[i] == all[i]);
  for (int i = 0; i < 2; i++) assert_true(interp_get(in, "z")->at[i] == all[2 + i]);
  assert_true(interp_get(in, "x")->at[0] == 21 + 34 + 34 + 49);
  ctx_free(c);
}

static void calls_and_stores(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = sound_module(
      c,
      "shardc-ir 1\nmodel T\nparam @p : f32[A:2, B:2]\noutput @y : f32[A:2, B:2]\n"
      "kernel @k(%0 : f32[B:2, A:2]) {\n%1 = exp %0 : f32[B:2, A:2]\nreturn %1\n}\n"
      "body @f(%0 : f32[A:2, B:2]) {\n%1 = kernel @k, %0 : f32[B:2, A:2]\nreturn %1\n}\n"
      "entry @e {\n%0 = load @p : f32[A:2, B:2]\n%1 = call @f, %0 : f32[B:2, A:2]\nstore @p, %1\n"
      "%2 = load @p : f32[A:2, B:2]\nstore @y, %2\n}\n");
  Interp *in = interp_new(m, c->arena);
  interp_set(in, "p", (double[]){0, 1, 2, 3});
  assert_true(interp_run(in, "e"));
  for (int i = 0; i < 4; i++) {
    assert_true(interp_get(in, "y")->at[i] == i); /* loads see the state of the start */
    assert_true(interp_get(in, "p")->at[i] == (float)exp(i));
  }
  assert_false(interp_run(in, "nothing"));
  assert_non_null(strstr(interp_error(in), "nothing"));
  assert_null(interp_get(in, "nothing"));
  double x[] = {0, 1, 2, 3};
  Type t = *value_type(m->fns.at[0], 0);
  Tensor arg = {t, x}, result;
  interp_call(in, m->fns.at[0], &arg, &result);
  assert_true(result.at[3] == (float)exp(3));
  ctx_free(c);
}

static void random_numbers(void **state) {
  (void)state;
  Philox zero = philox((Philox){{0}}, 0, 0),
         ones = philox((Philox){{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u);
  assert_true(zero.word[0] == 0x6627e8d5 && zero.word[3] == 0x9b00dbd8); /* published vectors */
  assert_true(ones.word[0] == 0x408f276d && ones.word[3] == 0x6d5451fd);
  Ctx *c = ctx_new();
  Module *m = sound_module(
      c,
      "shardc-ir 1\nmodel T\nscalar @seed : i64[]\nscalar @step : i32[]\noutput @y : f32[A:2, "
      "B:3]\n"
      "entry @e {\n%0 = load @seed : i64[]\n%1 = load @step : i32[]\n%2 = const {value = 100} : "
      "i64[]\n"
      "%3 = rand[B, A] %0, %1, %2 {key = 77, strides = [2, 1]} : f32[A:2, B:3]\nstore @y, %3\n}\n");
  Interp *in = interp_new(m, c->arena);
  interp_set_all(in, "seed", 5e9), interp_set_all(in, "step", 3);
  assert_true(interp_run(in, "e"));
  for (int a = 0; a < 2; a++)
    for (int b = 0; b < 3; b++)
      assert_true(interp_get(in, "y")->at[a * 3 + b] ==
                  philox_uniform(5000000000, 77, 3, (uint64_t)(100 + 2 * b + a)));
  ctx_free(c);
}

static Interp *run_line(Ctx *c, const char *lines, double noise, bool exact_codes) {
  Interp *in = interp_new(sound_module(c, lines), c->arena);
  interp_set_round(in, false), interp_set_all(in, "x", 0.7);
  interp_set_noise(in, noise, 1), interp_set_exact_codes(in, exact_codes);
  assert_true(interp_run(in, "e"));
  return in;
}

/* A result that is mathematically zero consists of noise; whole numbers have none. */
static void noise(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  const char *lines =
      "shardc-ir 1\nmodel T\n"
      "input @x : f32[]\noutput @y : f32[]\noutput @z : f32[]\n"
      "entry @e {\n%0 = load @x : f32[]\n%1 = exp %0 : f32[]\n%2 = exp %0 : f32[]\n"
      "%3 = sub %1, %2 : f32[]\n%4 = floor %1 : f32[]\nstore @y, %3\nstore @z, %4\n}\n";
  Interp *in = run_line(c, lines, 1e-6, false);
  double off = fabs(interp_get(in, "y")->at[0]);
  assert_true(off > 0 && off < 2 * 1e-6 * exp(0.7) + 1e-9);
  assert_true(interp_get(in, "z")->at[0] == 2);
  assert_true(interp_get(run_line(c, lines, 0, false), "y")->at[0] == 0);
  ctx_free(c);
}

static void codes(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  const char *lines =
      "shardc-ir 1\nmodel T\n"
      "input @x : f32[]\noutput @y : f32[]\n"
      "entry @e {\n%0 = load @x : f32[]\n%1 = const {value = 100.5} : f32[]\n"
      "%2 = add %0, %1 : f32[]\n%3 = cast %2 : u8[]\n%4 = cast %3 : f32[]\nstore @y, %4\n}\n";
  assert_true(interp_get(run_line(c, lines, 0, false), "y")->at[0] == 101);
  assert_true(fabs(interp_get(run_line(c, lines, 0, true), "y")->at[0] - 100.7) < 1e-12);
  ctx_free(c);
}

/* By hand: 448 and 57344 are the largest numbers, 2^-9 and 2^-16 the smallest. */
static void eights(void **state) {
  (void)state;
  const struct {
    const char *format;
    double x, most, is;
  } rows[] = {{"e4m3", 1.0625, 448, 1},        {"e4m3", 1.1875, 448, 1.25},
              {"e4m3", -1.07, 448, -1.125},    {"e4m3", 448, 448, 448},
              {"e4m3", 0x1p-9, 448, 0x1p-9},   {"e4m3", 0x1p-10, 448, 0},
              {"e4m3", 0x1.8p-9, 448, 0x1p-8}, {"e4m3", 449, 449, 448},
              {"e4m3", 0x1p-9, 449, 0},        {"e4m3", 0x1.1p-60, 0x1.1p-60, 0x1p-60},
              {"e4m3", 3, 0x1p99, 0},          {"e5m2", 1.125, 57344, 1},
              {"e5m2", 1.375, 57344, 1.5},     {"e5m2", 0x1p-16, 57344, 0x1p-16},
              {"e5m2", 0x1p-17, 57344, 0},     {"e4m3", 0, 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double y = eights_round(eights_format(rows[i].format), rows[i].x, rows[i].most);
    if (y != rows[i].is)
      fail_msg("%s of %g, most %g: %g", rows[i].format, rows[i].x, rows[i].most, y);
  }
  assert_true(isnan(eights_round(eights_format("e4m3"), 1, INFINITY)));
  assert_true(isnan(eights_round(eights_format("e4m3"), 1, 0x1.1p100)));
  assert_null(eights_format("e3m4"));
  Ctx *c = ctx_new();
  const char *lines = "shardc-ir 1\nmodel T\ninput @x : f32[]\noutput @y : f32[]\n"
                      "entry @e {\n%0 = load @x : f32[]\n%1 = const {value = 448} : f32[]\n"
                      "%2 = quantize %0, %1 {format = \"e4m3\"} : f32[]\nstore @y, %2\n}\n";
  assert_true(interp_get(run_line(c, lines, 0, false), "y")->at[0] ==
              0.7); /* doubles round nothing */
  Interp *in = interp_new(sound_module(c, lines), c->arena);
  interp_set_all(in, "x", 0.7);
  assert_true(interp_run(in, "e") && interp_get(in, "y")->at[0] == 0.6875);
  ctx_free(c);
}

static void rounding(void **state) {
  (void)state;
  for (uint32_t h = 0; h < 65536; h++) {
    float half = f32_from_f16((uint16_t)h), brain = f32_from_bf16((uint16_t)h);
    if (half == half) assert_true(f16_from_f32(half) == h);
    else assert_true(isnan(f32_from_f16(f16_from_f32(half))));
    if (brain == brain) assert_true(bf16_from_f32(brain) == h);
    else assert_true(isnan(f32_from_bf16(bf16_from_f32(brain))));
  }
  assert_true(bf16_from_f32(1.00390625f) == 0x3f80 &&
              bf16_from_f32(1.01171875f) == 0x3f82); /* ties to even */
  assert_true(f16_from_f32(65519.996f) == 0x7bff && f16_from_f32(65520.f) == 0x7c00);
  assert_true(f16_from_f32(0x1p-25f) == 0 && f16_from_f32(0x1.8p-24f) == 2 &&
              f16_from_f32(-0x1p-24f) == 0x8001);
}

static void stays_exact_near_the_ends_of_erfinv(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = sound_module(
      c, "shardc-ir 1\nmodel T\ninput @x : f64[N:8]\noutput @y : f64[N:8]\nentry @e {\n"
         "%0 = load @x : f64[N:8]\n%1 = erfinv %0 : f64[N:8]\nstore @y, %1\n}\n");
  Interp *in = interp_new(m, c->arena);
  const double x[] = {-0.99999999, -0.9, -1e-7, 0, 1e-3, 0.49999, 0.7, 1 - 0x1p-24};
  interp_set(in, "x", x);
  assert_true(interp_run(in, "e"));
  for (int i = 0; i < 8; i++) {
    double y = interp_get(in, "y")->at[i], tail = erfc(fabs(y)), want = 1 - fabs(x[i]);
    assert_true(fabs(tail - want) <= 1e-14 * want + 1e-16 && (y < 0) == (x[i] < 0));
  }
  ctx_free(c);
}

static void every_op(void **state) {
  (void)state;
  bool seen[OP_COUNT] = {false};
  elements(seen), reductions(seen), structure(seen);
  static const OpCode elsewhere[] = {OP_rand,   OP_attention, OP_attention_grad,
                                     OP_load,   OP_store,     OP_call,
                                     OP_kernel, OP_loop}; /* the other tests of this file */
  for (int i = 0; i < OP_COUNT; i++)                      /* test_ranks.c */
    seen[i] |= op_family((OpCode)i) == FAMILY_COLLECTIVE || i == OP_wait || i == OP_move;
  for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) seen[elsewhere[i]] = true;
  for (int i = 0; i < OP_COUNT; i++)
    if (!seen[i]) fail_msg("op %s has no case", op_name((OpCode)i));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_op),
      cmocka_unit_test(attention_and_its_gradient),
      cmocka_unit_test(a_query_without_keys_gives_zero),
      cmocka_unit_test(loops),
      cmocka_unit_test(parts_of_loops),
      cmocka_unit_test(calls_and_stores),
      cmocka_unit_test(random_numbers),
      cmocka_unit_test(noise),
      cmocka_unit_test(codes),
      cmocka_unit_test(rounding),
      cmocka_unit_test(eights),
      cmocka_unit_test(stays_exact_near_the_ends_of_erfinv),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
