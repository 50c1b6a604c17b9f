/* Part `variants`: the hot kernels of GPT-2 124M at their real sizes, each with some cuts (pack.c):
   time, TFLOP/s, GB/s and their shares of this run's ceilings, and a tuning record for the best cut
   of each.

   Cuts of a kernel run in turn, for some rounds, after a write that empties the cache; the result
   is the median. Before, the results of each are compared with those of the first, the rule's, at
   their beginning and end, over other poison; a cut that is wrong or refused fails the part. The
   driver assembles PTX while nothing is measured, in a few concurrent processes: it keeps what it
   made in its own cache.

   Part `densities` is the same of attention over 8192 positions, dense and with layouts of four
   densities, in the rule's cut: operations are those of listed scores, so a comparison of TFLOP/s
   shows the cost of a list. */
#include "bundle.h"
#include "codegen/codegen.h"
#include "passes/tune/tune_db.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  ROUNDS = 9,
  MOST_CUTS = 40,
  MOST_BUFFERS = 64,
  EDGE = 4 << 20,
  CHUNK = 16 << 20,
  WORKERS = 6
};
enum { KERNEL_SECONDS = 40, AGAIN = 3 };

typedef enum Fate { GOOD, TOO_LARGE, REFUSED, WRONG } Fate; /* TOO_LARGE: for this GPU */

typedef struct Variant { /* one cut of one kernel */
  const Fn *k;
  char family[32], key[160], cut[200], name[160];
  double flop, bytes;
  CUmodule module;
  CUfunction phase[4];
  int phases;
  Fate fate;
  double time[ROUNDS], seconds;
} Variant;

typedef struct Sweep {
  Bundle *b;
  Gpu gpu;
  Ctx *ctx;
  Module *m;
  char *folder;
  TuneDb db;
  CUdeviceptr buffer[MOST_BUFFERS], flush;
  int64_t bytes[MOST_BUFFERS];
  int nin, nbuffers;
  char *edge; /* of the rule's results: beginning and end */
} Sweep;

/* ---- reading ---- */

static bool read_variant(const Module *m, const Fn *k, Variant *v) {
  char key[200];
  *v = (Variant){.k = k};
  snprintf(key, sizeof key, "bench.%s", k->name);
  return sscanf(module_setting(m, key, ""), "%31[^|]|%159[^|]|%199[^|]|%159[^|]|%lf|%lf", v->family,
                v->key, v->cut, v->name, &v->flop, &v->bytes) == 6;
}

/* The cuts of kernel `number`; functions are called kNUMBER.cutN. */
static int cuts_of(const Module *m, int number, Variant *v) {
  char head[32];
  int n = 0;
  snprintf(head, sizeof head, "k%d.cut", number);
  for (uint32_t i = 0; i < m->fns.n && n < MOST_CUTS; i++)
    if (!strncmp(m->fns.at[i]->name, head, strlen(head))) n += read_variant(m, m->fns.at[i], &v[n]);
  return n;
}

static Fate load(Sweep *s, Variant *v) {
  const Attr *shared = attr_get(&v->k->attrs, ATTR_shared);
  v->phases = (int)shared->i;
  for (int p = 0; p < v->phases; p++)
    if (shared->list[p] > s->gpu.device.shared_limit) return TOO_LARGE;
  char entry[300];
  bool ok = gpu_load_file(&s->gpu, s->folder, kernel_symbol(s->m, v->k), &v->module);
  for (int p = 0; ok && p < v->phases && p < 4; p++) {
    snprintf(entry, sizeof entry, "%s_p%d", kernel_symbol(s->m, v->k), p);
    ok = gpu_function(&s->gpu, v->module, entry, shared->list[p], &v->phase[p]);
  }
  if (!ok) fprintf(stderr, "%s, cut %s: %s\n", v->name, v->cut, s->gpu.why);
  return ok ? GOOD : REFUSED;
}

/* ---- buffers ---- */

static int64_t span(const Fn *k, ValueId v) {
  const Value *x = &k->values.at[v];
  int64_t last = 0;
  if (!x->storage.ordered) return type_dense_bytes(&x->type);
  for (int i = 0; i < x->type.rank; i++) last += (x->type.axis[i].size - 1) * x->storage.stride[i];
  return (last + 1) * elem_bytes(x->type.elem);
}

