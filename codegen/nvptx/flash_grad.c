/* Family attention_grad on GPUs: gradients of q, k and v from y, the log-sum-exp and dy; scores are
   computed again. Every sum has one owner and one order, so results never change.

   First phase: per query the log-sum-exp in units of log 2 and delta, the sum of y dy, into the
   workspace (a query that is not there, or has no key, gets 1e30: its P is 0). Second phase, rows
   are keys:  P^T = 2^(K Q^T - lse);  dV += P^T dY;  dS^T = P^T (V dY^T - delta);  dK += dS^T Q.
   Third phase, rows are queries:  dQ += dS K. */
#include "families.h"
#include "flash.h"
#include <math.h>

static const double LOG2_E = 1.4426950408889634, FAR = 1e30;

typedef struct FlashBackward {
  Registers p, ds, first, second; /* first: dq or dk; second: dv */
  LLVMValueRef lse[2], delta[2];  /* of the lane's rows, where rows are queries */
} FlashBackward;

/* ---- sums of rows ---- */

static LLVMValueRef load_at(FlashGpu *x, ValueId value, Point *p, LLVMValueRef d) {
  point_set(p, (Index){.dim = x->f.dim, .at = d});
  return expr_load(x->e, value, p);
}

static LLVMValueRef row_sum(FlashGpu *x, Point *p) {
  Emit *emit = x->e;
  LLVMValueRef zero = emit_f32(emit, 0);
  Loop l = emit_loop(emit, warp_wide(&x->w, x->w.lane), emit_i64(emit, x->f.width), 32, 1, &zero);
  l.next[0] = emit_fma(emit, load_at(x, x->f.y, p, l.i), load_at(x, x->f.dy, p, l.i), l.phi[0]);
  emit_loop_end(emit, &l);
  LLVMValueRef sum = l.phi[0];
  for (int d = 1; d < 32; d *= 2)
    sum = LLVMBuildFAdd(emit->builder, sum, warp_from(&x->w, sum, d), "");
  return sum;
}

/* i32: number of floats between log-sum-exps and deltas in the workspace */
static int64_t deltas(const FlashGpu *x) { return x->g.heads * x->g.queries; }

static void put_sums(FlashGpu *x, LLVMValueRef flat, LLVMValueRef lse, LLVMValueRef delta) {
  Warp *w = &x->w;
  LLVMValueRef one = LLVMBuildICmp(x->e->builder, LLVMIntEQ, w->lane, warp_i32(w, 0), "");
  Branch b = emit_if(x->e, one);
  LLVMBuildStore(x->e->builder, lse, flash_workspace(x, flat));
  LLVMBuildStore(x->e->builder, delta, flash_workspace(x, warp_plus(w, flat, deltas(x))));
  emit_end_if(x->e, b);
}

static LLVMValueRef lse_of(FlashGpu *x, const Point *p) {
  LLVMBuilderRef b = x->e->builder;
  LLVMValueRef v = expr_load(x->e, x->f.lse, p);
  LLVMValueRef none = LLVMBuildFCmp(b, LLVMRealOEQ, v, emit_f32(x->e, -INFINITY), "");
  return LLVMBuildSelect(b, none, emit_f32(x->e, FAR),
                         LLVMBuildFMul(b, v, emit_f32(x->e, LOG2_E), ""), "");
}

/* One query per warp. */
static void sums(FlashGpu *x) {
  Warp *w = &x->w;
  Emit *emit = x->e;
  LLVMValueRef flat = warp_add(w, warp_times(w, w->cta, x->g.threads[0] / 32), w->warp);
  Branch some = emit_if(emit, warp_less(w, flat, warp_i32(w, deltas(x))));
  LLVMValueRef q = warp_rem(w, flat, x->g.queries), head = warp_div(w, flat, x->g.queries);
  x->shared = warp_wide(w, warp_div(w, head, x->f.group.count));
  x->group = warp_wide(w, warp_rem(w, head, x->f.group.count));
  LLVMValueRef there = warp_less(w, q, warp_i32(w, x->f.queries));
  Branch in = emit_if(emit, there);
  Point p = flash_point(x);
  point_set(&p, (Index){.dim = x->f.query, .at = warp_wide(w, q)});
  put_sums(x, flat, lse_of(x, &p), row_sum(x, &p));
  emit_end_if(emit, in);
  Branch out = emit_if(emit, LLVMBuildNot(emit->builder, there, ""));
  put_sums(x, flat, emit_f32(emit, FAR), emit_f32(emit, 0));
  emit_end_if(emit, out);
  emit_end_if(emit, some);
}

