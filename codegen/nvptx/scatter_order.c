/* Variant `order` of family scatter: rows sorted by index, whatever the indexes are.

   The sort, by one CTA: a pair of index and row is a number of 64 bits; a counting sort by each
   digit of the index, lowest first, moves all pairs from one list in the workspace to the other. A
   thread has neighbouring pairs and a counter for each value of a digit, so that pairs of equal
   digits stay in order. Rows of an index outside sort last, and nothing reads them.

   Phase 1: a warp has a place of the sorted list and a block of columns. A piece begins where an
   index does, and at every 64th place; the warp at its beginning adds its rows in order. A piece
   that is all of its index goes into the result, others into the workspace, two places for each 64
   of the list: for a piece that begins with them, and for one that begins later and goes on.

   Phase 2: a warp per 64 places adds the pieces of the index whose first one ends with them. So a
   chain of additions is as long as a piece, 64 at most, and then as the pieces of the index, one
   for each 64 rows and one more at most. */
#include "group.h"
#include "scatter.h"

enum { LOW = 32, PIECE = SCATTER_PIECE, TAIL = PIECE / WARP };

typedef struct Sorting {
  GpuScattering *scattering;
  ScatterOrder order;
  int64_t threads;
  LLVMValueRef thread, first, end; /* the thread's pairs */
  LLVMValueRef from, to;           /* i64: where the lists are in the workspace */
  LLVMValueRef shift;              /* i64: of the digit */
} Sorting;

static LLVMTypeRef wide(Emit *e) { return LLVMInt64TypeInContext(e->context); }
static LLVMTypeRef narrow(Emit *e) { return LLVMInt32TypeInContext(e->context); }

static LLVMValueRef widened(Emit *e, LLVMValueRef x) {
  return LLVMTypeOf(x) == wide(e) ? x : LLVMBuildZExt(e->builder, x, wide(e), "");
}

static LLVMValueRef workspace_at(Emit *e, LLVMValueRef byte) {
  LLVMValueRef workspace = emit_buffer(e, e->k->args.n + e->k->results.n);
  return LLVMBuildGEP2(e->builder, LLVMInt8TypeInContext(e->context), workspace, &byte, 1, "");
}

static LLVMValueRef pair_at(Emit *e, LLVMValueRef list, LLVMValueRef number) {
  return workspace_at(e, index_mul_add(e, widened(e, number), SCATTER_PAIR, list));
}

/* ---- the sort ---- */

static void write_pairs(Sorting *sort) {
  GpuScattering *scattering = sort->scattering;
  Emit *e = scattering->e;
  Loop loop = emit_loop(e, sort->thread, emit_index(e, scattering->rows), sort->threads, 0, NULL);
  LLVMValueRef i = scatter_index_of(scattering, loop.i, NULL, NULL);
  LLVMValueRef inside = LLVMBuildICmp(e->builder, LLVMIntSGE, i, emit_index(e, 0), "");
  i = LLVMBuildSelect(e->builder, inside, i, emit_index(e, scattering->s.to_size), "");
  i = LLVMBuildShl(e->builder, widened(e, i), emit_i64(e, LOW), "");
  i = LLVMBuildOr(e->builder, i, widened(e, loop.i), "");
  emit_store(e, ELEM_i64, pair_at(e, emit_i64(e, 0), loop.i), i, NULL);
  emit_loop_end(e, &loop);
}

/* The thread's counter for the pair's digit. */
static LLVMValueRef counter_of(Sorting *sort, LLVMValueRef pair) {
  Emit *e = sort->scattering->e;
  LLVMValueRef digit = LLVMBuildLShr(e->builder, pair, sort->shift, "");
  digit = LLVMBuildTrunc(e->builder, digit, narrow(e), "");
  digit = LLVMBuildAnd(e->builder, digit, simt_i32(e, SCATTER_BINS - 1), "");
  LLVMValueRef at = index_mul_add(e, digit, sort->threads, simt_thread(e));
  return simt_shared_at(e, index_mul_add(e, at, 4, simt_i32(e, 0)));
}

