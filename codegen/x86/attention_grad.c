/* Family attention_grad: gradients of q, k and v from y, the log-sum-exp and dy; scores are
   computed again.

   With P = 2^(S - lse) in units of log 2 and delta = row sums of y dy, for a block of keys and a
   block of queries:

     P = 2^(K Q^T - lse);  dS = P (V dY^T - delta);  dV += P dY;  dK += dS Q;  dQ += dS^T K

   With a cap, P times its slope is stored where dS will be, and is the factor of dS.

   Sums of the first two start at -lse and -delta (where the mask excludes a key: at a score whose
   power is 0) and are finished in the registers of their tiles. Q is read times scale and log2 e;
   this factor is removed when dK and dQ are written. --quick: a mask is asked in every block.

   Query blocks are the outer loop: dQ of one block and dK, dV of all keys are in scratch. A chunk
   owns what it writes: a head of k and v with all its groups. If that gives too few chunks the work
   is done in two phases over the scores: first dK and dV of a range of keys, then dQ of a range of
   queries. Sums run in the order of the loops, so they never change. */
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

static int64_t block(const Backward *backward) { return backward->a.p.tile[FLASH_QUERY_BLOCK]; }

static void give_scratch(Backward *backward) {
  Attention *attention = &backward->a;
  int64_t width = attention->p.width, all = attention->p.keys * width, queries = block(backward),
          keys = attention->p.tile[FLASH_KEY_BLOCK];
  attention->next_scratch = attention->e->scratch;
  memset(attention->prefetch, 0, sizeof attention->prefetch); /* variables are a phase's own */
  backward->keys = attention_scratch(attention, all),
  backward->values = attention_scratch(attention, all);
  backward->dk = attention_scratch(attention, all),
  backward->dv = attention_scratch(attention, all);
  backward->q = attention_scratch(attention, queries * width),
  backward->dy = attention_scratch(attention, queries * width);
  backward->dq = attention_scratch(attention, queries * width);
  backward->qt = attention_scratch(attention, queries * width),
  backward->dyt = attention_scratch(attention, queries * width);
  backward->p = attention_scratch(attention, keys * queries),
  backward->ds = attention_scratch(attention, keys * queries);
  backward->lse = attention_scratch(attention, queries),
  backward->delta = attention_scratch(attention, queries);
}

/* ---- a block of queries ---- */

static void transpose_tiles(Backward *backward, LLVMValueRef rows, LLVMValueRef tiles) {
  Attention *attention = &backward->a;
  int64_t n = attention->p.tile_queries;
  Loop loop = emit_loop(attention->e, emit_i64(attention->e, 0),
                        emit_i64(attention->e, block(backward)), n, 0, NULL);
  LLVMValueRef from = attention_at(attention, rows, loop.i, attention->p.width),
               to = attention_at(attention, tiles, loop.i, attention->p.width);
  attention_transpose(attention, from, attention->p.width, to, n, n, attention->p.width);
  emit_loop_end(attention->e, &loop);
}

/* delta from the rows of y, which are in the buffer that dq uses later */
static void find_delta(Backward *backward) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  LLVMValueRef zero = LLVMConstNull(attention->vector);
  Loop q = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, block(backward)), 1, 0, NULL);
  Loop d = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, attention->p.width),
                     attention->p.lanes, 1, &zero);
  LLVMValueRef at = tile_add(emit, tile_times(emit, q.i, attention->p.width), d.i);
  d.next[0] = emit_fma(emit, attention_load(attention, backward->dq, at),
                       attention_load(attention, backward->dy, at), d.phi[0]);
  emit_loop_end(emit, &d);
  LLVMValueRef delta = LLVMBuildFNeg(emit->builder, math_across(emit, OP_sum, d.phi[0]), "");
  LLVMBuildStore(emit->builder, delta, tile_elements(emit, attention->f32, backward->delta, q.i));
  emit_loop_end(emit, &q);
}

