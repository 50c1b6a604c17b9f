/* Packing a: copies row tiles of a into scratch in the order in which the micro-kernel reads them,
   as factors (contract_operand.c).

   Tiles of a are [tile][k][rows], or, where k is contiguous, [tile][row][k], so that they are
   copied by vectors; for AMX tiles (contract_pack_amx.c) always the latter. Words of k are counted
   as in contract_pack.c. */
#include "contract_pack.h"
#include "ir/support/num.h"

typedef struct PackA {
  Contract *c;
  LLVMValueRef src, dst, t0, t1, o0, o1, length, half;
} PackA; /* length: steps */

/* The lanes that hold a column of `rows` rows, if that is no whole vector type; NULL: all. */
static LLVMValueRef rows_mask(Contract *contract, int rows) {
  if (contract->plan.lanes < 16 || rows <= 8 || rows >= contract->plan.lanes) return NULL;
  return emit_tail_mask(contract->e, emit_i64(contract->e, 0), emit_i64(contract->e, rows),
                        contract->plan.lanes);
}

static void store_column(Contract *contract, LLVMValueRef x, LLVMValueRef base, LLVMValueRef offset,
                         int rows) {
  LLVMValueRef mask = LLVMTypeOf(x) == contract->vector ? rows_mask(contract, rows) : NULL;
  emit_store(contract->e, ELEM_f32, tile_elements(contract->e, contract->f32, base, offset), x,
             mask);
}

/* `rows` elements of one step of k; a whole vector where rows_mask says so */
static LLVMValueRef tile_column(PackA *pack, LLVMValueRef base, LLVMValueRef offset, int rows,
                                bool half) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  LLVMTypeRef memory = contract_memory(emit, contract->product.elem_a);
  int64_t stride = contract_inner_stride(&contract->product.m, SIDE_A);
  LLVMValueRef mask = stride == 1 ? rows_mask(contract, rows) : NULL;
  if (stride == 1 || rows == 1)
    return contract_operand(contract, SIDE_A, tile_elements(emit, memory, base, offset),
                            mask ? contract->plan.lanes : rows, mask, half);
  LLVMValueRef x = LLVMGetPoison(contract_vector(contract->f32, rows));
  for (int r = 0; r < rows; r++) {
    LLVMValueRef at = tile_add(emit, offset, emit_i64(emit, r * stride));
    LLVMValueRef one = tile_elements(emit, memory, base, at);
    x = contract_insert(contract, x, contract_operand(contract, SIDE_A, one, 1, NULL, half), r);
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
static bool in_groups(const Contract *contract) {
  return !contract->e->quick && contract_inner_stride(&contract->product.m, SIDE_A) == 1;
}

/* The lines of all elements of a step PREFETCH_STEPS of k, at the end of the next tiles' first
   ones; neighbouring tiles may share lines. */
static void fetch_step(PackA *pack, const TileColumns *columns, LLVMValueRef k, LLVMValueRef end) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  int64_t row = contract_inner_stride(&contract->product.k, SIDE_A);
  int64_t shared = contract->product.m.outer == 1
                       ? CACHE_LINE / (columns->rows * elem_bytes(contract->product.elem_a))
                       : 1;
  LLVMValueRef at = tile_add(emit, k, emit_i64(emit, PREFETCH_STEPS)), zero = emit_i64(emit, 0);
  LLVMValueRef over = LLVMBuildICmp(emit->builder, LLVMIntSGE, at, end, "");
  at = LLVMBuildNSWSub(emit->builder, at, LLVMBuildSelect(emit->builder, over, end, zero, ""), "");
  at = tile_add(emit, columns->outer, tile_times(emit, at, row * contract_word_depth(contract)));
  LLVMValueRef group = emit_i64(emit, columns->n * columns->rows); /* rows are contiguous */
  at = tile_add(emit, at, LLVMBuildSelect(emit->builder, over, group, zero, ""));
  int step = shared > 1 ? (int)shared : 1;
  for (int d = 0; d < contract_word_depth(contract); d++)
    for (int g = 0; g < columns->n; g += step) {
      LLVMValueRef one = tile_add(emit, at, emit_i64(emit, d * row));
      emit_prefetch(emit,
                    tile_elements(emit, contract_memory(emit, contract->product.elem_a),
                                  columns->base[g], one),
                    false);
    }
}