static void clear_counters(Sorting *sort) {
  Emit *e = sort->scattering->e;
  for (int i = 0; i < SCATTER_BINS; i++) {
    LLVMValueRef at = index_mul_add(e, simt_thread(e), 4, simt_i32(e, i * sort->threads * 4));
    emit_store(e, ELEM_i32, simt_shared_at(e, at), simt_i32(e, 0), NULL);
  }
}

/* Counts the pair, or moves it to its place, which the counter holds. */
static void take_pair(Sorting *sort, LLVMValueRef pair, bool move) {
  Emit *e = sort->scattering->e;
  LLVMValueRef counter = counter_of(sort, pair);
  LLVMValueRef n = emit_load(e, ELEM_i32, counter, 1, NULL);
  emit_store(e, ELEM_i32, counter, LLVMBuildNSWAdd(e->builder, n, simt_i32(e, 1), ""), NULL);
  if (move) emit_store(e, ELEM_i64, pair_at(e, sort->to, n), pair, NULL);
}

static void take_pairs(Sorting *sort, bool move) {
  Emit *e = sort->scattering->e;
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef at[SCATTER_AT_ONCE], pair[SCATTER_AT_ONCE];
  Loop loop = emit_loop(e, sort->first, sort->end, SCATTER_AT_ONCE, 0, NULL);
  LLVMValueRef last = LLVMBuildNSWSub(builder, sort->end, emit_index(e, 1), "");
  for (int i = 0; i < SCATTER_AT_ONCE; i++) {
    at[i] = LLVMBuildNSWAdd(builder, loop.i, emit_index(e, i), "");
    pair[i] = emit_load(e, ELEM_i64, pair_at(e, sort->from, emit_min_i64(e, at[i], last)), 1, NULL);
  }
  for (int i = 0; i < SCATTER_AT_ONCE; i++) {
    Branch present = {0};
    if (i) present = emit_if(e, LLVMBuildICmp(builder, LLVMIntSLT, at[i], sort->end, ""));
    take_pair(sort, pair[i], move);
    if (i) emit_end_if(e, present);
  }
  emit_loop_end(e, &loop);
}

/* The sum of all warps before; each leaves its own in shared memory, after the counters. */
static LLVMValueRef sums_before(Sorting *sort, LLVMValueRef up_to) {
  Emit *e = sort->scattering->e;
  LLVMBuilderRef builder = e->builder;
  int64_t warps = sort->threads / WARP, base = SCATTER_BINS * sort->threads * 4;
  LLVMValueRef warp = simt_warp(e), lane = simt_lane(e);
  LLVMValueRef last = LLVMBuildICmp(builder, LLVMIntEQ, lane, simt_i32(e, WARP - 1), "");
  Branch one = emit_if(e, last);
  emit_store(e, ELEM_i32, simt_shared_at(e, index_mul_add(e, warp, 4, simt_i32(e, base))), up_to,
             NULL);
  emit_end_if(e, one);
  simt_barrier(e);
  LLVMValueRef from = emit_min_i64(e, lane, simt_i32(e, warps - 1));
  from = simt_shared_at(e, index_mul_add(e, from, 4, simt_i32(e, base)));
  LLVMValueRef sum = emit_load(e, ELEM_i32, from, 1, NULL);
  LLVMValueRef before = LLVMBuildNSWSub(builder, group_sum_up_to(e, sum), sum, "");
  return simt_shuffle_from(e, before, warp);
}

