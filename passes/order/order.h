/* Shared by the files of pass `order`. A layout is a type whose axes are in storage order, with
   the stride of each; the buffer of a value is dense, or has padding between rows. */
#ifndef SHARDC_PASSES_ORDER_H
#define SHARDC_PASSES_ORDER_H
#include "passes/base/rebuild.h"

/* order_layout.c */
Storage layout_dense(const Type *t);
bool layout_is_dense(const Value *v);
bool layout_same(const Value *a, const Value *b); /* every element at the same offset */
Type layout_permuted(
    const Type *t,
    const Type *order); /* t's axes in the order of `order`, which has the same dims */
/* Rows of at least `row` bytes are set `bytes` apart where that keeps them off the same sets of a
 * cache; 0: dense. */
typedef struct Pad {
  int64_t bytes, row;
} Pad;
Storage layout_padded(const Type *t, Pad pad); /* in the order of t's axes */
Storage layout_padded(const Type *t, Pad pad);
Pad layout_pad(const Module *m);                       /* facts pad and row; pad off: 0 */
void layout_set(Value *v, const Type *order, Pad pad); /* order NULL: the order of the type */
/* Storage of result i of a view op from its operand's. False: no strides do it, a kernel must copy.
 */
bool layout_view(const Fn *f, const Op *o, uint32_t i, Value *result);
ValueId
view_root(const Fn *f,
          ValueId v); /* the value whose buffer v looks into; in-place values are their own root */

/* Does the op make its results in buffers of their own? The operands of a concat outside of
   kernels are made in the buffer of the concat. */
static inline bool order_owns(const Op *o) {
  return o->code == OP_kernel || o->code == OP_loop || o->code == OP_concat ||
         op_between_buffers(o->code);
}
uint32_t order_carry(const Module *m, const Fn *body); /* of the loops that call it; order.c */

/* order_results.c: bodies that return most of a value as views return the value */
void order_results(Module *m);

/* order_preferences.c: the order that the users of each value prefer, callers first: NULL or a
   type with its dims. Results of called bodies get their layout from it. */
const Type **order_preferences(Module *m, const Fn *f);
const Op *order_dot_of(const Fn *kernel); /* its product; NULL: it has none */

/* order_codes.c: operands of products in 8 bits that a GPU keeps as codes: their layout; then, with
   all layouts, attribute `codes` of the kernels that write and read them */
void order_prefer_codes(Module *m, const Fn *f, const Type **want);
void order_codes(Module *m, const Fn *f);
void order_warn_codes(const Module *m); /* if there are products in 8 bits, and none of codes */
bool order_multiplies_codes(const Module *m); /* the target has such products */

/* order_turned.c: the function with one kernel for codes of a value in two orders, which is pushed
   to `made`; NULL: it has no such value */
Fn *order_turned(Module *m, Fn *f, FnVec *made);

bool order_stored(const Fn *f, ValueId v); /* to a global, or sent: its layout is dense */

/* order_inplace.c: results of kernels that may overwrite an operand */
void order_inplace(Module *m, Fn *f);
#endif
