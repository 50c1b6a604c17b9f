/* Operations of masked attention: as many as keys that the mask admits, counted one by one. */
#include "common.h"
#include "ir/mask/mask_density.h"
#include "ir/cost/count.h"
#include <math.h>

typedef bool Admits(int64_t q, int64_t k);

static bool causal(int64_t q, int64_t k) { return k <= q; }
static bool near(int64_t q, int64_t k) { return llabs(q - k) < 5; }
static bool both(int64_t q, int64_t k) { return causal(q, k) && near(q, k); }
static bool far(int64_t q, int64_t k) { return !near(q, k); }
static bool own_block(int64_t q, int64_t k) { return q / 16 == k / 16; }
static bool pieces(int64_t q, int64_t k) { /* every second one is 20 later */
  return k + k / 16 % 2 * 20 <= q + q / 16 % 2 * 20;
}
static bool all(int64_t q, int64_t k) { return q >= 0 && k >= 0; }
static bool never(int64_t q, int64_t k) { return q < 0 && k < 0; }

/* After %q and %k, positions of queries and keys, and %l, `valid`; the mask is %m. */
static const struct {
  const char *ops;
  Admits *admits;
} masks[] = {
    {"%m = le %k, %q : bool[S:37, T:53]", causal},
    {"%d = sub %k, %q : i32[S:37, T:53]\n%a = abs %d : i32[S:37, T:53]\n"
     "%c = const {value = 5} : i32[]\n%m = lt %a, %c : bool[S:37, T:53]",
     near},
    {"%d = sub %q, %k : i32[S:37, T:53]\n%a = abs %d : i32[S:37, T:53]\n"
     "%c = const {value = 5} : i32[]\n%n = lt %a, %c : bool[S:37, T:53]\n"
     "%o = le %k, %q : bool[S:37, T:53]\n%m = and %n, %o : bool[S:37, T:53]",
     both},
    {"%d = sub %q, %k : i32[S:37, T:53]\n%e = neg %d : i32[S:37, T:53]\n"
     "%a = max %d, %e : i32[S:37, T:53]\n%c = const {value = 5} : i32[]\n"
     "%n = lt %a, %c : bool[S:37, T:53]\n%m = not %n : bool[S:37, T:53]",
     far},
    {"%c = const {value = 16} : i32[]\n%d = div %q, %c : i32[S:37, T:53]\n"
     "%e = div %k, %c : i32[S:37, T:53]\n%m = eq %d, %e : bool[S:37, T:53]",
     own_block},
    {"%c = const {value = 16} : i32[]\n%d = div %q, %c : i32[S:37, T:53]\n"
     "%e = div %k, %c : i32[S:37, T:53]\n%f = const {value = 2} : i32[]\n"
     "%g = div %d, %f : i32[S:37, T:53]\n%h = mul %g, %f : i32[S:37, T:53]\n"
     "%a = sub %d, %h : i32[S:37, T:53]\n%b = const {value = 20} : i32[]\n"
     "%n = mul %a, %b : i32[S:37, T:53]\n%o = add %q, %n : i32[S:37, T:53]\n"
     "%s = div %e, %f : i32[S:37, T:53]\n%t = mul %s, %f : i32[S:37, T:53]\n"
     "%u = sub %e, %t : i32[S:37, T:53]\n%r = mul %u, %b : i32[S:37, T:53]\n"
     "%v = add %k, %r : i32[S:37, T:53]\n%m = le %v, %o : bool[S:37, T:53]",
     pieces},
    {"%m = le %k, %l : bool[S:37, T:53]", all},
    {"%n = lt %l, %k : bool[S:37, T:53]\n%m = not %n : bool[S:37, T:53]", all},
    {"%n = lt %l, %k : bool[S:37, T:53]\n%o = le %k, %q : bool[S:37, T:53]\n"
     "%m = and %n, %o : bool[S:37, T:53]",
     causal},
    {"%n = lt %k, %l : bool[S:37, T:53]\n%c = const {value = 99} : i32[]\n"
     "%o = lt %c, %k : bool[S:37, T:53]\n%m = and %n, %o : bool[S:37, T:53]",
     never},
};

/* Names of values become numbers in order of definition. */
static char *numbered(Arena *a, const char *text) {
  char known[64] = {0}, *out = arena_printf(a, "%*s", (int)(3 * strlen(text)), ""), *to = out;
  int n = 3; /* arguments q, k, v are digits already */
  for (; *text; text++) {
    *to++ = *text;
    if (*text != '%' || text[1] < 'a') continue;
    int at = 0;
    while (at < n && known[at] != text[1]) at++;
    if (at == n || n == 3) at = n, known[n++] = text[1];
    to += sprintf(to, "%d", at), text++;
  }
  *to = 0;
  return out;
}

