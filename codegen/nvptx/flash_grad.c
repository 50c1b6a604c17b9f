/* Family attention_grad on GPUs: gradients of q, k and v from y, the log-sum-exp and dy; scores are
   computed again. Every sum has one owner and one order, so results never change.

   First phase, rows are queries: the log-sum-exp of each in units of log 2 and delta, the sum of y
   dy, which also go into the workspace (a query that does not exist, or has no key, gets 1e30, so
   its P is 0);  P = 2^(Q K^T - lse);  dS = P (dY V^T - delta);  dQ += dS K. Second phase, rows are
   keys:  dV += P^T dY;  dK += dS^T Q. If there are sums of columns, a third one adds up the lines
   that warps left of them (flash_columns.c).

   By warpgroups (flash_group.c) the last products of a block run while scores of the next one are
   issued; V dY^T follows when they are complete, so that a thread's registers hold either what was
   packed for them or the new product. */
#include "flash_group.h"
#include "simt.h"
#include <math.h>

static const double LOG2_E = 1.4426950408889634, FAR = 1e30;

enum { NO_STAGE = -1 };

typedef struct FlashBackward {
  Registers p, ds, slopes, first, second; /* slopes: of a cap; first: dq or dk; second: dv */
  LLVMValueRef lse[2], delta[2];          /* of the lane's rows, where rows are queries */
  Registers words, ds_words, before;      /* of warpgroups: P and dS packed; i32: their stage */
} FlashBackward;

/* ---- sums of rows ---- */

static void put_sums(FlashGpu *flash, LLVMValueRef query, LLVMValueRef lse, LLVMValueRef delta) {
  LLVMValueRef of[] = {lse, delta};
  for (int which = 0; which < 2; which++)
    LLVMBuildStore(flash->e->builder, of[which],
                   flash_workspace(flash, flash_sums(flash, flash->head, query, which)));
}

/* Neighbours of y and dy that a lane reads at once. */
static int pieces_of(const FlashGpu *flash) {
  const Flash *f = &flash->f;
  int n = 16 / elem_bytes(flash->elem);
  while (n > 1 && f->width % n) n /= 2;
  bool apart = flash_stride(flash, f->y, f->dim) != 1 || flash_stride(flash, f->dy, f->dim) != 1;
  return apart ? 1 : n;
}

static LLVMValueRef load_at(FlashGpu *flash, ValueId value, Point *p, LLVMValueRef d, int n) {
  point_set(p, (Index){.dim = flash->f.dim, .at = d, .lane = n > 1, .multiple = n > 1 ? n : 0});
  flash->e->lanes = n;
  LLVMValueRef x = expr_load(flash->e, value, p);
  flash->e->lanes = 1;
  return x;
}

static LLVMValueRef add_products(FlashGpu *flash, Point *p, LLVMValueRef d, int n,
                                 LLVMValueRef sum) {
  LLVMBuilderRef builder = flash->e->builder;
  LLVMValueRef y = load_at(flash, flash->f.y, p, d, n), dy = load_at(flash, flash->f.dy, p, d, n);
  for (int i = 0; i < n; i++) {
    LLVMValueRef at = warp_i32(&flash->w, i);
    LLVMValueRef a = n > 1 ? LLVMBuildExtractElement(builder, y, at, "") : y,
                 b = n > 1 ? LLVMBuildExtractElement(builder, dy, at, "") : dy;
    sum = emit_fma(flash->e, a, b, sum);
  }
  return sum;
}

/* The sums of y dy of both rows of the lane, which takes every fourth piece of each. */
static void row_sums(FlashGpu *flash, Point p[2], LLVMValueRef sum[2]) {
  Emit *emit = flash->e;
  Warp *w = &flash->w;
  int n = pieces_of(flash);
  LLVMValueRef zero[] = {emit_f32(emit, 0), emit_f32(emit, 0)};
  Loop loop = emit_loop(emit, warp_wide(w, warp_rem(w, w->lane, 4)),
                        emit_i64(emit, flash->f.width / n), 4, 2, zero);
  LLVMValueRef d = LLVMBuildNSWMul(emit->builder, loop.i, emit_i64(emit, n), "");
  for (int half = 0; half < 2; half++)
    loop.next[half] = add_products(flash, &p[half], d, n, loop.phi[half]);
  emit_loop_end(emit, &loop);
  for (int half = 0; half < 2; half++) {
    sum[half] = loop.phi[half];
    for (int lane = 1; lane <= 2; lane *= 2)
      sum[half] = LLVMBuildFAdd(emit->builder, sum[half], warp_from(w, sum[half], lane), "");
  }
}