static void find_lse(Backward *backward) { /* in units of log 2 */
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, block(backward)),
                        attention->p.lanes, 0, NULL);
  Point p = attention_queries(attention, tile_add(emit, backward->s0, loop.i));
  LLVMValueRef x = LLVMBuildFMul(emit->builder, expr_load(emit, attention->f.lse, &p),
                                 attention_splat(attention, -LOG2_E), "");
  if (p.mask) x = LLVMBuildSelect(emit->builder, p.mask, x, LLVMConstNull(attention->vector), "");
  attention_store(attention, x, backward->lse, loop.i);
  emit_loop_end(emit, &loop);
}

static void start_block(Backward *backward) {
  Attention *attention = &backward->a;
  const Flash *flash = &attention->f;
  LLVMValueRef all = emit_i64(attention->e, block(backward));
  attention_read(attention, flash->q, flash->query, backward->s0, flash->queries, all, backward->q,
                 attention->f.scale * LOG2_E);
  attention_read(attention, flash->dy, flash->query, backward->s0, flash->queries, all,
                 backward->dy, 1);
  attention_read(attention, flash->y, flash->query, backward->s0, flash->queries, all, backward->dq,
                 1);
  transpose_tiles(backward, backward->q, backward->qt);
  transpose_tiles(backward, backward->dy, backward->dyt);
  find_delta(backward);
  find_lse(backward);
  attention_zero(attention, backward->dq,
                 emit_i64(attention->e, block(backward) * attention->p.width));
}

/* ---- a block of scores ---- */

typedef struct Scores { /* some queries against a block of keys */
  LLVMValueRef t;       /* the first of them within the block */
  int vectors;          /* of queries; they are in one tile */
  LLVMValueRef k0, rows;
  bool whole; /* no mask needs to be asked */
} Scores;

/* Where column t of the block is in the transposed rows, which are kept per tile. */
static LLVMValueRef transposed(Backward *backward, LLVMValueRef tiles, LLVMValueRef t) {
  Attention *attention = &backward->a;
  LLVMValueRef lane = LLVMBuildURem(attention->e->builder, t,
                                    emit_i64(attention->e, attention->p.tile_queries), "");
  LLVMValueRef first = LLVMBuildNSWSub(attention->e->builder, t, lane, "");
  return tile_elements(attention->e, attention->f32,
                       attention_at(attention, tiles, first, attention->p.width), lane);
}

/* P and dS, each finished in the registers of its tile. */
static void make_scores(Backward *backward, const Scores *scores) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  const FlashPlan *plan = &attention->p;
  LLVMValueRef width = emit_i64(emit, attention->f.width);
  TileShape shape = {.rows = (int)plan->tile[FLASH_ROWS],
                     .vectors = scores->vectors,
                     .a_row = plan->width,
                     .a_step = 1,
                     .b_step = plan->tile_queries,
                     .c_row = block(backward)};
  LLVMValueRef probabilities = tile_elements(emit, attention->f32, backward->p, scores->t),
               slopes = tile_elements(emit, attention->f32, backward->ds, scores->t);
  bool capped = attention->f.cap != 0, row = scores->whole && attention->f.bias == NO_VALUE;
  Operands x = {attention_at(attention, backward->keys, scores->k0, plan->width),
                transposed(backward, backward->qt, scores->t),
                probabilities,
                tile_elements(emit, attention->f32, backward->lse, scores->t),
                {.factor = capped ? slopes : NULL}};
  Operands d = {attention_at(attention, backward->values, scores->k0, plan->width),
                transposed(backward, backward->dyt, scores->t),
                slopes,
                tile_elements(emit, attention->f32, backward->delta, scores->t),
                {.factor = capped ? slopes : probabilities}};
  shape.start = row ? START_ROW : START_SUMS, shape.end = END_POWERS;
  shape.capped = capped;
  if (!row)
    attention_fill(attention, tile_add(emit, backward->s0, scores->t), scores->vectors, scores->k0,
                   scores->rows, x.row, !scores->whole, probabilities, block(backward));
  attention_product(attention, shape, shape.vectors, x, scores->rows, width);
  bool drops = attention->f.kept != NO_VALUE;
  shape.start = drops ? START_ZERO : START_ROW, shape.end = drops ? END_SUMS : END_TIMES;
  shape.capped = false;
  attention_product(attention, shape, shape.vectors, d, scores->rows, width);
  if (drops)
    attention_drop(attention, tile_add(emit, backward->s0, scores->t), scores->vectors, scores->k0,
                   scores->rows, probabilities, slopes, d.row, block(backward));
}

