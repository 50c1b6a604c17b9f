/* Products of attention on GPUs: a warp's 16 rows against a block of columns. Sums are laid out as
   mma leaves them: number 4 j + 2 h + q of a lane is row lane / 4 + 8 h, column 8 j + 2 (lane % 4)
   + q.

   On tensor cores a block of probabilities is already the left factor of the next product, after
   rounding. Without them rows of probabilities go through shared memory of the warp, and a lane
   adds up the same places with multiply-adds, four steps at a time. */
#include "flash.h"

static const double LOG2_E = 1.4426950408889634, NOTHING = -1e30;

static int64_t pitch(const FlashGpu *x) { return x->g.row.pitch; }

/* Byte offset of row `row` of a column tile in this stage. */
static LLVMValueRef column_row(FlashGpu *x, int c, LLVMValueRef stage, LLVMValueRef row) {
  int64_t at = x->column_at + c * x->g.column.bytes;
  return warp_plus(&x->w, warp_add(&x->w, stage, warp_times(&x->w, row, pitch(x))), at);
}

/* ---- tensor cores ---- */

/* Lane's row and 16-byte piece of the four matrices of a 16 x 16 block; `across`: the second matrix
   is beside the first, not below it. */
static LLVMValueRef matrix_at(FlashGpu *x, bool across) {
  Warp *w = &x->w;
  LLVMValueRef group = warp_div(w, w->lane, 8);
  LLVMValueRef low = warp_rem(w, group, 2), high = warp_div(w, group, 2);
  LLVMValueRef down = across ? high : low, beside = across ? low : high;
  LLVMValueRef row = warp_add(w, warp_rem(w, w->lane, 8), warp_times(w, down, 8));
  return warp_add(w, warp_times(w, row, pitch(x)), warp_times(w, beside, 16));
}

static void scores_mma(FlashGpu *x, const Registers *out, int r, int c, LLVMValueRef stage) {
  Warp *w = &x->w;
  LLVMValueRef a[4], b[4];
  LLVMValueRef rows = warp_add(w, warp_times(w, w->warp, 16 * pitch(x)), matrix_at(x, false));
  LLVMValueRef columns = warp_add(w, column_row(x, c, stage, warp_i32(w, 0)), matrix_at(x, true));
  rows = warp_plus(w, rows, x->row_at[r]);
  for (int64_t d = 0; d < x->g.width; d += 16) {
    warp_matrices(w, rows, 2 * d, false, a);
    for (int j = 0; j < out->n / 8; j++) {
      warp_matrices(w, columns, 16 * j * pitch(x) + 2 * d, false, b);
      warp_multiply(w, x->elem, a, b, out, 8 * j);
      warp_multiply(w, x->elem, a, b + 2, out, 8 * j + 4);
    }
  }
}

static void apply_mma(FlashGpu *x, const Registers *out, const Registers *p, int c,
                      LLVMValueRef stage) {
  Warp *w = &x->w;
  LLVMValueRef a[4], b[4];
  LLVMValueRef at = warp_add(w, column_row(x, c, stage, warp_i32(w, 0)), matrix_at(x, false));
  at = warp_add(w, at, warp_times(w, x->slice, 2));
  for (int s = 0; s < p->n / 8; s++) {
    for (int q = 0; q < 4; q++)
      a[q] =
          warp_pack(w, x->elem, warp_get(w, p, 8 * s + 2 * q), warp_get(w, p, 8 * s + 2 * q + 1));
    for (int j = 0; j < out->n / 8; j++) {
      warp_matrices(w, at, 16 * s * pitch(x) + 32 * j, true, b);
      warp_multiply(w, x->elem, a, b, out, 8 * j);
      warp_multiply(w, x->elem, a, b + 2, out, 8 * j + 4);
    }
  }
}

/* ---- multiply-adds ---- */

static LLVMValueRef part(FlashGpu *x, LLVMValueRef v, int i) {
  return LLVMBuildExtractElement(x->e->builder, v, warp_i32(&x->w, i), "");
}

static void add_product(FlashGpu *x, const Registers *out, int i, LLVMValueRef a, LLVMValueRef b) {
  warp_set(&x->w, out, i, emit_fma(x->e, a, b, warp_get(&x->w, out, i)));
}

static LLVMValueRef step_of(FlashGpu *x, const Loop *l) {
  return LLVMBuildTrunc(x->e->builder, l->i, x->w.i32, "");
}

