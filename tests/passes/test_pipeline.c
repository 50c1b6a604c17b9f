/* The runner and the passes together: masks of the table, dumps, going on from a dump, the same
   text twice, and random modules through grad, recompute and clean against differences. */
#include "common.h"
#include "tests/common/random_module.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Every pass that is built finds what it needs, whatever passes are not built yet. */
static void masks(void **state) {
  (void)state;
  uint32_t n;
  const Pass *p = pass_table(&n);
  unsigned facts = 0;
  for (uint32_t i = 0; i < n; i++) {
    assert_ptr_equal(pass_find(p[i].name), &p[i]);
    assert_true(p[i].help[0]);
    if (!p[i].run) continue;
    if (p[i].needs & ~facts) fail_msg("%s needs %#x", p[i].name, p[i].needs & ~facts);
    facts = (facts & ~p[i].breaks) | p[i].makes;
  }
  assert_null(pass_find("no such pass"));
}

static char *text_of(Ctx *c, const char *dir, const char *file) {
  const char *path = arena_printf(c->arena, "%s/%s", dir, file);
  FILE *f = fopen(path, "r");
  if (!f) fail_msg("no dump %s", path);
  char *text = arena_alloc(c->arena, 1 << 20);
  size_t n = fread(text, 1, (1 << 20) - 1, f);
  fclose(f);
  unlink(path);
  return text[n] = 0, text;
}

/* What passes make of a module read from each dump equals what they made in one go. */
static void dumps(void **state) {
  static const char *const files[] = {"00-lower.ir",     "01-inline.ir",    "02-simplify.ir",
                                      "03-grad.ir",      "04-optimizer.ir", "05-micro.ir",
                                      "06-precision.ir", "10-recompute.ir", "14-clean.ir"};
  enum { FILES = sizeof files / sizeof *files };
  (void)state;
  char dir[] = "/tmp/shardc-dumps-XXXXXX";
  assert_non_null(mkdtemp(dir));
  Ctx *c = ctx_new();
  Module *m =
      random_module(c, 5, (RandomOptions){.ops = 20, .loops = 2, .smooth = true, .loss = true});
  module_set(m, "train.optim", "sgd");
  PipelineOptions o = {.until = "clean", .dump_dir = dir, .verify = true};
  assert_true(pipeline_run(m, &o));
  const char *text[FILES];
  for (int i = 0; i < FILES; i++) text[i] = text_of(c, dir, files[i]);
  assert_int_equal(rmdir(dir), 0);
  for (int i = 0; i < FILES; i++) {
    size_t n;
    Module *again = module_from(c, text[i]);
    run_until(again, "clean");
    assert_string_equal(ir_print(again, &n), text[FILES - 1]);
  }
  ctx_free(c);
}

static void unknown_start(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = random_module(c, 1, (RandomOptions){.ops = 3});
  m->after = intern(c->names, "nonsense");
  PipelineOptions o = {0};
  assert_false(pipeline_run(m, &o));
  assert_non_null(strstr(reported(c), "`nonsense`"));
  ctx_free(c);
}

static void random_gradients(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 60; seed++) {
    Ctx *c = ctx_new();
    Module *m = random_module(
        c, seed,
        (RandomOptions){.ops = 12, .loops = (int)(seed % 3), .smooth = true, .loss = true});
    size_t n;
    check_gradients(ir_print(m, &n), 1e-4);
    ctx_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(masks),
      cmocka_unit_test(dumps),
      cmocka_unit_test(unknown_start),
      cmocka_unit_test(random_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
