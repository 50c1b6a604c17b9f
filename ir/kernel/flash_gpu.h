/* How attention is cut on a GPU. `select` decides and writes the numbers as attribute tile; the
   emitters read them back. Both ask flash_gpu_plan, so that they cannot disagree.

   Every phase over the scores has rows, which stay in a CTA (16 for each warp), and columns, which
   it reads in blocks, one after the other. Rows are queries where results belong to queries
   (attention, dq), and keys where they belong to keys (dk, dv); columns are the others. Tiles in
   shared memory are rows of the head's width, padded to whole fragments. With wide heads several
   CTAs compute slices of the results.

   With wgmma a CTA has two warpgroups that multiply, with 64 of its 128 rows each, and one that
   copies; it stays on its multiprocessor and computes one tile of rows after another. Columns pass
   through a ring of stages, each of which holds a tile of two operands. */
#ifndef SHARDC_FLASH_GPU_H
#define SHARDC_FLASH_GPU_H
#include "attention_shape.h"
#include "gemm_gpu.h"

enum FlashGpuTile {                    /* entries of attribute tile */
                    FLASH_GPU_ROWS,    /* of a CTA, 16 for each warp */
                    FLASH_GPU_COLUMNS, /* of a block of scores */
                    FLASH_GPU_STAGES,  /* of the ring, with wgmma; 1: mma, fma */
                    FLASH_GPU_SLICES,  /* of the width of results */
                    FLASH_GPU_COPY,    /* 1 + bits: which operands come in pieces of 16 bytes, and
                                          whether these are bulk copies */
                    FLASH_GPU_COUNT
};
enum { FLASH_OPERAND_Q, FLASH_OPERAND_K, FLASH_OPERAND_V, FLASH_OPERAND_DY, FLASH_OPERANDS };
enum {
  FLASH_COPY_Q = 1 << FLASH_OPERAND_Q,
  FLASH_COPY_K = 1 << FLASH_OPERAND_K,
  FLASH_COPY_V = 1 << FLASH_OPERAND_V,
  FLASH_COPY_DY = 1 << FLASH_OPERAND_DY,
  FLASH_COPY_BULK = 1 << FLASH_OPERANDS
};

/* Stages of the ring at least: those that a phase reads while it waits for the next one, whose
   copies are seen to be complete after one more tile is begun; at most, by the barriers of a CTA:
   four of a stage. */
enum { FLASH_STAGES_FORWARD = 2, FLASH_STAGES_GRAD = 3, FLASH_STAGES_MOST = 3 };

typedef enum FlashPhase {
  FLASH_FORWARD,
  FLASH_DQ,
  FLASH_DKV,
  FLASH_JOIN /* of sums of columns */
} FlashPhase;
enum { FLASH_PHASES = 3 }; /* of a kernel, at most */

typedef struct FlashGpuPlan {
  int64_t tile[FLASH_GPU_COUNT];
  bool wgmma;           /* 16-bit elements, by warpgroups */
  bool bulk;            /* by warpgroups, whose operands come by bulk tensor copies */
  bool mma;             /* fragments of 16-bit elements; else multiply-adds of f32 */
  int64_t width;        /* of the head, padded */
  int64_t slice;        /* of it, in the results of one CTA */
  int64_t queries;      /* padded to whole blocks of rows and columns */
  int64_t heads;        /* shared times group */
  GemmSide row, column; /* tiles in shared memory */
  int64_t scores;       /* bytes of the probabilities of all warps in shared memory; 0: they stay in
                     registers */
  int phases;
  FlashPhase phase[FLASH_PHASES];
  int64_t tiles[FLASH_PHASES]; /* of rows, which CTAs of warpgroups take in turn; else one each */
  int64_t chunks[FLASH_PHASES], threads[FLASH_PHASES], shared[FLASH_PHASES];
  int64_t workspace; /* log-sum-exp and row sums of y dy, of each query; lines */
  SumLines lines;    /* sums of columns: one of the 16 rows of each warp */
} FlashGpuPlan;

FlashGpuPlan flash_gpu_plan(const Flash *flash, Elem elem, const int64_t tile[FLASH_GPU_COUNT]);
const char *flash_gpu_variant(const FlashGpuPlan *plan); /* what attribute variant says */
bool flash_gpu_scores(FlashPhase p);                     /* it walks over scores */
/* How many tiles of rows and of columns a phase holds (of columns: two stages of each). */
int flash_gpu_tiles(FlashPhase p, bool columns);
/* Bytes of sums of rows that come with each operand of columns through the ring, after all tiles:
   log-sum-exps with queries, sums of y dy with dy. */
int64_t flash_gpu_sums(const FlashGpuPlan *plan, FlashPhase phase);
/* mbarriers, after these: full and empty of each operand of a stage, rows have come, are left. */
int64_t flash_gpu_signals(const FlashGpuPlan *plan);

/* ---- bulk tensor copies (flash_map.c) ---- */
typedef struct FlashMap {
  TensorMap map;
  Str dim[MAP_RANK];
} FlashMap;
ValueId flash_operand(const Flash *flash, int i);
/* The map of operand i, in boxes of that many rows; false: there is none. */
bool flash_map(const Fn *k, const Flash *flash, int i, int64_t rows, FlashMap *out);
/* Those of a kernel with that tile, by operand. */
int flash_maps(const Fn *k, const int64_t *tile, TensorMap out[KERNEL_MAPS]);
#endif
