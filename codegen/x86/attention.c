/* Family attention: softmax(scale * q k^T) v without ever holding all scores, and the log-sum-exp
   of each query.

   Scores are kept transposed: a block has keys as rows and queries as lanes, so maxima and sums
   over keys are lane-wise. Per head: keys and values are copied to scratch, then for each block of
   queries, each block of keys and each tile of queries (some vectors) of the block:

     P = 2^(K Q^T - m)                        register tiles, rows = keys, in units of log 2; sums
                                              start at -m, powers are taken before they are stored
     l += sum P
     O^T += V^T P                             register tiles, rows = D

   m is a reference, not the maximum: the first few keys of a query give it. Only where some sum of
   powers is large (or there is no m yet, or a NaN) the block is done again exactly: scores, their
   maxima, m' = max(m, max S), and l and O times 2^(m - m'). Where the mask admits some keys, sums
   start at its choice of -m and NOTHING, whose power is 0, for fewer queries at once, so that less
   is computed for nothing. With a cap, tiles cap sums and then add the start. A bias is part of it.

   At the end y = (O^T / l)^T and lse = (m + log2 l) ln 2; a query without any key gives 0 and -inf.
   Blocks that the mask excludes are skipped. Scratch is f32, padded to whole tiles with zeros.
   --quick: loops over the vectors of queries, which have the code of one. */
#include "attention_forward.h"
#include <math.h>

enum { FIRST_TILES = 2 }; /* register tiles of keys that give the first m */
static const double LOG2_E = 1.4426950408889634, LN_2 = 0.6931471805599453;

/* Keys [k0, end), which are some; exactly: not before it was tried with the present m. */
static void scores_block(Forward *forward, LLVMValueRef k0, LLVMValueRef end, LLVMValueRef exactly,
                         bool whole) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  LLVMValueRef count = LLVMBuildNSWSub(emit->builder, end, k0, "");
  LLVMBasicBlockRef before = LLVMGetInsertBlock(emit->builder);
  Branch try = emit_if(emit, LLVMBuildNot(emit->builder, exactly, ""));
  LLVMValueRef fit = forward_quick(forward, k0, count, whole);
  LLVMBasicBlockRef tried = LLVMGetInsertBlock(emit->builder);
  emit_end_if(emit, try);
  fit = emit_if_value(emit, before, tried, fit);
  Branch quick = emit_if(emit, fit);
  forward_add(forward);
  emit_end_if(emit, quick);
  Branch exact = emit_if(emit, LLVMBuildNot(emit->builder, fit, ""));
  forward_exact(forward, k0, count, whole);
  emit_end_if(emit, exact);
  if (attention->f.kept != NO_VALUE)
    attention_drop(attention, forward->q0, forward->vectors, k0, count, forward->scores, NULL, NULL,
                   attention->p.tile_queries);
  TileShape shape = forward_tile(forward);
  shape.a_row = 1, shape.a_step = attention->p.width, shape.capped = false;
  shape.start = START_SUMS, shape.end = END_SUMS;
  Operands out = {.A = attention_at(attention, forward->values, k0, attention->p.width),
                  .B = forward->scores,
                  .C = forward->out};
  attention_product(attention, shape, shape.vectors, out, emit_i64(emit, attention->p.width),
                    count);
}

/* Whether some query has no m yet. */
static LLVMValueRef unknown(Forward *forward) {
  Attention *attention = &forward->a;
  LLVMValueRef none = NULL, far = attention_splat(attention, -attention_nothing / 2);
  for (int v = 0; v < forward->vectors; v++) {
    LLVMValueRef x = attention_load(attention, forward->minus, forward_lane(forward, v));
    x = LLVMBuildFCmp(attention->e->builder, LLVMRealUGT, x, far, "");
    none = none ? LLVMBuildOr(attention->e->builder, none, x, "") : x;
  }
  return attention_any(attention->e, none);
}

