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

   At the end y = (O^T / l)^T and lse = (m + log2 l) ln 2; a query without any key gives 0 and minus
   infinity. Blocks that the mask excludes are skipped. Everything in scratch is f32, padded to
   whole tiles with zeros. */
#include "attention.h"
#include <math.h>

enum { FIRST_TILES = 2 }; /* register tiles of keys that give the first m */
static const double LOG2_E = 1.4426950408889634, LN_2 = 0.6931471805599453;
static const double FIT = 65536; /* sums of powers that need no larger m */

Attention attention_new(Emit *e) {
  Attention a = {.e = e, .f = flash_of(e->k)};
  const Attr *tile = attr_get(&e->k->attrs, ATTR_tile);
  if (!tile || tile->i != FLASH_COUNT)
    bug("kernel %s has no tile of %d numbers", e->k->name, FLASH_COUNT);
  must(flash_fits(e->m, &a.f, tile->list), "kernel %s: a cut that does not fit", e->k->name);
  a.p = flash_plan(&a.f, e->lanes, tile->list);
  a.f32 = emit_type(e, ELEM_f32), a.vector = emit_vector(e, ELEM_f32, e->lanes),
  a.i64 = emit_type(e, ELEM_i64);
  a.ptr = LLVMPointerTypeInContext(e->context, 0);
  a.tiles = ARENA_NEW(e->arena, TileCode *);
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
  Emit *e = f->a.e;
  LLVMValueRef *base[] = {&x.queries, &x.scores, &x.out, &x.minus, &x.sum, &x.grown, &x.added};
  for (size_t i = 0; i < sizeof base / sizeof *base; i++)
    *base[i] = tile_elements(e, f->a.f32, *base[i], lane);
  x.q0 = tile_add(e, f->q0, lane), x.vectors = vectors;
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
  Attention *a = &f->a;
  Emit *e = a->e;
  Point p = queries_of(f, v);
  LLVMValueRef most = reference(f, v);
  Loop r = emit_loop(e, emit_i64(e, 0), count, 1, 1, &most);
  LLVMValueRef s = attention_load(a, f->scores, score_at(f, r.i, v));
  if (masked) {
    LLVMValueRef in = attention_admitted(a, &p, tile_add(e, k0, r.i));
    s = LLVMBuildSelect(e->builder, in, s, attention_splat(a, attention_nothing), "");
    attention_store(a, s, f->scores, score_at(f, r.i, v));
  }
  r.next[0] = attention_max(e, s, r.phi[0]);
  emit_loop_end(e, &r);
  return r.phi[0];
}

/* Scores to probabilities relative to m; returns their sum. */
static LLVMValueRef block_exp(Forward *f, int v, LLVMValueRef m, LLVMValueRef count, bool masked) {
  Attention *a = &f->a;
  Emit *e = a->e;
  LLVMValueRef zero = LLVMConstNull(a->vector), nothing = attention_splat(a, attention_nothing / 2);
  Loop r = emit_loop(e, emit_i64(e, 0), count, 1, 1, &zero);
  LLVMValueRef at = score_at(f, r.i, v), s = attention_load(a, f->scores, at);
  LLVMValueRef p = math_exp2(e, LLVMBuildFSub(e->builder, s, m, ""));
  if (masked) { /* m, too, may be NOTHING */
    LLVMValueRef in = LLVMBuildFCmp(e->builder, LLVMRealUGT, s, nothing, "");
    p = LLVMBuildSelect(e->builder, in, p, zero, "");
  }
  attention_store(a, p, f->scores, at);
  r.next[0] = LLVMBuildFAdd(e->builder, r.phi[0], p, "");
  emit_loop_end(e, &r);
  return r.phi[0];
}

static void scale_out(Forward *f, int v, LLVMValueRef factor) {
  Attention *a = &f->a;
  Emit *e = a->e;
  Loop d = emit_loop(e, emit_i64(e, 0), emit_i64(e, a->p.width), 1, 0, NULL);
  LLVMValueRef x = attention_load(a, f->out, score_at(f, d.i, v));
  attention_store(a, LLVMBuildFMul(e->builder, x, factor, ""), f->out, score_at(f, d.i, v));
  emit_loop_end(e, &d);
}

static LLVMValueRef any_lane(Emit *e, LLVMValueRef lanes) {
  return emit_intrinsic(e, "llvm.vector.reduce.or", LLVMTypeOf(lanes), 1, &lanes);
}

