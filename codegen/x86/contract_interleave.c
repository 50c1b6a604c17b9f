/* Packing interleaved with the micro-kernel: while a row tile of one panel of b is computed, the
   first rounds of its loop pack a slice of the next panel, a step of k each.

   Multiply-adds keep the vector units busy and little else: loads, conversions and stores of a copy
   run concurrently with them, while a copy between two tiles would stop the products. Only where
   b's lanes are contiguous: transposing takes the shuffles of a unit that multiplies, and more
   registers than the accumulators leave (measured: products at 87 % of the peak with squares
   interleaved, 91 and more with whole panels transposed at once). Elements in 16 bits are widened,
   which takes a register; rounding takes several, so it is not done between multiply-adds, except
   in pairs, where one instruction does it.

   Must not: pack partial data (half steps, lanes beyond the end); contract_pack.c does that. */
#include "contract.h"

void contract_plan_interleave(Contract *contract) {
  const int64_t *tile = contract->plan.tile;
  int64_t left = contract->e->target->facts.vector_registers - tile[TILE_ROWS] * tile[TILE_VECTORS];
  bool simple = !contract->e->quick &&
                (contract->pairs || contract->product.elem_b == contract->product.compute);
  contract->interleaved = contract->double_buffered && !contract->amx && simple && left >= 4;
}

void contract_interleave(Contract *contract, int vectors, LLVMValueRef src, LLVMValueRef dst,
                         LLVMValueRef i) {
  must(contract->interleaved, "kernel %s: b is packed inside of a micro-kernel that does not",
       contract->k->name);
  Emit *emit = contract->e;
  int64_t step =
      contract_inner_stride(&contract->product.k, SIDE_B) * contract->plan.tile[TILE_DEPTH];
  LLVMValueRef from = tile_times(emit, i, step),
               row = tile_times(emit, i, vectors * contract->plan.lanes);
  for (int v = 0; v < vectors; v++) {
    LLVMValueRef lanes = emit_i64(emit, v * contract->plan.lanes);
    LLVMTypeRef memory = contract_memory(emit, contract->product.elem_b);
    LLVMValueRef at = tile_elements(emit, memory, src, tile_add(emit, from, lanes));
    LLVMValueRef x = contract_operand(contract, SIDE_B, at, contract->plan.lanes, NULL, false);
    LLVMValueRef to = tile_elements(emit, contract->f32, dst, tile_add(emit, row, lanes));
    LLVMSetAlignment(LLVMBuildStore(emit->builder, x, to), 4);
  }
}