static void scores_fma(FlashGpu *x, const Registers *out, int r, int c, LLVMValueRef stage) {
  Warp *w = &x->w;
  Emit *emit = x->e;
  LLVMTypeRef four = LLVMVectorType(w->f32, 4);
  LLVMValueRef row = warp_add(w, warp_times(w, w->warp, 16), warp_div(w, w->lane, 4)), a[2];
  LLVMValueRef column = column_row(x, c, stage, warp_times(w, warp_rem(w, w->lane, 4), 2));
  row = warp_plus(w, warp_times(w, row, pitch(x)), x->row_at[r]);
  Loop l = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, x->g.width * 4), 16, 0, NULL);
  LLVMValueRef ra = warp_add(w, row, step_of(x, &l)), ca = warp_add(w, column, step_of(x, &l));
  for (int h = 0; h < 2; h++) a[h] = warp_load(w, four, warp_plus(w, ra, 8 * h * pitch(x)), 16);
  for (int j = 0; j < out->n / 4; j++)
    for (int q = 0; q < 2; q++) {
      LLVMValueRef b = warp_load(w, four, warp_plus(w, ca, (8 * j + q) * pitch(x)), 16);
      for (int i = 0; i < 4; i++)
        for (int h = 0; h < 2; h++)
          add_product(x, out, 4 * j + 2 * h + q, part(x, a[h], i), part(x, b, i));
    }
  emit_loop_end(emit, &l);
}

static int64_t score_pitch(const FlashGpu *x) { return (x->g.tile[FLASH_GPU_COLUMNS] + 4) * 4; }

/* Offset of the lane's first row of probabilities. */
static LLVMValueRef score_row(FlashGpu *x) {
  Warp *w = &x->w;
  LLVMValueRef row = warp_add(w, warp_times(w, w->warp, 16), warp_div(w, w->lane, 4));
  return warp_plus(w, warp_times(w, row, score_pitch(x)), x->scores_at);
}

static void share(FlashGpu *x, const Registers *p) {
  Warp *w = &x->w;
  LLVMValueRef at = warp_add(w, score_row(x), warp_times(w, warp_rem(w, w->lane, 4), 8));
  warp_barrier_lanes(w);
  for (int i = 0; i < p->n; i++) {
    int64_t offset = i / 2 % 2 * 8 * score_pitch(x) + (i / 4 * 8 + i % 2) * 4;
    warp_store(w, warp_get(w, p, i), warp_plus(w, at, offset), 4);
  }
  warp_barrier_lanes(w);
}

static void apply_fma(FlashGpu *x, const Registers *out, const Registers *p, int c,
                      LLVMValueRef stage) {
  Warp *w = &x->w;
  Emit *emit = x->e;
  LLVMTypeRef four = LLVMVectorType(w->f32, 4), two = LLVMVectorType(w->f32, 2);
  LLVMValueRef row = score_row(x), a[2];
  LLVMValueRef at = warp_times(w, flash_column(x, x->slice, 0, 0), 4);
  share(x, p);
  Loop l =
      emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, x->g.tile[FLASH_GPU_COLUMNS]), 4, 0, NULL);
  LLVMValueRef s = step_of(x, &l), from = warp_add(w, row, warp_times(w, s, 4));
  LLVMValueRef column = warp_add(w, column_row(x, c, stage, s), at);
  for (int h = 0; h < 2; h++)
    a[h] = warp_load(w, four, warp_plus(w, from, 8 * h * score_pitch(x)), 16);
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < out->n / 4; j++) {
      LLVMValueRef b = warp_load(w, two, warp_plus(w, column, i * pitch(x) + 32 * j), 8);
      for (int n = 0; n < 4; n++)
        add_product(x, out, 4 * j + n, part(x, a[n / 2], i), part(x, b, n % 2));
    }
  emit_loop_end(emit, &l);
}

/* ---- both ---- */

void flash_scores(FlashGpu *x, const Registers *out, int r, int c, LLVMValueRef stage) {
  warp_fill(&x->w, out, emit_f32(x->e, 0));
  if (x->g.mma) scores_mma(x, out, r, c, stage);
  else scores_fma(x, out, r, c, stage);
}

void flash_apply(FlashGpu *x, const Registers *out, const Registers *p, int c, LLVMValueRef stage) {
  if (x->g.mma) apply_mma(x, out, p, c, stage);
  else apply_fma(x, out, p, c, stage);
}