/* Tiles of half a vector's height, of pairs of 16 bits: two steps of four tiles are four whole
   vectors, both on the way in and on the way out. */
enum { TILES_AT_ONCE = 4, STEPS_AT_ONCE = 2 };

static bool whole_vectors(const Contract *contract, const TileColumns *columns) {
  return contract->pairs && contract->product.elem_a == ELEM_bf16 &&
         contract->product.m.outer == 1 && columns->n == GROUP &&
         columns->rows * 2 == contract->plan.lanes && in_groups(contract);
}

static LLVMValueRef mixed(Contract *contract, LLVMValueRef x, LLVMValueRef y, const int *index,
                          int n) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(contract->e->context);
  LLVMValueRef at[64];
  for (int i = 0; i < n; i++) at[i] = LLVMConstInt(i32, (unsigned)index[i], 0);
  return LLVMBuildShuffleVector(contract->e->builder, x, y, LLVMConstVector(at, (unsigned)n), "");
}

/* Factors of one step: the lower or upper half of the elements of two rows, in turn. */
static LLVMValueRef step_factors(Contract *contract, LLVMValueRef low, LLVMValueRef high,
                                 int half) {
  int n = 2 * contract->plan.lanes, index[64];
  for (int i = 0; i < n; i++) index[i] = i / 2 + half * contract->plan.lanes + (i % 2 ? n : 0);
  return LLVMBuildBitCast(contract->e->builder, mixed(contract, low, high, index, n),
                          contract->vector, "");
}

/* Two steps of the tiles first .. first + 3. */
static void pack_two_steps(PackA *pack, const TileColumns *columns, int first, LLVMValueRef from,
                           LLVMValueRef to) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  LLVMTypeRef memory = contract_memory(emit, contract->product.elem_a), wide;
  wide = LLVMVectorType(memory, 2 * (unsigned)contract->plan.lanes);
  LLVMValueRef row[2 * STEPS_AT_ONCE];
  for (int i = 0; i < 2 * STEPS_AT_ONCE; i++) {
    LLVMValueRef at = emit_i64(emit, i * contract_inner_stride(&contract->product.k, SIDE_A));
    at = tile_elements(emit, memory, columns->base[first], tile_add(emit, from, at));
    row[i] = LLVMBuildLoad2(emit->builder, wide, at, "");
    LLVMSetAlignment(row[i], (unsigned)elem_bytes(contract->product.elem_a));
  }
  for (int i = 0; i < TILES_AT_ONCE; i++) {
    LLVMValueRef now = step_factors(contract, row[0], row[1], i / 2);
    LLVMValueRef next = step_factors(contract, row[2], row[3], i / 2);
    int index[64];
    for (int j = 0; j < contract->plan.lanes; j++)
      index[j] =
          j % columns->rows + i % 2 * columns->rows + j / columns->rows * contract->plan.lanes;
    contract_store_f32(contract, mixed(contract, now, next, index, contract->plan.lanes),
                       columns->dst[first + i], to);
  }
}

/* Returns up to where. */
static LLVMValueRef pack_whole_vectors(PackA *pack, const TileColumns *columns, LLVMValueRef to) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  int64_t stride =
      contract_inner_stride(&contract->product.k, SIDE_A) * contract_word_depth(contract);
  to = LLVMBuildAnd(emit->builder, to, emit_i64(emit, -STEPS_AT_ONCE), "");
  Loop loop = emit_loop(emit, emit_i64(emit, 0), to, STEPS_AT_ONCE, 0, NULL);
  for (int s = 0; s < STEPS_AT_ONCE; s++)
    fetch_step(pack, columns, tile_add(emit, loop.i, emit_i64(emit, s)), to);
  LLVMValueRef from = tile_add(emit, columns->outer, tile_times(emit, loop.i, stride));
  LLVMValueRef at =
      tile_times(emit, tile_add(emit, columns->done, loop.i), contract->plan.tile[TILE_ROWS]);
  for (int g = 0; g < columns->n; g += TILES_AT_ONCE) pack_two_steps(pack, columns, g, from, at);
  emit_loop_end(emit, &loop);
  return to;
}

