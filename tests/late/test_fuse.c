/* What becomes one kernel: small entries as text, and the kernels that are expected of them, each
   as its family, its numbers of operands and results, and its ops. */
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "passes/internal.h"
#include <stdio.h>

#define HEAD                                                                                       \
  "shardc-ir 1\nmodel Test\nafter clean\n"                                                         \
  "param @w : f32[E:8, M:16]\nparam @b : f32[M:16]\nparam @g : f32[E:8]\ninput @x : f32[B:4, "     \
  "E:8]\n"                                                                                         \
  "input @y : f32[B:4, M:16]\ninput @t : i32[B:4] of M\noutput @out : f32[B:4, M:16]\noutput "     \
  "@out2 : f32[B:4, E:8]\n"                                                                        \
  "output @rows : f32[B:4]\noutput @one : f32[]\noutput @cols : f32[E:8]\noutput @cols2 : "        \
  "f32[E:8]\noutput @out3 : f32[B:4, M:16]\n"                                                      \
  "entry @step {\n  %0 = load @w : f32[E:8, M:16]\n  %1 = load @b : f32[M:16]\n  %2 = load @g : "  \
  "f32[E:8]\n"                                                                                     \
  "  %3 = load @x : f32[B:4, E:8]\n  %4 = load @y : f32[B:4, M:16]\n  %5 = load @t : i32[B:4]\n"

static char *kernels_of(Module *m) {
  char *text = arena_strndup(m->arena, "", 0);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *k = m->fns.at[i];
    if (k->kind != FN_KERNEL) continue;
    text = arena_printf(m->arena, "%s%s %u>%u:", text, attr_str(&k->attrs, ATTR_family, "?"),
                        k->args.n, k->results.n);
    for (OpId o = 0; o < k->ops.n; o++)
      text = arena_printf(m->arena, "%s %s", text, op_name(k->ops.at[o].code));
    text = arena_printf(m->arena, "%s\n", text);
  }
  return text;
}

static void expect_on(const char *setting, const char *body, const char *kernels) {
  Ctx *c = ctx_new();
  char *text = arena_printf(c->arena, "%s%s}\n", HEAD, body);
  Module *m = ir_parse(c, "test.ir", text, strlen(text));
  if (m && setting) module_set(m, setting, "1");
  if (!m || !ir_verify(m)) {
    diag_print(c->diag, stderr, DIAG_HUMAN, false);
    fail_msg("the test's own text is wrong");
  }
  pass_fuse(m);
  m->after = intern(c->names, "fuse");
  assert_true(ir_verify(m));
  assert_string_equal(kernels_of(m), kernels);
  ctx_free(c);
}

static void expect(const char *body, const char *kernels) { expect_on(NULL, body, kernels); }

static void bias_activation_residual_join_a_dot(void **state) {
  (void)state;
  expect("  %6 = dot[E] %3, %0 : f32[B:4, M:16]\n  %7 = add %6, %1 : f32[B:4, M:16]\n"
         "  %8 = tanh %7 : f32[B:4, M:16]\n  %9 = add %8, %4 : f32[B:4, M:16]\n  store @out, %9\n",
         "contract 4>1: dot add tanh add\n");
}

static void a_norm_is_one_row_kernel(void **state) {
  (void)state;
  expect("  %6 = sum[E] %3 : f32[B:4]\n  %7 = const {value = 0.125} : f32[]\n  %8 = mul %6, %7 : "
         "f32[B:4]\n"
         "  %9 = sub %3, %8 : f32[B:4, E:8]\n  %10 = mul %9, %9 : f32[B:4, E:8]\n  %11 = sum[E] "
         "%10 : f32[B:4]\n"
         "  %12 = mul %11, %7 : f32[B:4]\n  %13 = rsqrt %12 : f32[B:4]\n  %14 = mul %9, %13 : "
         "f32[B:4, E:8]\n"
         "  %15 = mul %14, %2 : f32[B:4, E:8]\n  store @out2, %15\n",
         "row 2>1: sum const mul sub mul sum mul rsqrt mul mul\n");
}

