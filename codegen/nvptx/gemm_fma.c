/* Products of f32 without tensor cores: a warp's lanes form a grid of 4 x 8, each sums rows x
   columns of the warp's tile, four steps of k at a time.

   Where k is contiguous in shared memory a lane takes every fourth row (every eighth column), and
   reads four elements of k of each at once; otherwise it takes groups of four neighbours and reads
   each group at once. Either way 16 bytes per read, without bank conflicts. */
#include "gemm.h"

typedef struct Strip { /* of one operand: what a lane takes */
  const GemmSide *side;
  int n;              /* rows or columns of a lane */
  int64_t at;         /* of the side in a stage */
  LLVMValueRef first; /* i32: the first of them in the tile */
  int64_t lanes;      /* lanes that are next to each other */
} Strip;

static Strip strip_of(Gemm *gemm, bool is_b) {
  Warp *w = &gemm->w;
  Strip strip = {.side = is_b ? &gemm->g.b : &gemm->g.a, .lanes = is_b ? 8 : 4};
  strip.n = (int)(gemm->g.tile[is_b ? GEMM_WARP_N : GEMM_WARP_M] / strip.lanes);
  strip.at = is_b ? gemm->g.a.bytes : 0;
  LLVMValueRef lane = is_b ? warp_rem(w, w->lane, 8) : warp_div(w, w->lane, 8);
  strip.first = warp_add(w, is_b ? gemm->warp_n : gemm->warp_m,
                         warp_times(w, lane, strip.side->along_k ? 1 : 4));
  return strip;
}

/* Distance of a lane's i-th row or column from its first. */
static int64_t step_of(const Strip *strip, int i) {
  return strip->side->along_k ? i * strip->lanes : i / 4 * 4 * strip->lanes + i % 4;
}

/* value[i * 4 + q]: row or column i at step q of four. */
static void read_strip(Gemm *gemm, const Strip *strip, LLVMValueRef stage, LLVMValueRef k,
                       LLVMValueRef *value) {
  Warp *w = &gemm->w;
  LLVMTypeRef four = LLVMVectorType(w->f32, 4);
  bool along_k = strip->side->along_k;
  LLVMValueRef base = warp_times(w, strip->first, along_k ? strip->side->pitch : 4);
  base = warp_add(w, base, warp_times(w, k, along_k ? 4 : strip->side->pitch));
  base = warp_add(w, stage, base);
  for (int i = 0; i < strip->n; i++) {
    int64_t column = along_k ? 0 : step_of(strip, i / 4 * 4),
            row = along_k ? step_of(strip, i) : i % 4;
    LLVMValueRef at = warp_plus(w, base, strip->at + row * strip->side->pitch + column * 4);
    LLVMValueRef v = warp_load(w, four, at, 16);
    for (int q = 0; q < 4; q++) {
      int to = along_k ? i * 4 + q : (i / 4 * 4 + q) * 4 + i % 4;
      value[to] = LLVMBuildExtractElement(gemm->e->builder, v, warp_i32(w, q), "");
    }
  }
}

void gemm_fma(Gemm *gemm, LLVMValueRef stage) {
  Warp *w = &gemm->w;
  Strip a = strip_of(gemm, false), b = strip_of(gemm, true);
  LLVMValueRef va[64], vb[64];
  if (a.n > 16 || b.n > 16) bug("kernel %s: a lane of %d x %d sums", gemm->k->name, a.n, b.n);
  Loop loop = emit_loop(gemm->e, warp_i32(w, 0), warp_i32(w, gemm->g.tile[GEMM_K]), 4, 0, NULL);
  read_strip(gemm, &a, stage, loop.i, va);
  read_strip(gemm, &b, stage, loop.i, vb);
  for (int q = 0; q < 4; q++)
    for (int i = 0; i < a.n; i++)
      for (int j = 0; j < b.n; j++) {
        LLVMValueRef sum = warp_get(w, &gemm->sums, i * b.n + j);
        warp_set(w, &gemm->sums, i * b.n + j, emit_fma(gemm->e, va[i * 4 + q], vb[j * 4 + q], sum));
      }
  emit_loop_end(gemm->e, &loop);
}

void gemm_fma_out(Gemm *gemm, int pass) {
  Warp *w = &gemm->w;
  Strip a = strip_of(gemm, false), b = strip_of(gemm, true);
  int each = a.n / gemm->g.passes, from = pass * each;
  LLVMValueRef row = warp_add(w, warp_sub(w, a.first, gemm->warp_m), gemm_out_row(gemm));
  LLVMValueRef at = warp_add(w, warp_times(w, row, gemm->g.out_pitch), warp_times(w, b.first, 4));
  LLVMValueRef block = warp_div(w, gemm->warp_n, 32), turned[2];
  for (int i = 0; i < 2; i++) turned[i] = gemm_out_turn(gemm, at, warp_plus(w, block, i));
  for (int i = from; i < from + each; i++)
    for (int j = 0; j < b.n; j++) {
      int64_t down = step_of(&a, i) - step_of(&a, from), beside = step_of(&b, j);
      warp_store(w, warp_get(w, &gemm->sums, i * b.n + j),
                 warp_plus(w, turned[beside / 32 % 2], down * gemm->g.out_pitch + beside * 4), 4);
    }
}