/* ---- gradients ---- */

/* Vectors of a register tile over the width: as many as the tile has, in equal parts. */
static int width_vectors(const FlashPlan *plan) {
  int64_t all = plan->width / plan->lanes, most = plan->tile[FLASH_VECTORS];
  int64_t parts = (all + most - 1) / most;
  return (int)((all + parts - 1) / parts);
}

/* Queries [from, to) of the block, and how many of them at a time */
typedef struct GradientPart {
  Range queries;
  int vectors;
} GradientPart;

/* Tiles that add to rows of a gradient, as wide as a head; a_row and a_step are the distances in
   elements from row to row of A, and from step to step. */
static TileShape sums_shape(const Backward *backward, int64_t a_row, int64_t a_step) {
  const FlashPlan *plan = &backward->a.p;
  return (TileShape){.rows = (int)plan->tile[FLASH_ROWS],
                     .vectors = width_vectors(plan),
                     .a_row = a_row,
                     .a_step = a_step,
                     .b_step = plan->width,
                     .c_row = plan->width,
                     .start = START_SUMS,
                     .end = END_SUMS};
}

/* dQ: some queries after the other, of which a tile's rows may leave a rest. */
static void add_to_queries(Backward *backward, LLVMValueRef k0, LLVMValueRef rows,
                           const GradientPart *part) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  int64_t width = attention->p.width, n = part->vectors * attention->p.lanes;
  TileShape shape = sums_shape(backward, 1, block(backward));
  Loop loop = emit_loop(emit, part->queries.from, part->queries.to, n, 0, NULL);
  Operands dq = {.A = tile_elements(emit, attention->f32, backward->ds, loop.i),
                 .B = attention_at(attention, backward->keys, k0, width),
                 .C = attention_at(attention, backward->dq, loop.i, width)};
  attention_product(attention, shape, width / attention->p.lanes, dq, emit_i64(emit, n), rows);
  emit_loop_end(emit, &loop);
}

static void add_to_keys(Backward *backward, LLVMValueRef k0, LLVMValueRef rows, Range queries) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  int64_t width = attention->p.width, vectors = width / attention->p.lanes;
  TileShape shape = sums_shape(backward, block(backward), 1);
  LLVMValueRef n = LLVMBuildNSWSub(emit->builder, queries.to, queries.from, "");
  Operands dv = {.A = tile_elements(emit, attention->f32, backward->p, queries.from),
                 .B = attention_at(attention, backward->dy, queries.from, width),
                 .C = attention_at(attention, backward->dv, k0, width)};
  Operands dk = {.A = tile_elements(emit, attention->f32, backward->ds, queries.from),
                 .B = attention_at(attention, backward->q, queries.from, width),
                 .C = attention_at(attention, backward->dk, k0, width)};
  attention_product(attention, shape, vectors, dv, rows, n);
  attention_product(attention, shape, vectors, dk, rows, n);
}

