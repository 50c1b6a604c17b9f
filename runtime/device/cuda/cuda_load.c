/* Finds the CUDA driver and its functions, or reports why they are missing. Functions are looked up
   by cuGetProcAddress with the version whose prototypes are in cuda_api.def, so that a newer driver
   returns the same ones; drivers without it, and stand-ins, export them. Must not: start anything
   on a device. */
#include "cuda.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ASKED = 12000 };

typedef CUresult (*GetAddress)(const char *name, void **at, int version, uint64_t flags,
                               int *status);

static const char *const places[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1",
                                     "/usr/local/nvidia/lib64/libcuda.so.1",
                                     "/run/opengl-driver/lib/libcuda.so.1", "libcuda.so"};

static bool open_at(CudaApi *api, const char *path, char *why, size_t n) {
  api->library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (api->library) snprintf(api->path, sizeof api->path, "%s", path);
  else if (!*why) snprintf(why, n, "%s", dlerror());
  return api->library != NULL;
}

static bool open_library(CudaApi *api, Fault *f) {
  const char *given = getenv("SHARDC_LIBCUDA");
  char why[400] = "";
  if (given && *given) open_at(api, given, why, sizeof why);
  else
    for (size_t i = 0; !api->library && i < sizeof places / sizeof *places; i++)
      open_at(api, places[i], why, sizeof why);
  if (api->library) return true;
  rt_fault(f, 1001, "this executable is for a GPU, and no CUDA driver can be loaded: %s", why);
  return rt_help(f, "install NVIDIA's driver, under WSL that of Windows (it brings libcuda.so.1; "
                    "SHARDC_LIBCUDA=FILE names another place), compile for a CPU with --target "
                    "native, or try it without a GPU: shardc run --emulate");
}

static void *find(const CudaApi *api, GetAddress get, const char *name, const char *exported) {
  void *at = NULL;
  int status = 0;
  if (get && get(name, &at, ASKED, 0, &status) == CU_SUCCESS && at) return at;
  return dlsym(api->library, exported);
}

static bool find_all(CudaApi *api, Fault *f) {
  GetAddress get;
  *(void **)&get = dlsym(api->library, "cuGetProcAddress_v2");
#define CU(name, exported, arguments)                                                              \
  *(void **)&api->name = find(api, get, #name, #exported);                                         \
  if (!api->name) return rt_fault(f, 1004, "the CUDA driver %s has no %s", api->path, #name);
#define CU_12(name, exported, arguments) *(void **)&api->name = find(api, get, #name, #exported);
#include "cuda_api.def"
#undef CU
#undef CU_12
  return true;
}

CUresult rt_cuda_map(const CudaApi *api, const rt_tensor_map *map, CUdeviceptr at,
                     CuTensorMap *out) {
  uint64_t size[RT_MAP_RANK], stride[RT_MAP_RANK];
  uint32_t box[RT_MAP_RANK], step[RT_MAP_RANK];
  int type = map->elem_bytes == 1 ? CU_TENSOR_BYTE : CU_TENSOR_HALF;
  if (!api->cuTensorMapEncodeTiled || map->elem_bytes < 1 || map->elem_bytes > 2)
    return CU_NOT_FOUND;
  for (int i = 0; i < map->rank; i++) {
    size[i] = (uint64_t)map->size[i], box[i] = (uint32_t)map->box[i], step[i] = 1;
    if (i) stride[i - 1] = (uint64_t)map->stride[i];
  }
  return api->cuTensorMapEncodeTiled(out, type, (unsigned)map->rank, (void *)(uintptr_t)at, size,
                                     stride, box, step, CU_TENSOR_WHOLE, CU_TENSOR_SWIZZLE_128,
                                     CU_TENSOR_L2_256, CU_TENSOR_WHOLE);
}

/* ---- what goes wrong ---- */

static const struct Cause {
  CUresult e;
  const char *name;
  int code;
  const char *help;
} causes[] = {
#define CAUSE(result, name, code, help) {result, #name, code, help},
#include "cuda_causes.def"
#undef CAUSE
};

static const struct Cause *cause_of(CUresult e) {
  for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
    if (causes[i].e == e) return &causes[i];
  return NULL;
}

void rt_cuda_error(const CudaApi *api, CUresult e, char *out, size_t n) {
  const char *name = NULL, *text = NULL;
  const struct Cause *cause = cause_of(e);
  api->cuGetErrorName(e, &name), api->cuGetErrorString(e, &text);
  if (!name) name = cause ? cause->name : "CUDA error";
  snprintf(out, n, "%s (%d)%s%s", name, e, text ? ": " : "", text ? text : "");
}

bool rt_cuda_fault(const CudaApi *api, CUresult e, int code, Fault *f, const char *what, ...) {
  const struct Cause *cause = cause_of(e);
  char doing[RT_PATH + 100], why[300];
  va_list args;
  va_start(args, what);
  vsnprintf(doing, sizeof doing, what, args);
  va_end(args);
  rt_cuda_error(api, e, why, sizeof why);
  rt_fault(f, cause ? cause->code : code, "%s: %s", doing, why);
  return cause ? rt_help(f, "%s", cause->help) : false;
}

static bool start(CudaApi *api, Fault *f) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  CUresult e = api->cuInit(0);
  if (e == CU_SUCCESS) e = api->cuDriverGetVersion(&api->version);
  if (e == CU_SUCCESS) return true;
  rt_cuda_fault(api, e, 1001, f,
                e == CU_NO_DEVICE ? "the CUDA driver %s finds no GPU"
                                  : "the CUDA driver %s does not start",
                api->path);
  return e == CU_NO_DEVICE && visible ? rt_help(f, "CUDA_VISIBLE_DEVICES is `%s`", visible) : false;
}

bool rt_cuda_load(CudaApi *api, Fault *f) {
  *api = (CudaApi){0};
  bool ok = open_library(api, f) && find_all(api, f);
  if (!ok && f->code == 1004) rt_help(f, "a driver for CUDA 11.4 or newer has it (470 and up)");
  return ok && start(api, f);
}

bool rt_cuda_device(const CudaApi *api, int number, CudaDevice *device, Fault *f) {
  int count = 0, major = 0, minor = 0;
  *device = (CudaDevice){0};
  CUresult e = api->cuDeviceGetCount(&count);
  if (e == CU_SUCCESS && (count < 1 || number >= count)) {
    rt_fault(f, 1002, count ? "there is no GPU %d: the driver finds %d" : "the driver finds no GPU",
             number, count);
    return rt_help(f, "devices count from 0; CUDA_VISIBLE_DEVICES hides some");
  }
  if (e == CU_SUCCESS) e = api->cuDeviceGet(&device->handle, number);
  if (e == CU_SUCCESS) e = api->cuDeviceGetName(device->name, sizeof device->name, device->handle);
  if (e == CU_SUCCESS) e = api->cuDeviceTotalMem(&device->bytes, device->handle);
  const struct {
    int *to, attribute;
  } facts[] = {{&major, CU_MAJOR},
               {&minor, CU_MINOR},
               {&device->multiprocessors, CU_MULTIPROCESSORS},
               {&device->shared_limit, CU_SHARED_LIMIT},
               {&device->l2_bytes, CU_L2_BYTES}};
  for (size_t i = 0; e == CU_SUCCESS && i < sizeof facts / sizeof *facts; i++)
    e = api->cuDeviceGetAttribute(facts[i].to, facts[i].attribute, device->handle);
  device->sm = major * 10 + minor;
  return e == CU_SUCCESS ||
         rt_cuda_fault(api, e, 1008, f, "the driver does not tell about GPU %d", number);
}