static LLVMValueRef lse_of(FlashGpu *flash, const Point *p) {
  LLVMBuilderRef builder = flash->e->builder;
  LLVMValueRef v = expr_load(flash->e, flash->f.lse, p);
  LLVMValueRef none = LLVMBuildFCmp(builder, LLVMRealOEQ, v, emit_f32(flash->e, -INFINITY), "");
  return LLVMBuildSelect(builder, none, emit_f32(flash->e, FAR),
                         LLVMBuildFMul(builder, v, emit_f32(flash->e, LOG2_E), ""), "");
}

/* i1: the number is 0, in the first slice of the width, which alone stores sums of rows */
static LLVMValueRef is_first(FlashGpu *flash, LLVMValueRef number) {
  LLVMValueRef all = LLVMBuildOr(flash->e->builder, number, flash->slice, "");
  return LLVMBuildICmp(flash->e->builder, LLVMIntEQ, all, warp_i32(&flash->w, 0), "");
}

/* Stores sums of queries past the last tile of rows, which the last block of columns reads. With
   warpgroups there are none: their columns divide their rows. */
static void put_rest(FlashGpu *flash) {
  Warp *w = &flash->w;
  Emit *emit = flash->e;
  int64_t rows = flash->g.tile[FLASH_GPU_ROWS], end = round_up(flash->rows, rows);
  if (end == flash->g.queries) return;
  must(!flash->g.wgmma, "attention: columns of warpgroups divide their rows");
  LLVMValueRef before = warp_sub(w, warp_i32(w, end - rows), flash->row0);
  Branch last = emit_if(emit, is_first(flash, before));
  Loop loop = emit_loop(emit, warp_wide(w, w->thread), emit_i64(emit, flash->g.queries - end),
                        flash->g.threads[emit->phase], 0, NULL);
  LLVMValueRef at = LLVMBuildTrunc(emit->builder, loop.i, w->i32, "");
  put_sums(flash, warp_plus(w, at, end), emit_f32(emit, FAR), emit_f32(emit, 0));
  emit_loop_end(emit, &loop);
  emit_end_if(emit, last);
}

/* The log-sum-exps and deltas of the lane's rows, for this phase and the next one. */
static void row_facts(FlashGpu *flash, LLVMValueRef lse[2], LLVMValueRef delta[2]) {
  Warp *w = &flash->w;
  Emit *emit = flash->e;
  bool whole = flash->rows % flash->g.tile[FLASH_GPU_ROWS] == 0;
  LLVMValueRef row[2];
  Point p[2];
  for (int half = 0; half < 2; half++) {
    row[half] = flash_row(flash, half), p[half] = flash_point(flash);
    LLVMValueRef from = whole ? row[half] : warp_min(w, row[half], warp_i32(w, flash->rows - 1));
    point_set(&p[half], (Index){.dim = flash->f.query, .at = warp_wide(w, from)});
    lse[half] = lse_of(flash, &p[half]);
  }
  row_sums(flash, p, delta);
  for (int half = 0; half < 2 && !whole; half++) {
    LLVMValueRef exists = warp_less(w, row[half], warp_i32(w, flash->rows));
    lse[half] = LLVMBuildSelect(emit->builder, exists, lse[half], emit_f32(emit, FAR), "");
    delta[half] = LLVMBuildSelect(emit->builder, exists, delta[half], emit_f32(emit, 0), "");
  }
  Branch one = emit_if(emit, is_first(flash, warp_rem(w, w->lane, 4)));
  for (int half = 0; half < 2; half++) put_sums(flash, row[half], lse[half], delta[half]);
  emit_end_if(emit, one);
  put_rest(flash);
}

/* ---- blocks of scores ---- */

