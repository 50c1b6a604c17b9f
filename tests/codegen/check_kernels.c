/* Kernels as the passes make them, against the interpreter: check_kernels DUMP.ir [TARGET] takes a
   dump from any point before `select` and checks every kernel function; check_kernels -r SEED N
   [TARGET] does that for N random modules from SEED on, among whose kernels every family of
   families.def for such a device must be: so a new row is tested without a test of its own. */
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

static void count_families(Seen *seen, const Module *m) {
  for (uint32_t f = 0; f < m->fns.n; f++) {
    const char *name = attr_str(&m->fns.at[f]->attrs, ATTR_family, "");
    for (size_t i = 0; i < COUNT_OF(families); i++)
      seen->kernels[i] += !strcmp(families[i].name, name);
  }
}

static int families_left_out(const Seen *seen, DeviceKind device) {
  int n = 0;
  for (size_t i = 0; i < COUNT_OF(families); i++) {
    printf("%s%s %d", i ? ", " : "", families[i].name, seen->kernels[i]);
    n += !seen->kernels[i] && families[i].devices >> device & 1;
  }
  printf("\n");
  if (n) fprintf(stderr, "%d families are in no random module: tests/common/random_*.c\n", n);
  return n;
}

static int check(Harness *h, Module *m) {
  PipelineOptions o = {.verify = true, .until = "select"};
  double tolerance = m ? harness_tolerance(h, m) : 0;
  if (m) target_describe(m, target_find(h->target), h->workers);
  if (m) m->target.chunk = 2000;
  if (m && pipeline_run(m, &o)) return harness_check(h, m, tolerance);
  diag_print(h->ctx->diag, stderr, DIAG_HUMAN, false);
  return 1;
}

static int check_random(uint64_t seed, int n, const char *target) {
  int failed = 0;
  Seen seen = {0};
  for (int i = 0; i < n; i++) {
    Harness *h = harness_new(target);
    Module *m = random_step(h->ctx, seed + (uint64_t)i, 40);
    int bad = check(h, m);
    if (bad)
      fprintf(stderr, "random module %llu: %d kernels failed\n",
              (unsigned long long)(seed + (uint64_t)i), bad);
    failed += bad;
    count_families(&seen, m);
    harness_free(h);
  }
  return failed + families_left_out(&seen, target_find(target)->facts.device);
}

int main(int argc, char **argv) {
  bool random = argc > 3 && !strcmp(argv[1], "-r");
  const char *target = argc > (random ? 4 : 2) ? argv[random ? 4 : 2] : "native";
  int failed;
  if (random) {
    failed = check_random(strtoull(argv[2], NULL, 10), atoi(argv[3]), target);
  } else if (argc > 1) {
    Harness *h = harness_new(target);
    failed = check(h, ir_read(h->ctx, argv[1]));
    harness_free(h);
  } else {
    fprintf(stderr, "usage: check_kernels DUMP.ir [TARGET] | -r SEED N [TARGET]\n");
    return 2;
  }
  printf("%d kernels failed\n", failed);
  return failed != 0;
}
