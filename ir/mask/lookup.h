/* Op `lookup`: a table of bits by row and column, written as run lengths: a number of zeros, a
   number of ones, in turn, row after row; the bits after the last run are zero. */
#ifndef SHARDC_IR_LOOKUP_H
#define SHARDC_IR_LOOKUP_H
#include "ir/ir.h"

typedef struct LookupTable {
  int64_t rows, columns, pitch; /* bytes of a row */
  uint8_t *bits;                /* bit c % 8 of byte r * pitch + c / 8 */
} LookupTable;

bool lookup_is_sound(const Op *o); /* attributes only; the others want that */
LookupTable lookup_table(Arena *arena, const Op *o);
bool lookup_bit(const LookupTable *table, int64_t row, int64_t column); /* outside: not set */
bool lookup_one(const Op *o, double row, double column); /* of a table not read yet */
/* Attributes for set[rows][columns] */
void lookup_set(Module *m, Op *o, int64_t rows, int64_t columns, const bool *set);

/* For each corner (r, c) of rows + 1 x columns + 1 the set bits above and left of it. */
uint32_t *lookup_sums(Arena *arena, const LookupTable *table);
#endif
