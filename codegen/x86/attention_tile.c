/* Register tiles of attention: all operands are in scratch as f32, padded to whole tiles, so one
   shape per product is enough. The inner loop is that of the contract family: b's vectors, then per
   row one element of a, broadcast. The further computation on each score is done while it is still
   in its register, concurrently with the next tile's multiply-adds. --quick: tiles of one register,
   which are the least code. */
#include "attention.h"

enum { UNROLL = 8 };

const double attention_nothing = -1e30;

Attention attention_new(Emit *emit) {
  Attention attention = {.e = emit, .f = flash_of(emit->k)};
  const Attr *tile = attr_get(&emit->k->attrs, ATTR_tile);
  if (!tile || tile->i != FLASH_COUNT)
    bug("kernel %s has no tile of %d numbers", emit->k->name, FLASH_COUNT);
  must(flash_fits(emit->m, &attention.f, tile->list), "kernel %s: a cut that does not fit",
       emit->k->name);
  attention.p = flash_plan(&attention.f, emit->lanes, tile->list);
  attention.f32 = emit_type(emit, ELEM_f32),
  attention.vector = emit_vector(emit, ELEM_f32, emit->lanes),
  attention.i64 = emit_type(emit, ELEM_i64);
  attention.ptr = LLVMPointerTypeInContext(emit->context, 0);
  attention.tiles = ARENA_NEW(emit->arena, TileCode *);
  attention_make_lists(&attention);
  return attention;
}

LLVMValueRef attention_splat(Attention *attention, double x) {
  return emit_splat(attention->e, emit_f32(attention->e, x), attention->p.lanes);
}

LLVMValueRef attention_max(Emit *emit, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildSelect(emit->builder, LLVMBuildFCmp(emit->builder, LLVMRealOGT, a, b, ""), a, b,
                         "");
}

LLVMValueRef attention_any(Emit *emit, LLVMValueRef lanes) {
  return emit_intrinsic(emit, "llvm.vector.reduce.or", LLVMTypeOf(lanes), 1, &lanes);
}

LLVMValueRef attention_scratch(Attention *attention, int64_t floats) {
  must(attention->next_scratch && floats >= 0, "kernel %s: scratch is given out in a phase",
       attention->e->k->name);
  LLVMValueRef at = attention->next_scratch;
  attention->next_scratch =
      tile_elements(attention->e, attention->f32, at, emit_i64(attention->e, floats));
  return at;
}

LLVMValueRef attention_at(Attention *attention, LLVMValueRef base, LLVMValueRef row,
                          int64_t row_floats) {
  return tile_elements(attention->e, attention->f32, base,
                       tile_times(attention->e, row, row_floats));
}

LLVMValueRef attention_load(Attention *attention, LLVMValueRef base, LLVMValueRef offset) {
  LLVMValueRef x = LLVMBuildLoad2(attention->e->builder, attention->vector,
                                  tile_elements(attention->e, attention->f32, base, offset), "");
  LLVMSetAlignment(x, 4);
  return x;
}

void attention_store(Attention *attention, LLVMValueRef x, LLVMValueRef base, LLVMValueRef offset) {
  LLVMSetAlignment(LLVMBuildStore(attention->e->builder, x,
                                  tile_elements(attention->e, attention->f32, base, offset)),
                   4);
}

void attention_zero(Attention *attention, LLVMValueRef base, LLVMValueRef floats) {
  Loop loop =
      emit_loop(attention->e, emit_i64(attention->e, 0), floats, attention->p.lanes, 0, NULL);
  attention_store(attention, LLVMConstNull(attention->vector), base, loop.i);
  emit_loop_end(attention->e, &loop);
}

/* ---- one tile ---- */

typedef struct TileBuild {
  Attention *a;
  TileShape s;
  int n;
  LLVMValueRef value[MAX_CARRIED]; /* accumulators, pointers into A and B */
} TileBuild;

static LLVMValueRef offset_of(TileBuild *build, LLVMValueRef base, int64_t floats) {
  return tile_elements(build->a->e, build->a->f32, base, emit_i64(build->a->e, floats));
}

static void step(TileBuild *build, LLVMValueRef pa, LLVMValueRef pb, int i) {
  Attention *attention = build->a;
  Emit *emit = attention->e;
  LLVMValueRef b[8];
  for (int v = 0; v < build->s.vectors; v++)
    b[v] =
        attention_load(attention, pb, emit_i64(emit, i * build->s.b_step + v * attention->p.lanes));
  for (int r = 0; r < build->s.rows; r++) {
    LLVMValueRef x =
        LLVMBuildLoad2(emit->builder, attention->f32,
                       offset_of(build, pa, i * build->s.a_step + r * build->s.a_row), "");
    x = emit_splat(emit, x, attention->p.lanes);
    for (int v = 0; v < build->s.vectors; v++) {
      LLVMValueRef *acc = &build->value[r * build->s.vectors + v];
      *acc = emit_fma(emit, x, b[v], *acc);
    }
  }
}

