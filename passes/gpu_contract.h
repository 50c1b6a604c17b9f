/* Inside of family contract's cuts on GPUs: what is fixed for a kernel, and which cuts can be.

   A cut is the first numbers of attribute tile (ir/gemm.h): rows, columns and k of a CTA's tile,
   rows and columns of a warp's, stages, splits. How operands are copied and how results leave
   follows from the kernel alone. */
#ifndef SHARDC_GPU_CONTRACT_H
#define SHARDC_GPU_CONTRACT_H
#include "ir/gemm.h"
#include "tune.h"

typedef struct GpuProduct {
  const Module *m;
  Product p;
  GemmMath math;
  int64_t limit;             /* bytes of shared memory of a CTA */
  int64_t fixed[GEMM_COUNT]; /* the numbers of tile that no cut chooses */
} GpuProduct;

GpuProduct gpu_product_of(const Module *m, const Fn *k);
GemmPlan gpu_product_plan(const GpuProduct *x, const Cut *c);
bool gpu_product_fits(const GpuProduct *x, const Cut *c);
/* Registers that ptxas needs for a thread without spilling, estimated from above. */
int64_t gpu_product_registers(const GpuProduct *x, const GemmPlan *g);
#endif
