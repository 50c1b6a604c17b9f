/* Products by wgmma whose operands come by bulk tensor copies (attribute tile: BY_BULK; with
   BY_BULK_ALL results leave by such copies as well, gemm_leave.c); see gemm_wgmma.c for the whole.
   In place of the warpgroup that copies

     one thread copies                            each warp that multiplies
       for each tile of k:                          for each tile of k:
         empty: wait                                  full: wait
         full: arrive, with the bytes to come         wgmma, four steps of 16
         copy both operands                           wait for the tile of k before it
                                                      empty of that: one lane arrives

   `full` and `empty` are mbarriers, two for each stage of the ring: a copy completes `full`
   itself, and its bytes need no fence. Phases of a stage are its laps, so that a warp that waits
   knows the parity of its lap. Shared memory then has the operands as threads would have copied
   them (gemm_map): one box of a stage of k for all rows; or, if k is not contiguous, a box for
   each panel of 64 rows or columns, the last one whole even if the tile ends within it. */
#include "bulk.h"
#include "gemm.h"

static LLVMValueRef signal_of(Gemm *gemm, LLVMValueRef stage, int64_t more) {
  LLVMValueRef at = warp_times(&gemm->w, stage, SIGNAL_BYTES);
  return warp_plus(&gemm->w, at, gemm->g.signals_at + more);
}

LLVMValueRef gemm_bulk_full(Gemm *gemm, LLVMValueRef stage) { return signal_of(gemm, stage, 0); }

LLVMValueRef gemm_bulk_empty(Gemm *gemm, LLVMValueRef stage) {
  return signal_of(gemm, stage, SIGNAL_BYTES * gemm->g.tile[GEMM_STAGES]);
}

void gemm_bulk_begin(Gemm *gemm) {
  Warp *w = &gemm->w;
  int warps = (int)(gemm->g.threads[0] - WGMMA_THREADS) / 32;
  Branch first = emit_if(gemm->e, warp_less(w, w->thread, warp_i32(w, 1)));
  for (int s = 0; s < gemm->g.tile[GEMM_STAGES]; s++) {
    bulk_begin(w, gemm_bulk_full(gemm, warp_i32(w, s)), 1);
    bulk_begin(w, gemm_bulk_empty(gemm, warp_i32(w, s)), warps);
  }
  for (int warp = 0; gemm_has_elements(gemm) && warp < warps; warp++)
    bulk_begin(w, gemm_leave_signal(gemm, warp_i32(w, warp * WGMMA_LEAVE_ROWS)), 1);
  bulk_begun(w);
  emit_end_if(gemm->e, first);
  warp_barrier(w);
}

LLVMValueRef gemm_bulk_at(Gemm *gemm, const GemmMap *map, int i, LLVMValueRef number) {
  LLVMValueRef at = warp_div(&gemm->w, number, map->below[i]);
  return map->outermost[i] ? at : warp_rem(&gemm->w, at, map->map.size[i]);
}

/* Copies an operand's tile from k on to the stage. */
static void bring(Gemm *gemm, bool is_b, LLVMValueRef k, LLVMValueRef stage, LLVMValueRef signal) {
  Warp *w = &gemm->w;
  const GemmSide *side = is_b ? &gemm->g.b : &gemm->g.a;
  LLVMValueRef number[] = {
      [OF_K] = k, [OF_MN] = is_b ? gemm->n0 : gemm->m0, [OF_BATCH] = gemm->batch};
  LLVMValueRef at[MAP_RANK], to = is_b ? warp_plus(w, stage, gemm->g.a.bytes) : stage;
  GemmMap map;
  if (!gemm_map(&gemm->p, &gemm->g, is_b, &map))
    bug("kernel %s: no map of an operand", gemm->k->name);
  for (int i = 0; i < map.map.rank; i++) at[i] = gemm_bulk_at(gemm, &map, i, number[map.of[i]]);
  for (int64_t panel = 0; panel < gemm_panels(side); panel++) {
    if (panel) at[0] = warp_plus(w, at[0], WGMMA_K);
    bulk_copy(w, warp_plus(w, to, panel * gemm_panel_bytes(side)), gemm->e->map[is_b], map.map.rank,
              at, signal);
  }
}

void gemm_bulk_bring(Gemm *gemm, LLVMValueRef kt, LLVMValueRef number, LLVMValueRef stage) {
  Warp *w = &gemm->w;
  LLVMValueRef full = gemm_bulk_full(gemm, number), k = warp_times(w, kt, gemm->g.tile[GEMM_K]);
  bulk_expect(w, full, gemm_bulk_bytes(&gemm->g.a) + gemm_bulk_bytes(&gemm->g.b));
  bring(gemm, false, k, stage, full), bring(gemm, true, k, stage, full);
}
