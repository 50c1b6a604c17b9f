/* Products over the places of experts (attribute `skips`, set by pass select): many places are
   empty, and their rows of a are zeros.

   A phase before the product has a CTA for each row tile. It reads the tile's rows in steps of some
   cache lines each, 16 bytes a thread and load, and ends at the first step in which any bit is set:
   for a tile with a filled place the first one as a rule. So a alone is read, once, and only where
   it is empty. The CTA leaves a word in the workspace: whether it found anything. The product reads
   the word of its row tile; where that is 0, it reads no operand, and its sums are zeros.

   Like on processors this needs no counts, whichever rank the rows come from. The result is that of
   all products, but for zeros times an infinity or NaN of b. */
#include "gemm.h"
#include "simt.h"

enum { PIECE = 16, ACROSS = 8, DOWN = GEMM_SEEK_THREADS / ACROSS, LOADS = 8 };

typedef struct Seek {
  LLVMValueRef base, row[LOADS]; /* i64: where the thread's rows begin, in elements */
  int rows, lines;               /* of a step: rows of a thread, pieces of each */
  int64_t pieces;                /* of a row */
} Seek;

/* The word of row tile `tile` of all batches. */
static LLVMValueRef word_of(Gemm *gemm, LLVMValueRef tile) {
  LLVMValueRef at = warp_wide(&gemm->w, warp_plus(&gemm->w, tile, gemm->g.seek_at / 4));
  LLVMValueRef base = emit_buffer(gemm->e, gemm->k->args.n + gemm->k->results.n);
  return LLVMBuildInBoundsGEP2(gemm->e->builder, gemm->w.i32, base, &at, 1, "");
}

static LLVMValueRef moved(Gemm *gemm, LLVMValueRef from, LLVMValueRef elements) {
  LLVMTypeRef type = emit_memory_type(gemm->e, gemm->p.elem_a);
  return LLVMBuildInBoundsGEP2(gemm->e->builder, type, from, &elements, 1, "");
}

/* Rows past the end are the last one again. */
static Seek seek_of(Gemm *gemm) {
  Warp *w = &gemm->w;
  int64_t high = gemm->g.tile[GEMM_M];
  LLVMValueRef batch = warp_div(w, w->cta, gemm->g.tiles_m);
  LLVMValueRef m0 = warp_times(w, warp_rem(w, w->cta, gemm->g.tiles_m), high);
  Seek seek = {.rows = (int)((high + DOWN - 1) / DOWN),
               .pieces = gemm->g.k * elem_bytes(gemm->p.elem_a) / PIECE};
  must(seek.rows <= LOADS, "kernel %s: a tile of %lld rows", gemm->k->name, (long long)high);
  seek.lines = LOADS / seek.rows;
  seek.base = moved(gemm, emit_buffer(gemm->e, gemm->p.arg_a),
                    tile_offset(w, &gemm->p.batch, false, batch));
  for (int i = 0; i < seek.rows; i++) {
    LLVMValueRef row = warp_plus(w, warp_div(w, w->thread, ACROSS), i * DOWN);
    if ((i + 1) * DOWN > high) row = warp_min(w, row, warp_i32(w, high - 1));
    row = warp_min(w, warp_add(w, m0, row), warp_i32(w, gemm->g.m - 1));
    seek.row[i] = tile_offset(w, &gemm->p.m, false, row);
  }
  return seek;
}

/* All words of a step of this thread as one, from piece `from` of the rows on; pieces past the end
   are the last one again. */
static LLVMValueRef step_of(Gemm *gemm, const Seek *seek, LLVMValueRef from) {
  Warp *w = &gemm->w;
  LLVMBuilderRef builder = gemm->e->builder;
  LLVMTypeRef four = LLVMVectorType(w->i32, 4);
  LLVMValueRef words = LLVMConstNull(four);
  for (int i = 0; i < seek->lines; i++) {
    LLVMValueRef piece = warp_add(w, from, warp_rem(w, w->thread, ACROSS));
    piece = warp_min(w, warp_plus(w, piece, i * ACROSS), warp_i32(w, seek->pieces - 1));
    LLVMValueRef k = warp_times(w, piece, PIECE / elem_bytes(gemm->p.elem_a));
    LLVMValueRef at = moved(gemm, seek->base, tile_offset(w, &gemm->p.k, false, k));
    for (int j = 0; j < seek->rows; j++) {
      LLVMValueRef x = LLVMBuildLoad2(builder, four, moved(gemm, at, seek->row[j]), "");
      LLVMSetAlignment(x, PIECE);
      words = LLVMBuildOr(builder, words, x, "");
    }
  }
  return emit_intrinsic(gemm->e, "llvm.vector.reduce.or", four, 1, &words);
}

void gemm_seek(Gemm *gemm) {
  Warp *w = &gemm->w;
  LLVMBuilderRef builder = gemm->e->builder;
  Seek seek = seek_of(gemm);
  Registers at = warp_registers(w, w->i32, 1), found = warp_registers(w, w->i32, 1);
  warp_set(w, &at, 0, warp_i32(w, 0)), warp_set(w, &found, 0, warp_i32(w, 0));
  WarpLoop loop = warp_loop(w);
  LLVMValueRef from = warp_get(w, &at, 0);
  LLVMValueRef none = LLVMBuildICmp(builder, LLVMIntEQ, warp_get(w, &found, 0), warp_i32(w, 0), "");
  LLVMValueRef more = warp_less(w, from, warp_i32(w, seek.pieces));
  warp_loop_while(w, &loop, LLVMBuildAnd(builder, none, more, ""));
  LLVMValueRef step = step_of(gemm, &seek, from);
  warp_set(w, &found, 0, simt_intrinsic(gemm->e, "llvm.nvvm.barrier0.or", 1, &step));
  warp_set(w, &at, 0, warp_plus(w, from, seek.lines * ACROSS));
  warp_loop_end(w, &loop);
  LLVMValueRef first = LLVMBuildICmp(builder, LLVMIntEQ, w->thread, warp_i32(w, 0), "");
  Branch branch = emit_if(gemm->e, first);
  LLVMBuildStore(builder, warp_get(w, &found, 0), word_of(gemm, w->cta));
  emit_end_if(gemm->e, branch);
}

LLVMValueRef gemm_seek_found(Gemm *gemm) {
  Warp *w = &gemm->w;
  LLVMBuilderRef builder = gemm->e->builder;
  LLVMValueRef tile = warp_add(w, warp_times(w, gemm->batch, gemm->g.tiles_m),
                               warp_div(w, gemm->m0, gemm->g.tile[GEMM_M]));
  LLVMValueRef word = LLVMBuildLoad2(builder, w->i32, word_of(gemm, tile), "");
  return LLVMBuildICmp(builder, LLVMIntNE, word, warp_i32(w, 0), "");
}