/* ---- blocks of scores ---- */

/* What stands in the workspace for score i's query: of the lane's row, or of its column. */
static void of_query(FlashGpu *x, FlashBackward *backward, const FlashBlock *b, LLVMValueRef *lse,
                     LLVMValueRef *delta) {
  Warp *w = &x->w;
  LLVMTypeRef two = LLVMVectorType(w->f32, 2);
  LLVMValueRef first = warp_add(w, warp_times(w, b->head, x->g.queries), b->c0);
  for (int i = 0; i < backward->p.n; i++) {
    if (!x->rows_are_keys) {
      lse[i] = backward->lse[i / 2 % 2], delta[i] = backward->delta[i / 2 % 2];
      continue;
    }
    if (i % 4) continue;
    LLVMValueRef at = flash_column(x, first, i / 4, 0);
    for (int which = 0; which < 2; which++) {
      LLVMValueRef address = flash_workspace(x, warp_plus(w, at, which * deltas(x)));
      LLVMValueRef v = LLVMBuildLoad2(x->e->builder, two, address, "");
      LLVMSetAlignment(v, 8);
      for (int q = 0; q < 4; q++)
        (which ? delta : lse)[i + q] =
            LLVMBuildExtractElement(x->e->builder, v, warp_i32(w, q % 2), "");
    }
  }
}

static void block(FlashGpu *x, const FlashBlock *b, void *with) {
  FlashBackward *backward = with;
  Warp *w = &x->w;
  LLVMBuilderRef q = x->e->builder;
  LLVMValueRef *lse = ARENA_ARRAY(x->e->arena, LLVMValueRef, 2 * backward->p.n),
               *delta = lse + backward->p.n;
  flash_scores(x, &backward->p, 0, 0, b->stage);
  flash_mask(x, &backward->p, b);
  of_query(x, backward, b, lse, delta);
  for (int i = 0; i < backward->p.n; i++)
    warp_set(w, &backward->p, i, flash_exp2(x, warp_get(w, &backward->p, i), lse[i]));
  flash_scores(x, &backward->ds, 1, 1, b->stage);
  if (x->rows_are_keys) flash_apply(x, &backward->second, &backward->p, 1, b->stage);
  for (int i = 0; i < backward->p.n; i++) {
    LLVMValueRef ds = LLVMBuildFSub(q, warp_get(w, &backward->ds, i), delta[i], "");
    warp_set(w, &backward->ds, i, LLVMBuildFMul(q, ds, warp_get(w, &backward->p, i), ""));
  }
  flash_apply(x, &backward->first, &backward->ds, 0, b->stage);
}

static void read_sums(FlashGpu *x, FlashBackward *backward) {
  Warp *w = &x->w;
  LLVMValueRef first = warp_times(w, x->head, x->g.queries);
  for (int half = 0; half < 2 && !x->rows_are_keys; half++) {
    LLVMValueRef at = warp_add(w, first, flash_row(x, half));
    backward->lse[half] = LLVMBuildLoad2(x->e->builder, w->f32, flash_workspace(x, at), "");
    at = warp_plus(w, at, deltas(x));
    backward->delta[half] = LLVMBuildLoad2(x->e->builder, w->f32, flash_workspace(x, at), "");
  }
}

static void gradients(FlashGpu *x) {
  Warp *w = &x->w;
  int scores = (int)x->g.tile[FLASH_GPU_COLUMNS] / 2, out = (int)x->g.slice / 2;
  FlashBackward backward = {.p = warp_registers(w, w->f32, scores),
                            .ds = warp_registers(w, w->f32, scores)};
  backward.first = warp_registers(w, w->f32, out);
  backward.second = warp_registers(w, w->f32, x->rows_are_keys ? out : 0);
  warp_fill(w, &backward.first, emit_f32(x->e, 0)),
      warp_fill(w, &backward.second, emit_f32(x->e, 0));
  flash_read_rows(x);
  read_sums(x, &backward);
  flash_walk(x, block, &backward);
  LLVMValueRef scale = emit_f32(x->e, x->f.scale), scales[] = {scale, scale};
  flash_put(x, x->rows_are_keys ? x->f.dk : x->f.dq, &backward.first, scales);
  if (x->rows_are_keys) flash_put(x, x->f.dv, &backward.second, NULL);
}

void gpu_attention_grad_emit(Emit *emit) {
  FlashGpu x = flash_new(emit);
  for (int i = 0; i < x.g.phases; i++) {
    flash_begin(&x, i);
    if (x.phase == FLASH_ROWSUMS) sums(&x);
    else gradients(&x);
    emit_end_phase(emit);
  }
}
