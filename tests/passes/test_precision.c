/* precision: in exact numbers every random module computes the same before and after. Which values
   become narrow is shown by the golden files (precision/). */
#include "common.h"
#include "tests/common/random_module.h"
#include <string.h>

/* In exact numbers nothing is rounded, so the pass changes nothing. */
static void same_outputs(Module *m, const char *entry, const char *type) {
  Module *again = module_again(m->ctx, m);
  module_set(again, "plan.precision", "%s", type);
  run_until(m, "clean");
  run_until(again, "clean");
  Interp *a = interp_filled(m, true), *b = interp_filled(again, true);
  must_run(a, entry);
  must_run(b, entry);
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->kind == GLOBAL_OUTPUT) expect_same(a, b, m->globals.at[i]->name, 1e-9);
}

static void exact_numbers(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 150; seed++) {
    Ctx *c = ctx_new();
    same_outputs(random_module(c, seed, (RandomOptions){20, (int)(seed % 3), true, true}), "step",
                 seed % 2 ? "bf16" : "f16");
    ctx_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(exact_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
