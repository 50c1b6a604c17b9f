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
  Attention *attention = &b->a;
  int64_t width = attention->p.width, all = attention->p.keys * width, queries = block(b),
          keys = attention->p.tile[FLASH_KEY_BLOCK];
  attention->next_scratch = attention->e->scratch;
  memset(attention->prefetch, 0, sizeof attention->prefetch); /* variables are a phase's own */
  b->keys = attention_scratch(attention, all), b->values = attention_scratch(attention, all);
  b->dk = attention_scratch(attention, all), b->dv = attention_scratch(attention, all);
  b->q = attention_scratch(attention, queries * width),
  b->dy = attention_scratch(attention, queries * width);
  b->dq = attention_scratch(attention, queries * width);
  b->qt = attention_scratch(attention, queries * width),
  b->dyt = attention_scratch(attention, queries * width);
  b->p = attention_scratch(attention, keys * queries),
  b->ds = attention_scratch(attention, keys * queries);
  b->lse = attention_scratch(attention, queries), b->delta = attention_scratch(attention, queries);
}

/* ---- a block of queries ---- */

static void transpose_tiles(Backward *b, LLVMValueRef rows, LLVMValueRef tiles) {
  Attention *attention = &b->a;
  int64_t n = attention->p.tile_queries;
  Loop t = emit_loop(attention->e, emit_i64(attention->e, 0), emit_i64(attention->e, block(b)), n,
                     0, NULL);
  LLVMValueRef from = attention_at(attention, rows, t.i, attention->p.width),
               to = attention_at(attention, tiles, t.i, attention->p.width);
  attention_transpose(attention, from, attention->p.width, to, n, n, attention->p.width);
  emit_loop_end(attention->e, &t);
}

/* delta from the rows of y, which stand where dq will be */
static void find_delta(Backward *b) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  LLVMValueRef zero = LLVMConstNull(attention->vector);
  Loop q = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, block(b)), 1, 0, NULL);
  Loop d = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, attention->p.width),
                     attention->p.lanes, 1, &zero);
  LLVMValueRef at = tile_add(emit, tile_times(emit, q.i, attention->p.width), d.i);
  d.next[0] = emit_fma(emit, attention_load(attention, b->dq, at),
                       attention_load(attention, b->dy, at), d.phi[0]);
  emit_loop_end(emit, &d);
  LLVMValueRef delta = LLVMBuildFNeg(emit->builder, math_across(emit, OP_sum, d.phi[0]), "");
  LLVMBuildStore(emit->builder, delta, tile_elements(emit, attention->f32, b->delta, q.i));
  emit_loop_end(emit, &q);
}

static void find_lse(Backward *b) { /* in units of log 2 */
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  Loop q =
      emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, block(b)), attention->p.lanes, 0, NULL);
  Point p = attention_queries(attention, tile_add(emit, b->s0, q.i));
  LLVMValueRef x = LLVMBuildFMul(emit->builder, expr_load(emit, attention->f.lse, &p),
                                 attention_splat(attention, -LOG2_E), "");
  if (p.mask) x = LLVMBuildSelect(emit->builder, p.mask, x, LLVMConstNull(attention->vector), "");
  attention_store(attention, x, b->lse, q.i);
  emit_loop_end(emit, &q);
}

static void start_block(Backward *b) {
  Attention *attention = &b->a;
  const Flash *flash = &attention->f;
  LLVMValueRef all = emit_i64(attention->e, block(b));
  attention_read(attention, flash->q, flash->query, b->s0, flash->queries, all, b->q,
                 attention->f.scale * LOG2_E);
  attention_read(attention, flash->dy, flash->query, b->s0, flash->queries, all, b->dy, 1);
  attention_read(attention, flash->y, flash->query, b->s0, flash->queries, all, b->dq, 1);
  transpose_tiles(b, b->q, b->qt);
  transpose_tiles(b, b->dy, b->dyt);
  find_delta(b);
  find_lse(b);
  attention_zero(attention, b->dq, emit_i64(attention->e, block(b) * attention->p.width));
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
  Attention *attention = &b->a;
  LLVMValueRef lane = LLVMBuildURem(attention->e->builder, t,
                                    emit_i64(attention->e, attention->p.tile_queries), "");
  LLVMValueRef first = LLVMBuildNSWSub(attention->e->builder, t, lane, "");
  return tile_elements(attention->e, attention->f32,
                       attention_at(attention, tiles, first, attention->p.width), lane);
}