static void cross_entropy_picks_in_its_row(void **state) {
  (void)state;
  expect(
      "  %6 = rmax[M] %4 : f32[B:4]\n  %7 = sub %4, %6 : f32[B:4, M:16]\n  %8 = exp %7 : f32[B:4, "
      "M:16]\n"
      "  %9 = sum[M] %8 : f32[B:4]\n  %10 = log %9 : f32[B:4]\n  %11 = add %10, %6 : f32[B:4]\n"
      "  %12 = gather[M] %4, %5 : f32[B:4]\n  %13 = sub %11, %12 : f32[B:4]\n  store @rows, %13\n"
      "  %14 = sum[B] %13 : f32[]\n  store @one, %14\n",
      "row 2>1: rmax sub exp sum log add iota expand eq const where sum sub\ncolumn 1>1: sum\n");
}

/* A sum inside of a row kernel is over the whole row: the label's score, a sum over M only, stays a
   gather where a row is S and M; and where it is read at other rows than its own. */
static void only_whole_rows_are_picked_from(void **state) {
  (void)state;
  expect("  %6 = expand[S] %4 : f32[S:3, B:4, M:16]\n  %7 = sin %6 : f32[S:3, B:4, M:16]\n"
         "  %8 = gather[M] %7, %5 : f32[B:4, S:3]\n  %9 = sub %7, %8 : f32[S:3, B:4, M:16]\n"
         "  %10 = sum[S, M] %9 : f32[B:4]\n  store @rows, %10\n",
         "row 2>1: expand sin gather sub sum\n");
  expect("  %6 = mul %4, %4 : f32[B:4, M:16]\n  %7 = gather[M] %6, %5 : f32[B:4]\n"
         "  %8 = mul %4, %7 : f32[B:4, M:16]\n  %9 = merge[B, M -> X] %8 : f32[X:64]\n"
         "  %10 = tanh %9 : f32[X:64]\n  %11 = split[X -> B, M] %10 : f32[B:4, M:16]\n"
         "  %12 = sum[M] %11 : f32[B:4]\n  store @rows, %12\n",
         "row 2>1: mul gather mul merge tanh split sum\n");
}

static void sums_over_rows_share_a_kernel(void **state) {
  (void)state;
  expect("  %6 = sum[B] %3 : f32[E:8]\n  %7 = mul %3, %3 : f32[B:4, E:8]\n  %8 = sum[B] %7 : "
         "f32[E:8]\n"
         "  store @cols, %6\n  store @cols2, %8\n",
         "column 1>2: sum mul sum\n");
}

/* The mask of relu is stored as bool beside what the next contraction reads; it is smaller than the
   value that it is computed from. */
static void the_smallest_value_is_saved(void **state) {
  (void)state;
  expect("  %6 = dot[E] %3, %0 : f32[B:4, M:16]\n  %7 = const {value = 0} : f32[]\n  %8 = lt %7, "
         "%6 : bool[B:4, M:16]\n"
         "  %9 = where %8, %6, %7 : f32[B:4, M:16]\n  %10 = dot[M] %9, %0 : f32[B:4, E:8]\n"
         "  %11 = dot[E] %10, %0 : f32[B:4, M:16]\n  %12 = where %8, %11, %7 : f32[B:4, M:16]\n  "
         "store @out, %12\n",
         "contract 2>2: const dot lt where\ncontract 2>1: dot\ncontract 3>1: dot const where\n");
}

/* Two uses of x - mean: rows read x and the mean again, no row is written. */
static void cheap_values_are_computed_again(void **state) {
  (void)state;
  expect("  %6 = rmax[E] %3 : f32[B:4]\n  %7 = sub %3, %6 : f32[B:4, E:8]\n  %8 = tanh %7 : "
         "f32[B:4, E:8]\n"
         "  %9 = sum[B] %7 : f32[E:8]\n  %10 = sum[B] %8 : f32[E:8]\n  store @cols, %9\n  store "
         "@cols2, %10\n",
         "row 1>1: rmax\ncolumn 2>2: sub sum tanh sum\n");
}

static void an_optimizer_is_one_kernel(void **state) {
  (void)state;
  expect("  %6 = mul %3, %2 : f32[B:4, E:8]\n  %7 = sum[B] %6 : f32[E:8]\n  %8 = mul %7, %7 : "
         "f32[E:8]\n"
         "  %9 = sqrt %8 : f32[E:8]\n  %10 = sub %2, %9 : f32[E:8]\n  store @g, %10\n  store "
         "@cols, %8\n",
         "column 2>1: mul sum\nelem 2>2: mul sqrt sub\n");
}

