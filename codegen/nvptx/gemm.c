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

   So one barrier per tile of k, and with tensor cores work in registers on both sides of it. Behind
   the last tile zeros are read ahead, or the last tile again; nobody multiplies them. Tiles of
   neighbouring CTAs form a block of eight rows of tiles, whose operands meet in the second-level
   cache. The order of sums depends on the cut alone. */
#include "families.h"
#include "gemm.h"

enum { BLOCK_ROWS = 8 };

static GemmMath math_of(const Fn *k) {
  Str variant = attr_str(&k->attrs, ATTR_variant, "");
  for (int i = GEMM_FMA; i <= GEMM_MMA; i++)
    if (!strcmp(variant, gemm_variant[i])) return (GemmMath)i;
  bug("kernel %s: no variant `%s`", k->name, variant);
}

static Gemm gemm_new(Emit *e) {
  Gemm x = {.e = e, .k = e->k};
  x.p = product_of(e->k, 8);
  x.g = gemm_plan(&x.p, math_of(e->k), emit_tile(e, GEMM_COUNT));
  e->lanes = (int)x.g.tile[GEMM_LANES];
  return x;
}

/* Tile `within` of a batch: down eight rows of tiles, then to the next column. */
static void place_tile(Gemm *x, LLVMValueRef within) {
  Warp *w = &x->w;
  int64_t block = BLOCK_ROWS * x->g.tiles_n;
  LLVMValueRef first = warp_times(w, warp_div(w, within, block), BLOCK_ROWS);
  LLVMValueRef left = warp_sub(w, warp_i32(w, x->g.tiles_m), first);
  LLVMValueRef rows = warp_min(w, left, warp_i32(w, BLOCK_ROWS)), in = warp_rem(w, within, block);
  if (x->g.tiles_m % BLOCK_ROWS == 0) rows = warp_i32(w, BLOCK_ROWS);
  if (x->g.tiles_m < BLOCK_ROWS)
    first = warp_i32(w, 0), rows = warp_i32(w, x->g.tiles_m), in = within;
  LLVMValueRef m = warp_add(w, first, LLVMBuildURem(x->e->builder, in, rows, ""));
  x->m0 = warp_times(w, m, x->g.tile[GEMM_M]);
  x->n0 = warp_times(w, LLVMBuildUDiv(x->e->builder, in, rows, ""), x->g.tile[GEMM_N]);
}

static void place(Gemm *x) {
  Warp *w = &x->w;
  int64_t tiles = x->g.tiles_m * x->g.tiles_n, splits = x->g.tile[GEMM_SPLITS];
  LLVMValueRef above = warp_div(w, w->cta, tiles);
  place_tile(x, warp_rem(w, w->cta, tiles));
  x->batch = splits > 1 ? warp_rem(w, above, x->g.batches) : above;
  x->split = warp_div(w, above, x->g.batches);
  x->from = warp_i32(w, 0), x->to = warp_i32(w, x->g.tiles_k);
  if (splits > 1) {
    x->from = warp_min(w, warp_times(w, x->split, x->g.range), x->to);
    x->to = warp_min(w, warp_plus(w, warp_times(w, x->split, x->g.range), x->g.range), x->to);
  }
  x->warp_m = warp_times(w, warp_div(w, w->warp, x->g.warps_n), x->g.tile[GEMM_WARP_M]);
  x->warp_n = warp_times(w, warp_rem(w, w->warp, x->g.warps_n), x->g.tile[GEMM_WARP_N]);
}

static TileLoad load_of(Gemm *x, bool is_b) {
  Emit *e = x->e;
  TileLoad l = {.side = is_b ? x->g.b : x->g.a, .is_b = is_b, .k = x->p.k, .k_extent = x->g.k};
  l.mn = is_b ? x->p.n : x->p.m, l.mn_extent = is_b ? x->g.n : x->g.m;
  l.mn_tile = x->g.tile[is_b ? GEMM_N : GEMM_M], l.k_tile = x->g.tile[GEMM_K];
  l.memory = is_b ? x->p.elem_b : x->p.elem_a;
  l.shared = x->g.math == GEMM_MMA ? x->p.compute : ELEM_f32;
  l.threads = (int)x->g.threads[0], l.mn0 = is_b ? x->n0 : x->m0;
  l.always = x->g.math != GEMM_FMA;
  LLVMValueRef offset = tile_offset(&x->w, &x->p.batch, is_b, x->batch);
  l.base = LLVMBuildInBoundsGEP2(e->builder, emit_memory_type(e, l.memory),
                                 emit_buffer(e, is_b ? x->p.arg_b : x->p.arg_a), &offset, 1, "");
  tile_load_setup(&x->w, &l, is_b ? x->g.a.bytes : 0);
  return l;
}

static bool quiet(const Gemm *x) { return x->a.quiet || x->b.quiet; }

static void begin(Gemm *x, LLVMValueRef kt, LLVMValueRef stage) {
  tile_load_begin(&x->w, &x->a, kt, x->to, stage);
  tile_load_begin(&x->w, &x->b, kt, x->to, stage);
  if (quiet(x)) warp_commit(&x->w);
}

static void end(Gemm *x, LLVMValueRef stage) {
  tile_load_end(&x->w, &x->a, stage);
  tile_load_end(&x->w, &x->b, stage);
}

typedef struct GemmRing { /* offsets of stages: the one that is read, the one that is written */
  Registers read, write;
} GemmRing;