static void pack_columns(PackA *pack, const TileColumns *columns, LLVMValueRef from,
                         LLVMValueRef to, bool half) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  int64_t stride =
      contract_inner_stride(&contract->product.k, SIDE_A) * contract_word_depth(contract);
  Loop loop = emit_loop(emit, from, to, 1, 0, NULL);
  LLVMValueRef offset = tile_add(emit, columns->outer, tile_times(emit, loop.i, stride)), x[GROUP];
  LLVMValueRef at =
      tile_times(emit, tile_add(emit, columns->done, loop.i), contract->plan.tile[TILE_ROWS]);
  if (in_groups(contract)) fetch_step(pack, columns, loop.i, to);
  for (int g = 0; g < columns->n; g++)
    x[g] = tile_column(pack, columns->base[g], offset, columns->rows, half);
  for (int g = 0; g < columns->n; g++)
    store_column(contract, x[g], columns->dst[g], at, columns->rows);
  emit_loop_end(emit, &loop);
}

static void pack_steps(PackA *pack, TileColumns *columns) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  LLVMValueRef full = contract_full_words(contract, pack->length, pack->half);
  Loop loop = emit_loop(emit, pack->o0, pack->o1, 1, 0, NULL);
  columns->outer =
      contract_offset(emit, &contract->product.k, contract->product.k.count - 1, loop.i, SIDE_A);
  columns->done = LLVMBuildNSWMul(
      emit->builder, LLVMBuildNSWSub(emit->builder, loop.i, pack->o0, ""), pack->length, "");
  LLVMValueRef from = emit_i64(emit, 0);
  if (whole_vectors(contract, columns)) from = pack_whole_vectors(pack, columns, full);
  pack_columns(pack, columns, from, full, false);
  if (contract_has_halves(contract)) pack_columns(pack, columns, full, pack->length, true);
  emit_loop_end(emit, &loop);
}

typedef enum PanelPiece { PIECE_VECTOR, PIECE_ONE, PIECE_HALF } PanelPiece;

/* Words [from, to) of a row, contiguous in memory. */
static void copy_run(PackA *pack, LLVMValueRef src, LLVMValueRef dst, LLVMValueRef from,
                     LLVMValueRef to, PanelPiece what) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  int n = what == PIECE_VECTOR ? contract->plan.lanes : 1;
  Loop loop = emit_loop(emit, from, to, n, 0, NULL);
  LLVMValueRef at = tile_elements(emit, contract_memory(emit, contract->product.elem_a), src,
                                  tile_times(emit, loop.i, contract_word_depth(contract)));
  LLVMValueRef x = what == PIECE_HALF ? contract_operand(contract, SIDE_A, at, 1, NULL, true)
                                      : contract_run(contract, SIDE_A, at, n);
  contract_store_f32(contract, x, dst, loop.i);
  emit_loop_end(emit, &loop);
}

static void zero_words(PackA *pack, LLVMValueRef dst, LLVMValueRef from, LLVMValueRef to) {
  Loop loop = emit_loop(pack->c->e, from, to, 1, 0, NULL);
  contract_store_f32(pack->c, LLVMConstNull(pack->c->f32), dst, loop.i);
  emit_loop_end(pack->c->e, &loop);
}

