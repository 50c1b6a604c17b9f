/* A driver of CUDA that does nothing, for the ranks of a world that have no GPU: loaded by
   SHARDC_LIBCUDA=libidle.so, a rank starts, answers what the runtime asks all ranks, and takes no
   time; its results are zero. IDLE_SM and IDLE_SHARED describe its device, so that all ranks run
   the same program. The functions of this file return something; all others of cuda_api.def are in
   idle_rest.c. Must not: be asked for results. */
#include "runtime/device/cuda/cuda.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { MULTIPROCESSORS = 132, L2 = 50 << 20, VERSION = 13000, MEMORY_LOG = 40 };

static int told(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}

/* An address or a handle that nobody reads. */
static uintptr_t next_address(uint64_t bytes) {
  static atomic_uintptr_t next = (uintptr_t)1 << MEMORY_LOG;
  return atomic_fetch_add(&next, (bytes | 1023) + 1);
}

/* name, value of the result, its type, the arguments after it */
#define GIVES(name, type, value, ...)                                                              \
  EXPORT CUresult name(type *out __VA_ARGS__) {                                                    \
    *out = (type)(value);                                                                          \
    return CU_SUCCESS;                                                                             \
  }
#pragma GCC diagnostic ignored "-Wunused-parameter"
GIVES(cuDriverGetVersion, int, VERSION)
GIVES(cuDeviceGetCount, int, 1)
GIVES(cuDeviceGet, CUdevice, 0, , int number)
GIVES(cuDeviceTotalMem_v2, size_t, (size_t)1 << MEMORY_LOG, , CUdevice device)
GIVES(cuDevicePrimaryCtxRetain, CUcontext, next_address(1), , CUdevice device)
GIVES(cuMemAlloc_v2, CUdeviceptr, next_address(bytes), , size_t bytes)
GIVES(cuStreamCreate, CUstream, next_address(1), , unsigned flags)
GIVES(cuEventCreate, CUevent, next_address(1), , unsigned flags)
GIVES(cuEventElapsedTime, float, 0, , CUevent from, CUevent to)
GIVES(cuModuleGetFunction, CUfunction, next_address(1), , CUmodule module, const char *name)
GIVES(cuModuleLoadDataEx, CUmodule, next_address(1), , const void *image, unsigned n, int *option,
      void **value)
GIVES(cuGraphInstantiateWithFlags, CUgraphExec, next_address(1), , CUgraph graph,
      unsigned long long flags)

EXPORT CUresult cuDeviceGetName(char *name, int n, CUdevice device) {
  snprintf(name, (size_t)n, "none");
  return CU_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  int sm = told("IDLE_SM", 90);
  *value = attribute == CU_MAJOR             ? sm / 10
           : attribute == CU_MINOR           ? sm % 10
           : attribute == CU_SHARED_LIMIT    ? told("IDLE_SHARED", 227 << 10)
           : attribute == CU_MULTIPROCESSORS ? MULTIPROCESSORS
           : attribute == CU_L2_BYTES        ? L2
                                             : 0;
  return CU_SUCCESS;
}

EXPORT CUresult cuStreamEndCapture(CUstream s, CUgraph *graph) {
  *graph = (CUgraph)next_address(1);
  return CU_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *have, size_t *all) {
  *have = *all = (size_t)1 << MEMORY_LOG;
  return CU_SUCCESS;
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
  memset(to, 0, bytes);
  return CU_SUCCESS;
}

EXPORT CUresult cuLaunchHostFunc(CUstream s, void (*f)(void *), void *data) {
  f(data);
  return CU_SUCCESS;
}
