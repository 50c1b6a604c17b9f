/* Family attention on GPUs: softmax(scale * q k^T) v without ever holding all scores.

   A CTA has some queries of one head, 16 for each warp, and walks over the blocks of keys that the
   mask admits; their keys and values are copied while the block before is computed (flash_tiles.c).
   For each block:

     S = Q K^T                                      flash_product.c
     m' = max(m, max S); P = 2^(c S - c m')         c = scale log2 e; a row has four lanes
     f = 2^(c m - c m'); l = f l + sum P; O = f O + P V

   l is summed per lane and joined at the end. A query without key gives 0 and minus infinity. */
#include "families.h"
#include "flash.h"
#include <math.h>

static const double LN_2 = 0.6931471805599453, NOTHING = -1e30;

typedef struct FlashForward {
  Registers out, scores, most, sum; /* most and sum: m and l of both rows of the lane */
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

static void softmax_row(FlashGpu *flash, FlashForward *forward, int half) {
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
  for (int i = 0; i < forward->out.n / 2; i++) {
    int at = i / 2 * 4 + 2 * half + i % 2;
    warp_set(w, &forward->out, at,
             LLVMBuildFMul(builder, warp_get(w, &forward->out, at), factor, ""));
  }
  warp_set(w, &forward->most, half, m), warp_set(w, &forward->sum, half, sum);
}

static void block(FlashGpu *flash, const FlashBlock *flash_block, void *with) {
  FlashForward *forward = with;
  flash_scores(flash, &forward->scores, 0, 0, flash_block->stage);
  flash_mask(flash, &forward->scores, NULL, flash_block);
  softmax_row(flash, forward, 0), softmax_row(flash, forward, 1);
  for (int i = 0; flash->f.kept != NO_VALUE && i < forward->scores.n; i++) {
    LLVMValueRef p = warp_get(&flash->w, &forward->scores, i);
    warp_set(&flash->w, &forward->scores, i,
             LLVMBuildFMul(flash->e->builder, p, flash_kept(flash, flash_block, i), ""));
  }
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

void gpu_attention_emit(Emit *emit) {
  FlashGpu flash = flash_new(emit);
  flash_begin(&flash, 0);
  Warp *w = &flash.w;
  FlashForward forward = {.out = warp_registers(w, w->f32, (int)flash.g.slice / 2),
                          .scores =
                              warp_registers(w, w->f32, (int)flash.g.tile[FLASH_GPU_COLUMNS] / 2),
                          .most = warp_registers(w, w->f32, 2),
                          .sum = warp_registers(w, w->f32, 2)};
  warp_fill(w, &forward.out, emit_f32(emit, 0)), warp_fill(w, &forward.sum, emit_f32(emit, 0));
  warp_fill(w, &forward.most, emit_f32(emit, NOTHING));
  flash_read_rows(&flash);
  flash_walk(&flash, block, &forward);
  finish(&flash, &forward);
  emit_end_phase(emit);
}
