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
   is computed for nothing.

   At the end y = (O^T / l)^T and lse = (m + log2 l) ln 2; a query without any key gives 0 and -inf.
   Blocks that the mask excludes are skipped. Scratch is f32, padded to whole tiles with zeros. */
#include "attention.h"
#include <math.h>

enum { FIRST_TILES = 2 }; /* register tiles of keys that give the first m */
static const double LOG2_E = 1.4426950408889634, LN_2 = 0.6931471805599453;
static const double FIT = 65536; /* sums of powers that need no larger m */

Attention attention_new(Emit *emit) {
  Attention a = {.e = emit, .f = flash_of(emit->k)};
  const Attr *tile = attr_get(&emit->k->attrs, ATTR_tile);
  if (!tile || tile->i != FLASH_COUNT)
    bug("kernel %s has no tile of %d numbers", emit->k->name, FLASH_COUNT);
  must(flash_fits(emit->m, &a.f, tile->list), "kernel %s: a cut that does not fit", emit->k->name);
  a.p = flash_plan(&a.f, emit->lanes, tile->list);
  a.f32 = emit_type(emit, ELEM_f32), a.vector = emit_vector(emit, ELEM_f32, emit->lanes),
  a.i64 = emit_type(emit, ELEM_i64);
  a.ptr = LLVMPointerTypeInContext(emit->context, 0);
  a.tiles = ARENA_NEW(emit->arena, TileCode *);
  attention_make_lists(&a);
  return a;
}

typedef struct Forward {
  Attention a;
  LLVMValueRef keys, values, rows, all_scores;  /* scratch */
  LLVMValueRef all_queries, all_out, all_state; /* of the block's tiles */
  LLVMValueRef q0;                              /* first query of the part being worked on */
  int vectors;                                  /* of it */
  LLVMValueRef queries, scores, out;            /* its columns */
  LLVMValueRef minus, sum;                      /* per query: -m, l */
  LLVMValueRef grown, added; /* of the present block: largest score so far, sum of powers */
} Forward;

static LLVMValueRef lane_at(Forward *f, int v) { return emit_i64(f->a.e, v * f->a.p.lanes); }

/* These queries of a tile alone. */
static Forward part_of(const Forward *f, LLVMValueRef lane, int vectors) {
  Forward x = *f;
  Emit *emit = f->a.e;
  LLVMValueRef *base[] = {&x.queries, &x.scores, &x.out, &x.minus, &x.sum, &x.grown, &x.added};
  for (size_t i = 0; i < sizeof base / sizeof *base; i++)
    *base[i] = tile_elements(emit, f->a.f32, *base[i], lane);
  x.q0 = tile_add(emit, f->q0, lane), x.vectors = vectors;
  return x;
}

static LLVMValueRef score_at(Forward *f, LLVMValueRef key, int v) {
  return tile_add(f->a.e, tile_times(f->a.e, key, f->a.p.tile_queries), lane_at(f, v));
}

static Point queries_of(Forward *f, int v) {
  return attention_queries(&f->a, tile_add(f->a.e, f->q0, lane_at(f, v)));
}

/* ---- a block of scores, exactly ---- */

/* m so far */
static LLVMValueRef reference(Forward *f, int v) {
  return LLVMBuildFNeg(f->a.e->builder, attention_load(&f->a, f->minus, lane_at(f, v)), "");
}

/* The largest of the old maximum and this block's scores; masked scores are replaced by NOTHING
 * where they stand. */
static LLVMValueRef block_max(Forward *f, int v, LLVMValueRef k0, LLVMValueRef count, bool masked) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  Point p = queries_of(f, v);
  LLVMValueRef most = reference(f, v);
  Loop r = emit_loop(emit, emit_i64(emit, 0), count, 1, 1, &most);
  LLVMValueRef s = attention_load(attention, f->scores, score_at(f, r.i, v));
  if (masked) {
    LLVMValueRef in = attention_admitted(attention, &p, tile_add(emit, k0, r.i));
    s = LLVMBuildSelect(emit->builder, in, s, attention_splat(attention, attention_nothing), "");
    attention_store(attention, s, f->scores, score_at(f, r.i, v));
  }
  r.next[0] = attention_max(emit, s, r.phi[0]);
  emit_loop_end(emit, &r);
  return r.phi[0];
}