/* Scores of keys k0 .. as they are to probabilities, to a new m. whole: the tiles have found the
 * maxima. */
static void softmax_block(Forward *f, LLVMValueRef k0, LLVMValueRef count, bool whole) {
  Attention *a = &f->a;
  Emit *e = a->e;
  bool masked = !whole && a->f.mask != NO_VALUE;
  for (int v = 0; v < f->vectors; v++) {
    LLVMValueRef at = lane_at(f, v), old = reference(f, v);
    LLVMValueRef m = whole ? attention_load(a, f->grown, at) : block_max(f, v, k0, count, masked);
    LLVMValueRef factor = math_exp2(e, LLVMBuildFSub(e->builder, old, m, ""));
    LLVMValueRef sum = LLVMBuildFMul(e->builder, attention_load(a, f->sum, at), factor, "");
    sum = LLVMBuildFAdd(e->builder, sum, block_exp(f, v, m, count, masked), "");
    attention_store(a, LLVMBuildFNeg(e->builder, m, ""), f->minus, at);
    attention_store(a, sum, f->sum, at);
    LLVMValueRef grown = LLVMBuildFCmp(e->builder, LLVMRealUNE, m, old, "");
    Branch grows = emit_if(e, any_lane(e, grown));
    scale_out(f, v, factor);
    emit_end_if(e, grows);
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
  Attention *a = &f->a;
  x.A = attention_at(a, f->keys, k0, a->p.width), x.B = f->queries, x.C = f->scores;
  attention_product(a, s, s.vectors, x, count, emit_i64(a->e, a->f.width));
}

static void exact_block(Forward *f, LLVMValueRef k0, LLVMValueRef count, bool whole) {
  Attention *a = &f->a;
  TileShape s = score_tile(f);
  Operands x = {.most = f->grown};
  if (whole) s.end = END_MOST;
  for (int v = 0; v < f->vectors && whole; v++)
    attention_store(a, reference(f, v), f->grown, lane_at(f, v));
  product(f, s, x, k0, count);
  softmax_block(f, k0, count, whole);
}

/* ---- with the m that is there ---- */

/* Scores to probabilities in the registers of the tile; whether all their sums are fit to be used.
 */
static LLVMValueRef quick_block(Forward *f, LLVMValueRef k0, LLVMValueRef count, bool whole) {
  Attention *a = &f->a;
  Emit *e = a->e;
  TileShape s = score_tile(f);
  Operands x = {.row = f->minus, .added = f->added};
  s.start = whole ? START_ROW : START_SUMS, s.end = END_ADDED_POWERS;
  for (int v = 0; v < f->vectors; v++) {
    attention_store(a, LLVMConstNull(a->vector), f->added, lane_at(f, v));
    if (whole) continue;
    Point p = queries_of(f, v);
    LLVMValueRef first = attention_load(a, f->minus, lane_at(f, v));
    attention_fill(a, &p, k0, count, first, tile_elements(e, a->f32, f->scores, lane_at(f, v)),
                   a->p.tile_queries);
  }
  product(f, s, x, k0, count);
  LLVMValueRef large = NULL;
  for (int v = 0; v < f->vectors; v++) {
    LLVMValueRef added = attention_load(a, f->added, lane_at(f, v));
    LLVMValueRef l = LLVMBuildFCmp(e->builder, LLVMRealUGE, added, attention_splat(a, FIT), "");
    large = large ? LLVMBuildOr(e->builder, large, l, "") : l;
  }
  return LLVMBuildNot(e->builder, any_lane(e, large), "");
}

static void add_sums(Forward *f) {
  Attention *a = &f->a;
  for (int v = 0; v < f->vectors; v++) {
    LLVMValueRef at = lane_at(f, v), added = attention_load(a, f->added, at);
    LLVMValueRef sum = attention_load(a, f->sum, at);
    attention_store(a, LLVMBuildFAdd(a->e->builder, sum, added, ""), f->sum, at);
  }
}

/* ---- blocks ---- */

/* Keys [k0, end), which are some; exactly: not before it was tried with the present m. */
static void scores_block(Forward *f, LLVMValueRef k0, LLVMValueRef end, LLVMValueRef exactly,
                         bool whole) {
  Attention *a = &f->a;
  Emit *e = a->e;
  LLVMValueRef count = LLVMBuildNSWSub(e->builder, end, k0, "");
  LLVMBasicBlockRef before = LLVMGetInsertBlock(e->builder);
  Branch try = emit_if(e, LLVMBuildNot(e->builder, exactly, ""));
  LLVMValueRef fit = quick_block(f, k0, count, whole);
  LLVMBasicBlockRef tried = LLVMGetInsertBlock(e->builder);
  emit_end_if(e, try);
  fit = emit_if_value(e, before, tried, fit);
  Branch quick = emit_if(e, fit);
  add_sums(f);
  emit_end_if(e, quick);
  Branch exact = emit_if(e, LLVMBuildNot(e->builder, fit, ""));
  exact_block(f, k0, count, whole);
  emit_end_if(e, exact);
  TileShape o = {(int)a->p.tile[FLASH_ROWS], f->vectors,        1,          a->p.width,
                 a->p.tile_queries,          a->p.tile_queries, START_SUMS, END_SUMS};
  Operands out = {.A = attention_at(a, f->values, k0, a->p.width), .B = f->scores, .C = f->out};
  attention_product(a, o, o.vectors, out, emit_i64(e, a->p.width), count);
}

/* Whether some query has no m yet. */
static LLVMValueRef unknown(Forward *f) {
  Attention *a = &f->a;
  LLVMValueRef none = NULL, far = attention_splat(a, -attention_nothing / 2);
  for (int v = 0; v < f->vectors; v++) {
    LLVMValueRef x = attention_load(a, f->minus, lane_at(f, v));
    x = LLVMBuildFCmp(a->e->builder, LLVMRealUGT, x, far, "");
    none = none ? LLVMBuildOr(a->e->builder, none, x, "") : x;
  }
  return any_lane(a->e, none);
}

/* Keys [k0, end). Where there is no m yet the first of them give one. */
static void key_range(Forward *f, LLVMValueRef k0, LLVMValueRef end, bool whole) {
  Emit *e = f->a.e;
  LLVMValueRef zero = emit_i64(e, 0);
  Loop turn = emit_loop(e, zero, emit_i64(e, 2), 1, 1, &k0);
  LLVMValueRef from = turn.phi[0], head = LLVMBuildICmp(e->builder, LLVMIntEQ, turn.i, zero, "");
  LLVMValueRef some = emit_i64(e, FIRST_TILES * f->a.p.tile[FLASH_ROWS]);
  LLVMValueRef first = emit_min_i64(e, tile_add(e, from, some), end);
  first = LLVMBuildSelect(e->builder, unknown(f), first, from, "");
  LLVMValueRef to = LLVMBuildSelect(e->builder, head, first, end, "");
  Branch any = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntSGT, to, from, ""));
  scores_block(f, from, to, head, whole);
  emit_end_if(e, any);
  turn.next[0] = to;
  emit_loop_end(e, &turn);
}

