/* Products of attention on GPUs: a warp's 16 rows against a block of columns. Sums are laid out as
   mma leaves them: number 4 j + 2 h + q of a lane is row lane / 4 + 8 h, column 8 j + 2 (lane % 4)
   + q.

   On tensor cores a block of probabilities is already the left factor of the next product, after
   rounding. Without them rows of probabilities go through shared memory of the warp, and a lane
   adds up the same places with multiply-adds, four steps at a time. */
#include "flash.h"

static const double LOG2_E = 1.4426950408889634, NOTHING = -1e30;

static int64_t pitch(const FlashGpu *flash) { return flash->g.row.pitch; }

/* Byte offset of row `row` of a column tile in this stage. */
static LLVMValueRef column_row(FlashGpu *flash, int c, LLVMValueRef stage, LLVMValueRef row) {
  int64_t at = flash->column_at + c * flash->g.column.bytes;
  return warp_plus(&flash->w, warp_add(&flash->w, stage, warp_times(&flash->w, row, pitch(flash))),
                   at);
}

/* ---- tensor cores ---- */

/* Lane's row and 16-byte piece of the four matrices of a 16 x 16 block; `across`: the second matrix
   is to the right of the first, not below it. */
static LLVMValueRef matrix_at(FlashGpu *flash, bool across) {
  Warp *w = &flash->w;
  LLVMValueRef group = warp_div(w, w->lane, 8);
  LLVMValueRef low = warp_rem(w, group, 2), high = warp_div(w, group, 2);
  LLVMValueRef down = across ? high : low, beside = across ? low : high;
  LLVMValueRef row = warp_add(w, warp_rem(w, w->lane, 8), warp_times(w, down, 8));
  return warp_add(w, warp_times(w, row, pitch(flash)), warp_times(w, beside, 16));
}

static void scores_mma(FlashGpu *flash, const Registers *out, int r, int c, LLVMValueRef stage) {
  Warp *w = &flash->w;
  LLVMValueRef a[4], b[4];
  LLVMValueRef rows =
      warp_add(w, warp_times(w, w->warp, 16 * pitch(flash)), matrix_at(flash, false));
  LLVMValueRef columns =
      warp_add(w, column_row(flash, c, stage, warp_i32(w, 0)), matrix_at(flash, true));
  rows = warp_plus(w, rows, flash->row_at[r]);
  for (int64_t d = 0; d < flash->g.width; d += 16) {
    warp_matrices(w, rows, 2 * d, false, a);
    for (int j = 0; j < out->n / 8; j++) {
      warp_matrices(w, columns, 16 * j * pitch(flash) + 2 * d, false, b);
      warp_multiply(w, flash->elem, a, b, out, 8 * j);
      warp_multiply(w, flash->elem, a, b + 2, out, 8 * j + 4);
    }
  }
}

static void apply_mma(FlashGpu *flash, const Registers *out, const Registers *p, int c,
                      LLVMValueRef stage) {
  Warp *w = &flash->w;
  LLVMValueRef a[4], b[4];
  LLVMValueRef at =
      warp_add(w, column_row(flash, c, stage, warp_i32(w, 0)), matrix_at(flash, false));
  at = warp_add(w, at, warp_times(w, flash->slice, 2));
  for (int s = 0; s < p->n / 8; s++) {
    for (int q = 0; q < 4; q++)
      a[q] = warp_pack(w, flash->elem, warp_get(w, p, 8 * s + 2 * q),
                       warp_get(w, p, 8 * s + 2 * q + 1));
    for (int j = 0; j < out->n / 8; j++) {
      warp_matrices(w, at, 16 * s * pitch(flash) + 32 * j, true, b);
      warp_multiply(w, flash->elem, a, b, out, 8 * j);
      warp_multiply(w, flash->elem, a, b + 2, out, 8 * j + 4);
    }
  }
}

/* ---- multiply-adds ---- */

static LLVMValueRef part(FlashGpu *flash, LLVMValueRef v, int i) {
  return LLVMBuildExtractElement(flash->e->builder, v, warp_i32(&flash->w, i), "");
}

static void add_product(FlashGpu *flash, const Registers *out, int i, LLVMValueRef a,
                        LLVMValueRef b) {
  warp_set(&flash->w, out, i, emit_fma(flash->e, a, b, warp_get(&flash->w, out, i)));
}