/* Those of the lane's two columns of a block. */
static LLVMValueRef read_sums(FlashGpu *flash, const FlashBlock *block, int i, int which) {
  LLVMTypeRef two = LLVMVectorType(flash->w.f32, 2);
  LLVMValueRef query = flash_column(flash, block->c0, i, 0);
  LLVMValueRef address = flash_workspace(flash, flash_sums(flash, block->head, query, which));
  LLVMValueRef v = LLVMBuildLoad2(flash->e->builder, two, address, "");
  LLVMSetAlignment(v, 8);
  return v;
}

/* The log-sum-exps (0) or deltas (1) of score i's query: of the lane's row, or of its column. */
static void of_query(FlashGpu *flash, FlashBackward *backward, const FlashBlock *block, int which,
                     LLVMValueRef *out) {
  Warp *w = &flash->w;
  for (int i = 0; i < backward->p.n; i++) {
    if (!flash->rows_are_keys) out[i] = (which ? backward->delta : backward->lse)[i / 2 % 2];
    if (!flash->rows_are_keys || i % 4) continue;
    LLVMValueRef v = flash->g.wgmma ? flash_ring_sums(flash, block->stage, which, i / 4)
                                    : read_sums(flash, block, i / 4, which);
    for (int q = 0; q < 4; q++)
      out[i + q] = LLVMBuildExtractElement(flash->e->builder, v, warp_i32(w, q % 2), "");
  }
}

/* P, from scores. */
static void powers(FlashGpu *flash, FlashBackward *backward, const LLVMValueRef *lse) {
  Warp *w = &flash->w;
  for (int i = 0; i < backward->p.n; i++)
    warp_set(w, &backward->p, i, flash_exp2(flash, warp_get(w, &backward->p, i), lse[i]));
}

/* dS = P (dP - delta), times the slopes of a cap. Dropout multiplies dP before and P after it. */
static void differences(FlashGpu *flash, FlashBackward *backward, const FlashBlock *block,
                        const LLVMValueRef *delta) {
  Warp *w = &flash->w;
  LLVMBuilderRef builder = flash->e->builder;
  bool drops = flash->f.kept != NO_VALUE;
  LLVMValueRef kept[KEPT_AT_ONCE] = {NULL};
  for (int i = 0; i < backward->p.n; i++) {
    int at = i % KEPT_AT_ONCE;
    if (drops && !at) flash_kept(flash, block, i, &backward->p, kept);
    LLVMValueRef p = warp_get(w, &backward->p, i), dp = warp_get(w, &backward->ds, i);
    if (drops) dp = LLVMBuildFMul(builder, dp, kept[at], "");
    LLVMValueRef ds = LLVMBuildFMul(builder, LLVMBuildFSub(builder, dp, delta[i], ""), p, "");
    if (backward->slopes.n) ds = LLVMBuildFMul(builder, ds, warp_get(w, &backward->slopes, i), "");
    warp_set(w, &backward->ds, i, ds);
    if (drops) warp_set(w, &backward->p, i, LLVMBuildFMul(builder, p, kept[at], ""));
  }
}

static void block(FlashGpu *flash, const FlashBlock *flash_block, void *with) {
  FlashBackward *backward = with;
  LLVMValueRef *lse = ARENA_ARRAY(flash->e->arena, LLVMValueRef, 2 * backward->p.n),
               *delta = lse + backward->p.n;
  flash_scores(flash, &backward->p, 0, 0, flash_block->stage);
  flash_mask(flash, &backward->p, &backward->slopes, flash_block);
  of_query(flash, backward, flash_block, 0, lse), of_query(flash, backward, flash_block, 1, delta);
  powers(flash, backward, lse);
  flash_scores(flash, &backward->ds, 1, 1, flash_block->stage);
  bool drops = flash->f.kept != NO_VALUE;
  if (flash->rows_are_keys && !drops)
    flash_apply(flash, &backward->second, &backward->p, 1, flash_block->stage);
  differences(flash, backward, flash_block, delta);
  if (flash->rows_are_keys && drops)
    flash_apply(flash, &backward->second, &backward->p, 1, flash_block->stage);
  flash_apply(flash, &backward->first, &backward->ds, 0, flash_block->stage);
}

