/* Products whose operands pass through registers piece by piece, with `ptxas` where it is: none may
   keep registers in memory. Then they run on the PTX machine, compared with the interpreter. */
#include "harness.h"
#include "ir/support/num.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* Operands by element, along k and the other way round, of two pieces for a thread to 32: what a
   thread holds, and what it stores at once, leaves registers for the rest. */
static void pieces(void **state) {
  static const char *const cuts[] = {"256 16 64 16 16 2 2 1", "32 32 64 32 32 2 2 1",
                                     "16 32 32 16 32 6 2 1",  "64 64 32 64 32 4 1 1",
                                     "32 32 64 16 32 2 3 1",  "128 128 32 64 64 3 1 1"};
  (void)state;
  for (size_t c = 0; c < COUNT_OF(cuts); c++) {
    Harness *h = harness_new("sm_80");
    h->low = -1, h->high = 1, h->cut = cuts[c];
    bool whole = c + 1 == COUNT_OF(cuts); /* of 16 bytes, of rows and columns that end in a tile */
    for (int k = 0; k < (whole ? 1 : 4); k++) {
      const char *a = whole   ? "M:201, K:136"
                      : k % 2 ? "M:201, K:133"
                              : "K:133, M:201",
                 *b = whole   ? "N:136, K:136"
                      : k / 2 ? "N:141, K:133"
                              : "K:133, N:141";
      harness_add(h, "kernel @k%d(%%0 : bf16[%s], %%1 : bf16[%s]) {family = \"contract\"} {\n", k,
                  a, b);
      harness_add(h, "  %%2 = dot[K] %%0, %%1 : f32[M:201, N:%d]\n  return %%2\n}\n",
                  whole ? 136 : 141);
    }
    assert_int_equal(harness_run(h, 8e-3), 0);
    harness_free(h);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pieces)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
