/* Passes of the machine on random modules: fuse, order, select's merging, schedule and memory
   change no number. Every pass is verified and run before and after; after `memory` the module is
   run in poisoned bytes. The text of every stage reads back to itself. */
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
// clang-format on
#include "passes/simplify/simplify.h"
#include "ir/interp/interp.h"
#include "ir/cost/count.h"
#include "tests/common/random_step.h"
#include <math.h>

enum { MODULES = 400 };

typedef struct State { /* contents of all globals */
  double **at;
} State;

static State random_state(Module *m, uint64_t seed) {
  State s = {ARENA_ARRAY(m->arena, double *, m->globals.n + 1)};
  for (uint32_t i = 0; i < m->globals.n; i++) {
    int64_t n = type_count(&m->globals.at[i]->type);
    s.at[i] = ARENA_ARRAY(m->arena, double, n);
    for (int64_t k = 0; k < n; k++) s.at[i][k] = (float)(2 * random_number(&seed) - 1);
  }
  return s;
}

static State run_by(bool (*how)(Interp *, const char *), Module *m, const State *s) {
  Interp *in = interp_new(m, m->arena);
  State r = {ARENA_ARRAY(m->arena, double *, m->globals.n + 1)};
  for (uint32_t i = 0; i < m->globals.n; i++) interp_set(in, m->globals.at[i]->name, s->at[i]);
  if (!how(in, "step")) fail_msg("interpreter: %s", interp_error(in));
  for (uint32_t i = 0; i < m->globals.n; i++) r.at[i] = interp_get(in, m->globals.at[i]->name)->at;
  return r;
}

static State run(Module *m, const State *s) { return run_by(interp_run, m, s); }
static State run_placed(Module *m, const State *s) { return run_by(interp_run_placed, m, s); }

static void same(Module *m, const State *a, const State *b, const char *where, int seed) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    for (int64_t k = 0; k < type_count(&m->globals.at[i]->type); k++) {
      double x = a->at[i][k], y = b->at[i][k];
      if (isnan(x) && isnan(y)) continue; /* a sine of infinity, in one of many modules */
      if (!(fabs(x - y) <= 2e-5 * (1 + fabs(x))))
        fail_msg("module %d after %s: %s[%d] is %g, was %g", seed, where, m->globals.at[i]->name,
                 (int)k, y, x);
    }
}

static void sound(Module *m, const char *where, int seed) {
  m->after = intern(m->ctx->names, where);
  if (ir_verify(m)) return;
  diag_print(m->ctx->diag, stderr, DIAG_HUMAN, false);
  fail_msg("module %d does not verify after %s", seed, where);
}

static void reads_back(Module *m, const char *where, int seed) {
  size_t n, again;
  char *text = ir_print(m, &n);
  Ctx *c = ctx_new();
  Module *copy = ir_parse(c, "dump.ir", text, n);
  if (!copy || strcmp(ir_print(copy, &again), text))
    fail_msg("module %d after %s does not read back", seed, where);
  ctx_free(c);
}

static void check_passes(Module *m, int seed) {
  static const struct {
    const char *name;
    PassRun *run;
  } passes[] = {{"fuse", pass_fuse},
                {"order", pass_order},
                {"schedule", pass_schedule},
                {"memory", pass_memory}};
  sound(m, "clean", seed);
  State start = random_state(m, (uint64_t)seed), before = run(m, &start);
  for (int i = 0; i < 4; i++) {
    passes[i].run(m);
    sound(m, passes[i].name, seed);
    State after = run(m, &start);
    same(m, &before, &after, passes[i].name, seed);
    if (seed % 8 == 0) reads_back(m, passes[i].name, seed);
  }
  State placed = run_placed(m, &start);
  same(m, &before, &placed, "memory, in bytes", seed);
}

static Module *make_module(Ctx *c, int seed) {
  Module *m = random_step(c, (uint64_t)seed, 10 + seed % 30);
  if (seed % 2) m->target.pad = 16, m->target.row = 8;
  if (seed % 3 == 0) m->target.block = 64;
  if (seed % 4) m->target.sums = m->target.join = true;
  return m;
}

/* No function moves less than it must: `compulsory_bytes` is a bound for whatever the kernels
   turned out to be. Dead ops would count, so they go first. */
static void moves_what_it_must(Module *m, int seed) {
  simplify_module(m, true);
  pass_fuse(m);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    double least = f->kind == FN_KERNEL ? 0 : attr_float(&f->attrs, ATTR_compulsory_bytes, 0);
    double moved = ir_count(m, f).bytes;
    if (moved < least * (1 - 1e-12))
      fail_msg("module %d: %s moves %g bytes and must move %g", seed, f->name, moved, least);
  }
}

static void check_module(int seed) {
  Ctx *c = ctx_new();
  check_passes(make_module(c, seed), seed);
  moves_what_it_must(make_module(c, seed), seed);
  ctx_free(c);
}

static void passes_keep_numbers(void **state) {
  (void)state;
  const char *one = getenv("SHARDC_TEST_SEED");
  for (int i = one ? atoi(one) : 0; i < (one ? atoi(one) + 1 : MODULES); i++) check_module(i);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(passes_keep_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
