/* Attention on GPUs: the walk over tiles of columns, two stages in turn: while one is computed, the
   next one is copied. See flash.c.

   A unit is a tile of columns of one head of queries. Which come next: those of the CTA's list,
   run by run, where there is one (flash_list.c); otherwise those for which the mask over intervals
   admits a score. Of a list only two numbers are kept while a tile is computed; the words of its
   run are read again while the tile's copies are waited for. */
#include "flash.h"
#include "ir/support/num.h"

typedef struct TileWalk {
  FlashGpu *x;
  int64_t blocks, units; /* of columns; times the heads of a group where rows are keys */
  Registers unit, run;   /* of lists: -1, no unit is left; the number of its run */
} TileWalk;

typedef struct Unit {
  LLVMValueRef number, there; /* i32, i1 */
  LLVMValueRef run[2];        /* of lists: the words of its run */
} Unit;

static LLVMValueRef tile_of(TileWalk *k, LLVMValueRef unit) {
  bool one = k->x->lists.there && !k->x->rows_are_keys;
  return one ? unit : warp_rem(&k->x->w, unit, k->blocks);
}

static LLVMValueRef first_column(TileWalk *k, LLVMValueRef unit) {
  return warp_times(&k->x->w, tile_of(k, unit), k->x->g.tile[FLASH_GPU_COLUMNS]);
}

static void enter_unit(TileWalk *k, LLVMValueRef unit) { /* its head */
  FlashGpu *x = k->x;
  if (x->rows_are_keys) x->group = warp_wide(&x->w, warp_div(&x->w, unit, k->blocks));
}

/* ---- what is next, by intervals ---- */

static MaskFacts facts_of(TileWalk *k, LLVMValueRef unit) {
  FlashGpu *x = k->x;
  Warp *w = &x->w;
  enter_unit(k, unit);
  LLVMValueRef c0 = first_column(k, unit), row0 = x->row0;
  LLVMValueRef c1 =
      warp_min(w, warp_plus(w, c0, x->g.tile[FLASH_GPU_COLUMNS]), warp_i32(w, x->columns));
  LLVMValueRef row1 =
      warp_min(w, warp_plus(w, row0, x->g.tile[FLASH_GPU_ROWS]), warp_i32(w, x->rows));
  LLVMValueRef at[] = {row0, row1, c0, c1};
  for (int i = 0; i < 4; i++) at[i] = warp_wide(w, at[i]);
  int rows = x->rows_are_keys ? 2 : 0; /* queries come first */
  AttentionHead h = flash_head(x);
  return attention_head_facts(&h, at[rows], at[rows + 1], at[2 - rows], at[3 - rows]);
}

/* The first unit from `unit` on that has a score to compute, or the number of units. */
static LLVMValueRef next_by_mask(TileWalk *k, LLVMValueRef unit) {
  Warp *w = &k->x->w;
  Emit *emit = k->x->e;
  if (k->x->f.mask == NO_VALUE) return unit;
  Registers at = warp_registers(w, w->i32, 1);
  warp_set(w, &at, 0, unit);
  WarpLoop l = warp_loop(w);
  LLVMValueRef i = warp_get(w, &at, 0);
  LLVMValueRef none = LLVMBuildNot(emit->builder, facts_of(k, i).some, "");
  LLVMValueRef there = warp_less(w, i, warp_i32(w, k->units));
  warp_loop_while(w, &l, LLVMBuildAnd(emit->builder, there, none, ""));
  warp_set(w, &at, 0, warp_plus(w, i, 1));
  warp_loop_end(w, &l);
  return warp_get(w, &at, 0);
}

/* Whether all scores of a unit are admitted: not behind the end of the columns. */
static LLVMValueRef all_by_mask(TileWalk *k, LLVMValueRef unit) {
  FlashGpu *x = k->x;
  Warp *w = &x->w;
  LLVMValueRef all = facts_of(k, unit).all;
  if (x->rows_are_keys || x->columns % x->g.tile[FLASH_GPU_COLUMNS] == 0) return all;
  LLVMValueRef end = warp_plus(w, first_column(k, unit), x->g.tile[FLASH_GPU_COLUMNS] - 1);
  return LLVMBuildAnd(x->e->builder, all, warp_less(w, end, warp_i32(w, x->columns)), "");
}

/* ---- what is next, by lists ---- */

static void step_list(TileWalk *k, const Unit *now) {
  Warp *w = &k->x->w;
  LLVMBuilderRef b = k->x->e->builder;
  LLVMValueRef next = warp_plus(w, now->number, 1);
  LLVMValueRef end = LLVMBuildLShr(b, now->run[0], warp_i32(w, 1), "");
  LLVMValueRef inside = warp_less(w, next, end), run = warp_get(w, &k->run, 0);
  warp_set(w, &k->unit, 0, LLVMBuildSelect(b, inside, next, now->run[1], ""));
  warp_set(w, &k->run, 0, LLVMBuildSelect(b, inside, run, warp_plus(w, run, 1), ""));
}

