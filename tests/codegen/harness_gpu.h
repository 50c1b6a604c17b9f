/* Kernels of GPU targets on the PTX machine, for harness.c. */
#ifndef SHARDC_TEST_HARNESS_GPU_H
#define SHARDC_TEST_HARNESS_GPU_H
#include "codegen/codegen.h"
#include "tests/gpu/ptx.h"

typedef struct GpuBuffer {
  char *at; /* host copy */
  int64_t bytes;
  int same;       /* number of an earlier buffer whose bytes it shares; -1: none */
  bool unwritten; /* it gets no bytes: a kernel that reads it fails */
} GpuBuffer;

enum { GPU_PHASES = 8 };
typedef struct GpuProducts { /* by wgmma, of a phase and each warpgroup of its CTAs, in warps */
  uint64_t of[GPU_PHASES][PTX_GROUPS];
} GpuProducts;

/* Runs all phases of kernel k, whose PTX is in `folder`, on copies of the buffers (operands, then
   results), with a workspace that nobody has written; brings the copies back. All checks of the
   machine are on; late: asynchronous copies arrive as late as they may. products: may be NULL.
   False: reported. */
bool gpu_run_kernel(Module *m, const Fn *k, const char *folder, const GpuBuffer *buffer, int n,
                    uint64_t seed, bool late, GpuProducts *products);
#endif
