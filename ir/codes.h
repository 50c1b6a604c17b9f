/* Numbers of 8 bits in memory. A GPU with products of such numbers keeps the operands of products
   in 8 bits (ir/eights.h) as codes: pass `order` decides it and writes attribute `codes` of the
   kernel that makes a value and of those that read it. All others see the numbers themselves, in
   bf16.

   Such a value is dense, with the summed dims innermost: a run of them for each row of the product.
   Its buffer has a code of one byte for each number, in storage order, and then in f32 the scale of
   each EIGHTS_BLOCK codes of a run: block by block, and in a block row by row, so that scales of
   neighbouring rows are neighbours. A number is its code times its scale. Strides and offsets count
   numbers. */
#ifndef SHARDC_CODES_H
#define SHARDC_CODES_H
#include "ir/eights.h"

/* Tensor cores multiply codes at this many times the rate of numbers of 16 bits. */
enum { CODES_RATE = 2 };

typedef struct Codes {
  const EightsFormat *format;
  int64_t count, run; /* numbers in all, in a run */
} Codes;

/* Whether buffer i of the kernel function, operands first, then results, holds codes. */
bool kernel_codes(const Fn *k, uint32_t i, Codes *out);
void kernel_add_codes(Module *m, Fn *k, uint32_t i, const Codes *codes);
void kernel_drop_codes(Fn *k);
bool kernel_has_codes(const Fn *k);
int64_t codes_bytes(const Codes *codes); /* of codes and scales */
/* Whether value v of a function, or the value that it shows whole, is kept as codes. */
bool value_codes(const Fn *f, ValueId v, Codes *out);

/* A whole buffer from its numbers, in storage order. The scale of a block is the least that its
   numbers need, which is at most that by which they were rounded. */
void codes_write(const Codes *codes, unsigned char *to, const double *numbers);
double codes_read(const Codes *codes, const unsigned char *from, int64_t at); /* number `at` */

/* The op that rounds result v of a kernel function to 8 bits; NULL: it is no such result. */
const Op *codes_quantize(const Fn *k, ValueId v);
/* .. and the reduction that finds the largest number of each block. */
const Op *codes_most(const Fn *k, ValueId v);
/* .. for the second result of a kernel whose two results are the same numbers rounded in blocks of
   other dims; NULL: the kernel has no such results. */
const Op *codes_other(const Fn *k);
#endif