static LLVMValueRef all_by_list(TileWalk *k, LLVMValueRef end) {
  const FlashLists *l = &k->x->lists;
  LLVMBuilderRef b = k->x->e->builder;
  LLVMTypeRef i1 = LLVMInt1TypeInContext(k->x->e->context);
  return l->full && l->partial ? LLVMBuildTrunc(b, end, i1, "") : LLVMConstInt(i1, l->full, 0);
}

/* ---- either way ---- */

static Unit unit_now(TileWalk *k) {
  Warp *w = &k->x->w;
  LLVMValueRef u = warp_get(w, &k->unit, 0);
  if (k->x->lists.there) return (Unit){.number = u, .there = warp_less(w, warp_i32(w, -1), u)};
  return (Unit){.number = u, .there = warp_less(w, u, warp_i32(w, k->units))};
}

static Unit first_unit(TileWalk *k) {
  FlashGpu *x = k->x;
  Warp *w = &x->w;
  bool lists = x->lists.there;
  warp_set(w, &k->unit, 0, lists ? x->unit : next_by_mask(k, warp_i32(w, 0)));
  if (lists) warp_set(w, &k->run, 0, x->list);
  return unit_now(k);
}

static Unit next_unit(TileWalk *k, const Unit *now) {
  Warp *w = &k->x->w;
  if (k->x->lists.there) step_list(k, now);
  else warp_set(w, &k->unit, 0, next_by_mask(k, warp_plus(w, now->number, 1)));
  return unit_now(k);
}

static void begin_unit(TileWalk *k, const Unit *u, LLVMValueRef stage) {
  FlashGpu *x = k->x;
  Warp *w = &x->w;
  LLVMValueRef end = warp_i32(w, k->blocks);
  LLVMValueRef tile = LLVMBuildSelect(x->e->builder, u->there, tile_of(k, u->number), end, "");
  enter_unit(k, u->number);
  if (x->rows_are_keys) { /* no head after the last one */
    LLVMValueRef last = emit_i64(x->e, x->f.group.count - 1);
    x->group = LLVMBuildSelect(x->e->builder, u->there, x->group, last, "");
  }
  for (int i = 0, bit; i < flash_gpu_tiles(x->phase, true); i++) {
    ValueId value = flash_tile_value(x, true, i, &bit);
    if (x->rows_are_keys) x->column[i].base = flash_base(x, value, x->f.query);
    tile_load_begin(w, &x->column[i], tile, end, stage);
  }
}

static void end_unit(TileWalk *k, LLVMValueRef stage) {
  for (int i = 0; i < flash_gpu_tiles(k->x->phase, true); i++)
    tile_load_end(&k->x->w, &k->x->column[i], stage);
}

static FlashBlock block_of(TileWalk *k, const Unit *u, LLVMValueRef stage) {
  FlashGpu *x = k->x;
  Warp *w = &x->w;
  FlashBlock b = {.c0 = first_column(k, u->number), .stage = stage, .head = x->head};
  b.all = x->lists.there ? all_by_list(k, u->run[0]) : all_by_mask(k, u->number);
  b.parts = x->lists.parts, b.part = x->lists.part; /* none without lists */
  enter_unit(k, u->number);
  if (x->rows_are_keys) b.head = warp_add(w, x->head, warp_div(w, u->number, k->blocks));
  return b;
}

static TileWalk walk_of(FlashGpu *x) {
  Warp *w = &x->w;
  TileWalk k = {.x = x, .blocks = ceil_div(x->columns, x->g.tile[FLASH_GPU_COLUMNS])};
  k.units = k.blocks * (x->rows_are_keys ? x->f.group.count : 1);
  k.unit = warp_registers(w, w->i32, 1);
  if (x->lists.there) k.run = warp_registers(w, w->i32, 1);
  return k;
}

void flash_walk(FlashGpu *x, FlashWork *work, void *with) {
  Warp *w = &x->w;
  TileWalk k = walk_of(x);
  Registers stage = warp_registers(w, w->i32, 1);
  LLVMValueRef zero = warp_i32(w, 0);
  Unit first = first_unit(&k);
  begin_unit(&k, &first, zero), end_unit(&k, zero);
  warp_commit(w);
  warp_set(w, &stage, 0, zero);
  WarpLoop l = warp_loop(w);
  Unit now = unit_now(&k);
  LLVMValueRef here = warp_get(w, &stage, 0);
  warp_loop_while(w, &l, now.there);
  if (x->lists.there) flash_list_run(x, warp_get(w, &k.run, 0), now.run);
  warp_wait(w, 0), warp_barrier(w);
  Unit next = next_unit(&k, &now);
  LLVMValueRef other = warp_sub(w, warp_i32(w, x->stage_bytes), here);
  begin_unit(&k, &next, other);
  warp_commit(w);
  FlashBlock b = block_of(&k, &now, here);
  work(x, &b, with);
  end_unit(&k, other);
  warp_set(w, &stage, 0, other);
  warp_loop_end(w, &l);
  warp_wait(w, 0);
}
