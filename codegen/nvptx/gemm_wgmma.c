/* Products by wgmma: a CTA of three warpgroups stays on its multiprocessor and takes tile after
   tile of the result (every `chunks`-th), so that no tile waits for its first operands or its last
   stores.

     the first warpgroup copies          the others multiply, 64 rows of the tile each
       for each tile of k:                 for each tile of k:
         empty: wait                         full: wait
         cp.async both operands              wgmma, four steps of 16
         two tiles before it: wait for       wait for the tile of k before it
         its copies; full: arrive            empty of that: arrive
                                           sums to shared memory, eight rows of a warp and 128
                                           columns at once; epilogue; stores

   `full` and `empty` are two of the CTA's barriers for each stage of the ring; warps that only
   signal do not wait at them. Laps cannot be mixed up: an arrival of the next lap follows a wait of
   this one. The warpgroup that copies fences the bytes written by cp.async, because wgmma reads
   asynchronously.

   Tiles of both operands are flat (gemm_flat): the place of a piece is a first address and
   constants. Pieces that do not exist are zeros. */
#include "gemm.h"
#include "simt.h"
#include "warpgroup.h"

/* Registers of a thread: 168 at first; of 504 of three threads 40 copy, twice 232 multiply. */
enum { LESS = 40, MORE = 232, PANEL = 128, PIECE = 16, PERIODS = 8 };

typedef struct Incoming { /* how the copying warpgroup brings an operand */
  const GemmSide *side;
  int64_t at;               /* of the side in a stage */
  int64_t mn, k;            /* elements from one to the next */
  int64_t mn_extent, apart; /* rows of the tile from piece to piece of a thread */
  int items, periods;       /* pieces of a thread; after `periods` pieces the swizzle repeats */
  LLVMValueRef row, piece;  /* i32: the thread's first */
  LLVMValueRef to[PERIODS]; /* i32: offsets of its first pieces in a stage */
  LLVMValueRef base, mn0;   /* of the tile's first k; i32: first row or column of the tile */
} Incoming;

typedef struct Turn {
  Registers stage; /* i32: the one whose turn it is */
} Turn;

static int64_t stages(const Gemm *gemm) { return gemm->g.tile[GEMM_STAGES]; }

/* Tiles of k whose copies are in flight in addition to the newest one. A stage is released when the
   tile after it is multiplied, so with one more tile the copying warpgroup would wait for
   itself. */
static int behind(const Gemm *gemm) { return stages(gemm) > 3 ? 2 : 1; }
static int everybody(const Gemm *gemm) { return (int)gemm->g.threads[0]; }

static LLVMValueRef full(Gemm *gemm, LLVMValueRef stage) { return warp_plus(&gemm->w, stage, 1); }
static LLVMValueRef empty(Gemm *gemm, LLVMValueRef stage) {
  return warp_plus(&gemm->w, stage, 1 + stages(gemm));
}

static Turn turn_new(Gemm *gemm) {
  Turn turn = {warp_registers(&gemm->w, gemm->w.i32, 1)};
  warp_set(&gemm->w, &turn.stage, 0, warp_i32(&gemm->w, 0));
  return turn;
}

static LLVMValueRef now(Gemm *gemm, const Turn *turn) {
  return warp_get(&gemm->w, &turn->stage, 0);
}

static void advance(Gemm *gemm, const Turn *turn) {
  Warp *w = &gemm->w;
  LLVMValueRef next = warp_plus(w, now(gemm, turn), 1);
  LLVMValueRef last =
      LLVMBuildICmp(gemm->e->builder, LLVMIntEQ, next, warp_i32(w, stages(gemm)), "");
  warp_set(w, &turn->stage, 0, LLVMBuildSelect(gemm->e->builder, last, warp_i32(w, 0), next, ""));
}

static LLVMValueRef offset_of(Gemm *gemm, LLVMValueRef stage) {
  return warp_times(&gemm->w, stage, gemm->g.stage);
}

/* ---- copies ---- */