/* Scores to probabilities relative to m; returns their sum. */
static LLVMValueRef block_exp(Forward *f, int v, LLVMValueRef m, LLVMValueRef count, bool masked) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  LLVMValueRef zero = LLVMConstNull(attention->vector),
               nothing = attention_splat(attention, attention_nothing / 2);
  Loop r = emit_loop(emit, emit_i64(emit, 0), count, 1, 1, &zero);
  LLVMValueRef at = score_at(f, r.i, v), s = attention_load(attention, f->scores, at);
  LLVMValueRef p = math_exp2(emit, LLVMBuildFSub(emit->builder, s, m, ""));
  if (masked) { /* m, too, may be NOTHING */
    LLVMValueRef in = LLVMBuildFCmp(emit->builder, LLVMRealUGT, s, nothing, "");
    p = LLVMBuildSelect(emit->builder, in, p, zero, "");
  }
  attention_store(attention, p, f->scores, at);
  r.next[0] = LLVMBuildFAdd(emit->builder, r.phi[0], p, "");
  emit_loop_end(emit, &r);
  return r.phi[0];
}

static void scale_out(Forward *f, int v, LLVMValueRef factor) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  Loop d = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, attention->p.width), 1, 0, NULL);
  LLVMValueRef x = attention_load(attention, f->out, score_at(f, d.i, v));
  attention_store(attention, LLVMBuildFMul(emit->builder, x, factor, ""), f->out,
                  score_at(f, d.i, v));
  emit_loop_end(emit, &d);
}

static LLVMValueRef any_lane(Emit *emit, LLVMValueRef lanes) {
  return emit_intrinsic(emit, "llvm.vector.reduce.or", LLVMTypeOf(lanes), 1, &lanes);
}

/* Scores of keys k0 .. as they are to probabilities, to a new m. whole: the tiles have found the
 * maxima. */
static void softmax_block(Forward *f, LLVMValueRef k0, LLVMValueRef count, bool whole) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  bool masked = !whole && attention->f.mask != NO_VALUE;
  for (int v = 0; v < f->vectors; v++) {
    LLVMValueRef at = lane_at(f, v), old = reference(f, v);
    LLVMValueRef m =
        whole ? attention_load(attention, f->grown, at) : block_max(f, v, k0, count, masked);
    LLVMValueRef factor = math_exp2(emit, LLVMBuildFSub(emit->builder, old, m, ""));
    LLVMValueRef sum =
        LLVMBuildFMul(emit->builder, attention_load(attention, f->sum, at), factor, "");
    sum = LLVMBuildFAdd(emit->builder, sum, block_exp(f, v, m, count, masked), "");
    attention_store(attention, LLVMBuildFNeg(emit->builder, m, ""), f->minus, at);
    attention_store(attention, sum, f->sum, at);
    LLVMValueRef grown = LLVMBuildFCmp(emit->builder, LLVMRealUNE, m, old, "");
    Branch grows = emit_if(emit, any_lane(emit, grown));
    scale_out(f, v, factor);
    emit_end_if(emit, grows);
  }
}

static TileShape score_tile(Forward *f) {
  const FlashPlan *p = &f->a.p;
  return (TileShape){.rows = (int)p->tile[FLASH_ROWS],
                     .vectors = f->vectors,
                     .a_row = p->width,
                     .a_step = 1,
                     .b_step = p->tile_queries,
                     .c_row = p->tile_queries};
}

static void product(Forward *f, TileShape s, Operands x, LLVMValueRef k0, LLVMValueRef count) {
  Attention *attention = &f->a;
  x.A = attention_at(attention, f->keys, k0, attention->p.width), x.B = f->queries, x.C = f->scores;
  attention_product(attention, s, s.vectors, x, count, emit_i64(attention->e, attention->f.width));
}

