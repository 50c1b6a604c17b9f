/* Products by wgmma whose results leave by bulk tensor copies, on the PTX machine against the
   interpreter; with ptxas, where it is: it must not let wgmma wait for itself. Must not: test what
   other results have in common with them (test_contract.c). */
#include "harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* Results of 16 bits of whole tiles and ragged ones, k or the other dim contiguous: a factor of the
   row and a bias, in batches; that and a function of it; several dims of rows and of columns, which
   are not neighbours in the result. */
static void add_left(Harness *h, int i, const char *elem, int64_t width) {
  bool whole = i & 4;
  int64_t m = whole ? 128 : 200, n = whole ? width : 136 + 8 * i, batch = 1 + i % 2;
  const char *out = arena_printf(h->arena, "[B:%d, M:%d, N:%d]", (int)batch, (int)m, (int)n);
  const char *a = i & 1 ? "B:%d, K:%d, M:%d" : "B:%d, M:%d, K:%d";
  a = i & 1 ? arena_printf(h->arena, a, (int)batch, 200, (int)m)
            : arena_printf(h->arena, a, (int)batch, (int)m, 200);
  const char *b = i & 2 ? arena_printf(h->arena, "B:%d, K:200, N:%d", (int)batch, (int)n)
                        : arena_printf(h->arena, "B:%d, N:%d, K:200", (int)batch, (int)n);
  if (width % 64 == 0 && i % 4 == 3) {
    out = "[Q:3, B:2, M:48, H:5, D:64]", a = "B:2, M:48, K:200", b = "K:200, Q:3, H:5, D:64";
    harness_add(h, "kernel @k%d(%%0 : %s[%s], %%1 : %s[%s]) {family = \"contract\"} {\n", i, elem,
                a, elem, b);
    harness_add(h, "  %%2 = dot[K] %%0, %%1 : %s%s\n  return %%2\n}\n", elem, out);
    return;
  }
  harness_add(h, "kernel @k%d(%%0 : %s[%s], %%1 : %s[%s], %%2 : f32[M:%d], %%3 : f32[N:%d]) {", i,
              elem, a, elem, b, (int)m, (int)n);
  harness_add(h, "family = \"contract\"} {\n  %%4 = dot[K] %%0, %%1 : f32%s\n", out);
  harness_add(h, "  %%5 = mul %%4, %%2 : f32%s\n  %%6 = add %%5, %%3 : f32%s\n", out, out);
  harness_add(h, "  %%7 = cast %%6 : %s%s\n  %%8 = cast %%7 : f32%s\n  %%9 = tanh %%8 : f32%s\n",
              elem, out, out, out);
  harness_add(h, "  %%10 = cast %%9 : %s%s\n  return %s\n}\n", elem, out, i % 3 ? "%7" : "%10, %7");
}

/* Rows are places of experts, of which some are empty. */
static void add_places(Harness *h, int i, const char *elem) {
  harness_add(h,
              "kernel @k%d(%%0 : %s[B:2, E:2, S:256, K:72], %%1 : %s[E:2, K:72, N:136]) {family = "
              "\"contract\", skips = \"S\"} {\n",
              i, elem, elem);
  harness_add(h, "  %%2 = dot[K] %%0, %%1 : %s[B:2, E:2, S:256, N:136]\n  return %%2\n}\n", elem);
}

/* Products that read one or two arguments at each element of the result, and have one or two
   results, by i % 4: a residual, in batches; a function of a factor, and the rounded sum as well;
   both gradients of a product of two values; one value from two. */
static void add_elements(Harness *h, int i, const char *elem, int64_t width) {
  bool whole = i & 4;
  int m = whole ? 256 : 200, n = whole ? (int)width : 136 + 8 * i, batch = 1 + i % 2;
  const char *out = arena_printf(h->arena, "[B:%d, M:%d, N:%d]", batch, m, n);
  const char *f = arena_printf(h->arena, "f32%s", out),
             *y = arena_printf(h->arena, "%s%s", elem, out);
  harness_add(h, "kernel @e%d(%%0 : %s[B:%d, M:%d, K:%d], %%1 : %s[", i, elem, batch, m, 72, elem);
  if (i & 2) harness_add(h, "B:%d, K:72, N:%d], %%2 : %s", batch, n, y);
  else harness_add(h, "B:%d, N:%d, K:72], %%2 : %s", batch, n, y);
  harness_add(h, "%s) {family = \"contract\"} {\n",
              i % 4 < 2 ? "" : arena_printf(h->arena, ", %%3 : %s", y));
  harness_add(h, "  %%4 = dot[K] %%0, %%1 : %s\n  %%5 = cast %%2 : %s\n", f, f);
  harness_add(h, "  %%6 = %s : %s\n", i % 4 == 1 ? "tanh %5" : i % 4 ? "cast %3" : "neg %5", f);
  harness_add(h, "  %%7 = mul %%4, %%5 : %s\n  %%8 = sub %%7, %%6 : %s\n", f, f);
  harness_add(h, "  %%9 = cast %%8 : %s\n  %%10 = cast %%4 : %s\n  return %s\n}\n", y, y,
              i % 4 == 0 || i % 4 == 3 ? "%9" : "%9, %10");
}

