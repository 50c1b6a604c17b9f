/* Family attention, forward: the scores of a block of keys to probabilities, exactly or with the
   present m (attention.c has the formulation). Must not: decide which keys are worked on. */
#include "attention_forward.h"

static const double FIT = 65536; /* sums of powers that need no larger m */

LLVMValueRef forward_lane(Forward *forward, int v) {
  return emit_i64(forward->a.e, v * forward->a.p.lanes);
}

Forward forward_part(const Forward *f, LLVMValueRef lane, int vectors) {
  Forward x = *f;
  Emit *emit = f->a.e;
  LLVMValueRef *base[] = {&x.queries, &x.scores, &x.out, &x.minus, &x.sum, &x.grown, &x.added};
  for (size_t i = 0; i < sizeof base / sizeof *base; i++)
    *base[i] = tile_elements(emit, f->a.f32, *base[i], lane);
  x.q0 = tile_add(emit, f->q0, lane), x.vectors = vectors;
  return x;
}

void forward_each(Forward *forward, int64_t n, QueryWork *work, const void *state) {
  Emit *emit = forward->a.e;
  for (int v = 0; v < n && !emit->quick; v++) work(forward, v, state);
  if (!emit->quick) return;
  LLVMValueRef end = emit_i64(emit, n * forward->a.p.lanes);
  Loop loop = emit_loop(emit, emit_i64(emit, 0), end, forward->a.p.lanes, 0, NULL);
  Forward part = forward_part(forward, loop.i, 1);
  work(&part, 0, state);
  emit_loop_end(emit, &loop);
}

static LLVMValueRef forward_at(Forward *f, LLVMValueRef key, int v) {
  return tile_add(f->a.e, tile_times(f->a.e, key, f->a.p.tile_queries), forward_lane(f, v));
}

Point forward_queries(Forward *forward, int v) {
  return attention_queries(&forward->a,
                           tile_add(forward->a.e, forward->q0, forward_lane(forward, v)));
}

/* ---- a block of scores, exactly ---- */

LLVMValueRef forward_reference(Forward *forward, int v) {
  return LLVMBuildFNeg(forward->a.e->builder,
                       attention_load(&forward->a, forward->minus, forward_lane(forward, v)), "");
}

/* The largest of the old maximum and this block's scores; masked scores are replaced by NOTHING in
 * place. */
static LLVMValueRef block_max(Forward *forward, int v, LLVMValueRef k0, LLVMValueRef count,
                              bool masked) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  Point p = forward_queries(forward, v);
  LLVMValueRef most = forward_reference(forward, v);
  Loop loop = emit_loop(emit, emit_i64(emit, 0), count, 1, 1, &most);
  LLVMValueRef s = attention_load(attention, forward->scores, forward_at(forward, loop.i, v));
  if (masked) {
    LLVMValueRef in = attention_admitted(attention, &p, tile_add(emit, k0, loop.i));
    s = LLVMBuildSelect(emit->builder, in, s, attention_splat(attention, attention_nothing), "");
    attention_store(attention, s, forward->scores, forward_at(forward, loop.i, v));
  }
  loop.next[0] = attention_max(emit, s, loop.phi[0]);
  emit_loop_end(emit, &loop);
  return loop.phi[0];
}

/* Scores to probabilities relative to m; returns their sum. */
static LLVMValueRef block_exp(Forward *forward, int v, LLVMValueRef m, LLVMValueRef count,
                              bool masked) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  LLVMValueRef zero = LLVMConstNull(attention->vector),
               nothing = attention_splat(attention, attention_nothing / 2);
  Loop loop = emit_loop(emit, emit_i64(emit, 0), count, 1, 1, &zero);
  LLVMValueRef at = forward_at(forward, loop.i, v),
               s = attention_load(attention, forward->scores, at);
  LLVMValueRef p = math_exp2(emit, LLVMBuildFSub(emit->builder, s, m, ""));
  if (masked) { /* m may be NOTHING as well */
    LLVMValueRef in = LLVMBuildFCmp(emit->builder, LLVMRealUGT, s, nothing, "");
    p = LLVMBuildSelect(emit->builder, in, p, zero, "");
  }
  attention_store(attention, p, forward->scores, at);
  loop.next[0] = LLVMBuildFAdd(emit->builder, loop.phi[0], p, "");
  emit_loop_end(emit, &loop);
  return loop.phi[0];
}

void forward_scale(Forward *forward, int v, LLVMValueRef factor) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, attention->p.width), 1, 0, NULL);
  LLVMValueRef x = attention_load(attention, forward->out, forward_at(forward, loop.i, v));
  attention_store(attention, LLVMBuildFMul(emit->builder, x, factor, ""), forward->out,
                  forward_at(forward, loop.i, v));
  emit_loop_end(emit, &loop);
}