static void exact_block(Forward *f, LLVMValueRef k0, LLVMValueRef count, bool whole) {
  Attention *attention = &f->a;
  TileShape s = score_tile(f);
  Operands x = {.most = f->grown};
  if (whole) s.end = END_MOST;
  for (int v = 0; v < f->vectors && whole; v++)
    attention_store(attention, reference(f, v), f->grown, lane_at(f, v));
  product(f, s, x, k0, count);
  softmax_block(f, k0, count, whole);
}

/* ---- with the m that is there ---- */

/* Scores to probabilities in the registers of the tile; whether all their sums are fit to be used.
 */
static LLVMValueRef quick_block(Forward *f, LLVMValueRef k0, LLVMValueRef count, bool whole) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  TileShape s = score_tile(f);
  Operands x = {.row = f->minus, .added = f->added};
  s.start = whole ? START_ROW : START_SUMS, s.end = END_ADDED_POWERS;
  for (int v = 0; v < f->vectors; v++) {
    attention_store(attention, LLVMConstNull(attention->vector), f->added, lane_at(f, v));
    if (whole) continue;
    Point p = queries_of(f, v);
    LLVMValueRef first = attention_load(attention, f->minus, lane_at(f, v));
    attention_fill(attention, &p, k0, count, first,
                   tile_elements(emit, attention->f32, f->scores, lane_at(f, v)),
                   attention->p.tile_queries);
  }
  product(f, s, x, k0, count);
  LLVMValueRef large = NULL;
  for (int v = 0; v < f->vectors; v++) {
    LLVMValueRef added = attention_load(attention, f->added, lane_at(f, v));
    LLVMValueRef l =
        LLVMBuildFCmp(emit->builder, LLVMRealUGE, added, attention_splat(attention, FIT), "");
    large = large ? LLVMBuildOr(emit->builder, large, l, "") : l;
  }
  return LLVMBuildNot(emit->builder, any_lane(emit, large), "");
}

static void add_sums(Forward *f) {
  Attention *attention = &f->a;
  for (int v = 0; v < f->vectors; v++) {
    LLVMValueRef at = lane_at(f, v), added = attention_load(attention, f->added, at);
    LLVMValueRef sum = attention_load(attention, f->sum, at);
    attention_store(attention, LLVMBuildFAdd(attention->e->builder, sum, added, ""), f->sum, at);
  }
}

/* ---- blocks ---- */

/* Keys [k0, end), which are some; exactly: not before it was tried with the present m. */
static void scores_block(Forward *f, LLVMValueRef k0, LLVMValueRef end, LLVMValueRef exactly,
                         bool whole) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  LLVMValueRef count = LLVMBuildNSWSub(emit->builder, end, k0, "");
  LLVMBasicBlockRef before = LLVMGetInsertBlock(emit->builder);
  Branch try = emit_if(emit, LLVMBuildNot(emit->builder, exactly, ""));
  LLVMValueRef fit = quick_block(f, k0, count, whole);
  LLVMBasicBlockRef tried = LLVMGetInsertBlock(emit->builder);
  emit_end_if(emit, try);
  fit = emit_if_value(emit, before, tried, fit);
  Branch quick = emit_if(emit, fit);
  add_sums(f);
  emit_end_if(emit, quick);
  Branch exact = emit_if(emit, LLVMBuildNot(emit->builder, fit, ""));
  exact_block(f, k0, count, whole);
  emit_end_if(emit, exact);
  TileShape o = {(int)attention->p.tile[FLASH_ROWS],
                 f->vectors,
                 1,
                 attention->p.width,
                 attention->p.tile_queries,
                 attention->p.tile_queries,
                 START_SUMS,
                 END_SUMS};
  Operands out = {
      .A = attention_at(attention, f->values, k0, attention->p.width), .B = f->scores, .C = f->out};
  attention_product(attention, o, o.vectors, out, emit_i64(emit, attention->p.width), count);
}

