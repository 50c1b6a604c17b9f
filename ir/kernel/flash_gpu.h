/* How attention is cut on a GPU. `select` decides and writes the numbers as attribute tile; the
   emitters read them back. Both ask flash_gpu_plan, so that they cannot disagree.

   Every phase over the scores has rows, that stay in a CTA (16 for each warp), and columns, that
   pass by in blocks: queries and keys where results belong to queries (attention, dq), keys and
   queries where they belong to keys (dk, dv). Tiles in shared memory are rows of the head's width,
   padded to whole fragments. Wide heads give several slices of the results to several CTAs. */
#ifndef SHARDC_FLASH_GPU_H
#define SHARDC_FLASH_GPU_H
#include "attention_shape.h"
#include "gemm_gpu.h"

enum FlashGpuTile {                    /* entries of attribute tile */
                    FLASH_GPU_ROWS,    /* of a CTA, 16 for each warp */
                    FLASH_GPU_COLUMNS, /* of a block of scores */
                    FLASH_GPU_SLICES,  /* of the width of results */
                    FLASH_GPU_COPY,    /* 1 + bits: which operands come in pieces of 16 bytes */
                    FLASH_GPU_COUNT
};
enum { FLASH_COPY_Q = 1, FLASH_COPY_K = 2, FLASH_COPY_V = 4, FLASH_COPY_DY = 8 };

typedef enum FlashPhase { FLASH_FORWARD, FLASH_ROWSUMS, FLASH_DKV, FLASH_DQ } FlashPhase;

typedef struct FlashGpuPlan {
  int64_t tile[FLASH_GPU_COUNT];
  bool mma;             /* fragments of 16-bit elements; else multiply-adds of f32 */
  int64_t width;        /* of the head, padded */
  int64_t slice;        /* of it, in the results of one CTA */
  int64_t queries;      /* padded to whole blocks of rows and columns */
  int64_t heads;        /* shared times group */
  GemmSide row, column; /* tiles in shared memory */
  int64_t scores;       /* bytes of the probabilities of all warps in shared memory; 0: they stay in
                     registers */
  int phases;
  FlashPhase phase[3];
  int64_t chunks[3], threads[3], shared[3];
  int64_t workspace; /* log-sum-exp and row sums of y dy, of each query */
} FlashGpuPlan;

FlashGpuPlan flash_gpu_plan(const Flash *flash, Elem elem, const int64_t tile[FLASH_GPU_COUNT]);
/* How many tiles of rows and of columns a phase holds (of columns: two stages of each). */
int flash_gpu_tiles(FlashPhase p, bool columns);
#endif
