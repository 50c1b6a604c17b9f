/* Family contract on GPUs: one dot and an epilogue of POINT ops over its result's dims.

   A CTA makes one tile of the result of one batch over one range of k (ir/kernel/gemm_gpu.h). Tiles
   of both operands pass through a ring of stages in shared memory:

     copy the first stages - 1 tiles
     multiply-adds: for each tile of k: wait for its copy, meet; begin the copy of the tile
       stages - 1 ahead, into the stage that all have just left; multiply; end that copy
     tensor cores: wait for the first tile, meet, read its first step; for each tile of k and each
       step of it: read the step that follows, multiply this one; between the first two begin that
       copy; before the step that follows is the first of the next tile, wait for that, meet
     sums to shared memory as f32 rows, as many at once as have room in the ring; each thread
       evaluates the epilogue for elements of them

   So one barrier per tile of k, and with tensor cores work in registers on both sides of it. After
   the last tile, zeros or the last tile again are read ahead and not multiplied. Tiles of
   neighbouring CTAs form a block of eight rows of tiles, whose operands meet in the second-level
   cache. The order of sums depends on the cut alone. */
#include "gemm.h"
#include "ir/kernel/gpu_plan.h"

enum { BLOCK_ROWS = 8 };

static GemmMath math_of(const Fn *fn) {
  Str variant = attr_str(&fn->attrs, ATTR_variant, "");
  for (int i = GEMM_FMA; i <= GEMM_WGMMA; i++)
    if (!strcmp(variant, gemm_variant[i])) return (GemmMath)i;
  bug("kernel %s: no variant `%s`", fn->name, variant);
}

static Gemm gemm_new(Emit *emit) {
  Gemm x = {.e = emit, .k = emit->k};
  x.p = product_of(emit->k, 8);
  x.g = gemm_plan(&x.p, math_of(emit->k), emit_tile(emit, GEMM_COUNT), gpu_ctas(emit->m, emit->k));
  /* sums that stay where products leave them are in pairs of columns */
  emit->lanes = x.g.tile[GEMM_BY] == BY_BULK_ALL ? 2 : (int)x.g.tile[GEMM_LANES];
  return x;
}

/* Tile `within` of a batch: down eight rows of tiles, then to the next column. */
static void place_tile(Gemm *gemm, LLVMValueRef within) {
  Warp *w = &gemm->w;
  int64_t block = BLOCK_ROWS * gemm->g.tiles_n;
  LLVMValueRef first = warp_times(w, warp_div(w, within, block), BLOCK_ROWS);
  LLVMValueRef left = warp_sub(w, warp_i32(w, gemm->g.tiles_m), first);
  LLVMValueRef rows = warp_min(w, left, warp_i32(w, BLOCK_ROWS)), in = warp_rem(w, within, block);
  if (gemm->g.tiles_m % BLOCK_ROWS == 0) rows = warp_i32(w, BLOCK_ROWS);
  if (gemm->g.tiles_m < BLOCK_ROWS)
    first = warp_i32(w, 0), rows = warp_i32(w, gemm->g.tiles_m), in = within;
  LLVMValueRef m = warp_add(w, first, LLVMBuildURem(gemm->e->builder, in, rows, ""));
  gemm->m0 = warp_times(w, m, gemm->g.tile[GEMM_M]);
  gemm->n0 = warp_times(w, LLVMBuildUDiv(gemm->e->builder, in, rows, ""), gemm->g.tile[GEMM_N]);
}

void gemm_place(Gemm *gemm, LLVMValueRef tile) {
  Warp *w = &gemm->w;
  int64_t tiles = gemm->g.tiles_m * gemm->g.tiles_n, splits = gemm->g.splits;
  LLVMValueRef above = warp_div(w, tile, tiles);
  place_tile(gemm, warp_rem(w, tile, tiles));
  gemm->batch = splits > 1 ? warp_rem(w, above, gemm->g.batches) : above;
  gemm->split = warp_div(w, above, gemm->g.batches);
  gemm->from = warp_i32(w, 0), gemm->to = warp_i32(w, gemm->g.tiles_k);
  if (splits > 1) {
    gemm->from = warp_min(w, warp_times(w, gemm->split, gemm->g.range), gemm->to);
    gemm->to = warp_min(w, warp_plus(w, warp_times(w, gemm->split, gemm->g.range), gemm->g.range),
                        gemm->to);
  }
}

static void place(Gemm *gemm) {
  Warp *w = &gemm->w;
  gemm_place(gemm, w->cta);
  gemm->warp_m = warp_times(w, warp_div(w, w->warp, gemm->g.warps_n), gemm->g.tile[GEMM_WARP_M]);
  gemm->warp_n = warp_times(w, warp_rem(w, w->warp, gemm->g.warps_n), gemm->g.tile[GEMM_WARP_N]);
}

