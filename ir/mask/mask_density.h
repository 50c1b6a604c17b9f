/* How many scores of an attention its mask admits, from what the IR says about positions. */
#ifndef SHARDC_IR_ADMITTED_H
#define SHARDC_IR_ADMITTED_H
#include "ir/ir.h"

/* The share of queries x keys that `mask`, a bool value of f, admits, on the ranks of the mesh.
   `lists`, m's of that mask, or NULL, say what numbers of ranks it has. */
typedef struct ScoreShares {
  int64_t ranks; /* that were asked, where they differ; else 1 */
  double least, mean, most;
} ScoreShares;
/* All that its value follows from, besides numbers of ranks: masks of a module with the same words
   are the same. Returns how many. */
uint32_t mask_words(Arena *arena, const Fn *f, ValueId mask, Axis query, Axis key,
                    const int64_t **words);
ScoreShares mask_shares(const Module *m, const Fn *f, ValueId mask, Axis query, Axis key,
                        const BlockLists *lists);
#endif
