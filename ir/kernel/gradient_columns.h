/* Sums of the columns of attention's gradients that its kernel makes while it stores them: the
   gradient of the bias of queries, keys and values. The sum is of one gradient, or of a stack of
   some, under the names that the stack gives to their rows; it runs over the rows and over any dims
   of heads. */
#ifndef SHARDC_GRADIENT_COLUMNS_H
#define SHARDC_GRADIENT_COLUMNS_H
#include "ir/ir.h"

typedef struct FlashDims {
  int n;
  Axis axis[MAX_RANK];
  int64_t count;
} FlashDims;

enum { FLASH_GRADIENTS = 3 };

typedef struct FlashColumns {
  ValueId value;               /* the sums; NO_VALUE: there are none */
  int sums;                    /* gradients that are summed */
  ValueId of[FLASH_GRADIENTS]; /* in the order of the stack */
  Str place;                   /* dim of the stack; NULL: there is none */
  FlashDims kept, summed;      /* dims of a gradient: columns, as in the sums; heads */
  int64_t rows;                /* of a gradient */
} FlashColumns;

/* Whether a kernel of attention_grad can make the sum; in a kernel, and before there is one. */
bool flash_sums_columns(const Fn *f, const Op *sum, FlashColumns *columns);
FlashColumns flash_columns_of(const Fn *kernel); /* of its sum, if it has one */
/* The fault of the sums of a kernel of attention; NULL: there is none. */
const char *flash_columns_fault(const Fn *kernel, const Op *attention);
#endif