/* Panels of 64 columns one after the other, of 128 bytes a row; in each piece ^ row. */
static LLVMValueRef place_of(Gemm *gemm, const Incoming *incoming, LLVMValueRef row) {
  Warp *w = &gemm->w;
  LLVMValueRef panel = warp_div(w, incoming->piece, PANEL / PIECE);
  LLVMValueRef turned =
      warp_xor(w, warp_rem(w, incoming->piece, PANEL / PIECE), warp_rem(w, row, PANEL / PIECE));
  LLVMValueRef at = warp_times(w, panel, incoming->side->rows * PANEL);
  at = warp_add(w, at, warp_times(w, row, PANEL));
  return warp_plus(w, warp_add(w, at, warp_times(w, turned, PIECE)), incoming->at);
}

static Incoming incoming_of(Gemm *gemm, bool is_b) {
  Warp *w = &gemm->w;
  Incoming incoming = {.side = is_b ? &gemm->g.b : &gemm->g.a,
                       .at = is_b ? gemm->g.a.bytes : 0,
                       .mn_extent = is_b ? gemm->g.n : gemm->g.m};
  if (!gemm_flat(is_b ? &gemm->p.n : &gemm->p.m, is_b, gemm->g.tile[is_b ? GEMM_N : GEMM_M],
                 &incoming.mn) ||
      !gemm_flat(&gemm->p.k, is_b, WGMMA_K, &incoming.k))
    bug("kernel %s: an operand of wgmma is not flat", gemm->k->name);
  int64_t across = incoming.side->columns * 2 / PIECE;
  incoming.apart = WGMMA_THREADS / across;
  incoming.items = (int)(incoming.side->rows / incoming.apart);
  incoming.periods = incoming.apart < PERIODS ? (int)(PERIODS / incoming.apart) : 1;
  incoming.row = warp_div(w, w->thread, across), incoming.piece = warp_rem(w, w->thread, across);
  for (int i = 0; i < incoming.periods; i++)
    incoming.to[i] = place_of(gemm, &incoming, warp_plus(w, incoming.row, i * incoming.apart));
  return incoming;
}

static LLVMValueRef wide_times(Warp *w, LLVMValueRef a, int64_t b) {
  return LLVMBuildNSWMul(w->e->builder, warp_wide(w, a), emit_i64(w->e, b), "");
}

static LLVMValueRef moved(Gemm *gemm, bool is_b, LLVMValueRef from, LLVMValueRef elements) {
  LLVMTypeRef type = emit_memory_type(gemm->e, is_b ? gemm->p.elem_b : gemm->p.elem_a);
  return LLVMBuildGEP2(gemm->e->builder, type, from, &elements, 1, "");
}

/* The thread's first piece of a tile of the result, if it began at k = 0. */
static void aim(Gemm *gemm, Incoming *incoming, bool is_b) {
  Warp *w = &gemm->w;
  LLVMValueRef piece = warp_times(w, incoming->piece, PIECE / 2);
  LLVMValueRef mn = incoming->row, k = piece;
  if (!incoming->side->along_k) mn = piece, k = incoming->row;
  incoming->mn0 = is_b ? gemm->n0 : gemm->m0;
  LLVMValueRef at = emit_buffer(gemm->e, is_b ? gemm->p.arg_b : gemm->p.arg_a);
  at = moved(gemm, is_b, at, tile_offset(w, &gemm->p.batch, is_b, gemm->batch));
  at = moved(gemm, is_b, at, tile_offset(w, is_b ? &gemm->p.n : &gemm->p.m, is_b, incoming->mn0));
  at = moved(gemm, is_b, at, wide_times(w, mn, incoming->mn));
  incoming->base = moved(gemm, is_b, at, wide_times(w, k, incoming->k));
}

/* i32: piece i of the tile kt of k exists if i rows of pieces are fewer than this; NULL: all
   exist. */
static LLVMValueRef left_of(Gemm *gemm, const Incoming *incoming, LLVMValueRef kt) {
  Warp *w = &gemm->w;
  bool along = incoming->side->along_k;
  LLVMValueRef piece = warp_times(w, incoming->piece, PIECE / 2), rows, columns;
  LLVMValueRef mn = warp_sub(w, warp_i32(w, incoming->mn_extent), incoming->mn0);
  LLVMValueRef k = warp_sub(w, warp_i32(w, gemm->g.k), warp_times(w, kt, WGMMA_K));
  bool all_mn = incoming->mn_extent % (along ? incoming->side->rows : incoming->side->columns) == 0;
  if (all_mn && gemm->g.k % WGMMA_K == 0) return NULL;
  rows = along ? mn : k, columns = along ? k : mn;
  return LLVMBuildSelect(gemm->e->builder, warp_less(w, piece, columns),
                         warp_sub(w, rows, incoming->row), warp_i32(w, 0), "");
}

