/* Inside of the expression generator: what expr.c (loads, stores), expr_elem.c (element-wise ops)
   and expr_struct.c (ops that move indexes) share. Emitters of families use emit.h only. */
#ifndef SHARDC_EXPR_H
#define SHARDC_EXPR_H
#include "device_code.h"

typedef struct Known { /* a value that was evaluated at a point */
  struct Known *older;
  int n;     /* indexes of the value's own dims */
  int lanes; /* of a vector then */
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
  Rounding *rounded; /* per value; NULL: everything is made exactly */
  bool waits;        /* for its instructions, not for memory: a kernel of products */
} ExprState;

/* Per value: an f32 that is only ever seen rounded to 16 bits (rounded.c). */
Rounding *rounded_values(Arena *arena, const Fn *k);
bool kernel_has_products(const Fn *k);

/* Point of the dims of value v only: what an index-moving op starts from. */
Point point_restrict(Emit *e, ValueId v, const Point *p);
/* One index per lane of e as i32: the scalar splat, or lane numbers added. A scalar i32 if the
 * index is scalar. */
LLVMValueRef index_number(Emit *e, const Index *index);
bool index_varies(const Index *index); /* depends on the lane */

/* expr_struct.c: moving indexes */
Index point_taken(const Point *p, Str dim); /* the index of a dim that the point has */
void point_remove(Point *p, Str dim);
Index expr_index_add(Emit *e, Index index, int64_t d);
LLVMValueRef expr_inside(Emit *e, const Index *index,
                         int64_t size); /* 0 <= index < size, or per lane */
/* Puts the index of `dim` into p such that nothing outside of the operand is read where
 * `inside` does not hold. */
void expr_guarded(Emit *e, Point *p, Str dim, Index index, LLVMValueRef inside);
LLVMValueRef expr_choose(Emit *e, LLVMValueRef c, LLVMValueRef a, LLVMValueRef b);

/* expr_concat.c: A, B, .. -> D, operands one after the other */
LLVMValueRef expr_concat(Emit *e, const Op *op, const Point *p);

/* expr_bits.c: pack_bits and unpack_bits at consecutive bytes, and bits, from the first of a byte
   on; p has no index of the op's result any more */
enum { BYTE_BITS = 8 };
LLVMValueRef expr_pack_along(Emit *e, const Op *op, const Index *index, Point *p);
LLVMValueRef expr_unpack_along(Emit *e, const Op *op, const Index *index, Point *p);

/* Values known before a branch are known in it; values that become known in it are not known after
   it. */
Known **expr_known(Emit *e);
void expr_known_again(Emit *e, Known *const *known);

/* Element-wise ops: result `v` of op `op` at p. */
LLVMValueRef expr_elem(Emit *e, const Op *op, ValueId v, const Point *p);
/* STRUCT ops, gather, rope, rand, iota: evaluates result `v` of op `op` at p. */
LLVMValueRef expr_moved(Emit *e, const Op *op, ValueId v, const Point *p);
#endif