typedef struct SoftmaxKeys {
  LLVMValueRef k0, count;
  bool whole; /* the tiles have found the maxima */
} SoftmaxKeys;

/* Scores as they are to probabilities, to a new m. */
static void softmax_block(Forward *forward, int v, const void *state) {
  const SoftmaxKeys *block = state;
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  bool masked = !block->whole && attention->f.mask != NO_VALUE;
  LLVMValueRef at = forward_lane(forward, v), old = forward_reference(forward, v);
  LLVMValueRef m = block->whole ? attention_load(attention, forward->grown, at)
                                : block_max(forward, v, block->k0, block->count, masked);
  LLVMValueRef factor = math_exp2(emit, LLVMBuildFSub(emit->builder, old, m, ""));
  LLVMValueRef sum =
      LLVMBuildFMul(emit->builder, attention_load(attention, forward->sum, at), factor, "");
  sum = LLVMBuildFAdd(emit->builder, sum, block_exp(forward, v, m, block->count, masked), "");
  attention_store(attention, LLVMBuildFNeg(emit->builder, m, ""), forward->minus, at);
  attention_store(attention, sum, forward->sum, at);
  LLVMValueRef grown = LLVMBuildFCmp(emit->builder, LLVMRealUNE, m, old, "");
  Branch grows = emit_if(emit, attention_any(emit, grown));
  forward_scale(forward, v, factor);
  emit_end_if(emit, grows);
}

TileShape forward_tile(Forward *forward) {
  const FlashPlan *plan = &forward->a.p;
  return (TileShape){.rows = (int)plan->tile[FLASH_ROWS],
                     .vectors = forward->vectors,
                     .a_row = plan->width,
                     .a_step = 1,
                     .b_step = plan->tile_queries,
                     .c_row = plan->tile_queries,
                     .capped = forward->a.f.cap != 0};
}

static void product(Forward *forward, TileShape shape, Operands operands, LLVMValueRef k0,
                    LLVMValueRef count) {
  Attention *attention = &forward->a;
  operands.A = attention_at(attention, forward->keys, k0, attention->p.width),
  operands.B = forward->queries, operands.C = forward->scores;
  attention_product(attention, shape, shape.vectors, operands, count,
                    emit_i64(attention->e, attention->f.width));
}

void forward_exact(Forward *forward, LLVMValueRef k0, LLVMValueRef count, bool whole) {
  Attention *attention = &forward->a;
  TileShape shape = forward_tile(forward);
  Operands operands = {.most = forward->grown};
  if (whole) shape.end = END_MOST;
  if (attention->f.bias != NO_VALUE) {
    shape.start = START_SUMS;
    attention_fill(attention, forward->q0, forward->vectors, k0, count, NULL, false,
                   forward->scores, attention->p.tile_queries);
  }
  for (int v = 0; v < forward->vectors && whole; v++)
    attention_store(attention, forward_reference(forward, v), forward->grown,
                    forward_lane(forward, v));
  product(forward, shape, operands, k0, count);
  forward_each(forward, forward->vectors, softmax_block, &(SoftmaxKeys){k0, count, whole});
}

/* ---- with the current m ---- */

/* In the registers of the tile. */
LLVMValueRef forward_quick(Forward *forward, LLVMValueRef k0, LLVMValueRef count, bool whole) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  TileShape shape = forward_tile(forward);
  Operands operands = {.row = forward->minus, .added = forward->added};
  bool row = whole && attention->f.bias == NO_VALUE;
  shape.start = row ? START_ROW : START_SUMS, shape.end = END_ADDED_POWERS;
  for (int v = 0; v < forward->vectors; v++)
    attention_store(attention, LLVMConstNull(attention->vector), forward->added,
                    forward_lane(forward, v));
  if (!row)
    attention_fill(attention, forward->q0, forward->vectors, k0, count, forward->minus, !whole,
                   forward->scores, attention->p.tile_queries);
  product(forward, shape, operands, k0, count);
  LLVMValueRef large = NULL;
  for (int v = 0; v < forward->vectors; v++) {
    LLVMValueRef added = attention_load(attention, forward->added, forward_lane(forward, v));
    LLVMValueRef l =
        LLVMBuildFCmp(emit->builder, LLVMRealUGE, added, attention_splat(attention, FIT), "");
    large = large ? LLVMBuildOr(emit->builder, large, l, "") : l;
  }
  return LLVMBuildNot(emit->builder, attention_any(emit, large), "");
}

void forward_add(Forward *forward) {
  Attention *attention = &forward->a;
  for (int v = 0; v < forward->vectors; v++) {
    LLVMValueRef at = forward_lane(forward, v),
                 added = attention_load(attention, forward->added, at);
    LLVMValueRef sum = attention_load(attention, forward->sum, at);
    attention_store(attention, LLVMBuildFAdd(attention->e->builder, sum, added, ""), forward->sum,
                    at);
  }
}
