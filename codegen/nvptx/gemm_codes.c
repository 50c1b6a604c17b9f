/* Products of codes of 8 bits by wgmma (ir/codes.h); see gemm_wgmma.c for the whole. Tensor
   cores keep few bits of a sum of such products, so a stage of the ring is one block of
   EIGHTS_BLOCK elements of k, whose sums begin at 0. They are multiplied by the scale of the
   block's row and by that of its column, and added in f32, as DeepSeek-V3 does (arXiv 2412.19437,
   3.3.2): a thread reads two scales of rows, and one for each of its columns, while the block is
   multiplied. Must not: read scales of rows or columns that do not exist. */
#include "put_codes.h"
#include "gemm.h"
#include "warpgroup.h"

typedef struct GemmCodes {
  Codes of[2];                    /* a, b */
  Registers block;                /* sums of the block */
  LLVMValueRef row;               /* i32: the thread's first row in a tile */
  LLVMValueRef at[3];             /* i64: number of the run of two rows and of the first column */
  LLVMValueRef rows[2], *columns; /* scales of a block; of two columns each */
} GemmCodes;

static int64_t runs(const Codes *codes) { return codes->count / codes->run; }

void gemm_codes_start(Gemm *gemm, LLVMValueRef row) {
  Warp *w = &gemm->w;
  GemmCodes *codes = gemm->codes = ARENA_NEW(gemm->e->arena, GemmCodes);
  kernel_codes(gemm->k, gemm->p.arg_a, &codes->of[0]);
  kernel_codes(gemm->k, gemm->p.arg_b, &codes->of[1]);
  codes->block = warp_registers(w, w->f32, gemm->sums.n);
  warp_fill(w, &codes->block, emit_f32(gemm->e, 0));
  codes->row = warp_add(w, row, warp_div(w, w->lane, 4));
  codes->columns = ARENA_ARRAY(gemm->e->arena, LLVMValueRef, gemm->sums.n);
}

/* i64: number of the run of row or column `mn`. */
static LLVMValueRef run_of(Gemm *gemm, bool is_b, LLVMValueRef mn) {
  Warp *w = &gemm->w;
  LLVMValueRef at = tile_offset(w, is_b ? &gemm->p.n : &gemm->p.m, is_b, mn);
  at = LLVMBuildNSWAdd(gemm->e->builder, at, tile_offset(w, &gemm->p.batch, is_b, gemm->batch), "");
  return LLVMBuildUDiv(gemm->e->builder, at, emit_i64(gemm->e, gemm->codes->of[is_b].run), "");
}

void gemm_codes_aim(Gemm *gemm) {
  Warp *w = &gemm->w;
  for (int half = 0; half < 2; half++) {
    LLVMValueRef m = warp_plus(w, warp_add(w, gemm->m0, gemm->codes->row), 8 * half);
    gemm->codes->at[half] = run_of(gemm, false, warp_min(w, m, warp_i32(w, gemm->g.m - 1)));
  }
  gemm->codes->at[2] = run_of(gemm, true, gemm->n0);
}

void gemm_codes_step(Gemm *gemm, LLVMValueRef a, LLVMValueRef b, LLVMValueRef add) {
  const GemmCodes *codes = gemm->codes;
  warpgroup_multiply_codes(&gemm->w, codes->of[0].format->name, codes->of[1].format->name,
                           &codes->block, a, b, add);
}

/* The scales of block kt from that run on. */
static LLVMValueRef scales_of(Gemm *gemm, bool is_b, LLVMValueRef kt, LLVMValueRef run) {
  Warp *w = &gemm->w;
  LLVMBuilderRef builder = gemm->e->builder;
  const Codes *codes = &gemm->codes->of[is_b];
  LLVMValueRef at = tile_offset(w, &gemm->p.k, is_b, warp_times(w, kt, EIGHTS_BLOCK));
  at = LLVMBuildUDiv(builder, at, emit_i64(gemm->e, EIGHTS_BLOCK), "");
  at = LLVMBuildNSWMul(builder, at, emit_i64(gemm->e, runs(codes)), "");
  at = LLVMBuildNSWAdd(builder, at, run, "");
  LLVMValueRef base = emit_scales(gemm->e, is_b ? gemm->p.arg_b : gemm->p.arg_a, codes);
  return LLVMBuildInBoundsGEP2(builder, w->f32, base, &at, 1, "");
}

static LLVMValueRef read(Gemm *gemm, LLVMTypeRef type, LLVMValueRef from, LLVMValueRef more) {
  LLVMBuilderRef builder = gemm->e->builder;
  LLVMValueRef at = LLVMBuildInBoundsGEP2(builder, gemm->w.f32, from, &more, 1, "");
  LLVMValueRef v = LLVMBuildLoad2(builder, type, at, "");
  LLVMSetAlignment(v, type == gemm->w.f32 ? 4 : 8);
  return v;
}

/* i32: the thread's j-th two columns in the tile, or the last two that exist. */
static LLVMValueRef columns_of(Gemm *gemm, int j) {
  Warp *w = &gemm->w;
  LLVMValueRef n = warp_plus(w, warp_times(w, warp_rem(w, w->lane, 4), 2), 8 * j);
  if (gemm->g.n % gemm->g.tile[GEMM_N] == 0) return n;
  return warp_min(w, n, warp_sub(w, warp_i32(w, gemm->g.n - 2), gemm->n0));
}

void gemm_codes_scales(Gemm *gemm, LLVMValueRef kt) {
  GemmCodes *codes = gemm->codes;
  Warp *w = &gemm->w;
  for (int half = 0; half < 2; half++)
    codes->rows[half] =
        read(gemm, w->f32, scales_of(gemm, false, kt, codes->at[half]), emit_i64(gemm->e, 0));
  LLVMValueRef first = scales_of(gemm, true, kt, codes->at[2]);
  for (int j = 0; j < codes->block.n / 4; j++)
    codes->columns[j] =
        read(gemm, LLVMVectorType(w->f32, 2), first, warp_wide(w, columns_of(gemm, j)));
}

void gemm_codes_wait(Gemm *gemm) { warpgroup_wait(&gemm->w, 0, &gemm->codes->block); }

/* Sums of rows l / 4 and 8 below alternate by pairs. The scale of the row first: it keeps every
   sum that is not 0 a normal number, and finite. */
void gemm_codes_add(Gemm *gemm) {
  const GemmCodes *codes = gemm->codes;
  Warp *w = &gemm->w;
  for (int i = 0; i < codes->block.n; i++) {
    LLVMValueRef column =
        LLVMBuildExtractElement(gemm->e->builder, codes->columns[i / 4], warp_i32(w, i % 2), "");
    LLVMValueRef sum =
        LLVMBuildFMul(gemm->e->builder, warp_get(w, &codes->block, i), codes->rows[i / 2 % 2], "");
    warp_set(w, &gemm->sums, i, emit_fma(gemm->e, sum, column, warp_get(w, &gemm->sums, i)));
  }
}
