/* Products by wgmma in equal shares (attribute tile: GEMM_SHARES); see gemm_wgmma.c for the whole.
   Tiles of k are numbered through all tiles of the result, and a CTA has a range of these numbers:

     share = CTAs - 1 - the number of CTAs that began before
     for each tile of the result that the range touches, in order:
       multiply the range's part of it
       begun by another CTA: sums to the workspace; barrier; one thread: flag of the share: release
       else: for each share after this one that has a part of the tile, in order:
               one thread: wait for its flag (acquire); barrier; add its sums; the flag is 0 again
             epilogue

   So sums are added in the order of k, and results depend on the number of CTAs alone, which the
   target says. A CTA leaves sums before it waits, and waits only for CTAs that began before it: no
   order in which a GPU runs CTAs, nor too few multiprocessors for all of them, can make it wait
   forever. The CTA that ends a tile must not add sums, since it would wait at its beginning for
   the last sums of another one (Osama et al., Stream-K, 2023).

   The number of CTAs that have begun, and the flags, are words of the kernel's module. They are 0
   when it is loaded and when a launch ends: the number wraps around, and each flag has one
   reader. */
#include "codegen/device_code.h"
#include "gemm.h"
#include "simt.h"
#include "warpgroup.h"

enum { ADDERS = WGMMA_GROUPS * WGMMA_THREADS };             /* threads with sums */
enum { SHARES_BARRIER = 2 * WGMMA_STAGES + 3, PIECE = 16 }; /* after those of sums of columns */

static int64_t tiles_of_k(const Gemm *gemm) { return gemm_tiles(&gemm->g) * gemm->g.tiles_k; }

/* ---- words of the module: the number of CTAs that have begun, then a flag for each share ---- */

static LLVMValueRef words(Gemm *gemm) {
  Emit *e = gemm->e;
  LLVMTypeRef type = LLVMArrayType2(gemm->w.i32, (uint64_t)gemm->g.chunks[0] + 1);
  const char *name = arena_printf(e->arena, "%s_p%d_shares", e->symbol, e->phase);
  LLVMValueRef g = LLVMGetNamedGlobal(e->module, name);
  if (g) return g;
  g = LLVMAddGlobalInAddressSpace(e->module, type, name, GLOBAL_SPACE);
  LLVMSetInitializer(g, LLVMConstNull(type)), LLVMSetAlignment(g, CACHE_LINE);
  LLVMSetLinkage(g, LLVMInternalLinkage);
  return g;
}

static LLVMValueRef flag_of(Gemm *gemm, LLVMValueRef share) {
  LLVMValueRef at = warp_wide(&gemm->w, warp_plus(&gemm->w, share, 1));
  return LLVMBuildInBoundsGEP2(gemm->e->builder, gemm->w.i32, words(gemm), &at, 1, "");
}

static void set_flag(Gemm *gemm, const char *order, LLVMValueRef share, int to) {
  LLVMValueRef at = flag_of(gemm, share);
  const char *text = arena_printf(gemm->e->arena, "st.%s.gpu.global.u32 [$0], %d;", order, to);
  simt_asm(gemm->e, text, "l,~{memory}", LLVMVoidTypeInContext(gemm->e->context), 1, &at, false);
}

static void wait_flag(Gemm *gemm, LLVMValueRef share) {
  Warp *w = &gemm->w;
  LLVMValueRef at = flag_of(gemm, share);
  WarpLoop loop = warp_loop(w);
  LLVMValueRef word = simt_asm(gemm->e, "ld.acquire.gpu.global.u32 $0, [$1];", "=r,l,~{memory}",
                               w->i32, 1, &at, false);
  warp_loop_while(w, &loop, LLVMBuildICmp(gemm->e->builder, LLVMIntEQ, word, warp_i32(w, 0), ""));
  warp_loop_end(w, &loop);
}

/* ---- which tiles of k ---- */

/* Number of the first one of a share. */
static LLVMValueRef first_of(Gemm *gemm, LLVMValueRef share) {
  Warp *w = &gemm->w;
  int64_t all = tiles_of_k(gemm), ctas = gemm->g.chunks[0];
  LLVMValueRef longer = warp_min(w, share, warp_i32(w, all % ctas));
  return warp_add(w, warp_times(w, share, all / ctas), longer);
}

void gemm_shares_take(Gemm *gemm) {
  Warp *w = &gemm->w;
  LLVMValueRef began = words(gemm), at = warp_i32(w, gemm->g.share_at);
  int64_t last = gemm->g.chunks[0] - 1;
  const char *text = arena_printf(gemm->e->arena, "atom.relaxed.gpu.global.inc.u32 $0, [$1], %lld;",
                                  (long long)last);
  Branch one = emit_if(gemm->e, warp_less(w, w->thread, warp_i32(w, 1)));
  warp_store(w, simt_asm(gemm->e, text, "=r,l,~{memory}", w->i32, 1, &began, false), at, 4);
  emit_end_if(gemm->e, one);
}

