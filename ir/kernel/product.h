/* A kernel function with one dot, seen as a batch of matrix products: which dims are rows, columns,
   summed, and how the work is cut. `select` decides the cut and writes it as attributes; the code
   generator reads it back from them. Both use product_of and product_plan, so that they cannot
   disagree.

   The side `b` owns the lane dim: the dim of the result that runs over vector lanes (normally the
   innermost one in storage). `a` is the other operand: its elements are broadcast. Within each list
   of dims the last one is the inner one: rows of a tile run along the inner m dim, lanes along the
   inner n dim; the others are walked around them. */
#ifndef SHARDC_PRODUCT_H
#define SHARDC_PRODUCT_H
#include "ir/ir.h"

typedef struct ProductDim {
  Str dim;
  int64_t size;
  int64_t a, b, r; /* strides in elements of both operands and of the first result; 0: it lacks the
                      dim */
} ProductDim;

typedef struct ProductDims {
  int count;
  ProductDim dim[MAX_RANK];
  int64_t inner, outer; /* size of the last one (1 if none), number of elements of all others */
} ProductDims;

/* That bulk copies bring and take (gemm_gpu.h). */
enum { PRODUCT_ELEMENTS = 2, PRODUCT_RESULTS = 2 };

typedef struct Product {
  OpId dot;
  ValueId value;         /* the dot's result */
  ValueId sum;           /* b summed over k, a result of its own; NO_VALUE: none */
  ValueId columns;       /* a value of the epilogue, summed over m; NO_VALUE: none */
  uint32_t arg_a, arg_b; /* which arguments the sides are */
  Elem elem_a, elem_b;   /* in memory */
  Elem compute;          /* of the factors: what is in memory may be cast to it on the way in */
  bool codes;            /* both operands are codes (codes.h), and u8 in memory */
  int results;           /* without sums */
  int elements;          /* other arguments that have one for each row and column: how many, and */
  uint32_t element[PRODUCT_ELEMENTS]; /* .. which the first ones are */
  ProductDims batch, m, n, k;
  Str place; /* attribute `skips`: a dim of which many rows are zeros; NULL: none */
  int nzero;
  Str zero[MAX_RANK * 2]; /* dims that stay at index 0: of size 1, or run through by an inner
                             neighbour (ir/kernel/nest.h) */
} Product;

/* The sum is of a value with the dims of the dot's result, over all those of one operand, and keeps
   all those of the other one. */
bool product_sums_rows(const Fn *k, const Op *dot, const Op *sum);

/* How many values that are no results the epilogue has for each sum: elements that it reads, and
   the value that columns sum. */
static inline int product_others(const Product *product) {
  return product->elements + (product->columns != NO_VALUE);
}

/* lanes: f32 lanes of the machine's vectors */
Product product_of(const Fn *kernel, int lanes);

/* The cut. Ranges [0, total) are cut into `blocks` of nearly equal length, block i being
   [i * total / blocks, (i + 1) * total / blocks). */
enum ProductTile {               /* entries of attribute tile */
                   TILE_ROWS,    /* rows of a register tile at most */
                   TILE_VECTORS, /* vectors of a row of it at most */
                   TILE_K_OUTER, /* blocks of the outer k dims */
                   TILE_K_INNER, /* blocks of the inner k dim, 1 unless outer k has as many blocks
                                    as elements */
                   TILE_BATCH,   /* blocks of batches; the number of chunks is the product of these
                                    three */
                   TILE_ROW,     /* blocks of row tiles */
                   TILE_COLUMN,  /* blocks of panels */
                   TILE_PACK_A,  /* PACK_TILES: a is copied into [tile][k][row] first; PACK_ROWS:
                                    into [tile][row][k]; + PACK_SHARED: once for all chunks, in a
                                    phase of its own, else by each chunk */
                   TILE_PACK_B,  /* 1: b is copied into panels first; + PACK_SHARED as for a */
                   TILE_DEPTH, /* neighbours along the inner k dim that are multiplied at once: one
                                  step of k. DEPTH_PAIRS: two of bf16 are one factor; DEPTH_AMX:
                                  enough pairs to fill rows of AMX tiles */
                   TILE_COUNT
};

