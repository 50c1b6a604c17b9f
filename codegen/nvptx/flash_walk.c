/* Attention on GPUs: the walk over tiles of columns, two stages in turn: while one is computed, the
   next one is copied. See flash.c.

   A unit is a tile of columns of one head of queries. The next units are those of the CTA's list,
   run by run, if it has one (flash_list.c); otherwise those for which the mask over intervals
   admits a score. Only two numbers of a list are kept while a tile is computed; the words of its
   run are read again while the tile's copies are waited for. All of a CTA walk the same units; a
   warpgroup asks for its own rows whether a unit has a score to compute.

   Numbers in memory that the mask compares, such as those of documents, choose no unit: all tiles
   are copied. When a tile's turn comes, each warp reads these numbers of its columns (those of the
   rows once, before the walk) while the next tile's copies are under way, and joins their least
   and largest over its lanes: all warps find the same. Where the intervals admit nothing, the CTA
   leaves out the tile's products; where they admit all, the mask is not evaluated. The copies in
   flight and their barriers are the same either way. */
#include "flash.h"
#include "ir/mask/mask_range.h"
#include "ir/support/num.h"

LLVMValueRef flash_unit_tile(FlashWalk *walk, LLVMValueRef unit) {
  bool one = walk->x->lists.present && !walk->x->rows_are_keys;
  return one ? unit : warp_rem(&walk->x->w, unit, walk->blocks);
}

static LLVMValueRef first_column(FlashWalk *walk, LLVMValueRef unit) {
  return warp_times(&walk->x->w, flash_unit_tile(walk, unit), walk->x->g.tile[FLASH_GPU_COLUMNS]);
}

void flash_unit_enter(FlashWalk *walk, LLVMValueRef unit) {
  FlashGpu *flash = walk->x;
  if (flash->rows_are_keys)
    flash->group = warp_wide(&flash->w, warp_div(&flash->w, unit, walk->blocks));
}

LLVMValueRef flash_unit_head(FlashWalk *walk, LLVMValueRef unit) {
  FlashGpu *flash = walk->x;
  if (!flash->rows_are_keys) return flash->head;
  return warp_add(&flash->w, flash->head, warp_div(&flash->w, unit, walk->blocks));
}

/* i32 */
static LLVMValueRef own_row0(FlashWalk *walk) {
  FlashGpu *flash = walk->x;
  if (!walk->group) return flash->row0;
  return warp_add(&flash->w, flash->row0, warp_times(&flash->w, walk->group, WGMMA_ROWS));
}

/* Whether warpgroups of some tile have no row. */
static bool rows_end_early(const FlashWalk *walk) {
  int64_t tile = walk->x->g.tile[FLASH_GPU_ROWS], rest = walk->x->rows % tile;
  return walk->group && rest && rest <= tile - WGMMA_ROWS;
}

/* Wide: first row, and the end, no further than the last row. A warpgroup without rows has the last
   one. */
static void span_of_rows(FlashWalk *walk, bool own, LLVMValueRef span[2]) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  bool group = own && walk->group;
  LLVMValueRef first = group ? own_row0(walk) : flash->row0, all = warp_i32(w, flash->rows);
  LLVMValueRef end = warp_plus(w, first, group ? WGMMA_ROWS : flash->g.tile[FLASH_GPU_ROWS]);
  if (group && rows_end_early(walk)) first = warp_min(w, first, warp_i32(w, flash->rows - 1));
  span[0] = warp_wide(w, first), span[1] = warp_wide(w, warp_min(w, end, all));
}

typedef enum FactsOver { OVER_TILE, OVER_OWN, OVER_OWN_READING } FactsOver;

/* Facts of a mask over a unit, for the tile's rows or the own ones, for which numbers in memory may
   be read. */
