/* Family attention on GPUs: softmax(scale * q k^T) v without ever holding all scores.

   A CTA has some queries of one head, 16 for each warp, and walks over the blocks of keys that the
   mask admits; their keys and values are copied while the block before is computed (flash_tiles.c).
   For each block:

     S = Q K^T                                      flash_product.c
     m' = max(m, max S); P = 2^(c S - c m')         c = scale log2 e; a row has four lanes
     f = 2^(c m - c m'); l = f l + sum P; O = f O + P V

   l is summed per lane and joined at the end. A query without key gives 0 and minus infinity.

   By warpgroups (flash_group.c) the product with V of one block runs while the softmax of the next
   one is computed: its scores and O += P V are issued together, and P is packed when that is
   complete. */
#include "flash_group.h"
#include "simt.h"
#include <math.h>

static const double LN_2 = 0.6931471805599453, NOTHING = -1e30;

typedef struct FlashForward {
  Registers out, scores, most, sum; /* most and sum: m and l of both rows of the lane */
  Registers words, before;          /* of warpgroups: P in words; i32: the stage of its unit */
} FlashForward;

/* Over the four lanes of a row. */
static LLVMValueRef across(FlashGpu *flash, LLVMValueRef v, bool most) {
  for (int d = 1; d <= 2; d *= 2) {
    LLVMValueRef other = warp_from(&flash->w, v, d);
    v = most ? warp_max(&flash->w, v, other) : LLVMBuildFAdd(flash->e->builder, v, other, "");
  }
  return v;
}

static LLVMValueRef row_max(FlashGpu *flash, const Registers *s, int half) {
  Warp *w = &flash->w;
  LLVMValueRef v = warp_get(w, s, 2 * half);
  for (int i = 1; i < s->n / 2; i++)
    v = warp_max(w, v, warp_get(w, s, i / 2 * 4 + 2 * half + i % 2));
  return across(flash, v, true);
}

/* A maximum to subtract, in units of log 2: of rows without any key so far, 0. */
static LLVMValueRef subtracted(FlashGpu *flash, LLVMValueRef m) {
  LLVMValueRef none =
      LLVMBuildFCmp(flash->e->builder, LLVMRealOLT, m, emit_f32(flash->e, NOTHING / 2), "");
  return LLVMBuildSelect(flash->e->builder, none, emit_f32(flash->e, 0), flash_units(flash, m), "");
}

/* Maxima, sums and powers of scores; the factor of the sums so far. */
static LLVMValueRef softmax_row(FlashGpu *flash, FlashForward *forward, int half) {
  Warp *w = &flash->w;
  LLVMBuilderRef builder = flash->e->builder;
  LLVMValueRef old = warp_get(w, &forward->most, half);
  LLVMValueRef m = warp_max(w, old, row_max(flash, &forward->scores, half)),
               base = subtracted(flash, m);
  LLVMValueRef factor = flash_exp2(flash, old, base);
  LLVMValueRef sum = LLVMBuildFMul(builder, warp_get(w, &forward->sum, half), factor, "");
  for (int i = 0; i < forward->scores.n / 2; i++) {
    int at = i / 2 * 4 + 2 * half + i % 2;
    LLVMValueRef p = flash_exp2(flash, warp_get(w, &forward->scores, at), base);
    warp_set(w, &forward->scores, at, p);
    sum = LLVMBuildFAdd(builder, sum, p, "");
  }
  warp_set(w, &forward->most, half, m), warp_set(w, &forward->sum, half, sum);
  return factor;
}

static void scale_row(FlashGpu *flash, FlashForward *forward, int half, LLVMValueRef factor) {
  Warp *w = &flash->w;
  for (int i = 0; i < forward->out.n / 2; i++) {
    int at = i / 2 * 4 + 2 * half + i % 2;
    warp_set(w, &forward->out, at,
             LLVMBuildFMul(flash->e->builder, warp_get(w, &forward->out, at), factor, ""));
  }
}

static void drop(FlashGpu *flash, const FlashBlock *flash_block, FlashForward *forward) {
  LLVMValueRef kept[KEPT_AT_ONCE];
  if (flash->f.kept == NO_VALUE) return;
  for (int i = 0; i < forward->scores.n; i += KEPT_AT_ONCE) {
    flash_kept(flash, flash_block, i, &forward->scores, kept);
    for (int j = 0; j < KEPT_AT_ONCE; j++) {
      LLVMValueRef p = warp_get(&flash->w, &forward->scores, i + j);
      p = LLVMBuildFMul(flash->e->builder, p, kept[j], "");
      warp_set(&flash->w, &forward->scores, i + j, p);
    }
  }
}

