/* How much of a rectangle of scores a mask, a bool expression over positions, admits: none, all or
   some of it; found over intervals without looking at single scores. */
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
  MaskInterval *found; /* by value, twice: plain, and under an odd number of `not` */
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
/* Parts that data or a rank's number decides (operands, scalars, dims without a range) admit as
   much as they can; `least`: as little. */
MaskFinding mask_find(MaskQuestion *x, ValueId mask, bool least);

/* The interval of a value within the ranges. */
MaskInterval mask_interval(MaskQuestion *x, ValueId v);

/* Dims other than q and k by whose positions the mask differs, at most MASK_DIMS. */
int mask_heads(const Fn *f, ValueId mask, Str q, Str k, Axis *out);

/* Whole numbers without dims that the mask computes with and that are no constants, such as where a
   rank's positions begin: the largest such expressions. Their number; -1: above MASK_SCALARS. */
int mask_scalars(const Fn *f, ValueId mask, ValueId out[MASK_SCALARS]);

/* The part of a mask that data decides, or that intervals do not bound (floats): values whose
   conjunction it is where everything else is admitted. Returns their number; 0: positions and
   `known`, n scalars, decide. */
enum { MASK_REST = 8 };
int mask_rest(const Fn *f, ValueId mask, int n, const ValueId *known, ValueId out[MASK_REST]);

/* Whether a mask compares whole numbers in memory, such as those of documents: kernels may find
   their intervals at run time, and skip blocks of scores by them. */
bool mask_reads(const Fn *f, ValueId mask);
#endif
