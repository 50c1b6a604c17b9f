/* Building of kernels: same bytes every time, the cache, kernels whose compiler dies, texts. */
#include "codegen/cache.h"
#include "tests/common/reported.h"
#include "harness.h"
#include "ir/support/output.h"
#include "passes/tune/tune.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char good[] = "shardc-ir 1\nmodel Test\nafter select\n"
                           "kernel @a.b(%0 : f32[A:100]) {family = \"elem\", variant = \"vector\", "
                           "tile = [4096], chunks = [1]} {\n"
                           "  %1 = exp %0 : f32[A:100]\n  return %1\n}\n"
                           "kernel @c(%0 : f32[A:100]) {family = \"elem\", variant = \"scalar\", "
                           "tile = [64], chunks = [2]} {\n"
                           "  %1 = tanh %0 : f32[A:100]\n  return %1\n}\n";

/* a column kernel that needs two walks: the emitter gives up */
static const char bad[] = "shardc-ir 1\nmodel Test\nafter select\n"
                          "kernel @broken(%0 : f32[A:100]) {family = \"column\", variant = "
                          "\"row\", tile = [1, 64, 1, 1], chunks = [1]} {\n"
                          "  %1 = sum[A] %0 : f32[]\n  %2 = sub %0, %1 : f32[A:100]\n  %3 = sum[A] "
                          "%2 : f32[]\n  return %3\n}\n";

typedef struct Place {
  Ctx *ctx;
  Module *m;
  char objects[64], cache[64];
} Place;

static Place place_of(const char *text, size_t n) {
  Place p = {
      .ctx = ctx_new(), .objects = "/tmp/shardc-build-XXXXXX", .cache = "/tmp/shardc-cache-XXXXXX"};
  p.m = ir_parse(p.ctx, "test", text, n);
  assert_non_null(p.m);
  target_describe(p.m, target_find("x86_64_v3"), 2);
  assert_non_null(mkdtemp(p.objects));
  assert_non_null(mkdtemp(p.cache));
  setenv("SHARDC_CACHE_DIR", p.cache, 1);
  return p;
}

static int files_in(const char *folder) {
  DIR *d = opendir(folder);
  int n = 0;
  for (struct dirent *e; (e = readdir(d));) {
    char inner[600];
    if (e->d_name[0] == '.') continue;
    snprintf(inner, sizeof inner, "%s/%s", folder, e->d_name);
    n += e->d_type == DT_DIR ? files_in(inner) : 1;
  }
  closedir(d);
  return n;
}

static void place_free(Place *p) {
  char *command = arena_printf(p->ctx->arena, "rm -rf %s %s", p->objects, p->cache);
  assert_int_equal(system(command), 0);
  ctx_free(p->ctx);
}

static CacheBytes object(Place *p, const char *name) {
  CacheBytes b =
      cache_read_file(p->ctx->arena, arena_printf(p->ctx->arena, "%s/%s.o", p->objects, name));
  assert_non_null(b.at);
  return b;
}

static void same(CacheBytes a, CacheBytes b) {
  assert_int_equal(a.n, b.n);
  assert_memory_equal(a.at, b.at, a.n);
}

static void test_same_bytes(void **state) {
  (void)state;
  Place p = place_of(good, sizeof good - 1);
  assert_true(kernels_build(p.m, p.objects, 1));
  CacheBytes first = object(&p, "k_a_b"), second = object(&p, "k_c");
  setenv("SHARDC_CACHE_DIR", "", 1); /* no cache */
  assert_true(kernels_build(p.m, p.objects, 4));
  same(first, object(&p, "k_a_b")), same(second, object(&p, "k_c"));
  assert_int_equal(files_in(p.objects), 2);
  place_free(&p);
}

/* A damaged file in the cache is compiled anew. */
static void test_cache(void **state) {
  (void)state;
  Place p = place_of(good, sizeof good - 1);
  assert_true(kernels_build(p.m, p.objects, 2));
  CacheBytes first = object(&p, "k_a_b");
  assert_int_equal(files_in(p.cache), 4); /* of each kernel the digest of its LLVM IR, its object */
  assert_true(kernels_build(p.m, p.objects, 2));
  same(first, object(&p, "k_a_b"));
  char *damage = arena_printf(p.ctx->arena, "for f in %s/*/*; do printf x >> $f; done", p.cache);
  assert_int_equal(system(damage), 0);
  assert_true(kernels_build(p.m, p.objects, 2));
  same(first, object(&p, "k_a_b"));
  assert_int_equal(files_in(p.cache), 4);
  place_free(&p);
}

/* To another compiler the kernels' texts are unknown: it takes the objects of the same LLVM IR, and
   writes none. */
