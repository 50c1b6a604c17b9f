/* Family attention_grad: gradients of q, k and v from y, the log-sum-exp and dy; scores are
   computed again.

   With P = 2^(S - lse) in units of log 2 and delta = row sums of y dy, for a block of keys and a
   block of queries:

     P = 2^(K Q^T - lse);  dS = P (V dY^T - delta);  dV += P dY;  dK += dS Q;  dQ += dS^T K

   Sums of the first two start at -lse and -delta (where the mask excludes a key: at a score whose
   power is 0) and are finished in the registers of their tiles. Q is read times scale and log2 e;
   that is put right when dK and dQ are written.

   Query blocks are the outer loop: dQ of one block and dK, dV of all keys stand in scratch. A chunk
   owns what it writes: a head of k and v with all its groups. Where that gives too few chunks the
   work is done in two phases over the scores: first dK and dV of a range of keys, then dQ of a
   range of queries. Sums run in the order of the loops, so they never change. */
#include "attention.h"

static const double LOG2_E = 1.4426950408889634, LN_2 = 0.6931471805599453;

typedef struct Backward {
  Attention a;
  bool want_q, want_kv;
  LLVMValueRef keys, values, dk, dv; /* [keys][width] */
  LLVMValueRef q, dy, dq;            /* [query block][width] */
  LLVMValueRef qt, dyt;              /* per tile of queries: [width][tile queries] */
  LLVMValueRef p, ds;                /* [key block][query block] */
  LLVMValueRef lse, delta;           /* per query of the block, negative */
  LLVMValueRef s0, count;            /* first query of the block, number of them */
} Backward;

static int64_t block(const Backward *b) { return b->a.p.tile[FLASH_QUERY_BLOCK]; }

static void give_scratch(Backward *b) {
  Attention *a = &b->a;
  int64_t width = a->p.width, all = a->p.keys * width, queries = block(b),
          keys = a->p.tile[FLASH_KEY_BLOCK];
  a->next_scratch = a->e->scratch;
  memset(a->prefetch, 0, sizeof a->prefetch); /* variables are a phase's own */
  b->keys = attention_scratch(a, all), b->values = attention_scratch(a, all);
  b->dk = attention_scratch(a, all), b->dv = attention_scratch(a, all);
  b->q = attention_scratch(a, queries * width), b->dy = attention_scratch(a, queries * width);
  b->dq = attention_scratch(a, queries * width);
  b->qt = attention_scratch(a, queries * width), b->dyt = attention_scratch(a, queries * width);
  b->p = attention_scratch(a, keys * queries), b->ds = attention_scratch(a, keys * queries);
  b->lse = attention_scratch(a, queries), b->delta = attention_scratch(a, queries);
}

/* ---- a block of queries ---- */

static void transpose_tiles(Backward *b, LLVMValueRef rows, LLVMValueRef tiles) {
  Attention *a = &b->a;
  int64_t n = a->p.tile_queries;
  Loop t = emit_loop(a->e, emit_i64(a->e, 0), emit_i64(a->e, block(b)), n, 0, NULL);
  LLVMValueRef from = attention_at(a, rows, t.i, a->p.width),
               to = attention_at(a, tiles, t.i, a->p.width);
  attention_transpose(a, from, a->p.width, to, n, n, a->p.width);
  emit_loop_end(a->e, &t);
}

/* delta from the rows of y, which stand where dq will be */
static void find_delta(Backward *b) {
  Attention *a = &b->a;
  Emit *e = a->e;
  LLVMValueRef zero = LLVMConstNull(a->vector);
  Loop q = emit_loop(e, emit_i64(e, 0), emit_i64(e, block(b)), 1, 0, NULL);
  Loop d = emit_loop(e, emit_i64(e, 0), emit_i64(e, a->p.width), a->p.lanes, 1, &zero);
  LLVMValueRef at = tile_add(e, tile_times(e, q.i, a->p.width), d.i);
  d.next[0] = emit_fma(e, attention_load(a, b->dq, at), attention_load(a, b->dy, at), d.phi[0]);
  emit_loop_end(e, &d);
  LLVMValueRef delta = LLVMBuildFNeg(e->builder, math_across(e, OP_sum, d.phi[0]), "");
  LLVMBuildStore(e->builder, delta, tile_elements(e, a->f32, b->delta, q.i));
  emit_loop_end(e, &q);
}