/* Whether some query has no m yet. */
static LLVMValueRef unknown(Forward *f) {
  Attention *attention = &f->a;
  LLVMValueRef none = NULL, far = attention_splat(attention, -attention_nothing / 2);
  for (int v = 0; v < f->vectors; v++) {
    LLVMValueRef x = attention_load(attention, f->minus, lane_at(f, v));
    x = LLVMBuildFCmp(attention->e->builder, LLVMRealUGT, x, far, "");
    none = none ? LLVMBuildOr(attention->e->builder, none, x, "") : x;
  }
  return any_lane(attention->e, none);
}

/* Keys [k0, end). Where there is no m yet the first of them give one. */
static void key_range(Forward *f, LLVMValueRef k0, LLVMValueRef end, bool whole) {
  Emit *emit = f->a.e;
  LLVMValueRef zero = emit_i64(emit, 0);
  Loop turn = emit_loop(emit, zero, emit_i64(emit, 2), 1, 1, &k0);
  LLVMValueRef from = turn.phi[0], head = LLVMBuildICmp(emit->builder, LLVMIntEQ, turn.i, zero, "");
  LLVMValueRef some = emit_i64(emit, FIRST_TILES * f->a.p.tile[FLASH_ROWS]);
  LLVMValueRef first = emit_min_i64(emit, tile_add(emit, from, some), end);
  first = LLVMBuildSelect(emit->builder, unknown(f), first, from, "");
  LLVMValueRef to = LLVMBuildSelect(emit->builder, head, first, end, "");
  Branch any = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSGT, to, from, ""));
  scores_block(f, from, to, head, whole);
  emit_end_if(emit, any);
  turn.next[0] = to;
  emit_loop_end(emit, &turn);
}

static LLVMValueRef last_query(Forward *f, LLVMValueRef q0, int vectors) {
  Emit *emit = f->a.e;
  return emit_min_i64(emit, tile_add(emit, q0, emit_i64(emit, vectors * f->a.p.lanes)),
                      emit_i64(emit, f->a.f.queries));
}

/* Keys that the mask admits to some queries, or too few for a register tile: a few vectors of
 * queries at a time, from the first to the last key that they need. */
static void mixed_keys(Forward *f, LLVMValueRef k0, LLVMValueRef end) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  int vectors = attention_mixed_vectors(attention);
  Loop t = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, attention->p.tile_queries),
                     vectors * attention->p.lanes, 0, NULL);
  Forward part = part_of(f, t.i, vectors);
  LLVMValueRef q1 = last_query(f, part.q0, vectors);
  Branch there = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSLT, part.q0, q1, ""));
  Range seen = attention_seen_keys(attention, part.q0, q1, k0, end);
  key_range(&part, seen.from, seen.to, false);
  emit_end_if(emit, there);
  emit_loop_end(emit, &t);
}

/* A single tile of queries: keys that it does not see are not copied either. */
static bool copies_seen(const Attention *attention) {
  return !attention->lists.there && attention->f.mask != NO_VALUE &&
         attention->f.queries <= attention->p.tile_queries;
}

/* Of keys [k0, end) those from the first to the last that are seen, in whole register tiles. */
static Range copy_seen(Forward *f, LLVMValueRef k0, LLVMValueRef end, LLVMValueRef q1) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  Range seen = attention_seen_keys(attention, f->q0, q1, k0, end);
  seen.to = LLVMBuildSelect(emit->builder,
                            LLVMBuildICmp(emit->builder, LLVMIntSLT, seen.from, seen.to, ""),
                            seen.to, seen.from, "");
  LLVMValueRef n = LLVMBuildNSWSub(emit->builder, seen.to, seen.from, "");
  int64_t rows = attention->p.tile[FLASH_ROWS];
  n = LLVMBuildUDiv(emit->builder, tile_add(emit, n, emit_i64(emit, rows - 1)),
                    emit_i64(emit, rows), "");
  n = tile_times(emit, n, rows);
  attention_read(attention, attention->f.k, attention->f.key, seen.from, attention->f.keys, n,
                 attention_at(attention, f->keys, seen.from, attention->p.width), 1);
  attention_read(attention, attention->f.v, attention->f.key, seen.from, attention->f.keys, n,
                 attention_at(attention, f->values, seen.from, attention->p.width), 1);
  return seen;
}

