/* Packing a: copies row tiles of a into scratch in the order in which the micro-kernel reads them,
   as factors (contract_operand.c).

   Tiles of a are [tile][k][rows], or, where k is contiguous, [tile][row][k], so that they are
   copied by vectors; for AMX tiles (contract_pack_amx.c) always the latter. Words of k are counted
   as in contract_pack.c. */
#include "contract_pack.h"
#include "ir/support/num.h"

static LLVMTypeRef several(LLVMTypeRef type, int n) {
  return n > 1 ? LLVMVectorType(type, (unsigned)n) : type;
}

typedef struct PackA {
  Contract *c;
  LLVMValueRef src, dst, t0, t1, o0, o1, length, half;
} PackA; /* length: steps */

/* Which lanes hold a column of so many rows, where that is no whole vector type; NULL: all. */
static LLVMValueRef rows_mask(Contract *c, int rows) {
  if (c->plan.lanes < 16 || rows <= 8 || rows >= c->plan.lanes) return NULL;
  return emit_tail_mask(c->e, emit_i64(c->e, 0), emit_i64(c->e, rows), c->plan.lanes);
}

static void store_column(Contract *c, LLVMValueRef x, LLVMValueRef base, LLVMValueRef offset,
                         int rows) {
  LLVMValueRef mask = LLVMTypeOf(x) == c->vector ? rows_mask(c, rows) : NULL;
  emit_store(c->e, ELEM_f32, tile_elements(c->e, c->f32, base, offset), x, mask);
}

/* `rows` elements of one step of k; a whole vector where rows_mask says so */
static LLVMValueRef tile_column(PackA *a, LLVMValueRef base, LLVMValueRef offset, int rows,
                                bool half) {
  Contract *c = a->c;
  Emit *e = c->e;
  LLVMTypeRef memory = contract_memory(e, c->product.elem_a);
  int64_t stride = contract_inner_stride(&c->product.m, SIDE_A);
  LLVMValueRef mask = stride == 1 ? rows_mask(c, rows) : NULL;
  if (stride == 1 || rows == 1)
    return contract_operand(c, SIDE_A, tile_elements(e, memory, base, offset),
                            mask ? c->plan.lanes : rows, mask, half);
  LLVMValueRef x = LLVMGetPoison(several(c->f32, rows));
  for (int r = 0; r < rows; r++) {
    LLVMValueRef at = tile_add(e, offset, emit_i64(e, r * stride));
    LLVMValueRef one = tile_elements(e, memory, base, at);
    x = contract_insert(c, x, contract_operand(c, SIDE_A, one, 1, NULL, half), r);
  }
  return x;
}

enum { GROUP = 8, PREFETCH_STEPS = 32 }; /* tiles copied at once; steps of k fetched early */

typedef struct TileColumns { /* of one outer index of k */
  int n, rows;
  LLVMValueRef base[GROUP], dst[GROUP], outer, done;
} TileColumns;

/* Elements of one step are contiguous: neighbouring tiles share cache lines, so they are copied
   together. */
static bool in_groups(const Contract *c) {
  return contract_inner_stride(&c->product.m, SIDE_A) == 1;
}

/* The lines of all elements of a step PREFETCH_STEPS of k, at the end of the next tiles' first
   ones; neighbouring tiles may share lines. */
