/* Speed of family contract on the products of GPT-2's layers and head, as a share of this machine's
   peak.

     bench_gemm [tokens [f32|bf16 [shape [forward|input|weight ["cut" ..]]]]]

   A cut is the numbers of attribute tile (ir/product.h), as `shardc tune` prints them; without one
   the rule's is taken, with several each is measured, in turn.

   With bf16, activations and gradients are bf16, weights f32 that the kernel rounds while it packs
   them, as in a model with `precision bf16`.

   Per shape: forward (W stored [In, Out]; the head's tied embedding [Vocab, Embed]), gradient of
   the input, gradient of the weights. Kernels are tuned and compiled as for a model. Two threads
   take chunks in order; weights change from call to call, so they come from memory. Peak: a loop of
   fused multiply-adds on registers (bf16: of what the target multiplies it with), on the same
   threads, before and after each call. Times are processor time of the threads, so that other
   processes on the machine count little. Medians of 7, of 21 where one call is short.
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

enum { THREADS = 2, REPEATS = 7, PEAK_ROUNDS = 1200000, COLD_BYTES = 300000000 };

typedef struct Job { /* what the threads do: chunks of a kernel, or the peak loop if run is NULL */
  Chunk *run;
  void *const *buffers;
  int64_t chunks;
} Job;

typedef enum Peak { PEAK_WIDE, PEAK_PAIRS, PEAK_MATRIX } Peak; /* f32; bf16, as the target does */