static MaskFacts facts_of(FlashWalk *walk, ValueId mask, LLVMValueRef unit, FactsOver over) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  flash_unit_enter(walk, unit);
  LLVMValueRef c0 = first_column(walk, unit);
  LLVMValueRef c1 =
      warp_min(w, warp_plus(w, c0, flash->g.tile[FLASH_GPU_COLUMNS]), warp_i32(w, flash->columns));
  LLVMValueRef at[] = {NULL, NULL, warp_wide(w, c0), warp_wide(w, c1)};
  span_of_rows(walk, over != OVER_TILE, at);
  int rows = flash->rows_are_keys ? 2 : 0; /* queries come first */
  Flash asked = flash->f;
  asked.mask = mask;
  AttentionHead head = flash_head(flash);
  head.f = &asked, head.reads = over == OVER_OWN_READING;
  if (head.reads) head.readers = &walk->lanes, head.side = walk->side;
  return attention_head_facts(&head, at[rows], at[rows + 1], at[2 - rows], at[3 - rows]);
}

void flash_walk_side(FlashWalk *walk) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  if (!walk->reads) return;
  walk->lanes = (AttentionReaders){32, warp_wide(w, w->lane), warp_extreme};
  AttentionHead head = flash_head(flash);
  head.reads = true, head.readers = &walk->lanes;
  LLVMValueRef span[2];
  span_of_rows(walk, true, span);
  walk->side = attention_head_side(&head, flash->rows_are_keys ? flash->f.key : flash->f.query,
                                   span[0], span[1]);
}

/* ---- what is next, by intervals ---- */

/* The first unit from `unit` on that has a score to compute, or the number of units. */
static LLVMValueRef next_by_mask(FlashWalk *walk, LLVMValueRef unit) {
  Warp *w = &walk->x->w;
  Emit *emit = walk->x->e;
  if (walk->x->f.mask == NO_VALUE) return unit;
  Registers at = warp_registers(w, w->i32, 1);
  warp_set(w, &at, 0, unit);
  WarpLoop loop = warp_loop(w);
  LLVMValueRef i = warp_get(w, &at, 0);
  MaskFacts facts = facts_of(walk, walk->x->f.mask, i, OVER_TILE);
  LLVMValueRef none = LLVMBuildNot(emit->builder, facts.some, "");
  LLVMValueRef present = warp_less(w, i, warp_i32(w, walk->units));
  warp_loop_while(w, &loop, LLVMBuildAnd(emit->builder, present, none, ""));
  warp_set(w, &at, 0, warp_plus(w, i, 1));
  warp_loop_end(w, &loop);
  return warp_get(w, &at, 0);
}

/* Whether all scores of a unit are admitted: none is past the end of the columns. */
static LLVMValueRef all_by_mask(FlashWalk *walk, LLVMValueRef unit, LLVMValueRef all) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  if (flash->rows_are_keys || flash->columns % flash->g.tile[FLASH_GPU_COLUMNS] == 0) return all;
  LLVMValueRef end = warp_plus(w, first_column(walk, unit), flash->g.tile[FLASH_GPU_COLUMNS] - 1);
  return LLVMBuildAnd(flash->e->builder, all, warp_less(w, end, warp_i32(w, flash->columns)), "");
}

/* ---- what is next, by lists ---- */

static void step_list(FlashWalk *walk, const FlashUnit *now) {
  Warp *w = &walk->x->w;
  LLVMBuilderRef b = walk->x->e->builder;
  LLVMValueRef next = warp_plus(w, now->code, FLASH_UNIT);
  LLVMValueRef inside = warp_less(w, next, now->run[0]), run = warp_get(w, &walk->run, 0);
  warp_set(w, &walk->unit, 0, LLVMBuildSelect(b, inside, next, now->run[1], ""));
  warp_set(w, &walk->run, 0, LLVMBuildSelect(b, inside, run, warp_plus(w, run, 1), ""));
}

/* i1: this bit of a unit's code, of the own rows */
static LLVMValueRef bit_of(FlashWalk *walk, LLVMValueRef code, int bit) {
  LLVMBuilderRef b = walk->x->e->builder;
  LLVMValueRef at = warp_i32(&walk->x->w, bit);
  if (walk->group) at = warp_plus(&walk->x->w, walk->group, bit);
  return LLVMBuildTrunc(b, LLVMBuildLShr(b, code, at, ""),
                        LLVMInt1TypeInContext(walk->x->e->context), "");
}

