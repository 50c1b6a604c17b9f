/* micro: models of golden files, whose batch is 6, give the same losses, gradients and updates in
   parts of any size. The files themselves (micro/) show what the pass does and refuses. */
#include "common.h"
#include <string.h>

enum { BATCH = 6 };
static int files;

static bool runs_in_parts(const Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (strstr(m->fns.at[i]->name, "step.micro")) return true;
  return false;
}

static Interp *trained(Ctx *c, const char *text, int part, const char *until) {
  Module *m = module_from(c, text);
  module_set(m, "debug.gradients", "on");
  module_set(m, "plan.micro", "%d", part);
  run_until(m, until);
  assert_true(runs_in_parts(m) == (part < BATCH));
  Interp *in = interp_filled(m, true);
  must_run(in, "step");
  must_run(in, "eval");
  return in;
}

static void expect_parts(const char *path, const char *text, const char *commands) {
  static const char *const until[] = {"micro", "recompute", "clean"};
  (void)path, (void)commands;
  Ctx *c = ctx_new();
  Module *m = module_from(c, text);
  run_until(m, "clean");
  Interp *whole = trained(c, text, BATCH, "clean");
  for (int i = 0; i < 4 * 3; i++) {
    Interp *parts = trained(c, text, (int[]){1, 2, 3, 6}[i / 3], until[i % 3]);
    for (uint32_t k = 0; k < m->globals.n; k++) {
      GlobalKind kind = m->globals.at[k]->kind;
      if (kind == GLOBAL_OUTPUT || kind == GLOBAL_PARAM)
        expect_same(whole, parts, m->globals.at[k]->name, 1e-12);
    }
  }
  files++;
  ctx_free(c);
}

static void parts_equal_whole(void **state) {
  (void)state;
  each_golden("micro/language_model_in_parts", expect_parts);
  each_golden("micro/regularizers_*", expect_parts);
  assert_int_equal(files, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(parts_equal_whole)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