typedef struct Team {
  atomic_int turn, done;
  atomic_long next[THREADS];
  Job job;
  Peak peak;
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

/* Four products of matrix registers with zeros, in turn. */
static double peak_matrix(void) {
#if defined(__x86_64__)
  static const unsigned char shapes[64] __attribute__((aligned(64))) = {
      [0] = 1,   [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64,
      [26] = 64, [28] = 64, [30] = 64, [48] = 16, [49] = 16, [50] = 16,
      [51] = 16, [52] = 16, [53] = 16, [54] = 16, [55] = 16};
  __asm__ volatile("ldtilecfg %0" ::"m"(shapes));
  for (int i = 0; i < PEAK_ROUNDS; i++)
    __asm__ volatile("tdpbf16ps %tmm6, %tmm4, %tmm0\n tdpbf16ps %tmm7, %tmm4, %tmm1\n"
                     "tdpbf16ps %tmm6, %tmm5, %tmm2\n tdpbf16ps %tmm7, %tmm5, %tmm3");
  __asm__ volatile("tilerelease");
#endif
  return 4.0 * 16 * 16 * 32 * 2 * PEAK_ROUNDS;
}

static double peak_loop(Peak p) {
  return p == PEAK_MATRIX ? peak_matrix() : p == PEAK_PAIRS ? peak_narrow() : peak_wide();
}

/* ---- threads ---- */

static double processor_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work(Team *t, int number) {
  double start = processor_time();
  if (!t->job.run) t->work[number] = peak_loop(t->peak);
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

static Fn *make_kernel(Module *m, const Shape *s, Kind kind, int64_t tokens, Elem e, int number) {
  Axis t = {intern(m->ctx->names, "Token"), tokens}, in = {intern(m->ctx->names, "In"), s->in},
       out = {intern(m->ctx->names, "Out"), s->out};
  Type type[] = {type_of(e, 2, (Axis[]){t, in}),
                 type_of(ELEM_f32, 2, s->tied ? (Axis[]){out, in} : (Axis[]){in, out}),
                 type_of(e, 2, (Axis[]){t, out})};
  Str sum = kind == FORWARD ? in.dim : kind == INPUT ? out.dim : t.dim;
  Fn *k = fn_new(m, FN_KERNEL,
                 intern_printf(m->ctx->names, "%s.%s.%d", s->name, kind_name[kind], number));
  ValueId a = fn_arg(m, k, type[reads[kind][0]]), b = fn_arg(m, k, type[reads[kind][1]]);
  b = ir_cast(m, k, b, e, (Loc){0});
  ValueId d = ir_dot(m, k, a, b, 1, &sum, (Loc){0});
  k->values.at[d].type = type_with_elem(type[writes[kind]], e);
  fn_result(m, k, d);
  attr_set_str(m, &k->attrs, ATTR_family, intern(m->ctx->names, "contract"));
  module_add(m, k);
  return k;
}

typedef struct Candidate { /* one cut of a kernel */
  Fn *k;
  int phases;
  Chunk *run[2];
  int64_t chunks[2];
  double *share, *seconds;
} Candidate;

static void cut_as(Module *m, Candidate *v, const char *cut) {
  const Variants *row = variants_find("contract", false);
  Cut c = contract_rule(m, v->k);
  if (cut && (!variants_read(row, cut, &c) || !contract_fits(m, v->k, &c))) {
    fprintf(stderr, "`%s` is no cut of this kernel\n", cut);
    exit(1);
  }
  contract_apply(m, v->k, &c);
  const Attr *chunks = attr_get(&v->k->attrs, ATTR_chunks);
  v->phases = (int)chunks->i;
  memcpy(v->chunks, chunks->list, sizeof *chunks->list * (size_t)chunks->i);
}

static void build(Module *m, Candidate *v, int n, const char *folder) {
  const char *so = arena_printf(m->arena, "%s/%s.so", folder, kernel_symbol(m, v->k));
  if (!kernels_build(m, folder, THREADS) || !kernels_link(m, folder, strrchr(so, '/') + 1)) exit(1);
  void *library = dlopen(so, RTLD_NOW | RTLD_LOCAL);
  for (int i = 0; i < n; i++)
    for (int p = 0; p < v[i].phases; p++) {
      const char *symbol = arena_printf(m->arena, "%s_p%d", kernel_symbol(m, v[i].k), p);
      if (library) *(void **)&v[i].run[p] = dlsym(library, symbol);
      if (!v[i].run[p]) exit(1);
    }
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

static double median(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, ascending);
  return x[n / 2];
}

typedef struct Task { /* one product of one layer, with the cuts to be compared */
  const Shape *shape;
  Kind kind;
  int64_t tokens, weight, copies; /* weight: bytes of one */
  Elem e;
  double flop;
  char *x, *y, *w, *work;
  int count, rounds;
  Candidate *candidate;
} Task;

static void report(Task *t, Candidate *v) {
  const Attr *tile = attr_get(&v->k->attrs, ATTR_tile);
  double share = median(v->share, t->rounds), seconds = median(v->seconds, t->rounds);
  printf("%-10s %-8s %5.1f %% of peak  %8.3f ms  %6.1f GFLOP/s  %s [", t->shape->name,
         kind_name[t->kind], 100 * share, 1e3 * seconds, 1e-9 * t->flop / seconds,
         attr_str(&v->k->attrs, ATTR_variant, ""));
  for (int64_t i = 0; i < tile->i; i++) printf("%s%lld", i ? " " : "", (long long)tile->list[i]);
  printf("]\n");
  fflush(stdout);
}

static void time_once(Team *team, const Task *t, Candidate *v, int round, int copy) {
  char *all[] = {t->x, t->w + copy % t->copies * t->weight, t->y};
  void *buffers[] = {all[reads[t->kind][0]], all[reads[t->kind][1]], all[writes[t->kind]], t->work};
  double before = peak(team), seconds = 0;
  for (int p = 0; p < v->phases; p++)
    seconds += run_job(team, (Job){v->run[p], buffers, v->chunks[p]});
  double after = peak(team), most = 2 / (1 / before + 1 / after);
  if (round >= 0) v->seconds[round] = seconds, v->share[round] = t->flop / seconds / most;
}

static void time_all(Team *team, Task *t) {
  int64_t scratch = 64, work = 64;
  for (int i = 0; i < t->count; i++) {
    const AttrList *a = &t->candidate[i].k->attrs;
    int64_t own = attr_int(a, ATTR_scratch, 0), shared = attr_int(a, ATTR_workspace, 0);
    scratch = own > scratch ? own : scratch, work = shared > work ? shared : work;
  }
  t->work = memory(work, ELEM_f32);
  for (int i = 0; i < THREADS; i++) team->scratch[i] = memory(scratch, ELEM_f32);
  for (int round = -1, copy = 0; round < t->rounds; round++) /* the first one warms up */
    for (int i = 0; i < t->count; i++) time_once(team, t, &t->candidate[i], round, copy++);
  for (int i = 0; i < THREADS; i++) free(team->scratch[i]);
  free(t->work);
}

static void measure(Team *team, Task t, char *const *cuts, const char *folder) {
  Ctx *c = ctx_new();
  Module *m = module_new(c);
  t.weight = t.shape->in * t.shape->out * 4, t.copies = COLD_BYTES / t.weight + 1;
  t.flop = 2.0 * (double)t.tokens * (double)t.shape->in * (double)t.shape->out;
  t.rounds = t.flop > 4e9 ? REPEATS : 3 * REPEATS;
  t.candidate = calloc((size_t)t.count, sizeof *t.candidate);
  target_describe(m, target_find("native"), THREADS);
  for (int i = 0; i < t.count; i++) {
    Candidate *v = &t.candidate[i];
    v->k = make_kernel(m, t.shape, t.kind, t.tokens, t.e, i);
    v->share = calloc((size_t)t.rounds, sizeof(double));
    v->seconds = calloc((size_t)t.rounds, sizeof(double));
    cut_as(m, v, cuts ? cuts[i] : NULL);
  }
  build(m, t.candidate, t.count, folder);
  t.x = memory(t.tokens * t.shape->in * elem_bytes(t.e), t.e);
  t.y = memory(t.tokens * t.shape->out * elem_bytes(t.e), t.e);
  t.w = memory(t.weight * t.copies, ELEM_f32);
  time_all(team, &t);
  for (int i = 0; i < t.count; i++) report(&t, &t.candidate[i]);
  for (int i = 0; i < t.count; i++) free(t.candidate[i].share), free(t.candidate[i].seconds);
  free(t.candidate), free(t.x), free(t.y), free(t.w);
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
  bool narrow = argc > 2 && !strcmp(argv[2], "bf16");
  const Target *here = target_find("native");
  if (narrow) team.peak = here->matrix ? PEAK_MATRIX : here->pairs ? PEAK_PAIRS : PEAK_WIDE;
  Task t = {.tokens = argc > 1 ? atol(argv[1]) : 256, .e = narrow ? ELEM_bf16 : ELEM_f32};
  t.count = argc > 5 ? argc - 5 : 1;
  char folder[] = "/tmp/shardc-bench-XXXXXX";
  if (!mkdtemp(folder)) return 1;
  for (int i = 1; i < THREADS; i++) {
    pthread_t thread;
    members[i] = (Member){&team, i};
    if (pthread_create(&thread, NULL, member, &members[i])) return 1;
  }
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (t.kind = 0; t.kind < KINDS; t.kind++) {
      t.shape = &shapes[i];
      if (argc > 3 && strcmp(argv[3], "all") && strcmp(argv[3], t.shape->name)) continue;
      if (argc > 4 && strcmp(argv[4], kind_name[t.kind])) continue;
      measure(&team, t, argc > 5 ? argv + 5 : NULL, folder);
    }
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) != 0;
}