static void bring(Gemm *gemm, Incoming *incoming, bool is_b, LLVMValueRef kt, LLVMValueRef stage) {
  Warp *w = &gemm->w;
  int64_t step = incoming->side->along_k ? incoming->mn : incoming->k;
  LLVMValueRef to[PERIODS], k = tile_offset(w, &gemm->p.k, is_b, warp_times(w, kt, WGMMA_K));
  LLVMValueRef first = moved(gemm, is_b, incoming->base, k), left = left_of(gemm, incoming, kt);
  for (int i = 0; i < incoming->periods; i++) to[i] = warp_add(w, stage, incoming->to[i]);
  for (int i = 0; i < incoming->items; i++) {
    int64_t row = i * incoming->apart,
            laps = i / incoming->periods * incoming->periods * incoming->apart;
    warp_copy_more(w, to[i % incoming->periods], laps * PANEL, first, row * step * 2, row, left);
  }
}

/* All but the last `under_way` tiles have come: the oldest of them may be read. */
static void publish(Gemm *gemm, const Turn *oldest, int under_way) {
  warp_wait(&gemm->w, under_way);
  warpgroup_publish(&gemm->w);
  warpgroup_arrive(&gemm->w, full(gemm, now(gemm, oldest)), everybody(gemm));
  advance(gemm, oldest);
}

static void publish_if(Gemm *gemm, const Turn *oldest, const Registers *begun, int under_way) {
  Branch more = emit_if(
      gemm->e, warp_less(&gemm->w, warp_i32(&gemm->w, under_way), warp_get(&gemm->w, begun, 0)));
  publish(gemm, oldest, under_way);
  emit_end_if(gemm->e, more);
}

static Loop each_tile(Gemm *gemm) {
  int64_t all = gemm->g.batches * gemm->g.tiles_m * gemm->g.tiles_n * gemm->g.tile[GEMM_SPLITS];
  Loop loop = emit_loop(gemm->e, warp_wide(&gemm->w, gemm->w.cta), emit_i64(gemm->e, all),
                        simt_ctas(gemm->e, gemm->e->phase), 0, NULL);
  gemm_place(gemm, LLVMBuildTrunc(gemm->e->builder, loop.i, gemm->w.i32, ""));
  if (gemm->g.seek_ctas) /* no tiles of k */
    gemm->from = LLVMBuildSelect(gemm->e->builder, gemm_seek_found(gemm), gemm->from, gemm->to, "");
  return loop;
}

static Loop each_tile_of_k(Gemm *gemm, LLVMValueRef *kt) {
  Loop loop = emit_loop(gemm->e, warp_wide(&gemm->w, gemm->from), warp_wide(&gemm->w, gemm->to), 1,
                        0, NULL);
  *kt = LLVMBuildTrunc(gemm->e->builder, loop.i, gemm->w.i32, "");
  return loop;
}

static void copy_all(Gemm *gemm) {
  Warp *w = &gemm->w;
  warpgroup_registers(w, LESS, false);
  Incoming left = incoming_of(gemm, false), right = incoming_of(gemm, true);
  Turn newest = turn_new(gemm), oldest = turn_new(gemm);
  Registers begun = warp_registers(w, w->i32, 1);
  warp_set(w, &begun, 0, warp_i32(w, 0));
  Loop tile = each_tile(gemm);
  aim(gemm, &left, false), aim(gemm, &right, true);
  LLVMValueRef kt;
  Loop loop = each_tile_of_k(gemm, &kt);
  LLVMValueRef stage = now(gemm, &newest), at = offset_of(gemm, stage);
  warpgroup_meet(w, empty(gemm, stage), everybody(gemm));
  bring(gemm, &left, false, kt, at), bring(gemm, &right, true, kt, at);
  warp_commit(w);
  warp_set(w, &begun, 0, warp_plus(w, warp_get(w, &begun, 0), 1));
  publish_if(gemm, &oldest, &begun, behind(gemm));
  advance(gemm, &newest);
  emit_loop_end(gemm->e, &loop);
  emit_loop_end(gemm->e, &tile);
  for (int i = behind(gemm); i-- > 0;) publish_if(gemm, &oldest, &begun, i);
}

