/* How a dot is cut on a GPU. `select` decides and writes the numbers as attribute tile; the
   emitters read them back. Both use gemm_plan, so that they cannot disagree.

   Rows m, columns n and the summed k of product.h are each one flat range in this file, whatever
   dims they consist of. A CTA computes a tile of the result, its warps parts of that tile; tiles of
   both operands pass through a ring of stages in shared memory, and the sums leave through the same
   memory, in as many passes as needed. With several splits each CTA sums one range of k into the
   workspace and a second phase adds the ranges in their order.

   With wgmma two warpgroups multiply one tile and a third one copies: a CTA stays on its
   multiprocessor and takes tile after tile, so that operands of the next one arrive while sums of
   this one leave, through memory of their own. With equal shares (GEMM_SHARES) each CTA has as
   many tiles of k as any other, or one more, wherever tiles of the result end: the CTA that begins
   a tile of the result adds the sums of those that continue it. */
#ifndef SHARDC_GEMM_GPU_H
#define SHARDC_GEMM_GPU_H
#include "gpu_lines.h"
#include "product.h"
#include "tensor_map.h"

enum GemmTile {              /* entries of attribute tile */
                GEMM_M,      /* rows of a CTA's tile */
                GEMM_N,      /* columns of it */
                GEMM_K,      /* elements of k in one stage */
                GEMM_WARP_M, /* rows of a warp's tile; with wgmma, of a warpgroup's */
                GEMM_WARP_N, /* columns of it */
                GEMM_STAGES, /* of the ring */
                GEMM_SPLITS, /* ranges of k, or GEMM_SHARES */
                GEMM_BY,     /* GemmBy: who brings operands to shared memory, who takes results */
                GEMM_COPY_A, /* GemmCopy of both operands */
                GEMM_COPY_B,
                GEMM_LANES, /* neighbouring columns of a thread in the epilogue */
                GEMM_COUNT
};

/* In place of a number of splits. */
enum { GEMM_SHARES = 1 << 16 };

/* How an operand is copied to shared memory. Along k: rows are m or n and k is contiguous; along
   mn: the other way round. Single: element by element, for any layout; async: 16 bytes at once;
   wide: four f32 at once, rounded to 16 bits on the way. */
enum GemmCopy {
  COPY_SINGLE_K = 1,
  COPY_SINGLE_MN,
  COPY_ASYNC_K,
  COPY_ASYNC_MN,
  COPY_WIDE_K,
  COPY_WIDE_MN
};

/* Threads, each some pieces of 16 bytes; or, for wgmma, bulk tensor copies, begun by one thread; or
   these for operands and for results. */
enum GemmBy { BY_THREADS = 1, BY_BULK, BY_BULK_ALL };

typedef enum GemmMath {
  GEMM_FMA,  /* f32 multiply-adds */
  GEMM_TF32, /* m16n8k8 of f32 rounded to tf32 */
  GEMM_MMA,  /* m16n8k16 of bf16 or f16 */
  GEMM_WGMMA /* m64nNk16 of the same, or m64nNk32 of codes of 8 bits, by four warps, both operands
                in shared memory */
} GemmMath;

/* For wgmma. Between WGMMA_NARROW and WGMMA_MOST columns, places of other results would take
   registers that the sums need. */
enum {
  WGMMA_ROWS = 64,   /* of a warpgroup's tile */
  WGMMA_LEAST = 128, /* columns of a tile: multiples of WGMMA_STEP to WGMMA_NARROW; */
  WGMMA_NARROW = 224,
  WGMMA_MOST = 256, /* or this many */
  WGMMA_STEP = 8,
  WGMMA_K = 64,          /* of a stage: the elements of 16 bits of a row of a panel */
  WGMMA_PANEL = 128,     /* bytes of these, or codes */
  WGMMA_STEP_BYTES = 32, /* of k in one instruction */
  WGMMA_PIECE = 16,      /* bytes that are copied, and change places, together */
  WGMMA_PIECES = WGMMA_PANEL / WGMMA_PIECE,
  WGMMA_GROUPS = 2,     /* warpgroups that multiply */
  WGMMA_THREADS = 128,  /* of a warpgroup */
  WGMMA_COPY_ROWS = 16, /* that it copies at once */
  WGMMA_OUT = 128,      /* columns of sums that leave at once, by threads; */
  WGMMA_LEAVE = 64,     /* .. by a bulk copy: a panel of WGMMA_LEAVE_ROWS of a warp */
  WGMMA_LEAVE_ROWS = 16,
  WGMMA_STAGES = 6 /* at most: two barriers of the CTA's 16 for each */
};

enum { SIGNAL_BYTES = 8 };        /* of an mbarrier, two for each stage filled by bulk copies */
enum { GEMM_SEEK_THREADS = 256 }; /* of a CTA that looks for rows that are not zero */

extern const char *const gemm_variant[]; /* by GemmMath: what attribute variant says */

typedef struct GemmSide { /* an operand's tile in shared memory */
  bool along_k, async, wide;
  bool swizzled; /* 16-byte pieces of a row change places: piece ^ (row's number) */
  bool panels;   /* rows are in panels of 128 bytes, one after the other, the last one perhaps
                    partly empty (wgmma) */
  bool passes;   /* through registers: what memory has is not what shared memory gets */
  bool far;      /* elements of a piece are not equally far apart in memory */
  bool held;     /* .. in which it stays while the tile before it is multiplied; otherwise its
                    pieces are stored one after the other */
  int elem;      /* bytes of an element */
  int64_t rows, columns, pitch, bytes; /* columns are contiguous; pitch: bytes between rows */
} GemmSide;