static void fill_scores(Backward *b, const Scores *s) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  for (int v = 0; v < s->vectors; v++) {
    LLVMValueRef at = tile_add(emit, s->t, emit_i64(emit, v * attention->p.lanes));
    Point queries = attention_queries(attention, tile_add(emit, b->s0, at));
    attention_fill(attention, &queries, s->k0, s->rows, attention_load(attention, b->lse, at),
                   tile_elements(emit, attention->f32, b->p, at), block(b));
  }
}

/* P and dS, each finished in the registers of its tile. */
static void make_scores(Backward *b, const Scores *s) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  const FlashPlan *p = &attention->p;
  LLVMValueRef width = emit_i64(emit, attention->f.width);
  TileShape shape = {.rows = (int)p->tile[FLASH_ROWS],
                     .vectors = s->vectors,
                     .a_row = p->width,
                     .a_step = 1,
                     .b_step = p->tile_queries,
                     .c_row = block(b)};
  LLVMValueRef probabilities = tile_elements(emit, attention->f32, b->p, s->t);
  Operands x = {attention_at(attention, b->keys, s->k0, p->width),
                transposed(b, b->qt, s->t),
                probabilities,
                tile_elements(emit, attention->f32, b->lse, s->t),
                {NULL}};
  Operands d = {attention_at(attention, b->values, s->k0, p->width),
                transposed(b, b->dyt, s->t),
                tile_elements(emit, attention->f32, b->ds, s->t),
                tile_elements(emit, attention->f32, b->delta, s->t),
                {probabilities}};
  shape.start = s->whole ? START_ROW : START_SUMS, shape.end = END_POWERS;
  if (!s->whole) fill_scores(b, s);
  attention_product(attention, shape, shape.vectors, x, s->rows, width);
  shape.start = START_ROW, shape.end = END_TIMES;
  attention_product(attention, shape, shape.vectors, d, s->rows, width);
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
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  int64_t width = attention->p.width, n = x->vectors * attention->p.lanes;
  TileShape s = sums_shape(b, 1, block(b));
  Loop t = emit_loop(emit, x->queries.from, x->queries.to, n, 0, NULL);
  Operands dq = {.A = tile_elements(emit, attention->f32, b->ds, t.i),
                 .B = attention_at(attention, b->keys, k0, width),
                 .C = attention_at(attention, b->dq, t.i, width)};
  attention_product(attention, s, width / attention->p.lanes, dq, emit_i64(emit, n), rows);
  emit_loop_end(emit, &t);
}

static void add_to_keys(Backward *b, LLVMValueRef k0, LLVMValueRef rows, Range queries) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  int64_t width = attention->p.width, vectors = width / attention->p.lanes;
  TileShape s = sums_shape(b, block(b), 1);
  LLVMValueRef n = LLVMBuildNSWSub(emit->builder, queries.to, queries.from, "");
  Operands dv = {.A = tile_elements(emit, attention->f32, b->p, queries.from),
                 .B = attention_at(attention, b->dy, queries.from, width),
                 .C = attention_at(attention, b->dv, k0, width)};
  Operands dk = {.A = tile_elements(emit, attention->f32, b->ds, queries.from),
                 .B = attention_at(attention, b->q, queries.from, width),
                 .C = attention_at(attention, b->dk, k0, width)};
  attention_product(attention, s, vectors, dv, rows, n);
  attention_product(attention, s, vectors, dk, rows, n);
}

