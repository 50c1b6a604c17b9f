/* Inside of the contract family: the parts of one kernel share this. See contract.c for the whole.
 */
#ifndef SHARDC_CONTRACT_H
#define SHARDC_CONTRACT_H
#include "nontemporal.h"
#include "tile.h"
#include "ir/kernel/product.h"

enum { BESIDE = 3 }; /* buffers, other than the first result, that are prefetched: AdamW has two */

typedef struct Contract {
  Emit *e;
  const Fn *k;
  Product product;
  ProductPlan plan;
  LLVMTypeRef f32, vector, ptr, i64, nothing;
  bool pairs;           /* operands are pairs of bf16 (contract_operand.c) */
  bool amx;             /* AMX tiles multiply them (contract_amx.c) */
  bool double_buffered; /* the next panel of b is packed slice by slice, one per row tile, into a
                   second buffer */
  /* .. inside the micro-kernel (contract_interleave.c), else before each row tile */
  bool interleaved;
  bool prefetch;           /* the next panel of b is prefetched */
  bool prefetch_copy;      /* .. in the copy for all chunks */
  bool prefetch_a;         /* the next tile's rows of a are prefetched */
  int64_t prefetch_lines;  /* lines of b that a round (AMX tiles: a step) fetches */
  int64_t prefetch_period; /* rounds in which they are the same ones */
  bool pipelined;  /* AMX tiles: a tile's epilogue is done while the next tile is computed */
  bool direct;     /* the only result is the dot itself: the micro-kernel may store it */
  int64_t out_row; /* bytes between rows of the first result; 0: its lanes are not contiguous */
  Elem out;        /* its element type */
  /* its bit, if it is written with non-temporal stores where its vectors are aligned */
  uint64_t nontemporal;
  uint64_t zeros;       /* the same of empty tiles: bits of several results */
  LLVMTypeRef a_memory; /* elements of a as the micro-kernel finds them: f32 if they are packed */
  uint32_t first;       /* the result of the product's dims that comes first */
  /* other buffers with its layout, so that a tile's rows can be fetched: results, then operands of
     the epilogue; numbers of buffers, arguments first */
  uint32_t beside[BESIDE];
  int nbeside, nresults; /* all, and how many of them are results */
  LLVMValueRef micro[2][2], pack_a, pack_b[2], pack_across,
      sums[2], /* functions made so far: [one row more][one vector more] */
      seek;    /* contract_skip.c */
  LLVMTypeRef seek_type;
} Contract;

/* One block of k: outer indexes from o0 to o1 in flat order, for each of them `length` steps of the
   inner dim (tile depth elements each). half: i64, 1 if the last step is not full; NULL where all
   steps of the product are. */
typedef struct KBlock {
  LLVMValueRef o0, o1, start, length, half;
} KBlock;

/* ---- addresses (contract_address.c) ---- */
typedef enum ProductSide { SIDE_A, SIDE_B, SIDE_R } ProductSide;
int64_t contract_inner_stride(const ProductDims *dims, ProductSide s); /* 0 if there are no dims */
/* offset in elements of flat index `flat` over the first n dims of dims; constant 0 where n is 0 */
LLVMValueRef contract_offset(Emit *e, const ProductDims *dims, int n, LLVMValueRef flat,
                             ProductSide s);
/* index of dim `at` of the first n dims at flat index `flat` */
LLVMValueRef contract_index(Emit *e, const ProductDims *dims, int n, int at, LLVMValueRef flat);
LLVMTypeRef contract_memory(Emit *e, Elem elem);

/* row tile t: its first row within the inner m dim, its number of rows, the offset of its first
 * element */
LLVMValueRef contract_tile_row(Contract *c, LLVMValueRef t);
LLVMValueRef contract_tile_rows(Contract *c, LLVMValueRef t);
LLVMValueRef contract_tile_outer(Contract *c,
                                 LLVMValueRef t); /* flat index over the outer m dims */
LLVMValueRef contract_tile_offset(Contract *c, LLVMValueRef t, ProductSide s);

/* ---- what to fetch while a tile is computed (contract_prefetch.c) ---- */
void contract_plan_prefetch(Contract *c); /* sets double_buffered, prefetch.., out_row, direct */
int64_t contract_prefetch_lanes(
    const Contract *c); /* where panels are not double_buffered: of one row tile */
/* One round of the micro-kernel: fetches its part of the slice at `at`, and moves that address;
   round: of the present row or lane, from 0. */
void contract_prefetch(Contract *c, LLVMValueRef *at, LLVMValueRef *round);
void contract_prefetch_amx(Contract *c, LLVMValueRef i); /* step i of AMX tiles */
/* Steps of k [from, to) that are packed with row tile i of n, of `length` */
Range contract_slice(Contract *c, LLVMValueRef i, LLVMValueRef n, LLVMValueRef length);

/* ---- copying b during products (contract_interleave.c) ---- */
void contract_plan_interleave(Contract *c); /* sets interleaved; after contract_plan_prefetch */
/* Packs step i of a slice that begins at src to dst */
void contract_interleave(Contract *c, int vectors, LLVMValueRef src, LLVMValueRef dst,
                         LLVMValueRef i);

/* ---- results that no cache holds (contract_nontemporal.c) ---- */
/* Sets nontemporal and zeros; after contract_plan_prefetch */
void contract_plan_nontemporal(Contract *c);
/* i1: the vector at this address of the result, and those around it, are aligned */
LLVMValueRef contract_aligned(Contract *c, LLVMValueRef address);
/* i1: those of all these results are; NULL: there are none */
LLVMValueRef contract_all_aligned(Contract *c, uint64_t results);