/* Counters, all threads of a digit before all of the next one, become the sums of those before. */
static void scan_counters(Sorting *sort) {
  Emit *e = sort->scattering->e;
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef four = LLVMVectorType(narrow(e), 4);
  LLVMValueRef at[SCATTER_BINS / 4], n[SCATTER_BINS / 4], all = simt_i32(e, 0);
  for (int i = 0; i < SCATTER_BINS; i++) {
    LLVMValueRef lane = simt_i32(e, i % 4);
    if (i % 4 == 0) {
      at[i / 4] =
          simt_shared_at(e, index_mul_add(e, simt_thread(e), SCATTER_BINS * 4, simt_i32(e, i * 4)));
      n[i / 4] = LLVMBuildLoad2(builder, four, at[i / 4], "");
      LLVMSetAlignment(n[i / 4], 16);
    }
    LLVMValueRef one = LLVMBuildExtractElement(builder, n[i / 4], lane, "");
    n[i / 4] = LLVMBuildInsertElement(builder, n[i / 4], all, lane, "");
    all = LLVMBuildNSWAdd(builder, all, one, "");
  }
  LLVMValueRef up_to = group_sum_up_to(e, all), before = sums_before(sort, up_to);
  before = LLVMBuildNSWAdd(builder, before, LLVMBuildNSWSub(builder, up_to, all, ""), "");
  for (int i = 0; i < SCATTER_BINS / 4; i++) {
    LLVMValueRef sums = LLVMBuildNSWAdd(builder, n[i], emit_splat(e, before, 4), "");
    LLVMSetAlignment(LLVMBuildStore(builder, sums, at[i]), 16);
  }
}

static void sort_by_digits(Sorting *sort) {
  Emit *e = sort->scattering->e;
  LLVMValueRef list[] = {emit_i64(e, 0), emit_i64(e, sort->order.list)};
  Loop loop = emit_loop(e, emit_i64(e, 0), emit_i64(e, sort->order.digits), 1, 2, list);
  sort->from = loop.phi[0], sort->to = loop.phi[1];
  loop.next[0] = sort->to, loop.next[1] = sort->from;
  sort->shift = index_mul_add(e, loop.i, SCATTER_DIGIT, emit_i64(e, LOW));
  clear_counters(sort);
  take_pairs(sort, false);
  simt_barrier(e);
  scan_counters(sort);
  simt_barrier(e);
  take_pairs(sort, true);
  simt_barrier(e);
  emit_loop_end(e, &loop);
}

void scatter_sort(GpuScattering *scattering) {
  Emit *e = scattering->e;
  Sorting sort = {.scattering = scattering, .threads = simt_threads(e, 0)};
  sort.order = scatter_order_of(e->k, &scattering->s, sort.threads);
  sort.thread = simt_index(e, simt_thread(e));
  int64_t each = ceil_div(scattering->rows, sort.threads);
  sort.first = index_mul_add(e, sort.thread, each, emit_index(e, 0));
  sort.end = LLVMBuildNSWAdd(e->builder, sort.first, emit_index(e, each), "");
  sort.end = emit_min_i64(e, sort.end, emit_index(e, scattering->rows));
  write_pairs(&sort);
  simt_barrier(e);
  sort_by_digits(&sort);
}

/* ---- phases 1 and 2: the sorted list ---- */

typedef struct ListPlace { /* of a warp in the list, as e->index */
  GpuScattering *scattering;
  ScatterOrder order;
  LLVMValueRef at, key; /* i64 key */
} ListPlace;

static LLVMValueRef pair_of(ListPlace *place, LLVMValueRef at) {
  Emit *e = place->scattering->e;
  return emit_load(e, ELEM_i64, pair_at(e, emit_i64(e, place->order.sorted), at), 1, NULL);
}

static LLVMValueRef key_at(ListPlace *place, LLVMValueRef at) {
  Emit *e = place->scattering->e;
  return LLVMBuildLShr(e->builder, pair_of(place, at), emit_i64(e, LOW), "");
}

static LLVMValueRef both(Emit *e, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildAnd(e->builder, a, b, "");
}

