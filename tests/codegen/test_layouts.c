/* Block-sparse attention and its gradient against the interpreter: random layouts, lengths, heads,
   types, cuts. `codegen_test_layouts TARGET [SEED COUNT [TEST]]`: COUNT of each kind
   (tests/soak). */
#include "layouts.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

static const char *machine = "native";
static uint64_t seed = 1;
static int count = 2;

static bool gpu(void) { return !strncmp(machine, "sm_", 3); }

static void run_batch(const char *elem, bool grad, int n, uint64_t from, double tolerance) {
  Harness *h = harness_new(machine);
  h->workers = 2, h->int_low = 0, h->int_high = 1, h->low = -1, h->high = 1;
  h->random += from * 7919 + grad;
  h->vary = from % 2;
  for (int i = 0; i < n; i++) {
    AttentionShape s = layout_shape(h, 0);
    AttentionMask m = layout_mask(h, &s, grad ? 6 : 3);
    if (grad) attention_backward(h, i, elem, s, m, false, -1);
    else attention_forward(h, i, elem, s, m);
  }
  assert_int_equal(harness_run(h, tolerance), 0);
  harness_free(h);
}

/* Every other batch with cuts that a tuner may try. */
static void run_all(const char *elem, bool grad, double tolerance) {
  enum { EACH = 6 };
  for (int done = 0; done < count; done += EACH)
    for (uint64_t i = 0; i < 2; i++)
      run_batch(elem, grad, count - done < EACH ? count - done : EACH,
                2 * (seed * 1000 + (uint64_t)done) + i, tolerance);
}

static void forward(void **state) { (void)state, run_all("f32", false, 1e-5); }
static void backward(void **state) { (void)state, run_all("f32", true, 4e-5); }
static void forward_bf16(void **state) { (void)state, run_all("bf16", false, gpu() ? 4e-3 : 1e-4); }
static void backward_bf16(void **state) { (void)state, run_all("bf16", true, gpu() ? 2e-2 : 2e-3); }
static void forward_f16(void **state) { (void)state, run_all("f16", false, gpu() ? 1e-3 : 1e-4); }
static void backward_f16(void **state) { (void)state, run_all("f16", true, gpu() ? 2e-3 : 5e-4); }

static void floats(void **state) {
  (void)state;
  AttentionShape s = {2, 2, {"S", "D"}, {"T", "D"}, {192, 16}, {192, 16}, 192, 192};
  Harness *h = harness_new(machine);
  attention_forward(h, 0, "f32", s, layout_of_floats(h, &s, 3));
  assert_int_equal(harness_run(h, 1e-5), 0);
  harness_free(h);
}

/* Even blocks list even ones: odd ones are NaN, which a factor of 0 would spread. No tile of any
   target crosses a border of blocks of 384. Also one query, as while sampling. */
static void absent_blocks(void **state) {
  (void)state;
  enum { UNIT = 384, LONG = 3 * UNIT };
  static const char *const types[] = {"f32", "bf16"};
  for (int half = 0; half < 2; half++) {
    Harness *h = harness_new(machine);
    h->unit = UNIT, h->near = h->asked = 5, h->low = -1, h->high = 1;
    for (int i = 0; i < 4; i++) {
      int64_t n = i < 2 ? LONG : i < 3 ? 1 : UNIT;
      AttentionShape s = {2, 2, {"S", "D"}, {"T", "D"}, {n, 16}, {LONG, 16}, n, LONG};
      attention_forward(h, i, types[half], s, layout_of_others(h, &s, 3, UNIT, i == 1));
      if (n < LONG) continue;
      attention_backward(h, i, types[half], s, layout_of_others(h, &s, 6, UNIT, i == 1), false, -1);
    }
    assert_int_equal(harness_run(h, half ? 2e-2 : 4e-5), 0);
    harness_free(h);
  }
}

int main(int argc, char **argv) {
  if (argc > 1) machine = argv[1];
  if (argc > 2) seed = strtoull(argv[2], NULL, 10);
  if (argc > 3) count = atoi(argv[3]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forward),      cmocka_unit_test(backward),
      cmocka_unit_test(forward_bf16), cmocka_unit_test(backward_bf16),
      cmocka_unit_test(forward_f16),  cmocka_unit_test(backward_f16),
      cmocka_unit_test(floats),       cmocka_unit_test(absent_blocks)};
  if (argc > 4) cmocka_set_test_filter(argv[4]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