static void key_block(Forward *f, LLVMValueRef k0) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  LLVMValueRef q1 = last_query(f, f->q0, f->vectors);
  LLVMValueRef end =
      emit_min_i64(emit, tile_add(emit, k0, emit_i64(emit, attention->p.tile[FLASH_KEY_BLOCK])),
                   emit_i64(emit, attention->f.keys));
  Branch some = emit_if(emit, attention_facts(attention, f->q0, q1, k0, end).some);
  if (copies_seen(attention)) {
    Range seen = copy_seen(f, k0, end, q1);
    k0 = seen.from, end = seen.to;
  }
  LLVMValueRef mixed = attention_whole_keys(attention, f->q0, q1, k0, end);
  key_range(f, k0, mixed, true);
  if (attention->f.mask != NO_VALUE || attention->f.keys % attention->p.tile[FLASH_ROWS]) {
    Branch rest = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSLT, mixed, end, ""));
    mixed_keys(f, mixed, end);
    emit_end_if(emit, rest);
  }
  emit_end_if(emit, some);
}

static void start_tile(Forward *f) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  LLVMValueRef n = emit_i64(emit, attention->p.tile_queries);
  attention_read(attention, attention->f.q, attention->f.query, f->q0, attention->f.queries, n,
                 f->rows, attention->f.scale * LOG2_E);
  attention_transpose(attention, f->rows, attention->p.width, f->queries, attention->p.tile_queries,
                      attention->p.tile_queries, attention->p.width);
  attention_zero(attention, f->out, emit_i64(emit, attention->p.width * attention->p.tile_queries));
  for (int v = 0; v < attention->p.tile[FLASH_VECTORS]; v++) {
    attention_store(attention, attention_splat(attention, -attention_nothing), f->minus,
                    lane_at(f, v));
    attention_store(attention, LLVMConstNull(attention->vector), f->sum, lane_at(f, v));
  }
}

static LLVMValueRef log_sum(Forward *f, LLVMValueRef m, LLVMValueRef l, LLVMValueRef any) {
  Attention *attention = &f->a;
  LLVMBuilderRef b = attention->e->builder;
  LLVMValueRef one = attention_splat(attention, 1), safe = LLVMBuildSelect(b, any, l, one, "");
  LLVMValueRef lse = LLVMBuildFMul(b, m, attention_splat(attention, LN_2), "");
  lse = LLVMBuildFAdd(b, lse, math_unary(attention->e, OP_log, safe), "");
  return LLVMBuildSelect(b, any, lse, attention_splat(attention, -INFINITY), "");
}

static void finish_tile(Forward *f) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  LLVMValueRef zero = LLVMConstNull(attention->vector);
  for (int v = 0; v < attention->p.tile[FLASH_VECTORS]; v++) {
    LLVMValueRef l = attention_load(attention, f->sum, lane_at(f, v)), m = reference(f, v);
    LLVMValueRef any = LLVMBuildFCmp(emit->builder, LLVMRealUGT, l, zero, "");
    LLVMValueRef inverse = LLVMBuildFDiv(emit->builder, attention_splat(attention, 1), l, "");
    scale_out(f, v, LLVMBuildSelect(emit->builder, any, inverse, zero, ""));
    Point p = attention_queries(attention, tile_add(emit, f->q0, lane_at(f, v)));
    expr_put(emit, attention->f.lse, &p, log_sum(f, m, l, any));
  }
  attention_transpose(attention, f->out, attention->p.tile_queries, f->rows, attention->p.width,
                      attention->p.width, attention->p.tile_queries);
  attention_write(attention, attention->f.y, attention->f.query, f->q0, attention->f.queries,
                  emit_i64(emit, attention->p.tile_queries), f->rows, 1);
}

typedef void TileWork(Forward *f, LLVMValueRef k0);

static void start_work(Forward *f, LLVMValueRef k0) {
  (void)k0;
  start_tile(f);
}

static void finish_work(Forward *f, LLVMValueRef k0) {
  (void)k0;
  finish_tile(f);
}

