/* Inside of family contract on GPUs: the parts of one kernel share this. See gemm.c for the whole.
 */
#ifndef SHARDC_NVPTX_GEMM_H
#define SHARDC_NVPTX_GEMM_H
#include "load.h"

enum { GEMM_BLOCKS = 16 }; /* of 16 rows or columns, of a warp's tile */

typedef struct GemmFragments { /* of one operand */
  const GemmSide *side;
  bool is_b;
  int n;                    /* blocks of 16 rows or columns in a warp's tile */
  int64_t at;               /* of the side in a stage */
  LLVMValueRef row, turned; /* byte offset of the lane's row; its piece, turned */
  LLVMValueRef single;      /* byte offset of the lane's word of a block */
} GemmFragments;

typedef struct GemmStep { /* a lane's words of one step of k: a's blocks, then b's */
  LLVMValueRef word[GEMM_BLOCKS][4];
} GemmStep;

typedef struct Gemm {
  Emit *e;
  const Fn *k;
  Warp w;
  Product p;
  GemmPlan g;
  LLVMValueRef batch, split, m0, n0; /* i32: what is made */
  LLVMValueRef from, to;             /* i32: its tiles of k */
  LLVMValueRef warp_m, warp_n;       /* i32: first row and column of the warp in the tile */
  TileLoad a, b;
  Registers sums;
  GemmFragments fa, fb; /* of tensor cores */
  Registers columns;    /* sums of the thread's columns */
  Registers ahead;      /* words of the first step of the tile of k that follows */
  struct GemmCodes *codes;
  LLVMValueRef share, first, end; /* i32: equal shares: the CTA's; its tiles of k, of all tiles */
  LLVMValueRef tile_end;          /* .. where those of the tile of the result end */
  LLVMValueRef room,
      row;        /* i32: bulk copies of results: of the warp: its part of shared memory, its
                             first row in the tile */
  Registers come; /* i32: the parity of its mbarrier for elements that come so */
} Gemm;

/* ---- the whole (gemm.c) ---- */
void gemm_place(Gemm *x, LLVMValueRef tile); /* i32: number of a tile of a range of k of a batch */

/* ---- all of a phase (gemm_wgmma.c) ---- */
void gemm_wgmma(Gemm *x);

/* ---- bulk tensor copies of it (gemm_bulk.c) ---- */
static inline bool gemm_is_bulk(const Gemm *x) { return x->g.tile[GEMM_BY] != BY_THREADS; }
void gemm_bulk_begin(Gemm *x); /* by all threads: mbarriers of the ring */
LLVMValueRef gemm_bulk_full(Gemm *x, LLVMValueRef stage); /* of a stage, by its number */
LLVMValueRef gemm_bulk_empty(Gemm *x, LLVMValueRef stage);
/* i32: coordinate i of a map for a number of its kind. */
LLVMValueRef gemm_bulk_at(Gemm *x, const GemmMap *map, int i, LLVMValueRef number);
/* By one thread: tile kt of k of both operands to the stage of that number, at that offset. */
void gemm_bulk_bring(Gemm *x, LLVMValueRef kt, LLVMValueRef number, LLVMValueRef stage);

/* ---- results that leave by bulk tensor copies (gemm_leave.c) ---- */
static inline bool gemm_leaves(const Gemm *x) { return x->g.tile[GEMM_BY] == BY_BULK_ALL; }
static inline bool gemm_has_elements(const Gemm *x) { return gemm_leaves(x) && x->p.elements; }
/* i32: the mbarrier of a warp, by the number of its first row in a tile. */
LLVMValueRef gemm_leave_signal(Gemm *x, LLVMValueRef row);
/* By all lanes of a warp. room: i32: its part of shared memory; row: i32: its first row in a tile
 */
void gemm_leave_start(Gemm *x, LLVMValueRef room, LLVMValueRef row);
void gemm_leave_bring(Gemm *x); /* begins the copies of elements of its rows of a tile */
void gemm_leave_tile(Gemm *x);  /* its rows of the tile */
void gemm_leave_end(Gemm *x);   /* after the last tile */

/* ---- equal shares of it (gemm_shares.c) ---- */
void gemm_shares_take(Gemm *x);  /* by all threads, before a barrier: the CTA takes a share; */
void gemm_shares_begin(Gemm *x); /* after it: which one */
Loop gemm_shares_tiles(Gemm *x); /* over the tiles of the result that it has a part of */
void gemm_shares_leave(Gemm *x); /* sums of a tile that another CTA begins: to the workspace */
void gemm_shares_add(Gemm *x);   /* to the sums of a tile those of CTAs that continue it */

