/* Targets of the x86-64 family: one constant row each. `native` is the richest row whose features
   this machine has, so that the same model compiled on two machines of one row gives the same
   bytes.

   Cache sizes are those of common machines of the row, not of the one that compiles: cuts of work
   must not depend on it. Vector registers are used at full width everywhere; `tune` stays generic,
   which keeps wide tiles free of spills. */
#include "codegen/device_code.h"
#include "codegen/target.h"
#include <llvm-c/Target.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define V3_NEEDS "+avx2,+fma,+f16c,+bmi2,"
#define V4_NEEDS V3_NEEDS "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,"
#define FP16_NEEDS V4_NEEDS "+avx512bf16,+avx512fp16,"

#define FACTS(bytes, registers, l2_, l3_, ...)                                                     \
  {                                                                                                \
    .device = DEVICE_CPU, .vector_bytes = bytes, .vector_registers = registers, .l2 = (l2_) << 10, \
    .l3 = (l3_) << 20, .join = true, .sums = true, .listed = 1 << 23, __VA_ARGS__                  \
  }

#define ROW(label, cpu_, l1, ...)                                                                  \
  {                                                                                                \
    .name = label, .code = &x86_code, .triple = "x86_64-unknown-linux-gnu", .cpu = cpu_,           \
    .tune = "generic", .l1_bytes = (l1) << 10, __VA_ARGS__                                         \
  }

static const Target rows[] = {
    /* poorest first */
    ROW("x86_64_v3", "x86-64-v3", 32, .facts = FACTS(32, 16, 512, 8), .features = "",
        .needs = V3_NEEDS),
    ROW("x86_64_v4", "x86-64-v4", 32, .facts = FACTS(64, 32, 1024, 16), .features = "",
        .needs = V4_NEEDS),
    ROW("x86_64_v4_bf16", "x86-64-v4", 32,
        .facts = FACTS(64, 32, 1024, 16, .bf16_dot = true, .bf16_dot_fast = true),
        .features = "+avx512bf16", .needs = V4_NEEDS "+avx512bf16,"),
    /* Sapphire Rapids and later: half the rate of f32 for pairs (measured), so products are f32 */
    ROW("x86_64_v4_fp16", "x86-64-v4", 32, .facts = FACTS(64, 32, 1024, 16, .bf16_dot = true),
        .features = "+avx512bf16", .needs = FP16_NEEDS),
    ROW("x86_64_v4_amx", "x86-64-v4", 48,
        .facts = FACTS(64, 32, 2048, 16, .bf16_dot = true, .amx = true),
        .features = "+avx512bf16,+amx-tile,+amx-bf16", .needs = FP16_NEEDS "+amx-tile,+amx-bf16,"),
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

/* A process must ask the system before it uses the tiles of AMX: the compiler runs kernels as
   well. */
static bool permitted(const Target *t) {
  enum { REQUEST = 0x1023, TILES = 18 }; /* ARCH_REQ_XCOMP_PERM; number of the state */
  if (!strstr(t->needs, "+amx")) return true;
#if defined(__linux__) && defined(__x86_64__)
  return !syscall(SYS_arch_prctl, REQUEST, TILES);
#else
  return false;
#endif
}

bool target_runs_here(const Target *t) {
  if (t->facts.device != DEVICE_CPU) return false;
  char *features = LLVMGetHostCPUFeatures();
  bool here = has_all(features, t->needs) && permitted(t);
  LLVMDisposeMessage(features);
  return here;
}

const Target *x86_native(void) {
  const Target *best = NULL;
  for (int i = 0; i < ROWS; i++)
    if (target_runs_here(&rows[i])) best = &rows[i];
  return best;
}

const Target *x86_target(int i) { return i < ROWS ? &rows[i] : NULL; }
