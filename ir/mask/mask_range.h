/* What a mask, a bool expression over positions, says of a rectangle of scores: nothing, all or
   some of it is admitted, found over intervals without looking at single scores. */
#ifndef SHARDC_IR_MASK_RANGE_H
#define SHARDC_IR_MASK_RANGE_H
#include "ir/ir.h"

typedef struct MaskInterval {
  bool known;
  int64_t lo, hi; /* inclusive; of a bool: may be true, is true */
} MaskInterval;

enum { MASK_DIMS = MAX_RANK * 2, MASK_SCALARS = 8 };

typedef struct MaskQuestion {
  const Fn *f;
  int n; /* dims with a range: [from, to) */
  Str dim[MASK_DIMS];
  int64_t from[MASK_DIMS], to[MASK_DIMS];
  int scalars; /* whole numbers without dims that are known */
  ValueId scalar[MASK_SCALARS];
  int64_t number[MASK_SCALARS];
  MaskInterval *found; /* by value, twice: as it stands, and behind an odd number of `not` */
  uint32_t *when, turn;
  Arena *arena;
  struct MaskTable **table; /* by value: of a lookup, once it was asked */
} MaskQuestion;

MaskQuestion mask_question(Arena *a, const Fn *f);
int mask_range(MaskQuestion *x, Str dim, int64_t from, int64_t to); /* the dim's number in x */

void mask_scalar(MaskQuestion *x, ValueId v, int64_t number);

typedef struct MaskFinding {
  bool some, all; /* may be admitted; are, surely */
} MaskFinding;
/* What data or a rank's number decides (operands, scalars, dims without a range) admits the most
   that it can; `least`: the least. */
MaskFinding mask_find(MaskQuestion *x, ValueId mask, bool least);

/* What a value takes in the ranges. */
MaskInterval mask_interval(MaskQuestion *x, ValueId v);

/* Dims other than q and k by whose positions the mask differs, at most MASK_DIMS. */
int mask_heads(const Fn *f, ValueId mask, Str q, Str k, Axis *out);

/* Whole numbers without dims that the mask computes with and that are no constants, such as where a
   rank's positions begin: the largest such expressions. Their number; -1: above MASK_SCALARS. */
int mask_scalars(const Fn *f, ValueId mask, ValueId out[MASK_SCALARS]);

/* What data decides of a mask, or what intervals do not bound (floats): values whose conjunction it
   is where all else is admitted. Their number; 0: positions and `known`, n scalars, decide. */
enum { MASK_REST = 8 };
int mask_rest(const Fn *f, ValueId mask, int n, const ValueId *known, ValueId out[MASK_REST]);
#endif
