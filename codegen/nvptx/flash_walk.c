/* Attention on GPUs: the walk over tiles of columns, two stages in turn: while one is computed, the
   next one is copied. See flash.c.

   A unit is a tile of columns of one head of queries. The next units are those of the CTA's list,
   run by run, if it has one (flash_list.c); otherwise those for which the mask over intervals
   admits a score. Only two numbers of a list are kept while a tile is computed; the words of its
   run are read again while the tile's copies are waited for. */
#include "flash.h"
#include "ir/support/num.h"

typedef struct TileWalk {
  FlashGpu *x;
  int64_t blocks, units; /* of columns; times the heads of a group where rows are keys */
  Registers unit, run;   /* of lists: -1, no unit is left; the number of its run */
} TileWalk;

typedef struct Unit {
  LLVMValueRef number, present; /* i32, i1 */
  LLVMValueRef run[2];          /* of lists: the words of its run */
} Unit;

static LLVMValueRef tile_of(TileWalk *walk, LLVMValueRef unit) {
  bool one = walk->x->lists.present && !walk->x->rows_are_keys;
  return one ? unit : warp_rem(&walk->x->w, unit, walk->blocks);
}

static LLVMValueRef first_column(TileWalk *walk, LLVMValueRef unit) {
  return warp_times(&walk->x->w, tile_of(walk, unit), walk->x->g.tile[FLASH_GPU_COLUMNS]);
}

static void enter_unit(TileWalk *walk, LLVMValueRef unit) { /* its head */
  FlashGpu *flash = walk->x;
  if (flash->rows_are_keys)
    flash->group = warp_wide(&flash->w, warp_div(&flash->w, unit, walk->blocks));
}

/* ---- what is next, by intervals ---- */

static MaskFacts facts_of(TileWalk *walk, LLVMValueRef unit) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  enter_unit(walk, unit);
  LLVMValueRef c0 = first_column(walk, unit), row0 = flash->row0;
  LLVMValueRef c1 =
      warp_min(w, warp_plus(w, c0, flash->g.tile[FLASH_GPU_COLUMNS]), warp_i32(w, flash->columns));
  LLVMValueRef row1 =
      warp_min(w, warp_plus(w, row0, flash->g.tile[FLASH_GPU_ROWS]), warp_i32(w, flash->rows));
  LLVMValueRef at[] = {row0, row1, c0, c1};
  for (int i = 0; i < 4; i++) at[i] = warp_wide(w, at[i]);
  int rows = flash->rows_are_keys ? 2 : 0; /* queries come first */
  AttentionHead head = flash_head(flash);
  return attention_head_facts(&head, at[rows], at[rows + 1], at[2 - rows], at[3 - rows]);
}

/* The first unit from `unit` on that has a score to compute, or the number of units. */
static LLVMValueRef next_by_mask(TileWalk *walk, LLVMValueRef unit) {
  Warp *w = &walk->x->w;
  Emit *emit = walk->x->e;
  if (walk->x->f.mask == NO_VALUE) return unit;
  Registers at = warp_registers(w, w->i32, 1);
  warp_set(w, &at, 0, unit);
  WarpLoop loop = warp_loop(w);
  LLVMValueRef i = warp_get(w, &at, 0);
  LLVMValueRef none = LLVMBuildNot(emit->builder, facts_of(walk, i).some, "");
  LLVMValueRef present = warp_less(w, i, warp_i32(w, walk->units));
  warp_loop_while(w, &loop, LLVMBuildAnd(emit->builder, present, none, ""));
  warp_set(w, &at, 0, warp_plus(w, i, 1));
  warp_loop_end(w, &loop);
  return warp_get(w, &at, 0);
}

/* Whether all scores of a unit are admitted: none is past the end of the columns. */
static LLVMValueRef all_by_mask(TileWalk *walk, LLVMValueRef unit) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  LLVMValueRef all = facts_of(walk, unit).all;
  if (flash->rows_are_keys || flash->columns % flash->g.tile[FLASH_GPU_COLUMNS] == 0) return all;
  LLVMValueRef end = warp_plus(w, first_column(walk, unit), flash->g.tile[FLASH_GPU_COLUMNS] - 1);
  return LLVMBuildAnd(flash->e->builder, all, warp_less(w, end, warp_i32(w, flash->columns)), "");
}

/* ---- what is next, by lists ---- */

static void step_list(TileWalk *walk, const Unit *now) {
  Warp *w = &walk->x->w;
  LLVMBuilderRef b = walk->x->e->builder;
  LLVMValueRef next = warp_plus(w, now->number, 1);
  LLVMValueRef end = LLVMBuildLShr(b, now->run[0], warp_i32(w, 1), "");
  LLVMValueRef inside = warp_less(w, next, end), run = warp_get(w, &walk->run, 0);
  warp_set(w, &walk->unit, 0, LLVMBuildSelect(b, inside, next, now->run[1], ""));
  warp_set(w, &walk->run, 0, LLVMBuildSelect(b, inside, run, warp_plus(w, run, 1), ""));
}