/* Keys [k0, end). Where there is no m yet the first of them give one. */
static void key_range(Forward *forward, LLVMValueRef k0, LLVMValueRef end, bool whole) {
  Emit *emit = forward->a.e;
  LLVMValueRef zero = emit_i64(emit, 0);
  Loop turn = emit_loop(emit, zero, emit_i64(emit, 2), 1, 1, &k0);
  LLVMValueRef from = turn.phi[0], head = LLVMBuildICmp(emit->builder, LLVMIntEQ, turn.i, zero, "");
  LLVMValueRef some = emit_i64(emit, FIRST_TILES * forward->a.p.tile[FLASH_ROWS]);
  LLVMValueRef first = emit_min_i64(emit, tile_add(emit, from, some), end);
  first = LLVMBuildSelect(emit->builder, unknown(forward), first, from, "");
  LLVMValueRef to = LLVMBuildSelect(emit->builder, head, first, end, "");
  Branch any = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSGT, to, from, ""));
  scores_block(forward, from, to, head, whole);
  emit_end_if(emit, any);
  turn.next[0] = to;
  emit_loop_end(emit, &turn);
}

static LLVMValueRef last_query(Forward *f, LLVMValueRef q0, int vectors) {
  LLVMValueRef all = emit_i64(f->a.e, f->a.f.queries);
  return emit_min_i64(f->a.e, tile_add(f->a.e, q0, forward_lane(f, vectors)), all);
}

/* Keys that the mask admits to some queries, or too few for a register tile: a few vectors of
 * queries at a time, from the first to the last key that they need. */
static void mixed_keys(Forward *forward, LLVMValueRef k0, LLVMValueRef end) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  int vectors = attention_mixed_vectors(attention);
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, attention->p.tile_queries),
                        vectors * attention->p.lanes, 0, NULL);
  Forward part = forward_part(forward, loop.i, vectors);
  LLVMValueRef q1 = last_query(forward, part.q0, vectors);
  Branch present = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSLT, part.q0, q1, ""));
  Range seen = attention_seen_keys(attention, part.q0, q1, k0, end);
  key_range(&part, seen.from, seen.to, false);
  emit_end_if(emit, present);
  emit_loop_end(emit, &loop);
}

/* A single tile of queries: keys that it does not see are not copied either. */
static bool copies_seen(const Attention *attention) {
  return !attention->lists.present && attention->f.mask != NO_VALUE &&
         attention->f.queries <= attention->p.tile_queries;
}

/* Those of keys [k0, end) from the first to the last that are admitted, in whole register tiles. */
static Range copy_seen(Forward *forward, LLVMValueRef k0, LLVMValueRef end, LLVMValueRef q1) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  Range seen = attention_seen_keys(attention, forward->q0, q1, k0, end);
  seen.to = LLVMBuildSelect(emit->builder,
                            LLVMBuildICmp(emit->builder, LLVMIntSLT, seen.from, seen.to, ""),
                            seen.to, seen.from, "");
  LLVMValueRef n = LLVMBuildNSWSub(emit->builder, seen.to, seen.from, "");
  int64_t rows = attention->p.tile[FLASH_ROWS];
  n = LLVMBuildUDiv(emit->builder, tile_add(emit, n, emit_i64(emit, rows - 1)),
                    emit_i64(emit, rows), "");
  n = tile_times(emit, n, rows);
  attention_read(attention, attention->f.k, attention->f.key, seen.from, attention->f.keys, n,
                 attention_at(attention, forward->keys, seen.from, attention->p.width), 1);
  attention_read(attention, attention->f.v, attention->f.key, seen.from, attention->f.keys, n,
                 attention_at(attention, forward->values, seen.from, attention->p.width), 1);
  return seen;
}

static void key_block(Forward *forward, LLVMValueRef k0) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  LLVMValueRef q1 = last_query(forward, forward->q0, forward->vectors);
  LLVMValueRef end =
      emit_min_i64(emit, tile_add(emit, k0, emit_i64(emit, attention->p.tile[FLASH_KEY_BLOCK])),
                   emit_i64(emit, attention->f.keys));
  Branch some = emit_if(emit, attention_facts(attention, forward->q0, q1, k0, end).some);
  if (copies_seen(attention)) {
    Range seen = copy_seen(forward, k0, end, q1);
    k0 = seen.from, end = seen.to;
  }
  LLVMValueRef mixed = attention_whole_keys(attention, forward->q0, q1, k0, end);
  key_range(forward, k0, mixed, true);
  if (attention->f.mask != NO_VALUE || attention->f.keys % attention->p.tile[FLASH_ROWS]) {
    Branch rest = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSLT, mixed, end, ""));
    mixed_keys(forward, mixed, end);
    emit_end_if(emit, rest);
  }
  emit_end_if(emit, some);
}

