/* Packing interleaved with the micro-kernel: while a row tile of one panel of b is computed, the
   first rounds of its loop pack a slice of the next panel, a step of k each.

   Multiply-adds keep the vector units busy and little else: loads, conversions and stores of a copy
   fit beside them, where a copy between two tiles would stop the products. Only where b's lanes are
   contiguous: transposing takes the shuffles of a unit that multiplies, and more registers than the
   accumulators leave (measured: products at 87 % of the peak with squares interleaved in, 91 and
   more with whole panels transposed at once).

   Must not: pack what is not whole (half steps, lanes beyond the end); contract_pack.c does that.
 */
#include "contract.h"

void contract_plan_interleave(Contract *c) {
  const int64_t *tile = c->plan.tile;
  int64_t left = c->e->target->facts.vector_registers - tile[TILE_ROWS] * tile[TILE_VECTORS];
  bool simple = c->pairs || (c->product.elem_b == ELEM_f32 && c->product.compute == ELEM_f32);
  c->interleaved = c->double_buffered && !c->amx && simple && left >= 4;
}

void contract_interleave(Contract *c, int vectors, LLVMValueRef src, LLVMValueRef dst,
                         LLVMValueRef i) {
  must(c->interleaved, "kernel %s: b is packed inside of a micro-kernel that does not", c->k->name);
  Emit *e = c->e;
  int64_t step = contract_inner_stride(&c->product.k, SIDE_B) * c->plan.tile[TILE_DEPTH];
  LLVMValueRef from = tile_times(e, i, step), row = tile_times(e, i, vectors * c->plan.lanes);
  for (int v = 0; v < vectors; v++) {
    LLVMValueRef lanes = emit_i64(e, v * c->plan.lanes);
    LLVMTypeRef memory = contract_memory(e, c->product.elem_b);
    LLVMValueRef at = tile_elements(e, memory, src, tile_add(e, from, lanes));
    LLVMValueRef x = contract_operand(c, SIDE_B, at, c->plan.lanes, NULL, false);
    LLVMValueRef to = tile_elements(e, c->f32, dst, tile_add(e, row, lanes));
    LLVMSetAlignment(LLVMBuildStore(e->builder, x, to), 4);
  }
}
