/* Which keys the mask of attention admits, in steps of a register tile's rows: what of a block of
   scores need not be computed, and what counts of the rest (attention_head.h). */
#include "attention.h"

MaskFacts attention_facts(Attention *attention, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                          LLVMValueRef k1) {
  AttentionHead h = attention_head(attention);
  return attention_head_facts(&h, q0, q1, k0, k1);
}

int attention_mixed_vectors(const Attention *attention) {
  int64_t all = attention->p.tile[FLASH_VECTORS];
  return all > 2 && all % 2 == 0 ? 2 : (int)all;
}

/* A walk over keys [k0, end) in steps of a register tile's rows. */
typedef struct KeySteps {
  Loop loop;
  LLVMValueRef from, to;
} KeySteps;

static KeySteps key_steps(Attention *attention, LLVMValueRef k0, LLVMValueRef end, int n,
                          const LLVMValueRef *start) {
  Emit *emit = attention->e;
  int64_t rows = attention->p.tile[FLASH_ROWS];
  LLVMValueRef steps =
      tile_add(emit, LLVMBuildNSWSub(emit->builder, end, k0, ""), emit_i64(emit, rows - 1));
  steps = LLVMBuildUDiv(emit->builder, steps, emit_i64(emit, rows), "");
  KeySteps s = {.loop = emit_loop(emit, emit_i64(emit, 0), steps, 1, n, start)};
  s.from = tile_add(emit, k0, tile_times(emit, s.loop.i, rows));
  s.to = emit_min_i64(emit, tile_add(emit, s.from, emit_i64(emit, rows)), end);
  return s;
}

Range attention_seen_keys(Attention *attention, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                          LLVMValueRef end) {
  Emit *emit = attention->e;
  if (attention->f.mask == NO_VALUE) return (Range){k0, end};
  LLVMValueRef start[] = {end, k0};
  KeySteps steps = key_steps(attention, k0, end, 2, start);
  LLVMValueRef some = attention_facts(attention, q0, q1, steps.from, steps.to).some;
  LLVMValueRef first = emit_min_i64(emit, steps.loop.phi[0], steps.from);
  steps.loop.next[0] = LLVMBuildSelect(emit->builder, some, first, steps.loop.phi[0], "");
  steps.loop.next[1] = LLVMBuildSelect(emit->builder, some, steps.to, steps.loop.phi[1], "");
  emit_loop_end(emit, &steps.loop);
  return (Range){steps.loop.phi[0], steps.loop.phi[1]};
}

LLVMValueRef attention_whole_keys(Attention *attention, LLVMValueRef q0, LLVMValueRef q1,
                                  LLVMValueRef k0, LLVMValueRef end) {
  Emit *emit = attention->e;
  int64_t rows = attention->p.tile[FLASH_ROWS];
  if (attention->f.mask == NO_VALUE) {
    LLVMValueRef n = LLVMBuildNSWSub(emit->builder, end, k0, "");
    n = LLVMBuildUDiv(emit->builder, n, emit_i64(emit, rows), "");
    return tile_add(emit, k0, tile_times(emit, n, rows));
  }
  KeySteps steps = key_steps(attention, k0, end, 1, &k0);
  LLVMValueRef next = tile_add(emit, steps.from, emit_i64(emit, rows));
  LLVMValueRef more = attention_facts(attention, q0, q1, steps.from, steps.to).all;
  more = LLVMBuildAnd(emit->builder, more,
                      LLVMBuildICmp(emit->builder, LLVMIntEQ, steps.to, next, ""), "");
  LLVMValueRef so_far = LLVMBuildICmp(emit->builder, LLVMIntEQ, steps.loop.phi[0], steps.from, "");
  more = LLVMBuildAnd(emit->builder, more, so_far, "");
  steps.loop.next[0] = LLVMBuildSelect(emit->builder, more, next, steps.loop.phi[0], "");
  emit_loop_end(emit, &steps.loop);
  return steps.loop.phi[0];
}

LLVMValueRef attention_admitted(Attention *attention, const Point *queries, LLVMValueRef key) {
  AttentionHead h = attention_head(attention);
  return attention_head_admits(&h, queries, key, attention->p.lanes);
}