static LLVMValueRef last_query(Forward *f, LLVMValueRef q0, int vectors) {
  Emit *e = f->a.e;
  return emit_min_i64(e, tile_add(e, q0, emit_i64(e, vectors * f->a.p.lanes)),
                      emit_i64(e, f->a.f.queries));
}

/* Keys that the mask admits to some queries, or too few for a register tile: a few vectors of
 * queries at a time, from the first to the last key that they need. */
static void mixed_keys(Forward *f, LLVMValueRef k0, LLVMValueRef end) {
  Attention *a = &f->a;
  Emit *e = a->e;
  int vectors = attention_mixed_vectors(a);
  Loop t =
      emit_loop(e, emit_i64(e, 0), emit_i64(e, a->p.tile_queries), vectors * a->p.lanes, 0, NULL);
  Forward part = part_of(f, t.i, vectors);
  LLVMValueRef q1 = last_query(f, part.q0, vectors);
  Branch there = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntSLT, part.q0, q1, ""));
  Range seen = attention_seen_keys(a, part.q0, q1, k0, end);
  key_range(&part, seen.from, seen.to, false);
  emit_end_if(e, there);
  emit_loop_end(e, &t);
}

/* A single tile of queries: keys that it does not see are not copied either. */
static bool copies_seen(const Attention *a) {
  return !a->lists.starts && a->f.mask != NO_VALUE && a->f.queries <= a->p.tile_queries;
}