static void find_lse(Backward *b) { /* in units of log 2 */
  Attention *a = &b->a;
  Emit *e = a->e;
  Loop q = emit_loop(e, emit_i64(e, 0), emit_i64(e, block(b)), a->p.lanes, 0, NULL);
  Point p = attention_queries(a, tile_add(e, b->s0, q.i));
  LLVMValueRef x =
      LLVMBuildFMul(e->builder, expr_load(e, a->f.lse, &p), attention_splat(a, -LOG2_E), "");
  if (p.mask) x = LLVMBuildSelect(e->builder, p.mask, x, LLVMConstNull(a->vector), "");
  attention_store(a, x, b->lse, q.i);
  emit_loop_end(e, &q);
}

static void start_block(Backward *b) {
  Attention *a = &b->a;
  const Flash *f = &a->f;
  LLVMValueRef all = emit_i64(a->e, block(b));
  attention_read(a, f->q, f->query, b->s0, f->queries, all, b->q, a->f.scale * LOG2_E);
  attention_read(a, f->dy, f->query, b->s0, f->queries, all, b->dy, 1);
  attention_read(a, f->y, f->query, b->s0, f->queries, all, b->dq, 1);
  transpose_tiles(b, b->q, b->qt);
  transpose_tiles(b, b->dy, b->dyt);
  find_delta(b);
  find_lse(b);
  attention_zero(a, b->dq, emit_i64(a->e, block(b) * a->p.width));
}

/* ---- a block of scores ---- */

typedef struct Scores { /* some queries against a block of keys */
  LLVMValueRef t;       /* the first of them within the block */
  int vectors;          /* of queries; they are in one tile */
  LLVMValueRef k0, rows;
  bool whole; /* no mask needs to be asked */
} Scores;

/* Where column t of the block is in the transposed rows, which are kept per tile. */
static LLVMValueRef transposed(Backward *b, LLVMValueRef tiles, LLVMValueRef t) {
  Attention *a = &b->a;
  LLVMValueRef lane = LLVMBuildURem(a->e->builder, t, emit_i64(a->e, a->p.tile_queries), "");
  LLVMValueRef first = LLVMBuildNSWSub(a->e->builder, t, lane, "");
  return tile_elements(a->e, a->f32, attention_at(a, tiles, first, a->p.width), lane);
}

static void fill_scores(Backward *b, const Scores *s) {
  Attention *a = &b->a;
  Emit *e = a->e;
  for (int v = 0; v < s->vectors; v++) {
    LLVMValueRef at = tile_add(e, s->t, emit_i64(e, v * a->p.lanes));
    Point queries = attention_queries(a, tile_add(e, b->s0, at));
    attention_fill(a, &queries, s->k0, s->rows, attention_load(a, b->lse, at),
                   tile_elements(e, a->f32, b->p, at), block(b));
  }
}

/* P and dS, each finished in the registers of its tile. */
static void make_scores(Backward *b, const Scores *s) {
  Attention *a = &b->a;
  Emit *e = a->e;
  const FlashPlan *p = &a->p;
  LLVMValueRef width = emit_i64(e, a->f.width);
  TileShape shape = {.rows = (int)p->tile[FLASH_ROWS],
                     .vectors = s->vectors,
                     .a_row = p->width,
                     .a_step = 1,
                     .b_step = p->tile_queries,
                     .c_row = block(b)};
  LLVMValueRef probabilities = tile_elements(e, a->f32, b->p, s->t);
  Operands x = {attention_at(a, b->keys, s->k0, p->width),
                transposed(b, b->qt, s->t),
                probabilities,
                tile_elements(e, a->f32, b->lse, s->t),
                {NULL}};
  Operands d = {attention_at(a, b->values, s->k0, p->width),
                transposed(b, b->dyt, s->t),
                tile_elements(e, a->f32, b->ds, s->t),
                tile_elements(e, a->f32, b->delta, s->t),
                {probabilities}};
  shape.start = s->whole ? START_ROW : START_SUMS, shape.end = END_POWERS;
  if (!s->whole) fill_scores(b, s);
  attention_product(a, shape, shape.vectors, x, s->rows, width);
  shape.start = START_ROW, shape.end = END_TIMES;
  attention_product(a, shape, shape.vectors, d, s->rows, width);
}

