/* precision: which values of a pre-norm block become bf16 or f16, what stays f32, what `wide`
   keeps, and that nothing else changes: in exact numbers every module computes the same before and
   after. */
#include "common.h"
#include "tests/common/random_module.h"
#include <string.h>

#define X "f32[Batch:4, Seq:3, Embed:8]"
#define U "f32[Batch:4, Seq:3, Mlp:16]"
#define R "f32[Batch:4, Seq:3]"

/* x + fc2(tanh(fc1(norm(x)) + b)), the loss the mean square of y - t */
static const char block[] =
    "shardc-ir 1\nmodel T\nafter lower\ndim Batch = 4\nparam @e : f32[V:5, Embed:8]\n"
    "param @g : f32[Layers:3, Embed:8]\nparam @w : f32[Layers:3, Embed:8, Mlp:16]\n"
    "param @b : f32[Layers:3, Mlp:16]\nparam @u : f32[Layers:3, Mlp:16, Embed:8]\n"
    "input @i : i32[Batch:4, Seq:3] of V\ninput @t : " X "\noutput @loss : f32[]\n"
    "body @h(%0 : i32[], %1 : " X
    ", %2 : f32[Embed:8], %3 : f32[Embed:8, Mlp:16], %4 : f32[Mlp:16], "
    "%5 : f32[Mlp:16, Embed:8]) {\n"
    "%6 = const {value = 8} : f32[]\n%7 = sum[Embed] %1 : " R "\n%8 = div %7, %6 : " R "\n"
    "%9 = sub %1, %8 : " X "\n%10 = mul %9, %9 : " X "\n%11 = sum[Embed] %10 : " R "\n"
    "%12 = div %11, %6 : " R "\n%13 = rsqrt %12 : " R "\n%14 = mul %9, %13 : " X "\n"
    "%15 = mul %14, %2 : " X "\n%16 = dot[Embed] %15, %3 : " U "\n%17 = add %16, %4 : " U "\n"
    "%18 = tanh %17 : " U "\n%19 = MARK %18 : " U "\n%20 = dot[Mlp] %19, %5 : " X "\n"
    "%21 = add %1, %20 : " X "\nreturn %21\n}\n"
    "entry @step {\n%0 = load @e : f32[V:5, Embed:8]\n%1 = load @i : i32[Batch:4, Seq:3]\n"
    "%2 = gather[V] %0, %1 : " X "\n%3 = load @g : f32[Layers:3, Embed:8]\n"
    "%4 = load @w : f32[Layers:3, Embed:8, Mlp:16]\n%5 = load @b : f32[Layers:3, Mlp:16]\n"
    "%6 = load @u : f32[Layers:3, Mlp:16, Embed:8]\n"
    "%7 = loop[Layers] @h, %2, %3, %4, %5, %6 {carry = 1, invariant = 0, trip = 3} : " X "\n"
    "%8 = load @t : " X "\n%9 = sub %7, %8 : " X "\n%10 = mul %9, %9 : " X "\n"
    "%11 = sum[Batch, Seq, Embed] %10 : f32[]\nstore @loss, %11\n}\n";

static Module *block_in(Ctx *c, const char *mark, const char *type) {
  const char *at = strstr(block, "MARK");
  const char *text =
      arena_printf(c->arena, "%.*s%s%s", (int)(at - block), block, mark, at + strlen("MARK"));
  Module *m = module_from(c, text);
  module_set(m, "train.optim", "adamw");
  module_set(m, "plan.precision", "%s", type);
  return m;
}

static Module *block_module(Ctx *c, const char *mark) { return block_in(c, mark, "bf16"); }

typedef struct Found {
  int narrow, wide, mixed; /* products by type of operands and result */
  int sums, states;        /* reductions of bf16; carried values that are bf16 */
  int kept, marks;         /* stacked f32 of activation size; ops `wide` */
} Found;

static void look(const Fn *f, const Op *o, Found *r) {
  if (o->code == OP_wide) r->marks++;
  if (op_family(o->code) == FAMILY_REDUCE) r->sums += elem_is_half(value_type(f, o->in[0])->elem);
  if (o->code == OP_dot) {
    bool in = elem_is_half(value_type(f, o->in[0])->elem),
         out = elem_is_half(value_type(f, o->out)->elem);
    r->narrow += in && out, r->mixed += in && !out, r->wide += !in;
  }
  if (o->code != OP_loop) return;
  int64_t carry = attr_int(&o->attrs, ATTR_carry, 0);
  for (uint32_t i = 0; i < o->nout; i++) {
    const Type *t = value_type(f, o->out + i);
    if (i < carry) r->states += elem_is_half(t->elem);
    else
      r->kept += t->elem == ELEM_f32 && type_find(t, o->group[0].from[0]) == 0 &&
                 type_count(t) >= 3 * 4 * 3 * 8 && t->axis[1].dim[0] == 'B';
  }
}

