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
   constants. A thread copies one piece of 16 bytes of each 16 rows of each panel, so that the
   swizzle of all its pieces is the same. Pieces that do not exist are zeros.

   Operands that are codes of 8 bits have sums for each block and other ones for all: gemm_codes.c.

   With bulk tensor copies one thread does all that, and the barriers are others: gemm_bulk.c; with
   such copies of results, the epilogue takes sums from registers: gemm_leave.c. With equal shares
   CTAs have parts of tiles: gemm_shares.c. */
#include "bulk.h"
#include "gemm.h"
#include "simt.h"
#include "warpgroup.h"

enum { NO_PARITY = -1 };
enum { TURN = 32 }; /* columns of eight rows of sums that all lanes take at once, or more */
_Static_assert(WGMMA_THREADS == WGMMA_COPY_ROWS * WGMMA_PIECES, "each thread a piece of 16 rows");
_Static_assert(WGMMA_COPY_ROWS % WGMMA_PIECES == 0, "the next rows have the same swizzle");

typedef struct Incoming { /* how the copying warpgroup brings an operand */
  const GemmSide *side;
  int64_t at;    /* of the side in a stage */
  int64_t mn, k; /* elements from one to the next */
  int64_t mn_extent;
  LLVMValueRef row, piece; /* i32: the thread's, among 16 rows, in a row of a panel */
  LLVMValueRef to;         /* i32: offset of its first piece in a stage */
  LLVMValueRef base, mn0;  /* of the tile's first k; i32: first row or column of the tile */
} Incoming;