static LLVMValueRef step_of(FlashGpu *flash, const Loop *loop) {
  return LLVMBuildTrunc(flash->e->builder, loop->i, flash->w.i32, "");
}

static void scores_fma(FlashGpu *flash, const Registers *out, int r, int c, LLVMValueRef stage) {
  Warp *w = &flash->w;
  Emit *emit = flash->e;
  LLVMTypeRef four = LLVMVectorType(w->f32, 4);
  LLVMValueRef row = warp_add(w, warp_times(w, w->warp, 16), warp_div(w, w->lane, 4)), a[2];
  LLVMValueRef column = column_row(flash, c, stage, warp_times(w, warp_rem(w, w->lane, 4), 2));
  row = warp_plus(w, warp_times(w, row, pitch(flash)), flash->row_at[r]);
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, flash->g.width * 4), 16, 0, NULL);
  LLVMValueRef ra = warp_add(w, row, step_of(flash, &loop)),
               ca = warp_add(w, column, step_of(flash, &loop));
  for (int h = 0; h < 2; h++) a[h] = warp_load(w, four, warp_plus(w, ra, 8 * h * pitch(flash)), 16);
  for (int j = 0; j < out->n / 4; j++)
    for (int q = 0; q < 2; q++) {
      LLVMValueRef b = warp_load(w, four, warp_plus(w, ca, (8 * j + q) * pitch(flash)), 16);
      for (int i = 0; i < 4; i++)
        for (int h = 0; h < 2; h++)
          add_product(flash, out, 4 * j + 2 * h + q, part(flash, a[h], i), part(flash, b, i));
    }
  emit_loop_end(emit, &loop);
}

static int64_t score_pitch(const FlashGpu *flash) {
  return (flash->g.tile[FLASH_GPU_COLUMNS] + 4) * 4;
}

/* Offset of the lane's first row of probabilities. */
static LLVMValueRef score_row(FlashGpu *flash) {
  Warp *w = &flash->w;
  LLVMValueRef row = warp_add(w, warp_times(w, w->warp, 16), warp_div(w, w->lane, 4));
  return warp_plus(w, warp_times(w, row, score_pitch(flash)), flash->scores_at);
}

/* again: a second time in a unit. Each unit begins with a barrier of the CTA. */
static void share(FlashGpu *flash, const Registers *p, bool again) {
  Warp *w = &flash->w;
  LLVMValueRef at = warp_add(w, score_row(flash), warp_times(w, warp_rem(w, w->lane, 4), 8));
  if (again) warp_barrier_lanes(w);
  for (int i = 0; i < p->n; i++) {
    int64_t offset = i / 2 % 2 * 8 * score_pitch(flash) + (i / 4 * 8 + i % 2) * 4;
    warp_store(w, warp_get(w, p, i), warp_plus(w, at, offset), 4);
  }
  warp_barrier_lanes(w);
}

static void apply_fma(FlashGpu *flash, const Registers *out, const Registers *p, int c,
                      LLVMValueRef stage) {
  Warp *w = &flash->w;
  Emit *emit = flash->e;
  LLVMTypeRef four = LLVMVectorType(w->f32, 4), two = LLVMVectorType(w->f32, 2);
  LLVMValueRef row = score_row(flash), a[2];
  LLVMValueRef at = warp_times(w, flash_column(flash, flash->slice, 0, 0), 4);
  share(flash, p, flash->phase == FLASH_DKV && c == 0);
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, flash->g.tile[FLASH_GPU_COLUMNS]),
                        4, 0, NULL);
  LLVMValueRef s = step_of(flash, &loop), from = warp_add(w, row, warp_times(w, s, 4));
  LLVMValueRef column = warp_add(w, column_row(flash, c, stage, s), at);
  for (int h = 0; h < 2; h++)
    a[h] = warp_load(w, four, warp_plus(w, from, 8 * h * score_pitch(flash)), 16);
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < out->n / 4; j++) {
      LLVMValueRef b = warp_load(w, two, warp_plus(w, column, i * pitch(flash) + 32 * j), 8);
      for (int n = 0; n < 4; n++)
        add_product(flash, out, 4 * j + n, part(flash, a[n / 2], i), part(flash, b, n % 2));
    }
  emit_loop_end(emit, &loop);
}

