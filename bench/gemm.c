/* Speed of family contract on the products of GPT-2's layers and head, as a share of this machine's
   peak.

     bench_gemm [tokens [f32|bf16 [only]]]

   With bf16, activations and gradients are bf16, weights f32 that the kernel rounds while it packs
   them, as in a model with `precision bf16`.

   Per shape: forward (W stored [In, Out]; the head's tied embedding [Vocab, Embed]), gradient of
   the input, gradient of the weights. Kernels are tuned and compiled as for a model. Two threads
   take chunks in order; weights change from call to call, so they come from memory. Peak: a loop of
   fused multiply-adds on registers, on the same threads, before and after each call. Times are
   processor time of the threads, so that other processes on the machine count little. Medians of 7.
 */
#include "codegen/codegen.h"
#include "ir/numbers.h"
#include "passes/tune.h"
#include <dlfcn.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef void Chunk(void *const *buffers, int64_t chunk, void *scratch);

enum { THREADS = 2, REPEATS = 7, PEAK_ROUNDS = 600000, COLD_BYTES = 300000000 };

typedef struct Job { /* what the threads do: chunks of a kernel, or the peak loop if run is NULL */
  Chunk *run;
  void *const *buffers;
  int64_t chunks;
} Job;

typedef struct Team {
  atomic_int turn, done;
  atomic_long next[THREADS];
  Job job;
  bool narrow, pairs; /* products of bf16; the peak is that of its pairs */
  void *scratch[THREADS];
  double seconds[THREADS], work[THREADS]; /* work: operations of the peak loop */
} Team;

typedef struct Member {
  Team *team;
  int number;
} Member;

/* ---- peak ---- */

#define EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define INIT16(i) __m512 a##i = _mm512_setzero_ps();
#define STEP16(i) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(a##i) : "v"(x));
#define INIT8(i) __m256 a##i = _mm256_setzero_ps();
#define STEP8(i) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+x"(a##i) : "x"(x));

__attribute__((target("avx512f"))) static double peak16(void) {
  __m512 x = _mm512_set1_ps(1e-3f);
  EACH(INIT16)
  for (int i = 0; i < PEAK_ROUNDS; i++) { EACH(STEP16) }
  return 12.0 * 16 * 2 * PEAK_ROUNDS;
}

#define STEPNARROW(i) __asm__ volatile("vdpbf16ps %1, %1, %0" : "+v"(a##i) : "v"(x));

__attribute__((target("avx512f"))) static double peak_narrow(void) {
  __m512 x = _mm512_set1_ps(1e-3f);
  EACH(INIT16)
  for (int i = 0; i < PEAK_ROUNDS; i++) { EACH(STEPNARROW) }
  return 12.0 * 16 * 4 * PEAK_ROUNDS;
}

__attribute__((target("avx2,fma"))) static double peak8(void) {
  __m256 x = _mm256_set1_ps(1e-3f);
  EACH(INIT8)
  for (int i = 0; i < PEAK_ROUNDS; i++) { EACH(STEP8) }
  return 12.0 * 8 * 2 * PEAK_ROUNDS;
}

static double peak_wide(void) { return __builtin_cpu_supports("avx512f") ? peak16() : peak8(); }

static double processor_time(void);

/* Whether pairs of bf16 are multiplied faster than f32 here: some machines do it at half the rate.
 */
static bool pairs_pay(void) {
  if (!__builtin_cpu_supports("avx512bf16")) return false;
  double a = processor_time(), narrow = peak_narrow(), b = processor_time(), wide = peak_wide();
  return narrow / (b - a) > wide / (processor_time() - b);
}

static double peak_loop(bool pairs) { return pairs ? peak_narrow() : peak_wide(); }

/* ---- threads ---- */