/* ---- gradients ---- */

/* Vectors of a register tile over the width: as many as the tile has, in equal parts. */
static int width_vectors(const FlashPlan *p) {
  int64_t all = p->width / p->lanes, most = p->tile[FLASH_VECTORS];
  int64_t parts = (all + most - 1) / most;
  return (int)((all + parts - 1) / parts);
}

/* Queries [from, to) of the block, and how many of them at a time */
typedef struct GradientPart {
  Range queries;
  int vectors;
} GradientPart;

/* Tiles that add to rows of a gradient, as wide as a head; from row to row of A, and from step to
   step, there are so many elements. */
static TileShape sums_shape(const Backward *b, int64_t a_row, int64_t a_step) {
  const FlashPlan *p = &b->a.p;
  return (TileShape){.rows = (int)p->tile[FLASH_ROWS],
                     .vectors = width_vectors(p),
                     .a_row = a_row,
                     .a_step = a_step,
                     .b_step = p->width,
                     .c_row = p->width,
                     .start = START_SUMS,
                     .end = END_SUMS};
}

/* dQ: some queries after the other, of which a tile's rows may leave a rest. */
static void add_to_queries(Backward *b, LLVMValueRef k0, LLVMValueRef rows, const GradientPart *x) {
  Attention *a = &b->a;
  Emit *e = a->e;
  int64_t width = a->p.width, n = x->vectors * a->p.lanes;
  TileShape s = sums_shape(b, 1, block(b));
  Loop t = emit_loop(e, x->queries.from, x->queries.to, n, 0, NULL);
  Operands dq = {.A = tile_elements(e, a->f32, b->ds, t.i),
                 .B = attention_at(a, b->keys, k0, width),
                 .C = attention_at(a, b->dq, t.i, width)};
  attention_product(a, s, width / a->p.lanes, dq, emit_i64(e, n), rows);
  emit_loop_end(e, &t);
}

static void add_to_keys(Backward *b, LLVMValueRef k0, LLVMValueRef rows, Range queries) {
  Attention *a = &b->a;
  Emit *e = a->e;
  int64_t width = a->p.width, vectors = width / a->p.lanes;
  TileShape s = sums_shape(b, block(b), 1);
  LLVMValueRef n = LLVMBuildNSWSub(e->builder, queries.to, queries.from, "");
  Operands dv = {.A = tile_elements(e, a->f32, b->p, queries.from),
                 .B = attention_at(a, b->dy, queries.from, width),
                 .C = attention_at(a, b->dv, k0, width)};
  Operands dk = {.A = tile_elements(e, a->f32, b->ds, queries.from),
                 .B = attention_at(a, b->q, queries.from, width),
                 .C = attention_at(a, b->dk, k0, width)};
  attention_product(a, s, vectors, dv, rows, n);
  attention_product(a, s, vectors, dk, rows, n);
}

/* Keys [k0, end) */
static void scores_block(Backward *b, LLVMValueRef k0, LLVMValueRef end, GradientPart x,
                         bool whole) {
  Emit *e = b->a.e;
  LLVMValueRef rows = LLVMBuildNSWSub(e->builder, end, k0, "");
  Loop t = emit_loop(e, x.queries.from, x.queries.to, x.vectors * b->a.p.lanes, 0, NULL);
  Scores s = {t.i, x.vectors, k0, rows, whole};
  make_scores(b, &s);
  emit_loop_end(e, &t);
  if (b->want_kv) add_to_keys(b, k0, rows, x.queries);
  if (b->want_q) add_to_queries(b, k0, rows, &x);
}

static LLVMValueRef last_query(Backward *b, LLVMValueRef to) {
  Emit *e = b->a.e;
  return emit_min_i64(e, tile_add(e, b->s0, to), emit_i64(e, b->a.f.queries));
}

static LLVMValueRef is_less(Backward *b, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildICmp(b->a.e->builder, LLVMIntSLT, x, y, "");
}