static void block(FlashGpu *flash, const FlashBlock *flash_block, void *with) {
  FlashForward *forward = with;
  flash_scores(flash, &forward->scores, 0, 0, flash_block->stage);
  flash_mask(flash, &forward->scores, NULL, flash_block);
  for (int half = 0; half < 2; half++)
    scale_row(flash, forward, half, softmax_row(flash, forward, half));
  drop(flash, flash_block, forward);
  flash_apply(flash, &forward->out, &forward->scores, 1, flash_block->stage);
}

static void put_lse(FlashGpu *flash, int half, LLVMValueRef m, LLVMValueRef l, LLVMValueRef any) {
  Warp *w = &flash->w;
  Emit *emit = flash->e;
  LLVMValueRef row = flash_row(flash, half);
  LLVMValueRef mine = LLVMBuildOr(emit->builder, warp_rem(w, w->lane, 4), flash->slice, "");
  mine = LLVMBuildICmp(emit->builder, LLVMIntEQ, mine, warp_i32(w, 0), "");
  mine = LLVMBuildAnd(emit->builder, mine, warp_less(w, row, warp_i32(w, flash->rows)), "");
  Branch branch = emit_if(emit, mine);
  LLVMValueRef safe = LLVMBuildSelect(emit->builder, any, l, emit_f32(emit, 1), "");
  LLVMValueRef lse =
      emit_fma(emit, flash_units(flash, m), emit_f32(emit, LN_2), math_unary(emit, OP_log, safe));
  lse = LLVMBuildSelect(emit->builder, any, lse, emit_f32(emit, -INFINITY), "");
  Point p = flash_point(flash);
  point_set(&p, (Index){.dim = flash->f.query, .at = warp_wide(w, row)});
  expr_put(emit, flash->f.lse, &p, lse);
  emit_end_if(emit, branch);
}

static void finish(FlashGpu *flash, FlashForward *forward) {
  Emit *emit = flash->e;
  LLVMValueRef inverse[2];
  for (int half = 0; half < 2; half++) {
    LLVMValueRef l = across(flash, warp_get(&flash->w, &forward->sum, half), false);
    LLVMValueRef any = LLVMBuildFCmp(emit->builder, LLVMRealUGT, l, emit_f32(emit, 0), "");
    LLVMValueRef safe = LLVMBuildSelect(emit->builder, any, l, emit_f32(emit, 1), "");
    inverse[half] = LLVMBuildFDiv(emit->builder, emit_f32(emit, 1), safe, "");
    inverse[half] = LLVMBuildSelect(emit->builder, any, inverse[half], emit_f32(emit, 0), "");
    put_lse(flash, half, warp_get(&flash->w, &forward->most, half), l, any);
  }
  flash_put(flash, flash->f.y, &forward->out, inverse);
}

static FlashForward forward_of(FlashGpu *flash) {
  Warp *w = &flash->w;
  int columns = (int)flash->g.tile[FLASH_GPU_COLUMNS] / 2;
  return (FlashForward){.out = warp_registers(w, w->f32, (int)flash->g.slice / 2),
                        .scores = warp_registers(w, w->f32, columns),
                        .most = warp_registers(w, w->f32, 2),
                        .sum = warp_registers(w, w->f32, 2)};
}

static void begin_sums(FlashGpu *flash, FlashForward *forward) {
  LLVMValueRef zero = emit_f32(flash->e, 0);
  warp_fill(&flash->w, &forward->out, zero), warp_fill(&flash->w, &forward->sum, zero);
  warp_fill(&flash->w, &forward->most, emit_f32(flash->e, NOTHING));
}

/* ---- by warpgroups ---- */

static void *group_begin(FlashGpu *flash) {
  FlashForward *forward = ARENA_ARRAY(flash->e->arena, FlashForward, 1);
  *forward = forward_of(flash);
  forward->words = flash_group_words(flash);
  forward->before = warp_registers(&flash->w, flash->w.i32, 1);
  return forward;
}

/* Issues S = Q K^T of a unit. V of the unit before, if there is one, is waited for as well: it was
   copied first, and products are issued without a wait between them. */
static LLVMValueRef begin_unit(FlashRing *ring, FlashForward *forward, LLVMValueRef before) {
  LLVMValueRef stage = warp_get(&ring->x->w, &ring->stage, 0);
  flash_ring_meet(ring, stage, 0);
  if (before) flash_ring_meet(ring, before, 1);
  warpgroup_begin(&ring->x->w);
  flash_group_scores(ring, &forward->scores, 0, stage, 0);
  warpgroup_commit(&ring->x->w);
  return stage;
}

/* Issues O += P V of the unit before. */
static void apply_before(FlashRing *ring, FlashForward *forward, LLVMValueRef before) {
  flash_group_apply(ring, &forward->out, &forward->words, before, 1, false);
  warpgroup_commit(&ring->x->w);
}

