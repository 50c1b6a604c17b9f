/* Products on tensor cores: fragments of 16 rows (columns) of an operand are read from shared
   memory by ldmatrix, transposed where k is not contiguous; f32 (tf32) with that layout are read as
   single words, because ldmatrix transposes only pairs of bytes.

   The four matrices of an operand's 16 x 16 (f32: 16 x 8) block are, for a: upper and lower rows of
   the first half of k, then of the second; for b: both halves of k of the first eight columns, then
   of the others. Lane l gets row l / 4 of each, words l % 4.

   A step is 16 (f32: 8) elements of k. gemm.c reads each step while the one before it is
   multiplied, the first of a tile of k among the last of the tile before: between the two these
   words are in registers (`ahead`). */
#include "gemm.h"

enum { WORDS = 4 }; /* of a lane in a block */

static bool words(const GemmFragments *fragments) {
  return fragments->side->elem == 4 && !fragments->side->along_k;
}

static GemmFragments fragments_of(Gemm *gemm, bool is_b) {
  Warp *w = &gemm->w;
  GemmFragments fragments = {
      .side = is_b ? &gemm->g.b : &gemm->g.a, .is_b = is_b, .at = is_b ? gemm->g.a.bytes : 0};
  fragments.n = (int)(gemm->g.tile[is_b ? GEMM_WARP_N : GEMM_WARP_M] / 16);
  LLVMValueRef mn = is_b ? gemm->warp_n : gemm->warp_m, group = warp_div(w, w->lane, 8);
  LLVMValueRef low = warp_rem(w, group, 2), high = warp_div(w, group, 2);
  LLVMValueRef half_mn = is_b ? high : low, half_k = is_b ? low : high;
  LLVMValueRef row = warp_add(w, warp_rem(w, w->lane, 8),
                              warp_times(w, fragments.side->along_k ? half_mn : half_k, 8));
  LLVMValueRef piece = fragments.side->along_k ? half_k : warp_add(w, warp_div(w, mn, 8), half_mn);
  fragments.turned = warp_xor(w, piece, tile_turn(w, fragments.side, row));
  if (fragments.side->along_k) row = warp_add(w, row, mn);
  fragments.row = warp_times(w, row, fragments.side->pitch);
  fragments.single = warp_add(w, warp_times(w, warp_rem(w, w->lane, 4), fragments.side->pitch),
                              warp_times(w, warp_add(w, mn, warp_div(w, w->lane, 4)), 4));
  return fragments;
}

/* Block i at step s of k, word by word. */
static void read_words(Gemm *gemm, const GemmFragments *fragments, LLVMValueRef stage, int i, int s,
                       LLVMValueRef out[WORDS]) {
  Warp *w = &gemm->w;
  for (int q = 0; q < WORDS; q++) {
    int half_mn = fragments->is_b ? q / 2 : q % 2, half_k = fragments->is_b ? q % 2 : q / 2;
    int64_t offset =
        fragments->at + (8 * s + 4 * half_k) * fragments->side->pitch + (16 * i + 8 * half_mn) * 4;
    out[q] = warp_word(w, warp_add(w, stage, fragments->single), offset);
  }
}

static void read_block(Gemm *gemm, const GemmFragments *fragments, LLVMValueRef stage, int i, int s,
                       LLVMValueRef out[WORDS]) {
  Warp *w = &gemm->w;
  if (words(fragments)) {
    read_words(gemm, fragments, stage, i, s, out);
    return;
  }
  int64_t rows = 16 * (fragments->side->along_k ? i : s),
          pieces = 2 * (fragments->side->along_k ? s : i);
  LLVMValueRef piece = fragments->turned;
  if (fragments->side->swizzled) piece = warp_xor(w, piece, warp_i32(w, pieces)), pieces = 0;
  LLVMValueRef at = warp_add(w, fragments->row, warp_times(w, piece, 16));
  int64_t more = fragments->at + rows * fragments->side->pitch + pieces * 16;
  warp_matrices(w, warp_add(w, at, stage), more, !fragments->side->along_k, out);
}

