/* Kernels on a CUDA device: their code is loaded when they are launched for the first time, which
   is in the first run of an entry, never while a graph is recorded. Code for this exact
   architecture is tried first; if the driver refuses it (an older driver, another GPU), the driver
   assembles the kernel's PTX. If a kernel has a larger variant and the device allows its shared
   memory, the larger variant runs; this is decided once, at start. Every failure is reported with
   the kernel's name and its position in the model.
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
static void symbol_of(const rt_kernel *kernel, char *out, size_t n) {
  size_t length = strlen(kernel->phase[0].entry);
  snprintf(out, n, "%.*s", (int)(length > 3 ? length - 3 : length), kernel->phase[0].entry);
}

/* DIR/SYMBOL.ptx; false: no such file. */
static bool replaced(const Cuda *cuda, const rt_kernel *kernel, char path[RT_PATH]) {
  char symbol[RT_PATH], name[RT_PATH + 8];
  if (!cuda->kernels || !kernel->image) return false;
  symbol_of(kernel, symbol, sizeof symbol);
  snprintf(name, sizeof name, "%s.ptx", symbol);
  rt_join(path, cuda->kernels, name);
  return rt_exists(path);
}

/* A folder that replaces nothing is a mistake: another model's, or none at all. */
static bool check_folder(const Cuda *cuda, Fault *f) {
  char path[RT_PATH];
  if (!cuda->kernels) return true;
  for (int i = 0; i < cuda->nloaded; i++)
    if (replaced(cuda, cuda->loaded[i].taken, path)) return true;
  rt_fault(f, 103, "--kernels %s: the folder has no file for any kernel of this executable",
           cuda->kernels);
  return rt_help(f, "files are called SYMBOL.ptx; `shardc compile --keep DIR` writes them");
}

static const rt_kernel *taken_for(const Cuda *cuda, const rt_kernel *kernel) {
  for (int i = 0; kernel->larger && i < kernel->larger->phases; i++)
    if (kernel->larger->phase[i].shared > cuda->device.shared_limit) return kernel;
  return kernel->larger ? kernel->larger : kernel;
}

/* Copies by tensor maps need a function that drivers before CUDA 12 do not have. */
static bool check_maps(const Cuda *cuda, Fault *f) {
  for (int i = 0; i < cuda->nloaded; i++) {
    const rt_kernel *kernel = cuda->loaded[i].taken;
    if (!kernel->nmaps || cuda->api.cuTensorMapEncodeTiled) continue;
    rt_fault(f, 1004,
             "the CUDA driver %s (CUDA %d.%d) has no cuTensorMapEncodeTiled, for kernel %s",
             cuda->api.path, cuda->api.version / 1000, cuda->api.version % 1000 / 10, kernel->name);
    return rt_help(f, "a driver for CUDA 12.0 or newer has it (525 and up)");
  }
  return true;
}

bool rt_cuda_kernels_open(Cuda *cuda, const rt_program *program, Fault *f) {
  int most = 1;
  cuda->loaded = rt_alloc(sizeof *cuda->loaded * (size_t)(program->nkernels + 1));
  cuda->nloaded = program->nkernels;
  for (int i = 0; i < program->nkernels; i++) {
    cuda->loaded[i].kernel = program->kernels[i],
    cuda->loaded[i].taken = taken_for(cuda, program->kernels[i]);
    if (program->kernels[i]->nbuffers > most) most = program->kernels[i]->nbuffers;
  }
  qsort(cuda->loaded, (size_t)cuda->nloaded, sizeof *cuda->loaded, by_address);
  cuda->arguments = rt_alloc(sizeof *cuda->arguments * (size_t)(most + RT_KERNEL_MAPS));
  return check_maps(cuda, f) && check_folder(cuda, f);
}

void rt_cuda_kernels_close(Cuda *cuda) {
  for (int i = 0; i < cuda->nloaded; i++)
    if (cuda->loaded[i].module) cuda->api.cuModuleUnload(cuda->loaded[i].module);
  free(cuda->loaded), free(cuda->arguments);
}

