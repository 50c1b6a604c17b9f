/* Accumulators of reductions, shared by the families row and column: running values in variables,
   over the lanes if the walked dim runs over the lanes, and what is left at the end. argmax has
   two: the value and its index. */
#ifndef SHARDC_REDUCE_H
#define SHARDC_REDUCE_H
#include "walk.h"

typedef struct Accumulator {
  const Op *op;
  Elem elem;   /* of the operand */
  bool across; /* lanes are reduced as well */
  LLVMTypeRef type, index_type;
  LLVMValueRef value[WALK_UNROLL],
      index;            /* variables; `index` for argmax only, which uses value[0] alone */
  LLVMValueRef invalid; /* variable: NaN where one came in; NULL: value[] keeps it */
  int n;                /* how many of value[] */
} Accumulator;

/* The ops of a row or column kernel must be able to share its rows (ir/kernel/row_share.c). */
void reduction_check(Emit *e, bool column);

/* lanes: of the vectors that come in; 1: scalars. across: at the end lanes are reduced to one. */
Accumulator accumulator_new(Emit *e, const Op *op, int lanes, bool across, int n);
void accumulator_start(Emit *e, Accumulator *accumulator);
/* Takes the operand at point p into value[which]; dim: the dim of argmax. */
void accumulator_take(Emit *e, Accumulator *accumulator, int which, const Point *p);
/* From now on accumulator_take_all may keep a NaN apart: then the largest takes one instruction. */
void accumulator_apart(Emit *e, Accumulator *accumulator);
/* The operands at n points, each into its value[] */
void accumulator_take_all(Emit *e, Accumulator *accumulator, int n, const Point *p);
/* Joins the running values of `from` to those of `into`, lane by lane. Both came from the same
 * accumulator_new. */
void accumulator_fold(Emit *e, Accumulator *into, const Accumulator *from);
/* The reduction's value: scalar if across, else as wide as what came in. */
LLVMValueRef accumulator_finish(Emit *e, Accumulator *accumulator);

/* For partial results in memory: raw state at the end (2 parts for argmax), and one step of joining
 * two states. */
int accumulator_parts(const Op *op);
void accumulator_state(Emit *e, Accumulator *accumulator, LLVMValueRef state[2]);
void accumulator_join(Emit *e, const Op *op, Elem elem, LLVMValueRef into[2],
                      const LLVMValueRef with[2]);
LLVMValueRef accumulator_result(Emit *e, const Op *op, const LLVMValueRef state[2]);
Elem accumulator_elem(Elem elem, int part); /* element type of a state */
#endif
