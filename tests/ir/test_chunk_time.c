/* Kernels of processors in a forecast: threads share them by their chunks. */
#include "common.h"
#include "ir/cost/kernel_time.h"
#include "ir/kernel/chunks.h"
#include <math.h>

static void near(double x, double y) {
  if (fabs(x / y - 1) > 1e-6) fail_msg("%f instead of %f", x, y);
}

static const Module *read_module(Ctx *c, const char *kernel) {
  const char *target = "target x86_64_v4 {device = cpu, vector_bytes = 64, ..}";
  const Module *m =
      module_of(c, arena_printf(c->arena, "shardc-ir 1\nmodel T\n%s\n%s", target, kernel));
  if (!m) fail_msg("%s\n%s", kernel, reported(c));
  return m;
}

/* A product whose result has 64 rows of 16 vectors, in tiles of eight rows and panels of three
   vectors (four panels) or two (two panels); chunks are `rows` x `columns` blocks of tiles. */
static const char *product(Ctx *c, int rows, int columns) {
  return arena_printf(c->arena,
                      "kernel @k(%%0 : f32[M:64, K:32], %%1 : f32[K:32, N:256]) {family = "
                      "\"contract\", tile = [8, 3, 1, 1, 1, %d, %d, 0, 1, 1], chunks = [%d]} {\n"
                      "%%2 = dot[K] %%0, %%1 : f32[M:64, N:256]\nreturn %%2\n}\n",
                      rows, columns, rows * columns);
}

static double stretch(const char *text, int workers) {
  Ctx *c = ctx_new();
  const Module *m = read_module(c, text);
  double result = kernel_stretch(m, m->fns.at[0], workers);
  ctx_free(c);
  return result;
}

static void blocks_of_products(void **state) {
  Ctx *c = ctx_new();
  (void)state;
  near(stretch(product(c, 2, 1), 2), 1);
  near(stretch(product(c, 1, 2), 2), 9. / 8); /* nine vectors on one worker, seven on the other */
  near(stretch(product(c, 2, 2), 2), 1);      /* nine and seven on each worker */
  near(stretch(product(c, 3, 1), 2), 2 * 5. / 8);    /* two tiles and three tiles, and three */
  near(stretch(product(c, 3, 2), 4), 4 * 41. / 128); /* three tiles of nine after two of seven */
  near(stretch(product(c, 2, 1), 1), 1);
  ctx_free(c);
}

static void equal_chunks(void **state) {
  const char *elem = "kernel @k(%%0 : f32[N:65536]) {family = \"elem\"%s} {\n"
                     "%%1 = neg %%0 : f32[N:65536]\nreturn %%1\n}\n";
  Ctx *c = ctx_new();
  (void)state;
  const char *cut = arena_printf(c->arena, elem, ", tile = [4096], chunks = [3]");
  near(stretch(cut, 2), 4. / 3);
  near(stretch(cut, 3), 1);
  near(stretch(cut, 4), 4. / 3);
  near(stretch(arena_printf(c->arena, elem, ""), 2), 1); /* a kernel that is not cut */
  ctx_free(c);
}

/* A worker first takes the chunks of its share, then those of the next worker, in order. */
static void shares(void **state) {
  Ctx *c = ctx_new();
  (void)state;
  double late[] = {5, 1, 1, 1}, last[] = {1, 1, 1, 5};
  near(chunks_end(c->arena, late, 4, 2), 5);
  near(chunks_end(c->arena, last, 4, 2), 6);
  ctx_free(c);
}

/* Uneven chunks count in a forecast, and not in a bound. */
static void seconds(void **state) {
  Ctx *c = ctx_new();
  (void)state;
  Arch arch = *arch_find("x86_64_v4");
  arch.launch = 0;
  Machine machine = {.flops = 1e9, .hbm = 1e12, .on_core = 1, .reach = &arch, .threads = 2};
  const Module *m = read_module(c, product(c, 1, 2));
  double even[2];
  for (int i = 0; i < 2; i++) {
    machine.even = i;
    KernelTime time = kernel_time(m, &machine, m->fns.at[0]);
    even[i] = kernel_sum(&time);
  }
  near(even[0] / even[1], 9. / 8);
  ctx_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_of_products),
                                     cmocka_unit_test(equal_chunks), cmocka_unit_test(shares),
                                     cmocka_unit_test(seconds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
