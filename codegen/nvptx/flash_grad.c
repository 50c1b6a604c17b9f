/* Family attention_grad on GPUs: gradients of q, k and v from y, the log-sum-exp and dy; scores are
   computed again. Every sum has one owner and one order, so results never change.

   First phase: per query the log-sum-exp in units of log 2 and delta, the sum of y dy, into the
   workspace (a query that does not exist, or has no key, gets 1e30: its P is 0). Second phase, rows
   are keys:  P^T = 2^(K Q^T - lse);  dV += P^T dY;  dS^T = P^T (V dY^T - delta);  dK += dS^T Q.
   Third phase, rows are queries:  dQ += dS K. */
#include "families.h"
#include "flash.h"
#include <math.h>

static const double LOG2_E = 1.4426950408889634, FAR = 1e30;

typedef struct FlashBackward {
  Registers p, ds, slopes, first, second; /* slopes: of a cap; first: dq or dk; second: dv */
  LLVMValueRef lse[2], delta[2];          /* of the lane's rows, where rows are queries */
} FlashBackward;

/* ---- sums of rows ---- */

static LLVMValueRef load_at(FlashGpu *flash, ValueId value, Point *p, LLVMValueRef d) {
  point_set(p, (Index){.dim = flash->f.dim, .at = d});
  return expr_load(flash->e, value, p);
}

static LLVMValueRef row_sum(FlashGpu *flash, Point *p) {
  Emit *emit = flash->e;
  LLVMValueRef zero = emit_f32(emit, 0);
  Loop loop = emit_loop(emit, warp_wide(&flash->w, flash->w.lane), emit_i64(emit, flash->f.width),
                        32, 1, &zero);
  loop.next[0] = emit_fma(emit, load_at(flash, flash->f.y, p, loop.i),
                          load_at(flash, flash->f.dy, p, loop.i), loop.phi[0]);
  emit_loop_end(emit, &loop);
  LLVMValueRef sum = loop.phi[0];
  for (int d = 1; d < 32; d *= 2)
    sum = LLVMBuildFAdd(emit->builder, sum, warp_from(&flash->w, sum, d), "");
  return sum;
}

/* i32: number of floats between log-sum-exps and deltas in the workspace */
static int64_t deltas(const FlashGpu *flash) { return flash->g.heads * flash->g.queries; }

static void put_sums(FlashGpu *flash, LLVMValueRef flat, LLVMValueRef lse, LLVMValueRef delta) {
  Warp *w = &flash->w;
  LLVMValueRef one = LLVMBuildICmp(flash->e->builder, LLVMIntEQ, w->lane, warp_i32(w, 0), "");
  Branch b = emit_if(flash->e, one);
  LLVMBuildStore(flash->e->builder, lse, flash_workspace(flash, flat));
  LLVMBuildStore(flash->e->builder, delta,
                 flash_workspace(flash, warp_plus(w, flat, deltas(flash))));
  emit_end_if(flash->e, b);
}

static LLVMValueRef lse_of(FlashGpu *flash, const Point *p) {
  LLVMBuilderRef builder = flash->e->builder;
  LLVMValueRef v = expr_load(flash->e, flash->f.lse, p);
  LLVMValueRef none = LLVMBuildFCmp(builder, LLVMRealOEQ, v, emit_f32(flash->e, -INFINITY), "");
  return LLVMBuildSelect(builder, none, emit_f32(flash->e, FAR),
                         LLVMBuildFMul(builder, v, emit_f32(flash->e, LOG2_E), ""), "");
}

/* One query per warp. */
static void sums(FlashGpu *flash) {
  Warp *w = &flash->w;
  Emit *emit = flash->e;
  LLVMValueRef flat = warp_add(w, warp_times(w, w->cta, flash->g.threads[0] / 32), w->warp);
  Branch some = emit_if(emit, warp_less(w, flat, warp_i32(w, deltas(flash))));
  LLVMValueRef q = warp_rem(w, flat, flash->g.queries), head = warp_div(w, flat, flash->g.queries);
  flash->shared = warp_wide(w, warp_div(w, head, flash->f.group.count));
  flash->group = warp_wide(w, warp_rem(w, head, flash->f.group.count));
  LLVMValueRef present = warp_less(w, q, warp_i32(w, flash->f.queries));
  Branch in = emit_if(emit, present);
  Point p = flash_point(flash);
  point_set(&p, (Index){.dim = flash->f.query, .at = warp_wide(w, q)});
  put_sums(flash, flat, lse_of(flash, &p), row_sum(flash, &p));
  emit_end_if(emit, in);
  Branch out = emit_if(emit, LLVMBuildNot(emit->builder, present, ""));
  put_sums(flash, flat, emit_f32(emit, FAR), emit_f32(emit, 0));
  emit_end_if(emit, out);
  emit_end_if(emit, some);
}

/* ---- blocks of scores ---- */