static LLVMValueRef all_by_list(TileWalk *walk, LLVMValueRef end) {
  const FlashLists *l = &walk->x->lists;
  LLVMBuilderRef b = walk->x->e->builder;
  LLVMTypeRef i1 = LLVMInt1TypeInContext(walk->x->e->context);
  return l->full && l->partial ? LLVMBuildTrunc(b, end, i1, "") : LLVMConstInt(i1, l->full, 0);
}

/* ---- either way ---- */

static Unit unit_now(TileWalk *walk) {
  Warp *w = &walk->x->w;
  LLVMValueRef u = warp_get(w, &walk->unit, 0);
  if (walk->x->lists.present)
    return (Unit){.number = u, .present = warp_less(w, warp_i32(w, -1), u)};
  return (Unit){.number = u, .present = warp_less(w, u, warp_i32(w, walk->units))};
}

static Unit first_unit(TileWalk *walk) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  bool lists = flash->lists.present;
  warp_set(w, &walk->unit, 0, lists ? flash->unit : next_by_mask(walk, warp_i32(w, 0)));
  if (lists) warp_set(w, &walk->run, 0, flash->list);
  return unit_now(walk);
}

static Unit next_unit(TileWalk *walk, const Unit *now) {
  Warp *w = &walk->x->w;
  if (walk->x->lists.present) step_list(walk, now);
  else warp_set(w, &walk->unit, 0, next_by_mask(walk, warp_plus(w, now->number, 1)));
  return unit_now(walk);
}

static void begin_unit(TileWalk *walk, const Unit *unit, LLVMValueRef stage) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  LLVMValueRef end = warp_i32(w, walk->blocks);
  LLVMValueRef tile =
      LLVMBuildSelect(flash->e->builder, unit->present, tile_of(walk, unit->number), end, "");
  enter_unit(walk, unit->number);
  if (flash->rows_are_keys) { /* no head after the last one */
    LLVMValueRef last = emit_i64(flash->e, flash->f.group.count - 1);
    flash->group = LLVMBuildSelect(flash->e->builder, unit->present, flash->group, last, "");
  }
  for (int i = 0, bit; i < flash_gpu_tiles(flash->phase, true); i++) {
    ValueId value = flash_tile_value(flash, true, i, &bit);
    if (flash->rows_are_keys) flash->column[i].base = flash_base(flash, value, flash->f.query);
    tile_load_begin(w, &flash->column[i], tile, end, stage);
  }
}

static void end_unit(TileWalk *walk, LLVMValueRef stage) {
  for (int i = 0; i < flash_gpu_tiles(walk->x->phase, true); i++)
    tile_load_end(&walk->x->w, &walk->x->column[i], stage);
}

static FlashBlock block_of(TileWalk *walk, const Unit *unit, LLVMValueRef stage) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  FlashBlock block = {.c0 = first_column(walk, unit->number), .stage = stage, .head = flash->head};
  block.all =
      flash->lists.present ? all_by_list(walk, unit->run[0]) : all_by_mask(walk, unit->number);
  block.parts = flash->lists.parts, block.part = flash->lists.part; /* none without lists */
  enter_unit(walk, unit->number);
  if (flash->rows_are_keys)
    block.head = warp_add(w, flash->head, warp_div(w, unit->number, walk->blocks));
  return block;
}

static TileWalk walk_of(FlashGpu *flash) {
  Warp *w = &flash->w;
  TileWalk walk = {.x = flash,
                   .blocks = ceil_div(flash->columns, flash->g.tile[FLASH_GPU_COLUMNS])};
  walk.units = walk.blocks * (flash->rows_are_keys ? flash->f.group.count : 1);
  walk.unit = warp_registers(w, w->i32, 1);
  if (flash->lists.present) walk.run = warp_registers(w, w->i32, 1);
  return walk;
}

void flash_walk(FlashGpu *flash, FlashWork *work, void *with) {
  Warp *w = &flash->w;
  TileWalk walk = walk_of(flash);
  Registers stage = warp_registers(w, w->i32, 1);
  LLVMValueRef zero = warp_i32(w, 0);
  Unit first = first_unit(&walk);
  begin_unit(&walk, &first, zero), end_unit(&walk, zero);
  warp_commit(w);
  warp_set(w, &stage, 0, zero);
  WarpLoop loop = warp_loop(w);
  Unit now = unit_now(&walk);
  LLVMValueRef here = warp_get(w, &stage, 0);
  warp_loop_while(w, &loop, now.present);
  if (flash->lists.present) flash_list_run(flash, warp_get(w, &walk.run, 0), now.run);
  warp_wait(w, 0), warp_barrier(w);
  Unit next = next_unit(&walk, &now);
  LLVMValueRef other = warp_sub(w, warp_i32(w, flash->stage_bytes), here);
  begin_unit(&walk, &next, other);
  warp_commit(w);
  FlashBlock block = block_of(&walk, &now, here);
  work(flash, &block, with);
  end_unit(&walk, other);
  warp_set(w, &stage, 0, other);
  warp_loop_end(w, &loop);
  warp_wait(w, 0);
}