/* Gradients that are only read as a whole are written as one, where kernels can. */
static void gradients_lie_in_their_stack(void **state) {
  (void)state;
  static const char body[] =
      "  %6 = rename[B -> K] %4 : f32[K:4, M:16]\n"
      "  %7, %8 = attention[B -> K; M] %4, %6, %6 {scale = 1} : f32[B:4, M:16], f32[B:4]\n"
      "  %9, %10, %11 = attention_grad[B -> K; M] %4, %6, %6, %7, %8, %4 {scale = 1} : "
      "f32[B:4, M:16], f32[K:4, M:16], f32[K:4, M:16]\n"
      "  %12 = rename[K -> B] %10 : f32[B:4, M:16]\n"
      "  %13 = rename[K -> B] %11 : f32[B:4, M:16]\n"
      "  %14 = stack[P] %9, %12, %13 : f32[P:3, B:4, M:16]\n"
      "  %15 = expand[P] %0 : f32[P:3, E:8, M:16]\n"
      "  %16 = dot[P, M] %14, %15 : f32[B:4, E:8]\n  store @out2, %16\n";
  expect_on("target.join", body,
            "attention 2>2: attention\nattention_grad 4>1: attention_grad rename rename stack\n"
            "elem 1>1: expand\ncontract 2>1: dot\n");
  expect(body, "attention 2>2: attention\nattention_grad 4>3: attention_grad\n"
               "elem 3>1: stack\nelem 1>1: expand\ncontract 2>1: dot\n");
}

/* Results of the loop in @step that are in the buffers of stacked operands. */
static int in_place_results(const Module *m) {
  const Fn *step = entry_of(m, "step");
  int n = 0;
  for (OpId i = 0; i < step->ops.n; i++) {
    const Op *o = &step->ops.at[i];
    for (uint32_t k = 0; o->code == OP_loop && k < o->nout; k++)
      n += step->values.at[o->out + k].storage.view == VIEW_INPLACE;
  }
  return n;
}

/* tail: what @step does with the loop's products %5 and sums of rows %6; states @sum and @mean are
   %4 and %2, @half is %3 */
static Module *rounds_module(Ctx *c, const char *tail) {
  static const char head[] =
      "shardc-ir 1\nmodel Test\nafter clean\n"
      "input @x : f32[L:3, B:4, E:8]\ninput @y : f32[B:4, M:16]\nstate @sum : f32[L:3, E:8, M:16]\n"
      "input @turned : f32[M:16, B:4]\noutput @rest : f32[B:4, M:16]\n"
      "state @mean : f32[L:3, E:8, M:16]\nstate @row : f32[L:3, M:16]\nstate @rate : f32[]\n"
      "state @half : bf16[L:3, E:8, M:16]\noutput @out : f32[L:3, E:8, M:16]\n"
      "body @f(%0 : i32[], %1 : f32[B:4, M:16], %2 : f32[B:4, E:8]) {\n"
      "  %3 = dot[B] %2, %1 : f32[E:8, M:16]\n  %4 = sum[B] %1 : f32[M:16]\n  return %3, %4\n}\n"
      "body @g(%0 : i32[], %1 : f32[B:4, M:16], %2 : f32[B:4, E:8]) {\n"
      "  %3 = tanh %1 : f32[B:4, M:16]\n  %4 = dot[B] %2, %1 : f32[E:8, M:16]\n"
      "  return %3, %4\n}\n"
      "entry @step {\n  %0 = load @x : f32[L:3, B:4, E:8]\n  %1 = load @y : f32[B:4, M:16]\n"
      "  %2 = load @mean : f32[L:3, E:8, M:16]\n"
      "  %3 = load @half : bf16[L:3, E:8, M:16]\n  %4 = load @sum : f32[L:3, E:8, M:16]\n"
      "  %5, %6 = loop[L] @f, %1, %0 {carry = 0, invariant = 1, trip = 3} : f32[L:3, E:8, M:16], "
      "f32[L:3, M:16]\n";
  char *text = arena_printf(c->arena, "%s%s}\n", head, tail);
  Module *m = ir_parse(c, "test.ir", text, strlen(text));
  if (!m || !ir_verify(m)) {
    diag_print(c->diag, stderr, DIAG_HUMAN, false);
    fail_msg("the test's own text is wrong");
  }
  return m;
}