/* i1: these parts of the mask (NULL: all of it) admit queries p and key. */
static LLVMValueRef parts_admit(FlashGpu *x, const ValueId *part, int parts, const Point *p,
                                LLVMValueRef key) {
  Flash flash = x->f;
  AttentionHead h = {x->e, &flash, x->shared, x->group};
  if (!part) return attention_head_admits(&h, p, key, 1);
  LLVMValueRef yes = LLVMConstInt(LLVMInt1TypeInContext(x->e->context), 1, 0);
  for (int i = 0; i < parts; i++) {
    flash.mask = part[i];
    yes = LLVMBuildAnd(x->e->builder, yes, attention_head_admits(&h, p, key, 1), "");
  }
  return yes;
}

/* i1: score i of the lane counts. Indexes outside are not looked at. */
static LLVMValueRef admitted(FlashGpu *x, const FlashBlock *b, int i, const ValueId *part,
                             int parts) {
  Warp *w = &x->w;
  const Flash *flash = &x->f;
  LLVMValueRef row = flash_row(x, i / 2 % 2), column = flash_column(x, b->c0, i / 4, i % 2),
               in = NULL;
  LLVMValueRef rows = warp_i32(w, x->rows - 1), columns = warp_i32(w, x->columns - 1);
  if (!x->rows_are_keys) in = warp_less(w, column, warp_i32(w, x->columns));
  if (flash->mask == NO_VALUE)
    return in ? in : LLVMConstInt(LLVMInt1TypeInContext(x->e->context), 1, 0);
  row = warp_wide(w, warp_min(w, row, rows)), column = warp_wide(w, warp_min(w, column, columns));
  Point p = flash_point(x);
  point_set(&p, (Index){.dim = flash->query, .at = x->rows_are_keys ? column : row});
  LLVMValueRef yes = parts_admit(x, part, parts, &p, x->rows_are_keys ? row : column);
  return in ? LLVMBuildAnd(x->e->builder, in, yes, "") : yes;
}

/* Scores as products left them are in the order of scores in units of log 2; these then come out of
   the multiply-add that subtracts. Tiny scales would bring what is excluded near the others. */
static bool ordered(const FlashGpu *x) { return x->f.scale > 1e-6; }

static bool surely(LLVMValueRef bit) {
  return LLVMIsAConstantInt(bit) && LLVMConstIntGetZExtValue(bit);
}

LLVMValueRef flash_exp2(FlashGpu *x, LLVMValueRef score, LLVMValueRef minus) {
  Emit *emit = x->e;
  LLVMValueRef factor = emit_f32(emit, ordered(x) ? x->f.scale * LOG2_E : 1);
  return warp_exp2(&x->w, emit_fma(emit, score, factor, LLVMBuildFNeg(emit->builder, minus, "")));
}

LLVMValueRef flash_units(FlashGpu *x, LLVMValueRef score) {
  LLVMValueRef factor = emit_f32(x->e, x->f.scale * LOG2_E);
  return ordered(x) ? LLVMBuildFMul(x->e->builder, score, factor, "") : score;
}

/* Where `here` holds, which is the same for the whole CTA. */
static void apply_mask(FlashGpu *x, const Registers *scores, const FlashBlock *b, LLVMValueRef here,
                       const ValueId *part, int parts) {
  Warp *w = &x->w;
  Emit *emit = x->e;
  if (LLVMIsAConstantInt(here) && !surely(here)) return;
  Branch some = emit_if(emit, here);
  for (int i = 0; i < scores->n; i++) {
    LLVMValueRef in = admitted(x, b, i, part, parts);
    warp_set(
        w, scores, i,
        LLVMBuildSelect(emit->builder, in, warp_get(w, scores, i), emit_f32(emit, NOTHING), ""));
  }
  emit_end_if(emit, some);
}

void flash_mask(FlashGpu *x, const Registers *scores, const FlashBlock *b) {
  Warp *w = &x->w;
  Emit *emit = x->e;
  LLVMValueRef factor = emit_f32(emit, x->f.scale * LOG2_E);
  for (int i = 0; !ordered(x) && i < scores->n; i++)
    warp_set(w, scores, i, LLVMBuildFMul(emit->builder, warp_get(w, scores, i), factor, ""));
  if (b->parts) apply_mask(x, scores, b, b->all, b->part, b->parts);
  apply_mask(x, scores, b, LLVMBuildNot(emit->builder, b->all, ""), NULL, 0);
}