/* Floats in -0.1 .. 0.1, ints zero: no index is out of its dim. */
static void random_bytes(char *at, int64_t bytes, Elem e) {
  uint32_t state = 88172645;
  memset(at, 0, (size_t)bytes);
  if (elem_class(e) != CLASS_FLOAT || e == ELEM_f64) return;
  for (int64_t i = 0; i + elem_bytes(e) <= bytes; i += elem_bytes(e)) {
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    float x = ((float)(state & 0xffff) - 32767.5f) * 3e-6f;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t half =
        (uint16_t)((state & 0x8000) | 0x2000 | (state >> 17 & 0x7ff)); /* f16, 0.008 .. */
    if (e == ELEM_bf16) half = (uint16_t)(bits >> 16);
    memcpy(at + i, e == ELEM_f32 ? (void *)&bits : (void *)&half, (size_t)elem_bytes(e));
  }
}

/* One piece from the host, then copies of it. */
static bool fill(Sweep *s, int i, Elem e) {
  static char piece[CHUNK];
  int64_t first = s->bytes[i] < CHUNK ? s->bytes[i] : CHUNK;
  random_bytes(piece, first, e);
  const CudaApi *a = &s->gpu.api;
  bool ok = gpu_ok(&s->gpu, a->cuMemcpyHtoDAsync(s->buffer[i], piece, (size_t)first, s->gpu.stream),
                   "copy");
  for (int64_t at = first; ok && at < s->bytes[i]; at += first) {
    size_t n = (size_t)(s->bytes[i] - at < first ? s->bytes[i] - at : first);
    ok =
        gpu_ok(&s->gpu,
               a->cuMemcpyDtoDAsync(s->buffer[i] + (CUdeviceptr)at, s->buffer[i], n, s->gpu.stream),
               "copy");
  }
  return ok && gpu_wait(&s->gpu);
}

static void free_buffers(Sweep *s) {
  for (int i = 0; i < s->nbuffers; i++)
    if (s->buffer[i]) s->gpu.api.cuMemFree(s->buffer[i]);
  s->nbuffers = 0;
}

static bool make_buffers(Sweep *s, const Variant *v, int n) {
  const Fn *k = v[0].k;
  int64_t work = 0;
  s->nin = (int)k->args.n, s->nbuffers = (int)(k->args.n + k->results.n + 1);
  memset(s->buffer, 0, sizeof s->buffer);
  for (int i = 0; i < n; i++) {
    int64_t own = attr_int(&v[i].k->attrs, ATTR_workspace, 0);
    work = own > work ? own : work;
  }
  for (int i = 0; i < s->nbuffers; i++) {
    bool last = i == s->nbuffers - 1;
    ValueId x = last ? NO_VALUE : i < s->nin ? k->args.at[i] : k->results.at[i - s->nin];
    s->bytes[i] = last ? work + 256 : span(k, x);
    size_t bytes = (size_t)(s->bytes[i] + 255) / 256 * 256;
    if (!gpu_ok(&s->gpu, s->gpu.api.cuMemAlloc(&s->buffer[i], bytes), "allocate")) return false;
    if (i < s->nin && !fill(s, i, k->values.at[x].type.elem)) return false;
  }
  return true;
}

/* ---- running ---- */

static bool launch(Sweep *s, Variant *v) {
  const Attr *ctas = attr_get(&v->k->attrs, ATTR_chunks),
             *threads = attr_get(&v->k->attrs, ATTR_threads),
             *shared = attr_get(&v->k->attrs, ATTR_shared);
  int n = s->nbuffers - !attr_get(&v->k->attrs, ATTR_workspace);
  GpuMaps maps = gpu_maps_of(s->m, v->k);
  for (int p = 0; p < v->phases; p++)
    if (!gpu_launch(&s->gpu, v->phase[p], ctas->list[p], (int)threads->list[p], shared->list[p],
                    s->buffer, n, &maps))
      return false;
  return true;
}

static int64_t edge_of(int64_t bytes) { return bytes < EDGE ? bytes : EDGE; }

/* Beginning and end of a result. */
static bool read_edges(Sweep *s, int i, char *to) {
  int64_t n = edge_of(s->bytes[i]);
  const CudaApi *a = &s->gpu.api;
  CUdeviceptr tail = s->buffer[i] + (CUdeviceptr)(s->bytes[i] - n);
  return gpu_ok(&s->gpu, a->cuMemcpyDtoHAsync(to, s->buffer[i], (size_t)n, s->gpu.stream),
                "copy") &&
         gpu_ok(&s->gpu, a->cuMemcpyDtoHAsync(to + EDGE, tail, (size_t)n, s->gpu.stream), "copy") &&
         gpu_wait(&s->gpu);
}