static FlashBackward backward_of(FlashGpu *flash) {
  Warp *w = &flash->w;
  int scores = (int)flash->g.tile[FLASH_GPU_COLUMNS] / 2, out = (int)flash->g.slice / 2;
  FlashBackward backward = {.p = warp_registers(w, w->f32, scores),
                            .ds = warp_registers(w, w->f32, scores)};
  backward.slopes = warp_registers(w, w->f32, flash->f.cap != 0 ? scores : 0);
  backward.first = warp_registers(w, w->f32, out);
  backward.second = warp_registers(w, w->f32, flash->rows_are_keys ? out : 0);
  return backward;
}

static void begin_sums(FlashGpu *flash, FlashBackward *backward) {
  warp_fill(&flash->w, &backward->first, emit_f32(flash->e, 0));
  warp_fill(&flash->w, &backward->second, emit_f32(flash->e, 0));
}

static void put(FlashGpu *flash, FlashBackward *backward) {
  Warp now = flash->w;
  flash->w.lane = simt_read_now(flash->e, now.lane);
  flash->w.warp = simt_read_now(flash->e, now.warp);
  LLVMValueRef scale = emit_f32(flash->e, flash->f.scale), scales[] = {scale, scale};
  ValueId first = flash->rows_are_keys ? flash->f.dk : flash->f.dq;
  flash_put(flash, first, &backward->first, scales);
  if (flash->rows_are_keys) flash_put(flash, flash->f.dv, &backward->second, NULL);
  flash_columns_put(flash, first, &backward->first, scale);
  if (flash->rows_are_keys) flash_columns_put(flash, flash->f.dv, &backward->second, NULL);
  flash->w = now;
}

static void gradients(FlashGpu *flash) {
  FlashBackward backward = backward_of(flash);
  begin_sums(flash, &backward);
  flash_read_rows(flash);
  if (!flash->rows_are_keys) row_facts(flash, backward.lse, backward.delta);
  flash_walk(flash, block, &backward);
  put(flash, &backward);
}

/* ---- by warpgroups ---- */

static void *group_begin(FlashGpu *flash) {
  FlashBackward *backward = ARENA_ARRAY(flash->e->arena, FlashBackward, 1);
  *backward = backward_of(flash);
  backward->ds_words = flash_group_words(flash);
  if (flash->rows_are_keys) backward->words = flash_group_words(flash);
  backward->before = warp_registers(&flash->w, flash->w.i32, 1);
  return backward;
}

/* Issues the product that gives scores (0) or dP (1). */
static void begin_product(FlashRing *ring, FlashBackward *backward, LLVMValueRef stage, int which) {
  Warp *w = &ring->x->w;
  warpgroup_begin(w);
  flash_group_scores(ring, which ? &backward->ds : &backward->p, which, stage, which);
  warpgroup_commit(w);
}

/* Until all but the last `under_way` groups of products are complete: sums are among the others. */
static void wait_sums(FlashRing *ring, FlashBackward *backward, int under_way) {
  Warp *w = &ring->x->w;
  warpgroup_wait(w, under_way, &backward->first);
  if (ring->x->rows_are_keys) warpgroup_waited(w, &backward->second);
}

static void forget_before(FlashGpu *flash, FlashBackward *backward) {
  warp_set(&flash->w, &backward->before, 0, warp_i32(&flash->w, NO_STAGE));
}

/* The unit before, whose last products were left to run; perhaps there is none. */
static void end_before(FlashRing *ring, FlashBackward *backward, int under_way, bool perhaps) {
  Warp *w = &ring->x->w;
  LLVMValueRef before = warp_get(w, &backward->before, 0);
  Branch some = {0};
  wait_sums(ring, backward, under_way);
  if (perhaps) some = emit_if(w->e, warp_less(w, warp_i32(w, NO_STAGE), before));
  for (int c = 0; c < 2; c++) flash_ring_leave(ring, before, c);
  if (perhaps) emit_end_if(w->e, some);
}

