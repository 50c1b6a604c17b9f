/* Speed of single kernels: of each kernel function in a file of textual IR (at stage `order` or
   before), as a share of what this machine's multiply-adds and its memory allow.

     bench_kernels [--apart] FILE [kernel ["cut" ..]]

   Kernels are tuned and compiled as for a model; a cut, for families that have variants, is the
   numbers of attribute tile, and several are measured in turn. Two threads take chunks as the pool
   does. Operands change from call to call, so they come from memory if the sets exceed the caches;
   a result lies in the buffer of an operand where pass `order` may put it there (--apart: never,
   as where a later kernel still reads the operand).

   Beside each call the same threads run a loop of multiply-adds and a triad a = b + s c past the
   caches (12 bytes per element). Bytes of a kernel: operands and results once. Times are processor
   time, so that other processes count little; medians, quartiles of the shares in brackets.
   Must not: report a figure that it did not measure in this run. */
#include "codegen/codegen.h"
#include "ir/count.h"
#include "ir/inplace.h"
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

enum { THREADS = 2, ROUNDS = 15, PEAK_STEPS = 400000, TRIAD = 4 << 20, MOST = 64, CUTS = 32 };
static const int64_t COLD = 400000000;

typedef enum Work { WORK_KERNEL, WORK_PEAK, WORK_TRIAD } Work;

typedef struct Team {
  atomic_int turn, done;
  atomic_long next[THREADS];
  Work work;
  Chunk *run;
  void **buffers;
  int64_t chunks;
  float *triad[3];
  void *scratch[THREADS];
  double seconds[THREADS];
} Team;

typedef struct Member {
  Team *team;
  int number;
} Member;

/* ---- what the threads do ---- */

static double processor_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define ZERO(i) __m512 a##i = _mm512_setzero_ps();
#define STEP(i) __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(a##i) : "v"(x));

__attribute__((target("avx512f"))) static void multiply(void) {
  __m512 x = _mm512_set1_ps(1e-3f);
  EACH(ZERO)
  for (int i = 0; i < PEAK_STEPS; i++) { EACH(STEP) }
}

__attribute__((target("avx512f"))) static void triad(Team *t, int number) {
  int64_t each = TRIAD / THREADS, from = number * each;
  __m512 s = _mm512_set1_ps(3);
  for (int64_t i = from; i < from + each; i += 16)
    _mm512_stream_ps(t->triad[0] + i, _mm512_fmadd_ps(s, _mm512_load_ps(t->triad[2] + i),
                                                      _mm512_load_ps(t->triad[1] + i)));
  _mm_sfence();
}

static void take_chunks(Team *t,
                        int number) { /* as the pool does: its own share, then the other's */
  for (int k = 0; k < THREADS; k++) {
    int share = (number + k) % THREADS;
    int64_t end = (share + 1) * t->chunks / THREADS;
    for (int64_t i; (i = atomic_fetch_add(&t->next[share], 1)) < end;)
      t->run(t->buffers, i, t->scratch[number]);
  }
}