static LLVMValueRef all_by_list(FlashWalk *walk, LLVMValueRef code) {
  const FlashLists *l = &walk->x->lists;
  LLVMTypeRef i1 = LLVMInt1TypeInContext(walk->x->e->context);
  return l->full && l->partial ? bit_of(walk, code, FLASH_UNIT_FULL) : LLVMConstInt(i1, l->full, 0);
}

/* ---- either way ---- */

FlashUnit flash_unit_now(FlashWalk *walk) {
  Warp *w = &walk->x->w;
  LLVMValueRef u = warp_get(w, &walk->unit, 0);
  if (walk->x->lists.present)
    return (FlashUnit){.number = warp_div(w, u, FLASH_UNIT),
                       .present = warp_less(w, warp_i32(w, -1), u),
                       .code = u};
  return (FlashUnit){.number = u, .present = warp_less(w, u, warp_i32(w, walk->units))};
}

void flash_walk_run(FlashWalk *walk, FlashUnit *unit) {
  FlashGpu *flash = walk->x;
  if (!flash->lists.present) return;
  flash_list_run(flash, warp_get(&flash->w, &walk->run, 0), unit->run);
}

FlashUnit flash_unit_first(FlashWalk *walk) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  bool lists = flash->lists.present;
  warp_set(w, &walk->unit, 0, lists ? flash->unit : next_by_mask(walk, warp_i32(w, 0)));
  if (lists) warp_set(w, &walk->run, 0, flash->list);
  return flash_unit_now(walk);
}

FlashUnit flash_unit_next(FlashWalk *walk, const FlashUnit *now) {
  Warp *w = &walk->x->w;
  if (walk->x->lists.present) step_list(walk, now);
  else warp_set(w, &walk->unit, 0, next_by_mask(walk, warp_plus(w, now->number, 1)));
  return flash_unit_now(walk);
}

static void begin_unit(FlashWalk *walk, const FlashUnit *unit, LLVMValueRef stage) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  LLVMValueRef end = warp_i32(w, walk->blocks);
  LLVMValueRef tile = LLVMBuildSelect(flash->e->builder, unit->present,
                                      flash_unit_tile(walk, unit->number), end, "");
  flash_unit_enter(walk, unit->number);
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

static void end_unit(FlashWalk *walk, LLVMValueRef stage) {
  for (int i = 0; i < flash_gpu_tiles(walk->x->phase, true); i++)
    tile_load_end(&walk->x->w, &walk->x->column[i], stage);
}

/* Facts of the parts of the mask that data decides, over a unit of a list. */
static MaskFacts facts_of_parts(FlashWalk *walk, LLVMValueRef unit) {
  FlashGpu *flash = walk->x;
  LLVMBuilderRef b = flash->e->builder;
  LLVMTypeRef i1 = LLVMInt1TypeInContext(flash->e->context);
  MaskFacts sum = {LLVMConstInt(i1, 1, 0), LLVMConstInt(i1, walk->reads, 0)};
  for (int i = 0; walk->reads && i < flash->lists.parts; i++) {
    MaskFacts part = facts_of(walk, flash->lists.part[i], unit, OVER_OWN_READING);
    sum = (MaskFacts){LLVMBuildAnd(b, sum.some, part.some, ""),
                      LLVMBuildAnd(b, sum.all, part.all, "")};
  }
  return sum;
}

bool flash_walk_passes(const FlashWalk *walk) {
  const FlashGpu *flash = walk->x;
  bool crossed = flash->phase == FLASH_FORWARD && !flash->g.bulk && !walk->reads;
  if (!walk->group || crossed) return false;
  if (flash->lists.present) return flash->lists.apart;
  /* A block as wide as the tile is high, on its diagonal, has scores for both: a loop that asks
     would take longer. */
  bool narrow = flash->g.tile[FLASH_GPU_COLUMNS] < flash->g.tile[FLASH_GPU_ROWS] || walk->reads;
  return (flash->f.mask != NO_VALUE && narrow) || rows_end_early(walk);
}

