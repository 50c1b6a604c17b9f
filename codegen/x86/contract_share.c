/* The phase before a contraction's: chunks pack what several of its chunks read, each a part, first
   of a, then of b, into the kernel's workspace. */
#include "contract_loops.h"

/* Goes to batch and block of k number `above`. */
static void enter_above(ChunkLoops *w, LLVMValueRef above) {
  Contract *c = w->c;
  Emit *e = c->e;
  LLVMValueRef blocks = emit_i64(e, c->plan.tile[TILE_K_OUTER] * c->plan.tile[TILE_K_INNER]);
  w->b = LLVMBuildUDiv(e->builder, above, blocks, "");
  contract_enter_block(w, LLVMBuildURem(e->builder, above, blocks, ""));
}

/* Some tiles of a. */
static void share_a(ChunkLoops *w, LLVMValueRef chunk) {
  Contract *c = w->c;
  Emit *e = c->e;
  LLVMValueRef groups = emit_i64(e, c->plan.groups);
  enter_above(w, LLVMBuildUDiv(e->builder, chunk, groups, ""));
  w->row =
      tile_range(e, LLVMBuildURem(e->builder, chunk, groups, ""), c->plan.tiles, c->plan.groups);
  LLVMValueRef to = tile_elements(e, c->f32, contract_shared_block(w, SIDE_A),
                                  contract_packed_tile(c, w->row.from, &w->k));
  contract_pack_a(c, w->a_base, to, w->row.from, w->row.to, &w->k);
}

/* Steps of k, group of groups_b, of a block whose length is known when the kernel runs. */
static Range steps_of_group(ChunkLoops *w, LLVMValueRef group) {
  Emit *e = w->c->e;
  LLVMValueRef n = emit_i64(e, w->c->plan.groups_b), next = tile_add(e, group, emit_i64(e, 1));
  LLVMValueRef from = LLVMBuildNSWMul(e->builder, group, w->k.length, "");
  LLVMValueRef to = LLVMBuildNSWMul(e->builder, next, w->k.length, "");
  return (Range){LLVMBuildUDiv(e->builder, from, n, ""), LLVMBuildUDiv(e->builder, to, n, "")};
}

static void share_panel(ChunkLoops *w, LLVMValueRef panel, int wide) {
  Contract *c = w->c;
  Emit *e = c->e;
  LLVMValueRef here = contract_is_wide(c, panel), v0 = contract_panel_first(c, panel);
  Branch b = emit_if(e, wide ? here : LLVMBuildNot(e->builder, here, ""));
  LLVMValueRef to = tile_elements(e, c->f32, contract_shared_block(w, SIDE_B),
                                  contract_packed_panel(c, v0, &w->k));
  contract_pack_b(c, wide, w->b_base, to, v0, &w->k, (Range){emit_i64(e, 0), w->k.length});
  emit_end_if(e, b);
}

/* Some steps of k of a block of b's panels, or some panels. Blocks of panels change slowest. */
static void share_b(ChunkLoops *w, LLVMValueRef chunk) {
  Contract *c = w->c;
  Emit *e = c->e;
  LLVMValueRef groups = emit_i64(e, c->plan.groups_b);
  LLVMValueRef group = LLVMBuildURem(e->builder, chunk, groups, "");
  LLVMValueRef above = LLVMBuildUDiv(e->builder, chunk, groups, "");
  int64_t blocks = c->plan.pack_chunks - c->plan.chunks_a;
  blocks /= c->plan.groups_b * c->plan.columns_b;
  LLVMValueRef n = emit_i64(e, blocks);
  enter_above(w, LLVMBuildURem(e->builder, above, n, ""));
  if (product_rows_b(&c->product)) {
    LLVMValueRef column = LLVMBuildUDiv(e->builder, above, n, "");
    Range panels = tile_range(e, column, c->plan.panels, c->plan.columns_b);
    Range steps = steps_of_group(w, group);
    contract_pack_across(c, w->b_base, contract_shared_block(w, SIDE_B), &w->k, panels, steps);
    return;
  }
  Range r = tile_range(e, group, c->plan.panels, c->plan.groups_b);
  Loop p = emit_loop(e, r.from, r.to, 1, 0, NULL);
  for (int wide = 0; wide <= (c->plan.wide > 0); wide++) share_panel(w, p.i, wide);
  emit_loop_end(e, &p);
}

void contract_share(Contract *c) {
  Emit *e = c->e;
  ChunkLoops w = {.c = c};
  emit_begin_phase(e, 0);
  LLVMValueRef of_a = emit_i64(e, c->plan.chunks_a), chunk = e->chunk;
  if (c->plan.shared) {
    Branch a = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntSLT, chunk, of_a, ""));
    share_a(&w, chunk);
    emit_end_if(e, a);
  }
  if (c->plan.shared_b) {
    Branch b = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntSGE, chunk, of_a, ""));
    share_b(&w, LLVMBuildNSWSub(e->builder, chunk, of_a, ""));
    emit_end_if(e, b);
  }
  emit_end_phase(e);
}