/* Keys [k0, end) */
static void scores_block(Backward *backward, LLVMValueRef k0, LLVMValueRef end, GradientPart part,
                         bool whole) {
  Emit *emit = backward->a.e;
  LLVMValueRef rows = LLVMBuildNSWSub(emit->builder, end, k0, "");
  Loop loop = emit_loop(emit, part.queries.from, part.queries.to,
                        part.vectors * backward->a.p.lanes, 0, NULL);
  Scores scores = {loop.i, part.vectors, k0, rows, whole};
  make_scores(backward, &scores);
  emit_loop_end(emit, &loop);
  if (backward->want_kv) add_to_keys(backward, k0, rows, part.queries);
  if (backward->want_q) add_to_queries(backward, k0, rows, &part);
}

static LLVMValueRef last_query(Backward *backward, LLVMValueRef to) {
  Emit *emit = backward->a.e;
  return emit_min_i64(emit, tile_add(emit, backward->s0, to),
                      emit_i64(emit, backward->a.f.queries));
}

static LLVMValueRef is_less(Backward *backward, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildICmp(backward->a.e->builder, LLVMIntSLT, x, y, "");
}

/* Some queries of a tile, which begins at t: from the first to the last key that they need. */
static void mixed_part(Backward *backward, LLVMValueRef k0, LLVMValueRef end, LLVMValueRef t) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  int vectors = attention_mixed_vectors(attention);
  LLVMValueRef to = tile_add(emit, t, emit_i64(emit, vectors * attention->p.lanes));
  GradientPart part = {{t, emit_min_i64(emit, to, backward->count)}, vectors};
  LLVMValueRef q0 = tile_add(emit, backward->s0, t), q1 = last_query(backward, part.queries.to);
  Range seen = attention_seen_keys(attention, q0, q1, k0, end);
  Branch some = emit_if(emit, is_less(backward, seen.from, seen.to));
  scores_block(backward, seen.from, seen.to, part, false);
  emit_end_if(emit, some);
}

/* A block that the mask admits in part. For each tile of queries: keys that all of them see, then
   the others, a few queries at a time. */
static void mixed_block(Backward *backward, LLVMValueRef k0, LLVMValueRef end) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  LLVMValueRef each = emit_i64(emit, attention->p.tile_queries);
  Loop t = emit_loop(emit, emit_i64(emit, 0), backward->count, attention->p.tile_queries, 0, NULL);
  GradientPart part = {{t.i, emit_min_i64(emit, tile_add(emit, t.i, each), backward->count)},
                       (int)attention->p.tile[FLASH_VECTORS]};
  LLVMValueRef mixed = k0;
  if (!emit->quick) {
    mixed = attention_whole_keys(attention, tile_add(emit, backward->s0, t.i),
                                 last_query(backward, part.queries.to), k0, end);
    Branch whole = emit_if(emit, is_less(backward, k0, mixed));
    scores_block(backward, k0, mixed, part, true);
    emit_end_if(emit, whole);
  }
  Branch rest = emit_if(emit, is_less(backward, mixed, end));
  Loop p = emit_loop(emit, t.i, part.queries.to,
                     attention_mixed_vectors(attention) * attention->p.lanes, 0, NULL);
  mixed_part(backward, mixed, end, p.i);
  emit_loop_end(emit, &p);
  emit_end_if(emit, rest);
  emit_loop_end(emit, &t);
}

/* Some queries at a time, where `mask` admits them. */
static void mixed_parts(Backward *backward, const AttentionRect *rect, GradientPart gradient_part,
                        ValueId mask) {
  Backward part = *backward;
  Emit *emit = backward->a.e;
  part.a.f.mask = mask;
  Loop loop = emit_loop(emit, gradient_part.queries.from, gradient_part.queries.to,
                        attention_mixed_vectors(&backward->a) * backward->a.p.lanes, 0, NULL);
  mixed_part(&part, rect->keys.from, rect->keys.to, loop.i);
  emit_loop_end(emit, &loop);
}

