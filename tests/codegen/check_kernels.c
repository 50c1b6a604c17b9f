/* Kernels as the passes make them, against the interpreter: check_kernels DUMP.ir [TARGET] takes a
   dump from any point before `select` and checks every kernel function; check_kernels -r SEED N
   [TARGET] does that for N random modules from SEED on. Their kernels must be of every family of
   families.def for the kind of device, so a new row is tested without a test of its own.

   -x as first word: the kernels are exact twins (exact.h), which must agree in every bit, in random
   modules with larger sizes, at which tiles have edges. */
#include "exact.h"
#include "harness.h"
#include "ir/kernel/family.h"
#include "passes/base/rebuild.h"
#include "tests/common/random_step.h"
#include <stdlib.h>

enum { CPU = 1, BOTH = 3 }; /* a bit per DeviceKind */
static const struct {
  const char *name;
  int devices;
} families[] = {
#define FAMILY(name, anchors, buffers, neighbours, devices, what) {#name, devices},
#include "ir/kernel/families.def"
#undef FAMILY
};
_Static_assert(1 << DEVICE_CPU == CPU, "processors are the first kind of device");

typedef struct Seen {
  int kernels[COUNT_OF(families)]; /* that were checked */
} Seen;

typedef struct Check {
  const char *target;
  bool exact;
  Seen seen;
  int without; /* kernels that have no exact twin */
} Check;

static void count_families(Seen *seen, const Module *m) {
  for (uint32_t f = 0; f < m->fns.n; f++) {
    const char *name = attr_str(&m->fns.at[f]->attrs, ATTR_family, "");
    for (size_t i = 0; i < COUNT_OF(families); i++)
      seen->kernels[i] += !strcmp(families[i].name, name);
  }
}

/* Families of attention have no twins, since softmax is a part of them. */
static int families_left_out(const Check *check, DeviceKind device) {
  const Seen *seen = &check->seen;
  int n = 0;
  for (size_t i = 0; i < COUNT_OF(families); i++) {
    printf("%s%s %d", i ? ", " : "", families[i].name, seen->kernels[i]);
    n += !seen->kernels[i] && families[i].devices >> device & 1 &&
         !(check->exact && strstr(families[i].name, "attention"));
  }
  printf("\n");
  if (n) fprintf(stderr, "%d families are in no random module: tests/common/random_*.c\n", n);
  return n;
}

/* Kernels without a twin are left out. */
static void make_twins(Check *check, Harness *h, Module *m) {
  h->whole = true, h->low = -EXACT_MOST, h->high = EXACT_MOST;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *k = m->fns.at[i];
    if (k->kind != FN_KERNEL || exact_twin(m, k)) continue;
    k->kind = FN_BODY, check->without++;
    attr_set_str(m, &k->attrs, ATTR_family, "");
  }
}

static int check_module(Check *check, Harness *h, Module *m) {
  PipelineOptions o = {.verify = true, .until = "select"};
  double tolerance = m ? harness_tolerance(h, m) : 0;
  if (m) target_describe(m, target_find(h->target), h->workers);
  if (m) m->target.chunk = 2000;
  if (!m || !pipeline_run(m, &o)) {
    diag_print(h->ctx->diag, stderr, DIAG_HUMAN, false);
    return 1;
  }
  if (check->exact) make_twins(check, h, m);
  count_families(&check->seen, m);
  return harness_check(h, m, check->exact ? 0 : tolerance);
}

static int check_random(Check *check, uint64_t seed, int n) {
  static const int64_t ragged[] = {1, 3, 17, 33, 64, 70};
  const RandomSizes large = {.from = ragged, .n = COUNT_OF(ragged), .most = 1 << 15};
  int failed = 0;
  for (int i = 0; i < n; i++) {
    Harness *h = harness_new(check->target);
    uint64_t number = seed + (uint64_t)i;
    Module *m =
        check->exact ? random_step_of(h->ctx, number, 40, &large) : random_step(h->ctx, number, 40);
    int bad = check_module(check, h, m);
    if (bad)
      fprintf(stderr, "random module %llu: %d kernels failed\n", (unsigned long long)number, bad);
    failed += bad;
    harness_free(h);
  }
  return failed + families_left_out(check, target_find(check->target)->facts.device);
}

int main(int argc, char **argv) {
  Check check = {.exact = argc > 1 && !strcmp(argv[1], "-x")};
  if (check.exact) argc--, argv++;
  bool random = argc > 3 && !strcmp(argv[1], "-r");
  check.target = argc > (random ? 4 : 2) ? argv[random ? 4 : 2] : "native";
  int failed;
  if (random) {
    failed = check_random(&check, strtoull(argv[2], NULL, 10), atoi(argv[3]));
  } else if (argc > 1) {
    Harness *h = harness_new(check.target);
    failed = check_module(&check, h, ir_read(h->ctx, argv[1]));
    harness_free(h);
  } else {
    fprintf(stderr, "usage: check_kernels [-x] DUMP.ir [TARGET] | [-x] -r SEED N [TARGET]\n");
    return 2;
  }
  if (check.exact) printf("%d kernels have no exact twin\n", check.without);
  printf("%d kernels failed\n", failed);
  return failed != 0;
}