/* ---- messages ---- */

static void place_of(const rt_kernel *kernel, char *out, size_t n) {
  if (*kernel->source) snprintf(out, n, "kernel %s (%s)", kernel->name, kernel->source);
  else snprintf(out, n, "kernel %s", kernel->name);
}

static _Noreturn void die(int code, const char *what, const char *help) {
  Fault f = {0};
  rt_fault(&f, code, "%s", what);
  if (help) rt_help(&f, "%s", help);
  rt_die(&f);
}

/* PTX 7.x came with CUDA 11, 8.x with CUDA 12. */
static void old_driver(const Cuda *cuda, const rt_kernel *kernel, char *out, size_t n) {
  const char *version = strstr(kernel->image->text, ".version");
  int major = 0, minor = 0;
  if (version) sscanf(version, ".version %d.%d", &major, &minor);
  snprintf(out, n,
           "the code is PTX %d.%d, which drivers for CUDA %d read; this one is for CUDA %d.%d: "
           "install a newer driver",
           major, minor, major + 4, cuda->api.version / 1000, cuda->api.version % 1000 / 10);
}

static _Noreturn void refuse(const Cuda *cuda, const rt_kernel *kernel, const char *part,
                             CUresult e, const char *log) {
  char place[RT_NAME + 80], why[300], what[1200], old[200];
  const char *help = "this is a mistake of shardc: please report it";
  int code = 1006;
  place_of(kernel, place, sizeof place), rt_cuda_error(&cuda->api, e, why, sizeof why);
  snprintf(what, sizeof what, "the driver refused the %s of %s: %s%s%.200s", part, place, why,
           *log ? "\n  " : "", log);
  if (e == CU_UNSUPPORTED_PTX_VERSION)
    old_driver(cuda, kernel, old, sizeof old), code = 1004, help = old;
  if (e == CU_OUT_OF_MEMORY) code = 1005, help = "another process may hold it: nvidia-smi shows";
  if (cuda->kernels) help = "--kernels replaces the code that was compiled in";
  die(code, what, help);
}

static _Noreturn void fail_launch(const Cuda *cuda, const rt_kernel *kernel, int phase,
                                  CUresult e) {
  char place[RT_NAME + 80], why[300], what[1200];
  place_of(kernel, place, sizeof place), rt_cuda_error(&cuda->api, e, why, sizeof why);
  snprintf(what, sizeof what,
           "%s failed on the GPU: %s\n  phase %d: %lld CTAs of %d threads, %lld bytes of shared "
           "memory",
           place, why, phase, (long long)kernel->phase[phase].chunks, kernel->phase[phase].threads,
           (long long)kernel->phase[phase].shared);
  die(1007, what, "compute-sanitizer, or shardc run --emulate, shows the instruction");
}

/* ---- loading ---- */

/* NULL: nothing replaces its code. */
static char *replacement(const Cuda *cuda, const rt_kernel *kernel) {
  char path[RT_PATH];
  Bytes file;
  Fault f = {0};
  if (!replaced(cuda, kernel, path)) return NULL;
  if (!rt_map_file(path, 301, &file, &f)) rt_die(&f);
  char *text = rt_copy_text((const char *)file.at, (size_t)file.n);
  rt_unmap_file(&file);
  return text;
}

static CUresult load_text(const Cuda *cuda, CUmodule *m, const char *ptx, char log[LOG]) {
  int option[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES};
  void *value[] = {log, (void *)(uintptr_t)(LOG - 1)};
  return cuda->api.cuModuleLoadDataEx(m, ptx, 2, option, value);
}

