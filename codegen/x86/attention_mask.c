/* Which keys the mask of attention admits, in steps of a register tile's rows: what of a block of
   scores need not be computed, and what counts of the rest (attention_head.h). */
#include "attention.h"

MaskFacts attention_facts(Attention *a, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                          LLVMValueRef k1) {
  AttentionHead h = attention_head(a);
  return attention_head_facts(&h, q0, q1, k0, k1);
}

int attention_mixed_vectors(const Attention *a) {
  int64_t all = a->p.tile[FLASH_VECTORS];
  return all > 2 && all % 2 == 0 ? 2 : (int)all;
}

/* A walk over keys [k0, end) in steps of a register tile's rows. */
typedef struct KeySteps {
  Loop loop;
  LLVMValueRef from, to;
} KeySteps;

static KeySteps key_steps(Attention *a, LLVMValueRef k0, LLVMValueRef end, int n,
                          const LLVMValueRef *start) {
  Emit *e = a->e;
  int64_t rows = a->p.tile[FLASH_ROWS];
  LLVMValueRef steps = tile_add(e, LLVMBuildNSWSub(e->builder, end, k0, ""), emit_i64(e, rows - 1));
  steps = LLVMBuildUDiv(e->builder, steps, emit_i64(e, rows), "");
  KeySteps s = {.loop = emit_loop(e, emit_i64(e, 0), steps, 1, n, start)};
  s.from = tile_add(e, k0, tile_times(e, s.loop.i, rows));
  s.to = emit_min_i64(e, tile_add(e, s.from, emit_i64(e, rows)), end);
  return s;
}

Range attention_seen_keys(Attention *a, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                          LLVMValueRef end) {
  Emit *e = a->e;
  if (a->f.mask == NO_VALUE) return (Range){k0, end};
  LLVMValueRef start[] = {end, k0};
  KeySteps s = key_steps(a, k0, end, 2, start);
  LLVMValueRef some = attention_facts(a, q0, q1, s.from, s.to).some;
  LLVMValueRef first = emit_min_i64(e, s.loop.phi[0], s.from);
  s.loop.next[0] = LLVMBuildSelect(e->builder, some, first, s.loop.phi[0], "");
  s.loop.next[1] = LLVMBuildSelect(e->builder, some, s.to, s.loop.phi[1], "");
  emit_loop_end(e, &s.loop);
  return (Range){s.loop.phi[0], s.loop.phi[1]};
}

LLVMValueRef attention_whole_keys(Attention *a, LLVMValueRef q0, LLVMValueRef q1, LLVMValueRef k0,
                                  LLVMValueRef end) {
  Emit *e = a->e;
  int64_t rows = a->p.tile[FLASH_ROWS];
  if (a->f.mask == NO_VALUE) {
    LLVMValueRef n = LLVMBuildNSWSub(e->builder, end, k0, "");
    n = LLVMBuildUDiv(e->builder, n, emit_i64(e, rows), "");
    return tile_add(e, k0, tile_times(e, n, rows));
  }
  KeySteps s = key_steps(a, k0, end, 1, &k0);
  LLVMValueRef next = tile_add(e, s.from, emit_i64(e, rows));
  LLVMValueRef more = attention_facts(a, q0, q1, s.from, s.to).all;
  more = LLVMBuildAnd(e->builder, more, LLVMBuildICmp(e->builder, LLVMIntEQ, s.to, next, ""), "");
  LLVMValueRef so_far = LLVMBuildICmp(e->builder, LLVMIntEQ, s.loop.phi[0], s.from, "");
  more = LLVMBuildAnd(e->builder, more, so_far, "");
  s.loop.next[0] = LLVMBuildSelect(e->builder, more, next, s.loop.phi[0], "");
  emit_loop_end(e, &s.loop);
  return s.loop.phi[0];
}

LLVMValueRef attention_admitted(Attention *a, const Point *queries, LLVMValueRef key) {
  AttentionHead h = attention_head(a);
  return attention_head_admits(&h, queries, key, a->p.lanes);
}

void attention_fill(Attention *a, const Point *queries, LLVMValueRef k0, LLVMValueRef count,
                    LLVMValueRef first, LLVMValueRef to, int64_t row_floats) {
  Emit *e = a->e;
  int64_t rows = a->p.tile[FLASH_ROWS];
  LLVMValueRef nothing = attention_splat(a, attention_nothing);
  Loop r = emit_loop(e, emit_i64(e, 0), count, 1, 0, NULL);
  LLVMValueRef x = first;
  if (a->f.mask != NO_VALUE) {
    LLVMValueRef in = attention_admitted(a, queries, tile_add(e, k0, r.i));
    x = LLVMBuildSelect(e->builder, in, x, nothing, "");
  }
  attention_store(a, x, to, tile_times(e, r.i, row_floats));
  emit_loop_end(e, &r);
  LLVMValueRef all = tile_add(e, count, emit_i64(e, rows - 1));
  all = LLVMBuildUDiv(e->builder, all, emit_i64(e, rows), "");
  Loop none = emit_loop(e, count, tile_times(e, all, rows), 1, 0, NULL);
  attention_store(a, nothing, to, tile_times(e, none.i, row_floats));
  emit_loop_end(e, &none);
}