/* Powers of the scores. */
static void weigh(FlashGpu *flash, FlashForward *forward, const FlashBlock *flash_block,
                  LLVMValueRef factor[2]) {
  flash_mask(flash, &forward->scores, NULL, flash_block);
  for (int half = 0; half < 2; half++) factor[half] = softmax_row(flash, forward, half);
  drop(flash, flash_block, forward);
}

/* A unit by itself: its facts, when its operands have come, may leave its products out. */
static void unit_alone(FlashRing *ring, FlashWalk *walk, FlashUnit *unit, void *with) {
  FlashForward *forward = with;
  FlashGpu *flash = ring->x;
  Warp *w = &flash->w;
  LLVMValueRef factor[2], stage = warp_get(w, &ring->stage, 0);
  FlashBlock flash_block = flash_unit_block(walk, unit, stage);
  for (int c = 0; c < 2; c++) flash_ring_meet(ring, stage, c);
  Branch some = emit_if(flash->e, flash_block.some);
  warpgroup_begin(w);
  flash_group_scores(ring, &forward->scores, 0, stage, 0);
  warpgroup_commit(w), warpgroup_wait(w, 0, &forward->scores);
  weigh(flash, forward, &flash_block, factor);
  for (int half = 0; half < 2; half++) scale_row(flash, forward, half, factor[half]);
  flash_group_pack(flash, &forward->scores, &forward->words);
  warpgroup_begin(w);
  flash_group_apply(ring, &forward->out, &forward->words, stage, 1, false);
  warpgroup_commit(w), warpgroup_wait(w, 0, &forward->out);
  emit_end_if(flash->e, some);
  for (int c = 0; c < 2; c++) flash_ring_leave(ring, stage, c);
}

static void end_unit(FlashRing *ring, FlashForward *forward, LLVMValueRef stage) {
  flash_group_pack(ring->x, &forward->scores, &forward->words);
  warp_set(&ring->x->w, &forward->before, 0, stage);
}

static void first_unit(FlashRing *ring, FlashWalk *walk, FlashUnit *unit, void *with) {
  FlashForward *forward = with;
  LLVMValueRef factor[2], stage = begin_unit(ring, forward, NULL);
  FlashBlock flash_block = flash_unit_block(walk, unit, stage);
  warpgroup_wait(&ring->x->w, 0, &forward->scores);
  flash_ring_leave(ring, stage, 0);
  weigh(ring->x, forward, &flash_block, factor);
  for (int half = 0; half < 2 && flash_walk_passes(walk); half++) /* sums of a stretch before */
    scale_row(ring->x, forward, half, factor[half]);
  end_unit(ring, forward, stage);
}

static void other_unit(FlashRing *ring, FlashWalk *walk, FlashUnit *unit, void *with) {
  FlashForward *forward = with;
  FlashGpu *flash = ring->x;
  LLVMValueRef factor[2], before = warp_get(&flash->w, &forward->before, 0);
  LLVMValueRef stage = begin_unit(ring, forward, before);
  apply_before(ring, forward, before);
  FlashBlock flash_block = flash_unit_block(walk, unit, stage);
  warpgroup_wait(&flash->w, 1, &forward->scores);
  flash_ring_leave(ring, stage, 0);
  weigh(flash, forward, &flash_block, factor);
  warpgroup_wait(&flash->w, 0, &forward->out);
  flash_ring_leave(ring, before, 1);
  for (int half = 0; half < 2; half++) scale_row(flash, forward, half, factor[half]);
  end_unit(ring, forward, stage);
}

/* The product of the last unit. */
static void last_unit(FlashRing *ring, void *with) {
  FlashForward *forward = with;
  Warp *w = &ring->x->w;
  LLVMValueRef before = warp_get(w, &forward->before, 0);
  flash_ring_meet(ring, before, 1);
  warpgroup_begin(w);
  apply_before(ring, forward, before);
  warpgroup_wait(w, 0, &forward->out);
  flash_ring_leave(ring, before, 1);
}

static void group_rows(FlashRing *ring, FlashWalk *walk, void *with) {
  FlashGpu *flash = ring->x;
  FlashForward *forward = with;
  begin_sums(flash, forward);
  flash_tile_units(ring, walk, &(FlashUnitWork){unit_alone, first_unit, other_unit, last_unit},
                   forward);
  finish(flash, forward);
}

void gpu_attention_emit(Emit *emit) {
  FlashGpu flash = flash_new(emit);
  flash_begin(&flash, 0);
  if (flash.g.wgmma) flash_groups(&flash, group_begin, group_rows);
  else {
    FlashForward forward = forward_of(&flash);
    begin_sums(&flash, &forward);
    flash_read_rows(&flash);
    flash_walk(&flash, block, &forward);
    finish(&flash, &forward);
  }
  emit_end_phase(emit);
}
