/* The tiles of scores that each CTA of attention computes on a GPU, as constants of its kernel.

   A CTA walks a list of runs of units: a unit is a tile of columns of one head of queries (number:
   head of the group * tiles of columns + tile). The units of a run have the same states: for each
   warpgroup that multiplies, whether positions admit some and all scores of its rows; other kernels
   have one state, of all rows. Parts of the mask that data decides (padding) do not change that:
   kernels evaluate them in full tiles as well. A tile over several blocks of a pattern is listed if
   any of them is. CTAs with equal lists share one.

   If positions alone exclude little (no mask, data, causal), there are no lists: kernels evaluate
   the mask over intervals (codegen/attention_head.c).

   Must not: have as many entries as there are scores; `select` refuses lists above the target's
   `listed`. */
#ifndef SHARDC_FLASH_LIST_H
#define SHARDC_FLASH_LIST_H
#include "flash_gpu.h"
#include "ir/mask/mask_range.h"

typedef VEC(uint32_t) FlashWords;

/* A unit's code: its number * FLASH_UNIT + a bit of each warpgroup for each of its states. */
enum {
  FLASH_UNIT_SOME = 0,
  FLASH_UNIT_FULL = WGMMA_GROUPS,
  FLASH_UNIT = 1 << (2 * WGMMA_GROUPS),
  FLASH_UNITS = (1u << 31) / FLASH_UNIT /* numbers are less */
};

typedef struct FlashNumber { /* of a rank, by which lists differ: 0, step, .. */
  ValueId v;
  int64_t values, step;
} FlashNumber;

typedef struct FlashLists {
  bool present, full, partial; /* some states are full, partial */
  bool apart;                  /* some units have a score for one warpgroup alone */
  bool too_many;               /* false because the list has more runs than that */
  int parts;                   /* of the mask, that data decides: asked in full runs */
  ValueId part[MASK_REST];
  int heads; /* dims by whose positions the lists of CTAs differ */
  Axis head[MAX_RANK * 2];
  int64_t classes, tiles; /* of heads, by these dims, the last one varies fastest; rows per head */
  int numbers;
  FlashNumber number[MASK_SCALARS];
  int64_t ranks;  /* values of all of them; 1: no numbers */
  int64_t listed; /* tiles of scores, over all classes, each head of a group by itself, and ranks */
  /* [ranks][classes * tiles][4]: class * tiles + tile of rows, its first run, the code of its first
     unit (~0: none), 0; the longest lists first */
  FlashWords order;
  /* [][2]: codes of the run's units are less, the first one of the run that follows (~0: none) */
  FlashWords runs;
} FlashLists;

FlashLists flash_lists(Arena *arena, const Module *m, const Fn *k, const Flash *flash,
                       const FlashGpuPlan *plan, FlashPhase phase);
#endif
