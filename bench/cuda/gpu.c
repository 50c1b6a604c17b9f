/* The GPU of the bundle's parts: the runtime's loader of the driver, a stream, two events. */
#include "bundle.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOG = 8 << 10, MOST = 64 };

bool gpu_ok(Gpu *g, CUresult e, const char *what) {
  char name[300];
  if (e == CU_SUCCESS) return true;
  g->last = e;
  rt_cuda_error(&g->api, e, name, sizeof name);
  snprintf(g->why, sizeof g->why, "%s: %s", what, name);
  return false;
}

bool gpu_open(Gpu *g, int number) {
  Fault f = {0};
  *g = (Gpu){0};
  if (!rt_cuda_load(&g->api, &f) || !rt_cuda_device(&g->api, number, &g->device, &f)) {
    snprintf(g->why, sizeof g->why, "%s", f.what);
    return false;
  }
  return gpu_ok(g, g->api.cuDevicePrimaryCtxRetain(&g->context, g->device.handle), "context") &&
         gpu_ok(g, g->api.cuCtxSetCurrent(g->context), "context") &&
         gpu_ok(g, g->api.cuStreamCreate(&g->stream, 1), "stream") &&
         gpu_ok(g, g->api.cuEventCreate(&g->from, 0), "event") &&
         gpu_ok(g, g->api.cuEventCreate(&g->to, 0), "event");
}

bool gpu_load(Gpu *g, const char *ptx, CUmodule *m) {
  char log[LOG] = "";
  int option[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES};
  void *value[] = {log, (void *)(uintptr_t)(LOG - 1)};
  if (gpu_ok(g, g->api.cuModuleLoadDataEx(m, ptx, 2, option, value), "load the code")) return true;
  size_t n = strlen(g->why);
  snprintf(g->why + n, sizeof g->why - n, " %.300s", log);
  return false;
}

static char *content(const char *folder, const char *symbol, const char *end) {
  char name[RT_PATH], path[RT_PATH], *text = NULL;
  size_t n;
  snprintf(name, sizeof name, "%s.%s", symbol, end);
  rt_join(path, folder, name);
  FILE *f = fopen(path, "rb"), *all = f ? open_memstream(&text, &n) : NULL;
  for (int c; all && (c = getc(f)) != EOF;) putc(c, all);
  if (f) fclose(f);
  if (all) fclose(all);
  return text;
}

bool gpu_load_file(Gpu *g, const char *folder, const char *symbol, CUmodule *m) {
  char *code = content(folder, symbol, "cubin"), *text = content(folder, symbol, "ptx");
  bool ok = code && gpu_ok(g, g->api.cuModuleLoadDataEx(m, code, 0, NULL, NULL), "load the code");
  if (!text) snprintf(g->why, sizeof g->why, "its code is missing");
  ok = ok || (text && gpu_load(g, text, m));
  free(code), free(text);
  return ok;
}

bool gpu_function(Gpu *g, CUmodule m, const char *entry, int64_t shared, CUfunction *f) {
  if (!gpu_ok(g, g->api.cuModuleGetFunction(f, m, entry), entry)) return false;
  return shared == 0 ||
         gpu_ok(g, g->api.cuFuncSetAttribute(*f, CU_FUNC_SHARED, (int)shared), "shared memory");
}

_Static_assert((int)MAP_RANK == (int)RT_MAP_RANK, "maps of both have as many dims");
_Static_assert((int)KERNEL_MAPS == (int)RT_KERNEL_MAPS, "kernels of both have as many maps");

GpuMaps gpu_maps_of(const Module *m, const Fn *k) {
  TensorMap map[KERNEL_MAPS];
  GpuMaps maps = {.n = kernel_maps(m, k, map)};
  for (int i = 0; i < maps.n; i++) {
    rt_tensor_map *to = &maps.at[i];
    to->buffer = (int)map[i].buffer, to->elem_bytes = (int)elem_bytes(map[i].elem);
    to->rank = map[i].rank;
    memcpy(to->size, map[i].size, sizeof to->size);
    memcpy(to->stride, map[i].stride, sizeof to->stride);
    memcpy(to->box, map[i].box, sizeof to->box);
  }
  return maps;
}

bool gpu_launch(Gpu *g, CUfunction f, int64_t ctas, int threads, int64_t shared, CUdeviceptr *at,
                int n, const GpuMaps *maps) {
  void *argument[MOST + RT_KERNEL_MAPS];
  CuTensorMap map[RT_KERNEL_MAPS];
  for (int i = 0; i < n && i < MOST; i++) argument[i] = &at[i];
  for (int i = 0; maps && i < maps->n; i++) {
    const rt_tensor_map *of = &maps->at[i];
    if (!gpu_ok(g, rt_cuda_map(&g->api, of, at[of->buffer], &map[i]), "encode a tensor map"))
      return false;
    argument[n + i] = &map[i];
  }
  return gpu_ok(g,
                g->api.cuLaunchKernel(f, (unsigned)ctas, 1, 1, (unsigned)threads, 1, 1,
                                      (unsigned)shared, g->stream, argument, NULL),
                "launch");
}

bool gpu_wait(Gpu *g) { return gpu_ok(g, g->api.cuStreamSynchronize(g->stream), "run"); }

void gpu_begin(Gpu *g) { g->api.cuEventRecord(g->from, g->stream); }

double gpu_end(Gpu *g) {
  float milliseconds = NAN;
  bool ok = gpu_ok(g, g->api.cuEventRecord(g->to, g->stream), "event") &&
            gpu_ok(g, g->api.cuEventSynchronize(g->to), "run") &&
            gpu_ok(g, g->api.cuEventElapsedTime(&milliseconds, g->from, g->to), "event");
  return ok ? 1e-3 * (double)milliseconds : NAN;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double median(double *x, int n) {
  if (n < 1) return NAN;
  qsort(x, (size_t)n, sizeof *x, ascending);
  return x[n / 2];
}