/* ---- both ---- */

void flash_scores(FlashGpu *flash, const Registers *out, int r, int c, LLVMValueRef stage) {
  warp_fill(&flash->w, out, emit_f32(flash->e, 0));
  if (flash->g.mma) scores_mma(flash, out, r, c, stage);
  else scores_fma(flash, out, r, c, stage);
}

void flash_apply(FlashGpu *flash, const Registers *out, const Registers *p, int c,
                 LLVMValueRef stage) {
  if (flash->g.mma) apply_mma(flash, out, p, c, stage);
  else apply_fma(flash, out, p, c, stage);
}

/* i1: these parts of the mask (NULL: all of it) admit queries p and key. */
static LLVMValueRef parts_admit(FlashGpu *flash_gpu, const ValueId *part, int parts, const Point *p,
                                LLVMValueRef key) {
  Flash flash = flash_gpu->f;
  AttentionHead head = flash_head(flash_gpu);
  head.f = &flash;
  if (!part) return attention_head_admits(&head, p, key, 1);
  LLVMValueRef yes = LLVMConstInt(LLVMInt1TypeInContext(flash_gpu->e->context), 1, 0);
  for (int i = 0; i < parts; i++) {
    flash.mask = part[i];
    yes = LLVMBuildAnd(flash_gpu->e->builder, yes, attention_head_admits(&head, p, key, 1), "");
  }
  return yes;
}

/* Query and key of score i of the lane; indexes outside become the last ones. */
static Point score_point(FlashGpu *flash, const FlashBlock *block, int i, LLVMValueRef *key) {
  Warp *w = &flash->w;
  LLVMValueRef row = warp_min(w, flash_row(flash, i / 2 % 2), warp_i32(w, flash->rows - 1)),
               column = warp_min(w, flash_column(flash, block->c0, i / 4, i % 2),
                                 warp_i32(w, flash->columns - 1));
  row = warp_wide(w, row), column = warp_wide(w, column);
  Point p = flash_point(flash);
  point_set(&p, (Index){.dim = flash->f.query, .at = flash->rows_are_keys ? column : row});
  *key = flash->rows_are_keys ? row : column;
  return p;
}

/* i1: score i of the lane counts. */
static LLVMValueRef admitted(FlashGpu *flash_gpu, const FlashBlock *block, int i,
                             const ValueId *part, int parts) {
  Warp *w = &flash_gpu->w;
  LLVMValueRef column = flash_column(flash_gpu, block->c0, i / 4, i % 2), in = NULL, key;
  if (!flash_gpu->rows_are_keys) in = warp_less(w, column, warp_i32(w, flash_gpu->columns));
  if (flash_gpu->f.mask == NO_VALUE)
    return in ? in : LLVMConstInt(LLVMInt1TypeInContext(flash_gpu->e->context), 1, 0);
  Point p = score_point(flash_gpu, block, i, &key);
  LLVMValueRef yes = parts_admit(flash_gpu, part, parts, &p, key);
  return in ? LLVMBuildAnd(flash_gpu->e->builder, in, yes, "") : yes;
}

static LLVMValueRef kept(FlashGpu *flash, const FlashBlock *block, int i) {
  LLVMValueRef key;
  Point p = score_point(flash, block, i, &key);
  AttentionHead head = flash_head(flash);
  return attention_head_kept(&head, &p, key, 1);
}

/* i1: one of these is not 0; probabilities have no sign. */
static LLVMValueRef some(FlashGpu *flash, const Registers *p, int first, int n) {
  LLVMBuilderRef builder = flash->e->builder;
  LLVMValueRef all = warp_i32(&flash->w, 0);
  for (int i = first; i < first + n; i++) {
    LLVMValueRef bits = LLVMBuildBitCast(builder, warp_get(&flash->w, p, i), flash->w.i32, "");
    all = LLVMBuildOr(builder, all, bits, "");
  }
  return LLVMBuildICmp(builder, LLVMIntNE, all, warp_i32(&flash->w, 0), "");
}

