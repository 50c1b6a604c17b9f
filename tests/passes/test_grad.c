/* Gradients of every op, and of the golden files of loops and blocks, against central differences
   in double precision. An op that has a row in grad.def and no case in this file fails. */
#include "common.h"
#include <string.h>

#define HEAD "shardc-ir 1\nmodel T\nafter lower\n"
#define STEP "\nentry @step {\n"

typedef struct Case {
  const char *op, *globals, *ops;
} Case;

/* Globals that most cases use: positive p, any a and b, a vector v, a matrix w, an index i. */
#define GLOBALS                                                                                    \
  "param @a : f32[R:2, C:3]\nparam @b : f32[R:2, C:3]\nparam @v : f32[C:3]\n"                      \
  "param @w : f32[V:3, E:2]\ninput @i : i32[R:2]\ninput @k : bool[C:3]\n"
#define LOADS                                                                                      \
  "%0 = load @a : f32[R:2, C:3]\n%1 = load @b : f32[R:2, C:3]\n%2 = load @v : f32[C:3]\n"          \
  "%3 = load @w : f32[V:3, E:2]\n%4 = load @i : i32[R:2]\n%5 = load @k : bool[C:3]\n"              \
  "%6 = mul %0, %0 : f32[R:2, C:3]\n%7 = const {value = 0.5} : f32[]\n"                            \
  "%8 = add %6, %7 : f32[R:2, C:3]\n%9 = mul %0, %7 : f32[R:2, C:3]\n" /* %8 > 0; |%9| < 0.5 */