static void test_other_compiler(void **state) {
  (void)state;
  Place p = place_of(good, sizeof good - 1);
  const char *objects =
      arena_printf(p.ctx->arena, "find %s -size +99c -type f -printf '%%i\\n' | sort", p.cache);
  assert_true(kernels_build(p.m, p.objects, 2));
  CacheBytes first = object(&p, "k_a_b"), second = object(&p, "k_c");
  assert_int_equal(system(arena_printf(p.ctx->arena, "%s > %s/list", objects, p.objects)), 0);
  char *forget = arena_printf(p.ctx->arena, "find %s -size -99c -type f -delete", p.cache);
  assert_int_equal(system(forget), 0);
  assert_int_equal(files_in(p.cache), 2);
  assert_true(kernels_build(p.m, p.objects, 2));
  same(first, object(&p, "k_a_b")), same(second, object(&p, "k_c"));
  assert_int_equal(system(arena_printf(p.ctx->arena, "%s | cmp - %s/list", objects, p.objects)), 0);
  assert_int_equal(files_in(p.cache), 4);
  place_free(&p);
}

/* Objects made without optimizations are others, and neither kind is taken for the other. */
static void test_quick(void **state) {
  (void)state;
  Place p = place_of(good, sizeof good - 1);
  assert_true(kernels_build(p.m, p.objects, 2));
  CacheBytes first = object(&p, "k_a_b");
  assert_true(kernels_build_as(p.m, p.objects, 2, true));
  CacheBytes quick = object(&p, "k_a_b");
  assert_true(quick.n != first.n || memcmp(quick.at, first.at, first.n));
  assert_int_equal(files_in(p.cache), 8);
  assert_true(kernels_build(p.m, p.objects, 2));
  same(first, object(&p, "k_a_b"));
  place_free(&p);
}

/* A folder that others can write is not used, and a message reports it. */
static void test_cache_of_others(void **state) {
  (void)state;
  Place p = place_of(good, sizeof good - 1);
  assert_true(kernels_build(p.m, p.objects, 2));
  assert_int_equal(files_in(p.cache), 4);
  chmod(p.cache, 0770);
  const char *why, *damage = arena_printf(p.ctx->arena, "rm -rf %s/*", p.cache);
  assert_null(cache_folder(p.ctx->arena, &why));
  assert_non_null(strstr(why, "others can write"));
  assert_int_equal(system(damage), 0);
  assert_true(kernels_build(p.m, p.objects, 2));
  assert_int_equal(files_in(p.cache), 0);
  assert_true(diag_given(p.ctx->diag, "W1315"));
  chmod(p.cache, 0700);
  CacheKey key = hash_text(hash_begin(), "key");
  cache_put(p.ctx->arena, p.cache, key, (CacheBytes){"bytes", 5});
  assert_non_null(cache_get(p.ctx->arena, p.cache, key).at);
  damage = arena_printf(p.ctx->arena, "chmod 0666 %s/*/*", p.cache);
  assert_int_equal(system(damage), 0);
  assert_null(cache_get(p.ctx->arena, p.cache, key).at);
  place_free(&p);
}

/* Ten files of 100 bytes, from the one that was used last. */
static void test_trim(void **state) {
  (void)state;
  Place p = place_of(good, sizeof good - 1);
  char bytes[100] = {0};
  for (int i = 0; i < 10; i++) {
    const char *path = arena_printf(p.ctx->arena, "%s/%d.o", p.cache, i);
    struct timespec used[2] = {{.tv_sec = 1000 - i}, {.tv_sec = 1000 - i}};
    assert_true(output_write(p.ctx->arena, path, bytes, sizeof bytes, 0600));
    assert_int_equal(utimensat(AT_FDCWD, path, used, 0), 0);
  }
  cache_trim(p.ctx->arena, p.cache, 1000);
  assert_int_equal(files_in(p.cache), 10);
  cache_trim(p.ctx->arena, p.cache, 999);
  assert_int_equal(files_in(p.cache), 7);
  for (int i = 0; i < 10; i++)
    assert_int_equal(access(arena_printf(p.ctx->arena, "%s/%d.o", p.cache, i), F_OK),
                     i < 7 ? 0 : -1);
  cache_trim(p.ctx->arena, "/nonexistent", 1);
  place_free(&p);
}

/* A hit makes an object the one that was used last. */
static void test_used(void **state) {
  (void)state;
  Place p = place_of(good, sizeof good - 1);
  CacheKey key = hash_text(hash_begin(), "key");
  cache_put(p.ctx->arena, p.cache, key, (CacheBytes){"bytes", 5});
  char *age = arena_printf(p.ctx->arena, "touch -d 2001-01-01 %s/*/*", p.cache);
  assert_int_equal(system(age), 0);
  assert_non_null(cache_get(p.ctx->arena, p.cache, key).at);
  char *old = arena_printf(p.ctx->arena, "! find %s -type f -mtime +1 | grep -q .", p.cache);
  assert_int_equal(system(old), 0);
  place_free(&p);
}

