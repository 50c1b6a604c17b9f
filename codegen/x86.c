/* Targets of the x86-64 family: one constant row each. `native` is the richest row whose features
   this machine has, so that the same model compiled on two machines of one row gives the same
   bytes.

   Cache sizes are those of common machines of the row, not of the one that compiles: cuts of work
   must not depend on it. Vector registers are used at full width everywhere; `tune` stays generic,
   which keeps wide tiles free of spills. */
#include "target.h"
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
      false, false, 0, 0, 0},
     V3_NEEDS},
    {{"x86_64_v4", TRIPLE, "x86-64-v4", "generic", "", 64, 32, 32 << 10, 1 << 20, 16 << 20, false,
      false, false, 0, 0, 0},
     V4_NEEDS},
    {{"x86_64_v4_bf16", TRIPLE, "x86-64-v4", "generic", "+avx512bf16", 64, 32, 32 << 10, 1 << 20,
      16 << 20, true, true, false, 0, 0, 0},
     V4_NEEDS "+avx512bf16,"},
    /* Sapphire Rapids and later: half the rate of f32 for pairs (measured), so products are f32 */
    {{"x86_64_v4_fp16", TRIPLE, "x86-64-v4", "generic", "+avx512bf16", 64, 32, 32 << 10, 1 << 20,
      16 << 20, true, false, false, 0, 0, 0},
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

const Target *x86_native(void) {
  char *features = LLVMGetHostCPUFeatures();
  const Target *best = NULL;
  for (int i = 0; i < ROWS; i++)
    if (has_all(features, rows[i].needs)) best = &rows[i].target;
  LLVMDisposeMessage(features);
  return best;
}

const Target *x86_target(int i) { return i < ROWS ? &rows[i].target : NULL; }