/* Some queries of a tile, which begins at t: from the first to the last key that they need. */
static void mixed_part(Backward *b, LLVMValueRef k0, LLVMValueRef end, LLVMValueRef t) {
  Attention *a = &b->a;
  Emit *e = a->e;
  int vectors = attention_mixed_vectors(a);
  LLVMValueRef to = tile_add(e, t, emit_i64(e, vectors * a->p.lanes));
  GradientPart x = {{t, emit_min_i64(e, to, b->count)}, vectors};
  LLVMValueRef q0 = tile_add(e, b->s0, t), q1 = last_query(b, x.queries.to);
  Range seen = attention_seen_keys(a, q0, q1, k0, end);
  Branch some = emit_if(e, is_less(b, seen.from, seen.to));
  scores_block(b, seen.from, seen.to, x, false);
  emit_end_if(e, some);
}

/* A block that the mask admits in part. Of each tile of queries: keys that all of them see, then
   the others, a few queries at a time. */
static void mixed_block(Backward *b, LLVMValueRef k0, LLVMValueRef end) {
  Attention *a = &b->a;
  Emit *e = a->e;
  LLVMValueRef each = emit_i64(e, a->p.tile_queries);
  Loop t = emit_loop(e, emit_i64(e, 0), b->count, a->p.tile_queries, 0, NULL);
  GradientPart x = {{t.i, emit_min_i64(e, tile_add(e, t.i, each), b->count)},
                    (int)a->p.tile[FLASH_VECTORS]};
  LLVMValueRef mixed =
      attention_whole_keys(a, tile_add(e, b->s0, t.i), last_query(b, x.queries.to), k0, end);
  Branch whole = emit_if(e, is_less(b, k0, mixed));
  scores_block(b, k0, mixed, x, true);
  emit_end_if(e, whole);
  Branch rest = emit_if(e, is_less(b, mixed, end));
  Loop p = emit_loop(e, t.i, x.queries.to, attention_mixed_vectors(a) * a->p.lanes, 0, NULL);
  mixed_part(b, mixed, end, p.i);
  emit_loop_end(e, &p);
  emit_end_if(e, rest);
  emit_loop_end(e, &t);
}

/* Some queries at a time, where `mask` admits them. */
static void mixed_parts(Backward *b, const AttentionRect *r, GradientPart x, ValueId mask) {
  Backward part = *b;
  Emit *e = b->a.e;
  part.a.f.mask = mask;
  Loop p = emit_loop(e, x.queries.from, x.queries.to, attention_mixed_vectors(&b->a) * b->a.p.lanes,
                     0, NULL);
  mixed_part(&part, r->keys.from, r->keys.to, p.i);
  emit_loop_end(e, &p);
}

/* What is listed of a block of keys. */
static void listed_block(Backward *b, LLVMValueRef k0) {
  Attention *a = &b->a;
  Emit *e = a->e;
  AttentionRect r = attention_rects(a, b->s0, k0);
  GradientPart x = {{r.queries.from, emit_min_i64(e, r.queries.to, b->count)},
                    (int)a->p.tile[FLASH_VECTORS]};
  bool data = a->lists.rest != NO_VALUE;
  if (!data || a->lists.by_key) {
    Branch whole = emit_if(e, attention_rect_is(a, &r, RUN_WHOLE));
    scores_block(b, r.keys.from, r.keys.to, x, true);
    emit_end_if(e, whole);
  }
  Branch rest = emit_if(e, attention_rect_is(a, &r, data ? RUN_DATA : RUN_REST));
  if (data) mixed_parts(b, &r, x, a->lists.rest);
  else {
    Backward plain = *b;
    plain.a.f.mask = NO_VALUE;
    scores_block(&plain, r.keys.from, r.keys.to, x, false);
  }
  emit_end_if(e, rest);
  Branch mixed = emit_if(e, attention_rect_is(a, &r, RUN_MIXED));
  mixed_parts(b, &r, x, a->f.mask);
  emit_end_if(e, mixed);
  emit_loop_end(e, &r.loop);
}

