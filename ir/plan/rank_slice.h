/* Which elements of a whole tensor a rank holds, as the plan deals them: samples to ranks in
   micro-batches, layers to pipeline stages in chunks, everything else in one block per rank. */
#ifndef SHARDC_RANK_SLICE_H
#define SHARDC_RANK_SLICE_H
#include "ir/shape/placement.h"

/* Indices that a rank holds of a dim: every `ways`-th part of `part` elements, from number `block`
   on. */
typedef struct RankSlice {
  int64_t part, ways, block;
} RankSlice;

/* The axis has the sizes of one rank. Samples of an input (`dealt`) go round the ranks in parts of
   plan.micro, layers round the stages in chunks, if they have several, other dims in one block
   per rank. */
RankSlice placement_slice(const Module *m, const Placement *p, const Axis *axis, int64_t rank,
                          bool dealt);
/* Index in the whole dim of element `local`. */
int64_t placement_index(const RankSlice *slice, int64_t local);
/* Samples of one rank in one micro-batch, if dim is Batch and the step is cut in time; else 0, also
   if the samples of a worker are contiguous. */
int64_t placement_part(const Module *m, const Placement *p, Str dim);
#endif
