/* Tiles of operands on their way into shared memory.

   A tile is `side` (ir/kernel/gemm_gpu.h): `mn` stays in place while a CTA works, `k` advances from
   tile to tile. The place of an element follows from flat indexes over the dims of both. */
#ifndef SHARDC_NVPTX_LOAD_H
#define SHARDC_NVPTX_LOAD_H
#include "ir/kernel/gemm_gpu.h"
#include "warp.h"

enum { LOAD_EACH = 8 };

typedef struct TilePiece {      /* of 16 bytes, that a thread copies */
  LLVMValueRef row, piece;      /* i32: its row in the tile; which of the row it is */
  LLVMValueRef to;              /* i32: its offset in a stage */
  LLVMValueRef offset, present; /* along k: where its mn is; whether it exists, NULL: it does */
  LLVMValueRef mine;            /* i1: the thread copies it; NULL: it does */
} TilePiece;

typedef struct TileLoad {
  /* set by the caller */
  GemmSide side;
  ProductDims mn, k;
  bool is_b;                                    /* which strides of the dims count */
  int64_t mn_extent, k_extent, mn_tile, k_tile; /* elements there are; of a tile */
  Elem memory, shared;                          /* of an element in each of them */
  int threads;
  bool repeats; /* rows and columns that do not exist are the first one again, not zeros: nobody
                     stores what becomes of them, and no test fills registers */
  bool always;  /* a tile that does not exist is written as well, so that no branch is needed */
  LLVMValueRef base, mn0; /* first element of the batch; i32: first mn of the CTA */
  /* set by tile_load_setup */
  bool quiet;                /* asynchronous, by 16 or 4 bytes */
  int each, items;           /* elements of a piece, pieces of a thread */
  int64_t at;                /* offset of the tile in a stage */
  int parts;                 /* of a row, where threads are fewer than its pieces */
  int64_t across;            /* pieces of a part */
  int64_t parts_apart;       /* parts from piece to piece of a thread */
  LLVMValueRef first, piece; /* i32: the thread's first part; which piece of a part it copies */
  TilePiece item[PIECES_UNROLLED];
  LLVMValueRef offset[LOAD_EACH], present[LOAD_EACH]; /* along mn, of whole rows: of each element */
  LLVMValueRef held[PIECES_UNROLLED][4];              /* words between begin and end */
  LLVMValueRef now; /* i1: the tile exists; NULL: it does, or a branch has tested it */
} TileLoad;

/* at: offset of the tile in a stage */
void tile_load_setup(Warp *w, TileLoad *load, int64_t at);
/* Begins to copy tile kt of k into the stage at offset `stage`, and ends the copy: between the two
   is the work that hides it. A tile from `end` on does not exist: nothing is written that is read,
   or (`always`) zeros or the last tile. */
void tile_load_begin(Warp *w, TileLoad *load, LLVMValueRef kt, LLVMValueRef end,
                     LLVMValueRef stage);
void tile_load_end(Warp *w, TileLoad *load, LLVMValueRef stage);

/* Which bits of a row's number a piece's number is turned by. */
LLVMValueRef tile_turn(Warp *w, const GemmSide *side, LLVMValueRef row);
/* i32 index of dim `at` of dims at flat index `flat`; i64 offset in elements of an operand */
LLVMValueRef tile_index(Warp *w, const ProductDims *dims, int at, LLVMValueRef flat);
LLVMValueRef tile_offset(Warp *w, const ProductDims *dims, bool is_b, LLVMValueRef flat);
#endif