enum { PACK_NOT, PACK_TILES, PACK_ROWS, PACK_SHARED = 4 };
enum { DEPTH_PAIRS = 2, DEPTH_AMX = 32, AMX_ROWS = 16 }; /* rows of a AMX tile */

typedef struct ProductPlan {
  int64_t tile[TILE_COUNT];
  int lanes;
  int64_t pitch;              /* factors between packed rows of a: an odd number of cache lines */
  int64_t words;              /* factors (32 bits) of one step of k */
  int64_t steps;              /* of the inner k dim, the last one perhaps not full */
  int64_t vectors_inner;      /* vectors of one inner n row, the last one perhaps partly empty */
  int64_t vectors, panels;    /* of all of n */
  int64_t width, wide;        /* the first `wide` panels have width + 1 vectors, the rest width */
  int64_t tiles_inner, tiles; /* row tiles of one inner m column, of all of m */
  int64_t height,
      high; /* the first `high` tiles of a column have height + 1 rows, the rest height */
  int64_t chunks;
  int64_t k_outer_max, k_inner_max; /* longest block of each, the inner one in steps */
  int64_t tiles_max, panels_max;    /* longest block of each */
  int64_t a_bytes, b_bytes,
      c_bytes, /* scratch: packed a of a row block, one panel of b, tiles of partial results */
      s_bytes, /* sums of the panels of a chunk */
      e_bytes; /* if it skips: a list of the row tiles of a chunk */
  bool rows_a, shared, shared_b; /* what TILE_PACK_A and TILE_PACK_B say */
  int64_t groups, groups_b;      /* if shared: chunks of tiles, or of steps or panels of b, that are
                                    copied together, of each batch and block of k */
  int64_t columns_b;             /* .. blocks of panels, each of groups_b groups of steps */
  int64_t chunks_a, pack_chunks; /* number of all of a, of a and b */
  int64_t block_floats, block_b; /* .. of a batch's block of k in the workspace, of a and b */
  int64_t at_b, w_bytes;         /* bytes of workspace before b's copy, of all, else 0 */
} ProductPlan;

/* Whether panels of b are packed slice by slice into two buffers in turn: one n dim, contiguous
   (with AMX tiles: or k so), and one k dim. */
bool product_sliced(const Product *p, const int64_t tile[TILE_COUNT]);
/* Whether AMX tiles read a in place: whole tiles and steps of bf16. */
bool product_amx_in_place(const Product *p, const int64_t tile[TILE_COUNT]);
/* Whether a cut of depth DEPTH_AMX can be made: at most 2 x 2 registers of sums, packed rows. */
bool product_amx_fits(const Product *p, const int64_t tile[TILE_COUNT]);
/* Whether b is copied for all chunks row by row of its panels, in the order of memory; else panel
   by panel. */
bool product_rows_b(const Product *p);
/* Whether rows of a are read as they are: neighbours along k are contiguous. */
bool product_a_in_order(const Product *product);
/* Room for addresses that are `lines` cache lines apart in a cache of `sets` sets, half of it for
   other data. */
int64_t product_room(int64_t lines, int64_t sets, int64_t ways);
enum { FIRST_SETS = 64, FIRST_WAYS = 8 }; /* of first-level caches */
/* Whether this many rows of a, one after the other in memory, map to so few sets of the first-level
   cache that they evict each other if lines of as many others are fetched at the same time. */
bool product_rows_evict(const Product *product, int64_t rows);
/* Whether a is read in place, element by element; b, by whole vectors. */
bool product_a_readable(const Product *product, const int64_t tile[TILE_COUNT]);
bool product_b_readable(const Product *product, int lanes);
/* Whether the target of m has kernels with that cut (product_fits.c). Nothing is believed about it.
 */
bool product_fits(const Module *m, const Product *product, const int64_t tile[TILE_COUNT]);
ProductPlan product_plan(const Product *p, int lanes, const int64_t tile[TILE_COUNT]);
/* Rows of tiles, and vectors of panels, before that one. */
int64_t product_rows_before(const Product *product, const ProductPlan *plan, int64_t tile);
int64_t product_vectors_before(const ProductPlan *plan, int64_t panel);
#endif