static void pack_row(PackA *pack, LLVMValueRef src, LLVMValueRef dst) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  LLVMValueRef full = contract_full_words(contract, pack->length, pack->half),
               zero = emit_i64(emit, 0);
  LLVMValueRef length = tile_times(emit, pack->length, contract->plan.words), end = full;
  LLVMValueRef most = LLVMBuildAnd(emit->builder, full, emit_i64(emit, -contract->plan.lanes), "");
  if (contract_last_half(contract)) end = tile_add(emit, full, pack->half);
  Loop loop = emit_loop(emit, pack->o0, pack->o1, 1, 0, NULL);
  LLVMValueRef done = LLVMBuildNSWSub(emit->builder, loop.i, pack->o0, "");
  LLVMValueRef from = tile_elements(
      emit, contract_memory(emit, contract->product.elem_a), src,
      contract_offset(emit, &contract->product.k, contract->product.k.count - 1, loop.i, SIDE_A));
  LLVMValueRef to =
      tile_elements(emit, contract->f32, dst, LLVMBuildNSWMul(emit->builder, done, length, ""));
  copy_run(pack, from, to, zero, most, PIECE_VECTOR);
  copy_run(pack, from, to, most, full, PIECE_ONE);
  if (contract_last_half(contract)) copy_run(pack, from, to, full, end, PIECE_HALF);
  if (contract->amx && contract_has_halves(contract)) zero_words(pack, to, end, length);
  emit_loop_end(emit, &loop);
}

static void pack_rows(PackA *pack, LLVMValueRef base, LLVMValueRef dst, LLVMValueRef rows) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  Loop loop = emit_loop(emit, emit_i64(emit, 0), rows, 1, 0, NULL);
  LLVMValueRef from = tile_times(emit, loop.i, contract_inner_stride(&contract->product.m, SIDE_A));
  pack_row(pack, tile_elements(emit, contract_memory(emit, contract->product.elem_a), base, from),
           tile_elements(emit, contract->f32, dst, tile_times(emit, loop.i, contract->plan.pitch)));
  emit_loop_end(emit, &loop);
}

LLVMValueRef contract_packed_tile(Contract *contract, LLVMValueRef n, const KBlock *block) {
  Emit *emit = contract->e;
  const int64_t *tile = contract->plan.tile;
  if (contract->plan.rows_a) return tile_times(emit, n, contract->plan.pitch * tile[TILE_ROWS]);
  LLVMValueRef k = LLVMBuildNSWSub(emit->builder, block->o1, block->o0, "");
  k = LLVMBuildNSWMul(emit->builder, k, block->length, "");
  return tile_times(emit, LLVMBuildNSWMul(emit->builder, k, n, ""), tile[TILE_ROWS]);
}

static LLVMValueRef tile_source(PackA *pack, LLVMValueRef t) {
  Contract *contract = pack->c;
  return tile_elements(contract->e, contract_memory(contract->e, contract->product.elem_a),
                       pack->src, contract_tile_offset(contract, t, SIDE_A));
}

static LLVMValueRef tile_copy(PackA *pack, LLVMValueRef t) {
  Contract *contract = pack->c;
  const KBlock block = {pack->o0, pack->o1, NULL, pack->length, pack->half};
  LLVMValueRef n = LLVMBuildNSWSub(contract->e->builder, t, pack->t0, "");
  return tile_elements(contract->e, contract->f32, pack->dst,
                       contract_packed_tile(contract, n, &block));
}

/* n tiles from t on if all of them have `height` rows */
static void pack_group(PackA *pack, LLVMValueRef t, int n, int64_t height) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  TileColumns columns = {.n = n, .rows = (int)height};
  LLVMValueRef fit = NULL;
  for (int g = 0; g < n; g++) {
    LLVMValueRef i = tile_add(emit, t, emit_i64(emit, g)), rows = contract_tile_rows(contract, i);
    LLVMValueRef here = LLVMBuildICmp(emit->builder, LLVMIntEQ, rows, emit_i64(emit, height), "");
    fit = fit ? LLVMBuildAnd(emit->builder, fit, here, "") : here;
    columns.base[g] = tile_source(pack, i), columns.dst[g] = tile_copy(pack, i);
  }
  Branch branch = emit_if(emit, fit);
  pack_steps(pack, &columns);
  emit_end_if(emit, branch);
}

