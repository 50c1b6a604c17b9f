/* A driver of CUDA that does nothing: every function that the runtime calls, as a weak
   symbol, which a function of idle.c with the same name replaces. */
#include "runtime/device/cuda/cuda.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define CU(name, exported, arguments)                                                              \
  __attribute__((visibility("default"), weak)) CUresult exported arguments { return CU_SUCCESS; }
#define CU_12(name, exported, arguments) CU(name, exported, arguments)
#include "runtime/device/cuda/cuda_api.def"
#undef CU
#undef CU_12