/* Keys [k0, end) */
static void scores_block(Backward *b, LLVMValueRef k0, LLVMValueRef end, GradientPart x,
                         bool whole) {
  Emit *emit = b->a.e;
  LLVMValueRef rows = LLVMBuildNSWSub(emit->builder, end, k0, "");
  Loop t = emit_loop(emit, x.queries.from, x.queries.to, x.vectors * b->a.p.lanes, 0, NULL);
  Scores s = {t.i, x.vectors, k0, rows, whole};
  make_scores(b, &s);
  emit_loop_end(emit, &t);
  if (b->want_kv) add_to_keys(b, k0, rows, x.queries);
  if (b->want_q) add_to_queries(b, k0, rows, &x);
}

static LLVMValueRef last_query(Backward *b, LLVMValueRef to) {
  Emit *emit = b->a.e;
  return emit_min_i64(emit, tile_add(emit, b->s0, to), emit_i64(emit, b->a.f.queries));
}

static LLVMValueRef is_less(Backward *b, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildICmp(b->a.e->builder, LLVMIntSLT, x, y, "");
}

/* Some queries of a tile, which begins at t: from the first to the last key that they need. */
static void mixed_part(Backward *b, LLVMValueRef k0, LLVMValueRef end, LLVMValueRef t) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  int vectors = attention_mixed_vectors(attention);
  LLVMValueRef to = tile_add(emit, t, emit_i64(emit, vectors * attention->p.lanes));
  GradientPart x = {{t, emit_min_i64(emit, to, b->count)}, vectors};
  LLVMValueRef q0 = tile_add(emit, b->s0, t), q1 = last_query(b, x.queries.to);
  Range seen = attention_seen_keys(attention, q0, q1, k0, end);
  Branch some = emit_if(emit, is_less(b, seen.from, seen.to));
  scores_block(b, seen.from, seen.to, x, false);
  emit_end_if(emit, some);
}

/* A block that the mask admits in part. Of each tile of queries: keys that all of them see, then
   the others, a few queries at a time. */
static void mixed_block(Backward *b, LLVMValueRef k0, LLVMValueRef end) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  LLVMValueRef each = emit_i64(emit, attention->p.tile_queries);
  Loop t = emit_loop(emit, emit_i64(emit, 0), b->count, attention->p.tile_queries, 0, NULL);
  GradientPart x = {{t.i, emit_min_i64(emit, tile_add(emit, t.i, each), b->count)},
                    (int)attention->p.tile[FLASH_VECTORS]};
  LLVMValueRef mixed = attention_whole_keys(attention, tile_add(emit, b->s0, t.i),
                                            last_query(b, x.queries.to), k0, end);
  Branch whole = emit_if(emit, is_less(b, k0, mixed));
  scores_block(b, k0, mixed, x, true);
  emit_end_if(emit, whole);
  Branch rest = emit_if(emit, is_less(b, mixed, end));
  Loop p = emit_loop(emit, t.i, x.queries.to,
                     attention_mixed_vectors(attention) * attention->p.lanes, 0, NULL);
  mixed_part(b, mixed, end, p.i);
  emit_loop_end(emit, &p);
  emit_end_if(emit, rest);
  emit_loop_end(emit, &t);
}

/* Some queries at a time, where `mask` admits them. */
static void mixed_parts(Backward *b, const AttentionRect *r, GradientPart x, ValueId mask) {
  Backward part = *b;
  Emit *emit = b->a.e;
  part.a.f.mask = mask;
  Loop p = emit_loop(emit, x.queries.from, x.queries.to,
                     attention_mixed_vectors(&b->a) * b->a.p.lanes, 0, NULL);
  mixed_part(&part, r->keys.from, r->keys.to, p.i);
  emit_loop_end(emit, &p);
}