static float float_at(const char *p, Elem e) {
  uint32_t bits = 0;
  uint16_t half;
  float x;
  if (e == ELEM_f32) return memcpy(&x, p, 4), x;
  memcpy(&half, p, 2), bits = (uint32_t)half << 16;
  if (e == ELEM_f16) /* finite numbers; others stay large */
    return ldexpf((float)((half & 0x3ff) + (half & 0x7c00 ? 0x400 : 0)),
                  (half >> 10 & 31) - (half & 0x7c00 ? 25 : 24)) *
           (half & 0x8000 ? -1.f : 1.f);
  return memcpy(&x, &bits, 4), x;
}

static bool near(const char *x, const char *y, int64_t bytes, Elem e) {
  float worst = 0, most = 0;
  if (elem_class(e) != CLASS_FLOAT || e == ELEM_f64) return !memcmp(x, y, (size_t)bytes);
  for (int64_t i = 0; i + elem_bytes(e) <= bytes; i += elem_bytes(e)) {
    float u = float_at(x + i, e), v = float_at(y + i, e);
    if (isnan(u) || isnan(v)) return false;
    worst = fmaxf(worst, fabsf(u - v)), most = fmaxf(most, fabsf(v));
  }
  return worst <= (e == ELEM_f32 ? 1e-3f : 2e-2f) * (most + 1e-6f);
}

static bool run_poisoned(Sweep *s, Variant *v, unsigned char poison) {
  for (int i = s->nin; i < s->nbuffers; i++)
    if (!gpu_ok(
            &s->gpu,
            s->gpu.api.cuMemsetD8Async(s->buffer[i], poison, (size_t)s->bytes[i], s->gpu.stream),
            "fill"))
      return false;
  return launch(s, v) && gpu_wait(&s->gpu);
}

static bool gives_the_same(Sweep *s, const Variant *v, bool first) {
  static char edge[2 * EDGE];
  for (int i = s->nin; i < s->nbuffers - 1; i++) {
    char *rule = s->edge + (size_t)(i - s->nin) * 2 * EDGE;
    Elem e = v->k->values.at[v->k->results.at[i - s->nin]].type.elem;
    int64_t n = edge_of(s->bytes[i]);
    if (!read_edges(s, i, first ? rule : edge)) return false;
    if (!first && (!near(edge, rule, n, e) || !near(edge + EDGE, rule + EDGE, n, e))) return false;
  }
  return true;
}

static bool check_all(Sweep *s, Variant *v, int n) {
  for (int i = 0; i < n; i++) {
    if (v[i].fate) continue;
    if (!run_poisoned(s, &v[i], i ? 0xff : 0x7f)) return false;
    if (gives_the_same(s, &v[i], i == 0)) continue;
    v[i].fate = WRONG;
    fprintf(stderr, "%s, cut %s: not what the rule's cut gives\n", v[i].name, v[i].cut);
  }
  return v[0].fate == GOOD;
}

static bool time_all(Sweep *s, Variant *v, int n) {
  int rounds = s->b->quick ? 1 : ROUNDS;
  size_t flush = 2 * (size_t)s->gpu.device.l2_bytes + 256;
  for (int r = 0; r < rounds; r++)
    for (int i = 0; i < n; i++) {
      if (v[i].fate) continue;
      s->gpu.api.cuMemsetD8Async(s->flush, (unsigned char)r, flush, s->gpu.stream);
      gpu_begin(&s->gpu);
      if (!launch(s, &v[i])) return false;
      v[i].time[r] = gpu_end(&s->gpu);
      if (isnan(v[i].time[r])) return false;
    }
  for (int i = 0; i < n; i++) v[i].seconds = v[i].fate ? INFINITY : median(v[i].time, rounds);
  return true;
}

/* ---- results ---- */