/* Place `at` exists in the list, and has the warp's key. */
static LLVMValueRef same_key(ListPlace *place, LLVMValueRef at, LLVMValueRef exists) {
  Emit *e = place->scattering->e;
  LLVMValueRef safe = LLVMBuildSelect(e->builder, exists, at, emit_index(e, 0), "");
  return both(e, exists, LLVMBuildICmp(e->builder, LLVMIntEQ, key_at(place, safe), place->key, ""));
}

static LLVMValueRef same_before(ListPlace *place, LLVMValueRef at) {
  Emit *e = place->scattering->e;
  LLVMValueRef exists = LLVMBuildICmp(e->builder, LLVMIntSGT, at, emit_index(e, 0), "");
  return same_key(place, LLVMBuildNSWSub(e->builder, at, emit_index(e, 1), ""), exists);
}

static LLVMValueRef same_within(ListPlace *place, LLVMValueRef at) {
  Emit *e = place->scattering->e;
  LLVMValueRef end = emit_index(e, place->scattering->rows);
  return same_key(place, at, LLVMBuildICmp(e->builder, LLVMIntSLT, at, end, ""));
}

/* A sum of a piece in the workspace, at the thread's i-th vector of columns. */
static LLVMValueRef piece_at(ListPlace *place, LLVMValueRef number, int64_t i) {
  GpuScattering *scattering = place->scattering;
  Emit *e = scattering->e;
  LLVMValueRef at =
      index_mul_add(e, widened(e, number), scattering->columns, widened(e, scattering->at[i]));
  int64_t bytes = e->lanes * elem_bytes(scattering->in_registers);
  return workspace_at(e, index_mul_add(e, at, bytes, emit_i64(e, place->order.pieces)));
}

static unsigned alignment(const GpuScattering *scattering) {
  int64_t bytes = scattering->e->lanes * elem_bytes(scattering->in_registers);
  return (unsigned)min_i64(bytes & -bytes, 16);
}

static void store_piece(ListPlace *place, LLVMValueRef number, const LLVMValueRef *sum) {
  GpuScattering *scattering = place->scattering;
  Emit *e = scattering->e;
  for (int64_t i = 0; i < scattering->vectors; i++) {
    Branch present = {0};
    LLVMValueRef guard = scattering->column[i].guard;
    if (guard) present = emit_if(e, guard);
    LLVMValueRef to = piece_at(place, number, i);
    LLVMSetAlignment(LLVMBuildStore(e->builder, sum[i], to), alignment(scattering));
    if (guard) emit_end_if(e, present);
  }
}

/* ---- phase 1 ---- */

/* Adds the first n of the rows whose numbers the lanes hold, in order. */
static void add_rows(ListPlace *place, LLVMValueRef held, LLVMValueRef n, LLVMValueRef *sum) {
  GpuScattering *scattering = place->scattering;
  Emit *e = scattering->e;
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef x[SCATTER_AT_ONCE][GPU_COLUMNS_MOST], guard[SCATTER_AT_ONCE];
  int64_t vectors = scattering->vectors;
  Loop loop = emit_loop(e, simt_i32(e, 0), n, SCATTER_AT_ONCE, (int)vectors, sum);
  for (int j = 0; j < SCATTER_AT_ONCE; j++) {
    LLVMValueRef at = LLVMBuildNSWAdd(builder, loop.i, simt_i32(e, j), "");
    guard[j] = LLVMBuildICmp(builder, LLVMIntSLT, at, n, "");
    LLVMValueRef row = simt_index(e, simt_shuffle_from(e, held, at));
    expr_forget(e);
    for (int64_t i = 0; i < vectors; i++) {
      Point column = scattering->column[i];
      column.guard = column.guard ? both(e, column.guard, guard[j]) : guard[j];
      x[j][i] = scatter_x_at(scattering, row, &column);
    }
    expr_forget(e);
  }
  for (int64_t i = 0; i < vectors; i++) {
    loop.next[i] = loop.phi[i];
    for (int j = 0; j < SCATTER_AT_ONCE; j++) {
      LLVMValueRef more = math_combine(e, OP_sum, loop.next[i], x[j][i]);
      loop.next[i] = LLVMBuildSelect(builder, guard[j], more, loop.next[i], "");
    }
  }
  emit_loop_end(e, &loop);
  for (int64_t i = 0; i < vectors; i++) sum[i] = loop.phi[i];
}

