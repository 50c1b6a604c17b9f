/* Numbers that follow from a rank's coordinates: where its positions begin, its first head. */
#ifndef SHARDC_IR_RANK_NUMBERS_H
#define SHARDC_IR_RANK_NUMBERS_H
#include "mask_range.h"

typedef struct RankCall { /* who calls a body or a kernel */
  const Fn *from;
  const Op *op;
} RankCall;

typedef struct RankWorld {
  const Module *m;
  VEC(RankCall) calls;
} RankWorld;

RankWorld rank_world(Arena *arena, const Module *m);
/* The value of v, a number of f, on a rank with these coordinates; false: it follows from other
   things as well. */
bool rank_number(const RankWorld *world, const Fn *f, ValueId v, const int64_t *coordinate,
                 int64_t *out);

/* The values of n numbers on the ranks on which they differ, at most RANKS_ASKED of them, spread
   evenly, in each call of the kernel f, of CALLS_ASKED at most: those of rank r in call c at
   (r * calls + c) * n. Without calls: in all of them alike. */
enum { RANKS_ASKED = 64, CALLS_ASKED = 8 };
typedef struct RankNumbers {
  int64_t ranks, calls;
  int64_t value[RANKS_ASKED * CALLS_ASKED * MASK_SCALARS];
} RankNumbers;
bool rank_numbers(const RankWorld *world, const Fn *f, int n, const ValueId *v, RankNumbers *out);
#endif
