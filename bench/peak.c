/* What two threads of this machine can do: multiply-adds on registers, and triad a = b + s c over
   arrays that no cache holds, with stores past the caches. The reference of bench/cpu, which
   compiles it for the machine it runs on.

     peak       prints GFLOP/s and GB/s, best of some rounds */
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { THREADS = 2, ROUNDS = 6, STEPS = 4000000, FLOATS = 24 << 20, CHAINS = 12 };

#ifdef __AVX512F__
enum { LANES = 16 };
typedef __m512 Vector;
#define FMA(a, x) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(a) : "v"(x))
#define TRIAD(a, b, c, s)                                                                          \
  _mm512_stream_ps(a, _mm512_fmadd_ps(s, _mm512_load_ps(c), _mm512_load_ps(b)))
#define SPREAD(x) _mm512_set1_ps(x)
#else
enum { LANES = 8 };
typedef __m256 Vector;
#define FMA(a, x) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+x"(a) : "x"(x))
#define TRIAD(a, b, c, s)                                                                          \
  _mm256_stream_ps(a, _mm256_fmadd_ps(s, _mm256_load_ps(c), _mm256_load_ps(b)))
#define SPREAD(x) _mm256_set1_ps(x)
#endif

typedef struct Member {
  int number;
  float *a, *b, *c;
  pthread_barrier_t *together;
  double flop, bytes; /* best rate of all threads, seen by number 0 */
} Member;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define ZERO(i) Vector a##i = SPREAD(0);
#define STEP(i) FMA(a##i, x);

static void multiply(void) {
  Vector x = SPREAD(1e-3f);
  EACH(ZERO)
  for (int i = 0; i < STEPS; i++) { EACH(STEP) }
}

static void triad(Member *m) {
  int64_t from = (int64_t)m->number * FLOATS / THREADS, to = from + FLOATS / THREADS;
  Vector s = SPREAD(3);
  for (int64_t i = from; i < to; i += LANES) TRIAD(m->a + i, m->b + i, m->c + i, s);
  _mm_sfence();
}

static double timed(Member *m, int what) {
  pthread_barrier_wait(m->together);
  double start = now();
  if (what) triad(m);
  else multiply();
  pthread_barrier_wait(m->together);
  return now() - start;
}

static void *run(void *argument) {
  Member *m = argument;
  for (int i = 0; i < ROUNDS; i++) {
    double f = (double)THREADS * CHAINS * 2 * LANES * STEPS / timed(m, 0);
    double b = 12.0 * FLOATS / timed(m, 1);
    m->flop = f > m->flop ? f : m->flop, m->bytes = b > m->bytes ? b : m->bytes;
  }
  return NULL;
}

static float *array(void) {
  float *p = aligned_alloc(2 << 20, sizeof(float) * FLOATS);
  if (!p) exit(1);
  madvise(p, sizeof(float) * FLOATS, MADV_HUGEPAGE);
  memset(p, 0, sizeof(float) * FLOATS);
  return p;
}

int main(void) {
  pthread_barrier_t together;
  Member m[THREADS];
  pthread_t thread;
  pthread_barrier_init(&together, NULL, THREADS);
  m[0] = (Member){0, array(), array(), array(), &together, 0, 0};
  for (int i = 1; i < THREADS; i++) {
    m[i] = m[0], m[i].number = i;
    if (pthread_create(&thread, NULL, run, &m[i])) return 1;
  }
  run(&m[0]);
  printf("%.1f %.1f\n", 1e-9 * m[0].flop, 1e-9 * m[0].bytes);
  return 0;
}
