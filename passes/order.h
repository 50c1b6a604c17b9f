/* What the files of pass `order` share. A layout is a type whose axes stand in storage order, with
 * the stride of each. */
#ifndef SHARDC_PASSES_ORDER_H
#define SHARDC_PASSES_ORDER_H
#include "passes/internal.h"

/* order_layout.c */
Storage layout_dense(const Type *t);
bool layout_is_dense(const Value *v);
bool layout_same(const Value *a, const Value *b); /* every element at the same offset */
Type layout_permuted(
    const Type *t,
    const Type *order); /* t's axes in the order of `order`, which has the same dims */
void layout_set(Value *v, const Type *order); /* dense in that order; NULL: as the type stands */
/* Storage of result i of a view op from its operand's. False: no strides do it, a kernel must copy.
 */
bool layout_view(const Fn *f, const Op *o, uint32_t i, Value *result);
ValueId
view_root(const Fn *f,
          ValueId v); /* the value whose buffer v looks into; in-place values are their own root */

uint32_t order_carry(const Module *m, const Fn *body); /* of the loops that call it; order.c */

/* order_results.c: bodies that return most of a value as views return the value */
void order_results(Module *m);

/* order_wants.c: the order that the users of each value would like, callers first: NULL or a type
   with its dims. Results of bodies that are called get their layout here. */
const Type **order_wants(Module *m, const Fn *f);

/* order_inplace.c: results of kernels that may overwrite an operand */
void order_inplace(Module *m, Fn *f);
#endif