static void listed_keys(Backward *b, AttentionRect *r) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  attention_ask_data(attention, r);
  GradientPart x = {{r->queries.from, emit_min_i64(emit, r->queries.to, b->count)},
                    (int)attention->p.tile[FLASH_VECTORS]};
  bool data = attention->lists.rest != NO_VALUE;
  if (!data || attention->lists.by_key) {
    Branch whole = emit_if(emit, attention_rect_is(attention, r, RUN_WHOLE));
    scores_block(b, r->keys.from, r->keys.to, x, true);
    emit_end_if(emit, whole);
  }
  Branch rest = emit_if(emit, attention_rect_is(attention, r, data ? RUN_DATA : RUN_REST));
  if (data) mixed_parts(b, r, x, attention->lists.rest);
  else {
    Backward plain = *b;
    plain.a.f.mask = NO_VALUE;
    scores_block(&plain, r->keys.from, r->keys.to, x, false);
  }
  emit_end_if(emit, rest);
  Branch mixed = emit_if(emit, attention_rect_is(attention, r, RUN_MIXED));
  mixed_parts(b, r, x, attention->f.mask);
  emit_end_if(emit, mixed);
}

/* What is listed of the block of queries, of blocks [keys) of the head. */
static void listed_keys_of_block(Backward *b, Range keys) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  LLVMBuilderRef build = emit->builder;
  int64_t wide = attention->p.tile[FLASH_KEY_BLOCK];
  LLVMValueRef from = tile_times(emit, keys.from, wide), to = tile_times(emit, keys.to, wide);
  AttentionRect r = attention_rects(attention, b->s0);
  LLVMValueRef mine = LLVMBuildAnd(build, LLVMBuildICmp(build, LLVMIntSLE, from, r.keys.from, ""),
                                   LLVMBuildICmp(build, LLVMIntSLT, r.keys.from, to, ""), "");
  Branch own = emit_if(emit, mine);
  listed_keys(b, &r);
  emit_end_if(emit, own);
  emit_loop_end(emit, &r.loop);
}

static void key_block(Backward *b, LLVMValueRef k0) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  LLVMValueRef end = tile_add(emit, k0, emit_i64(emit, attention->p.tile[FLASH_KEY_BLOCK]));
  end = emit_min_i64(emit, end, emit_i64(emit, attention->f.keys));
  MaskFacts facts = attention_facts(attention, b->s0, tile_add(emit, b->s0, b->count), k0, end);
  Branch whole = emit_if(emit, facts.all);
  GradientPart all = {{emit_i64(emit, 0), b->count}, (int)attention->p.tile[FLASH_VECTORS]};
  scores_block(b, k0, end, all, true);
  emit_end_if(emit, whole);
  if (attention->f.mask == NO_VALUE) return;
  LLVMValueRef mixed =
      LLVMBuildAnd(emit->builder, facts.some, LLVMBuildNot(emit->builder, facts.all, ""), "");
  Branch part = emit_if(emit, mixed);
  mixed_block(b, k0, end);
  emit_end_if(emit, part);
}

static void all_keys(Backward *b, Range keys) {
  Emit *emit = b->a.e;
  Loop k = emit_loop(emit, keys.from, keys.to, 1, 0, NULL);
  key_block(b, tile_times(emit, k.i, b->a.p.tile[FLASH_KEY_BLOCK]));
  emit_loop_end(emit, &k);
}

/* While a block of queries is worked on: rows of the next one, and the results of this one. */
static void ask_for_rows(Backward *b) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  Prefetch *list = &attention->prefetch[PREFETCH_BLOCK];
  int64_t last = attention->f.queries - block(b);
  LLVMValueRef next = tile_add(emit, b->s0, emit_i64(emit, block(b)));
  next = emit_min_i64(emit, next, emit_i64(emit, last > 0 ? last : 0));
  Point head = attention_point(attention);
  attention_prefetch_start(attention, list, b->count);
  attention_prefetch_add(attention, list, attention->f.q, attention->f.query, &head, next, false);
  attention_prefetch_add(attention, list, attention->f.dy, attention->f.query, &head, next, false);
  attention_prefetch_add(attention, list, attention->f.y, attention->f.query, &head, next, false);
  if (b->want_q)
    attention_prefetch_add(attention, list, attention->f.dq, attention->f.query, &head, b->s0,
                           true);
}

