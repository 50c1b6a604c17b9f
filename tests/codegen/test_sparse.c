/* Kernels of attention that work on lists of blocks, forward and backward, against the interpreter,
   which knows the mask alone: random layouts, lengths, heads, additional masks, types.

     codegen_test_sparse [TARGET [FIRST COUNT]]     COUNT random programs of four masks each

   Programs go through all passes up to `select`, so the test compares the kernels that a model
   gets; a program in which pass `sparse` lists nothing counts as little, and there must be few of
   them. */
#include "harness.h"
#include "ir/support/philox.h"
#include "passes/base/rebuild.h"
#include "sparse_program.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

enum { MASKS = 4 };

static const char *target = "native";
static int first, count = 8;

typedef struct Random {
  Arena *a;
  uint64_t seed, at;
} Random;

static int upto(Random *r, int n) {
  return (int)(philox_word(r->seed, 0, 7, r->at++) % (uint32_t)n);
}

static int pick(Random *r, const int *list, size_t n) { return list[upto(r, (int)n)]; }

static const char *pattern(Random *r) {
  Arena *a = r->a;
  int n = 1 + upto(r, 4), m = 1 + upto(r, 3);
  switch (upto(r, 8)) {
  case 0: return arena_printf(a, "window(%d)", n);
  case 1: return arena_printf(a, "global(%d, rows = %s)", m, upto(r, 2) ? "on" : "off");
  case 2: return arena_printf(a, "random(1, seed = %d)", n);
  case 3: return arena_printf(a, "fixed(local = %d, global = 1, patterns = %d)", m + 1, m);
  case 4: return arena_printf(a, "variable(windows = [%d, %d], globals = [0, %d])", n, m, n);
  case 5: return arena_printf(a, "strided(%d)", n + 1);
  case 6: return arena_printf(a, "dilated(%d, %d)", n, m);
  default: return arena_printf(a, "window(%d) | global([%d, [%d, %d]])", n, m, n, n + 2);
  }
}

static const char *layout(Random *r) {
  const char *s = pattern(r);
  while (upto(r, 2)) s = arena_printf(r->a, "(%s) %s (%s)", s, upto(r, 3) ? "|" : "&", pattern(r));
  if (upto(r, 4)) return s;
  if (upto(r, 2)) return arena_printf(r->a, "per_head([%s, %s])", s, pattern(r));
  /* the same blocks, maybe, and other elements of them */
  return arena_printf(r->a, "(%s) & causal & per_head([sliding(%d), sliding(%d)])", s,
                      1 + upto(r, 40), 1 + upto(r, 60));
}

/* Masks in addition to the layout, or without one. */
static const char *mask(Random *r, int number, bool blocks) {
  Arena *a = r->a;
  const char *s = blocks ? arena_printf(a, "l%d", number) : "causal & sliding(37)";
  if (!upto(r, 3)) s = arena_printf(a, "%s & causal", s);
  if (!upto(r, 4)) s = arena_printf(a, "%s & sliding(%d)", s, 1 + upto(r, 60));
  if (!upto(r, 3)) s = arena_printf(a, "%s & padding(valid)", s);
  return s;
}

static const char *program(Random *r) {
  static const int lengths[] = {1, 7, 16, 33, 64, 100, 128, 150, 200, 257},
                   units[] = {3, 8, 16, 16, 32, 64, 64, 128}, widths[] = {4, 8, 16, 16, 32, 64};
  int seq = pick(r, lengths, 10), key = upto(r, 3) ? seq : pick(r, lengths, 10),
      unit = pick(r, units, 8);
  const char *s = arena_printf(r->a,
                               "use \"std\"\ndims { Batch; Seq = %d; Key = %d; Kv = %d; Group = "
                               "%d; Head = %d }\n",
                               seq, key, 1 + upto(r, 2), 1 + upto(r, 2), pick(r, widths, 6));
  for (int i = 0; i < MASKS; i++)
    s = arena_printf(r->a, "%slayout l%d [Kv, Group, Seq, Key] = blocks(%d) & (%s)\n", s, i, unit,
                     layout(r));
  s = arena_printf(r->a,
                   "%smodel M {\n  input q [Batch, Kv, Group, Seq, Head] f32\n"
                   "  input k [Batch, Kv, Key, Head] f32\n  input valid [Batch, Key] bool\n"
                   "  param u [Head] ~ normal(1)\n  param v [Head] ~ normal(1)\n  param w [Head] ~ "
                   "normal(1)\n  loss 0",
                   s);
  for (int i = 0; i < MASKS; i++) {
    const char *y =
        arena_printf(r->a, "attention[Seq -> Key; Head](q * u, k * v, k * w, mask = %s)",
                     mask(r, i, upto(r, 6) != 0));
    s = arena_printf(r->a, "%s + mean[*](%s * q)", s, y);
  }
  return arena_printf(r->a,
                      "%s\n}\ntrain t { batch %d; steps 1; optim sgd lr = 1; data columns(q = "
                      "\"q.npy\", k = \"k.npy\", valid = \"v.npy\") }\n",
                      s, 1 + upto(r, 2));
}

/* Attention ops that have lists. */
static int listed(const Module *m) {
  int n = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId o = 0; o < m->fns.at[i]->ops.n; o++)
      n += attr_get(&m->fns.at[i]->ops.at[o].attrs, ATTR_lists) != NULL;
  return n;
}

/* A program made of `number`, or `text`; how many of its attention ops have lists. */
static int check(int number, const char *text) {
  static const char *const types[] = {"f32", "f32", "bf16", "f16"};
  Harness *h = harness_new(target);
  Random r = {h->arena, (uint64_t)number, 0};
  if (!text) text = program(&r);
  const char *type = types[upto(&r, 4)];
  double tolerance = !strcmp(type, "f32") ? 1e-4 : 2e-2;
  Module *m = sparse_program(h->ctx, text, type);
  PipelineOptions o = {.verify = true, .until = "select"};
  if (m) target_describe(m, target_find(target), h->workers = 1 + upto(&r, 30));
  h->low = -1, h->high = 1, h->random += (uint64_t)number;
  bool good = m && pipeline_run(m, &o) && !harness_check(h, m, tolerance);
  if (!good) {
    diag_print(h->ctx->diag, stderr, DIAG_HUMAN, false);
    fail_msg("program %d, %s:\n%s", number, type, text);
  }
  int n = listed(m);
  harness_free(h);
  return n;
}

static void against_the_interpreter(void **state) {
  (void)state;
  int n = 0;
  for (int i = first; i < first + count; i++) n += check(i, NULL);
  if (n < 3 * count) fail_msg("of %d programs %d kernels have lists", count, n);
}

/* A trial at a small size may leave no block of a pattern (W0304): all results are 0. */
static void nothing_is_listed(void **state) {
  (void)state;
  static const char text[] =
      "use \"std\"\ndims { Batch; Seq = 60; Key like Seq; Head = 8 }\n"
      "layout empty [Seq, Key] = blocks(16) & window(1) & global([9])\n"
      "model M {\n  input q [Batch, Seq, Head] f32\n  param w [Head] ~ normal(1)\n"
      "  loss mean[*](attention[Seq -> Key; Head](q * w, q * w, q, mask = empty) * q)\n}\n"
      "train t { batch 2; steps 1; optim sgd lr = 1; data columns(q = \"q.npy\") }\n";
  assert_true(check(0, text) > 0);
}

int main(int argc, char **argv) {
  if (argc > 1) target = argv[1];
  if (argc > 3) first = atoi(argv[2]), count = atoi(argv[3]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(against_the_interpreter),
                                     cmocka_unit_test(nothing_is_listed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