static void expect_rounds(const char *tail, const char *kernels, int in_place) {
  Ctx *c = ctx_new();
  Module *m = rounds_module(c, tail);
  pass_clean(m), pass_fuse(m), m->after = intern(c->names, "fuse");
  assert_true(ir_verify(m));
  assert_string_equal(kernels_of(m), kernels);
  pass_order(m), m->after = intern(c->names, "order");
  assert_true(ir_verify(m));
  assert_int_equal(in_place_results(m), in_place);
  ctx_free(c);
}

static void rounds_add_up(void **state) {
  (void)state;
  expect_rounds("  %7 = add %4, %5 : f32[L:3, E:8, M:16]\n  store @sum, %7\n",
                "contract 3>1: dot add\n", 1);
  /* the product is rounded before, as it was */
  expect_rounds("  %7 = cast %5 : bf16[L:3, E:8, M:16]\n  %8 = add %7, %3 : bf16[L:3, E:8, M:16]\n"
                "  store @half, %8\n",
                "contract 3>1: dot cast add\n", 1);
  /* another one reads the sum so far: it stays, and the sum has a buffer of its own */
  expect_rounds("  %7 = add %4, %5 : f32[L:3, E:8, M:16]\n  store @out, %7\n",
                "contract 3>1: dot add\n", 0);
  /* the products are wanted, too */
  expect_rounds("  %7 = add %4, %5 : f32[L:3, E:8, M:16]\n  store @sum, %7\n  store @out, %5\n",
                "contract 2>1: dot\nelem 2>1: add\n", 0);
}

/* The loop carries a value whose dims stand in another order than those of its result: rebuilt, it
   gives them in that of the value, and so do its readers. */
static void rounds_of_a_turned_value(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = rounds_module(
      c, "  %7 = load @turned : f32[M:16, B:4]\n"
         "  %8, %9 = loop[L] @g, %7, %0 {carry = 1, invariant = 0, trip = 3} : f32[B:4, M:16], "
         "f32[L:3, E:8, M:16]\n"
         "  %10 = add %4, %9 : f32[L:3, E:8, M:16]\n  store @sum, %10\n"
         "  %11 = mul %8, %8 : f32[B:4, M:16]\n  store @rest, %11\n");
  pass_fuse(m), m->after = intern(c->names, "fuse");
  assert_true(ir_verify(m));
  assert_non_null(strstr(kernels_of(m), "contract 3>1: dot add\n"));
  ctx_free(c);
}

/* The rule of momentum, an update that needs nothing but its own gradient: it ends the product. */
#define MOMENTUM                                                                                   \
  "  %7 = load @rate : f32[]\n  %8 = mul %2, %7 : f32[L:3, E:8, M:16]\n"                           \
  "  %9 = add %8, %5 : f32[L:3, E:8, M:16]\n  %10 = sub %4, %9 : f32[L:3, E:8, M:16]\n"

static void rounds_update(void **state) {
  (void)state;
  expect_rounds(MOMENTUM "  store @mean, %9\n  store @sum, %10\n",
                "contract 5>2: mul dot add sub\n", 2);
  /* the parameter before the update is wanted, too: no room for the new one */
  expect_rounds(MOMENTUM "  store @mean, %9\n  store @sum, %10\n  store @out, %4\n",
                "contract 2>1: dot\nelem 4>2: mul add sub\n", 0);
  /* a norm of the gradient must be known first */
  expect_rounds("  %7 = mul %5, %5 : f32[L:3, E:8, M:16]\n  %8 = sum[L, E, M] %7 : f32[]\n"
                "  %9 = mul %5, %8 : f32[L:3, E:8, M:16]\n"
                "  %10 = sub %4, %9 : f32[L:3, E:8, M:16]\n  store @sum, %10\n",
                "contract 2>1: dot\ncolumn 1>1: mul sum\nelem 3>1: mul sub\n", 0);
  /* the rate is stored before it is read: it is not known before the loop */
  expect_rounds("  %7 = sum[L, M] %6 : f32[]\n  store @rate, %7\n  %8 = load @rate : f32[]\n"
                "  %9 = mul %5, %8 : f32[L:3, E:8, M:16]\n"
                "  %10 = sub %4, %9 : f32[L:3, E:8, M:16]\n  store @sum, %10\n",
                "contract 2>1: dot\ncolumn 1>1: sum\ncolumn 1>1: sum\nelem 3>1: mul sub\n", 0);
  /* sums of rows have no end where an update could be done */
  expect_rounds("  %7 = load @row : f32[L:3, M:16]\n  %8 = mul %6, %6 : f32[L:3, M:16]\n"
                "  %9 = sub %7, %8 : f32[L:3, M:16]\n  store @row, %9\n",
                "column 1>1: sum\nelem 2>1: mul sub\n", 0);
}

