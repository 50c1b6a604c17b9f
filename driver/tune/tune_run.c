/* Measuring variants of one kernel: they become objects, one shared library, and run in a child
   process on the runtime's own pool, so that a kernel that crashes costs one record and no more.

   Every round runs each variant once, in turn, with cold caches, because operands also come from
   memory in a step. The figure of a variant is the median over the rounds of its time relative to
   the first variant's in the same round: a noisy neighbour or a changed clock rate affects all
   variants of a round alike. The requested number of rounds is measured, and more while there is
   time. First, the results of each variant are compared with those of the first one, which is the
   default rule's. */
#include "tune_measure.h"
#include "codegen/codegen.h"
#include "ir/bytes.h"
#include "ir/support/numbers.h"
#include "runtime/device/pool.h"
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PHASES = 4, FLUSH = 32 << 20, ALIGN = 64, MOST_ROUNDS = 1000 };

typedef struct Kernel {
  const Fn *f;
  int phases;
  rt_chunk *run[PHASES];
  int64_t chunks[PHASES];
} Kernel;

typedef struct Bench {
  Module *m;
  Arena *arena;
  Pool *pool;
  uint32_t nkernels, nin, nout;
  Kernel *kernel;
  void **buffer; /* operands, results, workspace */
  int64_t *bytes;
  char *flush;
} Bench;

/* ---- making them ---- */

static Module *variants_of(Module *m, const Tunable *tunable, const CutList *cuts) {
  Module *v = module_new(m->ctx);
  v->target = m->target, v->lists = m->lists;
  for (uint32_t i = 0; i < cuts->n; i++) {
    Fn *f = fn_new(v, FN_KERNEL, intern_printf(m->ctx->names, "variant_%u", i));
    Str name = f->name;
    *f = *tunable->k;
    f->name = name, memset(&f->attrs, 0, sizeof f->attrs);
    attr_set_str(v, &f->attrs, ATTR_family, attr_str(&tunable->k->attrs, ATTR_family, ""));
    tunable->v->apply(v, f, &cuts->at[i]);
    module_add(v, f);
  }
  return v;
}

/* ---- buffers ---- */

static int64_t span_bytes(const Value *v) {
  return v->storage.ordered ? value_span_bytes(v) : type_dense_bytes(&v->type);
}

static uint16_t to_half(Elem e, float x) {
  return e == ELEM_f16 ? f16_from_f32(x) : bf16_from_f32(x);
}

static float number_at(Elem e, const char *p) {
  float f = 0;
  uint16_t h = 0;
  memcpy(elem_is_half(e) ? (void *)&h : &f, p, (size_t)elem_bytes(e));
  if (elem_is_half(e)) f = e == ELEM_f16 ? f32_from_f16(h) : f32_from_bf16(h);
  return f;
}

/* Floats of about one tenth, ints and bools zero: no index is out of its dim. */
static void fill(void *at, int64_t bytes, Elem e) {
  memset(at, 0, (size_t)bytes);
  for (int64_t i = 0; i < bytes / elem_bytes(e); i++) {
    float x = (float)(i * 7919 % 1009 - 504) * 2e-4f;
    double d = x;
    if (e == ELEM_f32) ((float *)at)[i] = x;
    if (elem_is_half(e)) ((uint16_t *)at)[i] = to_half(e, x);
    if (e == ELEM_f64) memcpy((char *)at + 8 * i, &d, 8);
  }
}

static void *new_bytes(int64_t bytes) {
  void *p = aligned_alloc(ALIGN, (size_t)((bytes + ALIGN - 1) / ALIGN * ALIGN + ALIGN));
  if (!p) _exit(1);
  return p;
}

