/* Kernels on a CUDA device: their code is loaded when they are launched for the first time, which
   is in the first run of an entry, never while a graph is recorded. Code for this very architecture
   is tried first; where the driver refuses it (an older driver, another GPU), the PTX beside it is
   assembled by the driver. Where a kernel has a larger variant and the device allows its shared
   memory, that one runs; this is decided once, at start. Every failure is told with the kernel's
   name and its place in the model.
 */
#include "device_cuda.h"
#include "runtime/base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG = 16 << 10 };

static int by_address(const void *a, const void *b) {
  const rt_kernel *x = ((const Loaded *)a)->kernel, *y = ((const Loaded *)b)->kernel;
  return (x > y) - (x < y);
}

/* The name of the kernel's file: its first entry without _p0. */
static void symbol_of(const rt_kernel *k, char *out, size_t n) {
  size_t length = strlen(k->phase[0].entry);
  snprintf(out, n, "%.*s", (int)(length > 3 ? length - 3 : length), k->phase[0].entry);
}

/* DIR/SYMBOL.ptx; false: it is not there. */
static bool replaced(const Cuda *c, const rt_kernel *k, char path[RT_PATH]) {
  char symbol[RT_PATH], name[RT_PATH + 8];
  if (!c->kernels || !k->image) return false;
  symbol_of(k, symbol, sizeof symbol);
  snprintf(name, sizeof name, "%s.ptx", symbol);
  rt_join(path, c->kernels, name);
  return rt_exists(path);
}

/* A folder that replaces nothing is a mistake: another model's, or none at all. */
static bool check_folder(const Cuda *c, Fault *f) {
  char path[RT_PATH];
  if (!c->kernels) return true;
  for (int i = 0; i < c->nloaded; i++)
    if (replaced(c, c->loaded[i].taken, path)) return true;
  rt_fault(f, 103, "--kernels %s: no kernel of this executable has a file there", c->kernels);
  return rt_help(f, "files are called SYMBOL.ptx; `shardc compile --keep DIR` writes them");
}

static const rt_kernel *taken_for(const Cuda *c, const rt_kernel *k) {
  for (int i = 0; k->larger && i < k->larger->phases; i++)
    if (k->larger->phase[i].shared > c->device.shared_limit) return k;
  return k->larger ? k->larger : k;
}

bool rt_cuda_kernels_open(Cuda *c, const rt_program *p, Fault *f) {
  int most = 1;
  c->loaded = rt_alloc(sizeof *c->loaded * (size_t)(p->nkernels + 1));
  c->nloaded = p->nkernels;
  for (int i = 0; i < p->nkernels; i++) {
    c->loaded[i].kernel = p->kernels[i], c->loaded[i].taken = taken_for(c, p->kernels[i]);
    if (p->kernels[i]->nbuffers > most) most = p->kernels[i]->nbuffers;
  }
  qsort(c->loaded, (size_t)c->nloaded, sizeof *c->loaded, by_address);
  c->arguments = rt_alloc(sizeof *c->arguments * (size_t)most);
  return check_folder(c, f);
}

void rt_cuda_kernels_close(Cuda *c) {
  for (int i = 0; i < c->nloaded; i++)
    if (c->loaded[i].module) c->api.cuModuleUnload(c->loaded[i].module);
  free(c->loaded), free(c->arguments);
}

/* ---- messages ---- */

static void place_of(const rt_kernel *k, char *out, size_t n) {
  if (*k->source) snprintf(out, n, "kernel %s (%s)", k->name, k->source);
  else snprintf(out, n, "kernel %s", k->name);
}

static _Noreturn void die(int code, const char *what, const char *help) {
  Fault f = {0};
  rt_fault(&f, code, "%s", what);
  if (help) rt_help(&f, "%s", help);
  rt_die(&f);
}

/* PTX 7.x came with CUDA 11, 8.x with CUDA 12. */
static void old_driver(const Cuda *c, const rt_kernel *k, char *out, size_t n) {
  const char *version = strstr(k->image->ptx, ".version");
  int major = 0, minor = 0;
  if (version) sscanf(version, ".version %d.%d", &major, &minor);
  snprintf(out, n,
           "the code is PTX %d.%d, which drivers for CUDA %d read; this one is for CUDA %d.%d: "
           "install a newer driver",
           major, minor, major + 4, c->api.version / 1000, c->api.version % 1000 / 10);
}

static _Noreturn void refuse(const Cuda *c, const rt_kernel *k, CUresult e, const char *log) {
  char place[RT_NAME + 80], why[300], what[1200], old[200];
  const char *help = "this is a mistake of shardc: please report it";
  int code = 1006;
  place_of(k, place, sizeof place), rt_cuda_error(&c->api, e, why, sizeof why);
  snprintf(what, sizeof what, "the driver refused the code of %s: %s%s%.200s", place, why,
           *log ? "\n  " : "", log);
  if (e == CU_UNSUPPORTED_PTX_VERSION) old_driver(c, k, old, sizeof old), code = 1004, help = old;
  if (e == CU_OUT_OF_MEMORY) code = 1005, help = "another process may hold it: nvidia-smi shows";
  if (c->kernels) help = "--kernels replaces the code that was compiled in";
  die(code, what, help);
}

