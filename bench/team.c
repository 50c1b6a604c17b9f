/* Threads that wait in a loop for a turn, work, and count themselves done; see team.h. Must not:
   sleep between turns, which would let the processor's clock fall. */
#include "bench/team.h"
#include "bench/loops.h"
#include "codegen/codegen.h"
#include "ir/numbers.h"
#include <dlfcn.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef struct Member {
  Team *team;
  int number;
} Member;

enum { TRIAD = 24 << 20 }; /* elements of each array */

struct Team {
  atomic_int turn, done;
  TeamWork *work;
  void *context;
  Member member[TEAM_THREADS];
  char *scratch[TEAM_THREADS];
  float *triad[3]; /* NULL: not yet */
  double seconds[TEAM_THREADS];
};

static void fail(const char *what) {
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

Team *team_start(void) {
  Team *t = calloc(1, sizeof *t);
  if (!t) fail("out of memory");
  for (int i = 1; i < TEAM_THREADS; i++) {
    pthread_t thread;
    t->member[i] = (Member){t, i};
    if (pthread_create(&thread, NULL, member, &t->member[i])) fail("no thread can be made");
  }
  return t;
}

double team_run(Team *t, TeamWork *what, void *context) {
  t->work = what, t->context = context;
  atomic_store(&t->done, 0);
  atomic_fetch_add(&t->turn, 1);
  work(t, 0);
  while (atomic_load(&t->done) < TEAM_THREADS - 1) _mm_pause();
  double sum = 0;
  for (int i = 0; i < TEAM_THREADS; i++) sum += t->seconds[i];
  return sum / TEAM_THREADS;
}

/* ---- loops ---- */

typedef struct Rate {
  TeamLoop *loop;
  double done[TEAM_THREADS];
} Rate;

static void loop_once(void *context, int number) {
  Rate *r = context;
  r->done[number] = r->loop();
}

double team_rate(Team *t, TeamLoop *loop) {
  Rate r = {.loop = loop};
  double seconds = team_run(t, loop_once, &r), sum = 0;
  for (int i = 0; i < TEAM_THREADS; i++) sum += r.done[i];
  return sum / seconds;
}

TeamLoop *loop_of(Elem e) {
  const Target *here = target_find("native");
  if (e != ELEM_bf16 || !(here->matrix || here->pairs)) return loop_wide;
  return here->matrix ? loop_matrix : loop_narrow;
}

static void triad_part(void *context, int number) {
  float **array = context;
  int64_t each = TRIAD / TEAM_THREADS, from = number * each;
  loop_triad(array[0] + from, array[1] + from, array[2] + from, each);
}

double team_triad(Team *t) {
  for (int i = 0; i < 3 && !t->triad[i]; i++)
    t->triad[i] = (float *)bench_memory((int64_t)sizeof(float) * TRIAD, ELEM_f32);
  return 12.0 * TRIAD / team_run(t, triad_part, t->triad);
}

/* ---- kernels ---- */

typedef struct Job { /* one phase */
  Team *team;
  Chunk *run;
  void *const *buffers;
  int64_t chunks;
  atomic_long next[TEAM_THREADS];
} Job;

static void take_chunks(void *context, int number) { /* its own share, then the others' */
  Job *j = context;
  for (int k = 0; k < TEAM_THREADS; k++) {
    int share = (number + k) % TEAM_THREADS;
    int64_t end = (share + 1) * j->chunks / TEAM_THREADS;
    for (int64_t i; (i = atomic_fetch_add(&j->next[share], 1)) < end;)
      j->run(j->buffers, i, j->team->scratch[number]);
  }
}

double team_kernel(Team *t, const Code *code, void *const *buffers) {
  double seconds = 0;
  for (int p = 0; p < code->phases; p++) {
    Job j = {t, code->run[p], buffers, code->chunks[p], {0}};
    for (int i = 0; i < TEAM_THREADS; i++) atomic_store(&j.next[i], i * j.chunks / TEAM_THREADS);
    seconds += team_run(t, take_chunks, &j);
  }
  return seconds;
}

int64_t team_scratch(Team *t, const Fn *const *kernels, int n) {
  int64_t scratch = 64, workspace = 64;
  for (int i = 0; i < n; i++) {
    int64_t own = attr_int(&kernels[i]->attrs, ATTR_scratch, 0);
    int64_t shared = attr_int(&kernels[i]->attrs, ATTR_workspace, 0);
    scratch = own > scratch ? own : scratch, workspace = shared > workspace ? shared : workspace;
  }
  for (int i = 0; i < TEAM_THREADS; i++)
    free(t->scratch[i]), t->scratch[i] = bench_memory(scratch, ELEM_f32);
  return workspace;
}

Code code_find(Module *m, const Fn *k, void *library) {
  const Attr *chunks = attr_get(&k->attrs, ATTR_chunks);
  Code c = {.phases = (int)chunks->i};
  memcpy(c.chunks, chunks->list, sizeof *chunks->list * (size_t)chunks->i);
  for (int p = 0; p < c.phases; p++) {
    const char *symbol = arena_printf(m->arena, "%s_p%d", kernel_symbol(m, k), p);
    *(void **)&c.run[p] = library ? dlsym(library, symbol) : NULL;
    if (!c.run[p]) fail(symbol);
  }
  return c;
}

/* ---- memory and statistics ---- */

char *bench_memory(int64_t bytes, Elem e) {
  int64_t huge = 2 << 20, all = (bytes + huge - 1) / huge * huge;
  char *p = aligned_alloc((size_t)huge, (size_t)all);
  if (!p) fail("out of memory");
  madvise(p, (size_t)all, MADV_HUGEPAGE);
  memset(p, 0, (size_t)all);
  bool wide = e == ELEM_f32;
  for (int64_t i = 0; (wide || e == ELEM_bf16) && i < all / elem_bytes(e); i++) {
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