#define UNARY(name, operand)                                                                       \
  { #name, NULL, "%10 = " #name " " operand " : f32[R:2, C:3]\nstore @y, %10\n" }
#define Y(op, type, lines)                                                                         \
  { op, "output @y : " type "\n", lines "store @y, %10\n" }

static const Case cases[] = {
#define FUNCTION(name, ...) UNARY(name, "%8"),
#include "ir/functions.def"
#undef FUNCTION
    UNARY(neg, "%0"),
    UNARY(abs, "%0"),
    UNARY(exp, "%0"),
    UNARY(log, "%8"),
    UNARY(sqrt, "%8"),
    UNARY(rsqrt, "%8"),
    UNARY(sin, "%0"),
    UNARY(cos, "%0"),
    UNARY(tanh, "%0"),
    UNARY(sigmoid, "%0"),
    UNARY(erf, "%0"),
    UNARY(erfinv, "%9"),
    UNARY(copy, "%0"),
    UNARY(wide, "%0"),
    UNARY(estimate, "%0"),
    UNARY(share, "%0"),
    Y("cast", "f64[R:2, C:3]", "%10 = cast %0 : f64[R:2, C:3]\n"),
    UNARY(add, "%0, %2"),
    UNARY(add, "%0, %0"),
    UNARY(sub, "%2, %0"),
    UNARY(sub, "%0, %1"),
    UNARY(mul, "%0, %2"),
    UNARY(mul, "%1, %0"),
    UNARY(mul, "%0, %0"),
    UNARY(div, "%0, %8"),
    UNARY(div, "%2, %8"),
    UNARY(min, "%0, %2"),
    UNARY(max, "%2, %0"),
    UNARY(min, "%0, %1"),
    Y("pow", "f32[R:2, C:3]", "%10 = pow %8 {value = 2.5} : f32[R:2, C:3]\n"),
    Y("pow", "f32[R:2, C:3]", "%10 = pow %0 {value = 3} : f32[R:2, C:3]\n"),
    Y("pow", "f32[R:2, C:3]", "%10 = pow %8 {value = -0.5} : f32[R:2, C:3]\n"),
    UNARY(where, "%5, %0, %2"),
    UNARY(where, "%5, %7, %0"),
    UNARY(where, "%5, %1, %7"),
    Y("sum", "f32[C:3]", "%10 = sum[R] %0 : f32[C:3]\n"),
    Y("sum", "f32[]", "%10 = sum[R, C] %6 : f32[]\n"),
    Y("rmax", "f32[R:2]", "%10 = rmax[C] %0 : f32[R:2]\n"),
    Y("rmax", "f32[]", "%10 = rmax[R, C] %0 : f32[]\n"),
    Y("rmin", "f32[C:3]", "%10 = rmin[R] %0 : f32[C:3]\n"),
    Y("rmin", "f32[]", "%10 = rmin[C, R] %0 : f32[]\n"),
    Y("cumsum", "f32[R:2, C:3]", "%10 = cumsum[C] %0 : f32[R:2, C:3]\n"),
    Y("cumsum", "f32[R:2, C:3]", "%10 = cumsum[R] %0 {inverse = 1} : f32[R:2, C:3]\n"),
    Y("expand", "f32[C:3, N:2, M:4]", "%10 = expand[N, M] %2 : f32[C:3, N:2, M:4]\n"),
    Y("rename", "f32[R:2, D:3]", "%10 = rename[C -> D] %0 : f32[R:2, D:3]\n"),
    Y("rename", "f32[R:3, C:2]", "%10 = rename[C -> R; R -> C] %0 : f32[R:3, C:2]\n"),
    Y("split", "f32[R:2, P:3, Q:1]", "%10 = split[C -> P, Q] %0 : f32[R:2, P:3, Q:1]\n"),
    Y("merge", "f32[M:6]", "%10 = merge[C, R -> M] %0 : f32[M:6]\n"),
    Y("slice", "f32[R:2, D:2]", "%10 = slice[C -> D] %0 {at = 1} : f32[R:2, D:2]\n"),
    Y("pad", "f32[R:2, D:6]", "%10 = pad[C -> D] %0 {at = 2, fill = 7} : f32[R:2, D:6]\n"),
    Y("shift", "f32[R:2, C:3]", "%10 = shift[C] %0 {by = 1, fill = 5} : f32[R:2, C:3]\n"),
    Y("shift", "f32[R:2, C:3]", "%10 = shift[C] %0 {by = -2, fill = 0} : f32[R:2, C:3]\n"),
    {"unstack", "output @y : f32[C:3]\n",
     "%10, %11 = unstack[R] %0 : f32[C:3], f32[C:3]\nstore @y, %11\n"},
    {"unstack", "output @y : f32[C:3]\n",
     "%10, %11 = unstack[R] %0 : f32[C:3], f32[C:3]\n%12 = mul %10, %11 : f32[C:3]\nstore @y, "
     "%12\n"},
    Y("stack", "f32[S:3, R:2, C:3]", "%10 = stack[S] %0, %1, %0 : f32[S:3, R:2, C:3]\n"),
    Y("concat", "f32[T:4, C:3]", "%10 = concat[R, R -> T] %0, %1 : f32[T:4, C:3]\n"),
    {"rope", "param @r : f32[S:3, D:4]\noutput @y : f32[S:3, D:4]\n",
     "%10 = load @r : f32[S:3, D:4]\n%11 = rope[S; D] %10 {theta = 100} : f32[S:3, D:4]\nstore @y, "
     "%11\n"},
    {"rope", "param @r : f32[S:3, D:4]\ninput @pos : i32[S:3]\noutput @y : f32[S:3, D:4]\n",
     "%10 = load @r : f32[S:3, D:4]\n%11 = load @pos : i32[S:3]\n"
     "%12 = rope[S; D] %10, %11 {theta = 100, factor = 4, original = 16, slow = 0.5, fast = 2, "
     "ramp = 2, inverse = 1} : f32[S:3, D:4]\nstore @y, %12\n"},
    Y("dot", "f32[R:2]", "%10 = dot[C] %0, %2 : f32[R:2]\n"),
    Y("dot", "f32[]", "%10 = dot[R, C] %0, %1 : f32[]\n"),
    Y("dot", "f32[R:2]", "%10 = dot[C] %0, %1 : f32[R:2]\n"),
    Y("dot", "f32[R:2, C:3, V:3, E:2]", "%10 = dot[] %0, %3 : f32[R:2, C:3, V:3, E:2]\n"),
    {"dot", "param @m : f32[B:2, R:2, K:2]\noutput @y : f32[R:2, C:3, B:2]\n",
     "%10 = load @m : f32[B:2, R:2, K:2]\n%11 = expand[K] %0 : f32[K:2, R:2, C:3]\n"
     "%12 = dot[K] %11, %10 : f32[R:2, C:3, B:2]\nstore @y, %12\n"},
    Y("gather", "f32[R:2, E:2]", "%10 = gather[V] %3, %4 : f32[R:2, E:2]\n"),
    Y("gather", "f32[R:2]", "%10 = gather[C] %0, %4 : f32[R:2]\n"),
    {"gather",
     "param @m : f32[R:2, C:3, E:2]\ninput @j : i32[R:2, S:5]\noutput @y : f32[R:2, S:5, E:2]\n",
     "%10 = load @m : f32[R:2, C:3, E:2]\n%11 = load @j : i32[R:2, S:5]\n"
     "%12 = gather[C] %10, %11 : f32[R:2, S:5, E:2]\nstore @y, %12\n"},
    {"gather", /* along the dim that it addresses */
     "param @m : f32[R:2, C:3, E:2]\ninput @j : i32[R:2, C:3]\noutput @y : f32[R:2, C:3, E:2]\n",
     "%10 = load @m : f32[R:2, C:3, E:2]\n%11 = load @j : i32[R:2, C:3]\n"
     "%12 = gather[C] %10, %11 : f32[R:2, C:3, E:2]\nstore @y, %12\n"},
    {"gather",
     "param @m : f32[C:3, E:2]\ninput @j : i32[C:3, S:5]\noutput @y : f32[C:3, S:5, E:2]\n",
     "%10 = load @m : f32[C:3, E:2]\n%11 = load @j : i32[C:3, S:5]\n"
     "%12 = gather[C] %10, %11 : f32[C:3, S:5, E:2]\nstore @y, %12\n"},
    Y("scatter", "f32[D:2, C:3]", "%10 = scatter[R -> D] %0, %4 : f32[D:2, C:3]\n"),
    {"attention",
     "param @q : f32[H:2, S:3, D:2]\nparam @kk : f32[H:2, T:4, D:2]\nparam @vv : f32[H:2, T:4, "
     "D:2]\noutput @y : f32[H:2, S:3, D:2]\n",
     "%10 = load @q : f32[H:2, S:3, D:2]\n%11 = load @kk : f32[H:2, T:4, D:2]\n%12 = load @vv : "
     "f32[H:2, T:4, D:2]\n"
     "%13, %14 = attention[S -> T; D] %10, %11, %12 {scale = 0.7} : f32[H:2, S:3, D:2], f32[H:2, "
     "S:3]\nstore @y, %13\n"},
    {"attention", /* grouped queries, and a mask that leaves one query without a key */
     "param @q : f32[H:2, S:3, D:2]\nparam @kk : f32[T:3, D:2]\nparam @vv : f32[T:3, D:2]\noutput "
     "@y : f32[H:2, S:3, D:2]\n",
     "%10 = load @q : f32[H:2, S:3, D:2]\n%11 = load @kk : f32[T:3, D:2]\n%12 = load @vv : "
     "f32[T:3, D:2]\n"
     "%13 = iota[S] : i32[S:3]\n%14 = iota[T] : i32[T:3]\n%15 = expand[T] %13 : i32[T:3, S:3]\n"
     "%16 = lt %14, %15 : bool[T:3, S:3]\n"
     "%17, %18 = attention[S -> T; D] %10, %11, %12, %16 {scale = 0.7} : f32[H:2, S:3, D:2], "
     "f32[H:2, S:3]\nstore @y, %17\n"},
    {"attention", /* capped scores, and a sink that is learned */
     "param @q : f32[H:2, S:3, D:2]\nparam @kk : f32[H:2, T:4, D:2]\nparam @sink : f32[H:2]\n"
     "output @y : f32[H:2, S:3, D:2]\n",
     "%10 = load @q : f32[H:2, S:3, D:2]\n%11 = load @kk : f32[H:2, T:4, D:2]\n%12 = load @sink : "
     "f32[H:2]\n"
     "%13, %14 = attention[S -> T; D] %10, %11, %11, %12 {scale = 0.7, cap = 0.9} : f32[H:2, S:3, "
     "D:2], f32[H:2, S:3]\nstore @y, %13\n"},
    {"attention", /* dropout, a bias that is learned, a mask and a sink */
     "param @q : f32[H:2, S:3, D:2]\nparam @kk : f32[T:3, D:2]\nparam @bias : f32[H:2, T:3]\n"
     "param @sink : f32[H:2]\noutput @y : f32[H:2, S:3, D:2]\n",
     "%10 = load @q : f32[H:2, S:3, D:2]\n%11 = load @kk : f32[T:3, D:2]\n%12 = load @bias : "
     "f32[H:2, T:3]\n%13 = load @sink : f32[H:2]\n"
     "%14 = iota[S] : i32[S:3]\n%15 = iota[T] : i32[T:3]\n%16 = expand[T] %14 : i32[T:3, S:3]\n"
     "%17 = le %15, %16 : bool[T:3, S:3]\n%18 = sub %15, %16 : i32[T:3, S:3]\n"
     "%19, %20 = attention[S -> T; D] %10, %11, %11, %17, %18, %12, %13 {scale = 0.7, drop = 0.3} "
     ": "
     "f32[H:2, S:3, D:2], f32[H:2, S:3]\nstore @y, %19\n"},
    {"attention", /* a bias that is learned, with capped scores, a mask and a sink */
     "param @q : f32[H:2, S:3, D:2]\nparam @kk : f32[T:3, D:2]\nparam @bias : f32[H:2, T:3]\n"
     "param @sink : f32[H:2]\noutput @y : f32[H:2, S:3, D:2]\n",
     "%10 = load @q : f32[H:2, S:3, D:2]\n%11 = load @kk : f32[T:3, D:2]\n%12 = load @bias : "
     "f32[H:2, T:3]\n%13 = load @sink : f32[H:2]\n"
     "%14 = iota[S] : i32[S:3]\n%15 = iota[T] : i32[T:3]\n%16 = expand[T] %14 : i32[T:3, S:3]\n"
     "%17 = le %15, %16 : bool[T:3, S:3]\n"
     "%18, %19 = attention[S -> T; D] %10, %11, %11, %17, %12, %13 {scale = 0.7, cap = 0.9} : "
     "f32[H:2, S:3, D:2], f32[H:2, S:3]\nstore @y, %18\n"},
};

static void every_op(void **state) {
  bool seen[OP_COUNT] = {0};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *t = &cases[i];
    Ctx *c = ctx_new();
    OpCode op;
    assert_true(op_find(t->op, &op));
    seen[op] = true;
    check_gradients(arena_printf(c->arena, "%s%s%s%s}\n", HEAD GLOBALS,
                                 t->globals ? t->globals : "output @y : f32[R:2, C:3]\n",
                                 STEP LOADS, t->ops),
                    1e-5);
    ctx_free(c);
  }
  seen[OP_call] = seen[OP_kernel] = seen[OP_loop] = true; /* removed before; made later; below */
#define GRAD(op, rule)                                                                             \
  if (!seen[OP_##op]) fail_msg("no case for %s", #op);
#include "passes/math/grad.def"
#undef GRAD
}

/* The golden files of loops, calls and blocks: what they show is right, not only as it was. */
static int checked;

static void check_golden(const char *path, const char *module, const char *commands) {
  (void)path;
  bool early = strstr(module, "\nafter lower\n") || strstr(module, "\nafter inline\n");
  bool scaled = strstr(module, "precision = \"f16\"");
  if (!early || scaled || strstr(commands, "\n# exit 1\n")) return;
  check_gradients(module, 1e-5);
  checked++;
}

static void golden_files(void **state) {
  (void)state;
  each_golden("grad/*", check_golden);
  each_golden("recompute/*", check_golden);
  assert_true(checked >= 12);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_op), cmocka_unit_test(golden_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