static void start_tile(Forward *forward) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  LLVMValueRef n = emit_i64(emit, attention->p.tile_queries);
  attention_read(attention, attention->f.q, attention->f.query, forward->q0, attention->f.queries,
                 n, forward->rows, attention->f.scale * LOG2_E);
  attention_transpose(attention, forward->rows, attention->p.width, forward->queries,
                      attention->p.tile_queries, attention->p.tile_queries, attention->p.width);
  attention_zero(attention, forward->out,
                 emit_i64(emit, attention->p.width * attention->p.tile_queries));
  for (int v = 0; v < attention->p.tile[FLASH_VECTORS]; v++) {
    attention_store(attention, attention_splat(attention, -attention_nothing), forward->minus,
                    forward_lane(forward, v));
    attention_store(attention, LLVMConstNull(attention->vector), forward->sum,
                    forward_lane(forward, v));
  }
}

static LLVMValueRef log_sum(Forward *forward, LLVMValueRef m, LLVMValueRef l, LLVMValueRef any) {
  Attention *attention = &forward->a;
  LLVMBuilderRef b = attention->e->builder;
  LLVMValueRef one = attention_splat(attention, 1), safe = LLVMBuildSelect(b, any, l, one, "");
  LLVMValueRef lse = LLVMBuildFMul(b, m, attention_splat(attention, LN_2), "");
  lse = LLVMBuildFAdd(b, lse, math_unary(attention->e, OP_log, safe), "");
  return LLVMBuildSelect(b, any, lse, attention_splat(attention, -INFINITY), "");
}

static void finish_vector(Forward *forward, int v, const void *state) {
  (void)state;
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  LLVMValueRef zero = LLVMConstNull(attention->vector), m = forward_reference(forward, v);
  LLVMValueRef l = attention_load(attention, forward->sum, forward_lane(forward, v));
  LLVMValueRef any = LLVMBuildFCmp(emit->builder, LLVMRealUGT, l, zero, "");
  LLVMValueRef inverse = LLVMBuildFDiv(emit->builder, attention_splat(attention, 1), l, "");
  forward_scale(forward, v, LLVMBuildSelect(emit->builder, any, inverse, zero, ""));
  Point p = forward_queries(forward, v);
  expr_put(emit, attention->f.lse, &p, log_sum(forward, m, l, any));
}

static void finish_tile(Forward *forward) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  LLVMValueRef all = emit_i64(emit, attention->p.tile_queries);
  forward_each(forward, attention->p.tile[FLASH_VECTORS], finish_vector, NULL);
  attention_transpose(attention, forward->out, attention->p.tile_queries, forward->rows,
                      attention->p.width, attention->p.width, attention->p.tile_queries);
  attention_write(attention, attention->f.y, attention->f.query, forward->q0, attention->f.queries,
                  all, forward->rows, 1);
}

typedef void TileWork(Forward *f, LLVMValueRef k0);

static void start_work(Forward *forward, LLVMValueRef k0) { (void)k0, start_tile(forward); }

static void finish_work(Forward *forward, LLVMValueRef k0) { (void)k0, finish_tile(forward); }

/* The tile that begins at query t of the block from s0 on. */
static void take_tile(Forward *forward, LLVMValueRef s0, LLVMValueRef t) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  forward->q0 = tile_add(emit, s0, t);
  forward->queries = attention_at(attention, forward->all_queries, t, attention->p.width);
  forward->out = attention_at(attention, forward->all_out, t, attention->p.width);
  forward->minus = tile_elements(emit, attention->f32, forward->all_state, t);
  forward->sum = tile_elements(emit, attention->f32, forward->minus,
                               emit_i64(emit, attention->p.tile[FLASH_QUERY_BLOCK]));
  forward->scores = forward->all_scores, forward->vectors = (int)attention->p.tile[FLASH_VECTORS];
}