LLVMValueRef flash_unit_own(FlashWalk *walk, const FlashUnit *unit) {
  FlashGpu *flash = walk->x;
  Warp *w = &flash->w;
  if (flash->lists.present) return bit_of(walk, unit->code, FLASH_UNIT_SOME);
  LLVMValueRef own = facts_of(walk, flash->f.mask, unit->number, OVER_OWN).some;
  if (!rows_end_early(walk)) return own;
  LLVMValueRef exists = warp_less(w, own_row0(walk), warp_i32(w, flash->rows));
  return LLVMBuildAnd(flash->e->builder, own, exists, "");
}

/* i1: products are computed, as far as numbers in memory are asked. */
static LLVMValueRef some_of(FlashWalk *walk, const FlashUnit *unit, LLVMValueRef some) {
  if (!walk->reads) return NULL;
  if (!flash_walk_passes(walk)) return some;
  return LLVMBuildAnd(walk->x->e->builder, some, flash_unit_own(walk, unit), "");
}

FlashBlock flash_unit_block(FlashWalk *walk, const FlashUnit *unit, LLVMValueRef stage) {
  FlashGpu *flash = walk->x;
  FlashBlock block = {.c0 = first_column(walk, unit->number), .stage = stage};
  bool lists = flash->lists.present;
  MaskFacts facts = lists ? facts_of_parts(walk, unit->number)
                          : facts_of(walk, flash->f.mask, unit->number,
                                     walk->reads ? OVER_OWN_READING : OVER_OWN);
  block.all = lists ? all_by_list(walk, unit->code) : all_by_mask(walk, unit->number, facts.all);
  block.some = some_of(walk, unit, facts.some), block.sure = facts.all;
  block.parts = flash->lists.parts, block.part = flash->lists.part; /* none without lists */
  flash_unit_enter(walk, unit->number);
  block.head = flash_unit_head(walk, unit->number);
  return block;
}

FlashWalk flash_walk_new(FlashGpu *flash, LLVMValueRef group) {
  Warp *w = &flash->w;
  FlashWalk walk = {.x = flash,
                    .group = group,
                    .blocks = ceil_div(flash->columns, flash->g.tile[FLASH_GPU_COLUMNS])};
  walk.reads = flash->f.mask != NO_VALUE && mask_reads(flash->e->k, flash->f.mask);
  walk.units = walk.blocks * (flash->rows_are_keys ? flash->f.group.count : 1);
  walk.unit = warp_registers(w, w->i32, 1);
  if (flash->lists.present) walk.run = warp_registers(w, w->i32, 1);
  return walk;
}

void flash_walk(FlashGpu *flash, FlashWork *work, void *with) {
  Warp *w = &flash->w;
  FlashWalk walk = flash_walk_new(flash, NULL);
  flash_walk_side(&walk);
  Registers stage = warp_registers(w, w->i32, 1);
  LLVMValueRef zero = warp_i32(w, 0);
  FlashUnit first = flash_unit_first(&walk);
  begin_unit(&walk, &first, zero), end_unit(&walk, zero);
  warp_commit(w);
  warp_set(w, &stage, 0, zero);
  WarpLoop loop = warp_loop(w);
  loop.rolled = true; /* registers are counted for one tile at once */
  FlashUnit now = flash_unit_now(&walk);
  LLVMValueRef here = warp_get(w, &stage, 0);
  warp_loop_while(w, &loop, now.present);
  flash_walk_run(&walk, &now);
  warp_wait(w, 0), warp_barrier(w);
  FlashUnit next = flash_unit_next(&walk, &now);
  LLVMValueRef other = warp_sub(w, warp_i32(w, flash->stage_bytes), here);
  begin_unit(&walk, &next, other);
  warp_commit(w);
  FlashBlock block = flash_unit_block(&walk, &now, here);
  Branch some = {0};
  if (block.some) some = emit_if(flash->e, block.some);
  work(flash, &block, with);
  if (block.some) emit_end_if(flash->e, some);
  end_unit(&walk, other);
  warp_set(w, &stage, 0, other);
  warp_loop_end(w, &loop); /* a unit that is not present was not begun: nothing is under way */
}