static void load(const Cuda *cuda, Loaded *loaded) {
  const rt_kernel *kernel = loaded->taken;
  const rt_image *image = kernel->image;
  char log[LOG] = "", *other = replacement(cuda, kernel);
  CUresult e = CU_NO_BINARY_FOR_GPU;
  if (!other && image->binary_end > image->binary)
    e = cuda->api.cuModuleLoadDataEx(&loaded->module, image->binary, 0, NULL, NULL);
  if (e != CU_SUCCESS) e = load_text(cuda, &loaded->module, other ? other : image->text, log);
  if (e != CU_SUCCESS) refuse(cuda, kernel, "code", e, log);
  free(other);
  for (int i = 0; i < kernel->phases; i++) {
    e = cuda->api.cuModuleGetFunction(&loaded->function[i], loaded->module, kernel->phase[i].entry);
    /* Beyond 48 KiB, static shared memory included, a function must ask. */
    if (e == CU_SUCCESS && kernel->phase[i].shared > 0)
      e = cuda->api.cuFuncSetAttribute(loaded->function[i], CU_FUNC_SHARED,
                                       (int)kernel->phase[i].shared);
    if (e != CU_SUCCESS) refuse(cuda, kernel, "code", e, kernel->phase[i].entry);
  }
}

static Loaded *loaded(const Cuda *cuda, const rt_kernel *kernel) {
  const Loaded key = {.kernel = kernel};
  Loaded *l = bsearch(&key, cuda->loaded, (size_t)cuda->nloaded, sizeof key, by_address);
  if (!l) rt_fail(105, "kernel %s is not in the program's table", kernel->name);
  if (!l->module) load(cuda, l);
  return l;
}

/* ---- launching ---- */

static CUresult launch_phase(const Cuda *cuda, const Loaded *loaded, int i) {
  const rt_kernel *kernel = loaded->taken;
  return cuda->api.cuLaunchKernel(loaded->function[i], (unsigned)kernel->phase[i].chunks, 1, 1,
                                  (unsigned)kernel->phase[i].threads, 1, 1,
                                  (unsigned)kernel->phase[i].shared, cuda->stream, cuda->arguments,
                                  NULL);
}

/* Seconds between two events, that is, without the way of the launch to the device. */
static double launch_timed(const Cuda *cuda, const Loaded *loaded, int i, CUresult *e) {
  float milliseconds = 0;
  *e = cuda->api.cuEventRecord(cuda->from, cuda->stream);
  if (*e == CU_SUCCESS) *e = launch_phase(cuda, loaded, i);
  if (*e == CU_SUCCESS) *e = cuda->api.cuEventRecord(cuda->to, cuda->stream);
  if (*e == CU_SUCCESS) *e = cuda->api.cuEventSynchronize(cuda->to);
  if (*e == CU_SUCCESS) *e = cuda->api.cuEventElapsedTime(&milliseconds, cuda->from, cuda->to);
  return 1e-3 * milliseconds;
}

/* Maps are copied into the launch, or into the graph that is recorded. */
static void make_maps(const Cuda *cuda, const rt_kernel *kernel, void *const *buffers,
                      CuTensorMap *map) {
  for (int i = 0; i < kernel->nmaps; i++) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)buffers[kernel->maps[i].buffer];
    CUresult e = rt_cuda_map(&cuda->api, &kernel->maps[i], at, &map[i]);
    if (e != CU_SUCCESS) refuse(cuda, kernel, "tensor maps", e, "cuTensorMapEncodeTiled");
    cuda->arguments[kernel->nbuffers + i] = &map[i];
  }
}

void rt_cuda_launch(Cuda *cuda, const rt_kernel *kernel, void *const *buffers, Trace *trace) {
  const Loaded *l = loaded(cuda, kernel);
  CuTensorMap map[RT_KERNEL_MAPS];
  for (int i = 0; i < kernel->nbuffers; i++) cuda->arguments[i] = (void *)&buffers[i];
  make_maps(cuda, l->taken, buffers, map);
  for (int i = 0; i < l->taken->phases; i++) {
    CUresult e;
    if (trace) rt_trace_timed(trace, kernel, i, launch_timed(cuda, l, i, &e));
    else e = launch_phase(cuda, l, i);
    if (e == CU_SUCCESS && cuda->waits) e = cuda->api.cuStreamSynchronize(cuda->stream);
    if (e != CU_SUCCESS) fail_launch(cuda, l->taken, i, e);
  }
}