/* All tiles of the block that begins at query s0 and has queries left. */
static void each_tile(Forward *forward, LLVMValueRef s0, LLVMValueRef k0, TileWork *work) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  int64_t n = attention->p.tile_queries, count = attention->p.tile[FLASH_QUERY_BLOCK];
  LLVMValueRef left = LLVMBuildNSWSub(emit->builder, emit_i64(emit, attention->f.queries), s0, "");
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_min_i64(emit, emit_i64(emit, count), left), n,
                        0, NULL);
  take_tile(forward, s0, loop.i);
  work(forward, k0);
  emit_loop_end(emit, &loop);
}

/* A tile's keys of a rectangle. */
static void listed_keys(Forward *forward, const AttentionRect *rect) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  Forward plain = *forward;
  plain.a.f.mask = attention->lists.rest;
  bool data = attention->lists.rest != NO_VALUE;
  if (!data || attention->lists.by_key) {
    Branch whole = emit_if(emit, attention_rect_is(attention, rect, RUN_WHOLE));
    key_range(forward, rect->keys.from, rect->keys.to, true);
    emit_end_if(emit, whole);
  }
  Branch rest = emit_if(emit, attention_rect_is(attention, rect, data ? RUN_DATA : RUN_REST));
  if (data) mixed_keys(&plain, rect->keys.from, rect->keys.to);
  else key_range(&plain, rect->keys.from, rect->keys.to, false);
  emit_end_if(emit, rest);
  Branch mixed = emit_if(emit, attention_rect_is(attention, rect, RUN_MIXED));
  mixed_keys(forward, rect->keys.from, rect->keys.to);
  emit_end_if(emit, mixed);
}

/* The listed keys of the block of queries. */
static void listed_keys_of_block(Forward *forward, LLVMValueRef s0) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  AttentionRect rect = attention_rects(attention, s0);
  attention_ask_data(attention, &rect);
  Loop loop =
      emit_loop(emit, rect.queries.from, rect.queries.to, attention->p.tile_queries, 0, NULL);
  take_tile(forward, s0, loop.i);
  listed_keys(forward, &rect);
  emit_loop_end(emit, &loop);
  emit_loop_end(emit, &rect.loop);
}

/* While a block is worked on: its results, and the queries of the next one. */
static void ask_for_rows(Forward *forward, LLVMValueRef s0) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  Prefetch *list = &attention->prefetch[PREFETCH_BLOCK];
  int64_t block = attention->p.tile[FLASH_QUERY_BLOCK], last = attention->f.queries - block;
  LLVMValueRef rows = LLVMBuildNSWSub(emit->builder, emit_i64(emit, attention->f.queries), s0, "");
  LLVMValueRef next = tile_add(emit, s0, emit_i64(emit, block));
  next = emit_min_i64(emit, next, emit_i64(emit, last > 0 ? last : 0));
  Point head = attention_point(attention);
  attention_prefetch_start(attention, list, emit_min_i64(emit, emit_i64(emit, block), rows));
  attention_prefetch_add(attention, list, attention->f.q, attention->f.query, &head, next, false);
  attention_prefetch_add(attention, list, attention->f.y, attention->f.query, &head, s0, true);
}

/* While a head is worked on: keys and values of the next one. */
static void ask_for_keys(Forward *forward, LLVMValueRef h) {
  Attention next = forward->a;
  Emit *emit = next.e;
  LLVMValueRef groups = emit_i64(emit, next.f.group.count);
  int64_t last = next.f.shared.count * next.f.group.count - 1;
  LLVMValueRef n = emit_min_i64(emit, tile_add(emit, h, emit_i64(emit, 1)), emit_i64(emit, last));
  next.shared = LLVMBuildUDiv(emit->builder, n, groups, "");
  next.group = LLVMBuildURem(emit->builder, n, groups, "");
  attention_prefetch_keys(&forward->a, &next);
}