static void test_death(void **state) {
  (void)state;
  Place p = place_of(bad, sizeof bad - 1);
  assert_false(kernels_build(p.m, p.objects, 1));
  const char *text = reported(p.ctx);
  assert_non_null(strstr(text, "E1302"));
  assert_non_null(strstr(text, "broken"));
  assert_non_null(strstr(text, "[fuse-c4]"));
  assert_int_equal(files_in(p.cache), 0);
  assert_int_equal(files_in(p.objects), 0);
  place_free(&p);
}

static void test_unwritable(void **state) {
  (void)state;
  Place p = place_of(good, sizeof good - 1);
  assert_false(kernels_build(p.m, "/tmp/no/such/folder", 2));
  assert_true(diag_errors(p.ctx->diag) > 0);
  place_free(&p);
}

static void test_text(void **state) {
  (void)state;
  Place p = place_of(good, sizeof good - 1);
  assert_non_null(strstr(kernel_text(p.m, p.m->fns.at[0], false), "define void @k_a_b_p0"));
  assert_non_null(strstr(kernel_text(p.m, p.m->fns.at[0], true), "vfmadd"));
  place_free(&p);
}

static void test_targets(void **state) {
  (void)state;
  assert_null(target_find("pdp11"));
  assert_non_null(target_find("native"));
  for (int i = 0; target_name(i); i++)
    assert_string_equal(target_find(target_name(i))->name, target_name(i));
}

/* Products and attention of 16-bit floats use tensor cores, ldmatrix and asynchronous copies. */
static void test_tensor_cores(void **state) {
  (void)state;
  static const char *const elems[] = {"bf16", "f16"};
  static const char *const words[] = {"mma.sync", "ldmatrix", "cp.async"};
  for (int i = 0; i < 2; i++) {
    const char *e = elems[i];
    char text[900];
    int n = snprintf(text, sizeof text,
                     "shardc-ir 1\nmodel Test\nafter select\n"
                     "kernel @dot(%%0 : %s[M:256, K:256], %%1 : %s[K:256, N:256]) {family = "
                     "\"contract\"} {\n  %%2 = dot[K] %%0, %%1 : f32[M:256, N:256]\n"
                     "  return %%2\n}\n"
                     "kernel @look(%%0 : %s[H:2, S:64, D:64], %%1 : %s[H:2, T:64, D:64], %%2 : "
                     "%s[H:2, T:64, D:64]) {family = \"attention\"} {\n  %%3, %%4 = attention[S -> "
                     "T; D] %%0, %%1, %%2 {scale = 0.1} : %s[H:2, S:64, D:64], f32[H:2, S:64]\n"
                     "  return %%3, %%4\n}\n",
                     e, e, e, e, e, e);
    Place p = place_of(text, (size_t)n);
    target_describe(p.m, target_find("sm_80"), 1);
    for (uint32_t k = 0; k < 2; k++) {
      tune_by_rule(p.m, p.m->fns.at[k]);
      const char *ptx = kernel_text(p.m, p.m->fns.at[k], true);
      for (int w = 0; w < 3; w++) assert_non_null(strstr(ptx, words[w]));
    }
    place_free(&p);
  }
}

/* The text from s on, up to `end`. */
static const char *text_until(Arena *a, const char *s, const char *end) {
  const char *to = s ? strstr(s, end) : NULL;
  assert_non_null(to);
  return arena_strndup(a, s, (size_t)(to - s));
}

/* Tensor cores have work on both sides of the barrier of a tile of k: its first step was read in
   the previous iteration, the next tile's is read after the barrier. No branch contains copies. */
