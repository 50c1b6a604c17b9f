/* Stand-in for libcuda.so.1: functions of the driver that it does not have. They say so on stderr
   and return CUDA_ERROR_NOT_SUPPORTED, so that a program that calls them is told instead of
   crashing. */
#include "cuda_standin.h"
#include <stdio.h>

#define CU_OTHER(name)                                                                             \
  EXPORT CUresult name(void);                                                                      \
  EXPORT CUresult name(void) {                                                                     \
    fprintf(stderr, "stand-in GPU: %s is not supported\n", #name);                                 \
    return CU_NOT_SUPPORTED;                                                                       \
  }
#include "cuda_other.def"