/* The gradient of a bias is summed by the product that reads the same rows, before or after it. */
static void a_product_sums_what_it_reads(void **state) {
  (void)state;
  static const char body[] =
      "  %6 = sum[B] %4 : f32[M:16]\n  %7 = dot[B] %3, %4 : f32[E:8, M:16]\n"
      "  %8 = sum[B] %3 : f32[E:8]\n  %9 = sum[E] %7 : f32[M:16]\n"
      "  %10 = add %9, %6 : f32[M:16]\n  %11 = add %4, %10 : f32[B:4, M:16]\n"
      "  store @out, %11\n  store @cols, %8\n";
  expect_on("target.sums", body,
            "column 1>1: sum\ncontract 2>2: sum dot\ncolumn 1>1: sum\nelem 3>1: add add\n");
  expect(body, "column 1>1: sum\ncolumn 1>1: sum\ncontract 2>1: dot\ncolumn 1>1: sum\n"
               "elem 3>1: add add\n");
}

/* A scatter waits for the product that it is added to and starts from it; onto anything else it
   stays where it is. */
static void a_scatter_starts_from_a_product(void **state) {
  (void)state;
  expect("  %6 = scatter[B -> M] %3, %5 : f32[M:16, E:8]\n"
         "  %7 = dot[B] %4, %3 : f32[M:16, E:8]\n  %8 = add %6, %7 : f32[M:16, E:8]\n"
         "  %9 = mul %8, %8 : f32[M:16, E:8]\n  %10 = sum[M] %9 : f32[E:8]\n  store @cols, %10\n",
         "contract 2>1: dot\nscatter 3>1: scatter add\ncolumn 1>1: mul sum\n");
  expect("  %6 = scatter[B -> M] %3, %5 : f32[M:16, E:8]\n  %7 = sum[E] %6 : f32[M:16]\n"
         "  %8 = mul %7, %1 : f32[M:16]\n  %9 = sum[M] %8 : f32[]\n  store @one, %9\n",
         "scatter 2>1: scatter\nrow 2>1: sum mul\ncolumn 1>1: sum\n");
}

/* Rows and columns of the same values: sums over rows wait for the kernel that walks along them,
 * and what reads them is of another one. */
static void rows_sum_their_columns(void **state) {
  (void)state;
  static const char body[] =
      "  %6 = sum[B] %3 : f32[E:8]\n  %7 = sum[E] %3 : f32[B:4]\n"
      "  %8 = sub %3, %7 : f32[B:4, E:8]\n  %9 = mul %8, %8 : f32[B:4, E:8]\n"
      "  %10 = sum[B] %9 : f32[E:8]\n  %11 = add %9, %10 : f32[B:4, E:8]\n"
      "  store @out2, %11\n  store @cols, %6\n";
  expect_on("target.sums", body, "row 1>3: sum sum sub mul sum\nelem 3>1: sub mul add\n");
  expect(body, "column 1>1: sum\nrow 1>1: sum\ncolumn 2>1: sub mul sum\n"
               "elem 3>1: sub mul add\n");
}

/* Both updates wait for the norm of a product: they read it once, though each could have been an
 * epilogue. */
static void updates_of_one_product_share_a_kernel(void **state) {
  (void)state;
  expect("  %6 = dot[E] %3, %0 : f32[B:4, M:16]\n  %7 = mul %6, %6 : f32[B:4, M:16]\n"
         "  %8 = sum[B, M] %7 : f32[]\n  %9 = lt %8, %8 : bool[]\n"
         "  %10 = add %6, %4 : f32[B:4, M:16]\n  %11 = where %9, %10, %4 : f32[B:4, M:16]\n"
         "  %12 = mul %6, %4 : f32[B:4, M:16]\n  %13 = where %9, %12, %4 : f32[B:4, M:16]\n"
         "  store @out, %11\n  store @out3, %13\n",
         "contract 2>1: dot\ncolumn 1>1: mul sum\nelem 3>2: lt add where mul where\n");
}