static void run_steps(TileBuild *build, LLVMValueRef from, LLVMValueRef to, int unroll) {
  Loop loop = emit_loop(build->a->e, from, to, unroll, build->n + 2, build->value);
  for (int i = 0; i < build->n; i++) build->value[i] = loop.phi[i];
  for (int i = 0; i < unroll; i++) step(build, loop.phi[build->n], loop.phi[build->n + 1], i);
  for (int i = 0; i < build->n; i++) loop.next[i] = build->value[i];
  loop.next[build->n] = offset_of(build, loop.phi[build->n], unroll * build->s.a_step);
  loop.next[build->n + 1] = offset_of(build, loop.phi[build->n + 1], unroll * build->s.b_step);
  emit_loop_end(build->a->e, &loop);
  for (int i = 0; i < build->n + 2; i++) build->value[i] = loop.phi[i];
}

enum { TILE_A, TILE_B, TILE_C, TILE_ROW, TILE_END, TILE_N, TILE_ARGS };

static LLVMTypeRef tile_type(Attention *attention) {
  LLVMTypeRef t[] = {attention->ptr, attention->ptr, attention->ptr,
                     attention->ptr, attention->ptr, attention->i64};
  return LLVMFunctionType(LLVMVoidTypeInContext(attention->e->context), t, TILE_ARGS, 0);
}

static LLVMValueRef sum_offset(TileBuild *build, int i) {
  return emit_i64(build->a->e,
                  i / build->s.vectors * build->s.c_row + i % build->s.vectors * build->a->p.lanes);
}

static LLVMValueRef vector_offset(TileBuild *build, int v) {
  return emit_i64(build->a->e, v * build->a->p.lanes);
}

static LLVMValueRef started(TileBuild *build, LLVMValueRef f, int i) {
  LLVMValueRef from = LLVMGetParam(f, build->s.start == START_ROW ? TILE_ROW : TILE_C);
  if (build->s.start == START_ZERO) return LLVMConstNull(build->a->vector);
  return attention_load(build->a, from,
                        build->s.start == START_ROW ? vector_offset(build, i % build->s.vectors)
                                                    : sum_offset(build, i));
}

static void start(TileBuild *build, LLVMValueRef f) {
  LLVMValueRef row[8] = {0};
  for (int i = 0; i < build->n; i++) {
    int v = i % build->s.vectors;
    bool alike = build->s.start != START_SUMS;
    if (!alike || i == v)
      row[v] = build->s.capped ? LLVMConstNull(build->a->vector) : started(build, f, i);
    build->value[i] = row[v];
  }
  build->value[build->n] = LLVMGetParam(f, TILE_A),
  build->value[build->n + 1] = LLVMGetParam(f, TILE_B);
}

/* The capped sum and the start; slope: of the cap. */
static LLVMValueRef capped(TileBuild *build, LLVMValueRef f, int i, LLVMValueRef *slope) {
  if (!build->s.capped) return build->value[i];
  AttentionHead head = attention_head(build->a);
  CappedScore score = attention_head_cap(&head, build->value[i]);
  *slope = score.slope;
  if (build->s.start == START_ZERO) return score.score;
  return LLVMBuildFAdd(build->a->e->builder, score.score, started(build, f, i), "");
}

static LLVMValueRef powers(TileBuild *build, LLVMValueRef f, int i, LLVMValueRef x,
                           LLVMValueRef slope) {
  Emit *emit = build->a->e;
  LLVMValueRef p = math_exp2(emit, x);
  if (build->s.capped)
    attention_store(build->a, LLVMBuildFMul(emit->builder, p, slope, ""), LLVMGetParam(f, TILE_END),
                    sum_offset(build, i));
  return p;
}

static LLVMValueRef ended(TileBuild *build, LLVMValueRef f, int i) {
  Emit *emit = build->a->e;
  LLVMValueRef slope = NULL, x = capped(build, f, i, &slope);
  switch (build->s.end) {
  case END_SUMS:
  case END_MOST: return x;
  case END_POWERS: return powers(build, f, i, x, slope);
  case END_ADDED_POWERS: return math_exp2(emit, x);
  case END_TIMES:
    return LLVMBuildFMul(emit->builder, x,
                         attention_load(build->a, LLVMGetParam(f, TILE_END), sum_offset(build, i)),
                         "");
  }
  bug("a tile that ends in %d", (int)build->s.end);
}

