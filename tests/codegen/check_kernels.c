/* Kernels as the passes make them, against the interpreter: check_kernels DUMP.ir [TARGET] takes a
   dump from any point before `select` and checks every kernel function; check_kernels -r SEED N
   [TARGET] does that for N random modules from SEED on. */
#include "harness.h"
#include "passes/internal.h"
#include "tests/late/random_module.h"
#include <stdlib.h>

static int check(Harness *h, Module *m, double tolerance) {
  PipelineOptions o = {.until = "select"};
  if (!m) return 1;
  target_describe(m, target_find(h->target), h->workers);
  module_set(m, "target.chunk", "%d", 2000);
  if (pipeline_run(m, &o)) return harness_check(h, m, tolerance);
  diag_print(h->ctx->diag, stderr, DIAG_HUMAN, false);
  return 1;
}

static Module *read_dump(Harness *h, const char *path) {
  FILE *f = fopen(path, "r");
  if (!f) return NULL;
  VEC(char) text = {0};
  for (int c; (c = getc(f)) != EOF;) vec_push(h->arena, text, (char)c);
  fclose(f);
  vec_push(h->arena, text, 0);
  Module *m = ir_parse(h->ctx, path, text.at, text.n - 1);
  if (!m) diag_print(h->ctx->diag, stderr, DIAG_HUMAN, false);
  return m;
}

static int check_random(uint64_t seed, int n, const char *target) {
  int failed = 0;
  for (int i = 0; i < n; i++) {
    Harness *h = harness_new(target);
    Module *m = random_module(h->ctx, seed + (uint64_t)i, 40);
    int bad = check(h, m, 1e-4);
    if (bad)
      fprintf(stderr, "random module %llu: %d kernels failed\n",
              (unsigned long long)(seed + (uint64_t)i), bad);
    failed += bad;
    harness_free(h);
  }
  return failed;
}

int main(int argc, char **argv) {
  bool random = argc > 3 && !strcmp(argv[1], "-r");
  const char *target = argc > (random ? 4 : 2) ? argv[random ? 4 : 2] : "native";
  int failed;
  if (random) {
    failed = check_random(strtoull(argv[2], NULL, 10), atoi(argv[3]), target);
  } else if (argc > 1) {
    Harness *h = harness_new(target);
    failed = check(h, read_dump(h, argv[1]), 1e-4);
    harness_free(h);
  } else {
    fprintf(stderr, "usage: check_kernels DUMP.ir [TARGET] | -r SEED N [TARGET]\n");
    return 2;
  }
  printf("%d kernels failed\n", failed);
  return failed != 0;
}