/* The tile that begins at query t of the block from s0 on. */
static void take_tile(Forward *f, LLVMValueRef s0, LLVMValueRef t) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  f->q0 = tile_add(emit, s0, t);
  f->queries = attention_at(attention, f->all_queries, t, attention->p.width);
  f->out = attention_at(attention, f->all_out, t, attention->p.width);
  f->minus = tile_elements(emit, attention->f32, f->all_state, t);
  f->sum = tile_elements(emit, attention->f32, f->minus,
                         emit_i64(emit, attention->p.tile[FLASH_QUERY_BLOCK]));
  f->scores = f->all_scores, f->vectors = (int)attention->p.tile[FLASH_VECTORS];
}

/* All tiles of the block that begins at query s0 and has queries left. */
static void each_tile(Forward *f, LLVMValueRef s0, LLVMValueRef k0, TileWork *work) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  int64_t n = attention->p.tile_queries, count = attention->p.tile[FLASH_QUERY_BLOCK];
  LLVMValueRef left = LLVMBuildNSWSub(emit->builder, emit_i64(emit, attention->f.queries), s0, "");
  Loop t = emit_loop(emit, emit_i64(emit, 0), emit_min_i64(emit, emit_i64(emit, count), left), n, 0,
                     NULL);
  take_tile(f, s0, t.i);
  work(f, k0);
  emit_loop_end(emit, &t);
}

/* A tile's keys of a rectangle. */
static void listed_keys(Forward *f, const AttentionRect *r) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  Forward plain = *f;
  plain.a.f.mask = attention->lists.rest;
  bool data = attention->lists.rest != NO_VALUE;
  if (!data || attention->lists.by_key) {
    Branch whole = emit_if(emit, attention_rect_is(attention, r, RUN_WHOLE));
    key_range(f, r->keys.from, r->keys.to, true);
    emit_end_if(emit, whole);
  }
  Branch rest = emit_if(emit, attention_rect_is(attention, r, data ? RUN_DATA : RUN_REST));
  if (data) mixed_keys(&plain, r->keys.from, r->keys.to);
  else key_range(&plain, r->keys.from, r->keys.to, false);
  emit_end_if(emit, rest);
  Branch mixed = emit_if(emit, attention_rect_is(attention, r, RUN_MIXED));
  mixed_keys(f, r->keys.from, r->keys.to);
  emit_end_if(emit, mixed);
}

/* What is listed of the block of queries. */
static void listed_keys_of_block(Forward *f, LLVMValueRef s0) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  AttentionRect r = attention_rects(attention, s0);
  attention_ask_data(attention, &r);
  Loop t = emit_loop(emit, r.queries.from, r.queries.to, attention->p.tile_queries, 0, NULL);
  take_tile(f, s0, t.i);
  listed_keys(f, &r);
  emit_loop_end(emit, &t);
  emit_loop_end(emit, &r.loop);
}

/* While a block is worked on: its results, and the queries of the next one. */
static void ask_for_rows(Forward *f, LLVMValueRef s0) {
  Attention *attention = &f->a;
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
static void ask_for_keys(Forward *f, LLVMValueRef h) {
  Attention next = f->a;
  Emit *emit = next.e;
  Prefetch *list = &f->a.prefetch[PREFETCH_HEAD];
  LLVMValueRef groups = emit_i64(emit, next.f.group.count);
  int64_t last = next.f.shared.count * next.f.group.count - 1;
  LLVMValueRef n = emit_min_i64(emit, tile_add(emit, h, emit_i64(emit, 1)), emit_i64(emit, last));
  next.shared = LLVMBuildUDiv(emit->builder, n, groups, "");
  next.group = LLVMBuildURem(emit->builder, n, groups, "");
  Point head = attention_point(&next);
  attention_prefetch_start(&f->a, list, emit_i64(emit, next.f.keys));
  attention_prefetch_add(&f->a, list, next.f.k, next.f.key, &head, emit_i64(emit, 0), false);
  attention_prefetch_add(&f->a, list, next.f.v, next.f.key, &head, emit_i64(emit, 0), false);
}

/* Keys are the outer loop: a block of them is near for all tiles. */
static void all_keys(Forward *f, LLVMValueRef s0) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  Loop k = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, attention->f.keys),
                     attention->p.tile[FLASH_KEY_BLOCK], 0, NULL);
  each_tile(f, s0, k.i, key_block);
  emit_loop_end(emit, &k);
}