static void make_buffers(Bench *bench) {
  const Fn *f = bench->kernel[0].f;
  bench->nin = f->args.n, bench->nout = f->results.n;
  uint32_t n = bench->nin + bench->nout;
  bench->buffer = ARENA_ARRAY(bench->arena, void *, n + 1),
  bench->bytes = ARENA_ARRAY(bench->arena, int64_t, n);
  for (uint32_t i = 0; i < n; i++) {
    ValueId v = i < bench->nin ? f->args.at[i] : f->results.at[i - bench->nin];
    bench->bytes[i] = span_bytes(&f->values.at[v]), bench->buffer[i] = new_bytes(bench->bytes[i]);
    fill(bench->buffer[i], bench->bytes[i], f->values.at[v].type.elem);
  }
  int64_t work = 0;
  for (uint32_t i = 0; i < bench->nkernels; i++) {
    int64_t own = attr_int(&bench->kernel[i].f->attrs, ATTR_workspace, 0);
    work = own > work ? own : work;
  }
  bench->buffer[n] = new_bytes(work);
  bench->flush = new_bytes(FLUSH);
}

/* ---- running ---- */

static bool find_chunks(Bench *bench, Kernel *kernel, void *library) {
  const Attr *chunks = attr_get(&kernel->f->attrs, ATTR_chunks);
  kernel->phases = (int)chunks->i;
  for (int p = 0; p < kernel->phases && p < PHASES; p++) {
    char *symbol = arena_printf(bench->arena, "%s_p%d", kernel_symbol(bench->m, kernel->f), p);
    *(void **)&kernel->run[p] = dlsym(library, symbol);
    kernel->chunks[p] = chunks->list[p];
    if (!kernel->run[p]) return false;
  }
  return kernel->phases <= PHASES;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double run(Bench *bench, const Kernel *kernel) {
  double start = now();
  for (int p = 0; p < kernel->phases; p++)
    rt_pool_run(bench->pool, kernel->run[p], bench->buffer, kernel->chunks[p]);
  return now() - start;
}

static void flush_chunk(void *const *buffers, int64_t chunk, void *scratch) {
  (void)scratch;
  char *p = (char *)buffers[0] + chunk * (FLUSH / 16);
  for (int i = 0; i < FLUSH / 16; i += ALIGN) p[i]++;
}

static bool near(const Bench *bench, const char *x, const char *y, int64_t bytes, Elem e) {
  float worst = 0, most = 0;
  int step = elem_bytes(e);
  if (e != ELEM_f32 && !elem_is_half(e)) return true;
  (void)bench;
  for (int64_t i = 0; i < bytes; i += step) {
    float u = number_at(e, x + i), v = number_at(e, y + i);
    worst = fmaxf(worst, fabsf(u - v)), most = fmaxf(most, fabsf(v));
    if (isnan(u) != isnan(v)) return false;
  }
  return worst <= (e == ELEM_f32 ? 1e-4f : 2e-2f) * (most + 1e-6f);
}

/* Results of each variant against those of the first. */
static void compare(Bench *bench, Timing *out) {
  char **want = ARENA_ARRAY(bench->arena, char *, bench->nout + 1);
  for (uint32_t i = 0; i < bench->nkernels; i++) {
    for (uint32_t r = 0; r < bench->nout; r++)
      memset(bench->buffer[bench->nin + r], 0, (size_t)bench->bytes[bench->nin + r]);
    run(bench, &bench->kernel[i]);
    out[i].good = true;
    for (uint32_t r = 0; r < bench->nout; r++) {
      int64_t bytes = bench->bytes[bench->nin + r];
      Elem e = value_type(bench->kernel[0].f, bench->kernel[0].f->results.at[r])->elem;
      if (i) out[i].good &= near(bench, bench->buffer[bench->nin + r], want[r], bytes, e);
      else
        want[r] = new_bytes(bytes), memcpy(want[r], bench->buffer[bench->nin + r], (size_t)bytes);
    }
  }
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Every variant once; t: by variant. */
static void time_round(Bench *bench, int round, const Timing *out, double *t) {
  void *const flush[] = {bench->flush};
  for (uint32_t i = 0; i < bench->nkernels; i++) {
    uint32_t which =
        round & 1 ? bench->nkernels - 1 - i : i; /* alternating directions: no position is
                                                    favoured */
    if (!out[which].good) continue;
    rt_pool_run(bench->pool, flush_chunk, flush, 16);
    t[which] = run(bench, &bench->kernel[which]);
  }
}

/* t: round by round */
static void summarize(Bench *bench, const double *t, int rounds, Timing *out) {
  double *ns = ARENA_ARRAY(bench->arena, double, rounds),
         *share = ARENA_ARRAY(bench->arena, double, rounds);
  for (uint32_t i = 0; i < bench->nkernels; i++) {
    for (int r = 0; r < rounds; r++) {
      const double *round = t + (int64_t)r * bench->nkernels;
      ns[r] = round[i], share[r] = round[i] / round[0];
    }
    qsort(ns, (size_t)rounds, sizeof *ns, ascending);
    qsort(share, (size_t)rounds, sizeof *share, ascending);
    out[i].ns = ns[rounds / 2], out[i].rounds = rounds;
    out[i].share = share[rounds / 2];
    out[i].low = share[rounds / 4], out[i].high = share[rounds - 1 - rounds / 4];
  }
}

static void time_all(Bench *bench, TuneEffort effort, Timing *out) {
  double *t = ARENA_ARRAY(bench->arena, double, (int64_t)MOST_ROUNDS * bench->nkernels);
  double end = now() + 1e9 * effort.seconds;
  int r = 0;
  while (r < MOST_ROUNDS && (r < effort.rounds || now() < end))
    time_round(bench, r, out, t + (int64_t)r * bench->nkernels), r++;
  summarize(bench, t, r, out);
}

/* ---- the child ---- */

static _Noreturn void child(Module *m, const char *library, TuneEffort effort, int pipe) {
  Bench bench = {.m = m, .arena = arena_new(), .nkernels = m->fns.n};
  Timing *out = ARENA_ARRAY(bench.arena, Timing, m->fns.n + 1);
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  int64_t scratch = ALIGN;
  Fault fault = {0};
  bench.kernel = ARENA_ARRAY(bench.arena, Kernel, m->fns.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    bench.kernel[i].f = m->fns.at[i];
    int64_t own = attr_int(&m->fns.at[i]->attrs, ATTR_scratch, 0);
    scratch = own > scratch ? own : scratch;
    if (!handle || !find_chunks(&bench, &bench.kernel[i], handle)) _exit(1);
  }
  bench.pool = rt_pool_start((int)m->target.workers, scratch, &fault);
  if (!bench.pool) _exit(1);
  make_buffers(&bench);
  compare(&bench, out);
  time_all(&bench, effort, out);
  ssize_t n = (ssize_t)(sizeof *out * m->fns.n);
  _exit(write(pipe, out, (size_t)n) == n ? 0 : 1);
}

static bool read_all(int file, void *at, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t got = read(file, (char *)at + done, n - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += (size_t)got;
  }
  return true;
}

static bool run_child(Module *m, const char *library, TuneEffort effort, Timing *out) {
  int ends[2], status = 1;
  if (pipe(ends)) return false;
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) child(m, library, effort, ends[1]);
  close(ends[1]);
  bool good = pid > 0 && read_all(ends[0], out, sizeof *out * m->fns.n);
  close(ends[0]);
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return good && WIFEXITED(status) && !WEXITSTATUS(status);
}

bool tune_measure(Module *m, const Tunable *tunable, const CutList *cuts, TuneEffort effort,
                  Timing *out) {
  Module *v = variants_of(m, tunable, cuts);
  char *folder = work_folder(m->ctx);
  if (!folder) return false;
  const char *library = arena_printf(m->arena, "%s/variants.so", folder);
  bool good =
      kernels_build(v, folder, (int)m->target.workers) && kernels_link(v, folder, "variants.so");
  bool ran = good && run_child(v, library, effort, out);
  remove_folder(m->arena, folder);
  if (good && !ran) {
    Report *r = diag_at(m->ctx->diag, "W1208", loc_span(m, tunable->k->loc),
                        "kernel `%s` could not be measured", tunable->k->name);
    diag_fact(r, "%s %s", tunable->v->family, tunable->key);
  }
  return ran;
}