/* ---- parts ---- */
/* The micro-kernel: C[rows][vectors] of TILE_VECTORS vectors a row (+)= A B over a block of k. Its
   arguments: */
enum {
  MICRO_A,        /* rows of a, packed or in place */
  MICRO_B,        /* panel of b, packed or in place */
  MICRO_C,        /* sums between blocks of k, in scratch */
  MICRO_O0,       /* the KBlock: first outer index of k, .. */
  MICRO_O1,       /* .. the one after the last, .. */
  MICRO_LENGTH,   /* .. steps of the inner dim for each */
  MICRO_FROM,     /* AMX tiles, where the outer k index is one: steps of this call; */
  MICRO_TO,       /* the first call of a tile is from 0, the last one to LENGTH */
  MICRO_HALF,     /* the KBlock's half */
  MICRO_MORE,     /* != 0: adds to the contents of C */
  MICRO_PREFETCH, /* slice of b to prefetch */
  MICRO_SLICE,    /* slice of b to pack .. (only if interleaved) */
  MICRO_PLACE,    /* .. to this address .. */
  MICRO_PACKS,    /* .. that many steps of it */
  MICRO_OUT,      /* where the tile's result goes */
  MICRO_BESIDE,   /* where other results go, and operands of the epilogue are */
  MICRO_DIRECT = MICRO_BESIDE + BESIDE, /* 1: the result goes to OUT at once; 0: into C */
  MICRO_NEXT,                           /* a of the next tile */
  MICRO_ARGS
};
enum { MICRO_ROUND = 4 }; /* steps of k that the loop does at a time */
LLVMValueRef contract_micro(Contract *c, int rows, int vectors);
LLVMTypeRef contract_micro_type(Contract *c);
/* The same for AMX tiles, and the code around all calls of it in a phase */
LLVMValueRef contract_amx(Contract *c, int vectors);
void contract_amx_begin(Contract *c);
void contract_amx_end(Contract *c);

static inline LLVMTypeRef contract_vector(LLVMTypeRef type, int n) {
  return n > 1 ? LLVMVectorType(type, (unsigned)n) : type;
}

/* Factors of side s: n neighbours along lanes or rows at one step of k; n steps of one of them,
   where k is contiguous. half: the step's second element does not exist. */
LLVMValueRef contract_operand(Contract *c, ProductSide s, LLVMValueRef address, int n,
                              LLVMValueRef mask, bool half);
LLVMValueRef contract_run(Contract *c, ProductSide s, LLVMValueRef address, int n);
/* n neighbours in memory as f32 */
LLVMValueRef contract_load(Contract *c, Elem elem, LLVMValueRef address, int n, LLVMValueRef mask);
LLVMValueRef contract_multiply(Contract *c, LLVMValueRef a, LLVMValueRef b, LLVMValueRef sum);

/* b's panel of vectors v0 .. v0 + vectors - 1 at k block x, from src, into dst[k][vectors * lanes];
 * steps of inner k in part */
void contract_pack_b(Contract *c, int wide, LLVMValueRef src, LLVMValueRef dst, LLVMValueRef v0,
                     const KBlock *x, Range part);
/* The same for some panels, into consecutive places, row by row in the layout of b. Where its lanes
 * are contiguous */
void contract_pack_across(Contract *c, LLVMValueRef src, LLVMValueRef dst, const KBlock *x,
                          Range panels, Range part);
/* offset of the packed panel that begins with vector v0, where all are kept */
LLVMValueRef contract_packed_panel(Contract *c, LLVMValueRef v0, const KBlock *x);
/* a's row tiles t0 .. t1 - 1 at k block x, from src, into dst[tile][k][TILE_ROWS], or
 * [tile][row][k]
 */
void contract_pack_a(Contract *c, LLVMValueRef src, LLVMValueRef dst, LLVMValueRef t0,
                     LLVMValueRef t1, const KBlock *x);
/* one of them, where k is not contiguous, for AMX tiles */
void contract_pack_squares(Contract *c, LLVMValueRef src, LLVMValueRef dst, LLVMValueRef rows,
                           const KBlock *x);
/* offset of packed tile n of the chunk */
LLVMValueRef contract_packed_tile(Contract *c, LLVMValueRef n, const KBlock *x);
typedef struct TileAt { /* where a register tile is, for the epilogue */
  LLVMValueRef batch, m_outer, row0, rows, v0, values;
  LLVMValueRef first; /* rows before it are done; NULL: 0 */
  bool zero;          /* all results are 0 */
  int vectors;
} TileAt;
/* The rows of a row tile, vectors from v0; values are not set. */
TileAt contract_tile_at(Contract *c, LLVMValueRef batch, LLVMValueRef tile, LLVMValueRef v0,
                        int vectors);
void contract_epilogue(Contract *c, const TileAt *place);
/* Are all results 0 where the product is? Then the operands of an empty tile need not be read. */
bool contract_zero_epilogue(const Contract *c);
/* Vector v of the first row of the tile, which may lack rows: `m_outer` and `row0` are not read
 * then */
Point contract_point(Contract *c, const TileAt *place, int v);
/* Adds a packed panel of b to the tile's values, over the block x of k; the last block stores the
 * sums */
void contract_sums(Contract *c, int wide, LLVMValueRef panel, const TileAt *place, const KBlock *x,
                   LLVMValueRef more, LLVMValueRef last);
#endif
