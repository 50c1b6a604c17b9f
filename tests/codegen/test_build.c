/* Building of kernels: same bytes every time, the cache, kernels whose compiler dies, texts. */
#include "codegen/cache.h"
#include "harness.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdlib.h>
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
  for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
  closedir(d);
  return n;
}

static void place_free(Place *p) {
  char *command = arena_printf(p->ctx->arena, "rm -rf %s %s", p->objects, p->cache);
  assert_int_equal(system(command), 0);
  ctx_free(p->ctx);
}

static Bytes object(Place *p, const char *name) {
  Bytes b =
      cache_read_file(p->ctx->arena, arena_printf(p->ctx->arena, "%s/%s.o", p->objects, name));
  assert_non_null(b.at);
  return b;
}

static void same(Bytes a, Bytes b) {
  assert_int_equal(a.n, b.n);
  assert_memory_equal(a.at, b.at, a.n);
}

static void test_same_bytes(void **state) {
  (void)state;
  Place p = place_of(good, sizeof good - 1);
  assert_true(kernels_build(p.m, p.objects, 1));
  Bytes first = object(&p, "k_a_b"), second = object(&p, "k_c");
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
  Bytes first = object(&p, "k_a_b");
  assert_int_equal(files_in(p.cache), 2);
  assert_true(kernels_build(p.m, p.objects, 2));
  same(first, object(&p, "k_a_b"));
  char *damage = arena_printf(p.ctx->arena, "for f in %s/*; do printf x >> $f; done", p.cache);
  assert_int_equal(system(damage), 0);
  assert_true(kernels_build(p.m, p.objects, 2));
  same(first, object(&p, "k_a_b"));
  assert_int_equal(files_in(p.cache), 2);
  place_free(&p);
}

static void test_death(void **state) {
  (void)state;
  Place p = place_of(bad, sizeof bad - 1);
  assert_false(kernels_build(p.m, p.objects, 1));
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  diag_print(p.ctx->diag, f, DIAG_HUMAN, false);
  fclose(f);
  assert_non_null(strstr(text, "E1302"));
  assert_non_null(strstr(text, "broken"));
  assert_non_null(strstr(text, "a column kernel sums once"));
  assert_int_equal(files_in(p.cache), 0);
  assert_int_equal(files_in(p.objects), 0);
  free(text);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_cache),
      cmocka_unit_test(test_death),      cmocka_unit_test(test_unwritable),
      cmocka_unit_test(test_text),       cmocka_unit_test(test_targets)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
