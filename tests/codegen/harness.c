/* Test harness of kernels: see harness.h. */
#include "harness_gpu.h"
#include "harness_inside.h"
#include "harness_keep.h"
#include "passes/pass.h"
#include "passes/tune/tune.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef void Chunk(void *const *buffers, int64_t chunk, void *scratch);

/* ---- tuning, building, loading ---- */

/* A few random decisions away from the rule's cut. */
static void vary(Harness *h, Module *m, Fn *k) {
  Str family = attr_str(&k->attrs, ATTR_family, "");
  const Variants *v = variants_find(family, m->target.device);
  Cut cut = v ? v->rule(m, k) : (Cut){{0}};
  if (h->spare) attr_set_int(m, &k->attrs, ATTR_spare, h->spare);
  if (h->cut && (!v || !variants_read(v, h->cut, &cut) || !v->fits(m, k, &cut)))
    bug("kernel %s cannot have cut `%s`", k->name, h->cut);
  for (int i = 0; v && !h->cut && i < 2 * TUNE_STAGES; i++) {
    CutList list = {0};
    v->vary(m, k, &cut, i % TUNE_STAGES, harness_random(h, 0, 1), &list);
    if (!list.n) continue;
    const Cut *next = &list.at[harness_random(h, 0, list.n - 1)];
    if (v->fits(m, k, next)) cut = *next;
  }
  if (v) v->apply(m, k, &cut);
}

void harness_vary(Harness *h, Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_KERNEL) vary(h, m, m->fns.at[i]);
}

double harness_tolerance(Harness *h, const Module *m) {
  Str precision = module_setting(m, "plan.precision", "f32");
  if (!strcmp(precision, "f32")) return 1e-4;
  h->low = -1, h->high = 1;
  return strcmp(precision, "tf32") ? 8e-3 : 1e-2;
}

static Module *module_of(Harness *h) {
  vec_push(h->arena, h->text, 0);
  Module *m = ir_parse(h->ctx, "test", h->text.at, h->text.n - 1);
  const Target *t = target_find(h->target);
  if (!m) diag_print(h->ctx->diag, stderr, DIAG_HUMAN, false);
  if (!m || !t) return NULL;
  if (!ir_verify(m)) diag_print(h->ctx->diag, stderr, DIAG_HUMAN, false);
  pass_find("sparse")->run(m);
  target_describe(m, t, h->workers);
  if (h->most) m->target.shared = m->target.shared_most;
  if (h->stream) m->target.l2 = m->target.l3 = 1;
  if (h->chunk) m->target.chunk = h->chunk;
  if (h->multiprocessors) m->target.multiprocessors = h->multiprocessors + h->spare;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    tune_by_rule(m, m->fns.at[i]);
    if (h->vary || h->cut) vary(h, m, m->fns.at[i]);
    if (h->show) fputs(ir_print_fn(m, m->fns.at[i]), stderr);
  }
  return m;
}

/* With all of LLVM's passes each one of `every`, the others with few: most of the time of a batch
   is LLVM's, and a wrong bound, mask or address is as wrong without it. Faults caused by our own
   claims to LLVM (no overflow, in bounds, no alias) appear only in the former. SHARDC_OPTIMIZE=all:
   all. */
static bool build(const Harness *h, Module *m, const char *folder) {
  enum { EVERY = 5 }; /* prime to the periods by which tests choose masks, factors, types */
  const char *all = getenv("SHARDC_OPTIMIZE");
  if (h->quick) return kernels_build_as(m, folder, 2, true);
  if (module_on_gpu(m) || m->fns.n <= EVERY || (all && !strcmp(all, "all")))
    return kernels_build(m, folder, 2);
  FnKind *kind = ARENA_ARRAY(m->arena, FnKind, m->fns.n);
  bool ok = true;
  for (uint32_t i = 0; i < m->fns.n; i++) kind[i] = m->fns.at[i]->kind;
  for (int quick = 0; quick < 2 && ok; quick++) {
    for (uint32_t i = 0; i < m->fns.n; i++)
      m->fns.at[i]->kind = (i % EVERY != 0) == quick ? kind[i] : FN_BODY;
    ok = kernels_build_as(m, folder, 2, quick);
  }
  for (uint32_t i = 0; i < m->fns.n; i++) m->fns.at[i]->kind = kind[i];
  return ok;
}

static void *load(Harness *h, Module *m, const char *folder) {
  if (!build(h, m, folder) || diag_given(h->ctx->diag, "W1316")) {
    diag_print(h->ctx->diag, stderr, DIAG_HUMAN, false);
    return NULL;
  }
  if (module_on_gpu(m)) return (void *)folder;
  if (!kernels_link(m, folder, "test.so")) return NULL;
  const char *so = arena_printf(h->arena, "%s/test.so", folder);
  void *library = dlopen(so, RTLD_NOW | RTLD_LOCAL);
  if (!library) fprintf(stderr, "%s\n", dlerror());
  return library;
}

