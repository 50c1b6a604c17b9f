/* Stand-in for libcuda.so.1: modules, functions, launches. Code must be PTX text; other formats
   that a driver takes are refused as code for another GPU. Reports of the machine go to stderr,
   once, and the context is lost, as after a fault on a GPU. Must not: launch a kernel that a driver
   would refuse.
 */
#include "cuda_standin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLAIN_SHARED = 48 << 10, MOST_THREADS = 1024 };

/* ---- modules ---- */

/* PTX ISA 7.x belongs to CUDA 11.x, 8.0 to 8.5 to 12.0 to 12.5, then one less than the minor. */
static bool driver_knows(const char *text) {
  const char *at = strstr(text, ".version");
  int major = 0, minor = 0, cuda = driver->version / 1000, of = driver->version % 1000 / 10;
  if (!at || sscanf(at + 8, "%d.%d", &major, &minor) != 2) return true; /* the parser says it */
  int newest = cuda == 12 && of > 5 ? of - 1 : of;
  return major < cuda - 4 || (major == cuda - 4 && minor <= newest);
}

static void tell(char *log, size_t room, const char *text) {
  if (log && room) snprintf(log, room, "%s", text);
}

static CUresult load(CUmodule *out, const void *image, char *log, size_t room) {
  CUcontext c = standin_context();
  char why[1024] = "";
  if (!c || !c->machine) return CU_INVALID_CONTEXT;
  if (c->sticky) return c->sticky;
  CUresult e = standin_unsafe();
  if (!e) e = standin_told("cuModuleLoadDataEx");
  if (e) return e;
  const unsigned char *head = image;
  if (!memcmp(head, "\177ELF", 4) || (head[0] == 0x50 && head[1] == 0xed))
    return CU_NO_BINARY_FOR_GPU;
  if (!driver_knows(image)) return CU_UNSUPPORTED_PTX_VERSION;
  CUmodule m = calloc(1, sizeof *m);
  if (!m) return CU_OUT_OF_MEMORY;
  m->context = c, m->module = ptx_parse(c->machine, image, why, sizeof why);
  if (m->module) return *out = m, CU_SUCCESS;
  if (driver->log) fprintf(stderr, "stand-in GPU: %s\n", why);
  tell(log, room, why), free(m);
  return CU_INVALID_PTX;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, int *option,
                                   void **value) {
  char *log = NULL;
  size_t room = 0;
  for (unsigned i = 0; i < n; i++) {
    if (option[i] == CU_JIT_ERROR_LOG) log = value[i];
    if (option[i] == CU_JIT_ERROR_LOG_BYTES) room = (size_t)(uintptr_t)value[i];
  }
  standin_enter();
  return standin_leave(load(out, image, log, room));
}

EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image) {
  return cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}

EXPORT CUresult cuModuleUnload(CUmodule m) {
  standin_enter();
  CUresult e = standin_flush_all(m->context);
  for (CUfunction f = m->functions, next; f; f = next) next = f->next, free(f->name), free(f);
  ptx_module_free(m->module), free(m);
  return standin_leave(e);
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name) {
  PtxEntry e;
  if (!ptx_entry(m->module, name, &e)) return CU_NOT_FOUND;
  standin_enter();
  for (CUfunction f = m->functions; f; f = f->next)
    if (!strcmp(f->name, name)) return *out = f, standin_leave(CU_SUCCESS);
  CUfunction f = calloc(1, sizeof *f);
  if (!f || !(f->name = strdup(name))) return free(f), standin_leave(CU_OUT_OF_MEMORY);
  f->module = m, f->shared = PLAIN_SHARED, f->next = m->functions, m->functions = f;
  *out = f;
  return standin_leave(CU_SUCCESS);
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *bytes, CUmodule m, const char *name) {
  uint64_t where;
  int64_t n;
  if (!ptx_variable(m->module, name, &where, &n)) return CU_NOT_FOUND;
  if (at) *at = where;
  if (bytes) *bytes = (size_t)n;
  return CU_SUCCESS;
}

/* ---- libraries: modules under another name ---- */

EXPORT CUresult cuLibraryLoadData(CUmodule *out, const void *code, int *jit, void **values,
                                  unsigned n, int *option, void **more, unsigned nmore) {
  (void)option, (void)more, (void)nmore;
  return cuModuleLoadDataEx(out, code, n, jit, values);
}
EXPORT CUresult cuLibraryGetKernel(CUfunction *out, CUmodule m, const char *name) {
  return cuModuleGetFunction(out, m, name);
}
EXPORT CUresult cuLibraryUnload(CUmodule m) { return cuModuleUnload(m); }
EXPORT CUresult cuKernelGetFunction(CUfunction *out, CUfunction kernel) {
  *out = kernel;
  return CU_SUCCESS;
}

/* ---- attributes ---- */

EXPORT CUresult cuFuncSetAttribute(CUfunction f, int attribute, int value) {
  PtxEntry e = {0};
  if (attribute != CU_FUNC_SHARED) return CU_SUCCESS;
  ptx_entry(f->module->module, f->name, &e);
  if (value < 0 || value + e.static_shared > driver->shared) return CU_INVALID_VALUE;
  f->shared = value;
  return CU_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction f) {
  PtxEntry e = {0};
  ptx_entry(f->module->module, f->name, &e);
  *value = attribute == 0   ? e.max_threads ? (int)e.max_threads : MOST_THREADS
           : attribute == 1 ? (int)e.static_shared
           : attribute == 4 ? 32 /* registers: nobody knows */
           : attribute == 8 ? f->shared
                            : 0;
  return CU_SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int threads,
                                                            size_t shared) {
  int by_threads = threads > 0 ? 2048 / threads : 0;
  int by_shared = shared ? (int)((size_t)driver->shared / shared) : by_threads;
  (void)f;
  *n = by_threads < by_shared ? by_threads : by_shared;
  return CU_SUCCESS;
}