static void key_block(Backward *b, LLVMValueRef k0) {
  Attention *a = &b->a;
  Emit *e = a->e;
  if (a->lists.starts) {
    listed_block(b, k0);
    return;
  }
  LLVMValueRef end = tile_add(e, k0, emit_i64(e, a->p.tile[FLASH_KEY_BLOCK]));
  end = emit_min_i64(e, end, emit_i64(e, a->f.keys));
  MaskFacts facts = attention_facts(a, b->s0, tile_add(e, b->s0, b->count), k0, end);
  Branch whole = emit_if(e, facts.all);
  GradientPart all = {{emit_i64(e, 0), b->count}, (int)a->p.tile[FLASH_VECTORS]};
  scores_block(b, k0, end, all, true);
  emit_end_if(e, whole);
  if (a->f.mask == NO_VALUE) return;
  LLVMValueRef mixed =
      LLVMBuildAnd(e->builder, facts.some, LLVMBuildNot(e->builder, facts.all, ""), "");
  Branch part = emit_if(e, mixed);
  mixed_block(b, k0, end);
  emit_end_if(e, part);
}

/* While a block of queries is worked on: rows of the next one, and the results of this one. */
static void ask_for_rows(Backward *b) {
  Attention *a = &b->a;
  Emit *e = a->e;
  Prefetch *list = &a->prefetch[PREFETCH_BLOCK];
  int64_t last = a->f.queries - block(b);
  LLVMValueRef next = tile_add(e, b->s0, emit_i64(e, block(b)));
  next = emit_min_i64(e, next, emit_i64(e, last > 0 ? last : 0));
  Point head = attention_point(a);
  attention_prefetch_start(a, list, b->count);
  attention_prefetch_add(a, list, a->f.q, a->f.query, &head, next, false);
  attention_prefetch_add(a, list, a->f.dy, a->f.query, &head, next, false);
  attention_prefetch_add(a, list, a->f.y, a->f.query, &head, next, false);
  if (b->want_q) attention_prefetch_add(a, list, a->f.dq, a->f.query, &head, b->s0, true);
}

/* While a head is worked on: keys and values of the next one. */
static void ask_for_keys(Backward *b) {
  Attention next = b->a;
  Emit *e = next.e;
  Prefetch *list = &b->a.prefetch[PREFETCH_HEAD];
  LLVMValueRef n = tile_add(e, next.shared, emit_i64(e, 1)), zero = emit_i64(e, 0);
  next.shared = emit_min_i64(e, n, emit_i64(e, next.f.shared.count - 1)), next.group = zero;
  Point head = attention_point(&next);
  attention_prefetch_start(&b->a, list, emit_i64(e, next.f.keys));
  attention_prefetch_add(&b->a, list, next.f.k, next.f.key, &head, zero, false);
  attention_prefetch_add(&b->a, list, next.f.v, next.f.key, &head, zero, false);
}

static void query_block(Backward *b, LLVMValueRef i, Range keys) {
  Attention *a = &b->a;
  Emit *e = a->e;
  b->s0 = tile_times(e, i, block(b));
  LLVMValueRef left = LLVMBuildNSWSub(e->builder, emit_i64(e, a->f.queries), b->s0, "");
  b->count = emit_min_i64(e, left, emit_i64(e, block(b)));
  start_block(b);
  ask_for_rows(b);
  Loop k = emit_loop(e, keys.from, keys.to, 1, 0, NULL);
  key_block(b, tile_times(e, k.i, a->p.tile[FLASH_KEY_BLOCK]));
  emit_loop_end(e, &k);
  if (b->want_q)
    attention_write(a, a->f.dq, a->f.query, b->s0, a->f.queries, b->count, b->dq, a->f.scale);
}

/* Keys and values of blocks [keys) of the head; their gradients to 0. Returns first and number of
 * rows. */