static void test_reads_ahead(void **state) {
  (void)state;
  static const struct {
    const char *elem, *precision, *read;
  } of[] = {{"bf16", "bf16", "ldmatrix"}, {"f16", "f16", "ldmatrix"}, {"f32", "tf32", "ld.shared"}};
  for (int i = 0; i < 3; i++) {
    char text[500];
    int n = snprintf(text, sizeof text,
                     "shardc-ir 1\nmodel Test\nset plan.precision = \"%s\"\nafter select\n"
                     "kernel @dot(%%0 : %s[M:256, K:256], %%1 : %s[K:256, N:256]) {family = "
                     "\"contract\"} {\n  %%2 = dot[K] %%0, %%1 : f32[M:256, N:256]\n"
                     "  return %%2\n}\n",
                     of[i].precision, of[i].elem, of[i].elem);
    Place p = place_of(text, (size_t)n);
    target_describe(p.m, target_find("sm_80"), 1);
    tune_by_rule(p.m, p.m->fns.at[0]);
    const char *ptx = kernel_text(p.m, p.m->fns.at[0], true);
    const char *loop = text_until(p.ctx->arena, strstr(ptx, "$L__BB0_1:"), "bra \t$L__BB0_1;");
    const char *barrier = strstr(loop, "bar.sync"), *copy = strstr(loop, "cp.async.c");
    assert_true(barrier && copy && copy < barrier && strstr(loop, "mma.sync") < barrier);
    const char *read = strstr(barrier, of[i].read);
    assert_true(read && strstr(read, "mma.sync"));
    assert_null(strstr(loop, "bra"));
    place_free(&p);
  }
}

/* Eight sums of a lane leave shared memory as two pieces whose order depends on the lane: in one
   order, every fifth lane would meet another in its banks. */
static void test_banks(void **state) {
  (void)state;
  static const char product[] = "shardc-ir 1\nmodel Test\nafter select\n"
                                "kernel @dot(%0 : bf16[M:4096, K:64], %1 : bf16[K:64, N:4096]) "
                                "{family = \"contract\"} {\n  %2 = dot[K] %0, %1 : "
                                "bf16[M:4096, N:4096]\n  return %2\n}\n";
  Place p = place_of(product, sizeof product - 1);
  target_describe(p.m, target_find("sm_80"), 1);
  tune_by_rule(p.m, p.m->fns.at[0]);
  const char *s = kernel_text(p.m, p.m->fns.at[0], true), *word = "ld.shared.v4.f32";
  int n = 0;
  for (; (s = strstr(s, word)); s++, n++) {
    const char *address = text_until(p.ctx->arena, s, ";");
    assert_null(strstr(address, "+16]"));
  }
  assert_true(n >= 2);
  place_free(&p);
}

/* Code that spills is right: it is kept, and each compilation says so. Spills that are gone when a
   multiprocessor needs room for one CTA alone are not reported. */
static void test_spills(void **state) {
  (void)state;
  static const char elem[] = "shardc-ir 1\nmodel Test\nafter select\n"
                             "kernel @a(%0 : f32[A:64]) {family = \"elem\", variant = \"scalar\", "
                             "tile = [1, 1], chunks = [2], threads = [32], shared = [0]} {\n"
                             "  %1 = tanh %0 : f32[A:64]\n  return %1\n}\n";
  Place p = place_of(elem, sizeof elem - 1);
  char *file = arena_printf(p.ctx->arena, "%s/ptxas", p.cache);
  FILE *f = fopen(file, "w");
  fputs("#!/bin/sh\nfor a; do case $a in *.cubin) echo >$a;; --min*=1) test $ALWAYS || exit 0;; "
        "esac; "
        "done\necho 'Registers are spilled' >&2\n",
        f);
  fclose(f);
  assert_int_equal(chmod(file, 0755), 0);
  char *path = arena_printf(p.ctx->arena, "%s", getenv("PATH"));
  setenv("PATH", arena_printf(p.ctx->arena, "%s:/usr/bin:/bin", p.cache), 1);
  for (int times = 0; times < 5; times++) {
    if (times) setenv("ALWAYS", "1", 1);
    Ctx *c = ctx_new();
    Module *m = ir_parse(c, "test", elem, sizeof elem - 1);
    target_describe(m, target_find(times ? "sm_90" : "sm_80"), 1);
    if (!kernels_build_as(m, p.objects, 1, times > 2)) fail_msg("%s", reported(c));
    assert_int_equal(files_in(p.objects), 2); /* .ptx and .cubin */
    assert_int_equal(diag_given(c->diag, "W1316"), times > 0);
    ctx_free(c);
  }
  unsetenv("ALWAYS"), setenv("PATH", path, 1);
  place_free(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bytes),
                                     cmocka_unit_test(test_cache),
                                     cmocka_unit_test(test_quick),
                                     cmocka_unit_test(test_other_compiler),
                                     cmocka_unit_test(test_cache_of_others),
                                     cmocka_unit_test(test_trim),
                                     cmocka_unit_test(test_used),
                                     cmocka_unit_test(test_death),
                                     cmocka_unit_test(test_unwritable),
                                     cmocka_unit_test(test_text),
                                     cmocka_unit_test(test_targets),
                                     cmocka_unit_test(test_spills),
                                     cmocka_unit_test(test_tensor_cores),
                                     cmocka_unit_test(test_reads_ahead),
                                     cmocka_unit_test(test_banks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