/* The stage after the one in r. */
static void advance(Gemm *x, const Registers *r) {
  Warp *w = &x->w;
  LLVMValueRef next = warp_plus(w, warp_get(w, r, 0), x->g.stage);
  LLVMValueRef last = LLVMBuildICmp(x->e->builder, LLVMIntEQ, next,
                                    warp_i32(w, x->g.stage * x->g.tile[GEMM_STAGES]), "");
  warp_set(w, r, 0, LLVMBuildSelect(x->e->builder, last, warp_i32(w, 0), next, ""));
}

/* The first stages - 1 tiles are under way. */
static GemmRing ring_begin(Gemm *x) {
  Warp *w = &x->w;
  int stages = (int)x->g.tile[GEMM_STAGES];
  GemmRing r = {warp_registers(w, w->i32, 1), warp_registers(w, w->i32, 1)};
  warp_set(w, &r.read, 0, warp_i32(w, 0));
  warp_set(w, &r.write, 0, warp_i32(w, (stages - 1) * x->g.stage));
  for (int s = 0; s < stages - 1; s++) {
    LLVMValueRef stage = warp_i32(w, s * x->g.stage);
    begin(x, warp_plus(w, x->from, s), stage);
    end(x, stage);
  }
  return r;
}

/* All but the last `under_way` tiles have come, for all threads. */
static void meet(Gemm *x, int under_way) {
  must(under_way >= 0, "kernel %s: a ring of %lld stages", x->k->name,
       (long long)x->g.tile[GEMM_STAGES]);
  if (quiet(x)) warp_wait(&x->w, under_way);
  warp_barrier(&x->w);
}

static void multiply_fma(Gemm *x, GemmRing *r, LLVMValueRef kt) {
  int stages = (int)x->g.tile[GEMM_STAGES];
  meet(x, stages - 2);
  LLVMValueRef to = warp_get(&x->w, &r->write, 0);
  begin(x, warp_plus(&x->w, kt, stages - 1), to);
  gemm_fma(x, warp_get(&x->w, &r->read, 0));
  end(x, to);
  advance(x, &r->read), advance(x, &r->write);
}

/* With two stages the tile that is copied is the one that is read next. */
static void multiply_mma(Gemm *x, GemmRing *r, LLVMValueRef kt) {
  Warp *w = &x->w;
  int stages = (int)x->g.tile[GEMM_STAGES], steps = gemm_mma_steps(x);
  LLVMValueRef to = warp_get(w, &r->write, 0), ahead = warp_plus(w, kt, stages - 1);
  GemmStep step[2];
  gemm_mma_kept(x, &step[0]);
  for (int s = 0; s < steps; s++) {
    bool last = s + 1 == steps;
    if (s == 0 && last) begin(x, ahead, to);
    if (last && stages == 2) end(x, to);
    if (last) meet(x, stages - 2), advance(x, &r->read);
    gemm_mma_read(x, warp_get(w, &r->read, 0), (s + 1) % steps, &step[(s + 1) % 2]);
    if (s == 0 && !last) begin(x, ahead, to);
    gemm_mma_multiply(x, &step[s % 2]);
  }
  gemm_mma_keep(x, &step[steps % 2]);
  if (stages > 2) end(x, to);
  advance(x, &r->write);
}

static void multiply_all(Gemm *x) {
  Emit *e = x->e;
  bool mma = x->g.math != GEMM_FMA;
  GemmRing r = ring_begin(x);
  if (mma) {
    GemmStep first;
    gemm_mma_setup(x);
    meet(x, (int)x->g.tile[GEMM_STAGES] - 2);
    gemm_mma_read(x, warp_get(&x->w, &r.read, 0), 0, &first);
    gemm_mma_keep(x, &first);
  }
  Loop l = emit_loop(e, warp_wide(&x->w, x->from), warp_wide(&x->w, x->to), 1, 0, NULL);
  LLVMValueRef kt = LLVMBuildTrunc(e->builder, l.i, x->w.i32, "");
  if (mma) multiply_mma(x, &r, kt);
  else multiply_fma(x, &r, kt);
  emit_loop_end(e, &l);
  meet(x, 0);
}

int gemm_sums(const Gemm *x) { return (int)(x->g.tile[GEMM_WARP_M] * x->g.tile[GEMM_WARP_N] / 32); }

static void put_pass(Gemm *x, int pass) {
  if (pass) warp_barrier(&x->w); /* all have read what the pass before left */
  if (x->g.math == GEMM_FMA) gemm_fma_out(x, pass);
  else gemm_mma_out(x, pass);
  warp_barrier(&x->w);
  gemm_results(x, pass);
}

void gpu_contract_emit(Emit *e) {
  Gemm x = gemm_new(e);
  emit_begin_phase(e, 0);
  x.w = warp_begin(e);
  place(&x);
  x.a = load_of(&x, false), x.b = load_of(&x, true);
  x.sums = warp_registers(&x.w, x.w.f32, gemm_sums(&x));
  warp_fill(&x.w, &x.sums, emit_f32(e, 0));
  multiply_all(&x);
  for (int i = 0; i < x.g.passes; i++) put_pass(&x, i);
  emit_end_phase(e);
  if (x.g.phases == 1) return;
  emit_begin_phase(e, 1);
  x.w = warp_begin(e);
  gemm_reduce(&x);
  emit_end_phase(e);
}
