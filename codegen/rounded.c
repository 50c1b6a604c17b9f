/* Which f32 values of a kernel are read only through a rounding to 16 bits.

   A value is if each of its uses is the cast to bf16 or f16, or an element-wise op whose own result
   is: one walk over the ops, last to first. Such a value need not be exact: where a kernel is
   limited by instructions (the epilogue of products on GPUs) mathematics with errors far below
   2^-12 will do. Must not: let an error through that a 16-bit result could show. */
#include "expr.h"

static bool rounds(const Op *o, const Fn *k) {
  return o->code == OP_cast && elem_is_half(value_type(k, o->out)->elem);
}

bool kernel_has_products(const Fn *k) {
  for (uint32_t i = 0; i < k->ops.n; i++)
    if (op_family(k->ops.at[i].code) == FAMILY_CONTRACT) return true;
  return false;
}

bool *rounded_values(Arena *arena, const Fn *k) {
  bool *rounded = ARENA_ARRAY(arena, bool, k->values.n + 1);
  for (ValueId v = 0; v < k->values.n; v++) rounded[v] = value_type(k, v)->elem == ELEM_f32;
  for (uint32_t i = 0; i < k->results.n; i++) rounded[k->results.at[i]] = false;
  for (uint32_t i = k->ops.n; i-- > 0;) {
    const Op *o = &k->ops.at[i];
    bool hidden = rounds(o, k) || (op_family(o->code) == FAMILY_ELEM && rounded[o->out]);
    for (uint32_t in = 0; in < o->nin && !hidden; in++) rounded[o->in[in]] = false;
  }
  return rounded;
}