void gemm_shares_begin(Gemm *gemm) {
  Warp *w = &gemm->w;
  LLVMValueRef before = warp_load(w, w->i32, warp_i32(w, gemm->g.share_at), 4);
  gemm->share = warp_sub(w, warp_i32(w, gemm->g.chunks[0] - 1), before);
  gemm->first = first_of(gemm, gemm->share);
  gemm->end = first_of(gemm, warp_plus(w, gemm->share, 1));
}

Loop gemm_shares_tiles(Gemm *gemm) {
  Warp *w = &gemm->w;
  int64_t each = gemm->g.tiles_k;
  LLVMValueRef to = warp_plus(w, warp_div(w, warp_plus(w, gemm->end, -1), each), 1);
  Loop loop = emit_loop(gemm->e, warp_wide(w, warp_div(w, gemm->first, each)), warp_wide(w, to), 1,
                        0, NULL);
  LLVMValueRef tile = LLVMBuildTrunc(gemm->e->builder, loop.i, w->i32, "");
  gemm_place(gemm, tile);
  LLVMValueRef before = warp_times(w, tile, each), from = warp_sub(w, gemm->first, before);
  LLVMValueRef begun = warp_less(w, warp_i32(w, 0), from);
  gemm->from = LLVMBuildSelect(gemm->e->builder, begun, from, gemm->from, "");
  gemm->to = warp_min(w, gemm->to, warp_sub(w, gemm->end, before));
  gemm->tile_end = warp_plus(w, before, each);
  return loop;
}

/* ---- sums ---- */

/* Four sums of the thread, of those that a share left. Neighbouring threads are neighbours. */
static LLVMValueRef piece_of(Gemm *gemm, LLVMValueRef share, int number) {
  Warp *w = &gemm->w;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(gemm->e->context);
  LLVMValueRef thread = warp_plus(w, w->thread, -WGMMA_THREADS);
  LLVMValueRef at = warp_wide_times(w, share, gemm->g.tile[GEMM_M] * gemm->g.tile[GEMM_N] * 4);
  at = LLVMBuildNSWAdd(gemm->e->builder, at, warp_wide_times(w, thread, PIECE), "");
  int64_t more = gemm->g.pieces_at + (int64_t)number * ADDERS * PIECE;
  at = LLVMBuildNSWAdd(gemm->e->builder, at, emit_i64(gemm->e, more), "");
  LLVMValueRef base = emit_buffer(gemm->e, gemm->k->args.n + gemm->k->results.n);
  return LLVMBuildInBoundsGEP2(gemm->e->builder, i8, base, &at, 1, "");
}

static void meet(Gemm *gemm) {
  warpgroup_meet(&gemm->w, warp_i32(&gemm->w, SHARES_BARRIER), ADDERS);
}

static Branch one_thread(Gemm *gemm) {
  Warp *w = &gemm->w;
  return emit_if(gemm->e, warp_less(w, w->thread, warp_i32(w, WGMMA_THREADS + 1)));
}

void gemm_shares_leave(Gemm *gemm) {
  Warp *w = &gemm->w;
  LLVMBuilderRef builder = gemm->e->builder;
  for (int i = 0; i < gemm->sums.n / 4; i++) {
    LLVMValueRef four = LLVMGetPoison(LLVMVectorType(w->f32, 4));
    for (int j = 0; j < 4; j++)
      four = LLVMBuildInsertElement(builder, four, warp_get(w, &gemm->sums, 4 * i + j),
                                    warp_i32(w, j), "");
    LLVMSetAlignment(LLVMBuildStore(builder, four, piece_of(gemm, gemm->share, i)), PIECE);
  }
  meet(gemm);
  Branch one = one_thread(gemm);
  set_flag(gemm, "release", gemm->share, 1);
  emit_end_if(gemm->e, one);
}

static void add_piece(Gemm *gemm, LLVMValueRef share) {
  Warp *w = &gemm->w;
  LLVMBuilderRef builder = gemm->e->builder;
  for (int i = 0; i < gemm->sums.n / 4; i++) {
    LLVMTypeRef type = LLVMVectorType(w->f32, 4);
    LLVMValueRef four = LLVMBuildLoad2(builder, type, piece_of(gemm, share, i), "");
    LLVMSetAlignment(four, PIECE);
    for (int j = 0; j < 4; j++) {
      LLVMValueRef x = LLVMBuildExtractElement(builder, four, warp_i32(w, j), "");
      x = LLVMBuildFAdd(builder, warp_get(w, &gemm->sums, 4 * i + j), x, "");
      warp_set(w, &gemm->sums, 4 * i + j, x);
    }
  }
}

void gemm_shares_add(Gemm *gemm) {
  Warp *w = &gemm->w;
  Registers next = warp_registers(w, w->i32, 1);
  warp_set(w, &next, 0, warp_plus(w, gemm->share, 1));
  WarpLoop loop = warp_loop(w);
  LLVMValueRef share = warp_get(w, &next, 0);
  warp_loop_while(w, &loop, warp_less(w, first_of(gemm, share), gemm->tile_end));
  Branch one = one_thread(gemm);
  wait_flag(gemm, share);
  set_flag(gemm, "relaxed", share, 0);
  emit_end_if(gemm->e, one);
  meet(gemm);
  add_piece(gemm, share);
  warp_set(w, &next, 0, warp_plus(w, share, 1));
  warp_loop_end(w, &loop);
}
