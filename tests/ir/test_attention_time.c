/* Attention by warpgroups in a forecast: published rates of other kernels, and consequences of the
   model, such as multiprocessors that stay idle. */
#include "ir/cost/attention_time.h"
#include "ir/kernel/gemm_gpu.h"
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static KernelShape shape_of(double tiles, double keys, double width, double columns, bool grad) {
  KernelShape shape = {.part = PART_ATTENTION, .grad = grad, .elem = ELEM_bf16};
  double size[SHAPE_SIZES] = {128 * tiles, keys, width, columns};
  for (int i = 0; i < SHAPE_SIZES; i++) shape.size[i] = size[i];
  shape.flop = (grad ? 10 : 4) * 128 * tiles * keys * width;
  return shape;
}

/* TFLOP/s of dense attention over a long sequence, with that share of the peak for products. */
static double rate(double width, double columns, bool grad, double products) {
  Arch arch = *arch_find("sm_90a");
  KernelShape shape = shape_of(132 * 64, 65536, width, columns, grad);
  arch.groups.products = products;
  return 1e-12 * arch.bf16 * arch.attention * shape.flop / attention_groups_work(&arch, &shape);
}

static void published(void **state) {
  (void)state;
  /* FlashAttention-3, table 2, without pipelining, and without warps that only copy: 582, 570 */
  assert_true(fabs(rate(128, 128, false, 0.8) / 576 - 1) < 0.03);
  /* With two warpgroups that alternate: 621 (pytorch/benchmark, #2391) */
  assert_true(fabs(rate(128, 128, false, 0.8) / 621 - 1) < 0.1);
  /* Triton's attention of its tutorial: 477 */
  assert_true(fabs(rate(128, 128, false, 0.66) / 477 - 1) < 0.05);
}

static void wider(void **state) {
  (void)state;
  assert_true(rate(64, 128, false, 0.66) < rate(128, 128, false, 0.66));
  assert_true(rate(64, 64, true, 0.66) < rate(64, 128, false, 0.66));
  assert_true(rate(128, 32, true, 0.66) <
              rate(128, 64, true, 0.66)); /* operands take longer to load */
}

static double work(const Arch *arch, double tiles, bool masked) {
  KernelShape shape = shape_of(tiles, 1024, 64, 128, false);
  if (masked) shape.flop /= 2;
  return attention_groups_work(arch, &shape);
}

static void idle(void **state) {
  const Arch *arch = arch_find("sm_90a");
  Arch least = *arch;
  (void)state;
  assert_true(fabs(work(arch, 33, false) / work(arch, 132, false) - 1) < 1e-9);
  assert_true(fabs(work(arch, 133, false) / work(arch, 264, false) - 1) < 1e-9); /* two waves */
  assert_true(work(arch, 133, true) <
              0.6 * work(arch, 264, true)); /* tiles of all sizes fill gaps */
  assert_true(work(arch, 264, true) >
              0.5 * work(arch, 264, false)); /* half of a tile at the border is lost */
  KernelShape spare = shape_of(116, 1024, 64, 128, false);
  spare.spare = 16; /* one wave on the other 116 */
  assert_true(fabs(attention_groups_work(arch, &spare) / work(arch, 132, false) - 1) < 1e-9);
  least.processors = 0;
  assert_true(work(&least, 33, false) < 0.25 * work(arch, 33, false));
}

/* Scores of whole tiles up to the diagonal, less those that the mask admits, of rows that end
   together: counted. */
static double counted(int64_t rows, int64_t columns) {
  int64_t length = rows * columns, n = 0;
  for (int64_t row = 0; row < length; row++) {
    int64_t end = (row / rows + 1) * rows;
    n += (end + columns - 1) / columns * columns - (row + 1);
  }
  return (double)n / (double)length;
}

/* Tests of codegen count the tiles that kernels compute (units_of_warpgroups). */
static void left_out(void **state) {
  static const int64_t columns[] = {32, 48, 64, 80, 128};
  (void)state;
  for (int64_t rows = 64; rows <= 128; rows *= 2)
    for (int i = 0; i < 5; i++)
      assert_true(fabs(attention_left_out(rows, columns[i]) - counted(rows, columns[i])) < 1e-9);
  assert_true(attention_left_out(64, 64) == 31.5);
  assert_true(attention_left_out(128, 64) == 63.5); /* where both warpgroups end together */
  KernelShape shape = shape_of(264, 1024, 64, 64, false), bulk;
  shape.flop /= 2, bulk = shape, bulk.groups.by = BY_BULK;
  Arch arch = *arch_find("sm_90a");
  arch.bulk.products = arch.groups.products;
  assert_true(attention_groups_work(&arch, &bulk) < attention_groups_work(&arch, &shape));
  shape.grad = bulk.grad = true;
  assert_true(attention_groups_work(&arch, &bulk) == attention_groups_work(&arch, &shape));
}

static void others(void **state) {
  KernelShape groups = shape_of(132, 1024, 64, 128, false), warps = groups;
  (void)state;
  warps.size[SHAPE_BLOCK] = 1;
  assert_true(attention_by_groups(arch_find("sm_90a"), &groups));
  assert_false(attention_by_groups(arch_find("sm_90a"), &warps));
  assert_false(attention_by_groups(arch_find("sm_90"), &groups));
  assert_true(attention_groups_bytes(&groups) == 0);
  groups.grad = true;
  assert_true(attention_groups_bytes(&groups) == 4. * 132 * 128 * 64);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(published), cmocka_unit_test(wider),
                                     cmocka_unit_test(idle), cmocka_unit_test(left_out),
                                     cmocka_unit_test(others)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
