/* Gradients of every op, of loops and of whole little models, against central differences in double
   precision. An op that has a row in grad.def and no case here fails. */
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
     "%12 = rope[S; D] %10, %11 {theta = 100, inverse = 1} : f32[S:3, D:4]\nstore @y, %12\n"},
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
#include "passes/grad.def"
#undef GRAD
}

static void dead_ends(void **state) {
  (void)state;
  check_gradients(HEAD GLOBALS "output @y : f32[R:2, C:3]\n" STEP LOADS
                               "%10 = mul %9, %0 : f32[R:2, C:3]\n%11 = floor %10 : f32[R:2, C:3]\n"
                               "%12 = sign %1 : f32[R:2, C:3]\n%13 = mul %12, %0 : f32[R:2, C:3]\n"
                               "%14 = add %13, %11 : f32[R:2, C:3]\nstore @y, %14\n}\n",
                  1e-5);
}

static const char simple_loop[] =
    HEAD "param @x : f32[B:2, E:3]\nparam @w : f32[L:4, E:3, F:2]\nparam @u : f32[L:4, F:2, "
         "E:3]\nparam @g : f32[E:3]\n"
         "output @y : f32[B:2, E:3]\noutput @z : f32[L:4, B:2]\n"
         "body @h(%0 : i32[], %1 : f32[B:2, E:3], %2 : f32[E:3], %3 : f32[E:3, F:2], %4 : f32[F:2, "
         "E:3]) {\n"
         "%5 = mul %1, %2 : f32[B:2, E:3]\n%6 = dot[E] %5, %3 : f32[B:2, F:2]\n%7 = tanh %6 : "
         "f32[B:2, F:2]\n"
         "%8 = dot[F] %7, %4 : f32[B:2, E:3]\n%9 = add %1, %8 : f32[B:2, E:3]\n%10 = sum[F] %7 : "
         "f32[B:2]\nreturn %9, %10\n}\n"
         "entry @step {\n%0 = load @x : f32[B:2, E:3]\n%1 = load @g : f32[E:3]\n%2 = load @w : "
         "f32[L:4, E:3, F:2]\n"
         "%3 = load @u : f32[L:4, F:2, E:3]\n"
         "%4, %5 = loop[L] @h, %0, %1, %2, %3 {carry = 1, invariant = 1, trip = 4} : f32[B:2, "
         "E:3], f32[L:4, B:2]\n"
         "store @y, %4\nstore @z, %5\n}\n";

static void loop(void **state) {
  (void)state;
  check_gradients(simple_loop, 1e-5);
}

/* Two carried values that feed each other, one of them not read at the end; runs the other way. */
static const char crossed_loop[] = HEAD
    "param @x : f32[B:2]\nparam @z : f32[B:2]\nparam @w : f32[L:3, B:2]\noutput @y : f32[B:2]\n"
    "body @h(%0 : i32[], %1 : f32[B:2], %2 : f32[B:2], %3 : f32[B:2]) {\n"
    "%4 = sin %2 : f32[B:2]\n%5 = mul %4, %3 : f32[B:2]\n%6 = mul %1, %3 : f32[B:2]\n%7 = cast %0 "
    ": f32[]\n"
    "%8 = mul %6, %7 : f32[B:2]\nreturn %5, %8\n}\n"
    "entry @step {\n%0 = load @x : f32[B:2]\n%1 = load @z : f32[B:2]\n%2 = load @w : f32[L:3, "
    "B:2]\n"
    "%3, %4 = loop[L] @h, %0, %1, %2 {carry = 2, invariant = 0, trip = 3, reverse = 1} : f32[B:2], "
    "f32[B:2]\n"
    "store @y, %3\n}\n";

static void crossed(void **state) {
  (void)state;
  check_gradients(crossed_loop, 1e-5);
}