/* The rows of the piece that begins at the warp's place; returns their number. */
static LLVMValueRef sum_piece(ListPlace *place, LLVMValueRef *sum) {
  GpuScattering *scattering = place->scattering;
  Emit *e = scattering->e;
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef end = LLVMBuildOr(builder, place->at, emit_index(e, PIECE - 1), ""), held[TAIL];
  LLVMValueRef n = simt_i32(e, 0), lane = simt_index(e, simt_lane(e));
  for (int i = 0; i < TAIL; i++) {
    LLVMValueRef at = LLVMBuildNSWAdd(builder, place->at, emit_index(e, i * WARP), "");
    at = LLVMBuildNSWAdd(builder, at, lane, "");
    LLVMValueRef most = emit_index(e, scattering->rows - 1);
    LLVMValueRef pair = pair_of(place, emit_min_i64(e, at, most));
    LLVMValueRef key = LLVMBuildLShr(builder, pair, emit_i64(e, LOW), "");
    LLVMValueRef same = LLVMBuildICmp(builder, LLVMIntEQ, key, place->key, "");
    same = both(e, same, LLVMBuildICmp(builder, LLVMIntSLE, at, emit_min_i64(e, end, most), ""));
    LLVMValueRef bits = simt_ballot(e, same);
    n = LLVMBuildNSWAdd(builder, n, emit_intrinsic(e, "llvm.ctpop", narrow(e), 1, &bits), "");
    held[i] = LLVMBuildTrunc(builder, pair, narrow(e), "");
  }
  for (int64_t i = 0; i < scattering->vectors; i++)
    sum[i] = LLVMConstNull(emit_vector(e, scattering->in_registers, e->lanes));
  Loop loop = emit_loop(e, simt_i32(e, 0), n, WARP, (int)scattering->vectors, sum);
  LLVMValueRef rows = held[0], left = LLVMBuildNSWSub(builder, n, loop.i, "");
  LLVMValueRef first = LLVMBuildICmp(builder, LLVMIntEQ, loop.i, simt_i32(e, 0), "");
  rows = LLVMBuildSelect(builder, first, rows, held[TAIL - 1], "");
  for (int64_t i = 0; i < scattering->vectors; i++) loop.next[i] = loop.phi[i];
  add_rows(place, rows, emit_min_i64(e, left, simt_i32(e, WARP)), loop.next);
  emit_loop_end(e, &loop);
  for (int64_t i = 0; i < scattering->vectors; i++) sum[i] = loop.phi[i];
  return simt_index(e, n);
}

/* The warp's number in the phase: its place in the list, its block of columns. */
static ListPlace place_begin(GpuScattering *scattering, int phase, LLVMValueRef *block) {
  Emit *e = scattering->e;
  ListPlace place = {.scattering = scattering};
  place.order = scatter_order_of(e->k, &scattering->s, simt_threads(e, 0));
  LLVMValueRef cta = simt_index(e, simt_cta(e));
  LLVMValueRef warp =
      index_mul_add(e, cta, simt_threads(e, phase) / WARP, simt_index(e, simt_warp(e)));
  place.at = index_div(e, warp, scatter_blocks(scattering));
  *block = index_rem(e, warp, scatter_blocks(scattering));
  return place;
}