static void listed_keys(Backward *backward, AttentionRect *rect) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  attention_ask_data(attention, rect);
  GradientPart part = {{rect->queries.from, emit_min_i64(emit, rect->queries.to, backward->count)},
                       (int)attention->p.tile[FLASH_VECTORS]};
  bool data = attention->lists.rest != NO_VALUE;
  if (!data || attention->lists.by_key) {
    Branch whole = emit_if(emit, attention_rect_is(attention, rect, RUN_WHOLE));
    scores_block(backward, rect->keys.from, rect->keys.to, part, true);
    emit_end_if(emit, whole);
  }
  Branch rest = emit_if(emit, attention_rect_is(attention, rect, data ? RUN_DATA : RUN_REST));
  if (data) mixed_parts(backward, rect, part, attention->lists.rest);
  else {
    Backward plain = *backward;
    plain.a.f.mask = NO_VALUE;
    scores_block(&plain, rect->keys.from, rect->keys.to, part, false);
  }
  emit_end_if(emit, rest);
  Branch mixed = emit_if(emit, attention_rect_is(attention, rect, RUN_MIXED));
  mixed_parts(backward, rect, part, attention->f.mask);
  emit_end_if(emit, mixed);
}

/* The listed keys of the block of queries, in blocks [keys) of the head. */
static void listed_keys_of_block(Backward *backward, Range keys) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  LLVMBuilderRef build = emit->builder;
  int64_t wide = attention->p.tile[FLASH_KEY_BLOCK];
  LLVMValueRef from = tile_times(emit, keys.from, wide), to = tile_times(emit, keys.to, wide);
  AttentionRect rect = attention_rects(attention, backward->s0);
  LLVMValueRef mine =
      LLVMBuildAnd(build, LLVMBuildICmp(build, LLVMIntSLE, from, rect.keys.from, ""),
                   LLVMBuildICmp(build, LLVMIntSLT, rect.keys.from, to, ""), "");
  Branch own = emit_if(emit, mine);
  listed_keys(backward, &rect);
  emit_end_if(emit, own);
  emit_loop_end(emit, &rect.loop);
}

static void key_block(Backward *backward, LLVMValueRef k0) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  LLVMValueRef end = tile_add(emit, k0, emit_i64(emit, attention->p.tile[FLASH_KEY_BLOCK]));
  end = emit_min_i64(emit, end, emit_i64(emit, attention->f.keys));
  MaskFacts facts = attention_facts(attention, backward->s0,
                                    tile_add(emit, backward->s0, backward->count), k0, end);
  LLVMValueRef mixed = facts.some;
  if (!emit->quick || attention->f.mask == NO_VALUE) {
    Branch whole = emit_if(emit, facts.all);
    GradientPart all = {{emit_i64(emit, 0), backward->count},
                        (int)attention->p.tile[FLASH_VECTORS]};
    scores_block(backward, k0, end, all, true);
    emit_end_if(emit, whole);
    mixed = LLVMBuildAnd(emit->builder, mixed, LLVMBuildNot(emit->builder, facts.all, ""), "");
  }
  if (attention->f.mask == NO_VALUE) return;
  Branch part = emit_if(emit, mixed);
  mixed_block(backward, k0, end);
  emit_end_if(emit, part);
}

static void all_keys(Backward *backward, Range keys) {
  Emit *emit = backward->a.e;
  Loop loop = emit_loop(emit, keys.from, keys.to, 1, 0, NULL);
  key_block(backward, tile_times(emit, loop.i, backward->a.p.tile[FLASH_KEY_BLOCK]));
  emit_loop_end(emit, &loop);
}