static void query_block(Forward *f, LLVMValueRef s0) {
  ask_for_rows(f, s0);
  each_tile(f, s0, NULL, start_work);
  if (f->a.lists.there) listed_keys_of_block(f, s0);
  else all_keys(f, s0);
  each_tile(f, s0, NULL, finish_work);
}

static void head(Forward *f, LLVMValueRef h, Range blocks) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  LLVMValueRef groups = emit_i64(emit, attention->f.group.count), zero = emit_i64(emit, 0),
               all = emit_i64(emit, attention->p.keys);
  attention->shared = LLVMBuildUDiv(emit->builder, h, groups, ""),
  attention->group = LLVMBuildURem(emit->builder, h, groups, "");
  if (!copies_seen(attention)) {
    attention_read(attention, attention->f.k, attention->f.key, zero, attention->f.keys, all,
                   f->keys, 1);
    attention_read(attention, attention->f.v, attention->f.key, zero, attention->f.keys, all,
                   f->values, 1);
    if (attention->p.tile[FLASH_PARTS] == 1) ask_for_keys(f, h);
  }
  Loop t = emit_loop(emit, blocks.from, blocks.to, 1, 0, NULL);
  query_block(f, tile_times(emit, t.i, attention->p.tile[FLASH_QUERY_BLOCK]));
  emit_loop_end(emit, &t);
}

static void give_scratch(Forward *f) {
  Attention *attention = &f->a;
  const FlashPlan *p = &attention->p;
  attention->next_scratch = attention->e->scratch;
  f->keys = attention_scratch(attention, p->keys * p->width),
  f->values = attention_scratch(attention, p->keys * p->width);
  int64_t block = p->tile[FLASH_QUERY_BLOCK];
  f->rows = attention_scratch(attention, p->width * p->tile_queries);
  f->all_scores = attention_scratch(attention, p->tile[FLASH_KEY_BLOCK] * p->tile_queries);
  f->all_queries = attention_scratch(attention, p->width * block);
  f->all_out = attention_scratch(attention, p->width * block);
  f->all_state = attention_scratch(attention, 2 * block);
  f->grown = attention_scratch(attention, p->tile_queries);
  f->added = attention_scratch(attention, p->tile_queries);
}

/* Chunks of lists have units, others equal parts of the heads and of a head's blocks. */
static void listed_chunk(Forward *f) {
  Attention *attention = &f->a;
  Range units = attention_chunk(attention, 0), heads = attention_chunk_heads(attention, 0, units);
  Loop h = emit_loop(attention->e, heads.from, heads.to, 1, 0, NULL);
  head(f, h.i, attention_chunk_units(attention, 0, units, h.i));
  emit_loop_end(attention->e, &h);
}

static void plain_chunk(Forward *f) {
  Attention *attention = &f->a;
  Emit *emit = attention->e;
  LLVMValueRef parts = emit_i64(emit, attention->p.tile[FLASH_PARTS]);
  Range heads = tile_range(emit, LLVMBuildUDiv(emit->builder, emit->chunk, parts, ""),
                           attention->f.shared.count * attention->f.group.count,
                           attention->p.tile[FLASH_HEADS]);
  Range blocks = tile_range(emit, LLVMBuildURem(emit->builder, emit->chunk, parts, ""),
                            attention->p.query_blocks, attention->p.tile[FLASH_PARTS]);
  Loop h = emit_loop(emit, heads.from, heads.to, 1, 0, NULL);
  head(f, h.i, blocks);
  emit_loop_end(emit, &h);
}

void attention_emit(Emit *emit) {
  Forward f = {.a = attention_new(emit)};
  emit_begin_phase(emit, 0);
  give_scratch(&f);
  if (f.a.lists.there) listed_chunk(&f);
  else plain_chunk(&f);
  emit_end_phase(emit);
}
