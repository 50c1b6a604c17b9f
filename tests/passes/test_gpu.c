/* Choices of pass select for GPUs that depend on several sizes, or on the memory of a
   multiprocessor; the golden files (select/gpu_*) show its results in kernels. */
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "ir/cost/budget.h"
#include "ir/kernel/gemm_gpu.h"
#include "passes/machine/messages.h"
#include "passes/tune/gpu.h"
#include "passes/tune/tune.h"
#include <stdio.h>

static Module *parse(Ctx *c, const char *text) {
  Module *m = ir_parse(c, "test", text, strlen(text));
  if (!m || !ir_verify(m)) diag_print(c->diag, stderr, DIAG_HUMAN, false);
  assert_non_null(m);
  m->target.device = DEVICE_GPU;
  return m;
}

/* The cut of dot[K] over a : elem[M, K], b : elem[N, K]. */
static Fn *product(Ctx *c, const char *elem, int m, int n, int k, const char *align) {
  Module *mod = parse(
      c, arena_printf(c->arena,
                      "shardc-ir 1\nmodel Test\nafter order\nkernel @k(%%0 : %s[M:%d, K:%d], %%1 : "
                      "%s[N:%d, K:%d]) {family = \"contract\"%s} {\n  %%2 = dot[K] %%0, %%1 : "
                      "f32[M:%d, N:%d]\n  return %%2\n}\n",
                      elem, m, k, elem, n, k, align, m, n));
  gpu_tune_contract(mod, mod->fns.at[0]);
  return mod->fns.at[0];
}

static int64_t tile(const Fn *k, int i) { return attr_get(&k->attrs, ATTR_tile)->list[i]; }

/* Where all CTAs of a multiprocessor share 100 KiB, one of 4 warps would be alone with 4 stages. */
static void few_warps_are_not_left_alone(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    Ctx *c = ctx_new();
    Module *m =
        parse(c, "shardc-ir 1\nmodel Test\nafter order\nkernel @k(%0 : bf16[M:16384, K:768], %1 "
                 ": bf16[N:128, K:768]) {family = \"contract\"} {\n  %2 = dot[K] %0, %1 : "
                 "f32[M:16384, N:128]\n  return %2\n}\n");
    m->target.shared_per_multiprocessor = (i ? 100 : 164) << 10;
    m->target.multiprocessors = 64;
    gpu_tune_contract(m, m->fns.at[0]);
    const Attr *shared = attr_get(&m->fns.at[0]->attrs, ATTR_shared),
               *threads = attr_get(&m->fns.at[0]->attrs, ATTR_threads);
    int64_t resident = gpu_resident(m, shared->list[0], threads->list[0], 192);
    assert_true(resident * threads->list[0] >= 256);
    assert_true(shared->list[0] <= m->target.shared);
    ctx_free(c);
  }
}

static const char *variant_of(Ctx *c, int rows, int columns, int spare) {
  static const char text[] = "shardc-ir 1\nmodel Test\nafter order\n"
                             "kernel @k(%%0 : bf16[M:%d, K:16], %%1 : bf16[N:%d, K:16]) "
                             "{family = \"contract\"} {\n"
                             "  %%2 = dot[K] %%0, %%1 : bf16[M:%d, N:%d]\n  return %%2\n}\n";
  Module *m = parse(c, arena_printf(c->arena, text, rows, columns, rows, columns));
  m->target.wgmma = true, m->target.shared = m->target.shared_most = 232448;
  m->target.multiprocessors = 132;
  if (spare) attr_set_int(m, &m->fns.at[0]->attrs, ATTR_spare, spare);
  gpu_tune_contract(m, m->fns.at[0]);
  return attr_str(&m->fns.at[0]->attrs, ATTR_variant, "");
}

/* Only kernels by warpgroups have attribute spare, so the rule takes no other one for it. Another
   one would be faster for the first product, on the multiprocessors that are left. */
