/* Consequences of the cut of a GPU kernel. Rules of pass `select` choose variant, tile and, for
   some families, threads; CTAs, shared memory and workspace follow from these by gpu_plan, for the
   rules as for the verifier. It also says for which cuts no kernel exists: vectors that the
   buffer's layout does not allow, a number of threads that is no number of warps, output left
   unwritten. */
#ifndef SHARDC_GPU_PLAN_H
#define SHARDC_GPU_PLAN_H
#include "flash_gpu.h"
#include "gpu_lanes.h"
#include "gpu_tile.h"

enum { GPU_PHASES = FLASH_PHASES };

typedef struct GpuPlan {
  const char *fault; /* why there is no such kernel; NULL: there is, and the rest is told */
  int phases;        /* 0: not known, for a fault */
  int64_t chunks[GPU_PHASES], threads[GPU_PHASES], shared[GPU_PHASES];
  int64_t workspace;
} GpuPlan;

/* A cut whose plan is being made: what the families' files have in common (gpu_plan.c). */
typedef struct GpuCut {
  const Module *m;
  const Fn *k;
  const char *variant;
  const int64_t *tile, *threads; /* threads: as many as the family has phases */
  int ntile, nthreads;
  GpuPlan p;
} GpuCut;

enum { GPU_WARP = 32, GPU_UNROLL_MOST = 8 };

bool gpu_power_within(int64_t n, int64_t low, int64_t high);
bool gpu_is_variant(const GpuCut *cut, const char *name);
/* Says what is wrong; true if nothing was so far, and `good`. */
bool gpu_need(GpuCut *cut, bool good, const char *fault);
bool gpu_need_tile(GpuCut *cut, int n);
bool gpu_need_threads(GpuCut *cut, int phases);
bool gpu_need_lanes(GpuCut *cut, int64_t lanes, const Nest *n, uint32_t nroots,
                    const ValueId *root);

/* From the attributes family, variant, tile, threads (if the family leaves them to the rule),
   align; for scans also from whether there is a workspace. No value is trusted. */
GpuPlan gpu_plan(const Module *m, const Fn *k);

/* The most CTAs of a kernel by wgmma, which stays on as many multiprocessors until it ends
   (attribute spare). */
int64_t gpu_ctas(const Module *m, const Fn *k);
/* Does the kernel leave messages no multiprocessor (target fact channels), so that they wait? */
bool gpu_fills(const Module *m, const Fn *k);

/* A kernel of family row or column: its iteration space, and the ops evaluated in it. */
typedef struct GpuRows {
  Reductions r;
  Nest kept, over;
  ValueId reference, root[3 * MAX_RESULTS];
  uint32_t nroots;
  const int *level;
  int passes;
  bool packs; /* a result has bytes of bits along rows */
  bool once;  /* rows are summed once, and no result has their dims: other CTAs may help */
} GpuRows;

GpuRows gpu_rows_of(const Module *m, const Fn *k, const ReducedSpace *space);
/* Bytes that the scans of one row leave in memory; whether that is the workspace. */
int64_t gpu_scan_row(const Fn *k, const Reductions *r);
bool gpu_scan_in_workspace(const Fn *k, const Reductions *r);
bool gpu_scatter_searches(const Fn *k); /* its index is the same for a whole warp */

/* A dot: what is fixed for a kernel, and which cuts can be. A cut is the first numbers of attribute
   tile (gemm_gpu.h): rows, columns and k of a CTA's tile, rows and columns of a warp's, stages,
   splits. How operands are copied and how results leave follows from the kernel alone. */
typedef struct GpuProduct {
  const Module *m;
  const Fn *k;
  Product p;
  GemmMath math;
  int64_t limit;             /* bytes of shared memory of a CTA */
  int64_t fixed[GEMM_COUNT]; /* the numbers of tile that no cut chooses */
} GpuProduct;

GpuProduct gpu_product_of(const Module *m, const Fn *k, GemmMath math, int64_t limit);
GemmPlan gpu_product_plan(const GpuProduct *product, const int64_t *cut);
bool gpu_product_fits(const GpuProduct *product, const int64_t *cut);

/* Attention: a cut is rows and columns of a block of scores. */
FlashGpuPlan gpu_flash_plan(const Module *m, const Fn *k, const Flash *f, const int64_t *cut);
bool gpu_flash_fits(const Module *m, const Fn *k, const int64_t *cut, int64_t limit);
int64_t gpu_flash_registers(const Flash *f, const FlashGpuPlan *p); /* sums of a lane */
enum { FLASH_OTHERS = 96 };                                         /* .. all others, estimated */
/* Do registers hold pieces of that operand, and of another one, while the tiles before them are
   multiplied? Sums of gradients leave none. */
bool gpu_flash_holds(const Flash *f, const FlashGpuPlan *p, const GemmSide *side);
/* Are there operands of 16 bits whose rows are not made of pieces of 16 bytes? */
bool gpu_flash_by_element(const Flash *f, const FlashGpuPlan *p);
#endif