/* Of keys [k0, end) those from the first to the last that are seen, in whole register tiles. */
static Range copy_seen(Forward *f, LLVMValueRef k0, LLVMValueRef end, LLVMValueRef q1) {
  Attention *a = &f->a;
  Emit *e = a->e;
  Range seen = attention_seen_keys(a, f->q0, q1, k0, end);
  seen.to =
      LLVMBuildSelect(e->builder, LLVMBuildICmp(e->builder, LLVMIntSLT, seen.from, seen.to, ""),
                      seen.to, seen.from, "");
  LLVMValueRef n = LLVMBuildNSWSub(e->builder, seen.to, seen.from, "");
  int64_t rows = a->p.tile[FLASH_ROWS];
  n = LLVMBuildUDiv(e->builder, tile_add(e, n, emit_i64(e, rows - 1)), emit_i64(e, rows), "");
  n = tile_times(e, n, rows);
  attention_read(a, a->f.k, a->f.key, seen.from, a->f.keys, n,
                 attention_at(a, f->keys, seen.from, a->p.width), 1);
  attention_read(a, a->f.v, a->f.key, seen.from, a->f.keys, n,
                 attention_at(a, f->values, seen.from, a->p.width), 1);
  return seen;
}

static void key_block(Forward *f, LLVMValueRef k0) {
  Attention *a = &f->a;
  Emit *e = a->e;
  LLVMValueRef q1 = last_query(f, f->q0, f->vectors);
  LLVMValueRef end = emit_min_i64(e, tile_add(e, k0, emit_i64(e, a->p.tile[FLASH_KEY_BLOCK])),
                                  emit_i64(e, a->f.keys));
  Branch some = emit_if(e, attention_facts(a, f->q0, q1, k0, end).some);
  if (copies_seen(a)) {
    Range seen = copy_seen(f, k0, end, q1);
    k0 = seen.from, end = seen.to;
  }
  LLVMValueRef mixed = attention_whole_keys(a, f->q0, q1, k0, end);
  key_range(f, k0, mixed, true);
  if (a->f.mask != NO_VALUE || a->f.keys % a->p.tile[FLASH_ROWS]) {
    Branch rest = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntSLT, mixed, end, ""));
    mixed_keys(f, mixed, end);
    emit_end_if(e, rest);
  }
  emit_end_if(e, some);
}

static void start_tile(Forward *f) {
  Attention *a = &f->a;
  Emit *e = a->e;
  LLVMValueRef n = emit_i64(e, a->p.tile_queries);
  attention_read(a, a->f.q, a->f.query, f->q0, a->f.queries, n, f->rows, a->f.scale * LOG2_E);
  attention_transpose(a, f->rows, a->p.width, f->queries, a->p.tile_queries, a->p.tile_queries,
                      a->p.width);
  attention_zero(a, f->out, emit_i64(e, a->p.width * a->p.tile_queries));
  for (int v = 0; v < a->p.tile[FLASH_VECTORS]; v++) {
    attention_store(a, attention_splat(a, -attention_nothing), f->minus, lane_at(f, v));
    attention_store(a, LLVMConstNull(a->vector), f->sum, lane_at(f, v));
  }
}

static LLVMValueRef log_sum(Forward *f, LLVMValueRef m, LLVMValueRef l, LLVMValueRef any) {
  Attention *a = &f->a;
  LLVMBuilderRef b = a->e->builder;
  LLVMValueRef one = attention_splat(a, 1), safe = LLVMBuildSelect(b, any, l, one, "");
  LLVMValueRef lse = LLVMBuildFMul(b, m, attention_splat(a, LN_2), "");
  lse = LLVMBuildFAdd(b, lse, math_unary(a->e, OP_log, safe), "");
  return LLVMBuildSelect(b, any, lse, attention_splat(a, -INFINITY), "");
}