/* ---- codes of 8 bits for it (gemm_codes.c) ---- */
void gemm_codes_start(Gemm *x, LLVMValueRef row); /* row: i32: the warp's first one in a tile */
void gemm_codes_aim(Gemm *x);                     /* before the first block of a tile */
/* One step of a block's sums: descriptors of both operands; add: else the sums begin. */
void gemm_codes_step(Gemm *x, LLVMValueRef a, LLVMValueRef b, LLVMValueRef add);
void gemm_codes_scales(Gemm *x, LLVMValueRef kt); /* reads those of tile kt of k */
void gemm_codes_wait(Gemm *x);                    /* until the block's sums are complete */
void gemm_codes_add(Gemm *x);                     /* adds them, times their scales, to the sums */

/* ---- sums (gemm_fma.c, gemm_mma.c) ---- */
void gemm_fma(Gemm *x, LLVMValueRef stage);
void gemm_mma_setup(Gemm *x);
int gemm_mma_steps(const Gemm *x); /* of a tile of k */
void gemm_mma_read(Gemm *x, LLVMValueRef stage, int s, GemmStep *out);
void gemm_mma_multiply(Gemm *x, GemmStep *step);
void gemm_mma_keep(Gemm *x, const GemmStep *step); /* into `ahead` */
void gemm_mma_kept(Gemm *x, GemmStep *out);        /* out of it */
/* Writes sums of the CTA as f32 rows to shared memory: of each warp the rows of this pass. */
void gemm_fma_out(Gemm *x, int pass);
void gemm_mma_out(Gemm *x, int pass);

/* ---- row tiles without a filled place (gemm_seek.c) ---- */
void gemm_seek(Gemm *x);               /* the phase before the product */
LLVMValueRef gemm_seek_found(Gemm *x); /* i1: the tile placed has rows that are not zero */

/* ---- results (gemm_out.c) ---- */
LLVMValueRef gemm_out_row_of(Gemm *x, LLVMValueRef row, int pass); /* of a pass, in the tile */
LLVMValueRef
gemm_out_row(Gemm *x); /* i32: where the warp's rows of a pass begin in shared memory */
/* The position of the bytes at `at`, in the block-th 32 columns. */
LLVMValueRef gemm_out_turn(Gemm *x, LLVMValueRef at, LLVMValueRef block);
/* Sums of neighbouring columns that a thread takes at once, the first one of element (m, n); at:
   where each four of them are in shared memory. */
typedef struct GemmOut {
  LLVMValueRef m, n, sum, at[2];
  LLVMValueRef element[PRODUCT_ELEMENTS]; /* words of the product's elements; NULL: in memory */
} GemmOut;
/* Their results, as they are computed with; the values that columns sum, or NULL. */
LLVMValueRef gemm_out_values(Gemm *x, const GemmOut *out, LLVMValueRef value[MAX_RESULTS]);
/* The same stored, if element (m, n) exists. */
void gemm_out_put(Gemm *x, const GemmOut *out);
/* The same of several, GEMM_OUT_MOST at most, whose operands are read before the first result is
   stored: a store would hold up loads that may be of its bytes. */
void gemm_out_put_all(Gemm *x, const GemmOut *out, int count);
void gemm_results(Gemm *x, int pass);
/* The dims of p from their flat number, an i32. */
void gemm_set_dims(Gemm *x, Point *p, const ProductDims *d, LLVMValueRef flat);
void gemm_reduce(Gemm *x); /* the second phase of several splits */

/* ---- sums of columns: of values that results leave in the places of the product's sums
   (gemm_columns.c) ---- */
bool gemm_has_columns(const Gemm *x);
LLVMValueRef gemm_column_term(Gemm *x, const Point *p); /* the values at a point, f32 */
void gemm_column_leave(Gemm *x, const GemmOut *out, LLVMValueRef term);
void gemm_columns_start(Gemm *x);         /* before the first pass of a tile */
void gemm_columns_add(Gemm *x, int pass); /* by all threads, after results of a pass */
void gemm_columns_end(Gemm *x);           /* after the last one: the tile's line */
/* wgmma: eight rows of a warp in its room, some columns of the tile */
void gemm_columns_of_warp(Gemm *x, LLVMValueRef room, int columns);
/* .. from `first` on after 16 rows, by all warps of a warpgroup, whose rooms begin at `rooms` */
void gemm_columns_of_group(Gemm *x, LLVMValueRef group, LLVMValueRef rooms, int first, int columns);
/* with bulk copies: a warp adds up its rows of a panel, whose columns begin at `first`; sum: of
   both rows of a thread, two columns of each eight; then all warps of a warpgroup */
enum { GEMM_PANEL_SUMS = WGMMA_LEAVE / 4 };
void gemm_columns_of_panel(Gemm *x, LLVMValueRef sum[GEMM_PANEL_SUMS], int first);
void gemm_columns_of_panels(Gemm *x);
void gemm_columns_join(Gemm *x, int phase); /* the phase that adds up the lines */
#endif