static void room_is_left_by_warpgroups(void **state) {
  static const int size[][2] = {{2312, 1128}, {1128, 2312}, {4096, 1024}},
                   spare[] = {0, 16, 66, 116};
  (void)state;
  for (size_t i = 0; i < COUNT_OF(size); i++)
    for (size_t k = 0; k < COUNT_OF(spare); k++) {
      Ctx *c = ctx_new();
      assert_string_equal(variant_of(c, size[i][0], size[i][1], spare[k]),
                          gemm_variant[GEMM_WGMMA]);
      ctx_free(c);
    }
}

/* Odd rows, and views that begin anywhere, come element by element. */
static void pieces_need_alignment(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  assert_int_equal(tile(product(c, "bf16", 64, 64, 63, ""), GEMM_COPY_A), COPY_SINGLE_K);
  Fn *k = product(c, "bf16", 64, 64, 64, ", align = [2, 16, 16]");
  assert_int_equal(tile(k, GEMM_COPY_A), COPY_SINGLE_K);
  assert_int_equal(tile(k, GEMM_COPY_B), COPY_ASYNC_K);
  ctx_free(c);
}

/* Bulk copies fill only products by wgmma whose operands have tensor maps of at most five dims. */
static void bulk_copies_fit_some(void **state) {
  (void)state;
  static const struct {
    const char *a, *b, *out, *k;
    bool fits;
  } of[] = {{"M:512, K:16", "N:256, K:16", "M:512, N:256", "K", true},
            {"M:512, K:16", "K:16, N:264", "M:512, N:264", "K", true},
            {"M:512, K:252", "N:256, K:252", "M:512, N:256", "K", false},
            {"K:16", "N:256, K:16", "N:256", "K", false},
            {"A:2, B:3, C:5, M:256, K:64, L:64", "K:64, L:64, A:2, B:3, N:256",
             "A:2, B:3, C:5, M:256, N:256", "K, L", true}};
  for (size_t i = 0; i < COUNT_OF(of); i++) {
    Ctx *c = ctx_new();
    Module *m =
        parse(c, arena_printf(c->arena,
                              "shardc-ir 1\nmodel Test\nafter order\nkernel @k(%%0 : "
                              "bf16[%s], %%1 : bf16[%s]) {family = \"contract\"} {\n  %%2 = "
                              "dot[%s] %%0, %%1 : f32[%s]\n  return %%2\n}\n",
                              of[i].a, of[i].b, of[i].k, of[i].out));
    m->target.wgmma = true, m->target.shared = m->target.shared_most = 232448;
    Cut cut = {{128, 256, 64, 64, 256, 4, 1, BY_BULK}}, narrow = {{64, 64, 32, 32, 32, 3, 1, 2}};
    assert_int_equal(gpu_contract_fits(m, m->fns.at[0], &cut), of[i].fits);
    assert_false(gpu_contract_fits(m, m->fns.at[0], &narrow));
    gpu_tune_contract(m, m->fns.at[0]);
    assert_int_equal(tile(m->fns.at[0], GEMM_BY), BY_THREADS);
    ctx_free(c);
  }
}

/* Up to two results of 16 bits leave by bulk copies if their rows begin on whole pieces of 16
   bytes, arguments of elements have 16 bits and whole pieces as well and are read where they are
   used, and all of k is summed at once. Two such arguments do not fit next to a tile of 256
   columns. */
