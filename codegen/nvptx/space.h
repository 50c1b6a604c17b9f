/* Iteration spaces (ir/kernel/nest.h) on a GPU: the innermost dim in vectors of some lanes, each
   vector with a flat number, and the point that a number means. There are no masked vectors: lanes
   divide the innermost dim. */
#ifndef SHARDC_NVPTX_SPACE_H
#define SHARDC_NVPTX_SPACE_H
#include "codegen/walk.h"
#include "simt.h"

int64_t space_vectors(Emit *e, const Nest *nest, int lanes);
/* The point of vector number `flat` (of type e->index); base: indexes of other dims, or NULL. */
Point space_point(Emit *e, const Nest *nest, int lanes, LLVMValueRef flat, const Point *base);
/* a * b + c and a / b, a % b of indexes that are not negative */
LLVMValueRef index_mul_add(Emit *e, LLVMValueRef a, int64_t b, LLVMValueRef c);
LLVMValueRef index_div(Emit *e, LLVMValueRef a, int64_t b);
LLVMValueRef index_rem(Emit *e, LLVMValueRef a, int64_t b);

#endif