static Range start_keys(Backward *b, Range keys) {
  Attention *a = &b->a;
  Emit *e = a->e;
  const Flash *f = &a->f;
  int64_t width = a->p.width, each = a->p.tile[FLASH_KEY_BLOCK];
  LLVMValueRef from = tile_times(e, keys.from, each);
  LLVMValueRef to = emit_min_i64(e, tile_times(e, keys.to, each), emit_i64(e, a->p.keys));
  LLVMValueRef n = LLVMBuildNSWSub(e->builder, to, from, ""), floats = tile_times(e, n, width);
  attention_read(a, f->k, f->key, from, f->keys, n, attention_at(a, b->keys, from, width), 1);
  attention_read(a, f->v, f->key, from, f->keys, n, attention_at(a, b->values, from, width), 1);
  if (b->want_kv) {
    attention_zero(a, attention_at(a, b->dk, from, width), floats);
    attention_zero(a, attention_at(a, b->dv, from, width), floats);
  }
  return (Range){from, n};
}

static void head(Backward *b, LLVMValueRef shared, Range groups, Range queries, Range keys) {
  Attention *a = &b->a;
  Emit *e = a->e;
  a->shared = shared, a->group = groups.from;
  Range rows = start_keys(b, keys);
  if (a->p.phases == 1) ask_for_keys(b);
  Loop g = emit_loop(e, groups.from, groups.to, 1, 0, NULL);
  a->group = g.i;
  Loop q = emit_loop(e, queries.from, queries.to, 1, 0, NULL);
  query_block(b, q.i, keys);
  emit_loop_end(e, &q);
  emit_loop_end(e, &g);
  a->group = groups.from;
  if (!b->want_kv) return;
  LLVMValueRef dk = attention_at(a, b->dk, rows.from, a->p.width),
               dv = attention_at(a, b->dv, rows.from, a->p.width);
  attention_write(a, a->f.dk, a->f.key, rows.from, a->f.keys, rows.to, dk, LN_2);
  attention_write(a, a->f.dv, a->f.key, rows.from, a->f.keys, rows.to, dv, 1);
}

static Range whole(Emit *e, int64_t n) { return (Range){emit_i64(e, 0), emit_i64(e, n)}; }

static void begin(Backward *b, int phase, bool want_q, bool want_kv) {
  emit_begin_phase(b->a.e, phase);
  b->want_q = want_q, b->want_kv = want_kv;
  give_scratch(b);
}

static void one_phase(Backward *b) {
  Attention *a = &b->a;
  Emit *e = a->e;
  begin(b, 0, true, true);
  Range heads = tile_range(e, e->chunk, a->f.shared.count, a->p.tile[FLASH_HEADS]);
  Loop h = emit_loop(e, heads.from, heads.to, 1, 0, NULL);
  head(b, h.i, whole(e, a->f.group.count), whole(e, a->p.query_blocks), whole(e, a->p.key_blocks));
  emit_loop_end(e, &h);
  emit_end_phase(e);
}

static void two_phases(Backward *b) {
  Attention *a = &b->a;
  Emit *e = a->e;
  int64_t key_parts = a->p.tile[FLASH_KEY_PARTS], parts = a->p.tile[FLASH_PARTS];
  begin(b, 0, false, true);
  LLVMValueRef n = emit_i64(e, key_parts);
  Range keys = attention_part(a, a->lists.key_cuts, LLVMBuildURem(e->builder, e->chunk, n, ""),
                              a->p.key_blocks, key_parts);
  head(b, LLVMBuildUDiv(e->builder, e->chunk, n, ""), whole(e, a->f.group.count),
       whole(e, a->p.query_blocks), keys);
  emit_end_phase(e);
  begin(b, 1, true, false);
  n = emit_i64(e, parts);
  Range queries = attention_part(a, a->lists.query_cuts, LLVMBuildURem(e->builder, e->chunk, n, ""),
                                 a->p.query_blocks, parts);
  LLVMValueRef h = LLVMBuildUDiv(e->builder, e->chunk, n, ""),
               groups = emit_i64(e, a->f.group.count);
  LLVMValueRef g = LLVMBuildURem(e->builder, h, groups, "");
  head(b, LLVMBuildUDiv(e->builder, h, groups, ""), (Range){g, tile_add(e, g, emit_i64(e, 1))},
       queries, whole(e, a->p.key_blocks));
  emit_end_phase(e);
}

void attention_grad_emit(Emit *e) {
  Backward b = {.a = attention_new(e)};
  if (b.a.p.phases > 1) two_phases(&b);
  else one_phase(&b);
}
