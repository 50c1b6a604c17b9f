/* simplify: random modules compute the same before and after, and nothing is left to do the second
   time. The golden files (simplify/) show each rule. */
#include "common.h"
#include "tests/common/random_module.h"
#include <string.h>

static void same_outputs(Module *before, Module *after, double tolerance) {
  Interp *a = interp_filled(before, true), *b = interp_filled(after, true);
  must_run(a, "step");
  must_run(b, "step");
  for (uint32_t i = 0; i < before->globals.n; i++)
    if (before->globals.at[i]->kind == GLOBAL_OUTPUT)
      expect_same(a, b, before->globals.at[i]->name, tolerance);
}

static void random_modules(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 300; seed++) {
    Ctx *c = ctx_new();
    Module *m = random_module(
        c, seed, (RandomOptions){.ops = 25, .loops = (int)(seed % 3), .smooth = seed % 2});
    if (!ir_verify(m)) fail_msg("seed %d: %s", (int)seed, reported(c));
    Module *n = module_again(c, m);
    run_until(n, "simplify");
    same_outputs(m, n, 1e-9);
    size_t before, after;
    n->was_known = false; /* what was before is not compared */
    const char *once = ir_print(n, &before);
    n = module_again(c, n);
    n->after = intern(c->names, "inline");
    run_until(n, "simplify");
    n->was_known = false;
    if (strcmp(once, ir_print(n, &after)))
      fail_msg("seed %d: not simple after one pass", (int)seed);
    ctx_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_modules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