typedef struct GemmPlan {
  int64_t tile[GEMM_COUNT];
  GemmMath math;
  int64_t m, n, k, batches; /* of the whole product */
  int64_t tiles_m, tiles_n, tiles_k;
  int64_t splits; /* ranges of k */
  int64_t range;  /* tiles of k in one split; the last may have fewer */
  GemmSide a, b;
  int64_t stage;     /* bytes of one stage */
  int64_t out_pitch; /* bytes between rows of the sums in the epilogue */
  int64_t out_rows;  /* rows of a warp that go out at once, through the ring's room */
  int passes;        /* until all have */
  int warps_m, warps_n;
  int phases; /* the product, and the sum of its splits, or of its lines */
  int64_t chunks[2], threads[2], shared[2];
  int64_t seek_ctas; /* of a phase before them: a word for each row tile, at seek_at of the
                        workspace; 0: there is none */
  int64_t seek_at, workspace;
  SumLines lines;      /* sums of columns: of the rows of a tile, with wgmma of a warpgroup */
  int64_t signals_at;  /* bulk copies: offset of the ring's mbarriers in shared memory */
  int64_t rooms;       /* of a warp, for panels that leave by bulk copies */
  int64_t elements_at; /* mbarriers of panels of other arguments, one for each warp: offset */
  int64_t sums_at;     /* sums of columns with bulk copies: a line of f32 for each warp: offset */
  int64_t share_at;    /* equal shares: offset of the CTA's number in shared memory; */
  int64_t pieces_at;   /* of sums that other CTAs add, one tile for each, in the workspace */
} GemmPlan;

/* Elements of k in a stage of wgmma. */
static inline int64_t gemm_depth(const Product *product) {
  return product->codes ? WGMMA_PANEL : WGMMA_K;
}
/* Registers that a thread of a CTA of that many threads may have. */
int64_t gemm_registers_most(int64_t threads);
/* .. and those that the assembler needs without spilling, estimated from above. */
int64_t gemm_registers(const GemmPlan *plan);
/* .. of them for an operand that is held. */
int64_t gemm_held(const GemmSide *side, int64_t threads);
/* Which operands are held: those for which there are registers. */
void gemm_hold(GemmPlan *plan);
/* How many results a thread of a warpgroup computes before it stores the first one. */
enum { GEMM_OUT_MOST = 8 };
int gemm_out_at_once(const Fn *k, const Product *product, const GemmPlan *plan);
typedef struct SidePieces { /* of 16 bytes: how threads divide those of a tile */
  int64_t parts;            /* of a row, where threads are fewer than its pieces */
  int64_t across;           /* pieces of a part */
  int64_t apart;            /* parts from piece to piece of a thread */
  int64_t items;            /* pieces of a thread */
} SidePieces;
/* More are not unrolled, and not held. */
enum { PIECES_UNROLLED = 4 };
SidePieces gemm_pieces_of(const GemmSide *side, int64_t threads);
/* ctas: that warpgroups have at most (multiprocessors of the target). */
GemmPlan gemm_plan(const Product *product, GemmMath math, const int64_t tile[GEMM_COUNT],
                   int64_t ctas);
/* Panels of an operand of wgmma, and bytes of each. Rows are copied WGMMA_COPY_ROWS at a time, so
   a panel has room for whole groups of them. */
int64_t gemm_panels(const GemmSide *side);
int64_t gemm_panel_bytes(const GemmSide *side);
static inline bool gemm_is_shared(const GemmPlan *plan) {
  return plan->tile[GEMM_SPLITS] == GEMM_SHARES;
}
static inline bool gemm_is_split(const GemmPlan *plan) { return plan->splits > 1; }
static inline int64_t gemm_tiles(const GemmPlan *plan) { /* of the result, of one range of k */
  return plan->batches * plan->tiles_m * plan->tiles_n * plan->splits;
}
/* How bulk copies see an operand, or panels. Coordinate i is a range of k, of rows or columns, or
   of batches; of panels one of columns, rows, or batches: number / below, modulo its size unless
   it is the outermost of its kind. */
enum { OF_K, OF_MN, OF_BATCH, OF_N = OF_K };
typedef struct GemmMap {
  TensorMap map;
  int of[MAP_RANK];
  int64_t below[MAP_RANK];
  bool outermost[MAP_RANK];
} GemmMap;
/* false: more dims than a map has, or none in a direction */
bool gemm_map(const Product *product, const GemmPlan *plan, bool side_b, GemmMap *out);
/* The same of a result of the kernel or an argument with its dims, of 16 bits, by its buffer, in
   panels of WGMMA_LEAVE columns. The last one of a tile ends where the tile does, and may begin
   within the panel before it. */
bool gemm_panel_map(const Fn *k, const Product *product, const GemmPlan *plan, uint32_t buffer,
                    GemmMap *out);
static inline int64_t gemm_panels_across(const GemmPlan *plan) {
  return (plan->tile[GEMM_N] + WGMMA_LEAVE - 1) / WGMMA_LEAVE;
}
/* Bytes that one tile of k of an operand brings. */
int64_t gemm_bulk_bytes(const GemmSide *side);
/* The cut is one for wgmma: warps of mma have no room for such tiles. */
bool gemm_of_warpgroups(const int64_t *cut);
/* Every `unit` elements of the dims, from a multiple of `unit` on, are *stride apart in that
   operand, like those of one dim. */
bool gemm_flat(const ProductDims *dims, bool side_b, int64_t unit, int64_t *stride);
/* The first of the dims up to `last` that are like one dim of that size and stride in that operand.
 */
int gemm_range(const ProductDims *dims, bool side_b, int last, int64_t *size, int64_t *stride);
/* Whether all 16-byte pieces along that direction are contiguous in memory and on multiples of 16
   bytes, if the operand itself begins on one. */
bool gemm_pieces(const Product *product, bool side_b, bool along_k);
#endif
