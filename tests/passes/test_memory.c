/* Packing: no two blocks that live at once overlap, everything stays inside of the total, and the
   total is close to the largest sum of bytes alive at once: within 3 % for many blocks of unlike
   sizes, exactly for stacks of nested lives. */
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "passes/machine/memory.h"
#include "tests/common/random_step.h"

static void check_valid(const Block *b, uint32_t n, int64_t total) {
  for (uint32_t i = 0; i < n; i++) {
    assert_true(b[i].at >= 0 && b[i].at % MEMORY_ALIGN == 0 && b[i].at + b[i].bytes <= total);
    for (uint32_t j = 0; j < i; j++) {
      bool together = b[i].born <= b[j].dies && b[j].born <= b[i].dies;
      bool apart = b[i].at + b[i].bytes <= b[j].at || b[j].at + b[j].bytes <= b[i].at;
      assert_true(!together || apart || !b[i].bytes || !b[j].bytes);
    }
  }
}

/* Lives and sizes as in a training step: most are short, some span much of the program, sizes
 * repeat. */
static uint32_t random_blocks(Block *b, uint64_t *state) {
  uint32_t n = 1 + (uint32_t)(random_number(state) * 60);
  for (uint32_t i = 0; i < n; i++) {
    int64_t born = (int64_t)(random_number(state) * 100) - 1;
    int64_t life = (int64_t)(random_number(state) * (random_number(state) < 0.2 ? 90 : 6));
    int64_t unit = random_number(state) < 0.3 ? 4 : 3 << 18;
    b[i] = (Block){.bytes = unit * (1 + (int64_t)(random_number(state) * 4)),
                   .born = born,
                   .dies = born + life};
  }
  return n;
}

static void packing_is_tight(void **test) {
  (void)test;
  uint64_t state = 7;
  double worst = 1, sum = 0;
  enum { ROUNDS = 300 };
  for (int r = 0; r < ROUNDS; r++) {
    Arena *a = arena_new();
    Block b[64];
    uint32_t n = random_blocks(b, &state);
    int64_t total = memory_pack(a, b, n), live = memory_live(a, b, n);
    check_valid(b, n, total);
    assert_true(total >= live);
    double ratio = (double)total / (double)live;
    worst = ratio > worst ? ratio : worst, sum += ratio;
    arena_free(a);
  }
  print_message("packing / lower bound: mean %.4f, worst %.4f\n", sum / ROUNDS, worst);
  assert_true(sum / ROUNDS < 1.003);
  assert_true(worst <= 1.03);
}

static void nested_lives_are_exact(void **test) {
  (void)test;
  Arena *a = arena_new();
  Block b[24];
  int64_t bytes = 0;
  for (uint32_t i = 0; i < 24; i++) { /* made in order, used up in reverse: activations of layers */
    b[i] = (Block){.bytes = 1000 + 700 * i, .born = i, .dies = 60 - i};
    bytes += memory_round(b[i].bytes);
  }
  assert_int_equal(memory_pack(a, b, 24), bytes);
  arena_free(a);
}

static void nothing_takes_nothing(void **test) {
  (void)test;
  Arena *a = arena_new();
  Block b[1] = {{.bytes = 0}};
  assert_int_equal(memory_pack(a, b, 0), 0);
  assert_int_equal(memory_pack(a, b, 1), 0);
  arena_free(a);
}

static void same_blocks_same_places(void **test) {
  (void)test;
  uint64_t one = 3, two = 3;
  Arena *a = arena_new();
  Block b[64], c[64];
  uint32_t n = random_blocks(b, &one);
  random_blocks(c, &two);
  memory_pack(a, b, n), memory_pack(a, c, n);
  for (uint32_t i = 0; i < n; i++) assert_int_equal(b[i].at, c[i].at);
  arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(packing_is_tight), cmocka_unit_test(nested_lives_are_exact),
      cmocka_unit_test(nothing_takes_nothing), cmocka_unit_test(same_blocks_same_places)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