typedef struct Turn {
  Registers stage;  /* i32: the one whose turn it is */
  Registers parity; /* bulk copies: i32: of the phase that is waited for; none: it never is */
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

/* parity: what it waits for first; NO_PARITY: nothing, or its barriers have none. */
static Turn turn_new(Gemm *gemm, int parity) {
  Warp *w = &gemm->w;
  Turn turn = {.stage = warp_registers(w, w->i32, 1)};
  warp_set(w, &turn.stage, 0, warp_i32(w, 0));
  if (parity == NO_PARITY || !gemm_is_bulk(gemm)) return turn;
  turn.parity = warp_registers(w, w->i32, 1);
  warp_set(w, &turn.parity, 0, warp_i32(w, parity));
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
  if (!turn->parity.n) return;
  LLVMValueRef lap = LLVMBuildZExt(gemm->e->builder, last, w->i32, "");
  warp_set(w, &turn->parity, 0, warp_xor(w, warp_get(w, &turn->parity, 0), lap));
}

static LLVMValueRef offset_of(Gemm *gemm, LLVMValueRef stage) {
  return warp_times(&gemm->w, stage, gemm->g.stage);
}

/* ---- copies ---- */

static Incoming incoming_of(Gemm *gemm, bool is_b) {
  Warp *w = &gemm->w;
  Incoming incoming = {.side = is_b ? &gemm->g.b : &gemm->g.a,
                       .at = is_b ? gemm->g.a.bytes : 0,
                       .mn_extent = is_b ? gemm->g.n : gemm->g.m};
  if (!gemm_flat(is_b ? &gemm->p.n : &gemm->p.m, is_b, gemm->g.tile[is_b ? GEMM_N : GEMM_M],
                 &incoming.mn) ||
      !gemm_flat(&gemm->p.k, is_b, gemm->g.tile[GEMM_K], &incoming.k))
    bug("kernel %s: an operand of wgmma is not flat", gemm->k->name);
  incoming.row = warp_div(w, w->thread, WGMMA_PIECES);
  incoming.piece = warp_rem(w, w->thread, WGMMA_PIECES);
  incoming.to = warp_plus(w, warpgroup_piece(w, incoming.row, incoming.piece), incoming.at);
  return incoming;
}

static LLVMValueRef moved(Gemm *gemm, bool is_b, LLVMValueRef from, LLVMValueRef elements) {
  LLVMTypeRef type = emit_memory_type(gemm->e, is_b ? gemm->p.elem_b : gemm->p.elem_a);
  return LLVMBuildGEP2(gemm->e->builder, type, from, &elements, 1, "");
}

/* The thread's first piece of a tile of the result, if it began at k = 0. */
static void aim(Gemm *gemm, Incoming *incoming, bool is_b) {
  Warp *w = &gemm->w;
  LLVMValueRef piece = warp_times(w, incoming->piece, WGMMA_PIECE / incoming->side->elem);
  LLVMValueRef mn = incoming->row, k = piece;
  if (!incoming->side->along_k) mn = piece, k = incoming->row;
  incoming->mn0 = is_b ? gemm->n0 : gemm->m0;
  LLVMValueRef at = emit_buffer(gemm->e, is_b ? gemm->p.arg_b : gemm->p.arg_a);
  at = moved(gemm, is_b, at, tile_offset(w, &gemm->p.batch, is_b, gemm->batch));
  at = moved(gemm, is_b, at, tile_offset(w, is_b ? &gemm->p.n : &gemm->p.m, is_b, incoming->mn0));
  at = moved(gemm, is_b, at, warp_wide_times(w, mn, incoming->mn));
  incoming->base = moved(gemm, is_b, at, warp_wide_times(w, k, incoming->k));
}

/* i32: rows or columns of the tile that exist, from its first one on. */
static LLVMValueRef mn_left(Gemm *gemm, const Incoming *incoming, int64_t tile) {
  Warp *w = &gemm->w;
  if (incoming->mn_extent % tile == 0) return warp_i32(w, tile);
  LLVMValueRef left = warp_sub(w, warp_i32(w, incoming->mn_extent), incoming->mn0);
  return warp_min(w, left, warp_i32(w, tile));
}

/* i32: the thread's piece of row i of a panel, of the tile kt of k, exists if i is less than this;
   NULL: all exist. It always depends on kt: of a number that is the same in all tiles of k, the
   assembler would keep the comparison with each row in a register. */
static LLVMValueRef left_of(Gemm *gemm, const Incoming *incoming, LLVMValueRef kt, int64_t panel) {
  Warp *w = &gemm->w;
  const GemmSide *side = incoming->side;
  int64_t tile = side->along_k ? side->rows : side->columns;
  int64_t depth = gemm->g.tile[GEMM_K], across = WGMMA_PANEL / side->elem;
  bool whole = side->rows % WGMMA_COPY_ROWS == 0 && (panel + 1) * across <= side->columns;
  if (whole && incoming->mn_extent % tile == 0 && gemm->g.k % depth == 0) return NULL;
  LLVMValueRef mn = mn_left(gemm, incoming, tile),
               k = warp_sub(w, warp_i32(w, gemm->g.k), warp_times(w, kt, depth));
  LLVMValueRef column =
      warp_plus(w, warp_times(w, incoming->piece, WGMMA_PIECE / side->elem), panel * across);
  return LLVMBuildSelect(gemm->e->builder, warp_less(w, column, side->along_k ? k : mn),
                         warp_sub(w, side->along_k ? mn : k, incoming->row), warp_i32(w, 0), "");
}

static void bring(Gemm *gemm, Incoming *incoming, bool is_b, LLVMValueRef kt, LLVMValueRef stage) {
  Warp *w = &gemm->w;
  const GemmSide *side = incoming->side;
  int64_t step = side->along_k ? incoming->mn : incoming->k, bytes = gemm_panel_bytes(side);
  LLVMValueRef to = warp_add(w, stage, incoming->to);
  LLVMValueRef k = tile_offset(w, &gemm->p.k, is_b, warp_times(w, kt, gemm->g.tile[GEMM_K]));
  LLVMValueRef first = moved(gemm, is_b, incoming->base, k);
  for (int64_t panel = 0; panel < gemm_panels(side); panel++) {
    LLVMValueRef left = left_of(gemm, incoming, kt, panel);
    for (int64_t row = 0; row < side->rows; row += WGMMA_COPY_ROWS)
      warp_copy_more(w, to, panel * bytes + row * WGMMA_PANEL, first,
                     panel * WGMMA_PANEL + row * step * side->elem, row, left);
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
  if (gemm_is_shared(&gemm->g)) return gemm_shares_tiles(gemm);
  Loop loop =
      emit_loop(gemm->e, warp_wide(&gemm->w, gemm->w.cta), emit_i64(gemm->e, gemm_tiles(&gemm->g)),
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
  warpgroup_registers(w, false);
  Incoming left = incoming_of(gemm, false), right = incoming_of(gemm, true);
  Turn newest = turn_new(gemm, NO_PARITY), oldest = turn_new(gemm, NO_PARITY);
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

/* One thread begins the copies of both operands. */
static void copy_in_bulk(Gemm *gemm) {
  Warp *w = &gemm->w;
  warpgroup_registers(w, false);
  Branch one = emit_if(gemm->e, warp_less(w, w->thread, warp_i32(w, 1)));
  Turn newest = turn_new(gemm, 1); /* of a ring that is empty */
  Loop tile = each_tile(gemm);
  LLVMValueRef kt;
  Loop loop = each_tile_of_k(gemm, &kt);
  LLVMValueRef stage = now(gemm, &newest);
  bulk_wait(w, gemm_bulk_empty(gemm, stage), warp_get(w, &newest.parity, 0));
  gemm_bulk_bring(gemm, kt, stage, offset_of(gemm, stage));
  advance(gemm, &newest);
  emit_loop_end(gemm->e, &loop);
  emit_loop_end(gemm->e, &tile);
  emit_end_if(gemm->e, one);
}

/* ---- products ---- */

static void wait_full(Gemm *gemm, const Turn *newest) {
  Warp *w = &gemm->w;
  LLVMValueRef stage = now(gemm, newest);
  if (gemm_is_bulk(gemm))
    bulk_wait(w, gemm_bulk_full(gemm, stage), warp_get(w, &newest->parity, 0));
  else warpgroup_meet(w, full(gemm, stage), everybody(gemm));
}

static LLVMValueRef operand(Gemm *gemm, const GemmSide *side, LLVMValueRef at, int64_t extent,
                            LLVMValueRef group) {
  Warp *w = &gemm->w;
  int64_t panel = gemm_panel_bytes(side);
  if (group)
    at = warp_add(w, at, warp_times(w, group, side->along_k ? extent * WGMMA_PANEL : panel));
  return warpgroup_operand(w, at, side->along_k ? 0 : panel);
}

/* The next step of k, in the descriptor's units. */
static LLVMValueRef step_of(Gemm *gemm, const GemmSide *side, LLVMValueRef from, int s) {
  int64_t bytes = side->along_k ? WGMMA_STEP_BYTES : 16 * WGMMA_PANEL;
  return s ? LLVMBuildAdd(gemm->e->builder, from, emit_i64(gemm->e, s * bytes / 16), "") : from;
}

/* begun: NULL: the sums begin with this tile. */
static void multiply_tile(Gemm *gemm, LLVMValueRef stage, LLVMValueRef group, LLVMValueRef begun) {
  Warp *w = &gemm->w;
  LLVMTypeRef i1 = LLVMInt1TypeInContext(gemm->e->context);
  LLVMValueRef at = offset_of(gemm, stage), yes = LLVMConstInt(i1, 1, 0);
  if (!begun) begun = LLVMConstInt(i1, 0, 0);
  LLVMValueRef a = operand(gemm, &gemm->g.a, at, WGMMA_ROWS, group),
               b = operand(gemm, &gemm->g.b, warp_plus(w, at, gemm->g.a.bytes), 0, NULL);
  warpgroup_begin(w);
  for (int s = 0; s < WGMMA_PANEL / WGMMA_STEP_BYTES; s++) {
    LLVMValueRef x = step_of(gemm, &gemm->g.a, a, s), y = step_of(gemm, &gemm->g.b, b, s);
    if (gemm->p.codes) gemm_codes_step(gemm, x, y, s ? yes : begun);
    else
      warpgroup_multiply(w, gemm->p.compute, &gemm->sums, x, !gemm->g.a.along_k, y,
                         !gemm->g.b.along_k, s ? yes : begun);
  }
  warpgroup_commit(w);
}

static void leave(Gemm *gemm, const Turn *oldest) {
  Warp *w = &gemm->w;
  LLVMValueRef stage = now(gemm, oldest);
  if (gemm_is_bulk(gemm)) {
    Branch one = emit_if(gemm->e, warp_less(w, w->lane, warp_i32(w, 1)));
    bulk_arrive(w, gemm_bulk_empty(gemm, stage));
    emit_end_if(gemm->e, one);
  } else {
    warpgroup_arrive(w, empty(gemm, stage), everybody(gemm));
  }
  advance(gemm, oldest);
}

/* With the first tile of k of a tile of the result, while it is multiplied; or before, where k
   may have no tiles. */
static void bring_elements(Gemm *gemm, LLVMValueRef kt) {
  if (!gemm_has_elements(gemm) || gemm->g.seek_ctas) return;
  LLVMValueRef first = LLVMBuildICmp(gemm->e->builder, LLVMIntEQ, kt, warp_i32(&gemm->w, 0), "");
  Branch branch = emit_if(gemm->e, first);
  gemm_leave_bring(gemm);
  emit_end_if(gemm->e, branch);
}

/* All of k for one tile of the result. */
static void multiply(Gemm *gemm, const Turn *newest, const Turn *oldest, LLVMValueRef group) {
  Warp *w = &gemm->w;
  LLVMValueRef kt;
  warp_fill(w, &gemm->sums, emit_f32(gemm->e, 0));
  Loop loop = each_tile_of_k(gemm, &kt);
  LLVMValueRef begun = warp_less(w, gemm->from, kt);
  wait_full(gemm, newest);
  multiply_tile(gemm, now(gemm, newest), group, begun);
  bring_elements(gemm, kt);
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

/* The same of codes: sums of a block are complete before they are added to those of others, while
   the other warpgroup multiplies. */
static void multiply_codes(Gemm *gemm, const Turn *turn, LLVMValueRef group) {
  LLVMValueRef kt;
  warp_fill(&gemm->w, &gemm->sums, emit_f32(gemm->e, 0));
  gemm_codes_aim(gemm);
  Loop loop = each_tile_of_k(gemm, &kt);
  wait_full(gemm, turn);
  multiply_tile(gemm, now(gemm, turn), group, NULL);
  bring_elements(gemm, kt);
  gemm_codes_scales(gemm, kt);
  gemm_codes_wait(gemm);
  leave(gemm, turn);
  gemm_codes_add(gemm);
  emit_loop_end(gemm->e, &loop);
}

/* ---- epilogue ---- */

typedef struct Out {         /* of a warp */
  LLVMValueRef room;         /* i32: its part of shared memory */
  LLVMValueRef row;          /* i32: its first row in the tile */
  LLVMValueRef group, rooms; /* i32: of its warpgroup: number, part of shared memory */
} Out;

/* A thread of eight columns reads two pieces of 16 bytes, and the fourth one after it, or the first
   of the next row, would have a bank conflict with it. So the pieces change places where this is
   odd. */
static LLVMValueRef parity(Gemm *gemm, LLVMValueRef row, LLVMValueRef block) {
  return warp_rem(&gemm->w, warp_add(&gemm->w, row, block), 2);
}

/* Rows lane / 4 (+ 8 in the second half) of some columns from `first` on. */
static void put_sums(Gemm *gemm, const Out *out, int half, int first, int columns) {
  Warp *w = &gemm->w;
  LLVMValueRef row = warp_div(w, w->lane, 4), at = warp_times(w, row, gemm->g.out_pitch), turned[2];
  at = warp_add(w, at, warp_times(w, warp_rem(w, w->lane, 4), 8));
  at = warp_add(w, at, out->room);
  for (int i = 0; i < 2; i++) {
    LLVMValueRef odd = warp_times(w, parity(gemm, row, warp_i32(w, i)), WGMMA_PIECE);
    turned[i] = gemm->e->lanes > 4 ? warp_xor(w, at, odd) : at;
  }
  for (int j = 0; j < columns / 8; j++) {
    LLVMValueRef v = LLVMGetPoison(LLVMVectorType(w->f32, 2));
    for (int q = 0; q < 2; q++)
      v = LLVMBuildInsertElement(gemm->e->builder, v,
                                 warp_get(w, &gemm->sums, 4 * (first / 8 + j) + 2 * half + q),
                                 warp_i32(w, q), "");
    warp_store(w, v, warp_plus(w, turned[j / 4 % 2], 32 * j), 8);
  }
}

/* The sums of a row, from that column on, that a thread takes at once. */
static void take_sums(Gemm *gemm, const Out *out, LLVMValueRef row, LLVMValueRef column,
                      GemmOut *to) {
  Warp *w = &gemm->w;
  int lanes = gemm->e->lanes;
  LLVMValueRef at = warp_add(w, warp_times(w, row, gemm->g.out_pitch), warp_times(w, column, 4));
  to->at[0] = at = warp_add(w, at, out->room);
  to->sum = LLVMGetPoison(emit_vector(gemm->e, ELEM_f32, lanes));
  if (lanes <= 4) {
    to->sum = warp_load(w, LLVMTypeOf(to->sum), at, 4 * lanes);
    return;
  }
  LLVMValueRef odd = warp_times(w, parity(gemm, row, warp_div(w, column, TURN)), WGMMA_PIECE);
  for (int i = 0; i < lanes / 4; i++) {
    to->at[i] = i ? warp_sub(w, warp_plus(w, at, WGMMA_PIECE), odd) : warp_add(w, at, odd);
    LLVMValueRef v = warp_load(w, emit_vector(gemm->e, ELEM_f32, 4), to->at[i], WGMMA_PIECE);
    for (int j = 0; j < 4; j++)
      to->sum =
          LLVMBuildInsertElement(gemm->e->builder, to->sum,
                                 LLVMBuildExtractElement(gemm->e->builder, v, warp_i32(w, j), ""),
                                 warp_i32(w, 4 * i + j), "");
  }
}

typedef struct Leaving { /* eight rows of sums in shared memory */
  const Out *out;
  int half, first; /* rows; the first column of the tile */
} Leaving;

/* The lane's part of the 32 vectors from `first` (i32) on, of `columns` columns from `from` on. */
static GemmOut out_of(Gemm *gemm, const Leaving *of, int from, int columns, LLVMValueRef first) {
  Warp *w = &gemm->w;
  int lanes = gemm->e->lanes, across = columns / lanes;
  LLVMValueRef flat = warp_add(w, w->lane, first), row = warp_div(w, flat, across);
  LLVMValueRef column = warp_plus(w, warp_times(w, warp_rem(w, flat, across), lanes), from);
  LLVMValueRef m = warp_add(w, of->out->row, warp_plus(w, row, 8 * of->half)),
               n = warp_plus(w, column, of->first);
  GemmOut out = {.m = warp_add(w, gemm->m0, m), .n = warp_add(w, gemm->n0, n)};
  take_sums(gemm, of->out, row, column, &out);
  return out;
}

/* The most columns of those left that fill whole turns: lanes that take the same columns of several
   rows share the arithmetic of their places. */
static int block_of(int left) {
  int columns = WGMMA_OUT;
  while (columns > TURN && columns > left) columns /= 2;
  return left < columns ? left : columns;
}

/* Turns of 32 vectors, for which registers suffice at once. */
static int turns_of(const Gemm *gemm, int columns) { return 8 * columns / gemm->e->lanes / 32; }

/* Turns of a block in a loop, some at once: the assembler begins no later one before. */
static void put_in_turns(Gemm *gemm, const Leaving *of, int from, int columns, int most) {
  Emit *emit = gemm->e;
  int turns = turns_of(gemm, columns), some = turns;
  GemmOut out[GEMM_OUT_MOST];
  while (some > most) some /= 2;
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, 32 * turns), 32 * some, 0, NULL);
  LLVMValueRef first = LLVMBuildTrunc(emit->builder, loop.i, gemm->w.i32, "");
  loop.rolled = true;
  for (int i = 0; i < some; i++)
    out[i] = out_of(gemm, of, from, columns, warp_plus(&gemm->w, first, 32 * i));
  gemm_out_put_all(gemm, out, some);
  emit_loop_end(emit, &loop);
}

/* The last 8, 16 or 24 columns perhaps have too few vectors for all lanes. */
static void put_results(Gemm *gemm, const Leaving *of, int columns) {
  Warp *w = &gemm->w;
  int lanes = gemm->e->lanes, n = 0, rest = 8 * (columns % TURN) / lanes;
  int most = gemm_out_at_once(gemm->k, &gemm->p, &gemm->g);
  bool whole = turns_of(gemm, columns) <= most;
  GemmOut all[GEMM_OUT_MOST];
  for (int from = 0, some; from < columns; from += some) {
    some = block_of(columns - from);
    if (!whole && turns_of(gemm, some)) put_in_turns(gemm, of, from, some, most);
    for (int turn = 0; whole && turn < turns_of(gemm, some); turn++)
      all[n++] = out_of(gemm, of, from, some, warp_i32(w, turn * 32));
  }
  gemm_out_put_all(gemm, all, n);
  if (rest % 32 == 0) return;
  Branch branch = emit_if(gemm->e, warp_less(w, w->lane, warp_i32(w, rest % 32)));
  GemmOut last =
      out_of(gemm, of, columns - columns % TURN, columns % TURN, warp_i32(w, rest / 32 * 32));
  gemm_out_put(gemm, &last);
  emit_end_if(gemm->e, branch);
}

static void put_columns(Gemm *gemm, const Leaving *of, int columns) {
  gemm_columns_of_warp(gemm, of->out->room, columns);
  warp_barrier_lanes(&gemm->w);
  if (of->half) gemm_columns_of_group(gemm, of->out->group, of->out->rooms, of->first, columns);
}

/* Is a warp barrier needed before sums of the next tile take the place of the last ones of this
   tile? Where threads bring operands, barriers of the CTA come first, unless the tile has none.
   Sums of columns end with a barrier. */
static bool needs_barrier(Gemm *gemm) {
  return gemm_is_bulk(gemm) || gemm->g.seek_ctas || gemm_has_columns(gemm);
}

static void put_tile(Gemm *gemm, const Out *out) {
  if (gemm_leaves(gemm)) {
    gemm_leave_tile(gemm);
    return;
  }
  int all = (int)gemm->g.tile[GEMM_N];
  for (int first = 0; first < all; first += WGMMA_OUT)
    for (int half = 0; half < 2; half++) {
      Leaving leaving = {out, half, first};
      int columns = all - first < WGMMA_OUT ? all - first : WGMMA_OUT;
      put_sums(gemm, out, half, first, columns);
      warp_barrier_lanes(&gemm->w);
      put_results(gemm, &leaving, columns);
      bool last = half && first + WGMMA_OUT >= all;
      if (!last || needs_barrier(gemm)) warp_barrier_lanes(&gemm->w); /* all have read it */
      if (gemm_has_columns(gemm)) put_columns(gemm, &leaving, columns);
    }
}

/* .. unless another CTA begins it. */
static void put_shared(Gemm *gemm, const Out *out) {
  Warp *w = &gemm->w;
  LLVMValueRef zero = warp_i32(w, 0);
  Branch continued = emit_if(gemm->e, warp_less(w, zero, gemm->from));
  gemm_shares_leave(gemm);
  emit_end_if(gemm->e, continued);
  Branch begun = emit_if(gemm->e, LLVMBuildICmp(gemm->e->builder, LLVMIntEQ, gemm->from, zero, ""));
  gemm_shares_add(gemm);
  put_tile(gemm, out);
  emit_end_if(gemm->e, begun);
}

static void multiply_all(Gemm *gemm, LLVMValueRef warp) {
  Warp *w = &gemm->w;
  warpgroup_registers(w, true);
  LLVMValueRef group = warp_div(w, warp, WGMMA_THREADS / 32);
  int64_t ring = stages(gemm) * gemm->g.stage, each = gemm->g.out_rows * gemm->g.out_pitch;
  Out out = {.room = warp_plus(w, warp_times(w, warp, each), ring), .row = warp_times(w, warp, 16)};
  out.group = group;
  out.rooms = warp_plus(w, warp_times(w, group, WGMMA_THREADS / 32 * each), ring);
  gemm->sums = warp_registers(w, w->f32, (int)gemm->g.tile[GEMM_N] / 2);
  if (gemm_has_columns(gemm) && !gemm_leaves(gemm)) gemm_columns_start(gemm);
  if (gemm->p.codes) gemm_codes_start(gemm, out.row);
  if (gemm_leaves(gemm)) gemm_leave_start(gemm, out.room, out.row);
  Turn newest = turn_new(gemm, 0), oldest = turn_new(gemm, NO_PARITY);
  for (int s = 0; !gemm_is_bulk(gemm) && s < stages(gemm); s++)
    warpgroup_arrive(w, empty(gemm, warp_i32(w, s)), everybody(gemm));
  Loop tile = each_tile(gemm);
  if (gemm_has_elements(gemm) && gemm->g.seek_ctas) gemm_leave_bring(gemm);
  if (gemm->p.codes) multiply_codes(gemm, &newest, group);
  else multiply(gemm, &newest, &oldest, group);
  if (gemm_is_shared(&gemm->g)) put_shared(gemm, &out);
  else put_tile(gemm, &out);
  emit_loop_end(gemm->e, &tile);
  if (gemm_leaves(gemm)) gemm_leave_end(gemm);
}

void gemm_wgmma(Gemm *gemm) {
  Emit *emit = gemm->e;
  LLVMSetAlignment(gemm->w.shared, 1024); /* swizzles go by the bits of addresses */
  bool shared = gemm_is_shared(&gemm->g);
  if (shared) gemm_shares_take(gemm);
  if (gemm_is_bulk(gemm)) gemm_bulk_begin(gemm); /* with a barrier */
  else if (shared) warp_barrier(&gemm->w);
  if (shared) gemm_shares_begin(gemm);
  LLVMValueRef warp = simt_warp(emit); /* the same in all lanes, and known to be so */
  Branch copies = emit_if(emit, warp_less(&gemm->w, warp, warp_i32(&gemm->w, WGMMA_THREADS / 32)));
  if (gemm_is_bulk(gemm)) copy_in_bulk(gemm);
  else copy_all(gemm);
  LLVMBuildRetVoid(emit->builder);
  LLVMPositionBuilderAtEnd(emit->builder, copies.rest);
  multiply_all(gemm, warp_plus(&gemm->w, warp, -WGMMA_THREADS / 32));
}