/* ---- products ---- */

static LLVMValueRef operand(Gemm *gemm, const GemmSide *side, LLVMValueRef at, int64_t extent,
                            LLVMValueRef group) {
  Warp *w = &gemm->w;
  int64_t panel = side->rows * PANEL;
  if (group) at = warp_add(w, at, warp_times(w, group, side->along_k ? extent * PANEL : panel));
  return warpgroup_operand(w, at, side->along_k ? 0 : panel);
}

/* 16 elements of k further, in the descriptor's units. */
static LLVMValueRef step_of(Gemm *gemm, const GemmSide *side, LLVMValueRef from, int s) {
  int64_t bytes = side->along_k ? 32 : 16 * PANEL;
  return s ? LLVMBuildAdd(gemm->e->builder, from, emit_i64(gemm->e, s * bytes / 16), "") : from;
}

static void multiply_tile(Gemm *gemm, LLVMValueRef stage, LLVMValueRef group, LLVMValueRef begun) {
  Warp *w = &gemm->w;
  LLVMValueRef at = offset_of(gemm, stage), yes = LLVMConstInt(LLVMTypeOf(begun), 1, 0);
  LLVMValueRef a = operand(gemm, &gemm->g.a, at, WGMMA_ROWS, group),
               b = operand(gemm, &gemm->g.b, warp_plus(w, at, gemm->g.a.bytes), 0, NULL);
  warpgroup_begin(w);
  for (int s = 0; s < WGMMA_K / 16; s++)
    warpgroup_multiply(w, gemm->p.compute, &gemm->sums, step_of(gemm, &gemm->g.a, a, s),
                       !gemm->g.a.along_k, step_of(gemm, &gemm->g.b, b, s), !gemm->g.b.along_k,
                       s ? yes : begun);
  warpgroup_commit(w);
}

static void leave(Gemm *gemm, const Turn *oldest) {
  warpgroup_arrive(&gemm->w, empty(gemm, now(gemm, oldest)), everybody(gemm));
  advance(gemm, oldest);
}

/* All of k for one tile of the result. */
static void multiply(Gemm *gemm, const Turn *newest, const Turn *oldest, LLVMValueRef group) {
  Warp *w = &gemm->w;
  LLVMValueRef kt;
  warp_fill(w, &gemm->sums, emit_f32(gemm->e, 0));
  Loop loop = each_tile_of_k(gemm, &kt);
  LLVMValueRef begun = warp_less(w, gemm->from, kt);
  warpgroup_meet(w, full(gemm, now(gemm, newest)), everybody(gemm));
  multiply_tile(gemm, now(gemm, newest), group, begun);
  warpgroup_wait(w, 1, &gemm->sums);
  Branch before = emit_if(gemm->e, begun);
  leave(gemm, oldest);
  emit_end_if(gemm->e, before);
  advance(gemm, newest);
  emit_loop_end(gemm->e, &loop);
  warpgroup_wait(w, 0, &gemm->sums);
  Branch some = {0};
  if (gemm->g.seek_ctas) some = emit_if(gemm->e, warp_less(w, gemm->from, gemm->to));
  leave(gemm, oldest);
  if (gemm->g.seek_ctas) emit_end_if(gemm->e, some);
}

/* ---- the way out ---- */

typedef struct Out { /* of a warp */
  LLVMValueRef room; /* i32: its part of shared memory */
  LLVMValueRef row;  /* i32: its first row in the tile */
} Out;

