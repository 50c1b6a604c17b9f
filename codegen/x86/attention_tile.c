/* Register tiles of attention: all operands stand in scratch as f32, padded to whole tiles, so one
   shape per product is enough. The inner loop is that of the contract family: b's vectors, then per
   row one element of a, spread. What is done to each score afterwards is done while it is still in
   its register, in the shadow of the next tile's multiply-adds. */
#include "attention.h"

enum { UNROLL = 8 };

const double attention_nothing = -1e30;

LLVMValueRef attention_splat(Attention *attention, double x) {
  return emit_splat(attention->e, emit_f32(attention->e, x), attention->p.lanes);
}

LLVMValueRef attention_max(Emit *emit, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildSelect(emit->builder, LLVMBuildFCmp(emit->builder, LLVMRealOGT, a, b, ""), a, b,
                         "");
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
  Loop i = emit_loop(attention->e, emit_i64(attention->e, 0), floats, attention->p.lanes, 0, NULL);
  attention_store(attention, LLVMConstNull(attention->vector), base, i.i);
  emit_loop_end(attention->e, &i);
}

/* ---- one tile ---- */

typedef struct TileBuild {
  Attention *a;
  TileShape s;
  int n;
  LLVMValueRef value[MAX_CARRIED]; /* accumulators, pointers into A and B */
} TileBuild;

static LLVMValueRef offset_of(TileBuild *t, LLVMValueRef base, int64_t floats) {
  return tile_elements(t->a->e, t->a->f32, base, emit_i64(t->a->e, floats));
}

static void step(TileBuild *t, LLVMValueRef pa, LLVMValueRef pb, int i) {
  Attention *attention = t->a;
  Emit *emit = attention->e;
  LLVMValueRef b[8];
  for (int v = 0; v < t->s.vectors; v++)
    b[v] = attention_load(attention, pb, emit_i64(emit, i * t->s.b_step + v * attention->p.lanes));
  for (int r = 0; r < t->s.rows; r++) {
    LLVMValueRef x = LLVMBuildLoad2(emit->builder, attention->f32,
                                    offset_of(t, pa, i * t->s.a_step + r * t->s.a_row), "");
    x = emit_splat(emit, x, attention->p.lanes);
    for (int v = 0; v < t->s.vectors; v++) {
      LLVMValueRef *acc = &t->value[r * t->s.vectors + v];
      *acc = emit_fma(emit, x, b[v], *acc);
    }
  }
}

static void run_steps(TileBuild *t, LLVMValueRef from, LLVMValueRef to, int unroll) {
  Loop l = emit_loop(t->a->e, from, to, unroll, t->n + 2, t->value);
  for (int i = 0; i < t->n; i++) t->value[i] = l.phi[i];
  for (int i = 0; i < unroll; i++) step(t, l.phi[t->n], l.phi[t->n + 1], i);
  for (int i = 0; i < t->n; i++) l.next[i] = t->value[i];
  l.next[t->n] = offset_of(t, l.phi[t->n], unroll * t->s.a_step);
  l.next[t->n + 1] = offset_of(t, l.phi[t->n + 1], unroll * t->s.b_step);
  emit_loop_end(t->a->e, &l);
  for (int i = 0; i < t->n + 2; i++) t->value[i] = l.phi[i];
}

enum { TILE_A, TILE_B, TILE_C, TILE_ROW, TILE_END, TILE_N, TILE_ARGS };

static LLVMTypeRef tile_type(Attention *attention) {
  LLVMTypeRef t[] = {attention->ptr, attention->ptr, attention->ptr,
                     attention->ptr, attention->ptr, attention->i64};
  return LLVMFunctionType(LLVMVoidTypeInContext(attention->e->context), t, TILE_ARGS, 0);
}

static LLVMValueRef sum_offset(TileBuild *t, int i) {
  return emit_i64(t->a->e, i / t->s.vectors * t->s.c_row + i % t->s.vectors * t->a->p.lanes);
}

static LLVMValueRef vector_offset(TileBuild *t, int v) {
  return emit_i64(t->a->e, v * t->a->p.lanes);
}

