/* Software prefetch and double-buffered packing: memory's latency hides behind FMAs.

   Only a chunk's first panel of b is packed at once without warning. Where lanes are contiguous
   each later panel is packed into a second buffer while its predecessor is computed: a slice of k
   with each row tile, which the micro-kernel fetched during the tile before. Where k is
   contiguous the source is read in long runs when its turn comes, and each row tile fetches some
   lanes.
 */
#include "contract.h"
#include "ir/support/num.h"
#include <string.h>

static int64_t row_bytes(const Contract *c) { /* between neighbours along k */
  return contract_inner_stride(&c->product.k, SIDE_B) * elem_bytes(c->product.elem_b);
}

static int64_t lane_bytes(const Contract *c) {
  return contract_inner_stride(&c->product.n, SIDE_B) * elem_bytes(c->product.elem_b);
}

static int64_t lanes_of_panel(const Contract *c) {
  return (c->plan.width + (c->plan.wide > 0)) * c->plan.lanes;
}

bool contract_runs_of_b(const Contract *c) {
  return contract_inner_stride(&c->product.n, SIDE_B) != 1;
}

/* Lines of b that one step of k in one lane, or in all lanes, has. */
static int64_t lines_of_run(const Contract *c) {
  return ceil_div(DEPTH_AMX * elem_bytes(c->product.elem_b), CACHE_LINE);
}

static int64_t lines_of_row(const Contract *c) {
  return ceil_div(lanes_of_panel(c) * elem_bytes(c->product.elem_b), CACHE_LINE) +
         (row_bytes(c) % CACHE_LINE != 0);
}

/* AMX tiles: the lines of a slice are dealt out evenly to the steps of a tile. */
static void early_slice(Contract *c) {
  if (!c->amx || !c->double_buffered) return;
  int64_t steps = c->plan.steps / c->plan.tile[TILE_K_INNER],
          tiles = c->plan.tiles / c->plan.tile[TILE_ROW];
  int64_t slice = ceil_div(c->plan.k_inner_max, tiles), lanes = lanes_of_panel(c);
  int64_t lines =
      slice * (contract_runs_of_b(c) ? lanes * lines_of_run(c) : DEPTH_AMX * lines_of_row(c));
  c->prefetch_lines = ceil_div(lines, steps);
  if (!contract_runs_of_b(c))
    c->prefetch_lines = ceil_div(c->prefetch_lines, lines_of_row(c)) * lines_of_row(c);
}

/* Where k is contiguous: lanes whose lines each row tile fetches. */
int64_t contract_prefetch_lanes(const Contract *c) {
  return ceil_div(lanes_of_panel(c), c->plan.tiles / c->plan.tile[TILE_ROW]);
}

/* Lines of a row of the panel, or of a lane. */
static int64_t lines_of_piece(const Contract *c) {
  if (c->prefetch_copy) return ceil_div(lanes_of_panel(c) * 4, CACHE_LINE);
  if (!contract_runs_of_b(c)) return lines_of_row(c);
  int64_t bytes = c->plan.k_inner_max * c->plan.tile[TILE_DEPTH] * elem_bytes(c->product.elem_b);
  return ceil_div(bytes, CACHE_LINE) + (lane_bytes(c) % CACHE_LINE != 0);
}

/* Others: evenly to the rounds. A burst would fill the queue to memory, and what the caches hold
   would wait behind it. */
static void early_lines(Contract *c) {
  enum { MOST = 4, TURNS = 8 };
  if (c->amx || !c->prefetch) return;
  int64_t rounds = c->plan.steps / c->plan.tile[TILE_K_INNER] / MICRO_ROUND;
  int64_t slice = ceil_div(c->plan.k_inner_max, c->plan.tiles / c->plan.tile[TILE_ROW]);
  int64_t pieces = slice * c->plan.tile[TILE_DEPTH];
  if (c->prefetch_copy) pieces = slice; /* a step of k is a row */
  else if (contract_runs_of_b(c)) pieces = contract_prefetch_lanes(c);
  int64_t lines = pieces * lines_of_piece(c);
  c->prefetch_lines = rounds * MOST < lines ? MOST : ceil_div(lines, rounds ? rounds : 1);
  c->prefetch_period = 1;
  while (c->prefetch_period < TURNS && c->prefetch_period * 2 * lines <= rounds)
    c->prefetch_period *= 2;
}

static void early_panel(Contract *c) {
  c->double_buffered = product_sliced(&c->product, c->plan.tile);
  bool plain = c->plan.tile[TILE_PACK_B] == 1 && c->product.n.count && c->product.n.outer == 1 &&
               c->product.k.count && c->product.k.outer == 1;
  c->prefetch_copy = c->plan.shared_b && !c->amx && c->product.k.count && c->product.k.outer == 1;
  c->prefetch = c->prefetch_copy || c->double_buffered ||
                (plain && contract_inner_stride(&c->product.k, SIDE_B) == 1);
  early_slice(c);
  early_lines(c);
}

/* Every element at the same offset, of the same size. */
static bool lies_alike(const Value *a, const Value *b) {
  size_t strides = sizeof *a->storage.stride * (size_t)a->type.rank;
  return type_equal(&a->type, &b->type) && a->storage.ordered == b->storage.ordered &&
         (!a->storage.ordered || !memcmp(a->storage.stride, b->storage.stride, strides));
}