/* A loop in a loop: inner and outer weights, an invariant of both, stacked results of both. */
static const char nested_loops[] = HEAD
    "param @x : f32[B:2]\nparam @w : f32[L:3, M:2, B:2]\nparam @g : f32[B:2]\nparam @u : f32[L:3, "
    "B:2]\n"
    "output @y : f32[B:2]\noutput @z : f32[L:3, M:2, B:2]\n"
    "body @in(%0 : i32[], %1 : f32[B:2], %2 : f32[B:2], %3 : f32[B:2]) {\n"
    "%4 = mul %1, %3 : f32[B:2]\n%5 = tanh %4 : f32[B:2]\n%6 = mul %5, %2 : f32[B:2]\n%7 = add %6, "
    "%1 : f32[B:2]\n"
    "%8 = mul %7, %5 : f32[B:2]\nreturn %7, %8\n}\n"
    "body @out(%0 : i32[], %1 : f32[B:2], %2 : f32[B:2], %3 : f32[M:2, B:2], %4 : f32[B:2]) {\n"
    "%5 = mul %1, %4 : f32[B:2]\n"
    "%6, %7 = loop[M] @in, %5, %2, %3 {carry = 1, invariant = 1, trip = 2} : f32[B:2], f32[M:2, "
    "B:2]\n"
    "%8 = sin %6 : f32[B:2]\nreturn %8, %7\n}\n"
    "entry @step {\n%0 = load @x : f32[B:2]\n%1 = load @g : f32[B:2]\n%2 = load @w : f32[L:3, M:2, "
    "B:2]\n"
    "%3 = load @u : f32[L:3, B:2]\n"
    "%4, %5 = loop[L] @out, %0, %1, %2, %3 {carry = 1, invariant = 1, trip = 3} : f32[B:2], "
    "f32[L:3, M:2, B:2]\n"
    "store @y, %4\nstore @z, %5\n}\n";

static void nested(void **state) {
  (void)state;
  check_gradients(nested_loops, 1e-5);
}

static const char calls[] =
    HEAD "param @x : f32[B:2]\nparam @frozen : f32[B:2] {frozen}\noutput @y : f32[B:2]\n"
         "body @f(%0 : f32[B:2], %1 : f32[B:2]) {\n%2 = mul %0, %1 : f32[B:2]\nreturn %2, %0\n}\n"
         "body @g(%0 : f32[B:2], %1 : f32[B:2]) {\n%2, %3 = call @f, %0, %1 : f32[B:2], f32[B:2]\n"
         "%4, %5 = call @f, %2, %3 : f32[B:2], f32[B:2]\n%6 = stop %5 : f32[B:2]\n%7 = mul %4, %6 "
         ": f32[B:2]\nreturn %4\n}\n"
         "entry @step {\n%0 = load @x : f32[B:2]\n%1 = load @frozen : f32[B:2]\n%2 = call @g, %0, "
         "%1 : f32[B:2]\nstore @y, %2\n}\n";

static void inlined(void **state) {
  (void)state;
  check_gradients(calls, 1e-5);
  Ctx *c = ctx_new();
  Module *m = module_from(c, calls);
  add_loss(m);
  run_until(m, "grad");
  assert_int_equal(m->fns.n, 1);
  assert_null(module_global(m, intern(c->names, "grad.frozen")));
  ctx_free(c);
}

static void unused_parameter(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m =
      module_from(c, HEAD "param @x : f32[B:2]\nparam @lost : f32[B:2]\noutput @y : f32[B:2]\n"
                          "entry @step {\n%0 = load @x : f32[B:2]\n%1 = load @lost : f32[B:2]\n"
                          "%2 = stop %1 : f32[B:2]\n%3 = mul %0, %2 : f32[B:2]\nstore @y, %3\n}\n");
  add_loss(m);
  run_until(m, "grad");
  assert_non_null(strstr(reported(c), "W0501"));
  assert_non_null(strstr(reported(c), "`lost`"));
  assert_null(module_global(m, intern(c->names, "grad.lost")));
  ctx_free(c);
}

/* Counters from 2 on; and of rounds that are a part of a stack nobody asks for gradients. */
#define PART(trip)                                                                                 \
  HEAD "param @x : f32[B:2]\nparam @w : f32[L:3, B:2]\noutput @y : f32[B:2]\n"                     \
       "body @h(%0 : i32[], %1 : f32[B:2], %2 : f32[B:2]) {\n%3 = cast %0 : f32[]\n%4 = mul %2, %3 " \
       ": f32[B:2]\n%5 = mul %4, %1 : f32[B:2]\n%6 = tanh %5 : f32[B:2]\nreturn %6\n}\n"            \
       "entry @step {\n%0 = load @x : f32[B:2]\n%1 = load @w : f32[L:3, B:2]\n"                    \
       "%2 = loop[L] @h, %0, %1 {carry = 1, invariant = 0, trip = " trip "} : f32[B:2]\n"           \
       "store @y, %2\n}\n"

static void parts(void **state) {
  (void)state;
  check_gradients(PART("3, first = 2"), 1e-5);
  Ctx *c = ctx_new();
  Module *m = module_from(c, PART("2, first = 1, of = 3"));
  add_loss(m);
  expect_error(m, "clean", "E0901", "a part of a stack");
  ctx_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_op),         cmocka_unit_test(dead_ends), cmocka_unit_test(loop),
      cmocka_unit_test(crossed),          cmocka_unit_test(nested),    cmocka_unit_test(inlined),
      cmocka_unit_test(unused_parameter), cmocka_unit_test(parts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