static bool joins(const TileShape *shape) {
  return shape->end == END_MOST || shape->end == END_ADDED_POWERS;
}

/* One line for all rows of each column: maxima, or totals. */
static void join_rows(TileBuild *build, LLVMValueRef row) {
  Emit *emit = build->a->e;
  for (int v = 0; v < build->s.vectors; v++) {
    LLVMValueRef all = build->value[v];
    for (int r = 1; r <= build->s.rows; r++) {
      LLVMValueRef x = r < build->s.rows ? build->value[r * build->s.vectors + v]
                                         : attention_load(build->a, row, vector_offset(build, v));
      all = build->s.end == END_MOST ? attention_max(emit, x, all)
                                     : LLVMBuildFAdd(emit->builder, x, all, "");
    }
    attention_store(build->a, all, row, vector_offset(build, v));
  }
}

static LLVMValueRef build_tile(Attention *attention, TileShape shape, int serial) {
  Emit *emit = attention->e;
  TileBuild build = {.a = attention, .s = shape, .n = shape.rows * shape.vectors};
  if (build.n + 2 > MAX_CARRIED) bug("a tile of %d accumulators", build.n);
  Aside aside = tile_aside(emit, arena_printf(emit->arena, "tile%d", serial), tile_type(attention));
  start(&build, aside.function);
  LLVMValueRef n = LLVMGetParam(aside.function, TILE_N);
  LLVMValueRef most = LLVMBuildAnd(emit->builder, n, emit_i64(emit, -UNROLL), "");
  if (emit->quick) most = emit_i64(emit, 0);
  else run_steps(&build, emit_i64(emit, 0), most, UNROLL);
  run_steps(&build, most, n, 1);
  for (int i = 0; i < build.n; i++) {
    build.value[i] = ended(&build, aside.function, i);
    attention_store(attention, build.value[i], LLVMGetParam(aside.function, TILE_C),
                    sum_offset(&build, i));
  }
  if (joins(&shape) && !emit->quick) join_rows(&build, LLVMGetParam(aside.function, TILE_END));
  tile_aside_end(emit, &aside);
  return aside.function;
}

static bool same_shape(const TileShape *a, const TileShape *b) {
  return a->rows == b->rows && a->vectors == b->vectors && a->a_row == b->a_row &&
         a->a_step == b->a_step && a->b_step == b->b_step && a->c_row == b->c_row &&
         a->start == b->start && a->end == b->end && a->capped == b->capped;
}

static LLVMValueRef tile_function(Attention *attention, TileShape shape) {
  int serial = 0;
  for (TileCode *t = *attention->tiles; t; t = t->next, serial++)
    if (same_shape(&t->shape, &shape)) return t->function;
  TileCode *t = ARENA_NEW(attention->e->arena, TileCode);
  *t = (TileCode){*attention->tiles, shape, build_tile(attention, shape, serial)};
  *attention->tiles = t;
  return t->function;
}

typedef void ProductTile(Attention *a, TileShape s, LLVMValueRef at, Operands operands,
                         LLVMValueRef r, LLVMValueRef n);

/* The tile at row r of a column. */
static void product_tile(Attention *attention, TileShape shape, LLVMValueRef at, Operands operands,
                         LLVMValueRef r, LLVMValueRef n) {
  Emit *emit = attention->e;
  LLVMValueRef args[TILE_ARGS] = {
      [TILE_A] = attention_at(attention, operands.A, r, shape.a_row),
      [TILE_B] = tile_elements(emit, attention->f32, operands.B, at),
      [TILE_C] = tile_elements(emit, attention->f32,
                               attention_at(attention, operands.C, r, shape.c_row), at),
      [TILE_ROW] = LLVMGetUndef(attention->ptr),
      [TILE_END] = LLVMGetUndef(attention->ptr),
      [TILE_N] = n};
  if (shape.start == START_ROW)
    args[TILE_ROW] = tile_elements(emit, attention->f32, operands.row, at);
  if (joins(&shape)) args[TILE_END] = tile_elements(emit, attention->f32, operands.most, at);
  if (shape.end == END_TIMES || (shape.end == END_POWERS && shape.capped))
    args[TILE_END] = tile_elements(emit, attention->f32,
                                   attention_at(attention, operands.factor, r, shape.c_row), at);
  attention_prefetch(attention);
  LLVMBuildCall2(emit->builder, tile_type(attention), tile_function(attention, shape), args,
                 TILE_ARGS, "");
}