/* The workspace value for score i's query: of the lane's row, or of its column. */
static void of_query(FlashGpu *flash, FlashBackward *backward, const FlashBlock *block,
                     LLVMValueRef *lse, LLVMValueRef *delta) {
  Warp *w = &flash->w;
  LLVMTypeRef two = LLVMVectorType(w->f32, 2);
  LLVMValueRef first = warp_add(w, warp_times(w, block->head, flash->g.queries), block->c0);
  for (int i = 0; i < backward->p.n; i++) {
    if (!flash->rows_are_keys) {
      lse[i] = backward->lse[i / 2 % 2], delta[i] = backward->delta[i / 2 % 2];
      continue;
    }
    if (i % 4) continue;
    LLVMValueRef at = flash_column(flash, first, i / 4, 0);
    for (int which = 0; which < 2; which++) {
      LLVMValueRef address = flash_workspace(flash, warp_plus(w, at, which * deltas(flash)));
      LLVMValueRef v = LLVMBuildLoad2(flash->e->builder, two, address, "");
      LLVMSetAlignment(v, 8);
      for (int q = 0; q < 4; q++)
        (which ? delta : lse)[i + q] =
            LLVMBuildExtractElement(flash->e->builder, v, warp_i32(w, q % 2), "");
    }
  }
}

static void block(FlashGpu *flash, const FlashBlock *flash_block, void *with) {
  FlashBackward *backward = with;
  Warp *w = &flash->w;
  LLVMBuilderRef builder = flash->e->builder;
  LLVMValueRef *lse = ARENA_ARRAY(flash->e->arena, LLVMValueRef, 2 * backward->p.n),
               *delta = lse + backward->p.n;
  flash_scores(flash, &backward->p, 0, 0, flash_block->stage);
  flash_mask(flash, &backward->p, &backward->slopes, flash_block);
  of_query(flash, backward, flash_block, lse, delta);
  for (int i = 0; i < backward->p.n; i++)
    warp_set(w, &backward->p, i, flash_exp2(flash, warp_get(w, &backward->p, i), lse[i]));
  flash_scores(flash, &backward->ds, 1, 1, flash_block->stage);
  bool drops = flash->f.kept != NO_VALUE;
  if (flash->rows_are_keys && !drops)
    flash_apply(flash, &backward->second, &backward->p, 1, flash_block->stage);
  for (int i = 0; i < backward->p.n; i++) {
    LLVMValueRef p = warp_get(w, &backward->p, i), dp = warp_get(w, &backward->ds, i), kept = NULL;
    if (drops) kept = flash_kept(flash, flash_block, i), dp = LLVMBuildFMul(builder, dp, kept, "");
    LLVMValueRef ds = LLVMBuildFMul(builder, LLVMBuildFSub(builder, dp, delta[i], ""), p, "");
    if (backward->slopes.n) ds = LLVMBuildFMul(builder, ds, warp_get(w, &backward->slopes, i), "");
    warp_set(w, &backward->ds, i, ds);
    if (drops) warp_set(w, &backward->p, i, LLVMBuildFMul(builder, p, kept, ""));
  }
  if (flash->rows_are_keys && drops)
    flash_apply(flash, &backward->second, &backward->p, 1, flash_block->stage);
  flash_apply(flash, &backward->first, &backward->ds, 0, flash_block->stage);
}

static void read_sums(FlashGpu *flash, FlashBackward *backward) {
  Warp *w = &flash->w;
  LLVMValueRef first = warp_times(w, flash->head, flash->g.queries);
  for (int half = 0; half < 2 && !flash->rows_are_keys; half++) {
    LLVMValueRef at = warp_add(w, first, flash_row(flash, half));
    backward->lse[half] = LLVMBuildLoad2(flash->e->builder, w->f32, flash_workspace(flash, at), "");
    at = warp_plus(w, at, deltas(flash));
    backward->delta[half] =
        LLVMBuildLoad2(flash->e->builder, w->f32, flash_workspace(flash, at), "");
  }
}

static void gradients(FlashGpu *flash) {
  Warp *w = &flash->w;
  int scores = (int)flash->g.tile[FLASH_GPU_COLUMNS] / 2, out = (int)flash->g.slice / 2;
  FlashBackward backward = {.p = warp_registers(w, w->f32, scores),
                            .ds = warp_registers(w, w->f32, scores)};
  backward.slopes = warp_registers(w, w->f32, flash->f.cap != 0 ? scores : 0);
  backward.first = warp_registers(w, w->f32, out);
  backward.second = warp_registers(w, w->f32, flash->rows_are_keys ? out : 0);
  warp_fill(w, &backward.first, emit_f32(flash->e, 0)),
      warp_fill(w, &backward.second, emit_f32(flash->e, 0));
  flash_read_rows(flash);
  read_sums(flash, &backward);
  flash_walk(flash, block, &backward);
  LLVMValueRef scale = emit_f32(flash->e, flash->f.scale), scales[] = {scale, scale};
  flash_put(flash, flash->rows_are_keys ? flash->f.dk : flash->f.dq, &backward.first, scales);
  if (flash->rows_are_keys) flash_put(flash, flash->f.dv, &backward.second, NULL);
}

void gpu_attention_grad_emit(Emit *emit) {
  FlashGpu flash = flash_new(emit);
  for (int i = 0; i < flash.g.phases; i++) {
    flash_begin(&flash, i);
    if (flash.phase == FLASH_ROWSUMS) sums(&flash);
    else gradients(&flash);
    emit_end_phase(emit);
  }
}