/* Begins code of those warps whose key is an index inside. */
static Branch begin_key(ListPlace *place, LLVMValueRef block) {
  GpuScattering *scattering = place->scattering;
  Emit *e = scattering->e;
  LLVMValueRef size = emit_i64(e, scattering->s.to_size);
  Branch wanted = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntULT, place->key, size, ""));
  scatter_find_columns(scattering, block);
  scattering->own = place->key;
  if (e->index != wide(e)) scattering->own = LLVMBuildTrunc(e->builder, place->key, e->index, "");
  return wanted;
}

void scatter_pieces(GpuScattering *scattering) {
  Emit *e = scattering->e;
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef block, sum[GPU_COLUMNS_MOST];
  ListPlace place = place_begin(scattering, 1, &block);
  LLVMValueRef rows = emit_index(e, scattering->rows);
  Branch present = emit_if(e, LLVMBuildICmp(builder, LLVMIntULT, place.at, rows, ""));
  place.key = key_at(&place, place.at);
  Branch wanted = begin_key(&place, block);
  LLVMValueRef aligned =
      LLVMBuildICmp(builder, LLVMIntEQ, index_rem(e, place.at, PIECE), emit_index(e, 0), "");
  LLVMValueRef goes_on = same_before(&place, place.at);
  LLVMValueRef begins = LLVMBuildOr(builder, aligned, LLVMBuildNot(builder, goes_on, ""), "");
  Branch piece = emit_if(e, begins);
  LLVMValueRef end = LLVMBuildNSWAdd(builder, place.at, sum_piece(&place, sum), "");
  LLVMValueRef apart = LLVMBuildOr(builder, goes_on, same_within(&place, end), "");
  Branch alone = emit_if(e, LLVMBuildNot(builder, apart, ""));
  scatter_store(scattering, sum);
  emit_end_if(e, alone);
  Branch several = emit_if(e, apart);
  LLVMValueRef number = index_mul_add(e, index_div(e, place.at, PIECE), 2, emit_index(e, 0));
  LLVMValueRef later = LLVMBuildZExt(builder, LLVMBuildNot(builder, aligned, ""), e->index, "");
  store_piece(&place, LLVMBuildNSWAdd(builder, number, later, ""), sum);
  emit_end_if(e, several), emit_end_if(e, piece), emit_end_if(e, wanted), emit_end_if(e, present);
}

/* ---- phase 2 ---- */

/* How many times 64 places from `first` on begin with the warp's key. */
static LLVMValueRef pieces_from(ListPlace *place, LLVMValueRef first) {
  Emit *e = place->scattering->e;
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef start[] = {emit_index(e, 0), simt_i32(e, WARP)}, next[2];
  LLVMValueRef lane = simt_index(e, simt_lane(e));
  While loop = while_begin(e, 2, start);
  while_test(e, &loop, LLVMBuildICmp(builder, LLVMIntEQ, loop.phi[1], simt_i32(e, WARP), ""));
  LLVMValueRef at = LLVMBuildNSWAdd(builder, first, loop.phi[0], "");
  at = LLVMBuildNSWAdd(builder, at, lane, "");
  LLVMValueRef bits =
      simt_ballot(e, same_within(place, index_mul_add(e, at, PIECE, emit_index(e, 0))));
  next[1] = emit_intrinsic(e, "llvm.ctpop", narrow(e), 1, &bits);
  next[0] = LLVMBuildNSWAdd(builder, loop.phi[0], simt_index(e, next[1]), "");
  while_end(e, &loop, next);
  return loop.phi[0];
}

