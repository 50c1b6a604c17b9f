/* recompute: what a pre-norm block keeps for its backward loop, and that nothing changes in what is
   computed. */
#include "common.h"
#include <string.h>

#define X "f32[Batch:2, Seq:3, Embed:8]"
#define U "f32[Batch:2, Seq:3, Mlp:16]"
#define R "f32[Batch:2, Seq:3]"

/* x + fc2(gelu_tanh(fc1(norm(x)))) with a mask made of positions */
static const char block[] =
    "shardc-ir 1\nmodel T\nafter lower\nparam @x : " X "\nparam @g : f32[Layers:3, Embed:8]\n"
    "param @w : f32[Layers:3, Embed:8, Mlp:16]\nparam @b : f32[Layers:3, Mlp:16]\n"
    "param @u : f32[Layers:3, Mlp:16, Embed:8]\noutput @y : " X "\n"
    "body @h(%0 : i32[], %1 : " X
    ", %2 : f32[Embed:8], %3 : f32[Embed:8, Mlp:16], %4 : f32[Mlp:16], "
    "%5 : f32[Mlp:16, Embed:8]) {\n"
    "%6 = const {value = 8} : f32[]\n%7 = sum[Embed] %1 : " R "\n%8 = div %7, %6 : " R "\n"
    "%9 = sub %1, %8 : " X "\n%10 = mul %9, %9 : " X "\n%11 = sum[Embed] %10 : " R "\n"
    "%12 = div %11, %6 : " R "\n%13 = rsqrt %12 : " R "\n%14 = mul %9, %13 : " X "\n"
    "%15 = mul %14, %2 : " X "\n%16 = dot[Embed] %15, %3 : " U "\n%17 = add %16, %4 : " U "\n"
    "%18 = pow %17 {value = 3} : " U "\n%19 = add %17, %18 : " U "\n%20 = tanh %19 : " U "\n"
    "%21 = mul %17, %20 : " U "\n%22 = iota[Seq] : i32[Seq:3]\n%23 = const {value = 1} : i32[]\n"
    "%24 = le %22, %23 : bool[Seq:3]\n%25 = const {value = 0} : f32[]\n"
    "%26 = where %24, %21, %25 : " U "\n%27 = dot[Mlp] %26, %5 : " X "\n"
    "%28 = add %1, %27 : " X "\nreturn %28\n}\n"
    "entry @step {\n%0 = load @x : " X "\n%1 = load @g : f32[Layers:3, Embed:8]\n"
    "%2 = load @w : f32[Layers:3, Embed:8, Mlp:16]\n%3 = load @b : f32[Layers:3, Mlp:16]\n"
    "%4 = load @u : f32[Layers:3, Mlp:16, Embed:8]\n"
    "%5 = loop[Layers] @h, %0, %1, %2, %3, %4 {carry = 1, invariant = 0, trip = 3} : " X "\n"
    "store @y, %5\n}\n";

/* x + down(silu(gate(x)) * up(x)): silu(gate(x)) lives across the product `up` */
static const char gated[] =
    "shardc-ir 1\nmodel T\nafter lower\nparam @x : " X "\n"
    "param @g : f32[Layers:3, Embed:8, Mlp:16]\nparam @u : f32[Layers:3, Embed:8, Mlp:16]\n"
    "param @d : f32[Layers:3, Mlp:16, Embed:8]\noutput @y : " X "\n"
    "body @h(%0 : i32[], %1 : " X ", %2 : f32[Embed:8, Mlp:16], %3 : f32[Embed:8, Mlp:16], "
    "%4 : f32[Mlp:16, Embed:8]) {\n"
    "%5 = dot[Embed] %1, %2 : " U "\n%6 = sigmoid %5 : " U "\n%7 = mul %5, %6 : " U "\n"
    "%8 = dot[Embed] %1, %3 : " U "\n%9 = mul %7, %8 : " U "\n"
    "%10 = dot[Mlp] %9, %4 : " X "\n%11 = add %1, %10 : " X "\nreturn %11\n}\n"
    "entry @step {\n%0 = load @x : " X "\n%1 = load @g : f32[Layers:3, Embed:8, Mlp:16]\n"
    "%2 = load @u : f32[Layers:3, Embed:8, Mlp:16]\n"
    "%3 = load @d : f32[Layers:3, Mlp:16, Embed:8]\n"
    "%4 = loop[Layers] @h, %0, %1, %2, %3 {carry = 1, invariant = 0, trip = 3} : " X "\n"
    "store @y, %4\n}\n";

static const Op *first_loop(const Module *m) {
  const Fn *f = m->fns.at[m->fns.n - 1];
  for (uint32_t i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_loop) return &f->ops.at[i];
  fail_msg("no loop");
  return NULL;
}

/* Kept are the input, the operands of both products, the first product with its bias: four large
   values. Of rows: the root of the variance and the sum. */
static void what_is_kept(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = module_from(c, block);
  add_loss(m);
  run_until(m, "clean");
  const Op *o = first_loop(m);
  int large = 0, rows = 0, other = 0;
  for (uint32_t i = 1; i < o->nout; i++) {
    int64_t n = type_count(value_type(o->callee, o->callee->results.at[i]));
    large += n >= 48, rows += n == 6, other += n != 6 && n < 48;
  }
  assert_int_equal(large, 4);
  assert_int_equal(rows, 2);
  assert_int_equal(other, 0);
  ctx_free(c);
}

/* Kept are the input, both products and what they are multiplied to; silu(gate(x)) is made of
   gate(x), which is kept anyway. */
static void what_lives_across_is_made_of_what_is_kept(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = module_from(c, gated);
  add_loss(m);
  run_until(m, "clean");
  assert_int_equal(first_loop(m)->nout, 1 + 4);
  ctx_free(c);
}

static void gradients_stay(void **state) {
  (void)state;
  check_gradients(block, 1e-5);
  check_gradients(gated, 1e-5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_kept),
      cmocka_unit_test(what_lives_across_is_made_of_what_is_kept),
      cmocka_unit_test(gradients_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
