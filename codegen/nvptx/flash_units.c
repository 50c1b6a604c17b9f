/* Attention by warpgroups: the units of a tile of rows, for a warpgroup that multiplies.

   Both warpgroups meet all units of the tile, whose stages they leave together. A warpgroup works
   on those that have a score for one of its 64 rows: under a causal mask the first one ends before
   the second one, and where rows are keys the second one begins later. It passes the others, that
   is, it waits for their operands and leaves them. It may not leave a stage without that wait,
   because the barrier could still be in the lap before, in which the other warpgroup reads.

   Units that follow each other are a stretch, in which products of one run while the next one is
   begun. A stretch ends before a unit is passed, so that nothing waits for a stage that this
   warpgroup holds.

   Must not: know what is computed for a unit. */
#include "flash_group.h"
#include "simt.h"

typedef struct UnitsWalk {
  FlashRing *ring;
  FlashWalk *walk;
  const FlashUnitWork *work;
  void *with;
  bool passes; /* some units may be passed */
} UnitsWalk;

/* The number of the next unit is nothing that LLVM knows: with one block of queries it would know
   all units and join two of them to a block without a loop, for which ptxas lacks registers. */
static void forget_unit(Warp *w, const FlashWalk *walk) {
  LLVMValueRef unit = warp_get(w, &walk->unit, 0);
  warp_set(w, &walk->unit, 0, simt_asm(w->e, "mov.b32 $0, $1;", "=r,r", w->i32, 1, &unit, true));
}

static void next_unit(const UnitsWalk *units, const FlashUnit *unit) {
  flash_ring_next(units->ring);
  flash_unit_next(units->walk, unit);
}

/* Rows are left by the last unit of the tile, whether it is passed or not: with products of results
   still under way, so that the next rows can come. */
static void leave_rows(const UnitsWalk *units) {
  FlashGpu *flash = units->ring->x;
  Branch last = {0};
  FlashUnit now = flash_unit_now(units->walk);
  if (units->passes) last = emit_if(flash->e, LLVMBuildNot(flash->e->builder, now.present, ""));
  flash_rows_leave(units->ring);
  if (units->passes) emit_end_if(flash->e, last);
}

/* All that remain, as long as they are the warpgroup's own. */
static void each(const UnitsWalk *units, FlashUnitDo *work, bool passes) {
  FlashGpu *flash = units->ring->x;
  Warp *w = &flash->w;
  forget_unit(w, units->walk);
  WarpLoop loop = warp_loop(w);
  FlashUnit now = flash_unit_now(units->walk);
  LLVMValueRef more = now.present;
  if (passes) more = LLVMBuildAnd(flash->e->builder, more, flash_unit_own(units->walk, &now), "");
  warp_loop_while(w, &loop, more);
  flash_walk_run(units->walk, &now);
  work(units->ring, units->walk, &now, units->with);
  next_unit(units, &now);
  warp_loop_end(w, &loop);
}

static void stretch(const UnitsWalk *units, FlashUnit *first) {
  if (units->work->first) {
    flash_walk_run(units->walk, first);
    units->work->first(units->ring, units->walk, first, units->with);
    next_unit(units, first);
  }
  each(units, units->work->other, units->passes);
  leave_rows(units);
  units->work->last(units->ring, units->with);
}

static void pass(const UnitsWalk *units, FlashUnit *unit) {
  flash_walk_run(units->walk, unit);
  flash_ring_pass(units->ring);
  next_unit(units, unit);
  leave_rows(units);
}

static void stretches(const UnitsWalk *units) {
  FlashGpu *flash = units->ring->x;
  Warp *w = &flash->w;
  WarpLoop loop = warp_loop(w);
  FlashUnit now = flash_unit_now(units->walk);
  warp_loop_while(w, &loop, now.present);
  Branch own = emit_if(flash->e, flash_unit_own(units->walk, &now));
  stretch(units, &now);
  LLVMBuildBr(flash->e->builder, loop.head);
  LLVMPositionBuilderAtEnd(flash->e->builder, own.rest);
  pass(units, &now);
  warp_loop_end(w, &loop);
}

void flash_tile_units(FlashRing *ring, FlashWalk *walk, const FlashUnitWork *work, void *with) {
  FlashGpu *flash = ring->x;
  UnitsWalk units = {ring, walk, work, with, flash_walk_passes(walk)};
  flash_walk_side(walk);
  FlashUnit first = flash_unit_first(walk);
  Branch some = emit_if(flash->e, first.present);
  flash_rows_meet(ring);
  if (walk->reads) each(&units, work->alone, false), flash_rows_leave(ring);
  else if (units.passes) stretches(&units);
  else stretch(&units, &first);
  emit_end_if(flash->e, some);
}