/* The sum of the first piece and of n that begin with 64 places, from `after` on. */
static LLVMValueRef add_pieces(ListPlace *place, LLVMValueRef first, LLVMValueRef after,
                               LLVMValueRef n, int64_t i) {
  GpuScattering *scattering = place->scattering;
  Emit *e = scattering->e;
  LLVMBuilderRef builder = e->builder;
  LLVMTypeRef type = emit_vector(e, scattering->in_registers, e->lanes);
  LLVMValueRef x[SCATTER_AT_ONCE], at[SCATTER_AT_ONCE];
  LLVMValueRef sum = LLVMBuildLoad2(builder, type, piece_at(place, first, i), "");
  LLVMSetAlignment(sum, alignment(scattering));
  Loop loop = emit_loop(e, emit_index(e, 0), n, SCATTER_AT_ONCE, 1, &sum);
  LLVMValueRef last = LLVMBuildNSWSub(builder, n, emit_index(e, 1), "");
  for (int j = 0; j < SCATTER_AT_ONCE; j++) {
    at[j] = LLVMBuildNSWAdd(builder, loop.i, emit_index(e, j), "");
    LLVMValueRef number = LLVMBuildNSWAdd(builder, after, emit_min_i64(e, at[j], last), "");
    number = index_mul_add(e, number, 2, emit_index(e, 0));
    x[j] = LLVMBuildLoad2(builder, type, piece_at(place, number, i), "");
    LLVMSetAlignment(x[j], alignment(scattering));
  }
  loop.next[0] = loop.phi[0];
  for (int j = 0; j < SCATTER_AT_ONCE; j++) {
    LLVMValueRef more = math_combine(e, OP_sum, loop.next[0], x[j]);
    LLVMValueRef present = LLVMBuildICmp(builder, LLVMIntSLT, at[j], n, "");
    loop.next[0] = LLVMBuildSelect(builder, present, more, loop.next[0], "");
  }
  emit_loop_end(e, &loop);
  return loop.phi[0];
}

static void sum_pieces(ListPlace *place, LLVMValueRef first, LLVMValueRef after, LLVMValueRef n,
                       LLVMValueRef *sum) {
  GpuScattering *scattering = place->scattering;
  Emit *e = scattering->e;
  for (int64_t i = 0; i < scattering->vectors; i++) {
    LLVMValueRef guard = scattering->column[i].guard;
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->builder);
    Branch present = {0};
    if (guard) present = emit_if(e, guard);
    sum[i] = add_pieces(place, first, after, n, i);
    LLVMBasicBlockRef made = LLVMGetInsertBlock(e->builder);
    if (guard) emit_end_if(e, present), sum[i] = emit_if_value(e, before, made, sum[i]);
  }
}

void scatter_joins(GpuScattering *scattering) {
  Emit *e = scattering->e;
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef block, sum[GPU_COLUMNS_MOST], one = emit_index(e, 1);
  ListPlace place = place_begin(scattering, 2, &block);
  int64_t joins = scatter_order_joins(scattering->rows);
  Branch present =
      emit_if(e, LLVMBuildICmp(builder, LLVMIntULT, place.at, emit_index(e, joins), ""));
  LLVMValueRef begin = index_mul_add(e, place.at, PIECE, emit_index(e, 0));
  LLVMValueRef after = LLVMBuildNSWAdd(builder, place.at, one, "");
  LLVMValueRef end = index_mul_add(e, after, PIECE, emit_index(e, 0));
  place.key = key_at(&place, LLVMBuildNSWSub(builder, end, one, ""));
  Branch wanted = begin_key(&place, block);
  LLVMValueRef whole = same_within(&place, begin);
  LLVMValueRef goes_on = both(e, whole, same_before(&place, begin));
  LLVMValueRef starts = both(e, same_within(&place, end), LLVMBuildNot(builder, goes_on, ""));
  Branch first = emit_if(e, starts);
  LLVMValueRef number = index_mul_add(e, place.at, 2, emit_index(e, 0));
  LLVMValueRef later = LLVMBuildZExt(builder, LLVMBuildNot(builder, whole, ""), e->index, "");
  number = LLVMBuildNSWAdd(builder, number, later, "");
  sum_pieces(&place, number, after, pieces_from(&place, after), sum);
  scatter_store(scattering, sum);
  emit_end_if(e, first), emit_end_if(e, wanted), emit_end_if(e, present);
}
