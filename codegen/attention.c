/* Family attention: softmax(scale * q k^T) v without ever holding all scores, and the log-sum-exp
   of each query.

   Scores are kept transposed: a block has keys as rows and queries as lanes, so maxima and sums
   over keys are lane-wise. Per head: keys and values are copied to scratch, then for each block of
   queries, each block of keys and each tile of queries (one or two vectors) of the block:

     S = K Q^T (in units of log 2)            register tiles, rows = keys
     m' = max(m, max S); P = 2^(S - m')       lane-wise, the maxima still in registers where no
                                              score is masked; l = l 2^(m - m') + sum P
     O^T = O^T 2^(m - m') + V^T P             register tiles, rows = D

   At the end y = (O^T / l)^T and lse = (m + log2 l) ln 2; a query without any key gives 0 and minus
   infinity. Blocks that the mask excludes are skipped. Everything in scratch is f32, padded to
   whole tiles with zeros. */
#include "attention.h"
#include <math.h>

enum { UNROLL = 4 };
static const double LOG2_E = 1.4426950408889634, LN_2 = 0.6931471805599453, NOTHING = -1e30;

Attention attention_new(Emit *e) {
  Attention a = {.e = e, .f = flash_of(e->k)};
  const Attr *tile = attr_get(&e->k->attrs, ATTR_tile);
  if (!tile || tile->i != FLASH_COUNT)
    bug("kernel %s has no tile of %d numbers", e->k->name, FLASH_COUNT);
  a.p = flash_plan(&a.f, e->lanes, tile->list);
  a.f32 = emit_type(e, ELEM_f32), a.vector = emit_vector(e, ELEM_f32, e->lanes),
  a.i64 = emit_type(e, ELEM_i64);
  a.ptr = LLVMPointerTypeInContext(e->context, 0);
  return a;
}

typedef struct Forward {
  Attention a;
  LLVMValueRef keys, values, rows, scores;      /* scratch */
  LLVMValueRef grown;                           /* maxima with those of the present block */
  LLVMValueRef all_queries, all_out, all_state; /* of the block's tiles */
  LLVMValueRef queries, out, most, sum;         /* of the tile; per query: m, l */
  LLVMValueRef q0;                              /* first query of the tile */
} Forward;

static LLVMValueRef lane_at(Forward *f, int v) { return emit_i64(f->a.e, v * f->a.p.lanes); }

static LLVMValueRef score_at(Forward *f, LLVMValueRef key, int v) {
  return tile_add(f->a.e, tile_times(f->a.e, key, f->a.p.tile_queries), lane_at(f, v));
}

/* The largest of the old maximum and this block's scores; masked scores are replaced by NOTHING
 * where they stand. */
static LLVMValueRef block_max(Forward *f, int v, LLVMValueRef k0, LLVMValueRef count, bool masked) {
  Attention *a = &f->a;
  Emit *e = a->e;
  Point p = attention_queries(a, tile_add(e, f->q0, lane_at(f, v)));
  LLVMValueRef old = attention_load(a, f->most, lane_at(f, v)), first[UNROLL],
               from = emit_i64(e, 0);
  LLVMValueRef most = LLVMBuildAnd(e->builder, count, emit_i64(e, -UNROLL), "");
  for (int i = 0; i < UNROLL; i++) first[i] = old;
  for (int n = UNROLL; n; n = n == 1 ? 0 : 1) {
    Loop r = emit_loop(e, from, n == 1 ? count : most, n, n, first);
    for (int i = 0; i < n; i++) {
      LLVMValueRef row = tile_add(e, r.i, emit_i64(e, i)),
                   s = attention_load(a, f->scores, score_at(f, row, v));
      if (masked) {
        LLVMValueRef in = attention_admitted(a, &p, tile_add(e, k0, row));
        s = LLVMBuildSelect(e->builder, in, s, attention_splat(a, NOTHING), "");
        attention_store(a, s, f->scores, score_at(f, row, v));
      }
      r.next[i] = attention_max(e, s, r.phi[i]);
    }
    emit_loop_end(e, &r);
    first[0] = r.phi[0], from = most;
    for (int i = 1; i < n; i++) first[0] = attention_max(e, first[0], r.phi[i]);
  }
  return first[0];
}

