/* simplify: rules one by one (what is left of an op), random modules before and after, nothing left
 * to do the second time. */
#include "common.h"
#include "tests/common/random_module.h"
#include <string.h>

#define HEAD "shardc-ir 1\nmodel T\nafter inline\n"

static uint32_t count_code(const Module *m, OpCode c) {
  uint32_t n = 0;
  for (uint32_t f = 0; f < m->fns.n; f++)
    for (uint32_t i = 0; i < m->fns.at[f]->ops.n; i++) n += m->fns.at[f]->ops.at[i].code == c;
  return n;
}

static uint32_t count_ops(const Module *m) {
  uint32_t n = 0;
  for (uint32_t f = 0; f < m->fns.n; f++) n += m->fns.at[f]->ops.n;
  return n;
}

static void same_outputs(Module *before, Module *after, double tolerance) {
  Interp *a = interp_filled(before, true), *b = interp_filled(after, true);
  must_run(a, "step");
  must_run(b, "step");
  for (uint32_t i = 0; i < before->globals.n; i++)
    if (before->globals.at[i]->kind == GLOBAL_OUTPUT)
      expect_same(a, b, before->globals.at[i]->name, tolerance);
}

typedef struct Case {
  const char *lines; /* %0 = a [A:2, B:4], %1 = b [B:4], %2 = c bool[B:4]; result %9 */
  const char *type;
  OpCode gone;
  uint32_t ops; /* in all, with loads and the store */
} Case;

static const Case cases[] = {
    {"%3 = const {value = 1} : f32[]\n%9 = mul %0, %3 : f32[A:2, B:4]", "f32[A:2, B:4]", OP_mul, 2},
    {"%3 = const {value = 0} : f32[]\n%9 = add %3, %0 : f32[A:2, B:4]", "f32[A:2, B:4]", OP_add, 2},
    {"%3 = const {value = 4} : f32[]\n%9 = div %0, %3 : f32[A:2, B:4]", "f32[A:2, B:4]", OP_div, 4},
    {"%3 = neg %0 : f32[A:2, B:4]\n%9 = neg %3 : f32[A:2, B:4]", "f32[A:2, B:4]", OP_neg, 2},
    {"%3 = neg %0 : f32[A:2, B:4]\n%9 = add %1, %3 : f32[A:2, B:4]", "f32[A:2, B:4]", OP_neg, 4},
    {"%9 = pow %0 {value = 2} : f32[A:2, B:4]", "f32[A:2, B:4]", OP_pow, 3},
    {"%3 = const {value = 1} : bool[]\n%9 = where %3, %0, %1 : f32[A:2, B:4]", "f32[A:2, B:4]",
     OP_where, 2},
    {"%3 = const {value = 0} : bool[]\n%9 = where %3, %0, %1 : f32[A:2, B:4]", "f32[A:2, B:4]",
     OP_where, 3},
    {"%9 = cast %0 : f32[A:2, B:4]", "f32[A:2, B:4]", OP_cast, 2},
    {"%3 = rename[A -> C] %0 : f32[C:2, B:4]\n%9 = rename[C -> A] %3 : f32[A:2, B:4]",
     "f32[A:2, B:4]", OP_rename, 2},
    {"%3 = split[B -> P, Q] %0 : f32[A:2, P:2, Q:2]\n%9 = merge[P, Q -> B] %3 : f32[A:2, B:4]",
     "f32[A:2, B:4]", OP_split, 2},
    {"%3 = merge[A, B -> M] %0 : f32[M:8]\n%9 = split[M -> A, B] %3 : f32[A:2, B:4]",
     "f32[A:2, B:4]", OP_merge, 2},
    {"%3, %4 = unstack[A] %0 : f32[B:4], f32[B:4]\n%9 = stack[A] %3, %4 : f32[A:2, B:4]",
     "f32[A:2, B:4]", OP_stack, 2},
    {"%3 = stack[S] %0, %0 : f32[S:2, A:2, B:4]\n%4, %9 = unstack[S] %3 : f32[A:2, B:4], f32[A:2, "
     "B:4]",
     "f32[A:2, B:4]", OP_stack, 2},
    {"%3 = expand[A] %1 : f32[A:2, B:4]\n%9 = mul %0, %3 : f32[A:2, B:4]", "f32[A:2, B:4]",
     OP_expand, 4},
    {"%3 = expand[C] %0 : f32[C:3, A:2, B:4]\n%9 = sum[C] %3 : f32[A:2, B:4]", "f32[A:2, B:4]",
     OP_sum, 4},
    {"%3 = expand[C] %1 : f32[C:3, B:4]\n%9 = sum[C, B] %3 : f32[]", "f32[]", OP_expand, 5},
    {"%3 = not %2 : bool[B:4]\n%4 = not %3 : bool[B:4]\n%9 = where %4, %0, %1 : f32[A:2, B:4]",
     "f32[A:2, B:4]", OP_not, 5},
    {"%3 = iota[A] : i32[A:2]\n%9 = gather[B] %0, %3 : f32[A:2]", "f32[A:2]", OP_slice, 4},
    {"%3 = iota[C] : i32[C:3]\n%9 = gather[B] %0, %3 : f32[C:3, A:2]", "f32[C:3, A:2]", OP_gather,
     3},
    {"%3 = exp %0 : f32[A:2, B:4]\n%4 = exp %0 : f32[A:2, B:4]\n%5 = sub %3, %4 : f32[A:2, B:4]\n"
     "%6 = exp %1 : f32[B:4]\n%9 = add %5, %0 : f32[A:2, B:4]",
     "f32[A:2, B:4]", OP_tanh, 5},
    {"%3 = const {value = 3} : f32[]\n%4 = const {value = 4} : f32[]\n%5 = mul %3, %4 : f32[]\n%6 "
     "= sqrt %5 : f32[]\n"
     "%9 = mul %0, %6 : f32[A:2, B:4]",
     "f32[A:2, B:4]", OP_sqrt, 4},
};