static void early_result(Contract *c) {
  bool only = c->k->results.n == 1 + (c->product.sum != NO_VALUE);
  c->first = c->k->results.at[0] == c->product.sum;
  const Value *r = &c->k->values.at[c->k->results.at[c->first]];
  bool rows = c->product.n.count && c->product.m.count && c->product.n.outer == 1 &&
              contract_inner_stride(&c->product.n, SIDE_R) == 1;
  if (!rows || elem_class(r->type.elem) != CLASS_FLOAT || r->type.elem == ELEM_f64) return;
  c->out = r->type.elem,
  c->out_row = contract_inner_stride(&c->product.m, SIDE_R) * elem_bytes(c->out);
  c->direct = only && c->k->results.at[c->first] == c->product.value;
  for (uint32_t i = c->first + 1; i < c->k->results.n && c->nbeside < BESIDE; i++) {
    if (lies_alike(&c->k->values.at[c->k->results.at[i]], r)) c->beside[c->nbeside++] = i;
  }
}

void contract_plan_prefetch(Contract *c) {
  early_panel(c);
  bool in_place = !c->plan.tile[TILE_PACK_A] && contract_inner_stride(&c->product.k, SIDE_A) == 1;
  c->prefetch_a = c->product.m.count && c->product.k.count && (in_place || c->plan.rows_a);
  early_result(c);
  if (!c->amx) return;
  c->prefetch_a = false;
  c->direct &= c->out == ELEM_f32 && c->product.m.inner % c->plan.tile[TILE_ROWS] == 0;
}

static void fetch_line(Contract *c, LLVMValueRef base, LLVMValueRef at, int64_t offset) {
  Emit *e = c->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
  at = tile_add(e, at, emit_i64(e, offset));
  emit_prefetch(e, tile_elements(e, i8, base, at), false);
}

/* Where k is contiguous: line n of the slice is in lane n % lanes. */
static void fetch_runs(Contract *c, LLVMValueRef base, LLVMValueRef i) {
  Emit *e = c->e;
  int64_t lanes = lanes_of_panel(c);
  for (int64_t j = 0; j < c->prefetch_lines; j++) {
    LLVMValueRef n = tile_add(e, tile_times(e, i, c->prefetch_lines), emit_i64(e, j));
    LLVMValueRef lane = LLVMBuildURem(e->builder, n, emit_i64(e, lanes), "");
    LLVMValueRef line = LLVMBuildUDiv(e->builder, n, emit_i64(e, lanes), "");
    lane = tile_times(e, lane, lane_bytes(c));
    fetch_line(c, base, tile_add(e, lane, tile_times(e, line, CACHE_LINE)), 0);
  }
}

static void fetch_rows(Contract *c, LLVMValueRef base, LLVMValueRef i) {
  int64_t lines = lines_of_row(c), rows = c->prefetch_lines / lines;
  LLVMValueRef at = tile_times(c->e, i, rows * row_bytes(c));
  for (int64_t j = 0; j < c->prefetch_lines; j++)
    fetch_line(c, base, at, j / lines * row_bytes(c) + j % lines * CACHE_LINE);
}

/* Line n: of a row, or lane, then of the next one. */
static void fetch(Contract *c, LLVMValueRef base, LLVMValueRef n) {
  Emit *e = c->e;
  if (c->prefetch_copy) {
    fetch_line(c, base, tile_times(e, n, CACHE_LINE), 0);
    return;
  }
  LLVMValueRef lines = emit_i64(e, lines_of_piece(c));
  LLVMValueRef piece = LLVMBuildUDiv(e->builder, n, lines, "");
  LLVMValueRef line = LLVMBuildURem(e->builder, n, lines, "");
  int64_t stride = contract_runs_of_b(c) ? lane_bytes(c) : row_bytes(c);
  LLVMValueRef in_row = tile_times(e, line, CACHE_LINE);
  fetch_line(c, base, tile_add(e, tile_times(e, piece, stride), in_row), 0);
}

void contract_prefetch(Contract *c, LLVMValueRef i) {
  Emit *e = c->e;
  LLVMValueRef base = LLVMGetParam(e->function, MICRO_PREFETCH);
  LLVMValueRef turn = LLVMBuildUDiv(e->builder, i, emit_i64(e, c->prefetch_period), "");
  turn = tile_times(e, turn, c->prefetch_lines);
  for (int64_t j = 0; j < c->prefetch_lines; j++) fetch(c, base, tile_add(e, turn, emit_i64(e, j)));
}

void contract_prefetch_amx(Contract *c, LLVMValueRef i) {
  must(c->amx, "kernel %s: has no steps of AMX tiles", c->k->name);
  LLVMValueRef f = c->e->function, base = LLVMGetParam(f, MICRO_PREFETCH);
  if (c->double_buffered && contract_runs_of_b(c)) fetch_runs(c, base, i);
  if (c->double_buffered && !contract_runs_of_b(c)) fetch_rows(c, base, i);
}

Range contract_slice(Contract *c, LLVMValueRef i, LLVMValueRef n, LLVMValueRef length) {
  Emit *e = c->e;
  LLVMValueRef each = tile_add(e, length, tile_add(e, n, emit_i64(e, -1)));
  each = LLVMBuildUDiv(e->builder, each, n, "");
  LLVMValueRef from = LLVMBuildNSWMul(e->builder, i, each, "");
  from = emit_min_i64(e, from, length);
  return (Range){from, emit_min_i64(e, tile_add(e, from, each), length)};
}