/* While a head is worked on: keys and values of the next one. */
static void ask_for_keys(Backward *b) {
  Attention next = b->a;
  Emit *emit = next.e;
  Prefetch *list = &b->a.prefetch[PREFETCH_HEAD];
  LLVMValueRef n = tile_add(emit, next.shared, emit_i64(emit, 1)), zero = emit_i64(emit, 0);
  next.shared = emit_min_i64(emit, n, emit_i64(emit, next.f.shared.count - 1)), next.group = zero;
  Point head = attention_point(&next);
  attention_prefetch_start(&b->a, list, emit_i64(emit, next.f.keys));
  attention_prefetch_add(&b->a, list, next.f.k, next.f.key, &head, zero, false);
  attention_prefetch_add(&b->a, list, next.f.v, next.f.key, &head, zero, false);
}

static void query_block(Backward *b, LLVMValueRef i, Range keys) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  b->s0 = tile_times(emit, i, block(b));
  LLVMValueRef left =
      LLVMBuildNSWSub(emit->builder, emit_i64(emit, attention->f.queries), b->s0, "");
  b->count = emit_min_i64(emit, left, emit_i64(emit, block(b)));
  start_block(b);
  ask_for_rows(b);
  if (attention->lists.there) listed_keys_of_block(b, keys);
  else all_keys(b, keys);
  if (b->want_q)
    attention_write(attention, attention->f.dq, attention->f.query, b->s0, attention->f.queries,
                    b->count, b->dq, attention->f.scale);
}

/* Keys and values of blocks [keys) of the head; their gradients to 0. Returns first and number of
 * rows. */
static Range start_keys(Backward *b, Range keys) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  const Flash *flash = &attention->f;
  int64_t width = attention->p.width, each = attention->p.tile[FLASH_KEY_BLOCK];
  LLVMValueRef from = tile_times(emit, keys.from, each);
  LLVMValueRef to =
      emit_min_i64(emit, tile_times(emit, keys.to, each), emit_i64(emit, attention->p.keys));
  LLVMValueRef n = LLVMBuildNSWSub(emit->builder, to, from, ""),
               floats = tile_times(emit, n, width);
  attention_read(attention, flash->k, flash->key, from, flash->keys, n,
                 attention_at(attention, b->keys, from, width), 1);
  attention_read(attention, flash->v, flash->key, from, flash->keys, n,
                 attention_at(attention, b->values, from, width), 1);
  if (b->want_kv) {
    attention_zero(attention, attention_at(attention, b->dk, from, width), floats);
    attention_zero(attention, attention_at(attention, b->dv, from, width), floats);
  }
  return (Range){from, n};
}

static void head(Backward *b, LLVMValueRef shared, Range groups, Range queries, Range keys) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  attention->shared = shared, attention->group = groups.from;
  Range rows = start_keys(b, keys);
  if (attention->p.phases == 1) ask_for_keys(b);
  Loop g = emit_loop(emit, groups.from, groups.to, 1, 0, NULL);
  attention->group = g.i;
  Loop q = emit_loop(emit, queries.from, queries.to, 1, 0, NULL);
  query_block(b, q.i, keys);
  emit_loop_end(emit, &q);
  emit_loop_end(emit, &g);
  attention->group = groups.from;
  if (!b->want_kv) return;
  LLVMValueRef dk = attention_at(attention, b->dk, rows.from, attention->p.width),
               dv = attention_at(attention, b->dv, rows.from, attention->p.width);
  attention_write(attention, attention->f.dk, attention->f.key, rows.from, attention->f.keys,
                  rows.to, dk, LN_2);
  attention_write(attention, attention->f.dv, attention->f.key, rows.from, attention->f.keys,
                  rows.to, dv, 1);
}

