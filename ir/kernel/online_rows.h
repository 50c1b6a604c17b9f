/* Rows of a softmax: their largest element and their sum of e^(x - largest) are found in one walk.
   Conditions on a position (a mask, padding, the place of a label) that hold for a known part of
   the row are not evaluated for it. The rule that cuts such a kernel, the plan of its cut and its
   emitter share these facts. */
#ifndef SHARDC_ONLINE_ROWS_H
#define SHARDC_ONLINE_ROWS_H
#include "nest.h"

/* sum[C] of e^(z - most), or of where(c, e^(z - most), 0): a sum so far is multiplied by
   e^(old - new) when a larger element comes. `most` is rmax[C] of z, or of where(c, z, -inf). */
typedef struct OnlineSum {
  int sum, most; /* of Reductions.op */
  bool masked;
} OnlineSum;

/* sum[C] of where(place == position, x, 0): x at one place, or 0. */
typedef struct OnlinePick {
  int sum;
  ValueId x, place;
} OnlinePick;

/* Conditions on a position of the row: below a constant, or a place that the row names. */
typedef struct OnlinePlace {
  ValueId v, place; /* place: NO_VALUE for `below` */
  int64_t below;
} OnlinePlace;

typedef struct OnlineRows {
  int nsums, npicks, nbelow, nplaces, nkept;
  OnlineSum sum[MAX_RESULTS];
  OnlinePick pick[MAX_RESULTS];
  OnlinePlace below[MAX_RESULTS], place[MAX_RESULTS];
  ValueId kept[MAX_RESULTS]; /* operands that the last walk reads again, each at its own place */
} OnlineRows;

/* False: the kernel has no such sums, or also others for which its rows are walked again. */
bool rows_online(Arena *arena, const Fn *k, const Reductions *reductions, OnlineRows *online);
/* Is reduction i found otherwise than by an accumulator: a largest element, a sum, a pick? */
bool rows_online_has(const OnlineRows *online, int i);
/* Elements of a row that all conditions `below` hold for; `length` without any. */
int64_t rows_online_below(const OnlineRows *online, int64_t length);
/* Bytes of the kept operands of a row, each a multiple of 16. */
int64_t rows_online_bytes(const Fn *k, const OnlineRows *online, int64_t length);
#endif