/* Products whose result is multiplied by an argument of its elements or its columns, and summed
   over its rows. */
static void add_columns(Harness *h, int i, const char *elem, int64_t width) {
  bool whole = i & 4;
  int m = whole ? 256 : 200, n = whole ? (int)width : 136 + 8 * i;
  const char *out = arena_printf(h->arena, "[M:%d, N:%d]", m, n);
  const char *f = arena_printf(h->arena, "f32%s", out);
  harness_add(h, "kernel @c%d(%%0 : %s[M:%d, K:72], %%1 : %s[", i, elem, m, elem);
  harness_add(h, i & 2 ? "K:72, N:%d], %%2 : %s%s)" : "N:%d, K:72], %%2 : %s%s)", n, elem,
              i & 1 ? arena_printf(h->arena, "[N:%d]", n) : out);
  harness_add(h, " {family = \"contract\"} {\n  %%3 = dot[K] %%0, %%1 : %s\n", f);
  harness_add(h, "  %%4 = cast %%2 : f32%s\n", i & 1 ? arena_printf(h->arena, "[N:%d]", n) : out);
  harness_add(h, "  %%5 = mul %%3, %%4 : %s\n  %%6 = cast %%5 : %s%s\n", f, elem, out);
  harness_add(h, "  %%7 = sum[M] %%5 : f32[N:%d]\n  return %%6, %%7\n}\n", n);
}

/* Case i of a table: other numbers of multiprocessors, and of those that are left. */
static Harness *leaving(int i, const char *cut) {
  Harness *h = harness_new("sm_90a");
  h->low = -1, h->high = 1, h->cut = cut, h->multiprocessors = 3 - i % 3, h->spare = i;
  return h;
}

static void columns_are_summed(void **state) {
  static const struct {
    const char *cut;
    int64_t width;
  } of[] = {{"128 256 64 64 256 3 1 3", 256},
            {"128 136 64 64 136 4 1 3", 136},
            {"128 200 64 64 200 3 65536 3", 200}};
  (void)state;
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    Harness *h = leaving((int)i, of[i].cut);
    for (int k = 0; k < 8; k++) add_columns(h, k, "bf16", of[i].width);
    for (int k = 0; k < 4; k++) harness_squares(h, k, "bf16", of[i].width);
    assert_int_equal(harness_run(h, 8e-3), 0);
    harness_free(h);
  }
}

/* Products of add_elements, some with results in the bytes of arguments: a tile whose last panel
   begins within another one, and equal shares. */
static void elements_come(void **state) {
  static const struct {
    const char *elem, *cut;
    double tolerance;
    int64_t width;
    int most; /* arguments of elements */
    bool in_place;
  } of[] = {{"bf16", "128 256 64 64 256 3 1 3", 8e-3, 256, 1, true},
            {"f16", "128 136 64 64 136 3 1 3", 1e-3, 136, 2, true},
            {"bf16", "128 192 64 64 192 3 65536 3", 8e-3, 192, 2, false},
            {"bf16", "128 200 64 64 200 3 65536 3", 8e-3, 200, 1, true}};
  (void)state;
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    Harness *h = leaving((int)i, of[i].cut);
    for (int j = 2; of[i].in_place && j >= 0; j -= 2) vec_push(h->arena, h->inplace, j);
    for (int k = 0; k < 8; k++)
      if (k % 4 < 2 || of[i].most > 1) add_elements(h, k, of[i].elem, of[i].width);
    assert_int_equal(harness_run(h, of[i].tolerance), 0);
    harness_free(h);
  }
}

/* Panels that end with the tile and that do not, rooms that are used twice in a tile, one and
   several tiles of a CTA, equal shares. */
static void results_leave(void **state) {
  static const struct {
    const char *elem, *cut;
    double tolerance;
    int64_t width;
  } of[] = {{"bf16", "128 256 64 64 256 3 1 3", 8e-3, 256},
            {"f16", "128 128 64 64 128 6 1 3", 1e-3, 128},
            {"bf16", "128 192 64 64 192 4 65536 3", 8e-3, 192},
            {"f16", "128 136 64 64 136 4 1 3", 1e-3, 136},
            {"bf16", "128 200 64 64 200 3 65536 3", 8e-3, 200}};
  (void)state;
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    Harness *h = leaving((int)i, of[i].cut);
    for (int k = 0; k < 8; k++) add_left(h, k, of[i].elem, of[i].width);
    if (!strstr(of[i].cut, "65536")) add_places(h, 8, of[i].elem);
    assert_int_equal(harness_run(h, of[i].tolerance), 0);
    harness_free(h);
  }
}

int main(int argc, char **argv) {
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  if (harness_tested("sm_90a")) return HARNESS_SKIPPED;
  const struct CMUnitTest tests[] = {cmocka_unit_test(results_leave),
                                     cmocka_unit_test(elements_come),
                                     cmocka_unit_test(columns_are_summed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
