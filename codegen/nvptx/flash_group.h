/* Attention by warpgroups: who copies and who multiplies, and products by wgmma. See flash_group.c.
   Offsets are i32, in shared memory. */
#ifndef SHARDC_NVPTX_FLASH_GROUP_H
#define SHARDC_NVPTX_FLASH_GROUP_H
#include "flash.h"
#include "warpgroup.h"

typedef struct FlashRing { /* as a multiplying thread sees it */
  FlashGpu *x;
  Registers stage;    /* i32: the one of the unit that is next */
  Registers rows;     /* i32: parity of the next tile of rows, of bulk copies */
  LLVMValueRef group; /* i32: the thread's warpgroup, of those that multiply */
} FlashRing;

/* Work on a tile of rows: all of its units, and results. */
typedef void FlashRows(FlashRing *ring, FlashWalk *walk, void *with);
/* All of a phase: each CTA takes tile after tile; `begin` makes what a thread keeps. */
void flash_groups(FlashGpu *flash, void *begin(FlashGpu *flash), FlashRows *rows);

/* Work on a unit, whose stage is ring->stage (flash_units.c). */
typedef void FlashUnitDo(FlashRing *ring, FlashWalk *walk, FlashUnit *unit, void *with);
typedef struct FlashUnitWork {
  FlashUnitDo *alone;         /* where numbers in memory may leave its products out */
  FlashUnitDo *first, *other; /* of a stretch: last products run during the next unit; first may be
                                 NULL: it is as others */
  void (*last)(FlashRing *ring, void *with); /* ends them */
} FlashUnitWork;
/* All units of a tile of rows that have a score for a row of the thread's warpgroup. */
void flash_tile_units(FlashRing *ring, FlashWalk *walk, const FlashUnitWork *work, void *with);

/* Operand c (0 or 1) of a stage has come; its readers are done with it. */
void flash_ring_meet(FlashRing *ring, LLVMValueRef stage, int c);
void flash_ring_leave(FlashRing *ring, LLVMValueRef stage, int c);
void flash_ring_pass(FlashRing *ring); /* both operands of the next unit, which nobody reads */
void flash_ring_next(FlashRing *ring);
/* Sums of rows of the lane's two columns of a block, that came with operand c of a stage. */
LLVMValueRef flash_ring_sums(FlashGpu *flash, LLVMValueRef stage, int c, int block);
void flash_rows_meet(FlashRing *ring);  /* the tile of rows has come, before its first unit */
void flash_rows_leave(FlashRing *ring); /* the tile of rows, if it had a unit */

/* Issues out = row tile r . tile c of that stage: 64 rows of the warpgroup, all columns. */
void flash_group_scores(FlashRing *ring, const Registers *out, int r, LLVMValueRef stage, int c);
/* Issues out += p times tile c, or = if this is the `first` product; p: of flash_group_pack. */
void flash_group_apply(FlashRing *ring, const Registers *out, const Registers *p,
                       LLVMValueRef stage, int c, bool first);
Registers flash_group_words(FlashGpu *flash);
void flash_group_pack(FlashGpu *flash, const Registers *scores, const Registers *words);
#endif