static void bulk_results_fit_some(void **state) {
  (void)state;
  static const struct {
    const char *arg, *attrs, *ops;
    int64_t splits;
    bool fits;
  } of[] = {
      {"", "", "%2 = dot[K] %0, %1 : bf16[M:512, N:256]\nreturn %2", 1, true},
      {"", "", "%2 = dot[K] %0, %1 : bf16[M:512, N:256]\nreturn %2", GEMM_SHARES, true},
      {"", "", "%2 = dot[K] %0, %1 : bf16[M:512, N:256]\nreturn %2", 2, false},
      {"", "", "%2 = dot[K] %0, %1 : f32[M:512, N:256]\nreturn %2", 1, false},
      {"", ", align = [16, 16, 8]", "%2 = dot[K] %0, %1 : bf16[M:512, N:256]\nreturn %2", 1, false},
      {", %2 : bf16[N:256]", "",
       "%3 = dot[K] %0, %1 : bf16[M:512, N:256]\n%4 = add %3, %2 : "
       "bf16[M:512, N:256]\nreturn %3, %4",
       1, true},
      {", %2 : bf16[N:256]", "",
       "%3 = dot[K] %0, %1 : bf16[M:512, N:256]\n%4 = add %3, %2 : "
       "bf16[M:512, N:256]\n%5 = neg %4 : bf16[M:512, N:256]\nreturn %3, %4, %5",
       1, false},
      {", %2 : bf16[M:512, N:256]", "",
       "%3 = dot[K] %0, %1 : bf16[M:512, N:256]\n%4 = add %3, %2 : "
       "bf16[M:512, N:256]\nreturn %4",
       1, true},
      {", %2 : bf16[M:512, N:256]", ", align = [16, 16, 8]",
       "%3 = dot[K] %0, %1 : bf16[M:512, N:256]\n%4 = add %3, %2 : "
       "bf16[M:512, N:256]\nreturn %3, %4",
       1, false},
      {", %2 : f32[M:512, N:256]", "",
       "%3 = dot[K] %0, %1 : f32[M:512, N:256]\n%4 = add %3, %2 : "
       "f32[M:512, N:256]\n%5 = cast %4 : bf16[M:512, N:256]\nreturn %5",
       1, false},
      {", %2 : bf16[M:512, N:256]", "",
       "%3 = dot[K] %0, %1 : bf16[M:512, N:256]\n%4 = shift[M] %2 {by = 1} : "
       "bf16[M:512, N:256]\n%5 = add %3, %4 : bf16[M:512, N:256]\nreturn %5",
       1, false},
      {", %2 : bf16[M:512, N:256], %3 : bf16[M:512, N:256]", "",
       "%4 = dot[K] %0, %1 : bf16[M:512, N:256]\n%5 = add %4, %2 : "
       "bf16[M:512, N:256]\n%6 = mul %5, %3 : bf16[M:512, N:256]\nreturn %6",
       1, false},
      {"", "",
       "%3 = dot[K] %0, %1 : bf16[M:512, N:256]\n%4 = cast %3 : f32[M:512, N:256]\n%5 = sum[M] %4 "
       ": "
       "f32[N:256]\nreturn %3, %5",
       1, true},
  };
  for (size_t i = 0; i < COUNT_OF(of); i++) {
    Ctx *c = ctx_new();
    Module *m = parse(c, arena_printf(c->arena,
                                      "shardc-ir 1\nmodel Test\nafter order\nkernel @k(%%0 : "
                                      "bf16[M:512, K:16], %%1 : bf16[N:256, K:16]%s) {family = "
                                      "\"contract\"%s} {\n%s\n}\n",
                                      of[i].arg, of[i].attrs, of[i].ops));
    m->target.wgmma = true, m->target.shared = m->target.shared_most = 232448;
    Cut cut = {{128, 256, 64, 64, 256, 3, of[i].splits, BY_BULK_ALL}};
    if (gpu_contract_fits(m, m->fns.at[0], &cut) != of[i].fits) fail_msg("case %d", (int)i);
    ctx_free(c);
  }
}

/* Tiles of 16 rows and columns of f32 heads fit up to 256; wider ones are refused by name. */
static void heads_are_cut_up_to_a_width(void **state) {
  (void)state;
  static const int widths[] = {16, 80, 112, 256, 1024};
  for (int i = 0; i < 5; i++) {
    Ctx *c = ctx_new();
    int d = widths[i];
    const char *text = arena_printf(
        c->arena,
        "shardc-ir 1\nmodel Test\nafter order\nkernel @k(%%0 : f32[S:64, D:%d], %%1 : f32[T:64, "
        "D:%d], %%2 : f32[T:64, D:%d]) {family = \"attention\"} {\n  %%3, %%4 = attention[S -> T; "
        "D] %%0, %%1, %%2 {scale = 0.1} : f32[S:64, D:%d], f32[S:64]\n  return %%3, %%4\n}\n",
        d, d, d, d);
    Module *m = parse(c, text);
    gpu_tune_attention(m, m->fns.at[0]);
    assert_int_equal(diag_errors(c->diag), d > 256);
    assert_int_equal(attr_get(&m->fns.at[0]->attrs, ATTR_tile) != NULL, d <= 256);
    ctx_free(c);
  }
}