static void finish_tile(Forward *f) {
  Attention *a = &f->a;
  Emit *e = a->e;
  LLVMValueRef zero = LLVMConstNull(a->vector);
  for (int v = 0; v < a->p.tile[FLASH_VECTORS]; v++) {
    LLVMValueRef l = attention_load(a, f->sum, lane_at(f, v)), m = reference(f, v);
    LLVMValueRef any = LLVMBuildFCmp(e->builder, LLVMRealUGT, l, zero, "");
    LLVMValueRef inverse = LLVMBuildFDiv(e->builder, attention_splat(a, 1), l, "");
    scale_out(f, v, LLVMBuildSelect(e->builder, any, inverse, zero, ""));
    Point p = attention_queries(a, tile_add(e, f->q0, lane_at(f, v)));
    expr_put(e, a->f.lse, &p, log_sum(f, m, l, any));
  }
  attention_transpose(a, f->out, a->p.tile_queries, f->rows, a->p.width, a->p.width,
                      a->p.tile_queries);
  attention_write(a, a->f.y, a->f.query, f->q0, a->f.queries, emit_i64(e, a->p.tile_queries),
                  f->rows, 1);
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
  Attention *a = &f->a;
  Emit *e = a->e;
  f->q0 = tile_add(e, s0, t);
  f->queries = attention_at(a, f->all_queries, t, a->p.width);
  f->out = attention_at(a, f->all_out, t, a->p.width);
  f->minus = tile_elements(e, a->f32, f->all_state, t);
  f->sum = tile_elements(e, a->f32, f->minus, emit_i64(e, a->p.tile[FLASH_QUERY_BLOCK]));
  f->scores = f->all_scores, f->vectors = (int)a->p.tile[FLASH_VECTORS];
}

/* All tiles of the block that begins at query s0 and has queries left. */
static void each_tile(Forward *f, LLVMValueRef s0, LLVMValueRef k0, TileWork *work) {
  Attention *a = &f->a;
  Emit *e = a->e;
  int64_t n = a->p.tile_queries, count = a->p.tile[FLASH_QUERY_BLOCK];
  LLVMValueRef left = LLVMBuildNSWSub(e->builder, emit_i64(e, a->f.queries), s0, "");
  Loop t = emit_loop(e, emit_i64(e, 0), emit_min_i64(e, emit_i64(e, count), left), n, 0, NULL);
  take_tile(f, s0, t.i);
  work(f, k0);
  emit_loop_end(e, &t);
}

/* A tile's keys of a rectangle. */
static void listed_keys(Forward *f, const AttentionRect *r) {
  Attention *a = &f->a;
  Emit *e = a->e;
  Forward plain = *f;
  plain.a.f.mask = a->lists.rest;
  bool data = a->lists.rest != NO_VALUE;
  if (!data || a->lists.by_key) {
    Branch whole = emit_if(e, attention_rect_is(a, r, RUN_WHOLE));
    key_range(f, r->keys.from, r->keys.to, true);
    emit_end_if(e, whole);
  }
  Branch rest = emit_if(e, attention_rect_is(a, r, data ? RUN_DATA : RUN_REST));
  if (data) mixed_keys(&plain, r->keys.from, r->keys.to);
  else key_range(&plain, r->keys.from, r->keys.to, false);
  emit_end_if(e, rest);
  Branch mixed = emit_if(e, attention_rect_is(a, r, RUN_MIXED));
  mixed_keys(f, r->keys.from, r->keys.to);
  emit_end_if(e, mixed);
}

/* What is listed of a block of keys. */
static void listed_block(Forward *f, LLVMValueRef s0, LLVMValueRef k0) {
  Attention *a = &f->a;
  Emit *e = a->e;
  AttentionRect r = attention_rects(a, s0, k0);
  Loop t = emit_loop(e, r.queries.from, r.queries.to, a->p.tile_queries, 0, NULL);
  take_tile(f, s0, t.i);
  listed_keys(f, &r);
  emit_loop_end(e, &t);
  emit_loop_end(e, &r.loop);
}

/* While a block is worked on: its results, and the queries of the next one. */
static void ask_for_rows(Forward *f, LLVMValueRef s0) {
  Attention *a = &f->a;
  Emit *e = a->e;
  Prefetch *list = &a->prefetch[PREFETCH_BLOCK];
  int64_t block = a->p.tile[FLASH_QUERY_BLOCK], last = a->f.queries - block;
  LLVMValueRef rows = LLVMBuildNSWSub(e->builder, emit_i64(e, a->f.queries), s0, "");
  LLVMValueRef next = tile_add(e, s0, emit_i64(e, block));
  next = emit_min_i64(e, next, emit_i64(e, last > 0 ? last : 0));
  Point head = attention_point(a);
  attention_prefetch_start(a, list, emit_min_i64(e, emit_i64(e, block), rows));
  attention_prefetch_add(a, list, a->f.q, a->f.query, &head, next, false);
  attention_prefetch_add(a, list, a->f.y, a->f.query, &head, s0, true);
}

