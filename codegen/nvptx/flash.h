/* Inside of families attention and attention_grad on GPUs. See flash.c for the whole. */
#ifndef SHARDC_NVPTX_FLASH_H
#define SHARDC_NVPTX_FLASH_H
#include "codegen/attention_head.h"
#include "ir/kernel/flash_list.h"
#include "load.h"

typedef struct FlashGpu {
  Emit *e;
  Flash f;
  LLVMValueRef shared, group; /* flat indexes of the head being worked on */
  Elem elem;                  /* of q, k, v */
  FlashGpuPlan g;
  Warp w;
  FlashPhase phase;
  bool rows_are_keys;
  int64_t rows, columns; /* there are */
  LLVMValueRef number;   /* i32: of the tile of rows, in the order in which they are taken */
  LLVMValueRef head; /* i32: flat number, of queries; where rows are keys, of the group's first */
  LLVMValueRef row0, slice; /* i32: first row of the CTA, first element of its slice of the width */
  TileLoad row[2], column[2]; /* tiles; columns in two stages of all tiles */
  int64_t row_at[2], column_at, stage_bytes, scores_at; /* in shared memory */
  FlashLists lists;                                     /* of the phase */
  LLVMValueRef order, runs;                             /* its tables */
  LLVMValueRef list, unit; /* i32: the CTA's first run, the code of its first unit, -1: none */
} FlashGpu;

enum { FLASH_BLOCK = 8 }; /* columns of a fragment of sums: four numbers per lane */

/* ---- tiles and places (flash_tiles.c) ---- */
FlashGpu flash_new(Emit *e);
AttentionHead flash_head(const FlashGpu *flash_gpu);
Point flash_point(const FlashGpu *flash_gpu);     /* indexes of the head */
void flash_begin(FlashGpu *flash_gpu, int phase); /* the phase, its head, rows and tiles */
void flash_place(FlashGpu *flash_gpu);            /* head and rows of the tile of rows `number` */
int64_t flash_stride(const FlashGpu *flash_gpu, ValueId value, Str dim);
void flash_read_rows(FlashGpu *flash_gpu); /* begins to copy the row tiles */
LLVMValueRef flash_row(FlashGpu *flash_gpu,
                       int half); /* i32: the lane's row of either half of its 16 */
LLVMValueRef flash_column(FlashGpu *flash_gpu, LLVMValueRef c0, int block,
                          int q); /* .. its columns */
ValueId flash_tile_value(const FlashGpu *flash_gpu, bool column, int i,
                         int *bit);                               /* bit: FLASH_COPY_.. */
LLVMValueRef flash_base(FlashGpu *flash_gpu, ValueId v, Str row); /* first element of the head */

/* Result v, from row fragments of the slice times factor (per half of the rows, NULL: 1). */
void flash_put(FlashGpu *flash_gpu, ValueId v, const Registers *sums, const LLVMValueRef factor[2]);
/* Sums of the columns of that gradient, if the kernel makes them: a line of each warp's rows; the
   phase that adds up the lines (flash_columns.c). */
void flash_columns_put(FlashGpu *flash_gpu, ValueId v, const Registers *sums, LLVMValueRef factor);
void flash_columns_join(FlashGpu *flash_gpu, int phase);
LLVMValueRef flash_workspace(FlashGpu *flash_gpu, LLVMValueRef index); /* as f32 in the workspace */
/* i32: index of query q's log-sum-exp (0) or sum of y dy (1) in the workspace of a gradient. */
LLVMValueRef flash_sums(FlashGpu *flash, LLVMValueRef head, LLVMValueRef query, int which);

/* ---- lists of tiles (flash_list.c) ---- */
void flash_list_setup(FlashGpu *flash); /* the phase's tables, if it has lists */
void flash_list_place(
    FlashGpu *flash_gpu); /* rows, slice and head of `number`, in the tables' order */
/* i32: codes of units in the run are less; the code of the first unit of the next one, -1: none */
void flash_list_run(FlashGpu *flash, LLVMValueRef number, LLVMValueRef word[2]);

