/* Inside of family contract on GPUs: the parts of one kernel share this. See gemm.c for the whole.
 */
#ifndef SHARDC_NVPTX_GEMM_H
#define SHARDC_NVPTX_GEMM_H
#include "load.h"

typedef struct Gemm {
  Emit *e;
  const Fn *k;
  Warp w;
  Product p;
  GemmPlan g;
  LLVMValueRef batch, split, m0, n0; /* i32: what this CTA does */
  LLVMValueRef from, to;             /* i32: its tiles of k */
  LLVMValueRef warp_m, warp_n;       /* i32: first row and column of the warp in the tile */
  TileLoad a, b;
  Registers sums;
} Gemm;

/* ---- sums (gemm_fma.c, gemm_mma.c) ---- */
int gemm_sums(const Gemm *x); /* of a thread */
void gemm_multiply(Gemm *x, LLVMValueRef stage);
void gemm_fma(Gemm *x, LLVMValueRef stage);
void gemm_mma(Gemm *x, LLVMValueRef stage);
/* Writes sums of the CTA as f32 rows to shared memory: of each warp the rows of this pass. */
void gemm_fma_out(Gemm *x, int pass);
void gemm_mma_out(Gemm *x, int pass);

/* ---- results (gemm_out.c) ---- */
LLVMValueRef
gemm_out_row(Gemm *x); /* i32: where the warp's rows of a pass begin in shared memory */
void gemm_results(Gemm *x, int pass);
void gemm_reduce(Gemm *x); /* the second phase of several splits */
#endif