/* From scores and dP to the products that add. */
static void end_unit(FlashRing *ring, const FlashBlock *flash_block, FlashBackward *backward,
                     bool is_first) {
  FlashGpu *flash = ring->x;
  Warp *w = &flash->w;
  LLVMValueRef *of = ARENA_ARRAY(flash->e->arena, LLVMValueRef, backward->p.n);
  warpgroup_wait(w, 1, &backward->p);
  flash_mask(flash, &backward->p, &backward->slopes, flash_block);
  of_query(flash, backward, flash_block, 0, of);
  powers(flash, backward, of);
  warpgroup_wait(w, 0, &backward->ds);
  of_query(flash, backward, flash_block, 1, of);
  differences(flash, backward, flash_block, of);
  if (flash->rows_are_keys) flash_group_pack(flash, &backward->p, &backward->words);
  flash_group_pack(flash, &backward->ds, &backward->ds_words);
  warpgroup_begin(w);
  if (flash->rows_are_keys)
    flash_group_apply(ring, &backward->second, &backward->words, flash_block->stage, 1, is_first);
  flash_group_apply(ring, &backward->first, &backward->ds_words, flash_block->stage, 0, is_first);
  warpgroup_commit(w);
}

/* A unit by itself: its facts, when its operands have come, may leave its products out. */
static void unit_alone(FlashRing *ring, FlashWalk *walk, FlashUnit *unit, void *with) {
  FlashBackward *backward = with;
  FlashGpu *flash = ring->x;
  LLVMValueRef stage = warp_get(&flash->w, &ring->stage, 0);
  FlashBlock flash_block = flash_unit_block(walk, unit, stage);
  for (int c = 0; c < 2; c++) flash_ring_meet(ring, stage, c);
  Branch some = emit_if(flash->e, flash_block.some);
  for (int which = 0; which < 2; which++) begin_product(ring, backward, stage, which);
  end_unit(ring, &flash_block, backward, false);
  wait_sums(ring, backward, 0);
  emit_end_if(flash->e, some);
  for (int c = 0; c < 2; c++) flash_ring_leave(ring, stage, c);
}

static void unit_of_stretch(FlashRing *ring, FlashWalk *walk, FlashUnit *unit,
                            FlashBackward *backward, bool is_first) {
  FlashGpu *flash = ring->x;
  LLVMValueRef stage = warp_get(&flash->w, &ring->stage, 0);
  flash_ring_meet(ring, stage, 0);
  begin_product(ring, backward, stage, 0);
  if (!is_first) end_before(ring, backward, 1, flash_walk_passes(walk));
  flash_ring_meet(ring, stage, 1);
  begin_product(ring, backward, stage, 1);
  FlashBlock flash_block = flash_unit_block(walk, unit, stage);
  end_unit(ring, &flash_block, backward, is_first);
  warp_set(&flash->w, &backward->before, 0, stage);
}

static void first_unit(FlashRing *ring, FlashWalk *walk, FlashUnit *unit, void *with) {
  unit_of_stretch(ring, walk, unit, with, true);
}

static void other_unit(FlashRing *ring, FlashWalk *walk, FlashUnit *unit, void *with) {
  unit_of_stretch(ring, walk, unit, with, false);
}

static void last_unit(FlashRing *ring, void *with) {
  end_before(ring, with, 0, false);
  forget_before(ring->x, with);
}

static void group_rows(FlashRing *ring, FlashWalk *walk, void *with) {
  FlashGpu *flash = ring->x;
  FlashBackward *backward = with;
  begin_sums(flash, backward);
  if (!flash->rows_are_keys) row_facts(flash, backward->lse, backward->delta);
  /* A stretch adds to sums of others, so its first unit is as they are: by itself it spilled. */
  FlashUnitDo *first = flash_walk_passes(walk) ? NULL : first_unit;
  forget_before(flash, backward);
  flash_tile_units(ring, walk, &(FlashUnitWork){unit_alone, first, other_unit, last_unit},
                   backward);
  put(flash, backward);
}

void gpu_attention_grad_emit(Emit *emit) {
  FlashGpu flash = flash_new(emit);
  for (int i = 0; i < flash.g.phases; i++) {
    if (flash.g.phase[i] == FLASH_JOIN) {
      flash_columns_join(&flash, i);
      continue;
    }
    flash_begin(&flash, i);
    if (flash.g.wgmma) flash_groups(&flash, group_begin, group_rows);
    else gradients(&flash);
    emit_end_phase(emit);
  }
}