static void record(Sweep *s, const Variant *best, const Variant *rule) {
  const Variants *row = variants_find(best->family, DEVICE_GPU);
  TuneRecord r = {.workers = 1,
                  .rounds = s->b->quick ? 1 : ROUNDS,
                  .ns = fmax(1, 1e9 * best->seconds),
                  .rule_ns = fmax(1, 1e9 * rule->seconds)};
  char date[32];
  time_t now = time(NULL);
  if (!row || !variants_read(row, best->cut, &r.cut)) return;
  strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
  Interner *names = s->ctx->names;
  r.family = intern(names, row->family), r.key = intern(names, best->key);
  r.target = s->m->target.name, r.shape = kernel_shape(s->m, best->k);
  r.kind = DEVICE_GPU, r.device = intern(names, s->gpu.device.name), r.date = intern(names, date);
  r.driver = intern_printf(names, "gpu-bundle, driver %d.%d", s->gpu.api.version / 1000,
                           s->gpu.api.version % 1000 / 10);
  tune_db_add(s->ctx, &s->db, &r);
  char *path = out_path(s->b, "gpu.tune");
  FILE *out = fopen(path, "w");
  if (out) fputs(tune_db_text(s->ctx, &s->db), out), fclose(out);
  free(path);
}

/* The larger of its shares of the multiply-adds and of the copy. */
static double share_of(const Bundle *b, const Variant *v, double seconds) {
  bool f32 = !strncmp(v->key, "f32", 3);
  double flops = found(b, "ceilings", f32 ? "f32 fma" : "bf16 mma.sync", "flops");
  double moved = found(b, "ceilings", "copy", "bytes_per_second");
  double multiply = v->key[0] == '-' ? 0 : v->flop / seconds / flops;
  return isnan(moved) ? NAN : fmax(multiply, v->bytes / seconds / moved);
}

/* Every cut and its microseconds, for those who weigh the rule: null where it was not timed. */
static char *times_of(const Variant *v, int n) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  for (int i = 0; i < n; i++) {
    fprintf(out, "%s\"%s\": ", i ? ", " : "", v[i].cut);
    if (isfinite(v[i].seconds)) fprintf(out, "%.3f", 1e6 * v[i].seconds);
    else fputs("null", out);
  }
  fclose(out);
  return text;
}

/* True: no cut is bad. */
static bool show(Sweep *s, Variant *v, int n) {
  int best = 0, of[WRONG + 1] = {0};
  for (int i = 0; i < n; i++) {
    if (!v[i].fate && v[i].seconds < v[best].seconds) best = i;
    of[v[i].fate]++;
  }
  double t = v[best].seconds, share = share_of(s->b, v, t);
  char *times = times_of(v, n);
  put_row(s->b,
          "{\"name\": %s, \"family\": \"%s\", \"key\": \"%s\", \"cuts\": %d, \"too_large\": %d, "
          "\"refused\": %d, \"wrong\": %d, \"cut\": \"%s\", \"us\": %.3f, \"rule_us\": %.3f, "
          "\"tflops\": %.4g, \"gbs\": %.4g%s, \"cuts_us\": {%s}}",
          quoted(v->name), v->family, v->key, n, of[TOO_LARGE], of[REFUSED], of[WRONG], v[best].cut,
          1e6 * t, 1e6 * v[0].seconds, 1e-12 * v->flop / t, 1e-9 * v->bytes / t,
          isfinite(share) ? rt_format(", \"share\": %.4g", share) : "", times);
  free(times);
  say(s->b, "%-30s %9.1f us (rule %9.1f) %8.2f TFLOP/s %8.1f GB/s", v->name, 1e6 * t,
      1e6 * v[0].seconds, 1e-12 * v->flop / t, 1e-9 * v->bytes / t);
  if (isfinite(share)) say(s->b, " %5.1f %%", 100 * share);
  if (n > 1) say(s->b, "  %d cuts", n);
  if (of[TOO_LARGE]) say(s->b, ", %d too large for this GPU", of[TOO_LARGE]);
  if (of[REFUSED]) say(s->b, ", %d REFUSED", of[REFUSED]);
  if (of[WRONG]) say(s->b, ", %d WRONG", of[WRONG]);
  if (!strncmp(v->family, "attention", 9)) say(s->b, "  %s", v->key);
  say(s->b, "\n");
  if (n > 1) record(s, &v[best], &v[0]);
  return !of[REFUSED] && !of[WRONG];
}