/* ---- running one kernel ---- */

static bool run_on_gpu(Running *r) {
  int n = (int)(r->nargs + r->nresults);
  GpuBuffer *b = ARENA_ARRAY(r->h->arena, GpuBuffer, n);
  for (int i = 0; i < n; i++) {
    int a = i < (int)r->nargs ? -1 : running_same(r->h, (uint32_t)i - r->nargs);
    b[i] = (GpuBuffer){r->buffer[i].at, r->buffer[i].bytes, a, r->h->unfilled && i == 1};
  }
  uint64_t seed = harness_next(r->h);
  return gpu_run_kernel(r->m, r->k, r->h->library, b, n, seed, seed & 64, r->h->products);
}

static bool run_phases(Running *r, bool shuffled) {
  if (module_on_gpu(r->m)) return run_on_gpu(r);
  const Attr *chunks = attr_get(&r->k->attrs, ATTR_chunks);
  for (int64_t p = 0; p < chunks->i; p++) {
    Chunk *run;
    *(void **)&run = dlsym(r->h->library,
                           arena_printf(r->h->arena, "%s_p%d", kernel_symbol(r->m, r->k), (int)p));
    if (!run) return false;
    int64_t n = chunks->list[p], first = shuffled ? harness_random(r->h, 0, n - 1) : 0;
    for (int64_t i = n; i-- > 0;) {
      if (shuffled) memset(r->scratch, POISON, (size_t)r->scratch_bytes);
      run(r->pointer, (first + i) % n, r->scratch);
    }
  }
  return true;
}

bool harness_tested(const char *target) {
  const char *other = getenv("SHARDC_TESTED");
  const Target *t = target_find(target);
  if (!other || !strcmp(target, other) || !t || t != target_find(other)) return false;
  printf("skipped: %s is %s here\n", target, other);
  return true;
}

int harness_run(Harness *h, double tolerance) {
  Module *m = module_of(h);
  return m ? harness_check(h, m, tolerance) : 1;
}

int harness_streamed(const char *target, HarnessMake *make, int n, int shift, bool in_place,
                     double tolerance) {
  Harness *h = harness_new(target);
  h->stream = true, h->shift = shift, h->chunk = 20000;
  for (int i = 0; i < 2 && in_place; i++) vec_push(h->arena, h->inplace, 0);
  for (int i = 0; i < n; i++) make(h, i);
  int failed = harness_run(h, tolerance);
  harness_free(h);
  return failed;
}

static bool run_shuffled(Running *r) { return run_phases(r, true); }

int harness_check(Harness *h, Module *m, double tolerance) {
  char *folder = work_folder(h->ctx);
  harness_thin(m);
  h->library = load(h, m, folder), h->run = run_shuffled;
  int failed = h->library ? 0 : 1;
  bool kept = h->library && harness_keep(h, m, folder, tolerance);
  for (uint32_t i = 0; h->library && !kept && !h->unrun && i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_KERNEL) failed += harness_kernel(h, m, m->fns.at[i], tolerance);
  if (h->library && !module_on_gpu(m)) dlclose(h->library);
  remove_folder(h->arena, folder);
  return failed;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

double harness_time(Harness *h, int times) {
  char *folder = work_folder(h->ctx);
  Module *m = module_of(h);
  h->library = m ? load(h, m, folder) : NULL;
  if (!h->library) return -1;
  Running r = running_new(h, m, m->fns.at[m->fns.n - 1]);
  for (uint32_t i = 0; i < r.nargs; i++) running_random(h, r.k, r.k->args.at[i], &r.buffer[i]);
  double best = 1e30;
  for (int i = 0; i < times; i++) {
    double start = now();
    run_phases(&r, false);
    double t = now() - start;
    if (t < best) best = t;
  }
  running_free(&r);
  dlclose(h->library);
  remove_folder(h->arena, folder);
  return best;
}

void harness_squares(Harness *h, int i, const char *elem, int64_t width) {
  int m = i & 1 ? 200 : 256, n = i & 2 ? (int)width : 136, k = 72 + 64 * (i % 3);
  const char *dims = arena_printf(h->arena, "[M:%d, N:%d]", m, n);
  harness_add(h, "kernel @k%d(%%0 : %s[K:%d, M:%d], %%1 : %s[K:%d, N:%d])", i, elem, k, m, elem, k,
              n);
  harness_add(h, " {family = \"contract\"} {\n  %%2 = dot[K] %%0, %%1 : %s%s\n", elem, dims);
  harness_add(h, "  %%3 = cast %%2 : f32%s\n  %%4 = mul %%3, %%3 : f32%s\n", dims, dims);
  harness_add(h, "  %%5 = sum[M] %%4 : f32[N:%d]\n  return %%2, %%5\n}\n", n);
}