static void work(Team *t, int number) {
  double start = processor_time();
  if (t->work == WORK_PEAK) multiply();
  else if (t->work == WORK_TRIAD) triad(t, number);
  else take_chunks(t, number);
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

static double together(Team *t, Work what) { /* seconds per thread */
  t->work = what;
  for (int i = 0; i < THREADS; i++) atomic_store(&t->next[i], i * t->chunks / THREADS);
  atomic_store(&t->done, 0);
  atomic_fetch_add(&t->turn, 1);
  work(t, 0);
  while (atomic_load(&t->done) < THREADS - 1) _mm_pause();
  double sum = 0;
  for (int i = 0; i < THREADS; i++) sum += t->seconds[i];
  return sum / THREADS;
}

static double peak(Team *t) {
  return THREADS * 12.0 * 16 * 2 * PEAK_STEPS / together(t, WORK_PEAK);
}

static double bandwidth(Team *t) { return 12.0 * TRIAD / together(t, WORK_TRIAD); }

/* ---- buffers ---- */

static char *memory(int64_t bytes, Elem e) {
  int64_t huge = 2 << 20, all = (bytes + huge - 1) / huge * huge;
  char *p = aligned_alloc((size_t)huge, (size_t)all);
  if (!p) exit(1);
  madvise(p, (size_t)all, MADV_HUGEPAGE);
  memset(p, 0, (size_t)all);
  for (int64_t i = 0; i < all / 4 && elem_class(e) == CLASS_FLOAT; i++) {
    float f = (float)(i * 7919 % 1009 - 504) * 1e-3f;
    uint32_t half = bf16_from_f32(f), pair = half << 16 | half;
    memcpy(p + 4 * i, e == ELEM_f32 ? (void *)&f : (void *)&pair, 4);
  }
  return p;
}

static int64_t value_bytes(const Fn *k, ValueId v) {
  const Value *x = &k->values.at[v];
  int64_t last = 0, count = 1;
  for (int i = 0; i < x->type.rank; i++) {
    count *= x->type.axis[i].size;
    if (x->storage.ordered) last += (x->type.axis[i].size - 1) * x->storage.stride[i];
  }
  return (x->storage.ordered ? last + 1 : count) * elem_bytes(x->type.elem);
}

static bool same_size(const Fn *k, ValueId a, ValueId b) {
  return value_bytes(k, a) == value_bytes(k, b);
}

/* The argument in whose buffer result i lies; -1: none. */
static int shared_with(Arena *a, const Fn *k, uint32_t i, const bool *taken) {
  for (uint32_t j = 0; j < k->args.n; j++)
    if (!taken[j] && value_bytes(k, k->args.at[j]) > 1 << 16 &&
        same_size(k, k->args.at[j], k->results.at[i]) && kernel_in_place(a, k, j, i))
      return (int)j;
  return -1;
}

typedef struct Set { /* one set of buffers: operands, results */
  void *buffer[MOST];
} Set;

static void fill(Arena *a, const Fn *k, Set *s, int sets, bool apart) {
  bool taken[MOST] = {false};
  uint32_t n = k->args.n;
  for (uint32_t i = 0; i < n + k->results.n; i++) {
    ValueId v = i < n ? k->args.at[i] : k->results.at[i - n];
    int in = i < n || apart ? -1 : shared_with(a, k, i - n, taken);
    if (in >= 0) taken[in] = true;
    for (int j = 0; j < sets; j++)
      s[j].buffer[i] =
          in >= 0 ? s[j].buffer[in] : memory(value_bytes(k, v), value_type(k, v)->elem);
  }
}

static double moved(const Fn *k) {
  double bytes = 0;
  for (uint32_t i = 0; i < k->args.n; i++) bytes += (double)value_bytes(k, k->args.at[i]);
  for (uint32_t i = 0; i < k->results.n; i++) bytes += (double)value_bytes(k, k->results.at[i]);
  return bytes;
}

/* ---- kernels ---- */

typedef struct Candidate { /* one cut of a kernel */
  Fn *k;
  int phases;
  Chunk *run[2];
  int64_t chunks[2];
  double flop[ROUNDS], bytes[ROUNDS], seconds[ROUNDS]; /* shares, time */
} Candidate;

static void find_code(Module *m, Candidate *c, void *library) {
  const Attr *chunks = attr_get(&c->k->attrs, ATTR_chunks);
  c->phases = (int)chunks->i;
  memcpy(c->chunks, chunks->list, sizeof *chunks->list * (size_t)chunks->i);
  for (int p = 0; p < c->phases; p++) {
    const char *symbol = arena_printf(m->arena, "%s_p%d", kernel_symbol(m, c->k), p);
    *(void **)&c->run[p] = dlsym(library, symbol);
    if (!c->run[p]) exit(1);
  }
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void report(Candidate *c) {
  qsort(c->flop, ROUNDS, sizeof *c->flop, ascending);
  qsort(c->bytes, ROUNDS, sizeof *c->bytes, ascending);
  qsort(c->seconds, ROUNDS, sizeof *c->seconds, ascending);
  int m = ROUNDS / 2, low = ROUNDS / 4, high = ROUNDS - 1 - low;
  printf("%-22s %9.3f ms  %5.1f %% of peak [%.1f %.1f]  %5.1f %% of triad [%.1f %.1f]  [",
         c->k->name, 1e3 * c->seconds[m], 100 * c->flop[m], 100 * c->flop[low], 100 * c->flop[high],
         100 * c->bytes[m], 100 * c->bytes[low], 100 * c->bytes[high]);
  const Attr *tile = attr_get(&c->k->attrs, ATTR_tile);
  for (int64_t i = 0; tile && i < tile->i; i++)
    printf("%s%lld", i ? " " : "", (long long)tile->list[i]);
  printf("]\n");
  fflush(stdout);
}

static void time_once(Team *t, Candidate *c, int round, double flop, double bytes) {
  double p = peak(t), b = bandwidth(t), seconds = 0;
  for (int i = 0; i < c->phases; i++) {
    t->run = c->run[i], t->chunks = c->chunks[i];
    seconds += together(t, WORK_KERNEL);
  }
  p = 2 / (1 / p + 1 / peak(t)), b = 2 / (1 / b + 1 / bandwidth(t));
  if (round < 0) return;
  c->seconds[round] = seconds;
  c->flop[round] = flop / seconds / p, c->bytes[round] = bytes / seconds / b;
}

static void measure(Team *t, Module *m, Candidate *c, int n, bool apart) {
  const Fn *k = c->k;
  double flop = ir_count(m, k).flop, bytes = moved(k);
  int sets = (int)((double)COLD / bytes) + 1;
  sets = sets > 8 ? 8 : sets;
  Set *set = calloc((size_t)sets, sizeof *set);
  fill(m->arena, k, set, sets, apart);
  int64_t scratch = 64, workspace = 64;
  for (int i = 0; i < n; i++) {
    int64_t own = attr_int(&c[i].k->attrs, ATTR_scratch, 0);
    int64_t shared = attr_int(&c[i].k->attrs, ATTR_workspace, 0);
    scratch = own > scratch ? own : scratch, workspace = shared > workspace ? shared : workspace;
  }
  void *all = memory(workspace, ELEM_f32);
  for (int i = 0; i < THREADS; i++) t->scratch[i] = memory(scratch, ELEM_f32);
  for (int round = -1, call = 0; round < ROUNDS; round++)
    for (int i = 0; i < n; i++, call++) {
      t->buffers = set[call % sets].buffer;
      t->buffers[k->args.n + k->results.n] = all;
      time_once(t, &c[i], round, flop, bytes);
    }
  for (int i = 0; i < n; i++) report(&c[i]);
}

static void tune(Module *m, Fn *k) {
  Str family = attr_str(&k->attrs, ATTR_family, "");
#define FAMILY(name, anchor, neighbours, what)                                                     \
  if (!strcmp(family, #name)) tune_##name(m, k);
#include "ir/families.def"
#undef FAMILY
}

/* Copies of a kernel, one for each cut that is asked for. */
static int copies(Module *m, Fn *k, char **cuts, int n, Candidate *c) {
  const Variants *v = variants_find(attr_str(&k->attrs, ATTR_family, ""), false);
  for (int i = 0; i < n; i++) {
    Fn *copy = ARENA_NEW(m->arena, Fn);
    Cut cut;
    *copy = *k, copy->name = intern_printf(m->ctx->names, "%s.%d", k->name, i);
    copy->attrs = (AttrList){0};
    attr_set_str(m, &copy->attrs, ATTR_family, attr_str(&k->attrs, ATTR_family, ""));
    if (!v || !variants_read(v, cuts[i], &cut) || !v->fits(m, k, &cut)) {
      fprintf(stderr, "`%s` is no cut of this kernel\n", cuts[i]);
      exit(1);
    }
    v->apply(m, copy, &cut);
    module_add(m, copy);
    c[i].k = copy;
  }
  return n;
}

static void *build(Module *m, const char *folder) {
  void *library = NULL;
  if (kernels_build(m, folder, THREADS) && kernels_link(m, folder, "kernels.so"))
    library = dlopen(arena_printf(m->arena, "%s/kernels.so", folder), RTLD_NOW | RTLD_LOCAL);
  if (!library) diag_print(m->ctx->diag, stderr, DIAG_HUMAN, false), exit(1);
  return library;
}

static void start(Team *t, Member *members) {
  for (int i = 0; i < 3; i++) t->triad[i] = (float *)memory(4 * TRIAD, ELEM_f32);
  for (int i = 1; i < THREADS; i++) {
    pthread_t thread;
    members[i] = (Member){t, i};
    if (pthread_create(&thread, NULL, member, &members[i])) exit(1);
  }
}

int main(int argc, char **argv) {
  static Team team;
  static Member members[THREADS];
  static Candidate list[MOST][CUTS];
  char folder[] = "/tmp/shardc-bench-XXXXXX";
  bool apart = argc > 1 && !strcmp(argv[1], "--apart");
  argc -= apart, argv += apart;
  if (argc < 2 || argc > 3 + CUTS || !mkdtemp(folder)) return 2;
  Ctx *ctx = ctx_new();
  Module *m = ir_read(ctx, argv[1]);
  if (!m) return diag_print(ctx->diag, stderr, DIAG_HUMAN, false), 1;
  target_describe(m, target_find("native"), THREADS);
  int n = 0, count[MOST] = {0};
  for (uint32_t i = 0, all = m->fns.n; i < all && n < MOST; i++) {
    Fn *k = m->fns.at[i];
    if (k->kind != FN_KERNEL) continue;
    tune(m, k);
    if (argc > 2 && strcmp(k->name, argv[2])) continue;
    list[n][0].k = k, count[n] = 1;
    if (argc > 3) count[n] = copies(m, k, argv + 3, argc - 3, list[n]);
    n++;
  }
  void *library = build(m, folder);
  start(&team, members);
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < count[i]; j++) find_code(m, &list[i][j], library);
    measure(&team, m, list[i], count[i], apart);
  }
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) != 0;
}