/* ---- tensor maps ---- */

/* The machine copies elements of 8 and 16 bits in swizzled rows of 128 bytes. */
EXPORT CUresult cuTensorMapEncodeTiled(CuTensorMap *out, int type, unsigned rank, void *at,
                                       const uint64_t *size, const uint64_t *stride,
                                       const uint32_t *box, const uint32_t *step, int interleave,
                                       int swizzle, int l2, int fill) {
  PtxTensor t = {.at = (uint64_t)(uintptr_t)at, .rank = (int)rank};
  t.element_bytes = type == CU_TENSOR_BYTE ? 1 : 2;
  if (!out || rank < 1 || rank > PTX_TENSOR_RANK || l2 < 0 || l2 > 3) return CU_INVALID_VALUE;
  bool known = (type == CU_TENSOR_HALF || type == CU_TENSOR_BYTE) &&
               interleave == CU_TENSOR_WHOLE && swizzle == CU_TENSOR_SWIZZLE_128 &&
               fill == CU_TENSOR_WHOLE;
  for (unsigned i = 0; i < rank; i++) {
    t.size[i] = size[i], t.box[i] = box[i], known &= step[i] == 1;
    if (i) t.stride[i - 1] = stride[i - 1];
  }
  if (!known) return CU_NOT_SUPPORTED;
  const char *wrong = ptx_tensor_map(out, &t);
  if (wrong && driver->log) fprintf(stderr, "stand-in GPU: %s\n", wrong);
  return wrong ? CU_INVALID_VALUE : CU_SUCCESS;
}

/* ---- launches ---- */

CUresult standin_launch(CUcontext c, const PtxLaunch *l, CUfunction f) {
  char why[4096] = "";
  if (driver->log)
    fprintf(stderr, "stand-in GPU: %s, %u CTAs of %u threads\n", l->entry, l->grid[0], l->block[0]);
  if (ptx_launch(f->module->module, l, why, sizeof why)) return CU_SUCCESS;
  fprintf(stderr, "stand-in GPU %d: %s\n", c->number, why);
  if (strstr(why, "aligned")) return CU_MISALIGNED;
  return strstr(why, "bounds") ? CU_ILLEGAL_ADDRESS : CU_LAUNCH_FAILED;
}

static CUresult check(CUfunction f, const PtxLaunch *l, const PtxEntry *e) {
  uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
  if (!l->grid[0] || !l->grid[1] || !l->grid[2] || !threads) return CU_INVALID_VALUE;
  if (l->grid[1] > 65535 || l->grid[2] > 65535 || l->grid[0] > 2147483647u) return CU_INVALID_VALUE;
  if (threads > MOST_THREADS || (e->max_threads && threads > e->max_threads))
    return CU_INVALID_VALUE;
  if (l->shared > (uint32_t)f->shared) return CU_INVALID_VALUE;
  return l->shared + e->static_shared > driver->shared ? CU_OUT_OF_RESOURCES : CU_SUCCESS;
}

/* The values that `params` points to, laid out as the entry needs them. */
static CUresult launch(CUfunction f, PtxLaunch l, CUstream stream, void **params, void **extra) {
  PtxEntry e;
  CUstream s = standin_stream(stream);
  if (!s || !f) return CU_INVALID_HANDLE;
  if (extra) return CU_NOT_SUPPORTED;
  if (!ptx_entry(f->module->module, f->name, &e)) return CU_INVALID_HANDLE;
  CUresult r = check(f, &l, &e);
  if (r) return r;
  if (e.nparams && !params) return CU_INVALID_VALUE;
  char *block = calloc(1, (size_t)e.params_bytes + 1);
  if (!block) return CU_OUT_OF_MEMORY;
  for (int i = 0; i < e.nparams; i++) {
    int offset, bytes;
    if (ptx_param(f->module->module, f->name, i, &offset, &bytes))
      memcpy(block + offset, params[i], (size_t)bytes);
  }
  l.entry = f->name, l.params = block, l.params_bytes = e.params_bytes;
  Op op = {.kind = OP_LAUNCH, .launch = {f, l}};
  return standin_enqueue(s, &op);
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared, CUstream s, void **params,
                               void **extra) {
  PtxLaunch l = {.grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared = shared};
  standin_enter();
  return standin_leave(launch(f, l, s, params, extra));
}

typedef struct LaunchAttribute { /* CUlaunchAttribute */
  int what, pad;
  char value[64];
} LaunchAttribute;

typedef struct LaunchConfig { /* CUlaunchConfig */
  unsigned grid[3], block[3], shared;
  CUstream stream;
  const LaunchAttribute *attributes;
  unsigned n;
} LaunchConfig;

enum { PRIORITY = 8 }; /* CU_LAUNCH_ATTRIBUTE_PRIORITY: kernels are one after the other anyway */

EXPORT CUresult cuLaunchKernelEx(const LaunchConfig *x, CUfunction f, void **params, void **extra) {
  for (unsigned i = 0; i < x->n; i++) /* clusters and their kind */
    if (x->attributes[i].what != PRIORITY) return CU_NOT_SUPPORTED;
  return cuLaunchKernel(f, x->grid[0], x->grid[1], x->grid[2], x->block[0], x->block[1],
                        x->block[2], x->shared, x->stream, params, extra);
}