static void start(TileBuild *t, LLVMValueRef f) {
  LLVMValueRef first[8], from = LLVMGetParam(f, t->s.start == START_ROW ? TILE_ROW : TILE_C);
  for (int v = 0; v < t->s.vectors; v++)
    first[v] = t->s.start == START_ROW ? attention_load(t->a, from, vector_offset(t, v))
                                       : LLVMConstNull(t->a->vector);
  for (int i = 0; i < t->n; i++)
    t->value[i] = t->s.start == START_SUMS ? attention_load(t->a, from, sum_offset(t, i))
                                           : first[i % t->s.vectors];
  t->value[t->n] = LLVMGetParam(f, TILE_A), t->value[t->n + 1] = LLVMGetParam(f, TILE_B);
}

static LLVMValueRef ended(TileBuild *t, LLVMValueRef f, int i) {
  Emit *emit = t->a->e;
  LLVMValueRef x = t->value[i];
  switch (t->s.end) {
  case END_SUMS:
  case END_MOST: return x;
  case END_POWERS:
  case END_ADDED_POWERS: return math_exp2(emit, x);
  case END_TIMES:
    return LLVMBuildFMul(emit->builder, x,
                         attention_load(t->a, LLVMGetParam(f, TILE_END), sum_offset(t, i)), "");
  }
  bug("a tile that ends in %d", (int)t->s.end);
}

/* One line for all rows of each column: maxima, or totals. */
static void join_rows(TileBuild *t, LLVMValueRef row) {
  Emit *emit = t->a->e;
  for (int v = 0; v < t->s.vectors; v++) {
    LLVMValueRef all = t->value[v];
    for (int r = 1; r <= t->s.rows; r++) {
      LLVMValueRef x = r < t->s.rows ? t->value[r * t->s.vectors + v]
                                     : attention_load(t->a, row, vector_offset(t, v));
      all = t->s.end == END_MOST ? attention_max(emit, x, all)
                                 : LLVMBuildFAdd(emit->builder, x, all, "");
    }
    attention_store(t->a, all, row, vector_offset(t, v));
  }
}

static LLVMValueRef build_tile(Attention *attention, TileShape s, int serial) {
  Emit *emit = attention->e;
  TileBuild t = {.a = attention, .s = s, .n = s.rows * s.vectors};
  if (t.n + 2 > MAX_CARRIED) bug("a tile of %d accumulators", t.n);
  Aside x = tile_aside(emit, arena_printf(emit->arena, "tile%d", serial), tile_type(attention));
  start(&t, x.function);
  LLVMValueRef n = LLVMGetParam(x.function, TILE_N);
  LLVMValueRef most = LLVMBuildAnd(emit->builder, n, emit_i64(emit, -UNROLL), "");
  run_steps(&t, emit_i64(emit, 0), most, UNROLL);
  run_steps(&t, most, n, 1);
  for (int i = 0; i < t.n; i++) {
    t.value[i] = ended(&t, x.function, i);
    attention_store(attention, t.value[i], LLVMGetParam(x.function, TILE_C), sum_offset(&t, i));
  }
  if (s.end == END_MOST || s.end == END_ADDED_POWERS)
    join_rows(&t, LLVMGetParam(x.function, TILE_END));
  tile_aside_end(emit, &x);
  return x.function;
}

static bool same_shape(const TileShape *a, const TileShape *b) {
  return a->rows == b->rows && a->vectors == b->vectors && a->a_row == b->a_row &&
         a->a_step == b->a_step && a->b_step == b->b_step && a->c_row == b->c_row &&
         a->start == b->start && a->end == b->end;
}

static LLVMValueRef tile_function(Attention *attention, TileShape s) {
  int serial = 0;
  for (TileCode *t = *attention->tiles; t; t = t->next, serial++)
    if (same_shape(&t->shape, &s)) return t->function;
  TileCode *t = ARENA_NEW(attention->e->arena, TileCode);
  *t = (TileCode){*attention->tiles, s, build_tile(attention, s, serial)};
  *attention->tiles = t;
  return t->function;
}