/* The start of one vector of queries, and one key. */
static LLVMValueRef start_at(Attention *attention, const Point *queries, LLVMValueRef key,
                             LLVMValueRef first, bool masked) {
  Emit *emit = attention->e;
  AttentionHead head = attention_head(attention);
  if (attention->f.bias != NO_VALUE)
    first = LLVMBuildFAdd(emit->builder, first,
                          attention_head_bias(&head, queries, key, attention->p.lanes), "");
  if (!masked || attention->f.mask == NO_VALUE) return first;
  LLVMValueRef in = attention_admitted(attention, queries, key);
  return LLVMBuildSelect(emit->builder, in, first, attention_splat(attention, attention_nothing),
                         "");
}

/* Rows rounded up to whole tiles. */
static LLVMValueRef whole_tiles(Attention *attention, LLVMValueRef count) {
  Emit *emit = attention->e;
  int64_t rows = attention->p.tile[FLASH_ROWS];
  LLVMValueRef n = tile_add(emit, count, emit_i64(emit, rows - 1));
  return tile_times(emit, LLVMBuildUDiv(emit->builder, n, emit_i64(emit, rows), ""), rows);
}

static void fill_vector(Attention *attention, const Point *queries, LLVMValueRef k0,
                        LLVMValueRef count, LLVMValueRef first, bool masked, LLVMValueRef to,
                        int64_t row_floats) {
  Emit *emit = attention->e;
  Loop loop = emit_loop(emit, emit_i64(emit, 0), count, 1, 0, NULL);
  LLVMValueRef x = start_at(attention, queries, tile_add(emit, k0, loop.i), first, masked);
  attention_store(attention, x, to, tile_times(emit, loop.i, row_floats));
  emit_loop_end(emit, &loop);
  Loop none = emit_loop(emit, count, whole_tiles(attention, count), 1, 0, NULL);
  attention_store(attention, attention_splat(attention, attention_nothing), to,
                  tile_times(emit, none.i, row_floats));
  emit_loop_end(emit, &none);
}

void attention_fill(Attention *attention, LLVMValueRef q0, int vectors, LLVMValueRef k0,
                    LLVMValueRef count, LLVMValueRef row, bool masked, LLVMValueRef to,
                    int64_t row_floats) {
  Emit *emit = attention->e;
  for (int v = 0; v < vectors; v++) {
    LLVMValueRef lane = emit_i64(emit, v * attention->p.lanes);
    Point queries = attention_queries(attention, tile_add(emit, q0, lane));
    LLVMValueRef first =
        row ? attention_load(attention, row, lane) : LLVMConstNull(attention->vector);
    fill_vector(attention, &queries, k0, count, first, masked,
                tile_elements(emit, attention->f32, to, lane), row_floats);
  }
}

void attention_drop(Attention *attention, LLVMValueRef q0, int vectors, LLVMValueRef k0,
                    LLVMValueRef count, LLVMValueRef p, LLVMValueRef dp, LLVMValueRef minus,
                    int64_t row_floats) {
  Emit *emit = attention->e;
  AttentionHead head = attention_head(attention);
  LLVMValueRef last = emit_i64(emit, attention->f.keys - 1), all = count;
  if (dp) all = whole_tiles(attention, count);
  for (int v = 0; v < vectors; v++) {
    LLVMValueRef lane = emit_i64(emit, v * attention->p.lanes);
    Point queries = attention_queries(attention, tile_add(emit, q0, lane));
    Loop loop = emit_loop(emit, emit_i64(emit, 0), all, 1, 0, NULL);
    LLVMValueRef at = tile_add(emit, tile_times(emit, loop.i, row_floats), lane);
    LLVMValueRef key = emit_min_i64(emit, tile_add(emit, k0, loop.i), last);
    LLVMValueRef factor = attention_head_kept(&head, &queries, key, attention->p.lanes);
    LLVMValueRef x = attention_load(attention, p, at);
    if (dp) {
      LLVMValueRef far = emit_fma(emit, attention_load(attention, dp, at), factor,
                                  attention_load(attention, minus, lane));
      attention_store(attention, LLVMBuildFMul(emit->builder, far, x, ""), dp, at);
    }
    attention_store(attention, LLVMBuildFMul(emit->builder, x, factor, ""), p, at);
    emit_loop_end(emit, &loop);
  }
}