static double flop_of(Ctx *c, const char *mask, bool grad) {
  const char *text = arena_printf(
      c->arena,
      "shardc-ir 1\nmodel T\nafter lower\ninput @l : i32[S:37, T:53]\n"
      "param @q : f32[H:2, S:37, D:8]\nparam @k : f32[H:2, T:53, D:8]\nparam @z : f32[H:2, S:37]\n"
      "output @y : f32[H:2, S:37, D:8]\nentry @f {\n  %%0 = load @q : f32[H:2, S:37, D:8]\n"
      "  %%1 = load @k : f32[H:2, T:53, D:8]\n  %%2 = load @z : f32[H:2, S:37]\n"
      "  %%i = iota[S] : i32[S:37]\n  %%q = expand[T] %%i : i32[S:37, T:53]\n"
      "  %%j = iota[T] : i32[T:53]\n  %%k = expand[S] %%j : i32[S:37, T:53]\n"
      "  %%l = load @l : i32[S:37, T:53]\n  %s\n",
      mask);
  const char *op =
      grad ? "%%y, %%x, %%w = attention_grad[S -> T; D] %%0, %%1, %%1, %%0, %%2, %%0, %%m {scale = "
             "1} : f32[H:2, S:37, D:8], f32[H:2, T:53, D:8], f32[H:2, T:53, D:8]"
           : "%%y, %%z = attention[S -> T; D] %%0, %%1, %%1, %%m {scale = 1} : f32[H:2, S:37, "
             "D:8], f32[H:2, S:37]";
  text =
      arena_printf(c->arena, "%s  %s\n  store @y, %%y\n}\n", text, arena_printf(c->arena, op, 0));
  Module *m = sound_module(c, numbered(c->arena, text));
  const Fn *f = m->fns.at[0];
  return ir_op_flop(m, f, &f->ops.at[f->ops.n - 2]);
}

static void admitted_keys(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
    double n = 0;
    for (int64_t q = 0; q < 37; q++)
      for (int64_t k = 0; k < 53; k++) n += masks[i].admits(q, k);
    for (int grad = 0; grad < 2; grad++) {
      Ctx *c = ctx_new();
      double flop = flop_of(c, masks[i].ops, grad), want = (grad ? 10 : 4) * n * 2 * 8;
      if (fabs(flop - want) > 1e-6 * want)
        fail_msg("%s\n%.17g operations, %.17g are right", masks[i].ops, flop, want);
      ctx_free(c);
    }
  }
}

/* Blocks of 64 in a length that halving cuts elsewhere: borders of blocks are borders of cuts, and
   so the count is exact above the length from which single scores are not asked for. */
static void blocks_of_long_rows(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  const char *text =
      "shardc-ir 1\nmodel T\nafter lower\nparam @q : f32[S:12800, D:8]\n"
      "param @k : f32[T:12800, D:8]\noutput @y : f32[S:12800, D:8]\nentry @f {\n"
      "  %0 = load @q : f32[S:12800, D:8]\n  %1 = load @k : f32[T:12800, D:8]\n"
      "  %c = const {value = 64} : i32[]\n  %n = expand[S, T] %c : i32[S:12800, T:12800]\n"
      "  %i = iota[S] : i32[S:12800]\n  %q = expand[T] %i : i32[S:12800, T:12800]\n"
      "  %j = iota[T] : i32[T:12800]\n  %k = expand[S] %j : i32[S:12800, T:12800]\n"
      "  %a = div %q, %n : i32[S:12800, T:12800]\n  %b = div %k, %n : i32[S:12800, T:12800]\n"
      "  %m = le %b, %a : bool[S:12800, T:12800]\n"
      "  %y, %z = attention[S -> T; D] %0, %1, %1, %m {scale = 1} : f32[S:12800, D:8], "
      "f32[S:12800]\n  store @y, %y\n}\n";
  Module *m = sound_module(c, numbered(c->arena, text));
  const Fn *f = m->fns.at[0];
  double want = 4 * 8 * (200. * 201 / 2) * 64 * 64;
  for (int again = 0; again < 2; again++) {
    double flop = ir_op_flop(m, f, &f->ops.at[f->ops.n - 2]);
    if (fabs(flop - want) > 1e-9 * want) fail_msg("%.17g operations, %.17g are right", flop, want);
  }
  ctx_free(c);
}

/* Shares are kept by what they follow from: where that differs by one constant, op or size, they
   do. */
static void shares_are_told_apart(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Str s = intern(c->names, "S"), t = intern(c->names, "T");
  const char *text = "shardc-ir 1\nmodel T\nafter lower\noutput @y : bool[S:8, T:8]\nentry @f {\n"
                     "  %i = iota[S] : i32[S:8]\n  %q = expand[T] %i : i32[S:8, T:8]\n"
                     "  %j = iota[T] : i32[T:8]\n  %k = expand[S] %j : i32[S:8, T:8]\n"
                     "  %c = const {value = 2} : i32[]\n  %x = expand[S, T] %c : i32[S:8, T:8]\n"
                     "  %d = const {value = 3} : i32[]\n  %y = expand[S, T] %d : i32[S:8, T:8]\n"
                     "  %a = lt %q, %x : bool[S:8, T:8]\n  %b = lt %q, %y : bool[S:8, T:8]\n"
                     "  %e = lt %k, %q : bool[S:8, T:8]\n  store @y, %e\n}\n";
  Module *m = sound_module(c, numbered(c->arena, text));
  const Fn *f = m->fns.at[0];
  const double want[] = {2 / 8., 3 / 8., 28 / 64.};
  for (int again = 0; again < 2; again++) {
    for (uint32_t i = 0; i < 3; i++)
      assert_true(mask_shares(m, f, f->ops.at[8 + i].out, (Axis){s, 8}, (Axis){t, 8}, NULL).mean ==
                  want[i]);
    assert_true(mask_shares(m, f, f->ops.at[8].out, (Axis){s, 4}, (Axis){t, 8}, NULL).mean ==
                2 / 4.);
  }
  ctx_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(admitted_keys),
                                     cmocka_unit_test(blocks_of_long_rows),
                                     cmocka_unit_test(shares_are_told_apart)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