static void fetch_step(PackA *a, const TileColumns *t, LLVMValueRef k, LLVMValueRef end) {
  Contract *c = a->c;
  Emit *e = c->e;
  int64_t row = contract_inner_stride(&c->product.k, SIDE_A);
  int64_t shared =
      c->product.m.outer == 1 ? CACHE_LINE / (t->rows * elem_bytes(c->product.elem_a)) : 1;
  LLVMValueRef at = tile_add(e, k, emit_i64(e, PREFETCH_STEPS)), zero = emit_i64(e, 0);
  LLVMValueRef over = LLVMBuildICmp(e->builder, LLVMIntSGE, at, end, "");
  at = LLVMBuildNSWSub(e->builder, at, LLVMBuildSelect(e->builder, over, end, zero, ""), "");
  at = tile_add(e, t->outer, tile_times(e, at, row * contract_word_depth(c)));
  LLVMValueRef group = emit_i64(e, t->n * t->rows); /* rows are contiguous */
  at = tile_add(e, at, LLVMBuildSelect(e->builder, over, group, zero, ""));
  int step = shared > 1 ? (int)shared : 1;
  for (int d = 0; d < contract_word_depth(c); d++)
    for (int g = 0; g < t->n; g += step) {
      LLVMValueRef one = tile_add(e, at, emit_i64(e, d * row));
      emit_prefetch(e, tile_elements(e, contract_memory(e, c->product.elem_a), t->base[g], one),
                    false);
    }
}

/* Tiles of half a vector's height, of pairs of 16 bits: two steps of four tiles are four whole
   vectors, both on the way in and on the way out. */
enum { TILES_AT_ONCE = 4, STEPS_AT_ONCE = 2 };

static bool whole_vectors(const Contract *c, const TileColumns *t) {
  return c->pairs && c->product.elem_a == ELEM_bf16 && c->product.m.outer == 1 && t->n == GROUP &&
         t->rows * 2 == c->plan.lanes && in_groups(c);
}

static LLVMValueRef mixed(Contract *c, LLVMValueRef x, LLVMValueRef y, const int *index, int n) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(c->e->context);
  LLVMValueRef at[64];
  for (int i = 0; i < n; i++) at[i] = LLVMConstInt(i32, (unsigned)index[i], 0);
  return LLVMBuildShuffleVector(c->e->builder, x, y, LLVMConstVector(at, (unsigned)n), "");
}

/* Factors of one step: the lower or upper half of the elements of two rows, in turn. */
static LLVMValueRef step_factors(Contract *c, LLVMValueRef low, LLVMValueRef high, int half) {
  int n = 2 * c->plan.lanes, index[64];
  for (int i = 0; i < n; i++) index[i] = i / 2 + half * c->plan.lanes + (i % 2 ? n : 0);
  return LLVMBuildBitCast(c->e->builder, mixed(c, low, high, index, n), c->vector, "");
}

/* Two steps of the tiles first .. first + 3. */
static void pack_two_steps(PackA *a, const TileColumns *t, int first, LLVMValueRef from,
                           LLVMValueRef to) {
  Contract *c = a->c;
  Emit *e = c->e;
  LLVMTypeRef memory = contract_memory(e, c->product.elem_a), wide;
  wide = LLVMVectorType(memory, 2 * (unsigned)c->plan.lanes);
  LLVMValueRef row[2 * STEPS_AT_ONCE];
  for (int i = 0; i < 2 * STEPS_AT_ONCE; i++) {
    LLVMValueRef at = emit_i64(e, i * contract_inner_stride(&c->product.k, SIDE_A));
    at = tile_elements(e, memory, t->base[first], tile_add(e, from, at));
    row[i] = LLVMBuildLoad2(e->builder, wide, at, "");
    LLVMSetAlignment(row[i], (unsigned)elem_bytes(c->product.elem_a));
  }
  for (int i = 0; i < TILES_AT_ONCE; i++) {
    LLVMValueRef now = step_factors(c, row[0], row[1], i / 2);
    LLVMValueRef next = step_factors(c, row[2], row[3], i / 2);
    int index[64];
    for (int j = 0; j < c->plan.lanes; j++)
      index[j] = j % t->rows + i % 2 * t->rows + j / t->rows * c->plan.lanes;
    contract_store_f32(c, mixed(c, now, next, index, c->plan.lanes), t->dst[first + i], to);
  }
}