/* Blocks of fewer columns where CTAs share 100 KiB: dk and dv of 64-wide heads, and no smaller ones
   where nothing helps; and where rows come element by element. */
static void attention_leaves_room(void **state) {
  (void)state;
  static const struct {
    int width, all, columns;
  } of[] = {{64, 164, 64}, {64, 100, 32}, {128, 100, 32}, {88, 164, 64}, {84, 164, 32}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    Ctx *c = ctx_new();
    int d = of[i].width;
    const char *text = arena_printf(
        c->arena,
        "shardc-ir 1\nmodel Test\nafter order\nkernel @k(%%0 : bf16[H:64, S:1024, D:%d], %%1 : "
        "bf16[H:64, T:1024, D:%d], %%2 : bf16[H:64, T:1024, D:%d], %%3 : bf16[H:64, S:1024, D:%d], "
        "%%4 : f32[H:64, S:1024], %%5 : bf16[H:64, S:1024, D:%d]) {family = \"attention_grad\"} {\n"
        "  %%6, %%7, %%8 = attention_grad[S -> T; D] %%0, %%1, %%2, %%3, %%4, %%5 {scale = 0.1} : "
        "bf16[H:64, S:1024, D:%d], bf16[H:64, T:1024, D:%d], bf16[H:64, T:1024, D:%d]\n"
        "  return %%6, %%7, %%8\n}\n",
        d, d, d, d, d, d, d, d);
    Module *m = parse(c, text);
    m->target.shared_per_multiprocessor = of[i].all << 10;
    gpu_tune_attention(m, m->fns.at[0]);
    assert_int_equal(tile(m->fns.at[0], 0), 64);
    assert_int_equal(tile(m->fns.at[0], 1), of[i].columns);
    ctx_free(c);
  }
}

/* Messages of [A:8, B:64] over two ranks, buckets of 256 bytes: what needs room needs a bucket. */
static void messages_need_a_bucket(void **state) {
  static const char text[] =
      "shardc-ir 1\nmodel Test\nafter order\nmesh x = 2\nset plan.zero.bucket = \"256\"\n"
      "body @b(%0 : f32[A:4, B:64]) {\n"
      "  %1 = all_to_all[A -> B] %0 {axis = \"x\", ranks = 2} : f32[A:8, B:32]\n"
      "  %2 = all_reduce %0 {axis = \"x\", ranks = 2} : f32[A:4, B:64]\n  return %1, %2\n}\n";
  static const int64_t piece[2][2] = {{32, 0}, {32, 64}}, work[2] = {256, 0};
  (void)state;
  for (int host = 0; host < 2; host++) {
    Ctx *c = ctx_new();
    Module *m = parse(c, text);
    const Fn *f = m->fns.at[0];
    if (host) module_set(m, "comm", "local");
    select_messages(m);
    for (OpId i = 0; i < 2; i++)
      assert_int_equal(attr_int(&f->ops.at[i].attrs, ATTR_piece, 0), piece[host][i]);
    assert_int_equal(attr_int(&f->ops.at[0].attrs, ATTR_workspace, 0), work[host]);
    assert_int_equal(module_pinned(m).messages, host ? 2 * 256 : 0);
    ctx_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(few_warps_are_not_left_alone), cmocka_unit_test(attention_leaves_room),
      cmocka_unit_test(pieces_need_alignment),        cmocka_unit_test(bulk_copies_fit_some),
      cmocka_unit_test(bulk_results_fit_some),        cmocka_unit_test(heads_are_cut_up_to_a_width),
      cmocka_unit_test(messages_need_a_bucket),       cmocka_unit_test(room_is_left_by_warpgroups)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
