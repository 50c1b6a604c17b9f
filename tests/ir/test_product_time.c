/* Products in a forecast. GPUs: whole waves of tiles, sums that are cut where tiles are few, equal
   shares. Processors: functions of results, and left operands that are packed. */
#include "common.h"
#include "ir/cost/kernel_time.h"
#include <math.h>

/* The time of a product of `rows` x `columns` tiles, over that of its operations alone. */
static double stretch_on(Arch arch, const char *more, int rows, int columns, int terms) {
  Ctx *c = ctx_new();
  char text[400];
  snprintf(text, sizeof text,
           "shardc-ir 1\nmodel T\n"
           "kernel @k(%%0 : bf16[K:%d, M:%d], %%1 : bf16[K:%d, N:%d]) {family = \"contract\"%s} {\n"
           "%%2 = dot[K] %%0, %%1 : bf16[M:%d, N:%d]\nreturn %%2\n}\n",
           terms, 128 * rows, terms, 128 * columns, more, 128 * rows, 128 * columns);
  const Module *m = module_of(c, text);
  if (!m) fail_msg("%s\n%s", text, reported(c));
  arch.ramp = 0;
  double all = 2. * 128 * rows * 128 * columns * terms,
         result = kernel_work(m, &arch, m->fns.at[0]).flop / all;
  ctx_free(c);
  return result;
}

static double stretch(int rows, int columns, int terms) {
  return stretch_on(*arch_find("sm_90"), "", rows, columns, terms);
}

static void near(double x, double y) {
  if (fabs(x / y - 1) > 1e-6) fail_msg("%f instead of %f", x, y);
}

static void waves(void **state) {
  (void)state;
  near(stretch(12, 11, 512), 1);
  near(stretch(12, 12, 512), 264. / 144); /* two waves */
  near(stretch(6, 6, 512), 132. / 36);    /* too few terms to cut them */
}

static void parts(void **state) {
  (void)state;
  near(stretch(3, 11, 16384), 1);         /* in four */
  near(stretch(6, 6, 16384), 132. / 108); /* in three: four would be a second wave */
  near(stretch(3, 11, 1024), 132. / 66);  /* in two, of 512 terms */
}

/* The operations that a processor does besides the product, in a kernel of 8 x 16 results and 32
   terms. */
static double besides(const char *way_out, const char *attrs) {
  Ctx *c = ctx_new();
  char text[600];
  snprintf(text, sizeof text,
           "shardc-ir 1\nmodel T\n"
           "kernel @k(%%0 : f32[M:8, K:32], %%1 : f32[K:32, N:16]) {family = \"contract\"%s} {\n"
           "%%2 = dot[K] %%0, %%1 : f32[M:8, N:16]\n%%3 = %s : f32[M:8, N:16]\nreturn %%3\n}\n",
           attrs, way_out);
  const Module *m = module_of(c, text);
  if (!m) fail_msg("%s\n%s", text, reported(c));
  double work = kernel_work(m, arch_find("x86_64_v4"), m->fns.at[0]).flop - 2. * 8 * 16 * 32;
  ctx_free(c);
  return work;
}

static void on_processors(void **state) {
  (void)state;
  const Arch *arch = arch_find("x86_64_v4");
  const char *packed = ", tile = [8, 3, 1, 1, 1, 1, 1, %d, 1, 1]";
  char cut[2][60];
  snprintf(cut[0], sizeof cut[0], packed, 0), snprintf(cut[1], sizeof cut[1], packed, 5);
  near(1 + besides("neg %2", ""), 1);
  near(besides("tanh %2", ""), 8 * 16 * arch->function);
  near(1 + besides("pow %2 {value = 3}", ""), 1);
  near(besides("pow %2 {value = 0.3}", ""), 8 * 16 * arch->function);
  near(1 + besides("neg %2", cut[0]), 1);
  near(besides("neg %2", cut[1]), 8 * 32 * arch->packing);
}

/* Products of codes of 8 bits have tiles of 128 columns and twice the rate; none is faster than on
   a device that is never idle. */
static void codes(void **state) {
  (void)state;
  const char *of = ", codes = [0, 0, 512, 1, 0, 512]";
  Arch arch = *arch_find("sm_90a"), never_idle = arch;
  never_idle.processors = 0, never_idle.ramp = 0;
  double least = stretch_on(never_idle, of, 12, 11, 512);
  near(least, (1 + 12. / 128) / (1 + 12. / 256) / 2);
  near(stretch_on(arch, of, 12, 11, 512), least);
  near(stretch_on(arch, of, 12, 12, 512), least * 264 / 144);
}

/* 24 x 3 tiles of 256 columns are 72 x 16384 terms for 132 multiprocessors. A share costs 60 terms
   more, its sums that are written 160, and those of up to two other shares 160 each. */
static void shares(void **state) {
  (void)state;
  double share = 72 * 16384 / 132.;
  Arch arch = *arch_find("sm_90a");
  near(stretch_on(arch, "", 24, 6, 16384), (share + 60 + 3 * 160) / share);
  near(stretch_on(arch, "", 12, 22, 16384), 1); /* tiles of 256 come out even */
}

/* Products that bulk copies fill have a rate of their own, and shorter ends if results leave by
   bulk copies (less short if an argument of elements comes by them, case 5). Functions of results
   are computed after the product (case 4). */
static void leaves(void **state) {
  (void)state;
  const char *cut = ", variant = \"wgmma\", tile = [128, 256, 64, 64, 256, 3, 1, %d, 4, 4, 8]";
  const Arch *arch = arch_find("sm_90a");
  for (int by = 2; by <= 5; by++) {
    Ctx *c = ctx_new();
    char text[700], attrs[120];
    const char *function = by == 4   ? "%3 = tanh %2 : bf16[M:1536, N:2816]\nreturn %3"
                           : by == 5 ? "%3 = add %2, %4 : bf16[M:1536, N:2816]\nreturn %3"
                                     : "return %2";
    snprintf(attrs, sizeof attrs, cut, by > 3 ? 3 : by);
    snprintf(text, sizeof text,
             "shardc-ir 1\nmodel T\ntarget sm_90a {device = gpu, sm = 90, wgmma = true, ..}\n"
             "kernel @k(%%0 : bf16[K:768, M:1536], %%1 : bf16[K:768, N:2816]%s) {family = "
             "\"contract\"%s} {\n%%2 = dot[K] %%0, %%1 : bf16[M:1536, N:2816]\n%s\n}\n",
             by == 5 ? ", %4 : bf16[M:1536, N:2816]" : "", attrs, function);
    const Module *m = module_of(c, text);
    if (!m) fail_msg("%s\n%s", text, reported(c));
    double all = 2. * 768 * 1536 * 2816, ends = by == 2 ? arch->bulk.ramp : arch->bulk.leave;
    double rate = arch->bulk.products / arch->products;
    double more = by == 4 ? arch->function * 1536 * 2816 : 0;
    if (by == 5) ends += arch->bulk.element;
    near((kernel_work(m, arch, m->fns.at[0]).flop - more) / all * rate, (768 + ends) / 768);
    ctx_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(waves),  cmocka_unit_test(parts),
                                     cmocka_unit_test(shares), cmocka_unit_test(on_processors),
                                     cmocka_unit_test(codes),  cmocka_unit_test(leaves)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
