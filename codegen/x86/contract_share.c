/* The phase before a contraction's: chunks pack what several of its chunks read, each a part, first
   of a, then of b, into the kernel's workspace. */
#include "contract_loops.h"

LLVMValueRef contract_shared_block(ChunkLoops *loops, ProductSide side) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  LLVMValueRef at = tile_times(
      emit, loops->b, contract->plan.tile[TILE_K_OUTER] * contract->plan.tile[TILE_K_INNER]);
  at = tile_times(emit, tile_add(emit, at, loops->k_turn),
                  side == SIDE_A ? contract->plan.block_floats : contract->plan.block_b);
  if (side == SIDE_B) at = tile_add(emit, at, emit_i64(emit, contract->plan.at_b / 4));
  return tile_elements(emit, contract->f32,
                       emit_buffer(emit, contract->k->args.n + contract->k->results.n), at);
}

/* Goes to batch and block of k number `above`. */
static void enter_above(ChunkLoops *loops, LLVMValueRef above) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  LLVMValueRef blocks =
      emit_i64(emit, contract->plan.tile[TILE_K_OUTER] * contract->plan.tile[TILE_K_INNER]);
  loops->b = LLVMBuildUDiv(emit->builder, above, blocks, "");
  contract_enter_block(loops, LLVMBuildURem(emit->builder, above, blocks, ""));
}

/* Some tiles of a. */
static void share_a(ChunkLoops *loops, LLVMValueRef chunk) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  LLVMValueRef groups = emit_i64(emit, contract->plan.groups);
  enter_above(loops, LLVMBuildUDiv(emit->builder, chunk, groups, ""));
  loops->row = tile_range(emit, LLVMBuildURem(emit->builder, chunk, groups, ""),
                          contract->plan.tiles, contract->plan.groups);
  LLVMValueRef to = tile_elements(emit, contract->f32, contract_shared_block(loops, SIDE_A),
                                  contract_packed_tile(contract, loops->row.from, &loops->k));
  contract_pack_a(contract, loops->a_base, to, loops->row.from, loops->row.to, &loops->k);
}

/* Steps of k, group of groups_b, of a block whose length is known when the kernel runs. */
static Range steps_of_group(ChunkLoops *loops, LLVMValueRef group) {
  Emit *emit = loops->c->e;
  LLVMValueRef n = emit_i64(emit, loops->c->plan.groups_b),
               next = tile_add(emit, group, emit_i64(emit, 1));
  LLVMValueRef from = LLVMBuildNSWMul(emit->builder, group, loops->k.length, "");
  LLVMValueRef to = LLVMBuildNSWMul(emit->builder, next, loops->k.length, "");
  return (Range){LLVMBuildUDiv(emit->builder, from, n, ""),
                 LLVMBuildUDiv(emit->builder, to, n, "")};
}

static void share_panel(ChunkLoops *loops, LLVMValueRef panel, int wide) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  LLVMValueRef here = contract_is_wide(contract, panel), v0 = contract_panel_first(contract, panel);
  Branch branch = emit_if(emit, wide ? here : LLVMBuildNot(emit->builder, here, ""));
  LLVMValueRef to = tile_elements(emit, contract->f32, contract_shared_block(loops, SIDE_B),
                                  contract_packed_panel(contract, v0, &loops->k));
  contract_pack_b(contract, wide, loops->b_base, to, v0, &loops->k,
                  (Range){emit_i64(emit, 0), loops->k.length});
  emit_end_if(emit, branch);
}

/* Some steps of k of a block of b's panels, or some panels. Blocks of panels change slowest. */
static void share_b(ChunkLoops *loops, LLVMValueRef chunk) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  LLVMValueRef groups = emit_i64(emit, contract->plan.groups_b);
  LLVMValueRef group = LLVMBuildURem(emit->builder, chunk, groups, "");
  LLVMValueRef above = LLVMBuildUDiv(emit->builder, chunk, groups, "");
  int64_t blocks = contract->plan.pack_chunks - contract->plan.chunks_a;
  blocks /= contract->plan.groups_b * contract->plan.columns_b;
  LLVMValueRef n = emit_i64(emit, blocks);
  enter_above(loops, LLVMBuildURem(emit->builder, above, n, ""));
  if (product_rows_b(&contract->product)) {
    LLVMValueRef column = LLVMBuildUDiv(emit->builder, above, n, "");
    Range panels = tile_range(emit, column, contract->plan.panels, contract->plan.columns_b);
    Range steps = steps_of_group(loops, group);
    contract_pack_across(contract, loops->b_base, contract_shared_block(loops, SIDE_B), &loops->k,
                         panels, steps);
    return;
  }
  Range range = tile_range(emit, group, contract->plan.panels, contract->plan.groups_b);
  Loop loop = emit_loop(emit, range.from, range.to, 1, 0, NULL);
  for (int wide = 0; wide <= (contract->plan.wide > 0); wide++) share_panel(loops, loop.i, wide);
  emit_loop_end(emit, &loop);
}

void contract_share(Contract *contract) {
  Emit *emit = contract->e;
  ChunkLoops loops = {.c = contract};
  emit_begin_phase(emit, 0);
  LLVMValueRef of_a = emit_i64(emit, contract->plan.chunks_a), chunk = emit->chunk;
  if (contract->plan.shared) {
    Branch a = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSLT, chunk, of_a, ""));
    share_a(&loops, chunk);
    emit_end_if(emit, a);
  }
  if (contract->plan.shared_b) {
    Branch b = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSGE, chunk, of_a, ""));
    share_b(&loops, LLVMBuildNSWSub(emit->builder, chunk, of_a, ""));
    emit_end_if(emit, b);
  }
  emit_end_phase(emit);
}