/* Scores to probabilities relative to m; returns their sum. */
static LLVMValueRef block_exp(Forward *f, int v, LLVMValueRef m, LLVMValueRef count, bool masked) {
  Attention *a = &f->a;
  Emit *e = a->e;
  LLVMValueRef zero = LLVMConstNull(a->vector), first[UNROLL], from = emit_i64(e, 0);
  LLVMValueRef most = LLVMBuildAnd(e->builder, count, emit_i64(e, -UNROLL), "");
  for (int i = 0; i < UNROLL; i++) first[i] = zero;
  for (int n = UNROLL; n; n = n == 1 ? 0 : 1) {
    Loop r = emit_loop(e, from, n == 1 ? count : most, n, n, first);
    for (int i = 0; i < n; i++) {
      LLVMValueRef at = score_at(f, tile_add(e, r.i, emit_i64(e, i)), v),
                   s = attention_load(a, f->scores, at);
      LLVMValueRef p = attention_exp2(e, LLVMBuildFSub(e->builder, s, m, ""));
      if (masked) {
        LLVMValueRef in =
            LLVMBuildFCmp(e->builder, LLVMRealUGT, s, attention_splat(a, NOTHING / 2), "");
        p = LLVMBuildSelect(e->builder, in, p, zero, "");
      }
      attention_store(a, p, f->scores, at);
      r.next[i] = LLVMBuildFAdd(e->builder, r.phi[i], p, "");
    }
    emit_loop_end(e, &r);
    first[0] = r.phi[0], from = most;
    for (int i = 1; i < n; i++) first[0] = LLVMBuildFAdd(e->builder, first[0], r.phi[i], "");
  }
  return first[0];
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

typedef enum Block {               /* of scores */
                     BLOCK_WHOLE,  /* of whole tiles, all admitted: the tiles find the maxima */
                     BLOCK_RAGGED, /* the last tile lacks keys */
                     BLOCK_MASKED
} Block;

static void softmax_block(Forward *f, LLVMValueRef k0, LLVMValueRef count, Block kind) {
  Attention *a = &f->a;
  bool masked = kind == BLOCK_MASKED;
  Emit *e = a->e;
  for (int v = 0; v < a->p.tile[FLASH_VECTORS]; v++) {
    LLVMValueRef at = lane_at(f, v), old = attention_load(a, f->most, at);
    LLVMValueRef m =
        kind == BLOCK_WHOLE ? attention_load(a, f->grown, at) : block_max(f, v, k0, count, masked);
    LLVMValueRef factor = attention_exp2(e, LLVMBuildFSub(e->builder, old, m, ""));
    LLVMValueRef sum = LLVMBuildFMul(e->builder, attention_load(a, f->sum, at), factor, "");
    sum = LLVMBuildFAdd(e->builder, sum, block_exp(f, v, m, count, masked), "");
    attention_store(a, m, f->most, at);
    attention_store(a, sum, f->sum, at);
    LLVMValueRef grown = LLVMBuildFCmp(e->builder, LLVMRealUNE, m, old, "");
    Branch grows = emit_if(e, any_lane(e, grown));
    scale_out(f, v, factor);
    emit_end_if(e, grows);
  }
}

static void scores_block(Forward *f, LLVMValueRef k0, LLVMValueRef end, Block kind) {
  Attention *a = &f->a;
  Emit *e = a->e;
  const FlashPlan *p = &a->p;
  LLVMValueRef count = LLVMBuildNSWSub(e->builder, end, k0, "");
  TileShape s = {(int)p->tile[FLASH_ROWS],
                 (int)p->tile[FLASH_VECTORS],
                 p->width,
                 1,
                 p->tile_queries,
                 p->tile_queries,
                 false};
  Operands scores = {attention_at(a, f->keys, k0, p->width), f->queries, f->scores, NULL};
  if (kind == BLOCK_WHOLE) scores.most = f->grown;
  for (int v = 0; v < s.vectors && scores.most; v++)
    attention_store(a, attention_load(a, f->most, lane_at(f, v)), f->grown, lane_at(f, v));
  attention_product(a, s, s.vectors, scores, count, emit_i64(e, a->f.width), false);
  softmax_block(f, k0, count, kind);
  TileShape o = {s.rows, s.vectors, 1, p->width, p->tile_queries, p->tile_queries, false};
  Operands out = {attention_at(a, f->values, k0, p->width), f->scores, f->out, NULL};
  attention_product(a, o, o.vectors, out, emit_i64(e, p->width), count, true);
}

/* Whether the block [k0, end) is BLOCK_WHOLE; NULL: surely. */
static LLVMValueRef is_whole(Forward *f, LLVMValueRef k0, LLVMValueRef end, LLVMValueRef all) {
  const Attention *a = &f->a;
  LLVMBuilderRef b = a->e->builder;
  int64_t rows = a->p.tile[FLASH_ROWS];
  if (a->f.mask == NO_VALUE) all = NULL;
  if (a->f.keys % rows == 0) return all;
  LLVMValueRef rest = LLVMBuildURem(b, LLVMBuildNSWSub(b, end, k0, ""), emit_i64(a->e, rows), "");
  LLVMValueRef even = LLVMBuildICmp(b, LLVMIntEQ, rest, emit_i64(a->e, 0), "");
  return all ? LLVMBuildAnd(b, all, even, "") : even;
}

static void key_block(Forward *f, LLVMValueRef k0) {
  Attention *a = &f->a;
  Emit *e = a->e;
  const FlashPlan *p = &a->p;
  LLVMValueRef q1 = tile_add(e, f->q0, emit_i64(e, p->tile_queries));
  q1 = emit_min_i64(e, q1, emit_i64(e, a->f.queries));
  LLVMValueRef end = emit_min_i64(e, tile_add(e, k0, emit_i64(e, p->tile[FLASH_KEY_BLOCK])),
                                  emit_i64(e, a->f.keys));
  MaskFacts facts = attention_facts(a, f->q0, q1, k0, end);
  LLVMValueRef whole = is_whole(f, k0, end, facts.all);
  bool masked = a->f.mask != NO_VALUE;
  Branch some = emit_if(e, facts.some);
  if (!whole) scores_block(f, k0, end, BLOCK_WHOLE);
  for (int all = 0; all < 2 && whole; all++) {
    Branch b = emit_if(e, all ? whole : LLVMBuildNot(e->builder, whole, ""));
    LLVMValueRef last = all || !masked ? end : attention_last_key(a, f->q0, q1, k0, end);
    scores_block(f, k0, last, all ? BLOCK_WHOLE : masked ? BLOCK_MASKED : BLOCK_RAGGED);
    emit_end_if(e, b);
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
    attention_store(a, attention_splat(a, NOTHING), f->most, lane_at(f, v));
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
    LLVMValueRef l = attention_load(a, f->sum, lane_at(f, v)),
                 m = attention_load(a, f->most, lane_at(f, v));
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

/* All tiles of the block that begins at query s0 and has queries left. */
static void each_tile(Forward *f, LLVMValueRef s0, LLVMValueRef k0, TileWork *work) {
  Attention *a = &f->a;
  Emit *e = a->e;
  int64_t n = a->p.tile_queries, count = a->p.tile[FLASH_QUERY_BLOCK];
  LLVMValueRef left = LLVMBuildNSWSub(e->builder, emit_i64(e, a->f.queries), s0, "");
  Loop t = emit_loop(e, emit_i64(e, 0), emit_min_i64(e, emit_i64(e, count), left), n, 0, NULL);
  f->q0 = tile_add(e, s0, t.i);
  f->queries = attention_at(a, f->all_queries, t.i, a->p.width);
  f->out = attention_at(a, f->all_out, t.i, a->p.width);
  f->most = tile_elements(e, a->f32, f->all_state, t.i);
  f->sum = tile_elements(e, a->f32, f->most, emit_i64(e, count));
  work(f, k0);
  emit_loop_end(e, &t);
}

/* Keys are the outer loop: a block of them is near for all tiles. */
static void query_block(Forward *f, LLVMValueRef s0) {
  Attention *a = &f->a;
  Emit *e = a->e;
  each_tile(f, s0, NULL, start_work);
  Loop k =
      emit_loop(e, emit_i64(e, 0), emit_i64(e, a->f.keys), a->p.tile[FLASH_KEY_BLOCK], 0, NULL);
  each_tile(f, s0, k.i, key_block);
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
  attention_read(a, a->f.k, a->f.key, zero, a->f.keys, all, f->keys, 1);
  attention_read(a, a->f.v, a->f.key, zero, a->f.keys, all, f->values, 1);
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
  f->scores = attention_scratch(a, p->tile[FLASH_KEY_BLOCK] * p->tile_queries);
  f->all_queries = attention_scratch(a, p->width * block);
  f->all_out = attention_scratch(a, p->width * block);
  f->all_state = attention_scratch(a, 2 * block);
  f->grown = attention_scratch(a, p->tile_queries);
}

void attention_emit(Emit *e) {
  Forward f = {.a = attention_new(e)};
  Attention *a = &f.a;
  emit_begin_phase(e, 0);
  give_scratch(&f);
  LLVMValueRef parts = emit_i64(e, a->p.tile[FLASH_PARTS]);
  Range heads = tile_range(e, LLVMBuildUDiv(e->builder, e->chunk, parts, ""),
                           a->f.shared.count * a->f.group.count, a->p.tile[FLASH_HEADS]);
  Range blocks = tile_range(e, LLVMBuildURem(e->builder, e->chunk, parts, ""), a->p.query_blocks,
                            a->p.tile[FLASH_PARTS]);
  Loop h = emit_loop(e, heads.from, heads.to, 1, 0, NULL);
  head(&f, h.i, blocks);
  emit_loop_end(e, &h);
  emit_end_phase(e);
}
