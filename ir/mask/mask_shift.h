/* Does a mask depend on the distance of query and key alone, as causal ones and windows do? Then it
   admits as much of all rectangles of one size at one distance, and intervals find the same. */
#ifndef SHARDC_IR_MASK_SHIFT_H
#define SHARDC_IR_MASK_SHIFT_H
#include "mask_range.h"

typedef struct MaskShifts {
  const Fn *f;
  Str query, key;
  const MaskQuestion *asked; /* NULL: wherever it is asked */
  uint8_t *of;               /* by value, once it was asked */
} MaskShifts;

MaskShifts mask_shifts(Arena *arena, const Fn *f, Str query, Str key);
/* True: the value stays as it is where query and key both move on by one. */
bool mask_stays(MaskShifts *shifts, ValueId v);

enum { MASK_DISTANCES = 16 };
/* The distances of all that the mask compares in the rectangle that was asked last, by which it
   admits as much of another one of the same size; in it, a quotient of positions may be one number,
   as in a piece of a sequence. Their number; -1: it depends on more. */
int mask_distances(MaskShifts *shifts, const MaskQuestion *asked, ValueId mask,
                   int64_t out[MASK_DISTANCES]);
#endif
