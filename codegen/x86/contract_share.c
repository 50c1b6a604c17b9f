/* The phase before a contraction's: chunks pack what several of its chunks read, each a part, first
   of a, then of b, into the kernel's workspace. */
#include "contract_loops.h"

LLVMValueRef contract_shared_block(ChunkLoops *w, ProductSide side) {
  Contract *contract = w->c;
  Emit *emit = contract->e;
  LLVMValueRef at =
      tile_times(emit, w->b, contract->plan.tile[TILE_K_OUTER] * contract->plan.tile[TILE_K_INNER]);
  at = tile_times(emit, tile_add(emit, at, w->k_turn),
                  side == SIDE_A ? contract->plan.block_floats : contract->plan.block_b);
  if (side == SIDE_B) at = tile_add(emit, at, emit_i64(emit, contract->plan.at_b / 4));
  return tile_elements(emit, contract->f32,
                       emit_buffer(emit, contract->k->args.n + contract->k->results.n), at);
}

/* Goes to batch and block of k number `above`. */
static void enter_above(ChunkLoops *w, LLVMValueRef above) {
  Contract *contract = w->c;
  Emit *emit = contract->e;
  LLVMValueRef blocks =
      emit_i64(emit, contract->plan.tile[TILE_K_OUTER] * contract->plan.tile[TILE_K_INNER]);
  w->b = LLVMBuildUDiv(emit->builder, above, blocks, "");
  contract_enter_block(w, LLVMBuildURem(emit->builder, above, blocks, ""));
}

/* Some tiles of a. */
static void share_a(ChunkLoops *w, LLVMValueRef chunk) {
  Contract *contract = w->c;
  Emit *emit = contract->e;
  LLVMValueRef groups = emit_i64(emit, contract->plan.groups);
  enter_above(w, LLVMBuildUDiv(emit->builder, chunk, groups, ""));
  w->row = tile_range(emit, LLVMBuildURem(emit->builder, chunk, groups, ""), contract->plan.tiles,
                      contract->plan.groups);
  LLVMValueRef to = tile_elements(emit, contract->f32, contract_shared_block(w, SIDE_A),
                                  contract_packed_tile(contract, w->row.from, &w->k));
  contract_pack_a(contract, w->a_base, to, w->row.from, w->row.to, &w->k);
}

/* Steps of k, group of groups_b, of a block whose length is known when the kernel runs. */
static Range steps_of_group(ChunkLoops *w, LLVMValueRef group) {
  Emit *emit = w->c->e;
  LLVMValueRef n = emit_i64(emit, w->c->plan.groups_b),
               next = tile_add(emit, group, emit_i64(emit, 1));
  LLVMValueRef from = LLVMBuildNSWMul(emit->builder, group, w->k.length, "");
  LLVMValueRef to = LLVMBuildNSWMul(emit->builder, next, w->k.length, "");
  return (Range){LLVMBuildUDiv(emit->builder, from, n, ""),
                 LLVMBuildUDiv(emit->builder, to, n, "")};
}

static void share_panel(ChunkLoops *w, LLVMValueRef panel, int wide) {
  Contract *contract = w->c;
  Emit *emit = contract->e;
  LLVMValueRef here = contract_is_wide(contract, panel), v0 = contract_panel_first(contract, panel);
  Branch b = emit_if(emit, wide ? here : LLVMBuildNot(emit->builder, here, ""));
  LLVMValueRef to = tile_elements(emit, contract->f32, contract_shared_block(w, SIDE_B),
                                  contract_packed_panel(contract, v0, &w->k));
  contract_pack_b(contract, wide, w->b_base, to, v0, &w->k,
                  (Range){emit_i64(emit, 0), w->k.length});
  emit_end_if(emit, b);
}

/* Some steps of k of a block of b's panels, or some panels. Blocks of panels change slowest. */
static void share_b(ChunkLoops *w, LLVMValueRef chunk) {
  Contract *contract = w->c;
  Emit *emit = contract->e;
  LLVMValueRef groups = emit_i64(emit, contract->plan.groups_b);
  LLVMValueRef group = LLVMBuildURem(emit->builder, chunk, groups, "");
  LLVMValueRef above = LLVMBuildUDiv(emit->builder, chunk, groups, "");
  int64_t blocks = contract->plan.pack_chunks - contract->plan.chunks_a;
  blocks /= contract->plan.groups_b * contract->plan.columns_b;
  LLVMValueRef n = emit_i64(emit, blocks);
  enter_above(w, LLVMBuildURem(emit->builder, above, n, ""));
  if (product_rows_b(&contract->product)) {
    LLVMValueRef column = LLVMBuildUDiv(emit->builder, above, n, "");
    Range panels = tile_range(emit, column, contract->plan.panels, contract->plan.columns_b);
    Range steps = steps_of_group(w, group);
    contract_pack_across(contract, w->b_base, contract_shared_block(w, SIDE_B), &w->k, panels,
                         steps);
    return;
  }
  Range range = tile_range(emit, group, contract->plan.panels, contract->plan.groups_b);
  Loop p = emit_loop(emit, range.from, range.to, 1, 0, NULL);
  for (int wide = 0; wide <= (contract->plan.wide > 0); wide++) share_panel(w, p.i, wide);
  emit_loop_end(emit, &p);
}

void contract_share(Contract *contract) {
  Emit *emit = contract->e;
  ChunkLoops w = {.c = contract};
  emit_begin_phase(emit, 0);
  LLVMValueRef of_a = emit_i64(emit, contract->plan.chunks_a), chunk = emit->chunk;
  if (contract->plan.shared) {
    Branch a = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSLT, chunk, of_a, ""));
    share_a(&w, chunk);
    emit_end_if(emit, a);
  }
  if (contract->plan.shared_b) {
    Branch b = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSGE, chunk, of_a, ""));
    share_b(&w, LLVMBuildNSWSub(emit->builder, chunk, of_a, ""));
    emit_end_if(emit, b);
  }
  emit_end_phase(emit);
}