/* Returns up to where. */
static LLVMValueRef pack_whole_vectors(PackA *a, const TileColumns *t, LLVMValueRef to) {
  Contract *c = a->c;
  Emit *e = c->e;
  int64_t stride = contract_inner_stride(&c->product.k, SIDE_A) * contract_word_depth(c);
  to = LLVMBuildAnd(e->builder, to, emit_i64(e, -STEPS_AT_ONCE), "");
  Loop k = emit_loop(e, emit_i64(e, 0), to, STEPS_AT_ONCE, 0, NULL);
  for (int s = 0; s < STEPS_AT_ONCE; s++) fetch_step(a, t, tile_add(e, k.i, emit_i64(e, s)), to);
  LLVMValueRef from = tile_add(e, t->outer, tile_times(e, k.i, stride));
  LLVMValueRef at = tile_times(e, tile_add(e, t->done, k.i), c->plan.tile[TILE_ROWS]);
  for (int g = 0; g < t->n; g += TILES_AT_ONCE) pack_two_steps(a, t, g, from, at);
  emit_loop_end(e, &k);
  return to;
}

static void pack_columns(PackA *a, const TileColumns *t, LLVMValueRef from, LLVMValueRef to,
                         bool half) {
  Contract *c = a->c;
  Emit *e = c->e;
  int64_t stride = contract_inner_stride(&c->product.k, SIDE_A) * contract_word_depth(c);
  Loop k = emit_loop(e, from, to, 1, 0, NULL);
  LLVMValueRef offset = tile_add(e, t->outer, tile_times(e, k.i, stride)), x[GROUP];
  LLVMValueRef at = tile_times(e, tile_add(e, t->done, k.i), c->plan.tile[TILE_ROWS]);
  if (in_groups(c)) fetch_step(a, t, k.i, to);
  for (int g = 0; g < t->n; g++) x[g] = tile_column(a, t->base[g], offset, t->rows, half);
  for (int g = 0; g < t->n; g++) store_column(c, x[g], t->dst[g], at, t->rows);
  emit_loop_end(e, &k);
}

static void pack_steps(PackA *a, TileColumns *t) {
  Contract *c = a->c;
  Emit *e = c->e;
  LLVMValueRef full = contract_full_words(c, a->length, a->half);
  Loop o = emit_loop(e, a->o0, a->o1, 1, 0, NULL);
  t->outer = contract_offset(e, &c->product.k, c->product.k.count - 1, o.i, SIDE_A);
  t->done = LLVMBuildNSWMul(e->builder, LLVMBuildNSWSub(e->builder, o.i, a->o0, ""), a->length, "");
  LLVMValueRef from = emit_i64(e, 0);
  if (whole_vectors(c, t)) from = pack_whole_vectors(a, t, full);
  pack_columns(a, t, from, full, false);
  if (contract_has_halves(c)) pack_columns(a, t, full, a->length, true);
  emit_loop_end(e, &o);
}

typedef enum PanelPiece { PIECE_VECTOR, PIECE_ONE, PIECE_HALF } PanelPiece;

/* Words [from, to) of a row, contiguous in memory. */
static void copy_run(PackA *a, LLVMValueRef src, LLVMValueRef dst, LLVMValueRef from,
                     LLVMValueRef to, PanelPiece what) {
  Contract *c = a->c;
  Emit *e = c->e;
  int n = what == PIECE_VECTOR ? c->plan.lanes : 1;
  Loop k = emit_loop(e, from, to, n, 0, NULL);
  LLVMValueRef at = tile_elements(e, contract_memory(e, c->product.elem_a), src,
                                  tile_times(e, k.i, contract_word_depth(c)));
  LLVMValueRef x = what == PIECE_HALF ? contract_operand(c, SIDE_A, at, 1, NULL, true)
                                      : contract_run(c, SIDE_A, at, n);
  contract_store_f32(c, x, dst, k.i);
  emit_loop_end(e, &k);
}

static void zero_words(PackA *a, LLVMValueRef dst, LLVMValueRef from, LLVMValueRef to) {
  Loop k = emit_loop(a->c->e, from, to, 1, 0, NULL);
  contract_store_f32(a->c, LLVMConstNull(a->c->f32), dst, k.i);
  emit_loop_end(a->c->e, &k);
}

