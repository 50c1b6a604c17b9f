/* Threads that wait in a loop for a turn, work, and count themselves done; see team.h. Must not:
   sleep between turns, which would let the processor's clock fall; know the compiler, so that
   bench_peak runs where it is not. */
#include "team.h"
#include "loops.h"
#include "ir/support/numbers.h"
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct Member {
  Team *team;
  int number;
} Member;

/* Elements of each array of the triad: few caches hold three. Together they are several times the
   last-level cache that the machine tells, which a host of virtual machines shares among them. */
enum { TRIAD_LEAST = 24 << 20, TRIAD_EACH = 4 << 20, TRIAD_MOST = 96 << 20, CACHES = 4 };

struct Team {
  int threads;
  atomic_int turn, done;
  TeamWork *work;
  void *context;
  Member member[TEAM_MOST];
  char *scratch[TEAM_MOST];
  float *triad[3]; /* NULL: not yet */
  int64_t elements;
  double seconds[TEAM_MOST];
};

int team_threads(const Team *t) { return t->threads; }

char **team_scratches(Team *t) { return t->scratch; }

void team_fail(const char *what) {
  fprintf(stderr, "error: %s\n", what);
  exit(1);
}

/* ---- turns ---- */

static double processor_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work(Team *t, int number) {
  double start = processor_time();
  t->work(t->context, number);
  t->seconds[number] = processor_time() - start;
}

static void *member(void *argument) {
  Member *m = argument;
  for (int seen = 0;; seen++) {
    while (atomic_load(&m->team->turn) == seen) _mm_pause();
    work(m->team, m->number);
    atomic_fetch_add(&m->team->done, 1);
  }
  return NULL;
}

/* As many as BENCH_THREADS says, or as there are processors for this process. */
static int threads_wanted(void) {
  const char *text = getenv("BENCH_THREADS");
  cpu_set_t set;
  int n = text ? atoi(text) : sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
  if (n < 1 || n > TEAM_MOST) team_fail("BENCH_THREADS is a number of threads, 256 at most");
  return n;
}

Team *team_start(void) {
  Team *t = calloc(1, sizeof *t);
  if (!t) team_fail("out of memory");
  t->threads = threads_wanted();
  for (int i = 1; i < t->threads; i++) {
    pthread_t thread;
    t->member[i] = (Member){t, i};
    if (pthread_create(&thread, NULL, member, &t->member[i])) team_fail("no thread can be made");
  }
  return t;
}

double team_run(Team *t, TeamWork *what, void *context) {
  t->work = what, t->context = context;
  atomic_store(&t->done, 0);
  atomic_fetch_add(&t->turn, 1);
  work(t, 0);
  while (atomic_load(&t->done) < t->threads - 1) _mm_pause();
  double sum = 0;
  for (int i = 0; i < t->threads; i++) sum += t->seconds[i];
  return sum / t->threads;
}

/* ---- loops ---- */

typedef struct Rate {
  TeamLoop *loop;
  double done[TEAM_MOST];
} Rate;

static void loop_once(void *context, int number) {
  Rate *r = context;
  r->done[number] = r->loop();
}

double team_rate(Team *t, TeamLoop *loop) {
  Rate r = {.loop = loop};
  double seconds = team_run(t, loop_once, &r), sum = 0;
  for (int i = 0; i < t->threads; i++) sum += r.done[i];
  return sum / seconds;
}

static void triad_part(void *context, int number) {
  const Team *t = context;
  int64_t each = t->elements / t->threads / 16 * 16, from = number * each;
  loop_triad(t->triad[0] + from, t->triad[1] + from, t->triad[2] + from, each);
}

int64_t team_cold(void) { return CACHES * (int64_t)sysconf(_SC_LEVEL3_CACHE_SIZE); }

static int64_t triad_elements(const Team *t) {
  int64_t n = (int64_t)TRIAD_EACH * t->threads, cold = team_cold() / 12;
  n = n < TRIAD_LEAST ? TRIAD_LEAST : n > TRIAD_MOST ? TRIAD_MOST : n;
  return n < cold ? cold : n;
}

double team_triad(Team *t, int64_t bytes) {
  if (!t->elements) t->elements = bytes ? bytes / 12 : triad_elements(t);
  for (int i = 0; i < 3 && !t->triad[i]; i++)
    t->triad[i] = (float *)bench_memory((int64_t)sizeof(float) * t->elements, ELEM_f32);
  int64_t moved = t->elements / t->threads / 16 * 16 * t->threads;
  return 12.0 * (double)moved / team_run(t, triad_part, t);
}

/* ---- memory and statistics ---- */

char *bench_memory(int64_t bytes, Elem e) {
  int64_t huge = 2 << 20, all = (bytes + huge - 1) / huge * huge;
  char *p = aligned_alloc((size_t)huge, (size_t)all);
  if (!p) team_fail("out of memory");
  madvise(p, (size_t)all, MADV_HUGEPAGE);
  memset(p, 0, (size_t)all);
  bool wide = e == ELEM_f32;
  for (int64_t i = 0; (wide || e == ELEM_bf16) && i < all / (wide ? 4 : 2); i++) {
    float f = (float)(i * 7919 % 1009 - 504) * 1e-3f;
    uint16_t half = bf16_from_f32(f);
    if (wide) memcpy(p + 4 * i, &f, 4);
    else memcpy(p + 2 * i, &half, 2);
  }
  return p;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

double bench_median(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, ascending);
  return x[n / 2];
}