void flash_kept(FlashGpu *flash, const FlashBlock *block, int i, const Registers *p,
                LLVMValueRef factor[KEPT_AT_ONCE]) {
  Warp *w = &flash->w;
  Registers factors = warp_registers(w, w->f32, KEPT_AT_ONCE);
  must(i + KEPT_AT_ONCE <= p->n, "kernel %s: %d scores of a lane", flash->e->k->name, p->n);
  warp_fill(w, &factors, emit_f32(flash->e, 1));
  Branch branch = emit_if(flash->e, some(flash, p, i, KEPT_AT_ONCE));
  for (int j = 0; j < KEPT_AT_ONCE; j++) warp_set(w, &factors, j, kept(flash, block, i + j));
  emit_end_if(flash->e, branch);
  for (int j = 0; j < KEPT_AT_ONCE; j++) factor[j] = warp_get(w, &factors, j);
}

static void add_bias(FlashGpu *flash, const Registers *scores, const FlashBlock *block) {
  AttentionHead head = flash_head(flash);
  for (int i = 0; flash->f.bias != NO_VALUE && i < scores->n; i++) {
    LLVMValueRef key;
    Point p = score_point(flash, block, i, &key);
    LLVMValueRef bias = attention_head_bias(&head, &p, key, 1);
    warp_set(&flash->w, scores, i,
             LLVMBuildFAdd(flash->e->builder, warp_get(&flash->w, scores, i), bias, ""));
  }
}

/* Scores as products left them are in the order of scores in units of log 2; these then come out of
   the multiply-add that subtracts. Tiny scales would bring what is excluded near the others. */
static bool ordered(const FlashGpu *flash) {
  return flash->f.scale > 1e-6 && flash->f.cap == 0 && flash->f.bias == NO_VALUE;
}

static bool surely(LLVMValueRef bit) {
  return LLVMIsAConstantInt(bit) && LLVMConstIntGetZExtValue(bit);
}

LLVMValueRef flash_exp2(FlashGpu *flash, LLVMValueRef score, LLVMValueRef minus) {
  Emit *emit = flash->e;
  LLVMValueRef factor = emit_f32(emit, ordered(flash) ? flash->f.scale * LOG2_E : 1);
  return warp_exp2(&flash->w,
                   emit_fma(emit, score, factor, LLVMBuildFNeg(emit->builder, minus, "")));
}

LLVMValueRef flash_units(FlashGpu *flash, LLVMValueRef score) {
  LLVMValueRef factor = emit_f32(flash->e, flash->f.scale * LOG2_E);
  return ordered(flash) ? LLVMBuildFMul(flash->e->builder, score, factor, "") : score;
}

/* If `here` (one value for the whole CTA) holds. */
static void apply_mask(FlashGpu *flash, const Registers *scores, const FlashBlock *block,
                       LLVMValueRef here, const ValueId *part, int parts) {
  Warp *w = &flash->w;
  Emit *emit = flash->e;
  if (LLVMIsAConstantInt(here) && !surely(here)) return;
  Branch some = emit_if(emit, here);
  for (int i = 0; i < scores->n; i++) {
    LLVMValueRef in = admitted(flash, block, i, part, parts);
    warp_set(
        w, scores, i,
        LLVMBuildSelect(emit->builder, in, warp_get(w, scores, i), emit_f32(emit, NOTHING), ""));
  }
  emit_end_if(emit, some);
}

void flash_mask(FlashGpu *flash, const Registers *scores, const Registers *slopes,
                const FlashBlock *block) {
  Warp *w = &flash->w;
  Emit *emit = flash->e;
  LLVMValueRef factor = emit_f32(emit, flash->f.scale * LOG2_E);
  for (int i = 0; !ordered(flash) && i < scores->n; i++)
    warp_set(w, scores, i, LLVMBuildFMul(emit->builder, warp_get(w, scores, i), factor, ""));
  AttentionHead head = flash_head(flash);
  for (int i = 0; flash->f.cap != 0 && i < scores->n; i++) {
    CappedScore score = attention_head_cap(&head, warp_get(w, scores, i));
    warp_set(w, scores, i, score.score);
    if (slopes) warp_set(w, slopes, i, score.slope);
  }
  add_bias(flash, scores, block);
  LLVMValueRef asked =
      LLVMBuildAnd(emit->builder, block->all, LLVMBuildNot(emit->builder, block->sure, ""), "");
  if (block->parts) apply_mask(flash, scores, block, asked, block->part, block->parts);
  apply_mask(flash, scores, block, LLVMBuildNot(emit->builder, block->all, ""), NULL, 0);
}
