/* Products of operands in 8 bits (`precision fp8`): formats of op `quantize`, and kinds of
   operands.

   A block of numbers shares a scale: the least power of two s by which the largest of them fits,
   most <= 1.75 * 2^top * s, and at least 2^-100. quantize rounds a number of the block to the
   nearest a = code * s, ties to even; a number of bf16 can hold it without rounding. A block whose
   largest number is above 2^100, or not finite, becomes NaN. */
#ifndef SHARDC_IR_EIGHTS_H
#define SHARDC_IR_EIGHTS_H
#include "ir/ir.h"

typedef struct EightsFormat {
  const char *name;
  int mantissa, top, range; /* formats8.def */
} EightsFormat;

enum { EIGHTS_LEAST_SCALE = -100, EIGHTS_LARGEST = 100, EIGHTS_BLOCK = 128 }; /* two: exponents */

/* Operands of a product of a weight, forward and backward (attribute eights). */
typedef enum Eights { EIGHTS_VALUE, EIGHTS_WEIGHT, EIGHTS_GRADIENT, EIGHTS_COUNT } Eights;

const EightsFormat *eights_format(const char *name); /* NULL: there is none */
const EightsFormat *eights_format_of(const Op *quantize);
/* Formats have numbers from 0 on. NULL: there is none. */
const EightsFormat *eights_format_at(int64_t number);
int64_t eights_format_number(const EightsFormat *format);
/* The largest relative error of a number that is not below the smallest normal one. */
double eights_error(const EightsFormat *format);
double eights_round(const EightsFormat *format, double x, double most);
/* The scale of a block is 2 to this power; a code of a number in units of it, and back. */
int eights_scale(const EightsFormat *format, double most);
unsigned char eights_code(const EightsFormat *format, double units);
double eights_units(const EightsFormat *format, unsigned char code);
#endif
