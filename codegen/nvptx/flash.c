/* Family attention on GPUs: softmax(scale * q k^T) v without ever holding all scores.

   A CTA has some queries of one head, 16 for each warp, and walks over the blocks of keys that the
   mask admits, their keys and values copied while the block before is computed (flash_tiles.c).
   Per block:

     S = Q K^T                                      flash_product.c
     m' = max(m, max S); P = 2^(c S - c m')         c = scale log2 e; rows lie in four lanes each
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
static LLVMValueRef across(FlashGpu *x, LLVMValueRef v, bool most) {
  for (int d = 1; d <= 2; d *= 2) {
    LLVMValueRef other = warp_from(&x->w, v, d);
    v = most ? warp_max(&x->w, v, other) : LLVMBuildFAdd(x->e->builder, v, other, "");
  }
  return v;
}

static LLVMValueRef row_max(FlashGpu *x, const Registers *s, int half) {
  Warp *w = &x->w;
  LLVMValueRef v = warp_get(w, s, 2 * half);
  for (int i = 1; i < s->n / 2; i++)
    v = warp_max(w, v, warp_get(w, s, i / 2 * 4 + 2 * half + i % 2));
  return across(x, v, true);
}

/* A maximum to subtract, in units of log 2: of rows without any key so far, 0. */
static LLVMValueRef subtracted(FlashGpu *x, LLVMValueRef m) {
  LLVMValueRef none = LLVMBuildFCmp(x->e->builder, LLVMRealOLT, m, emit_f32(x->e, NOTHING / 2), "");
  return LLVMBuildSelect(x->e->builder, none, emit_f32(x->e, 0), flash_units(x, m), "");
}

static void softmax_row(FlashGpu *x, FlashForward *forward, int half) {
  Warp *w = &x->w;
  LLVMBuilderRef b = x->e->builder;
  LLVMValueRef old = warp_get(w, &forward->most, half);
  LLVMValueRef m = warp_max(w, old, row_max(x, &forward->scores, half)), base = subtracted(x, m);
  LLVMValueRef factor = flash_exp2(x, old, base);
  LLVMValueRef sum = LLVMBuildFMul(b, warp_get(w, &forward->sum, half), factor, "");
  for (int i = 0; i < forward->scores.n / 2; i++) {
    int at = i / 2 * 4 + 2 * half + i % 2;
    LLVMValueRef p = flash_exp2(x, warp_get(w, &forward->scores, at), base);
    warp_set(w, &forward->scores, at, p);
    sum = LLVMBuildFAdd(b, sum, p, "");
  }
  for (int i = 0; i < forward->out.n / 2; i++) {
    int at = i / 2 * 4 + 2 * half + i % 2;
    warp_set(w, &forward->out, at, LLVMBuildFMul(b, warp_get(w, &forward->out, at), factor, ""));
  }
  warp_set(w, &forward->most, half, m), warp_set(w, &forward->sum, half, sum);
}

static void block(FlashGpu *x, const FlashBlock *b, void *with) {
  FlashForward *forward = with;
  flash_scores(x, &forward->scores, 0, 0, b->stage);
  flash_mask(x, &forward->scores, b);
  softmax_row(x, forward, 0), softmax_row(x, forward, 1);
  flash_apply(x, &forward->out, &forward->scores, 1, b->stage);
}

static void put_lse(FlashGpu *x, int half, LLVMValueRef m, LLVMValueRef l, LLVMValueRef any) {
  Warp *w = &x->w;
  Emit *emit = x->e;
  LLVMValueRef row = flash_row(x, half);
  LLVMValueRef mine = LLVMBuildOr(emit->builder, warp_rem(w, w->lane, 4), x->slice, "");
  mine = LLVMBuildICmp(emit->builder, LLVMIntEQ, mine, warp_i32(w, 0), "");
  mine = LLVMBuildAnd(emit->builder, mine, warp_less(w, row, warp_i32(w, x->rows)), "");
  Branch b = emit_if(emit, mine);
  LLVMValueRef safe = LLVMBuildSelect(emit->builder, any, l, emit_f32(emit, 1), "");
  LLVMValueRef lse =
      emit_fma(emit, flash_units(x, m), emit_f32(emit, LN_2), math_unary(emit, OP_log, safe));
  lse = LLVMBuildSelect(emit->builder, any, lse, emit_f32(emit, -INFINITY), "");
  Point p = flash_point(x);
  point_set(&p, (Index){.dim = x->f.query, .at = warp_wide(w, row)});
  expr_put(emit, x->f.lse, &p, lse);
  emit_end_if(emit, b);
}

static void finish(FlashGpu *x, FlashForward *forward) {
  Emit *emit = x->e;
  LLVMValueRef inverse[2];
  for (int half = 0; half < 2; half++) {
    LLVMValueRef l = across(x, warp_get(&x->w, &forward->sum, half), false);
    LLVMValueRef any = LLVMBuildFCmp(emit->builder, LLVMRealUGT, l, emit_f32(emit, 0), "");
    LLVMValueRef safe = LLVMBuildSelect(emit->builder, any, l, emit_f32(emit, 1), "");
    inverse[half] = LLVMBuildFDiv(emit->builder, emit_f32(emit, 1), safe, "");
    inverse[half] = LLVMBuildSelect(emit->builder, any, inverse[half], emit_f32(emit, 0), "");
    put_lse(x, half, warp_get(&x->w, &forward->most, half), l, any);
  }
  flash_put(x, x->f.y, &forward->out, inverse);
}

void gpu_attention_emit(Emit *emit) {
  FlashGpu x = flash_new(emit);
  flash_begin(&x, 0);
  Warp *w = &x.w;
  FlashForward forward = {.out = warp_registers(w, w->f32, (int)x.g.slice / 2),
                          .scores = warp_registers(w, w->f32, (int)x.g.tile[FLASH_GPU_COLUMNS] / 2),
                          .most = warp_registers(w, w->f32, 2),
                          .sum = warp_registers(w, w->f32, 2)};
  warp_fill(w, &forward.out, emit_f32(emit, 0)), warp_fill(w, &forward.sum, emit_f32(emit, 0));
  warp_fill(w, &forward.most, emit_f32(emit, NOTHING));
  flash_read_rows(&x);
  flash_walk(&x, block, &forward);
  finish(&x, &forward);
  emit_end_phase(emit);
}