static bool one_kernel(Sweep *s, Variant *v, int n) {
  for (int i = 0; i < n; i++) v[i].fate = load(s, &v[i]);
  s->edge = malloc((size_t)2 * EDGE * (v->k->results.n + 1));
  bool ok =
      !v[0].fate && s->edge && make_buffers(s, v, n) && check_all(s, v, n) && time_all(s, v, n);
  bool good = ok ? show(s, v, n) : s->gpu.last == CU_OUT_OF_MEMORY;
  if (!ok) say(s->b, "%-30s %s\n", v->name, *s->gpu.why ? s->gpu.why : "failed");
  if (!ok) put_row(s->b, "{\"name\": %s, \"why\": %s}", quoted(v->name), quoted(s->gpu.why));
  s->gpu.last = CU_SUCCESS, *s->gpu.why = 0;
  for (int i = 0; i < n; i++)
    if (v[i].module) s->gpu.api.cuModuleUnload(v[i].module);
  free_buffers(s), free(s->edge);
  return good;
}

/* ---- all ---- */

static bool open_sweep(Sweep *s, Bundle *b, const char *folder) {
  char *path = bundle_path(b, "%s/kernels.ir", folder);
  *s = (Sweep){.b = b, .ctx = ctx_new(), .folder = bundle_path(b, "%s", folder)};
  s->m = ir_read(s->ctx, path);
  if (!s->m) diag_print(s->ctx->diag, stderr, DIAG_HUMAN, false);
  free(path);
  return s->m && gpu_open(&s->gpu, 0) &&
         gpu_ok(&s->gpu, s->gpu.api.cuMemAlloc(&s->flush, 2 * (size_t)s->gpu.device.l2_bytes + 256),
                "allocate");
}

/* Fills the driver's cache. A failure of this call occurs again in the call that reports it. */
static void assemble(Bundle *b, const char *folder) {
  fflush(NULL);
  for (int w = 0; w < WORKERS; w++) {
    if (fork()) continue;
    Sweep s;
    Variant v;
    bool ok = open_sweep(&s, b, folder);
    for (uint32_t i = (uint32_t)w; ok && i < s.m->fns.n; i += WORKERS)
      if (read_variant(s.m, s.m->fns.at[i], &v) && !load(&s, &v))
        s.gpu.api.cuModuleUnload(v.module);
    _exit(0);
  }
  while (wait(NULL) > 0) {}
}

/* This part measures nothing else. */
static DeviceKind any_gpu(const char *target) {
  (void)target;
  return DEVICE_GPU;
}

/* Records of the processes before. */
static void read_records(Sweep *s) {
  char *path = out_path(s->b, "gpu.tune"), text[1 << 16];
  FILE *f = fopen(path, "r");
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  text[n] = 0;
  tune_db_read(s->ctx, path, text, n, any_gpu, &s->db);
  if (f) fclose(f);
  free(path);
}

typedef struct Progress { /* shared with the process that sweeps */
  volatile int at, bad;
  volatile bool late; /* there was no time for all */
} Progress;

/* Kernels from where it is on. */
static _Noreturn void sweep(Bundle *b, const char *folder, Progress *p) {
  static Variant v[MOST_CUTS];
  Sweep s;
  double began = rt_now();
  if (!open_sweep(&s, b, folder))
    say(b, "%s\n", s.m ? s.gpu.why : "there are no kernels"), _exit(PART_BAD);
  read_records(&s);
  for (int n; (n = cuts_of(s.m, p->at, v)); p->at++) {
    p->late = rt_now() > b->ends - fmin(5, 0.1 * (b->ends - began));
    if (p->late)
      say(b, "out of time: kernel %d and the others are not measured\n", p->at), _exit(PART_GOOD);
    alarm(KERNEL_SECONDS);
    if (one_kernel(&s, v, n)) continue;
    p->bad++, p->at++;
    _exit(AGAIN);
  }
  _exit(PART_GOOD);
}

/* A kernel that faults takes its context along: the others go on in a new process. */
static int sweep_all(Bundle *b, const char *folder) {
  Progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int status = 0;
  if (p == MAP_FAILED) return PART_BAD;
  assemble(b, folder);
  do {
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) sweep(b, folder, p);
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) {
      say(b, "kernel %d: %s\n", p->at,
          WTERMSIG(status) == SIGALRM ? "took too long" : "ended its process");
      p->at++, p->bad++;
    }
  } while (WIFSIGNALED(status) || WEXITSTATUS(status) == AGAIN);
  if (WEXITSTATUS(status) || p->bad) return PART_BAD;
  return p->late ? PART_SHORT : p->at ? PART_GOOD : PART_BAD;
}

int part_variants(Bundle *b) {
  remove(out_path(b, "gpu.tune"));
  return sweep_all(b, "variants");
}

int part_densities(Bundle *b) { return sweep_all(b, "densities"); }
