/* See loops.h. Twelve chains of multiply-adds hide the latency of any x86 processor so far. Must
   not: be compiled with more than the base instructions: each loop names the instructions that it
   needs. */
#include "loops.h"
#include <cpuid.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 1200000 };

#define EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define ZERO16(i) __m512 a##i = _mm512_setzero_ps();
#define WIDE16(i) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(a##i) : "v"(x));
#define NARROW16(i) __asm__ volatile("vdpbf16ps %1, %1, %0" : "+v"(a##i) : "v"(x));
#define ZERO8(i) __m256 a##i = _mm256_setzero_ps();
#define WIDE8(i) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+x"(a##i) : "x"(x));

__attribute__((target("avx512f"))) static double wide16(void) {
  __m512 x = _mm512_set1_ps(1e-3f);
  EACH(ZERO16)
  for (int i = 0; i < ROUNDS; i++) { EACH(WIDE16) }
  return 12.0 * 16 * 2 * ROUNDS;
}

__attribute__((target("avx2,fma"))) static double wide8(void) {
  __m256 x = _mm256_set1_ps(1e-3f);
  EACH(ZERO8)
  for (int i = 0; i < ROUNDS; i++) { EACH(WIDE8) }
  return 12.0 * 8 * 2 * ROUNDS;
}

/* Which target's instructions may be used, poorest first. */
typedef enum Allowed { V3, V4, V4_BF16, V4_FP16, V4_AMX, TARGETS } Allowed;

static Allowed allowed(void) {
  static const char *const names[TARGETS] = {"x86_64_v3", "x86_64_v4", "x86_64_v4_bf16",
                                             "x86_64_v4_fp16", "x86_64_v4_amx"};
  const char *name = getenv("BENCH_TARGET");
  for (int i = 0; name && i < TARGETS; i++)
    if (!strcmp(name, names[i])) return (Allowed)i;
  if (!name || !strcmp(name, "native")) return V4_AMX;
  fprintf(stderr, "error: BENCH_TARGET is a target of x86-64, not `%s`\n", name);
  exit(1);
}

static bool sixteen_lanes(void) { return allowed() >= V4 && __builtin_cpu_supports("avx512f"); }

double loop_wide(void) { return sixteen_lanes() ? wide16() : wide8(); }

__attribute__((target("avx512f"))) double loop_narrow(void) {
  __m512 x = _mm512_set1_ps(1e-3f);
  EACH(ZERO16)
  for (int i = 0; i < ROUNDS; i++) { EACH(NARROW16) }
  return 12.0 * 16 * 4 * ROUNDS;
}

static bool feature(unsigned below, int word, int bit) { /* of CPUID's leaf 7: eax, ebx, ecx, edx */
  unsigned r[4];
  return __get_cpuid_count(7, below, &r[0], &r[1], &r[2], &r[3]) && r[word] >> bit & 1;
}

bool loop_has_pairs(void) {
  return allowed() >= V4_BF16 && __builtin_cpu_supports("avx512f") && feature(1, 0, 5);
}

bool loop_has_matrix(void) {
  enum { REQUEST = 0x1023, TILES = 18, EDX = 3 }; /* ARCH_REQ_XCOMP_PERM; number of the state */
  return allowed() == V4_AMX && feature(0, EDX, 24) && feature(0, EDX, 22) &&
         !syscall(SYS_arch_prctl, REQUEST, TILES);
}

/* Four products of AMX tiles with zeros, in turn. */
double loop_matrix(void) {
#if defined(__x86_64__)
  static const unsigned char shapes[64] __attribute__((aligned(64))) = {
      [0] = 1,   [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64,
      [26] = 64, [28] = 64, [30] = 64, [48] = 16, [49] = 16, [50] = 16,
      [51] = 16, [52] = 16, [53] = 16, [54] = 16, [55] = 16};
  __asm__ volatile("ldtilecfg %0" ::"m"(shapes));
  for (int i = 0; i < ROUNDS; i++)
    __asm__ volatile("tdpbf16ps %tmm6, %tmm4, %tmm0\n tdpbf16ps %tmm7, %tmm4, %tmm1\n"
                     "tdpbf16ps %tmm6, %tmm5, %tmm2\n tdpbf16ps %tmm7, %tmm5, %tmm3");
  __asm__ volatile("tilerelease");
#endif
  return 4.0 * 16 * 16 * 32 * 2 * ROUNDS;
}

__attribute__((target("avx512f"))) static void triad16(float *a, const float *b, const float *c,
                                                       int64_t n) {
  __m512 s = _mm512_set1_ps(3);
  for (int64_t i = 0; i < n; i += 16)
    _mm512_stream_ps(a + i, _mm512_fmadd_ps(s, _mm512_load_ps(c + i), _mm512_load_ps(b + i)));
}

__attribute__((target("avx2,fma"))) static void triad8(float *a, const float *b, const float *c,
                                                       int64_t n) {
  __m256 s = _mm256_set1_ps(3);
  for (int64_t i = 0; i < n; i += 8)
    _mm256_stream_ps(a + i, _mm256_fmadd_ps(s, _mm256_load_ps(c + i), _mm256_load_ps(b + i)));
}

void loop_triad(float *a, const float *b, const float *c, int64_t n) {
  if (sixteen_lanes()) triad16(a, b, c, n);
  else triad8(a, b, c, n);
  _mm_sfence();
}
