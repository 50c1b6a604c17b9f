/* Targets of the x86-64 family: one constant row each. `native` is the richest row whose features
   this machine has, so that the same model compiled on two machines of one row gives the same
   bytes.

   Cache sizes are those of common machines of the row, not of the one that compiles: cuts of work
   must not depend on it. Vector registers are used at full width everywhere; `tune` stays generic,
   which keeps wide tiles free of spills. */
#include "codegen.h"
#include <llvm-c/Target.h>
#include <string.h>

typedef struct Row {
  Target target;
  const char *needs; /* LLVM features that the machine must have, each followed by a comma */
} Row;

#define V3_NEEDS "+avx2,+fma,+f16c,+bmi2,"
#define V4_NEEDS V3_NEEDS "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,"
#define TRIPLE "x86_64-unknown-linux-gnu"

static const Row rows[] = {
    /* poorest first */
    {{"x86_64_v3", TRIPLE, "x86-64-v3", "generic", "", 32, 16, 32 << 10, 512 << 10, 8 << 20, false,
      false},
     V3_NEEDS},
    {{"x86_64_v4", TRIPLE, "x86-64-v4", "generic", "", 64, 32, 32 << 10, 1 << 20, 16 << 20, false,
      false},
     V4_NEEDS},
    {{"x86_64_v4_bf16", TRIPLE, "x86-64-v4", "generic", "+avx512bf16", 64, 32, 32 << 10, 1 << 20,
      16 << 20, true, true},
     V4_NEEDS "+avx512bf16,"},
    /* Sapphire Rapids and later: half the rate of f32 for pairs (measured), so products are f32 */
    {{"x86_64_v4_fp16", TRIPLE, "x86-64-v4", "generic", "+avx512bf16", 64, 32, 32 << 10, 1 << 20,
      16 << 20, true, false},
     V4_NEEDS "+avx512bf16,+avx512fp16,"},
};

enum { ROWS = sizeof rows / sizeof *rows };

static bool has_feature(const char *features, const char *name, size_t n) {
  for (const char *f = features; *f;) {
    size_t length = strcspn(f, ",");
    if (length == n && !memcmp(f, name, n)) return true;
    f += length + (f[length] == ',');
  }
  return false;
}

static bool has_all(const char *features, const char *needs) {
  for (const char *n = needs; *n; n += strcspn(n, ",") + 1)
    if (!has_feature(features, n, strcspn(n, ","))) return false;
  return true;
}

static const Target *find_native(void) {
  char *features = LLVMGetHostCPUFeatures();
  const Target *best = NULL;
  for (int i = 0; i < ROWS; i++)
    if (has_all(features, rows[i].needs)) best = &rows[i].target;
  LLVMDisposeMessage(features);
  return best;
}

const Target *target_find(const char *name) {
  if (!strcmp(name, "native")) return find_native();
  for (int i = 0; i < ROWS; i++)
    if (!strcmp(name, rows[i].target.name)) return &rows[i].target;
  return NULL;
}

const char *target_name(int i) { return i < ROWS ? rows[i].target.name : NULL; }

void target_describe(Module *m, const Target *t, int workers) {
  module_set(m, "target.name", "%s", t->name);
  module_set(m, "target.vector_bytes", "%d", t->vector_bytes);
  module_set(m, "target.vector_registers", "%d", t->vector_registers);
  module_set(m, "target.l1", "%lld", (long long)t->l1_bytes);
  module_set(m, "target.l2", "%lld", (long long)t->l2_bytes);
  module_set(m, "target.l3", "%lld", (long long)t->l3_bytes);
  module_set(m, "target.rounds", "%d", t->rounds);
  module_set(m, "target.pairs", "%d", t->pairs);
  module_set(m, "target.join", "1");
  module_set(m, "target.workers", "%d", workers);
}

const Target *target_of(const Module *m) {
  Str name = module_setting(m, "target.name", NULL);
  const Target *t = name ? target_find(name) : NULL;
  if (!t) bug("the module names no known target");
  return t;
}
