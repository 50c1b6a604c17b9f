/* Checks that this processor can run the program: it must have every feature that the target needs
   (rt_program.needs). Registers that the system grants only on request are requested once, before
   threads are started. Without this the first kernel would end the process with SIGILL.

   Bits are those of the instruction CPUID. Must not: know targets; the compiler writes the list. */
#include "device.h"
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>

typedef enum Register { EAX, EBX, ECX, EDX } Register;

static const struct {
  const char *name; /* as LLVM calls it */
  unsigned leaf, below;
  Register in;
  int bit;
} features[] = {
    {"avx2", 7, 0, EBX, 5},      {"fma", 1, 0, ECX, 12},        {"f16c", 1, 0, ECX, 29},
    {"bmi2", 7, 0, EBX, 8},      {"avx512f", 7, 0, EBX, 16},    {"avx512bw", 7, 0, EBX, 30},
    {"avx512cd", 7, 0, EBX, 28}, {"avx512dq", 7, 0, EBX, 17},   {"avx512vl", 7, 0, EBX, 31},
    {"amx-tile", 7, 0, EDX, 24}, {"avx512fp16", 7, 0, EDX, 23}, {"amx-bf16", 7, 0, EDX, 22},
    {"avx512bf16", 7, 1, EAX, 5}};

static bool has(const char *name, size_t n) {
  unsigned r[4];
  for (size_t i = 0; i < sizeof features / sizeof *features; i++)
    if (strlen(features[i].name) == n && !memcmp(features[i].name, name, n))
      return __get_cpuid_count(features[i].leaf, features[i].below, &r[EAX], &r[EBX], &r[ECX],
                               &r[EDX]) &&
             r[features[i].in] >> features[i].bit & 1;
  return false;
}

/* The system saves the tiles of AMX only for processes that asked for them. */
static bool permitted(const char *name, size_t n) {
  enum { REQUEST = 0x1023, TILES = 18 }; /* ARCH_REQ_XCOMP_PERM; number of the state */
  if (n < 8 || memcmp(name, "amx-tile", 8)) return true;
  return !syscall(SYS_arch_prctl, REQUEST, TILES);
}
#else
static bool has(const char *name, size_t n) { return (void)name, (void)n, false; }
static bool permitted(const char *name, size_t n) { return (void)name, (void)n, false; }
#endif

/* Each name is preceded by a + and followed by a comma. */
bool rt_processor_fits(const rt_program *program, Fault *f) {
  const char *missing = NULL, *why = "the processor lacks";
  int n = 0;
  for (const char *at = program->needs; at && *at && !missing; at += n + 2) {
    n = (int)strcspn(at, ",") - 1;
    if (!has(at + 1, (size_t)n)) missing = at + 1;
    else if (!permitted(at + 1, (size_t)n)) missing = at + 1, why = "the system refuses";
  }
  if (!missing) return true;
  rt_fault(f, 109, "this executable was compiled for %s: %s %.*s", program->target, why, n,
           missing);
  return rt_help(f, "compile with --target native on this machine, or with --target x86_64_v3");
}