static void rules(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *t = &cases[i];
    Ctx *c = ctx_new();
    Module *m = module_from(
        c, arena_printf(c->arena,
                        "%sinput @a : f32[A:2, B:4]\ninput @b : f32[B:4]\ninput @c : "
                        "bool[B:4]\noutput @y : %s\n"
                        "entry @step {\n%%0 = load @a : f32[A:2, B:4]\n%%1 = load @b : f32[B:4]\n"
                        "%%2 = load @c : bool[B:4]\n%s\nstore @y, %%9\n}\n",
                        HEAD, t->type, t->lines));
    Module *n = module_again(c, m);
    run_until(n, "simplify");
    same_outputs(m, n, 1e-7);
    if (count_code(n, t->gone) || count_ops(n) != t->ops) {
      size_t length;
      fail_msg("%s\nis left as\n%s", t->lines, ir_print(n, &length));
    }
    ctx_free(c);
  }
}

/* A loop with an operand that is dead, one that is a constant, one twice, one carried unchanged;
   with results that nobody reads, that are the same, that are operands. */
static const char wasteful[] =
    HEAD "input @x : f32[B:2]\ninput @w : f32[L:3, B:2]\ninput @u : f32[L:3, B:2]\noutput @y : "
         "f32[B:2]\noutput @z : f32[L:3, B:2]\n"
         "output @s : f32[L:3, B:2]\noutput @k : f32[B:2]\n"
         "body @h(%0 : i32[], %1 : f32[B:2], %2 : f32[B:2], %3 : f32[B:2], %4 : f32[], %5 : "
         "f32[B:2], %6 : f32[B:2], %7 : f32[B:2], %8 : f32[B:2]) {\n"
         "%9 = mul %1, %6 : f32[B:2]\n%10 = mul %9, %4 : f32[B:2]\n%11 = add %10, %7 : "
         "f32[B:2]\n%12 = exp %3 : f32[B:2]\n"
         "%13 = add %11, %2 : f32[B:2]\nreturn %13, %2, %12, %9, %9, %8, %6\n}\n"
         "entry @step {\n%0 = load @x : f32[B:2]\n%1 = load @w : f32[L:3, B:2]\n%2 = load @u : "
         "f32[L:3, B:2]\n%3 = const {value = 1} : f32[]\n"
         "%4, %5, %6, %7, %8, %9, %10 = loop[L] @h, %0, %0, %0, %3, %0, %1, %1, %2 {carry = 3, "
         "invariant = 2, trip = 3} : f32[B:2], f32[B:2], f32[B:2], "
         "f32[L:3, B:2], f32[L:3, B:2], f32[L:3, B:2], f32[L:3, B:2]\n"
         "store @y, %4\nstore @z, %8\nstore @s, %10\nstore @k, %5\n}\n";

static void loops(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = module_from(c, wasteful), *n = module_again(c, m);
  run_until(n, "simplify");
  same_outputs(m, n, 0);
  const Fn *step = n->fns.at[n->fns.n - 1];
  for (uint32_t i = 0; i < step->ops.n; i++) {
    const Op *o = &step->ops.at[i];
    if (o->code != OP_loop) continue;
    assert_int_equal(o->nin, 3); /* carried, invariant, @w */
    assert_int_equal(o->nout, 2);
  }
  assert_int_equal(count_code(n, OP_exp), 0);
  ctx_free(c);
}

static void equal_bodies(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = module_from(
      c, HEAD "input @x : f32[B:2]\noutput @y : f32[B:2]\noutput @z : f32[B:2]\n"
              "body @f(%0 : i32[], %1 : f32[B:2]) {\n%2 = sin %1 : f32[B:2]\nreturn %2\n}\n"
              "body @g(%0 : i32[], %1 : f32[B:2]) {\n%2 = sin %1 : f32[B:2]\nreturn %2\n}\n"
              "entry @step {\n%0 = load @x : f32[B:2]\n"
              "%1 = loop[L] @f, %0 {carry = 1, invariant = 0, trip = 3} : f32[B:2]\n"
              "%2 = loop[L] @g, %0 {carry = 1, invariant = 0, trip = 3} : f32[B:2]\nstore @y, "
              "%1\nstore @z, %2\n}\n");
  run_until(m, "simplify");
  assert_int_equal(m->fns.n, 2);
  assert_int_equal(count_code(m, OP_loop), 1);
  ctx_free(c);
}

static void random_modules(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 300; seed++) {
    Ctx *c = ctx_new();
    Module *m = random_module(
        c, seed, (RandomOptions){.ops = 25, .loops = (int)(seed % 3), .smooth = seed % 2});
    if (!ir_verify(m)) fail_msg("seed %d: %s", (int)seed, reported(c));
    Module *n = module_again(c, m);
    run_until(n, "simplify");
    same_outputs(m, n, 1e-9);
    size_t before, after;
    n->was_known = false; /* what was before is not compared */
    const char *once = ir_print(n, &before);
    n = module_again(c, n);
    n->after = intern(c->names, "inline");
    run_until(n, "simplify");
    n->was_known = false;
    if (strcmp(once, ir_print(n, &after)))
      fail_msg("seed %d: not simple after one pass", (int)seed);
    ctx_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rules),
      cmocka_unit_test(loops),
      cmocka_unit_test(equal_bodies),
      cmocka_unit_test(random_modules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