/* ---- the walk (flash_walk.c) ---- */
/* Walks over the blocks of columns that the mask admits, two stages in turn; `work` gets the first
   column, the stage's offset, whether all scores are admitted. It is not called for a block of
   which the numbers in memory that the mask compares (documents) admit no score. */
typedef struct FlashBlock {
  LLVMValueRef c0, stage, all; /* i32, i32, i1 */
  LLVMValueRef some, sure;     /* i1: a score may be admitted (NULL: it may); `parts` admit all */
  LLVMValueRef head;           /* i32: of the queries */
  int parts; /* of the mask, that are asked where all are admitted: lists know positions alone */
  const ValueId *part;
} FlashBlock;
typedef void FlashWork(FlashGpu *x, const FlashBlock *b, void *with);
void flash_walk(FlashGpu *flash, FlashWork *work, void *with);

/* Its parts: a unit is a tile of columns of one head of queries. */
typedef struct FlashWalk {
  FlashGpu *x;
  int64_t blocks, units; /* of columns; times the heads of a group where rows are keys */
  Registers unit, run;   /* of lists: -1, no unit is left; the number of its run */
  bool reads;            /* the mask compares numbers in memory */
  AttentionReaders lanes;
  const struct Bounds *side; /* of the own rows */
  /* i32: the warpgroup whose rows are the thread's own; NULL: all of the tile are. */
  LLVMValueRef group;
} FlashWalk;

typedef struct FlashUnit {
  LLVMValueRef number, present; /* i32, i1 */
  LLVMValueRef code, run[2];    /* of lists: with its states; the words of its run */
} FlashUnit;
FlashWalk flash_walk_new(FlashGpu *flash, LLVMValueRef group);
/* Whether units without a score for an own row may be passed; i1: this unit has such a score. The
   forward walk passes units only with bulk copies: without them all warps meet barriers of the CTA
   in one order, in which the keys of a unit come before the values of its predecessor. */
bool flash_walk_passes(const FlashWalk *walk);
LLVMValueRef flash_unit_own(FlashWalk *walk, const FlashUnit *unit);
void flash_walk_side(FlashWalk *walk); /* reads the rows' numbers that the mask compares */
FlashUnit flash_unit_first(FlashWalk *walk);
FlashUnit flash_unit_now(FlashWalk *walk);
void flash_walk_run(FlashWalk *walk, FlashUnit *unit); /* reads its words, if there are lists */
FlashUnit flash_unit_next(FlashWalk *walk, const FlashUnit *now);
LLVMValueRef flash_unit_tile(FlashWalk *walk, LLVMValueRef unit); /* i32: which of its columns */
void flash_unit_enter(FlashWalk *walk, LLVMValueRef unit);        /* its head */
LLVMValueRef flash_unit_head(FlashWalk *walk, LLVMValueRef unit); /* i32: of its queries */
FlashBlock flash_unit_block(FlashWalk *walk, const FlashUnit *unit, LLVMValueRef stage);

/* ---- products (flash_product.c) ---- */
/* out = row tile r . column tile c: 16 rows of the warp, all columns of the block */
void flash_scores(FlashGpu *flash, const Registers *out, int r, int c, LLVMValueRef stage);
/* out += p times the slice of column tile c */
void flash_apply(FlashGpu *flash, const Registers *out, const Registers *p, int c,
                 LLVMValueRef stage);
/* The factors of dropout on probabilities i, i + 1, .. of the lane, as many as this: random numbers
   of more at once would fill the registers. Those that are all 0 need none. */
enum { KEPT_AT_ONCE = 4 };
void flash_kept(FlashGpu *flash, const FlashBlock *block, int i, const Registers *p,
                LLVMValueRef factor[KEPT_AT_ONCE]);
/* Scores that the mask or the end of the columns excludes become minus 1e30; others are capped and
   get their bias, and slopes, if there are any, get the slopes of the cap. */
void flash_mask(FlashGpu *flash, const Registers *scores, const Registers *slopes,
                const FlashBlock *block);
/* A score, or a maximum of some, in units of log 2; 2^(that - minus), minus in these units. */
LLVMValueRef flash_units(FlashGpu *flash, LLVMValueRef score);
LLVMValueRef flash_exp2(FlashGpu *flash, LLVMValueRef score, LLVMValueRef minus);
#endif
