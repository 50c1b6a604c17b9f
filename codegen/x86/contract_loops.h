/* The loops of a contraction's chunk (contract.c), and the phase that packs before them
   (contract_share.c). Nobody else includes this. */
#ifndef SHARDC_CONTRACT_LOOPS_H
#define SHARDC_CONTRACT_LOOPS_H
#include "contract.h"

typedef struct ChunkLoops { /* the position of the loops of a chunk */
  Contract *c;
  Range batch, row, panel;
  LLVMValueRef b, a_base, b_base; /* batch, and both operands at it and at the block of k */
  LLVMValueRef more, last;        /* i64: not the first block of k; i1: the last one */
  KBlock k;
  LLVMValueRef k_turn, next_length, next_half; /* number of the block of k; of the next one */
  LLVMValueRef turn;                           /* number of the panel in the chunk's order */
  LLVMValueRef packed_a, packed_b, sums;       /* scratch */
  LLVMValueRef totals;                         /* of b's panels over k (contract_sums.c) */
  LLVMValueRef list;                           /* of row tiles: i64s (contract_skip.c) */
  LLVMValueRef count;                          /* of row tiles to multiply */
  LLVMValueRef empty;                          /* of the others; NULL: the kernel skips none */
} ChunkLoops;

/* Goes to block `turn` of k. */
void contract_enter_block(ChunkLoops *loops, LLVMValueRef turn);
/* Where the workspace holds operand s of this batch and block of k. */
LLVMValueRef contract_shared_block(ChunkLoops *loops, ProductSide s);
/* Has the panel one vector more than the others? i1 */
LLVMValueRef contract_is_wide(Contract *c, LLVMValueRef panel);
LLVMValueRef contract_panel_first(Contract *c, LLVMValueRef p);

/* Packs for all chunks, in a phase of its own. */
void contract_share(Contract *c);

/* ---- zeros (contract_skip.c): nothing where the kernel does not skip them ---- */
/* Lists which row tiles of the chunk are not all zero at this batch: sets count and empty. */
void contract_list_tiles(ChunkLoops *loops);
/* Row tile i of those to multiply. */
LLVMValueRef contract_listed_tile(ChunkLoops *loops, LLVMValueRef i);
/* Results of the others. */
void contract_empty_tiles(ChunkLoops *loops);
/* Ends the present block of k at the last step that is not zero. */
void contract_seek_steps(ChunkLoops *loops);

#endif