static void pack_row(PackA *a, LLVMValueRef src, LLVMValueRef dst) {
  Contract *c = a->c;
  Emit *e = c->e;
  LLVMValueRef full = contract_full_words(c, a->length, a->half), zero = emit_i64(e, 0);
  LLVMValueRef length = tile_times(e, a->length, c->plan.words), end = full;
  LLVMValueRef most = LLVMBuildAnd(e->builder, full, emit_i64(e, -c->plan.lanes), "");
  if (contract_last_half(c)) end = tile_add(e, full, a->half);
  Loop o = emit_loop(e, a->o0, a->o1, 1, 0, NULL);
  LLVMValueRef done = LLVMBuildNSWSub(e->builder, o.i, a->o0, "");
  LLVMValueRef from =
      tile_elements(e, contract_memory(e, c->product.elem_a), src,
                    contract_offset(e, &c->product.k, c->product.k.count - 1, o.i, SIDE_A));
  LLVMValueRef to = tile_elements(e, c->f32, dst, LLVMBuildNSWMul(e->builder, done, length, ""));
  copy_run(a, from, to, zero, most, PIECE_VECTOR);
  copy_run(a, from, to, most, full, PIECE_ONE);
  if (contract_last_half(c)) copy_run(a, from, to, full, end, PIECE_HALF);
  if (c->amx && contract_has_halves(c)) zero_words(a, to, end, length);
  emit_loop_end(e, &o);
}

static void pack_rows(PackA *a, LLVMValueRef base, LLVMValueRef dst, LLVMValueRef rows) {
  Contract *c = a->c;
  Emit *e = c->e;
  Loop r = emit_loop(e, emit_i64(e, 0), rows, 1, 0, NULL);
  LLVMValueRef from = tile_times(e, r.i, contract_inner_stride(&c->product.m, SIDE_A));
  pack_row(a, tile_elements(e, contract_memory(e, c->product.elem_a), base, from),
           tile_elements(e, c->f32, dst, tile_times(e, r.i, c->plan.pitch)));
  emit_loop_end(e, &r);
}

LLVMValueRef contract_packed_tile(Contract *c, LLVMValueRef n, const KBlock *x) {
  Emit *e = c->e;
  const int64_t *tile = c->plan.tile;
  if (c->plan.rows_a) return tile_times(e, n, c->plan.pitch * tile[TILE_ROWS]);
  LLVMValueRef k = LLVMBuildNSWSub(e->builder, x->o1, x->o0, "");
  k = LLVMBuildNSWMul(e->builder, k, x->length, "");
  return tile_times(e, LLVMBuildNSWMul(e->builder, k, n, ""), tile[TILE_ROWS]);
}

static LLVMValueRef tile_source(PackA *a, LLVMValueRef t) {
  Contract *c = a->c;
  return tile_elements(c->e, contract_memory(c->e, c->product.elem_a), a->src,
                       contract_tile_offset(c, t, SIDE_A));
}

static LLVMValueRef tile_copy(PackA *a, LLVMValueRef t) {
  Contract *c = a->c;
  const KBlock x = {a->o0, a->o1, NULL, a->length, a->half};
  LLVMValueRef n = LLVMBuildNSWSub(c->e->builder, t, a->t0, "");
  return tile_elements(c->e, c->f32, a->dst, contract_packed_tile(c, n, &x));
}

/* n tiles from t on if all of them have `height` rows */
static void pack_group(PackA *a, LLVMValueRef t, int n, int64_t height) {
  Contract *c = a->c;
  Emit *e = c->e;
  TileColumns x = {.n = n, .rows = (int)height};
  LLVMValueRef fit = NULL;
  for (int g = 0; g < n; g++) {
    LLVMValueRef i = tile_add(e, t, emit_i64(e, g)), rows = contract_tile_rows(c, i);
    LLVMValueRef here = LLVMBuildICmp(e->builder, LLVMIntEQ, rows, emit_i64(e, height), "");
    fit = fit ? LLVMBuildAnd(e->builder, fit, here, "") : here;
    x.base[g] = tile_source(a, i), x.dst[g] = tile_copy(a, i);
  }
  Branch b = emit_if(e, fit);
  pack_steps(a, &x);
  emit_end_if(e, b);
}

