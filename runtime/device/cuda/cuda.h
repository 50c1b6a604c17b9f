/* The CUDA driver, found at run time and not linked. Types and numbers as NVIDIA documents
   them for version 12.0 of the driver's interface. */
#ifndef SHARDC_RT_CUDA_H
#define SHARDC_RT_CUDA_H
#include "runtime/base/base.h"
#include "runtime/rt.h"

typedef int CUresult, CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx *CUcontext;
typedef struct CUmod *CUmodule;
typedef struct CUfunc *CUfunction;
typedef struct CUstrm *CUstream;
typedef struct CUevnt *CUevent;
typedef struct CUgrph *CUgraph;
typedef struct CUgrphExec *CUgraphExec;

enum { /* results */
       CU_SUCCESS = 0,
       CU_INVALID_VALUE = 1,
       CU_OUT_OF_MEMORY = 2,
       CU_NO_DEVICE = 100,
       CU_INVALID_IMAGE = 200,
       CU_INVALID_CONTEXT = 201,
       CU_NO_BINARY_FOR_GPU = 209,
       CU_INVALID_PTX = 218,
       CU_UNSUPPORTED_PTX_VERSION = 222,
       CU_NOT_FOUND = 500,
       CU_NOT_READY = 600,
       CU_ILLEGAL_ADDRESS = 700,
       CU_OUT_OF_RESOURCES = 701,
       CU_LAUNCH_FAILED = 719,
       CU_NOT_SUPPORTED = 801
};

enum { /* attributes of a device, of a function; options of the assembler in the driver */
       CU_MULTIPROCESSORS = 16,
       CU_L2_BYTES = 38,
       CU_MAJOR = 75,
       CU_MINOR = 76,
       CU_SHARED_LIMIT = 97,
       CU_FUNC_SHARED = 8,
       CU_JIT_ERROR_LOG = 5,
       CU_JIT_ERROR_LOG_BYTES = 6
};

enum { CU_ON_HOST = 1, CU_ON_DEVICE = 2 }; /* CUmemorytype */

typedef struct CuCopy2D { /* CUDA_MEMCPY2D */
  size_t from_x, from_y;
  int from_kind;
  const void *from_host;
  CUdeviceptr from_device;
  void *from_array;
  size_t from_pitch, to_x, to_y;
  int to_kind;
  void *to_host;
  CUdeviceptr to_device;
  void *to_array;
  size_t to_pitch, bytes, rows;
} CuCopy2D;

typedef struct CuTensorMap { /* CUtensorMap: only the driver knows what the words mean */
  _Alignas(128) uint64_t word[16];
} CuTensorMap;

enum { /* of cuTensorMapEncodeTiled */
       CU_TENSOR_BYTE = 0,
       CU_TENSOR_HALF = 6,  /* any 16 bits: f16, bf16; a copy moves them */
       CU_TENSOR_WHOLE = 0, /* no interleaving; what does not exist is 0 */
       CU_TENSOR_SWIZZLE_128 = 3,
       CU_TENSOR_L2_256 = 3
};

typedef struct CudaApi {
  void *library;
  char path[RT_PATH]; /* what was loaded */
  int version;        /* of the driver: 12040 is 12.4 */
#define CU(name, exported, arguments) CUresult(*name) arguments;
#define CU_12(name, exported, arguments) CU(name, exported, arguments)
#include "cuda_api.def"
#undef CU
#undef CU_12
} CudaApi;

/* Loads the driver: $SHARDC_LIBCUDA, or the places where it is on Linux and under WSL. */
bool rt_cuda_load(CudaApi *api, Fault *f);
/* CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered */
void rt_cuda_error(const CudaApi *api, CUresult e, char *out, size_t n);
/* `what`: why, with the help and the number of cuda_causes.def; `code` is for anything that is
   missing. */
bool rt_cuda_fault(const CudaApi *api, CUresult e, int code, Fault *f, const char *what, ...)
    __attribute__((format(printf, 5, 6)));

typedef struct CudaDevice { /* what a device is */
  CUdevice handle;
  char name[96];
  int sm; /* 80: compute capability 8.0 */
  int multiprocessors, shared_limit, l2_bytes;
  size_t bytes;
} CudaDevice;
/* The map of a tensor of 16-bit elements that begins at this address. */
CUresult rt_cuda_map(const CudaApi *api, const rt_tensor_map *map, CUdeviceptr at,
                     CuTensorMap *out);
bool rt_cuda_device(const CudaApi *api, int number, CudaDevice *device, Fault *f);
#endif