static double processor_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work(Team *t, int number) {
  double start = processor_time();
  if (!t->job.run) t->work[number] = peak_loop(t->pairs);
  else
    for (int k = 0; k < THREADS; k++) { /* as the pool does: its own share, then the other's */
      int share = (number + k) % THREADS;
      int64_t end = (share + 1) * t->job.chunks / THREADS;
      for (int64_t i; (i = atomic_fetch_add(&t->next[share], 1)) < end;)
        t->job.run(t->job.buffers, i, t->scratch[number]);
    }
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

static double run_job(Team *t, Job job) { /* seconds per thread */
  t->job = job;
  for (int i = 0; i < THREADS; i++) atomic_store(&t->next[i], i * job.chunks / THREADS);
  atomic_store(&t->done, 0);
  atomic_fetch_add(&t->turn, 1);
  work(t, 0);
  while (atomic_load(&t->done) < THREADS - 1) _mm_pause();
  double sum = 0;
  for (int i = 0; i < THREADS; i++) sum += t->seconds[i];
  return sum / THREADS;
}

static double peak(Team *t) {
  double seconds = run_job(t, (Job){0});
  return THREADS * t->work[0] / seconds;
}

/* ---- kernels ---- */

typedef struct Shape {
  const char *name;
  int64_t in, out;
  bool tied; /* W is stored [Out, In] */
} Shape;

typedef enum Kind { FORWARD, INPUT, WEIGHT, KINDS } Kind;

static const char *const kind_name[] = {"forward", "input", "weight"};

/* buffers: X, W, Y in this order; a kernel reads two and writes the third */
static const int reads[KINDS][2] = {{0, 1}, {2, 1}, {0, 2}}, writes[KINDS] = {2, 0, 1};

static Fn *make_kernel(Module *m, const Shape *s, Kind kind, int64_t tokens, Elem e) {
  Axis t = {intern(m->ctx->names, "Token"), tokens}, in = {intern(m->ctx->names, "In"), s->in},
       out = {intern(m->ctx->names, "Out"), s->out};
  Type type[] = {type_of(e, 2, (Axis[]){t, in}),
                 type_of(ELEM_f32, 2, s->tied ? (Axis[]){out, in} : (Axis[]){in, out}),
                 type_of(e, 2, (Axis[]){t, out})};
  Str sum = kind == FORWARD ? in.dim : kind == INPUT ? out.dim : t.dim;
  Fn *k = fn_new(m, FN_KERNEL, intern_printf(m->ctx->names, "%s.%s", s->name, kind_name[kind]));
  ValueId a = fn_arg(m, k, type[reads[kind][0]]), b = fn_arg(m, k, type[reads[kind][1]]);
  b = ir_cast(m, k, b, e, (Loc){0});
  ValueId d = ir_dot(m, k, a, b, 1, &sum, (Loc){0});
  k->values.at[d].type = type_with_elem(type[writes[kind]], e);
  fn_result(m, k, d);
  attr_set_str(m, &k->attrs, ATTR_family, intern(m->ctx->names, "contract"));
  module_add(m, k);
  return k;
}

static Chunk *build(Module *m, Fn *k, const char *folder) {
  target_describe(m, target_find("native"), THREADS);
  tune_contract(m, k);
  if (!kernels_build(m, folder, 1)) exit(1);
  const char *symbol = kernel_symbol(m, k),
             *so = arena_printf(m->arena, "%s/%s.so", folder, symbol);
  if (system(arena_printf(m->arena, "cc -shared -o %s %s/%s.o -lm", so, folder, symbol))) exit(1);
  void *library = dlopen(so, RTLD_NOW | RTLD_LOCAL);
  Chunk *run = NULL;
  if (library) *(void **)&run = dlsym(library, arena_printf(m->arena, "%s_p0", symbol));
  if (!run) exit(1);
  return run;
}

static char *memory(int64_t bytes, Elem e) {
  int64_t huge = 2 << 20, all = (bytes + huge - 1) / huge * huge;
  char *p = aligned_alloc((size_t)huge, (size_t)all);
  if (!p) exit(1);
  madvise(p, (size_t)all, MADV_HUGEPAGE);
  for (int64_t i = 0; i < all / elem_bytes(e); i++) {
    float f = (float)(i * 7919 % 1009 - 504) * 1e-3f;
    uint16_t half = bf16_from_f32(f);
    memcpy(p + i * elem_bytes(e), e == ELEM_f32 ? (void *)&f : (void *)&half,
           (size_t)elem_bytes(e));
  }
  return p;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *x) {
  qsort(x, REPEATS, sizeof *x, ascending);
  return x[REPEATS / 2];
}

static void report(const Shape *s, Kind kind, const Fn *k, double share, double seconds,
                   double work_done) {
  const Attr *tile = attr_get(&k->attrs, ATTR_tile);
  printf("%-10s %-8s %5.1f %% of peak  %8.3f ms  %6.1f GFLOP/s  %s [", s->name, kind_name[kind],
         100 * share, 1e3 * seconds, 1e-9 * work_done / seconds,
         attr_str(&k->attrs, ATTR_variant, ""));
  for (int64_t i = 0; i < tile->i; i++) printf("%s%lld", i ? ", " : "", (long long)tile->list[i]);
  printf("]\n");
  fflush(stdout);
}

static void measure(Team *team, const Shape *s, Kind kind, int64_t tokens, const char *folder) {
  Ctx *c = ctx_new();
  Module *m = module_new(c);
  Elem e = team->narrow ? ELEM_bf16 : ELEM_f32;
  Fn *k = make_kernel(m, s, kind, tokens, e);
  Chunk *run = build(m, k, folder);
  int64_t weight = s->in * s->out * 4, copies = COLD_BYTES / weight + 1;
  char *x = memory(tokens * s->in * elem_bytes(e), e),
       *y = memory(tokens * s->out * elem_bytes(e), e), *w = memory(weight * copies, ELEM_f32);
  for (int i = 0; i < THREADS; i++)
    team->scratch[i] = memory(attr_int(&k->attrs, ATTR_scratch, 0), ELEM_f32);
  double share[REPEATS], seconds[REPEATS],
      flop = 2.0 * (double)tokens * (double)s->in * (double)s->out;
  for (int i = -1; i < REPEATS; i++) { /* the first one warms up */
    char *all[] = {x, w + (i + 1) % copies * weight, y};
    void *buffers[] = {all[reads[kind][0]], all[reads[kind][1]], all[writes[kind]]};
    double before = peak(team),
           t = run_job(team, (Job){run, buffers, attr_get(&k->attrs, ATTR_chunks)->list[0]});
    double after = peak(team), most = 2 / (1 / before + 1 / after);
    if (i >= 0) seconds[i] = t, share[i] = flop / t / most;
  }
  report(s, kind, k, median(share), median(seconds), flop);
  for (int i = 0; i < THREADS; i++) free(team->scratch[i]);
  free(x), free(y), free(w);
  ctx_free(c);
}

int main(int argc, char **argv) {
  static const Shape shapes[] = {{"768x768", 768, 768, false},
                                 {"768x2304", 768, 2304, false},
                                 {"768x3072", 768, 3072, false},
                                 {"3072x768", 3072, 768, false},
                                 {"768x50257", 768, 50257, true}};
  static Team team;
  static Member members[THREADS];
  int64_t tokens = argc > 1 ? atol(argv[1]) : 256;
  team.narrow = argc > 2 && !strcmp(argv[2], "bf16"), team.pairs = team.narrow && pairs_pay();
  char folder[] = "/tmp/shardc-bench-XXXXXX";
  if (!mkdtemp(folder)) return 1;
  for (int i = 1; i < THREADS; i++) {
    pthread_t thread;
    members[i] = (Member){&team, i};
    if (pthread_create(&thread, NULL, member, &members[i])) return 1;
  }
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (Kind k = 0; k < KINDS; k++)
      if (argc < 4 || !strcmp(argv[3], shapes[i].name))
        measure(&team, &shapes[i], k, tokens, folder);
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) != 0;
}