/* Rows lane / 4 (+ 8 in the second half) of 128 columns from block `block` on. */
static void put_sums(Gemm *gemm, const Out *out, int half, int block) {
  Warp *w = &gemm->w;
  LLVMValueRef at = warp_times(w, warp_div(w, w->lane, 4), gemm->g.out_pitch), turned[2];
  at = warp_add(w, at, warp_times(w, warp_rem(w, w->lane, 4), 8));
  at = warp_add(w, at, out->room);
  for (int i = 0; i < 2; i++) turned[i] = gemm_out_turn(gemm, at, warp_i32(w, i));
  for (int j = 0; j < WGMMA_OUT / 8; j++) {
    LLVMValueRef v = LLVMGetPoison(LLVMVectorType(w->f32, 2));
    for (int q = 0; q < 2; q++)
      v = LLVMBuildInsertElement(
          gemm->e->builder, v,
          warp_get(w, &gemm->sums, 4 * (block * WGMMA_OUT / 8 + j) + 2 * half + q), warp_i32(w, q),
          "");
    warp_store(w, v, warp_plus(w, turned[j / 4 % 2], 32 * j), 8);
  }
}

static void put_results(Gemm *gemm, const Out *out, int half, int block) {
  Warp *w = &gemm->w;
  int lanes = gemm->e->lanes, turns = 8 * WGMMA_OUT / lanes / 32;
  GemmOut *all = ARENA_ARRAY(gemm->e->arena, GemmOut, turns);
  for (int i = 0; i < turns; i++) {
    LLVMValueRef flat =
        warp_times(w, warp_plus(w, w->lane, i * 32), lanes); /* of eight rows of 128 columns */
    LLVMValueRef row = warp_div(w, flat, WGMMA_OUT), column = warp_rem(w, flat, WGMMA_OUT);
    LLVMValueRef sum = gemm_out_read(gemm, out->room, row, column);
    LLVMValueRef m = warp_add(w, gemm->m0, warp_add(w, out->row, warp_plus(w, row, 8 * half)));
    LLVMValueRef n = warp_add(w, gemm->n0, warp_plus(w, column, block * WGMMA_OUT));
    all[i] = (GemmOut){m, n, sum};
  }
  gemm_out_put_all(gemm, all, turns);
}

static void put_tile(Gemm *gemm, const Out *out) {
  for (int block = 0; block < gemm->g.tile[GEMM_N] / WGMMA_OUT; block++)
    for (int half = 0; half < 2; half++) {
      put_sums(gemm, out, half, block);
      warp_barrier_lanes(&gemm->w);
      put_results(gemm, out, half, block);
      warp_barrier_lanes(&gemm->w); /* all have read it */
    }
}

static void multiply_all(Gemm *gemm, LLVMValueRef warp) {
  Warp *w = &gemm->w;
  warpgroup_registers(w, MORE, true);
  LLVMValueRef group = warp_div(w, warp, WGMMA_THREADS / 32);
  int64_t ring = stages(gemm) * gemm->g.stage, each = gemm->g.out_rows * gemm->g.out_pitch;
  Out out = {.room = warp_plus(w, warp_times(w, warp, each), ring), .row = warp_times(w, warp, 16)};
  gemm->sums = warp_registers(w, w->f32, (int)gemm->g.tile[GEMM_N] / 2);
  Turn newest = turn_new(gemm), oldest = turn_new(gemm);
  for (int s = 0; s < stages(gemm); s++)
    warpgroup_arrive(w, empty(gemm, warp_i32(w, s)), everybody(gemm));
  Loop tile = each_tile(gemm);
  multiply(gemm, &newest, &oldest, group);
  put_tile(gemm, &out);
  emit_loop_end(gemm->e, &tile);
}

void gemm_wgmma(Gemm *gemm) {
  Emit *emit = gemm->e;
  LLVMSetAlignment(gemm->w.shared, 1024); /* swizzles go by the bits of addresses */
  LLVMValueRef warp = simt_warp(emit);    /* the same in all lanes, and known to be so */
  Branch copies = emit_if(emit, warp_less(&gemm->w, warp, warp_i32(&gemm->w, WGMMA_THREADS / 32)));
  copy_all(gemm);
  LLVMBuildRetVoid(emit->builder);
  LLVMPositionBuilderAtEnd(emit->builder, copies.rest);
  multiply_all(gemm, warp_plus(&gemm->w, warp, -WGMMA_THREADS / 32));
}
