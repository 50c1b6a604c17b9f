/* Inside of the expression generator: what expr.c (loads, stores), expr_elem.c (element-wise ops)
   and expr_struct.c (ops that move indexes) share. Emitters of families use emit.h only. */
#ifndef SHARDC_EXPR_H
#define SHARDC_EXPR_H
#include "device_code.h"

typedef struct Known { /* a value that was evaluated at a point */
  struct Known *older;
  int n; /* indexes of the value's own dims */
  Index index[MAX_RANK];
  LLVMValueRef mask, guard, value;
} Known;

typedef struct Row { /* values along one dim in memory, in the form of registers (bf16 as f32) */
  LLVMValueRef base; /* NULL: none */
  Str dim;
  Elem elem;
} Row;

typedef struct ExprState {
  LLVMValueRef *bound; /* per value of the kernel function, NULL: not bound */
  Row *row;
  Known **known;
  bool *rounded; /* per value, on GPUs; NULL: everything is made exactly */
} ExprState;

/* Per value: an f32 that is only ever seen rounded to 16 bits (rounded.c). */
bool *rounded_values(Arena *a, const Fn *k);

/* Point of the dims of value v only: what an index-moving op starts from. */
Point point_restrict(Emit *e, ValueId v, const Point *p);
/* One index per lane of e as i32: the scalar splat, or lane numbers added. A scalar i32 if the
 * index is scalar. */
LLVMValueRef index_number(Emit *e, const Index *x);
bool index_varies(const Index *x); /* depends on the lane */

/* Element-wise ops: result `v` of op `op` at p. */
LLVMValueRef expr_elem(Emit *e, const Op *op, ValueId v, const Point *p);
/* STRUCT ops, gather, rope, rand, iota: evaluates result `v` of op `op` at p. */
LLVMValueRef expr_moved(Emit *e, const Op *op, ValueId v, const Point *p);
#endif