static Range whole(Emit *emit, int64_t n) { return (Range){emit_i64(emit, 0), emit_i64(emit, n)}; }

static void begin(Backward *b, int phase, bool want_q, bool want_kv) {
  emit_begin_phase(b->a.e, phase);
  b->want_q = want_q, b->want_kv = want_kv;
  give_scratch(b);
}

static Range one(Emit *emit, LLVMValueRef i) {
  return (Range){i, tile_add(emit, i, emit_i64(emit, 1))};
}

/* All of a head of keys and values, with the heads of queries that share them. */
static void whole_head(Backward *b, LLVMValueRef shared) {
  const Attention *attention = &b->a;
  Emit *emit = attention->e;
  head(b, shared, whole(emit, attention->f.group.count), whole(emit, attention->p.query_blocks),
       whole(emit, attention->p.key_blocks));
}

/* dk and dv of blocks of keys. */
static void head_keys(Backward *b, LLVMValueRef shared, Range keys) {
  Emit *emit = b->a.e;
  head(b, shared, whole(emit, b->a.f.group.count), whole(emit, b->a.p.query_blocks), keys);
}

/* dq of blocks of queries of a head of queries. */
static void head_queries(Backward *b, LLVMValueRef h, Range queries) {
  Emit *emit = b->a.e;
  LLVMValueRef groups = emit_i64(emit, b->a.f.group.count);
  head(b, LLVMBuildUDiv(emit->builder, h, groups, ""),
       one(emit, LLVMBuildURem(emit->builder, h, groups, "")), queries,
       whole(emit, b->a.p.key_blocks));
}

typedef void HeadWork(Backward *b, LLVMValueRef head, Range blocks);

/* The chunk's part of a phase: by units of the lists, else part i % parts of head i / parts. */
static void chunk(Backward *b, int phase, int64_t blocks, int64_t parts, HeadWork *work) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  if (!attention->lists.there) {
    LLVMValueRef n = emit_i64(emit, parts);
    Range part = tile_range(emit, LLVMBuildURem(emit->builder, emit->chunk, n, ""), blocks, parts);
    work(b, LLVMBuildUDiv(emit->builder, emit->chunk, n, ""), part);
    return;
  }
  Range units = attention_chunk(attention, phase),
        heads = attention_chunk_heads(attention, phase, units);
  Loop h = emit_loop(emit, heads.from, heads.to, 1, 0, NULL);
  work(b, h.i, attention_chunk_units(attention, phase, units, h.i));
  emit_loop_end(emit, &h);
}

static void one_phase(Backward *b) {
  Attention *attention = &b->a;
  Emit *emit = attention->e;
  begin(b, 0, true, true);
  Range heads = attention->lists.there ? attention_chunk(attention, 0)
                                       : tile_range(emit, emit->chunk, attention->f.shared.count,
                                                    attention->p.tile[FLASH_HEADS]);
  Loop h = emit_loop(emit, heads.from, heads.to, 1, 0, NULL);
  whole_head(b, h.i);
  emit_loop_end(emit, &h);
  emit_end_phase(emit);
}

static void two_phases(Backward *b) {
  const FlashPlan *p = &b->a.p;
  begin(b, 0, false, true);
  chunk(b, 0, p->key_blocks, p->tile[FLASH_KEY_PARTS], head_keys);
  emit_end_phase(b->a.e);
  begin(b, 1, true, false);
  chunk(b, 1, p->query_blocks, p->tile[FLASH_PARTS], head_queries);
  emit_end_phase(b->a.e);
}

void attention_grad_emit(Emit *emit) {
  Backward b = {.a = attention_new(emit)};
  if (b.a.p.phases > 1) two_phases(&b);
  else one_phase(&b);
}