static TileLoad load_of(Gemm *gemm, bool is_b) {
  Emit *emit = gemm->e;
  TileLoad load = {
      .side = is_b ? gemm->g.b : gemm->g.a, .is_b = is_b, .k = gemm->p.k, .k_extent = gemm->g.k};
  load.mn = is_b ? gemm->p.n : gemm->p.m, load.mn_extent = is_b ? gemm->g.n : gemm->g.m;
  load.mn_tile = gemm->g.tile[is_b ? GEMM_N : GEMM_M], load.k_tile = gemm->g.tile[GEMM_K];
  load.memory = is_b ? gemm->p.elem_b : gemm->p.elem_a;
  load.shared = gemm->g.math == GEMM_MMA ? gemm->p.compute : ELEM_f32;
  load.threads = (int)gemm->g.threads[0], load.mn0 = is_b ? gemm->n0 : gemm->m0;
  load.repeats = true, load.always = gemm->g.math != GEMM_FMA;
  LLVMValueRef offset = tile_offset(&gemm->w, &gemm->p.batch, is_b, gemm->batch);
  load.base = LLVMBuildInBoundsGEP2(emit->builder, emit_memory_type(emit, load.memory),
                                    emit_buffer(emit, is_b ? gemm->p.arg_b : gemm->p.arg_a),
                                    &offset, 1, "");
  tile_load_setup(&gemm->w, &load, is_b ? gemm->g.a.bytes : 0);
  return load;
}

static bool quiet(const Gemm *gemm) { return gemm->a.quiet || gemm->b.quiet; }

static void begin(Gemm *gemm, LLVMValueRef kt, LLVMValueRef stage) {
  tile_load_begin(&gemm->w, &gemm->a, kt, gemm->to, stage);
  tile_load_begin(&gemm->w, &gemm->b, kt, gemm->to, stage);
  if (quiet(gemm)) warp_commit(&gemm->w);
}

static void end(Gemm *gemm, LLVMValueRef stage) {
  tile_load_end(&gemm->w, &gemm->a, stage);
  tile_load_end(&gemm->w, &gemm->b, stage);
}

typedef struct GemmRing { /* offsets of stages: the one that is read, the one that is written */
  Registers read, write;
} GemmRing;

/* The stage after the one in r. */
static void advance(Gemm *gemm, const Registers *r) {
  Warp *w = &gemm->w;
  LLVMValueRef next = warp_plus(w, warp_get(w, r, 0), gemm->g.stage);
  LLVMValueRef last = LLVMBuildICmp(gemm->e->builder, LLVMIntEQ, next,
                                    warp_i32(w, gemm->g.stage * gemm->g.tile[GEMM_STAGES]), "");
  warp_set(w, r, 0, LLVMBuildSelect(gemm->e->builder, last, warp_i32(w, 0), next, ""));
}

/* The first stages - 1 tiles are under way. */
static GemmRing ring_begin(Gemm *gemm) {
  Warp *w = &gemm->w;
  int stages = (int)gemm->g.tile[GEMM_STAGES];
  GemmRing ring = {warp_registers(w, w->i32, 1), warp_registers(w, w->i32, 1)};
  warp_set(w, &ring.read, 0, warp_i32(w, 0));
  warp_set(w, &ring.write, 0, warp_i32(w, (stages - 1) * gemm->g.stage));
  for (int s = 0; s < stages - 1; s++) {
    LLVMValueRef stage = warp_i32(w, s * gemm->g.stage);
    begin(gemm, warp_plus(w, gemm->from, s), stage);
    end(gemm, stage);
  }
  return ring;
}

/* All but the last `under_way` tiles have come, for all threads. */
static void meet(Gemm *gemm, int under_way) {
  must(under_way >= 0, "kernel %s: a ring of %lld stages", gemm->k->name,
       (long long)gemm->g.tile[GEMM_STAGES]);
  if (quiet(gemm)) warp_wait(&gemm->w, under_way);
  warp_barrier(&gemm->w);
}

static void multiply_fma(Gemm *gemm, GemmRing *ring, LLVMValueRef kt) {
  int stages = (int)gemm->g.tile[GEMM_STAGES];
  meet(gemm, stages - 2);
  LLVMValueRef to = warp_get(&gemm->w, &ring->write, 0);
  begin(gemm, warp_plus(&gemm->w, kt, stages - 1), to);
  gemm_fma(gemm, warp_get(&gemm->w, &ring->read, 0));
  end(gemm, to);
  advance(gemm, &ring->read), advance(gemm, &ring->write);
}

