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
   evenly: those of rank r at r * n. */
enum { RANKS_ASKED = 64 };
typedef struct RankNumbers {
  int64_t ranks;
  int64_t value[RANKS_ASKED * MASK_SCALARS];
} RankNumbers;
bool rank_numbers(const RankWorld *world, const Fn *f, int n, const ValueId *v, RankNumbers *out);
#endif