/* --quick: row by row, which are then joined in the order of a tile. */
static void product_rows(Attention *attention, TileShape shape, LLVMValueRef at, Operands operands,
                         LLVMValueRef r, LLVMValueRef n) {
  Emit *emit = attention->e;
  TileShape one = shape;
  one.rows = 1;
  LLVMValueRef end = tile_add(emit, r, emit_i64(emit, shape.rows));
  Loop row = emit_loop(emit, r, end, 1, 0, NULL);
  product_tile(attention, one, at, operands, row.i, n);
  emit_loop_end(emit, &row);
  if (!joins(&shape)) return;
  TileBuild build = {.a = attention, .s = shape, .n = shape.rows * shape.vectors};
  LLVMValueRef sums = attention_at(attention, operands.C, r, shape.c_row);
  for (int i = 0; i < build.n; i++)
    build.value[i] = attention_load(attention, sums, tile_add(emit, at, sum_offset(&build, i)));
  join_rows(&build, tile_elements(emit, attention->f32, operands.most, at));
}

/* One column of tiles, as many vectors as the shape has. */
static void product_column(Attention *attention, TileShape shape, LLVMValueRef at,
                           Operands operands, LLVMValueRef rows, LLVMValueRef n) {
  Emit *emit = attention->e;
  int64_t known = LLVMIsConstant(rows) ? LLVMConstIntGetSExtValue(rows) : 0,
          rest = known % shape.rows;
  ProductTile *tile = emit->quick ? product_rows : product_tile;
  Loop loop = emit_loop(emit, emit_i64(emit, 0), known ? emit_i64(emit, known - rest) : rows,
                        shape.rows, 0, NULL);
  tile(attention, shape, at, operands, loop.i, n);
  emit_loop_end(emit, &loop);
  if (!rest) return;
  shape.rows = (int)rest;
  tile(attention, shape, at, operands, emit_i64(emit, known - rest), n);
}

void attention_product(Attention *attention, TileShape shape, int64_t vectors, Operands operands,
                       LLVMValueRef rows, LLVMValueRef n) {
  Emit *emit = attention->e;
  int64_t lanes = attention->p.lanes;
  must(shape.vectors >= 1 && shape.rows >= 1, "kernel %s: a tile of %d x %d", emit->k->name,
       shape.rows, shape.vectors);
  for (int64_t v = 0; v < vectors && !emit->quick; v += shape.vectors) {
    if (shape.vectors > vectors - v) shape.vectors = (int)(vectors - v);
    product_column(attention, shape, emit_i64(emit, v * lanes), operands, rows, n);
  }
  if (!emit->quick) return;
  shape.vectors = 1;
  Loop column = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, vectors * lanes), lanes, 0, NULL);
  product_column(attention, shape, column.i, operands, rows, n);
  emit_loop_end(emit, &column);
}

/* ---- transpose ---- */

/* A square of lanes x lanes; quick: one element. */
static void transpose_square(Attention *attention, LLVMValueRef from, int64_t from_row,
                             LLVMValueRef to, int64_t to_row) {
  Emit *emit = attention->e;
  LLVMValueRef x[64];
  int lanes = attention->p.lanes;
  if (emit->quick) {
    x[0] = LLVMBuildLoad2(emit->builder, attention->f32, from, "");
    LLVMBuildStore(emit->builder, x[0], to);
    return;
  }
  for (int i = 0; i < lanes; i++)
    x[i] = attention_load(attention, from, emit_i64(emit, i * from_row));
  tile_transpose(emit, x, lanes);
  for (int i = 0; i < lanes; i++) attention_store(attention, x[i], to, emit_i64(emit, i * to_row));
}

void attention_transpose(Attention *attention, LLVMValueRef src, int64_t from_row, LLVMValueRef dst,
                         int64_t to_row, int64_t rows, int64_t columns) {
  must(attention->p.lanes <= 64 && rows % attention->p.lanes == 0 &&
           columns % attention->p.lanes == 0,
       "kernel %s: a transpose of %lld x %lld", attention->e->k->name, (long long)rows,
       (long long)columns);
  Emit *emit = attention->e;
  LLVMValueRef zero = emit_i64(emit, 0);
  int side = emit->quick ? 1 : attention->p.lanes;
  Loop r = emit_loop(emit, zero, emit_i64(emit, rows), side, 0, NULL);
  Loop c = emit_loop(emit, zero, emit_i64(emit, columns), side, 0, NULL);
  LLVMValueRef from = tile_add(emit, tile_times(emit, r.i, from_row), c.i);
  LLVMValueRef to = tile_add(emit, tile_times(emit, c.i, to_row), r.i);
  transpose_square(attention, tile_elements(emit, attention->f32, src, from), from_row,
                   tile_elements(emit, attention->f32, dst, to), to_row);
  emit_loop_end(emit, &c);
  emit_loop_end(emit, &r);
}