/* With two stages the tile that is copied is the one that is read next. */
static void multiply_mma(Gemm *gemm, GemmRing *ring, LLVMValueRef kt) {
  Warp *w = &gemm->w;
  int stages = (int)gemm->g.tile[GEMM_STAGES], steps = gemm_mma_steps(gemm);
  LLVMValueRef to = warp_get(w, &ring->write, 0), ahead = warp_plus(w, kt, stages - 1);
  GemmStep step[2];
  gemm_mma_kept(gemm, &step[0]);
  for (int s = 0; s < steps; s++) {
    bool last = s + 1 == steps;
    if (s == 0 && last) begin(gemm, ahead, to);
    if (last && stages == 2) end(gemm, to);
    if (last) meet(gemm, stages - 2), advance(gemm, &ring->read);
    gemm_mma_read(gemm, warp_get(w, &ring->read, 0), (s + 1) % steps, &step[(s + 1) % 2]);
    if (s == 0 && !last) begin(gemm, ahead, to);
    gemm_mma_multiply(gemm, &step[s % 2]);
  }
  gemm_mma_keep(gemm, &step[steps % 2]);
  if (stages > 2) end(gemm, to);
  advance(gemm, &ring->write);
}

static void multiply_all(Gemm *gemm) {
  Emit *emit = gemm->e;
  bool mma = gemm->g.math != GEMM_FMA;
  GemmRing ring = ring_begin(gemm);
  if (mma) {
    GemmStep first;
    gemm_mma_setup(gemm);
    meet(gemm, (int)gemm->g.tile[GEMM_STAGES] - 2);
    gemm_mma_read(gemm, warp_get(&gemm->w, &ring.read, 0), 0, &first);
    gemm_mma_keep(gemm, &first);
  }
  Loop loop =
      emit_loop(emit, warp_wide(&gemm->w, gemm->from), warp_wide(&gemm->w, gemm->to), 1, 0, NULL);
  loop.rolled = true; /* registers are counted for one tile at once */
  LLVMValueRef kt = LLVMBuildTrunc(emit->builder, loop.i, gemm->w.i32, "");
  if (mma) multiply_mma(gemm, &ring, kt);
  else multiply_fma(gemm, &ring, kt);
  emit_loop_end(emit, &loop);
  if (mma) meet(gemm, 0); /* zeros may be under way */
  else warp_barrier(&gemm->w);
}

/* of a thread */
static int gemm_sums(const Gemm *gemm) {
  return (int)(gemm->g.tile[GEMM_WARP_M] * gemm->g.tile[GEMM_WARP_N] / 32);
}

static void put_pass(Gemm *gemm, int pass) {
  if (pass) warp_barrier(&gemm->w); /* all have read what the pass before left */
  if (gemm->g.math == GEMM_FMA) gemm_fma_out(gemm, pass);
  else gemm_mma_out(gemm, pass);
  warp_barrier(&gemm->w);
  gemm_results(gemm, pass);
  if (gemm_has_columns(gemm)) gemm_columns_add(gemm, pass);
}

/* One tile of the result, by all warps alike. */
static void make_tile(Gemm *gemm) {
  place(gemm);
  gemm->a = load_of(gemm, false), gemm->b = load_of(gemm, true);
  gemm->sums = warp_registers(&gemm->w, gemm->w.f32, gemm_sums(gemm));
  warp_fill(&gemm->w, &gemm->sums, emit_f32(gemm->e, 0));
  Branch some = {0};
  if (gemm->g.seek_ctas) some = emit_if(gemm->e, gemm_seek_found(gemm));
  multiply_all(gemm);
  if (gemm->g.seek_ctas) emit_end_if(gemm->e, some);
  if (gemm_has_columns(gemm)) gemm_columns_start(gemm);
  for (int i = 0; i < gemm->g.passes; i++) put_pass(gemm, i);
  if (gemm_has_columns(gemm)) gemm_columns_end(gemm);
}

void gpu_contract_emit(Emit *emit) {
  Gemm gemm = gemm_new(emit);
  int phase = 0;
  if (gemm.g.seek_ctas) {
    emit_begin_phase(emit, phase++);
    gemm.w = warp_begin(emit);
    gemm_seek(&gemm);
    emit_end_phase(emit);
  }
  emit_begin_phase(emit, phase++);
  gemm.w = warp_begin(emit);
  if (gemm.g.math == GEMM_WGMMA) gemm_wgmma(&gemm);
  else make_tile(&gemm);
  emit_end_phase(emit);
  if (gemm_has_columns(&gemm)) gemm_columns_join(&gemm, phase);
  if (!gemm_is_split(&gemm.g)) return;
  emit_begin_phase(emit, phase);
  gemm.w = warp_begin(emit);
  gemm_reduce(&gemm);
  emit_end_phase(emit);
}
