/* Which f32 values of a kernel are read only through a rounding to 16 bits, and to which.

   A value is if each of its uses is the cast to bf16 or f16, or an element-wise op whose own result
   is: one walk over the ops, last to first. Such a value need not be exact: where a kernel is
   limited by instructions (the epilogue of products) its functions are approximated, with
   relative errors far below 2^-12, or of 2^-11 if all those casts are to bf16: that is a quarter of
   the largest error of the rounding to bf16. Must not: let an error through that a 16-bit result
   could show. */
#include "expr.h"

static Rounding rounding(const Op *o, const Fn *k) {
  if (o->code != OP_cast) return ROUNDED_NOT;
  Elem e = value_type(k, o->out)->elem;
  if (e == ELEM_bf16) return ROUNDED_bf16;
  return e == ELEM_f16 ? ROUNDED_f16 : ROUNDED_NOT;
}

bool kernel_has_products(const Fn *k) {
  for (uint32_t i = 0; i < k->ops.n; i++)
    if (op_family(k->ops.at[i].code) == FAMILY_CONTRACT) return true;
  return false;
}

Rounding *rounded_values(Arena *arena, const Fn *k) {
  Rounding *rounded = ARENA_ARRAY(arena, Rounding, k->values.n + 1);
  for (ValueId v = 0; v < k->values.n; v++)
    rounded[v] = value_type(k, v)->elem == ELEM_f32 ? ROUNDED_bf16 : ROUNDED_NOT;
  for (uint32_t i = 0; i < k->results.n; i++) rounded[k->results.at[i]] = ROUNDED_NOT;
  for (uint32_t i = k->ops.n; i-- > 0;) {
    const Op *o = &k->ops.at[i];
    Rounding hidden = rounding(o, k);
    if (!hidden && op_family(o->code) == FAMILY_ELEM) hidden = rounded[o->out];
    for (uint32_t in = 0; in < o->nin; in++)
      if (rounded[o->in[in]] > hidden) rounded[o->in[in]] = hidden;
  }
  return rounded;
}