/* Keys are the outer loop: a block of them is near for all tiles. */
static void all_keys(Forward *forward, LLVMValueRef s0) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, attention->f.keys),
                        attention->p.tile[FLASH_KEY_BLOCK], 0, NULL);
  each_tile(forward, s0, loop.i, key_block);
  emit_loop_end(emit, &loop);
}

static void query_block(Forward *forward, LLVMValueRef s0) {
  ask_for_rows(forward, s0);
  each_tile(forward, s0, NULL, start_work);
  if (forward->a.lists.present) listed_keys_of_block(forward, s0);
  else all_keys(forward, s0);
  each_tile(forward, s0, NULL, finish_work);
}

static void head(Forward *forward, LLVMValueRef h, Range blocks) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  LLVMValueRef groups = emit_i64(emit, attention->f.group.count), zero = emit_i64(emit, 0),
               all = emit_i64(emit, attention->p.keys);
  attention->shared = LLVMBuildUDiv(emit->builder, h, groups, ""),
  attention->group = LLVMBuildURem(emit->builder, h, groups, "");
  if (!copies_seen(attention)) {
    attention_read(attention, attention->f.k, attention->f.key, zero, attention->f.keys, all,
                   forward->keys, 1);
    attention_read(attention, attention->f.v, attention->f.key, zero, attention->f.keys, all,
                   forward->values, 1);
    if (attention->p.tile[FLASH_PARTS] == 1) ask_for_keys(forward, h);
  }
  Loop loop = emit_loop(emit, blocks.from, blocks.to, 1, 0, NULL);
  query_block(forward, tile_times(emit, loop.i, attention->p.tile[FLASH_QUERY_BLOCK]));
  emit_loop_end(emit, &loop);
}

static void give_scratch(Forward *forward) {
  Attention *attention = &forward->a;
  const FlashPlan *plan = &attention->p;
  attention->next_scratch = attention->e->scratch;
  forward->keys = attention_scratch(attention, plan->keys * plan->width),
  forward->values = attention_scratch(attention, plan->keys * plan->width);
  int64_t block = plan->tile[FLASH_QUERY_BLOCK];
  forward->rows = attention_scratch(attention, plan->width * plan->tile_queries);
  forward->all_scores =
      attention_scratch(attention, plan->tile[FLASH_KEY_BLOCK] * plan->tile_queries);
  forward->all_queries = attention_scratch(attention, plan->width * block);
  forward->all_out = attention_scratch(attention, plan->width * block);
  forward->all_state = attention_scratch(attention, 2 * block);
  forward->grown = attention_scratch(attention, plan->tile_queries);
  forward->added = attention_scratch(attention, plan->tile_queries);
}

/* Chunks of lists have units, others equal parts of the heads and of a head's blocks. */
static void listed_chunk(Forward *forward) {
  Attention *attention = &forward->a;
  Range units = attention_chunk(attention, 0), heads = attention_chunk_heads(attention, 0, units);
  Loop loop = emit_loop(attention->e, heads.from, heads.to, 1, 0, NULL);
  head(forward, loop.i, attention_chunk_units(attention, 0, units, loop.i));
  emit_loop_end(attention->e, &loop);
}

static void plain_chunk(Forward *forward) {
  Attention *attention = &forward->a;
  Emit *emit = attention->e;
  LLVMValueRef parts = emit_i64(emit, attention->p.tile[FLASH_PARTS]);
  Range heads = tile_range(emit, LLVMBuildUDiv(emit->builder, emit->chunk, parts, ""),
                           attention->f.shared.count * attention->f.group.count,
                           attention->p.tile[FLASH_HEADS]);
  Range blocks = tile_range(emit, LLVMBuildURem(emit->builder, emit->chunk, parts, ""),
                            attention->p.query_blocks, attention->p.tile[FLASH_PARTS]);
  Loop loop = emit_loop(emit, heads.from, heads.to, 1, 0, NULL);
  head(forward, loop.i, blocks);
  emit_loop_end(emit, &loop);
}

void attention_emit(Emit *emit) {
  Forward forward = {.a = attention_new(emit)};
  emit_begin_phase(emit, 0);
  give_scratch(&forward);
  if (forward.a.lists.present) listed_chunk(&forward);
  else plain_chunk(&forward);
  emit_end_phase(emit);
}
