/* The runner and the passes together: masks of the table, dumps, going on from a dump, the same
   text twice, and random modules through grad, recompute and clean against differences. */
#include "common.h"
#include "ir/cost/count.h"
#include "tests/common/random_module.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

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

/* Passes that continue from the module read from any dump give the same result as one run of all
   passes. */
static void dumps(void **state) {
  uint32_t n, files = 0;
  const Pass *passes = pass_table(&n);
  (void)state;
  char dir[] = "/tmp/shardc-dumps-XXXXXX";
  assert_non_null(mkdtemp(dir));
  Ctx *c = ctx_new();
  Module *m =
      random_module(c, 5, (RandomOptions){.ops = 20, .loops = 2, .smooth = true, .loss = true});
  module_set(m, "train.optim", "sgd");
  PipelineOptions o = {.until = "clean", .dump_dir = dir, .verify = true};
  assert_true(pipeline_run(m, &o));
  const char *text[64];
  text[files++] = text_of(c, dir, "00-lower.ir");
  for (bool last = false; !last; files++) {
    assert_in_range(files, 1, n);
    const char *pass = passes[files - 1].name;
    text[files] = text_of(c, dir, arena_printf(c->arena, "%02u-%s.ir", files, pass));
    last = !strcmp(pass, "clean");
  }
  assert_int_equal(rmdir(dir), 0);
  for (uint32_t i = 0; i < files; i++) {
    size_t bytes;
    Module *again = module_from(c, text[i]);
    run_until(again, "clean");
    assert_string_equal(ir_dump(again, &bytes), text[files - 1]);
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

/* ---- lists of passes ---- */

static bool run_names(Module *m, uint32_t n, const char *const *names) {
  const Pass *list[8];
  PipelineOptions o = {.verify = true};
  for (uint32_t i = 0; i < n; i++) assert_non_null(list[i] = pass_find(names[i]));
  return passes_run(m, n, list, &o);
}

static void lists(void **state) {
  (void)state;
  static const struct {
    const char *names[4];
    uint32_t n;
    const char *said; /* NULL: they run */
    const char *after;
  } cases[] = {
      {{"inline", "simplify"}, 2, NULL, "simplify"},
      {{"inline", "grad"}, 2, NULL, "grad"},
      {{"inline", "grad", "simplify"}, 3, NULL, "grad"},
      {{"simplify"}, 1, "pass `simplify` needs a module that is `inlined`", "lower"},
      {{"inline", "fuse"}, 2, "pass `fuse` needs a module that is `clean`", "inline"},
      {{"inline", "grad", "grad"}, 3, "pass `grad` cannot run after `grad`", "grad"},
      {{"inline", "inline"}, 2, "pass `inline` cannot run after `inline`", "inline"},
      {{"pipeline"}, 1, "pass `pipeline` needs a module that is `collected`", "lower"},
      {{NULL}, 0, NULL, "lower"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Ctx *c = ctx_new();
    Module *m = random_module(c, 5, (RandomOptions){.ops = 8, .smooth = true, .loss = true});
    bool good = run_names(m, cases[i].n, cases[i].names);
    assert_int_equal(good, !cases[i].said);
    if (!good) assert_non_null(strstr(reported(c), cases[i].said));
    assert_string_equal(m->after, cases[i].after);
    ctx_free(c);
  }
}

/* ---- passes that fail ---- */

static void pass_segv(Module *m) { m->fns.n = 0, raise(SIGSEGV); }
static void pass_bug(Module *m) { bug("on purpose, in %s", m->model); }
static int deeper(volatile char *above) {
  volatile char here[4096];
  if ((here[0] = *above)) return 0;
  return deeper(here) + here[0];
}
static void pass_deep(Module *m) { m->was.kernels += (uint32_t)deeper((volatile char[1]){0}); }
static void pass_wrong(Module *m) { m->fns.at[0]->name = "not a name"; }

enum { CHILD_FINE = 3, CHILD_REFUSED = 4 };

static void as_main_does(int signal) { (void)signal, _exit(70); }

/* Runs the pass in a child that hears signals as the compiler's main does; its status. */
static int status_of(Module *m, const Pass *p, const char *dir) {
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    for (int i = 1; i < 32; i++) signal(i, SIG_DFL);
    signal(SIGABRT, as_main_does);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    freopen("/dev/null", "w", stderr);
    PipelineOptions o = {.verify = true, .crash_dir = dir};
    bool good = passes_run(m, 1, &p, &o);
    bool told = diag_given(m->ctx->diag, "E1204");
    _exit(good ? CHILD_FINE : told ? CHILD_REFUSED : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void reproducers(void **state) {
  static const struct {
    Pass pass;
    int status;
  } cases[] = {
      {{"segv", pass_segv, 0, 0, 0, ""}, 128 + SIGSEGV},
      {{"bug", pass_bug, 0, 0, 0, ""}, 70},
      {{"deep", pass_deep, 0, 0, 0, ""}, 128 + SIGSEGV},
      {{"wrong", pass_wrong, 0, 0, 0, ""}, CHILD_REFUSED},
  };
  (void)state;
  char dir[] = "/tmp/shardc-crash-XXXXXX";
  assert_non_null(mkdtemp(dir));
  Ctx *c = ctx_new();
  Module *m = random_module(c, 5, (RandomOptions){.ops = 8, .smooth = true, .loss = true});
  size_t n;
  const char *before = ir_dump(m, &n);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (SANITIZED && cases[i].status > 128) continue; /* the sanitizer reports them itself */
    assert_int_equal(status_of(m, &cases[i].pass, dir), cases[i].status);
    const char *file = arena_printf(c->arena, "shardc-crash-%s.ir", cases[i].pass.name);
    assert_string_equal(text_of(c, dir, file), before);
  }
  assert_int_equal(rmdir(dir), 0);
  ctx_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(masks), cmocka_unit_test(dumps),       cmocka_unit_test(unknown_start),
      cmocka_unit_test(lists), cmocka_unit_test(reproducers), cmocka_unit_test(random_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