static void pack_single(PackA *pack, LLVMValueRef t) {
  Contract *contract = pack->c;
  if (contract->amx && contract_inner_stride(&contract->product.k, SIDE_A) != 1) {
    KBlock block = {pack->o0, pack->o1, NULL, pack->length, pack->half};
    contract_pack_squares(contract, tile_source(pack, t), tile_copy(pack, t),
                          contract_tile_rows(contract, t), &block);
    return;
  }
  if (contract->plan.rows_a) {
    pack_rows(pack, tile_source(pack, t), tile_copy(pack, t), contract_tile_rows(contract, t));
    return;
  }
  for (int tall = contract->plan.high > 0; tall >= 0; tall--)
    pack_group(pack, t, 1, contract->plan.height + tall);
}

static LLVMValueRef same_heights(PackA *pack, LLVMValueRef t) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  LLVMValueRef last = tile_add(emit, t, emit_i64(emit, GROUP - 1)),
               first = contract_tile_rows(contract, t);
  LLVMValueRef same = LLVMBuildICmp(emit->builder, LLVMIntSLT, last, pack->t1, "");
  for (int g = 1; g < GROUP && contract->plan.high; g++) {
    LLVMValueRef rows = contract_tile_rows(contract, tile_add(emit, t, emit_i64(emit, g)));
    LLVMValueRef equal = LLVMBuildICmp(emit->builder, LLVMIntEQ, rows, first, "");
    same = LLVMBuildAnd(emit->builder, same, equal, "");
  }
  return same;
}

static void pack_tiles(PackA *pack) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  int64_t tiles = contract->plan.shared ? contract->plan.tiles : contract->plan.tiles_max;
  bool groups = !contract->plan.rows_a && in_groups(contract) && tiles >= GROUP;
  if (!groups) {
    Loop t = emit_loop(emit, pack->t0, pack->t1, 1, 0, NULL);
    pack_single(pack, t.i);
    emit_loop_end(emit, &t);
    return;
  }
  Loop t = emit_loop(emit, pack->t0, pack->t1, GROUP, 0, NULL);
  LLVMValueRef same = same_heights(pack, t.i);
  Branch together = emit_if(emit, same);
  for (int tall = contract->plan.high > 0; tall >= 0; tall--)
    pack_group(pack, t.i, GROUP, contract->plan.height + tall);
  emit_end_if(emit, together);
  Branch single = emit_if(emit, LLVMBuildNot(emit->builder, same, ""));
  LLVMValueRef end = emit_min_i64(emit, tile_add(emit, t.i, emit_i64(emit, GROUP)), pack->t1);
  Loop i = emit_loop(emit, t.i, end, 1, 0, NULL);
  pack_single(pack, i.i);
  emit_loop_end(emit, &i);
  emit_end_if(emit, single);
  emit_loop_end(emit, &t);
}

static LLVMValueRef make_pack_a(Contract *contract) {
  Aside s = tile_aside(contract->e, "pack_a", contract_pack_type(contract, 6));
  LLVMValueRef p[8];
  for (unsigned i = 0; i < 8; i++) p[i] = LLVMGetParam(s.function, i);
  PackA pack = {contract, p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]};
  pack_tiles(&pack);
  tile_aside_end(contract->e, &s);
  return s.function;
}

void contract_pack_a(Contract *contract, LLVMValueRef src, LLVMValueRef dst, LLVMValueRef t0,
                     LLVMValueRef t1, const KBlock *block) {
  if (!contract->pack_a) contract->pack_a = make_pack_a(contract);
  LLVMValueRef half = block->half ? block->half : emit_i64(contract->e, 0);
  LLVMValueRef args[] = {src, dst, t0, t1, block->o0, block->o1, block->length, half};
  LLVMBuildCall2(contract->e->builder, contract_pack_type(contract, 6), contract->pack_a, args, 8,
                 "");
}