/* While a block of queries is worked on: rows of the next one, and the results of this one. */
static void ask_for_rows(Backward *backward) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  Prefetch *list = &attention->prefetch[PREFETCH_BLOCK];
  int64_t last = attention->f.queries - block(backward);
  LLVMValueRef next = tile_add(emit, backward->s0, emit_i64(emit, block(backward)));
  next = emit_min_i64(emit, next, emit_i64(emit, last > 0 ? last : 0));
  Point head = attention_point(attention);
  attention_prefetch_start(attention, list, backward->count);
  attention_prefetch_add(attention, list, attention->f.q, attention->f.query, &head, next, false);
  attention_prefetch_add(attention, list, attention->f.dy, attention->f.query, &head, next, false);
  attention_prefetch_add(attention, list, attention->f.y, attention->f.query, &head, next, false);
  if (backward->want_q)
    attention_prefetch_add(attention, list, attention->f.dq, attention->f.query, &head,
                           backward->s0, true);
}

/* While a head is worked on: keys and values of the next one. */
static void ask_for_keys(Backward *backward) {
  Attention next = backward->a;
  Emit *emit = next.e;
  LLVMValueRef n = tile_add(emit, next.shared, emit_i64(emit, 1));
  next.shared = emit_min_i64(emit, n, emit_i64(emit, next.f.shared.count - 1));
  next.group = emit_i64(emit, 0);
  attention_prefetch_keys(&backward->a, &next);
}

static void query_block(Backward *backward, LLVMValueRef i, Range keys) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  backward->s0 = tile_times(emit, i, block(backward));
  LLVMValueRef left =
      LLVMBuildNSWSub(emit->builder, emit_i64(emit, attention->f.queries), backward->s0, "");
  backward->count = emit_min_i64(emit, left, emit_i64(emit, block(backward)));
  start_block(backward);
  ask_for_rows(backward);
  if (attention->lists.present) listed_keys_of_block(backward, keys);
  else all_keys(backward, keys);
  if (backward->want_q)
    attention_write(attention, attention->f.dq, attention->f.query, backward->s0,
                    attention->f.queries, backward->count, backward->dq, attention->f.scale);
}

/* Keys and values of blocks [keys) of the head; their gradients to 0. Returns first and number of
 * rows. */
static Range start_keys(Backward *backward, Range keys) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  const Flash *flash = &attention->f;
  int64_t width = attention->p.width, each = attention->p.tile[FLASH_KEY_BLOCK];
  LLVMValueRef from = tile_times(emit, keys.from, each);
  LLVMValueRef to =
      emit_min_i64(emit, tile_times(emit, keys.to, each), emit_i64(emit, attention->p.keys));
  LLVMValueRef n = LLVMBuildNSWSub(emit->builder, to, from, ""),
               floats = tile_times(emit, n, width);
  attention_read(attention, flash->k, flash->key, from, flash->keys, n,
                 attention_at(attention, backward->keys, from, width), 1);
  attention_read(attention, flash->v, flash->key, from, flash->keys, n,
                 attention_at(attention, backward->values, from, width), 1);
  if (backward->want_kv) {
    attention_zero(attention, attention_at(attention, backward->dk, from, width), floats);
    attention_zero(attention, attention_at(attention, backward->dv, from, width), floats);
  }
  return (Range){from, n};
}

static void head(Backward *backward, LLVMValueRef shared, Range groups, Range queries, Range keys) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  attention->shared = shared, attention->group = groups.from;
  Range rows = start_keys(backward, keys);
  if (attention->p.phases == 1) ask_for_keys(backward);
  Loop g = emit_loop(emit, groups.from, groups.to, 1, 0, NULL);
  attention->group = g.i;
  Loop q = emit_loop(emit, queries.from, queries.to, 1, 0, NULL);
  query_block(backward, q.i, keys);
  emit_loop_end(emit, &q);
  emit_loop_end(emit, &g);
  attention->group = groups.from;
  if (!backward->want_kv) return;
  LLVMValueRef dk = attention_at(attention, backward->dk, rows.from, attention->p.width),
               dv = attention_at(attention, backward->dv, rows.from, attention->p.width);
  attention_write(attention, attention->f.dk, attention->f.key, rows.from, attention->f.keys,
                  rows.to, dk, LN_2);
  attention_write(attention, attention->f.dv, attention->f.key, rows.from, attention->f.keys,
                  rows.to, dv, 1);
}