void gemm_mma_setup(Gemm *gemm) {
  must(gemm->g.math != GEMM_FMA, "kernel %s: fragments are for tensor cores", gemm->k->name);
  gemm->fa = fragments_of(gemm, false), gemm->fb = fragments_of(gemm, true);
  if (gemm->fa.n + gemm->fb.n > GEMM_BLOCKS)
    bug("kernel %s: a warp of %d x %d", gemm->k->name, gemm->fa.n, gemm->fb.n);
  gemm->ahead = warp_registers(&gemm->w, gemm->w.i32, WORDS * (gemm->fa.n + gemm->fb.n));
}

int gemm_mma_steps(const Gemm *gemm) { return (int)(gemm->g.tile[GEMM_K] * gemm->g.a.elem / 32); }

void gemm_mma_read(Gemm *gemm, LLVMValueRef stage, int s, GemmStep *out) {
  must(s >= 0 && s < gemm_mma_steps(gemm), "kernel %s: step %d of %d", gemm->k->name, s,
       gemm_mma_steps(gemm));
  for (int i = 0; i < gemm->fa.n; i++) read_block(gemm, &gemm->fa, stage, i, s, out->word[i]);
  for (int j = 0; j < gemm->fb.n; j++)
    read_block(gemm, &gemm->fb, stage, j, s, out->word[gemm->fa.n + j]);
}

void gemm_mma_keep(Gemm *gemm, const GemmStep *step) {
  for (int i = 0; i < gemm->ahead.n; i++)
    warp_set(&gemm->w, &gemm->ahead, i, step->word[i / WORDS][i % WORDS]);
}

void gemm_mma_kept(Gemm *gemm, GemmStep *out) {
  for (int i = 0; i < gemm->ahead.n; i++)
    out->word[i / WORDS][i % WORDS] = warp_get(&gemm->w, &gemm->ahead, i);
}

/* Words of f32 are rounded by this function and not where they are read: nothing waits for the
   read. */
void gemm_mma_multiply(Gemm *gemm, GemmStep *step) {
  LLVMValueRef(*a)[WORDS] = step->word, (*b)[WORDS] = step->word + gemm->fa.n;
  for (int i = 0; gemm->g.a.elem == 4 && i < gemm->ahead.n; i++)
    a[i / WORDS][i % WORDS] = warp_tf32(&gemm->w, a[i / WORDS][i % WORDS]);
  for (int i = 0; i < gemm->fa.n; i++)
    for (int j = 0; j < 2 * gemm->fb.n; j++)
      warp_multiply(&gemm->w, gemm->a.shared, a[i], b[j / 2] + 2 * (j % 2), &gemm->sums,
                    4 * (i * 2 * gemm->fb.n + j));
}

void gemm_mma_out(Gemm *gemm, int pass) {
  Warp *w = &gemm->w;
  int each = (int)gemm->g.out_rows / 8, from = pass * each,
      columns = (int)gemm->g.tile[GEMM_WARP_N] / 8;
  LLVMValueRef row = warp_add(w, gemm_out_row(gemm), warp_div(w, w->lane, 4));
  LLVMValueRef column = warp_add(w, gemm->warp_n, warp_times(w, warp_rem(w, w->lane, 4), 2));
  LLVMValueRef at = warp_add(w, warp_times(w, row, gemm->g.out_pitch), warp_times(w, column, 4));
  LLVMValueRef block = warp_div(w, gemm->warp_n, 32), turned[2];
  for (int i = 0; i < 2; i++) turned[i] = gemm_out_turn(gemm, at, warp_plus(w, block, i));
  LLVMValueRef pair = LLVMGetPoison(LLVMVectorType(w->f32, 2));
  for (int i = from; i < from + each; i++)
    for (int j = 0; j < columns; j++) {
      int sum = 4 * (i / 2 * columns + j) + 2 * (i % 2);
      LLVMValueRef v = pair;
      for (int q = 0; q < 2; q++)
        v = LLVMBuildInsertElement(gemm->e->builder, v, warp_get(w, &gemm->sums, sum + q),
                                   warp_i32(w, q), "");
      warp_store(w, v, warp_plus(w, turned[j / 4 % 2], 8 * (i - from) * gemm->g.out_pitch + 32 * j),
                 8);
    }
}