/* Attribute `least` of the entry, against sums by hand. */
static void expect_least(const char *body, double bytes) {
  Ctx *c = ctx_new();
  char *text = arena_printf(c->arena, "%s%s}\n", HEAD, body);
  Module *m = ir_parse(c, "test.ir", text, strlen(text));
  assert_non_null(m);
  pass_fuse(m);
  assert_true(attr_float(&entry_of(m, "step")->attrs, ATTR_least, -1) == bytes);
  ctx_free(c);
}

static void unavoidable_bytes(void **state) {
  (void)state;
  /* x, w, b, y are read, the result is written */
  expect_least("  %6 = dot[E] %3, %0 : f32[B:4, M:16]\n  %7 = add %6, %1 : f32[B:4, M:16]\n"
               "  %8 = tanh %7 : f32[B:4, M:16]\n  %9 = add %8, %4 : f32[B:4, M:16]\n  store @out, "
               "%9\n",
               128 + 512 + 64 + 256 + 256);
  /* x, w; what lies between two products is written and read once; w again; the result */
  expect_least("  %6 = dot[E] %3, %0 : f32[B:4, M:16]\n  %7 = tanh %6 : f32[B:4, M:16]\n"
               "  %8 = dot[M] %7, %0 : f32[B:4, E:8]\n  store @out2, %8\n",
               128 + 512 + 256 + 256 + 512 + 128);
  /* a sum joins the product: its result is never written as a whole */
  expect_least("  %6 = dot[E] %3, %0 : f32[B:4, M:16]\n  %7 = sum[M] %6 : f32[B:4]\n"
               "  store @rows, %7\n",
               128 + 512 + 16);
  /* one operand for two results */
  expect_least("  %6 = mul %2, %2 : f32[E:8]\n  %7 = add %6, %2 : f32[E:8]\n  store @cols, %6\n"
               "  store @cols2, %7\n",
               32 + 32 + 32);
  /* y, read beside the first product: once, although the second one could do without it */
  expect_least("  %6 = dot[E] %3, %0 : f32[B:4, M:16]\n  %7 = mul %6, %4 : f32[B:4, M:16]\n"
               "  %8 = dot[M] %7, %0 : f32[B:4, E:8]\n  store @out2, %8\n",
               128 + 512 + 256 + 256 + 256 + 512 + 128);
  /* nobody has written narrow copies of the operands */
  expect_least("  %6 = cast %3 : bf16[B:4, E:8]\n  %7 = cast %0 : bf16[E:8, M:16]\n"
               "  %8 = dot[E] %6, %7 : f32[B:4, M:16]\n  store @out, %8\n",
               128 + 512 + 256);
  /* the factor of both products is known when both are there: the smaller one waits in memory */
  expect_least("  %6 = dot[E] %3, %0 : f32[B:4, M:16]\n  %7 = dot[B] %3, %4 : f32[E:8, M:16]\n"
               "  %8 = mul %6, %6 : f32[B:4, M:16]\n  %9 = sum[B, M] %8 : f32[]\n"
               "  %10 = mul %7, %7 : f32[E:8, M:16]\n  %11 = sum[E, M] %10 : f32[]\n"
               "  %12 = add %9, %11 : f32[]\n  %13 = mul %6, %12 : f32[B:4, M:16]\n"
               "  %14 = mul %7, %12 : f32[E:8, M:16]\n  store @out, %13\n  store @w, %14\n",
               128 + 512 + 128 + 256 + 256 + 512 + 2 * 256);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(bias_activation_residual_join_a_dot),
                                     cmocka_unit_test(a_norm_is_one_row_kernel),
                                     cmocka_unit_test(cross_entropy_picks_in_its_row),
                                     cmocka_unit_test(only_whole_rows_are_picked_from),
                                     cmocka_unit_test(sums_over_rows_share_a_kernel),
                                     cmocka_unit_test(the_smallest_value_is_saved),
                                     cmocka_unit_test(cheap_values_are_computed_again),
                                     cmocka_unit_test(an_optimizer_is_one_kernel),
                                     cmocka_unit_test(updates_of_one_product_share_a_kernel),
                                     cmocka_unit_test(gradients_lie_in_their_stack),
                                     cmocka_unit_test(rounds_add_up),
                                     cmocka_unit_test(rounds_of_a_turned_value),
                                     cmocka_unit_test(rounds_update),
                                     cmocka_unit_test(a_product_sums_what_it_reads),
                                     cmocka_unit_test(rows_sum_their_columns),
                                     cmocka_unit_test(a_scatter_starts_from_a_product),
                                     cmocka_unit_test(unavoidable_bytes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