/* While a head is worked on: keys and values of the next one. */
static void ask_for_keys(Forward *f, LLVMValueRef h) {
  Attention next = f->a;
  Emit *e = next.e;
  Prefetch *list = &f->a.prefetch[PREFETCH_HEAD];
  LLVMValueRef groups = emit_i64(e, next.f.group.count);
  int64_t last = next.f.shared.count * next.f.group.count - 1;
  LLVMValueRef n = emit_min_i64(e, tile_add(e, h, emit_i64(e, 1)), emit_i64(e, last));
  next.shared = LLVMBuildUDiv(e->builder, n, groups, "");
  next.group = LLVMBuildURem(e->builder, n, groups, "");
  Point head = attention_point(&next);
  attention_prefetch_start(&f->a, list, emit_i64(e, next.f.keys));
  attention_prefetch_add(&f->a, list, next.f.k, next.f.key, &head, emit_i64(e, 0), false);
  attention_prefetch_add(&f->a, list, next.f.v, next.f.key, &head, emit_i64(e, 0), false);
}

/* Keys are the outer loop: a block of them is near for all tiles. */
static void query_block(Forward *f, LLVMValueRef s0) {
  Attention *a = &f->a;
  Emit *e = a->e;
  ask_for_rows(f, s0);
  each_tile(f, s0, NULL, start_work);
  Loop k =
      emit_loop(e, emit_i64(e, 0), emit_i64(e, a->f.keys), a->p.tile[FLASH_KEY_BLOCK], 0, NULL);
  if (a->lists.starts) listed_block(f, s0, k.i);
  else each_tile(f, s0, k.i, key_block);
  emit_loop_end(e, &k);
  each_tile(f, s0, NULL, finish_work);
}

static void head(Forward *f, LLVMValueRef h, Range blocks) {
  Attention *a = &f->a;
  Emit *e = a->e;
  LLVMValueRef groups = emit_i64(e, a->f.group.count), zero = emit_i64(e, 0),
               all = emit_i64(e, a->p.keys);
  a->shared = LLVMBuildUDiv(e->builder, h, groups, ""),
  a->group = LLVMBuildURem(e->builder, h, groups, "");
  if (!copies_seen(a)) {
    attention_read(a, a->f.k, a->f.key, zero, a->f.keys, all, f->keys, 1);
    attention_read(a, a->f.v, a->f.key, zero, a->f.keys, all, f->values, 1);
    if (a->p.tile[FLASH_PARTS] == 1) ask_for_keys(f, h);
  }
  Loop t = emit_loop(e, blocks.from, blocks.to, 1, 0, NULL);
  query_block(f, tile_times(e, t.i, a->p.tile[FLASH_QUERY_BLOCK]));
  emit_loop_end(e, &t);
}

static void give_scratch(Forward *f) {
  Attention *a = &f->a;
  const FlashPlan *p = &a->p;
  a->next_scratch = a->e->scratch;
  f->keys = attention_scratch(a, p->keys * p->width),
  f->values = attention_scratch(a, p->keys * p->width);
  int64_t block = p->tile[FLASH_QUERY_BLOCK];
  f->rows = attention_scratch(a, p->width * p->tile_queries);
  f->all_scores = attention_scratch(a, p->tile[FLASH_KEY_BLOCK] * p->tile_queries);
  f->all_queries = attention_scratch(a, p->width * block);
  f->all_out = attention_scratch(a, p->width * block);
  f->all_state = attention_scratch(a, 2 * block);
  f->grown = attention_scratch(a, p->tile_queries);
  f->added = attention_scratch(a, p->tile_queries);
}

void attention_emit(Emit *e) {
  Forward f = {.a = attention_new(e)};
  Attention *a = &f.a;
  emit_begin_phase(e, 0);
  give_scratch(&f);
  LLVMValueRef parts = emit_i64(e, a->p.tile[FLASH_PARTS]);
  Range heads = tile_range(e, LLVMBuildUDiv(e->builder, e->chunk, parts, ""),
                           a->f.shared.count * a->f.group.count, a->p.tile[FLASH_HEADS]);
  Range blocks =
      attention_part(a, a->lists.query_cuts, LLVMBuildURem(e->builder, e->chunk, parts, ""),
                     a->p.query_blocks, a->p.tile[FLASH_PARTS]);
  Loop h = emit_loop(e, heads.from, heads.to, 1, 0, NULL);
  head(&f, h.i, blocks);
  emit_loop_end(e, &h);
  emit_end_phase(e);
}