static void pack_single(PackA *a, LLVMValueRef t) {
  Contract *c = a->c;
  if (c->amx && contract_inner_stride(&c->product.k, SIDE_A) != 1) {
    KBlock x = {a->o0, a->o1, NULL, a->length, a->half};
    contract_pack_squares(c, tile_source(a, t), tile_copy(a, t), contract_tile_rows(c, t), &x);
    return;
  }
  if (c->plan.rows_a) {
    pack_rows(a, tile_source(a, t), tile_copy(a, t), contract_tile_rows(c, t));
    return;
  }
  for (int tall = c->plan.high > 0; tall >= 0; tall--) pack_group(a, t, 1, c->plan.height + tall);
}

static LLVMValueRef same_heights(PackA *a, LLVMValueRef t) {
  Contract *c = a->c;
  Emit *e = c->e;
  LLVMValueRef last = tile_add(e, t, emit_i64(e, GROUP - 1)), first = contract_tile_rows(c, t);
  LLVMValueRef same = LLVMBuildICmp(e->builder, LLVMIntSLT, last, a->t1, "");
  for (int g = 1; g < GROUP && c->plan.high; g++) {
    LLVMValueRef rows = contract_tile_rows(c, tile_add(e, t, emit_i64(e, g)));
    LLVMValueRef equal = LLVMBuildICmp(e->builder, LLVMIntEQ, rows, first, "");
    same = LLVMBuildAnd(e->builder, same, equal, "");
  }
  return same;
}

static void pack_tiles(PackA *a) {
  Contract *c = a->c;
  Emit *e = c->e;
  int64_t tiles = c->plan.shared ? c->plan.tiles : c->plan.tiles_max;
  bool groups = !c->plan.rows_a && in_groups(c) && tiles >= GROUP;
  if (!groups) {
    Loop t = emit_loop(e, a->t0, a->t1, 1, 0, NULL);
    pack_single(a, t.i);
    emit_loop_end(e, &t);
    return;
  }
  Loop t = emit_loop(e, a->t0, a->t1, GROUP, 0, NULL);
  LLVMValueRef same = same_heights(a, t.i);
  Branch together = emit_if(e, same);
  for (int tall = c->plan.high > 0; tall >= 0; tall--)
    pack_group(a, t.i, GROUP, c->plan.height + tall);
  emit_end_if(e, together);
  Branch single = emit_if(e, LLVMBuildNot(e->builder, same, ""));
  LLVMValueRef end = emit_min_i64(e, tile_add(e, t.i, emit_i64(e, GROUP)), a->t1);
  Loop i = emit_loop(e, t.i, end, 1, 0, NULL);
  pack_single(a, i.i);
  emit_loop_end(e, &i);
  emit_end_if(e, single);
  emit_loop_end(e, &t);
}

static LLVMValueRef make_pack_a(Contract *c) {
  Aside s = tile_aside(c->e, "pack_a", contract_pack_type(c, 2, 6));
  LLVMValueRef p[8];
  for (unsigned i = 0; i < 8; i++) p[i] = LLVMGetParam(s.function, i);
  PackA a = {c, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]};
  pack_tiles(&a);
  tile_aside_end(c->e, &s);
  return s.function;
}

void contract_pack_a(Contract *c, LLVMValueRef src, LLVMValueRef dst, LLVMValueRef t0,
                     LLVMValueRef t1, const KBlock *x) {
  if (!c->pack_a) c->pack_a = make_pack_a(c);
  LLVMValueRef half = x->half ? x->half : emit_i64(c->e, 0);
  LLVMValueRef args[] = {src, dst, t0, t1, x->o0, x->o1, x->length, half};
  LLVMBuildCall2(c->e->builder, contract_pack_type(c, 2, 6), c->pack_a, args, 8, "");
}
