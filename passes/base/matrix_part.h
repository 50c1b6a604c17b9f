/* The part of an update that needs whole matrices, as muon.c makes it: between the first and the
   last rename all values have dims with made names, or are numbers from such. */
#ifndef SHARDC_PASSES_MATRIX_PART_H
#define SHARDC_PASSES_MATRIX_PART_H
#include "ir/ir.h"

bool op_on_matrices(const Fn *f, const Op *o); /* has an operand or result such dims? */
/* The value that the part with result v reads; NO_VALUE: v is no such result. */
ValueId matrix_part_reads(const Fn *f, ValueId v);

#endif