static Found all(const Module *m) {
  Found r = {0};
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (uint32_t k = 0; k < m->fns.at[i]->ops.n; k++)
      look(m->fns.at[i], &m->fns.at[i]->ops.at[k], &r);
  return r;
}

/* Both products of the forward body end in an epilogue, so their sums are f32; the four of the
   backward body are bf16. Forward state and its gradient are bf16; after recompute nothing large is
   kept in f32. */
static void types_in(const char *type) {
  Ctx *c = ctx_new();
  Module *m = block_in(c, "copy", type);
  run_until(m, "clean");
  Found r = all(m);
  assert_int_equal(r.mixed, 2);
  assert_int_equal(r.narrow, 4);
  assert_int_equal(r.wide, 0);
  assert_int_equal(r.sums, 0);
  assert_int_equal(r.states, 2);
  assert_int_equal(r.kept, 0);
  for (uint32_t i = 0; i < m->globals.n; i++)
    assert_false(elem_is_half(m->globals.at[i]->type.elem));
  ctx_free(c);
}

static void compute_types(void **state) {
  (void)state;
  types_in("bf16"), types_in("f16");
}

/* The second product and its two gradients read what is marked, or its gradient. */
static void marked(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = block_module(c, "wide");
  run_until(m, "clean");
  Found r = all(m);
  assert_int_equal(r.wide, 2);
  assert_int_equal(r.marks, 0);
  ctx_free(c);
  c = ctx_new();
  m = block_module(c, "wide");
  module_set(m, "plan.precision", "f32");
  run_until(m, "clean");
  r = all(m);
  assert_int_equal(r.wide, 6);
  assert_int_equal(r.marks, 0);
  ctx_free(c);
}

static const Op *micro_loop(const Module *m, const Fn **f) {
  *f = m->fns.at[m->fns.n - 1];
  for (uint32_t k = 0; k < (*f)->ops.n; k++)
    if ((*f)->ops.at[k].code == OP_loop) return &(*f)->ops.at[k];
  fail_msg("no loop");
  return NULL;
}

/* Sums of gradients over micro-batches: f32, or what the plan says. */
static void accumulators(void **state) {
  (void)state;
  for (int bf16 = 0; bf16 < 2; bf16++) {
    Ctx *c = ctx_new();
    Module *m = block_module(c, "copy");
    module_set(m, "plan.micro", "2");
    if (bf16) module_set(m, "plan.precision.grad", "bf16");
    run_until(m, "precision");
    const Fn *f;
    const Op *o = micro_loop(m, &f);
    int64_t carry = attr_int(&o->attrs, ATTR_carry, 0);
    assert_int_equal(carry, 6);
    for (uint32_t i = 0; i < carry; i++) {
      const Type *t = value_type(f, o->out + i);
      assert_int_equal(t->elem, t->rank && bf16 ? ELEM_bf16 : ELEM_f32);
    }
    ctx_free(c);
  }
}

/* precision.grad = f32 with one round: products deliver weight gradients in f32. */
static void wide_gradients(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = block_module(c, "copy");
  module_set(m, "plan.precision.grad", "f32");
  run_until(m, "clean");
  Found r = all(m);
  assert_int_equal(r.mixed, 4);
  assert_int_equal(r.narrow, 2);
  ctx_free(c);
}

static void refused(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = block_module(c, "copy");
  module_set(m, "plan.precision", "i32");
  expect_error(m, "clean", "E0901", "i32");
  ctx_free(c);
}

/* In exact numbers nothing is rounded, so the pass changes nothing. */
static void same_outputs(Module *m, const char *entry, const char *type) {
  Module *again = module_again(m->ctx, m);
  module_set(again, "plan.precision", "%s", type);
  run_until(m, "clean");
  run_until(again, "clean");
  Interp *a = interp_filled(m, true), *b = interp_filled(again, true);
  must_run(a, entry);
  must_run(b, entry);
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->kind == GLOBAL_OUTPUT) expect_same(a, b, m->globals.at[i]->name, 1e-9);
}

static void exact_numbers(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 150; seed++) {
    Ctx *c = ctx_new();
    same_outputs(random_module(c, seed, (RandomOptions){20, (int)(seed % 3), true, true}), "step",
                 seed % 2 ? "bf16" : "f16");
    ctx_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compute_types),  cmocka_unit_test(marked),  cmocka_unit_test(accumulators),
      cmocka_unit_test(wide_gradients), cmocka_unit_test(refused), cmocka_unit_test(exact_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