static Range whole(Emit *emit, int64_t n) { return (Range){emit_i64(emit, 0), emit_i64(emit, n)}; }

static void begin(Backward *backward, int phase, bool want_q, bool want_kv) {
  emit_begin_phase(backward->a.e, phase);
  backward->want_q = want_q, backward->want_kv = want_kv;
  give_scratch(backward);
}

static Range one(Emit *emit, LLVMValueRef i) {
  return (Range){i, tile_add(emit, i, emit_i64(emit, 1))};
}

/* All of a head of keys and values, with the heads of queries that share them. */
static void whole_head(Backward *backward, LLVMValueRef shared) {
  const Attention *attention = &backward->a;
  Emit *emit = attention->e;
  head(backward, shared, whole(emit, attention->f.group.count),
       whole(emit, attention->p.query_blocks), whole(emit, attention->p.key_blocks));
}

/* dk and dv of blocks of keys. */
static void head_keys(Backward *backward, LLVMValueRef shared, Range keys) {
  Emit *emit = backward->a.e;
  head(backward, shared, whole(emit, backward->a.f.group.count),
       whole(emit, backward->a.p.query_blocks), keys);
}

/* dq of blocks of queries of a head of queries. */
static void head_queries(Backward *backward, LLVMValueRef h, Range queries) {
  Emit *emit = backward->a.e;
  LLVMValueRef groups = emit_i64(emit, backward->a.f.group.count);
  head(backward, LLVMBuildUDiv(emit->builder, h, groups, ""),
       one(emit, LLVMBuildURem(emit->builder, h, groups, "")), queries,
       whole(emit, backward->a.p.key_blocks));
}

typedef void HeadWork(Backward *b, LLVMValueRef head, Range blocks);

/* The chunk's part of a phase: by units of the lists, else part i % parts of head i / parts. */
static void chunk(Backward *backward, int phase, int64_t blocks, int64_t parts, HeadWork *work) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  if (!attention->lists.present) {
    LLVMValueRef n = emit_i64(emit, parts);
    Range part = tile_range(emit, LLVMBuildURem(emit->builder, emit->chunk, n, ""), blocks, parts);
    work(backward, LLVMBuildUDiv(emit->builder, emit->chunk, n, ""), part);
    return;
  }
  Range units = attention_chunk(attention, phase),
        heads = attention_chunk_heads(attention, phase, units);
  Loop loop = emit_loop(emit, heads.from, heads.to, 1, 0, NULL);
  work(backward, loop.i, attention_chunk_units(attention, phase, units, loop.i));
  emit_loop_end(emit, &loop);
}

static void one_phase(Backward *backward) {
  Attention *attention = &backward->a;
  Emit *emit = attention->e;
  begin(backward, 0, true, true);
  Range heads = attention->lists.present ? attention_chunk(attention, 0)
                                         : tile_range(emit, emit->chunk, attention->f.shared.count,
                                                      attention->p.tile[FLASH_HEADS]);
  Loop loop = emit_loop(emit, heads.from, heads.to, 1, 0, NULL);
  whole_head(backward, loop.i);
  emit_loop_end(emit, &loop);
  emit_end_phase(emit);
}

static void two_phases(Backward *backward) {
  const FlashPlan *plan = &backward->a.p;
  begin(backward, 0, false, true);
  chunk(backward, 0, plan->key_blocks, plan->tile[FLASH_KEY_PARTS], head_keys);
  emit_end_phase(backward->a.e);
  begin(backward, 1, true, false);
  chunk(backward, 1, plan->query_blocks, plan->tile[FLASH_PARTS], head_queries);
  emit_end_phase(backward->a.e);
}

void attention_grad_emit(Emit *emit) {
  Backward backward = {.a = attention_new(emit)};
  if (backward.a.p.phases > 1) two_phases(&backward);
  else one_phase(&backward);
}