static _Noreturn void fail_launch(const Cuda *c, const rt_kernel *k, int phase, CUresult e) {
  char place[RT_NAME + 80], why[300], what[1200];
  place_of(k, place, sizeof place), rt_cuda_error(&c->api, e, why, sizeof why);
  snprintf(what, sizeof what,
           "%s failed on the GPU: %s\n  phase %d: %lld CTAs of %d threads, %lld bytes of shared "
           "memory",
           place, why, phase, (long long)k->phase[phase].chunks, k->phase[phase].threads,
           (long long)k->phase[phase].shared);
  die(1007, what, "compute-sanitizer, or shardc run --emulate, shows the instruction");
}

/* ---- loading ---- */

/* NULL: nothing replaces its code. */
static char *replacement(const Cuda *c, const rt_kernel *k) {
  char path[RT_PATH];
  Bytes file;
  Fault f = {0};
  if (!replaced(c, k, path)) return NULL;
  if (!rt_map_file(path, 301, &file, &f)) rt_die(&f);
  char *text = rt_copy_text((const char *)file.at, (size_t)file.n);
  rt_unmap_file(&file);
  return text;
}

static CUresult load_text(const Cuda *c, CUmodule *m, const char *ptx, char log[LOG]) {
  int option[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES};
  void *value[] = {log, (void *)(uintptr_t)(LOG - 1)};
  return c->api.cuModuleLoadDataEx(m, ptx, 2, option, value);
}

static void load(const Cuda *c, Loaded *l) {
  const rt_kernel *k = l->taken;
  const rt_image *image = k->image;
  char log[LOG] = "", *other = replacement(c, k);
  CUresult e = CU_NO_BINARY_FOR_GPU;
  if (!other && image->cubin_end > image->cubin)
    e = c->api.cuModuleLoadDataEx(&l->module, image->cubin, 0, NULL, NULL);
  if (e != CU_SUCCESS) e = load_text(c, &l->module, other ? other : image->ptx, log);
  if (e != CU_SUCCESS) refuse(c, k, e, log);
  free(other);
  for (int i = 0; i < k->phases; i++) {
    e = c->api.cuModuleGetFunction(&l->function[i], l->module, k->phase[i].entry);
    /* Beyond 48 KiB, static shared memory included, a function must ask. */
    if (e == CU_SUCCESS && k->phase[i].shared > 0)
      e = c->api.cuFuncSetAttribute(l->function[i], CU_FUNC_SHARED, (int)k->phase[i].shared);
    if (e != CU_SUCCESS) refuse(c, k, e, k->phase[i].entry);
  }
}

static Loaded *loaded(const Cuda *c, const rt_kernel *k) {
  const Loaded key = {.kernel = k};
  Loaded *l = bsearch(&key, c->loaded, (size_t)c->nloaded, sizeof key, by_address);
  if (!l) rt_fail(105, "kernel %s is not in the program's table", k->name);
  if (!l->module) load(c, l);
  return l;
}

/* ---- launching ---- */

static CUresult launch_phase(const Cuda *c, const Loaded *l, int i) {
  const rt_kernel *k = l->taken;
  return c->api.cuLaunchKernel(l->function[i], (unsigned)k->phase[i].chunks, 1, 1,
                               (unsigned)k->phase[i].threads, 1, 1, (unsigned)k->phase[i].shared,
                               c->stream, c->arguments, NULL);
}

/* Seconds between two events, that is, without the way of the launch to the device. */
static double launch_timed(const Cuda *c, const Loaded *l, int i, CUresult *e) {
  float milliseconds = 0;
  *e = c->api.cuEventRecord(c->from, c->stream);
  if (*e == CU_SUCCESS) *e = launch_phase(c, l, i);
  if (*e == CU_SUCCESS) *e = c->api.cuEventRecord(c->to, c->stream);
  if (*e == CU_SUCCESS) *e = c->api.cuEventSynchronize(c->to);
  if (*e == CU_SUCCESS) *e = c->api.cuEventElapsedTime(&milliseconds, c->from, c->to);
  return 1e-3 * milliseconds;
}

void rt_cuda_launch(Cuda *c, const rt_kernel *k, void *const *buffers, Trace *trace) {
  const Loaded *l = loaded(c, k);
  for (int i = 0; i < k->nbuffers; i++) c->arguments[i] = (void *)&buffers[i];
  for (int i = 0; i < l->taken->phases; i++) {
    CUresult e;
    if (trace) rt_trace_timed(trace, k, i, launch_timed(c, l, i, &e));
    else e = launch_phase(c, l, i);
    if (e == CU_SUCCESS && c->waits) e = c->api.cuStreamSynchronize(c->stream);
    if (e != CU_SUCCESS) fail_launch(c, l->taken, i, e);
  }
}