/* The tile at row r of a column. */
static void product_tile(Attention *attention, TileShape s, LLVMValueRef at, Operands x,
                         LLVMValueRef r, LLVMValueRef n) {
  Emit *emit = attention->e;
  LLVMValueRef args[TILE_ARGS] = {
      [TILE_A] = attention_at(attention, x.A, r, s.a_row),
      [TILE_B] = tile_elements(emit, attention->f32, x.B, at),
      [TILE_C] = tile_elements(emit, attention->f32, attention_at(attention, x.C, r, s.c_row), at),
      [TILE_ROW] = LLVMGetUndef(attention->ptr),
      [TILE_END] = LLVMGetUndef(attention->ptr),
      [TILE_N] = n};
  if (s.start == START_ROW) args[TILE_ROW] = tile_elements(emit, attention->f32, x.row, at);
  if (s.end == END_MOST || s.end == END_ADDED_POWERS)
    args[TILE_END] = tile_elements(emit, attention->f32, x.most, at);
  if (s.end == END_TIMES)
    args[TILE_END] =
        tile_elements(emit, attention->f32, attention_at(attention, x.factor, r, s.c_row), at);
  attention_prefetch(attention);
  LLVMBuildCall2(emit->builder, tile_type(attention), tile_function(attention, s), args, TILE_ARGS,
                 "");
}

/* One column of tiles, vectors v .. v + s.vectors - 1. */
static void product_column(Attention *attention, TileShape s, int64_t v, Operands x,
                           LLVMValueRef rows, LLVMValueRef n) {
  Emit *emit = attention->e;
  LLVMValueRef at = emit_i64(emit, v * attention->p.lanes);
  int64_t known = LLVMIsConstant(rows) ? LLVMConstIntGetSExtValue(rows) : 0, rest = known % s.rows;
  Loop r = emit_loop(emit, emit_i64(emit, 0), known ? emit_i64(emit, known - rest) : rows, s.rows,
                     0, NULL);
  product_tile(attention, s, at, x, r.i, n);
  emit_loop_end(emit, &r);
  if (!rest) return;
  s.rows = (int)rest;
  product_tile(attention, s, at, x, emit_i64(emit, known - rest), n);
}

void attention_product(Attention *attention, TileShape s, int64_t vectors, Operands x,
                       LLVMValueRef rows, LLVMValueRef n) {
  must(s.vectors >= 1 && s.rows >= 1, "kernel %s: a tile of %d x %d", attention->e->k->name, s.rows,
       s.vectors);
  for (int64_t v = 0; v < vectors; v += s.vectors) {
    if (s.vectors > vectors - v) s.vectors = (int)(vectors - v);
    product_column(attention, s, v, x, rows, n);
  }
}

/* ---- transpose ---- */

void attention_transpose(Attention *attention, LLVMValueRef src, int64_t from_row, LLVMValueRef dst,
                         int64_t to_row, int64_t rows, int64_t columns) {
  must(attention->p.lanes <= 64 && rows % attention->p.lanes == 0 &&
           columns % attention->p.lanes == 0,
       "kernel %s: a transpose of %lld x %lld", attention->e->k->name, (long long)rows,
       (long long)columns);
  Emit *emit = attention->e;
  LLVMValueRef x[64], zero = emit_i64(emit, 0);
  int lanes = attention->p.lanes;
  Loop r = emit_loop(emit, zero, emit_i64(emit, rows), lanes, 0, NULL);
  Loop c = emit_loop(emit, zero, emit_i64(emit, columns), lanes, 0, NULL);
  LLVMValueRef from = tile_add(emit, tile_times(emit, r.i, from_row), c.i);
  LLVMValueRef to = tile_add(emit, tile_times(emit, c.i, to_row), r.i);
  for (int i = 0; i < lanes; i++)
    x[i] = attention_load(attention, src, tile_add(emit, from, emit_i64(emit, i * from_row)));
  tile_transpose(emit, x, lanes);
  for (int i = 0; i < lanes; i++)
    attention_store(attention, x[i], dst, tile_add(emit, to, emit_i64(emit, i * to_row)));
  emit_loop_end(emit, &c);
  emit_loop_end(emit, &r);
}
