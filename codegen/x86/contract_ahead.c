/* What is done early, so that memory's latency hides behind arithmetic.

   Only a chunk's first panel of b is packed at once without warning. Where lanes lie side by side
   each later panel is packed into a second buffer while its predecessor is computed: a slice of k
   with each row tile, which the micro-kernel fetched during the tile before. Where k lies side by
   side the source is read in long runs when its turn comes, and each row tile fetches some lanes.
 */
#include "contract.h"
#include "ir/support/num.h"
#include <string.h>

static int64_t row_bytes(const Contract *c) { /* between neighbours along k */
  return contract_inner_stride(&c->p.k, SIDE_B) * elem_bytes(c->p.elem_b);
}

static int64_t lane_bytes(const Contract *c) {
  return contract_inner_stride(&c->p.n, SIDE_B) * elem_bytes(c->p.elem_b);
}

static int64_t lanes_of_panel(const Contract *c) {
  return (c->q.width + (c->q.wide > 0)) * c->q.lanes;
}

bool contract_runs_of_b(const Contract *c) { return contract_inner_stride(&c->p.n, SIDE_B) != 1; }

/* Lines of b that one step of k in one lane, or in all lanes, has. */
static int64_t lines_of_run(const Contract *c) {
  return ceil_div(DEPTH_MATRIX * elem_bytes(c->p.elem_b), CACHE_LINE);
}

static int64_t lines_of_row(const Contract *c) {
  return ceil_div(lanes_of_panel(c) * elem_bytes(c->p.elem_b), CACHE_LINE) +
         (row_bytes(c) % CACHE_LINE != 0);
}

/* Matrix registers: the lines of a slice are dealt out evenly to the steps of a tile. */
static void early_slice(Contract *c) {
  if (!c->matrix || !c->sliced) return;
  int64_t steps = c->q.steps / c->q.tile[TILE_K_INNER], tiles = c->q.tiles / c->q.tile[TILE_ROW];
  int64_t slice = ceil_div(c->q.k_inner_max, tiles), lanes = lanes_of_panel(c);
  int64_t lines =
      slice * (contract_runs_of_b(c) ? lanes * lines_of_run(c) : DEPTH_MATRIX * lines_of_row(c));
  c->ahead_lines = ceil_div(lines, steps);
  if (!contract_runs_of_b(c))
    c->ahead_lines = ceil_div(c->ahead_lines, lines_of_row(c)) * lines_of_row(c);
}

/* Where k lies side by side: lanes whose lines each row tile fetches. */
int64_t contract_ahead_lanes(const Contract *c) {
  return ceil_div(lanes_of_panel(c), c->q.tiles / c->q.tile[TILE_ROW]);
}

/* Lines of a row of the panel, or of a lane. */
static int64_t lines_of_piece(const Contract *c) {
  if (!contract_runs_of_b(c)) return lines_of_row(c);
  int64_t bytes = c->q.k_inner_max * c->q.tile[TILE_DEPTH] * elem_bytes(c->p.elem_b);
  return ceil_div(bytes, CACHE_LINE) + (lane_bytes(c) % CACHE_LINE != 0);
}

/* Others: evenly to the rounds. A burst would fill the queue to memory, and what the caches hold
   would wait behind it. */
static void early_lines(Contract *c) {
  enum { MOST = 4, TURNS = 8 };
  if (c->matrix || !c->ahead) return;
  int64_t rounds = c->q.steps / c->q.tile[TILE_K_INNER] / MICRO_ROUND;
  int64_t slice = ceil_div(c->q.k_inner_max, c->q.tiles / c->q.tile[TILE_ROW]);
  int64_t pieces = contract_runs_of_b(c) ? contract_ahead_lanes(c) : slice * c->q.tile[TILE_DEPTH];
  int64_t lines = pieces * lines_of_piece(c);
  c->ahead_lines = rounds * MOST < lines ? MOST : ceil_div(lines, rounds ? rounds : 1);
  c->ahead_turns = 1;
  while (c->ahead_turns < TURNS && c->ahead_turns * 2 * lines <= rounds) c->ahead_turns *= 2;
}

static void early_panel(Contract *c) {
  c->sliced = product_sliced(&c->p, c->q.tile);
  bool plain =
      c->q.tile[TILE_PACK_B] == 1 && c->p.n.n && c->p.n.outer == 1 && c->p.k.n && c->p.k.outer == 1;
  c->ahead = c->sliced || (plain && contract_inner_stride(&c->p.k, SIDE_B) == 1);
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
  bool only = c->k->results.n == 1 + (c->p.sum != NO_VALUE);
  c->first = c->k->results.at[0] == c->p.sum;
  const Value *r = &c->k->values.at[c->k->results.at[c->first]];
  bool rows =
      c->p.n.n && c->p.m.n && c->p.n.outer == 1 && contract_inner_stride(&c->p.n, SIDE_R) == 1;
  if (!rows || elem_class(r->type.elem) != CLASS_FLOAT || r->type.elem == ELEM_f64) return;
  c->out = r->type.elem, c->out_row = contract_inner_stride(&c->p.m, SIDE_R) * elem_bytes(c->out);
  c->direct = only && c->k->results.at[c->first] == c->p.value;
  for (uint32_t i = c->first + 1; i < c->k->results.n && c->nbeside < BESIDE; i++) {
    if (lies_alike(&c->k->values.at[c->k->results.at[i]], r)) c->beside[c->nbeside++] = i;
  }
}

void contract_ahead_of(Contract *c) {
  early_panel(c);
  bool in_place = !c->q.tile[TILE_PACK_A] && contract_inner_stride(&c->p.k, SIDE_A) == 1;
  c->ahead_a = c->p.m.n && c->p.k.n && (in_place || c->q.rows_a);
  early_result(c);
  if (!c->matrix) return;
  c->ahead_a = false;
  c->direct &= c->out == ELEM_f32 && c->p.m.inner % c->q.tile[TILE_ROWS] == 0;
}

static void fetch_line(Contract *c, LLVMValueRef base, LLVMValueRef at, int64_t offset) {
  Emit *e = c->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
  at = tile_add(e, at, emit_i64(e, offset));
  emit_prefetch(e, tile_elements(e, i8, base, at), false);
}

/* Where k lies side by side: line n of the slice is in lane n % lanes. */
static void fetch_runs(Contract *c, LLVMValueRef base, LLVMValueRef i) {
  Emit *e = c->e;
  int64_t lanes = lanes_of_panel(c);
  for (int64_t j = 0; j < c->ahead_lines; j++) {
    LLVMValueRef n = tile_add(e, tile_times(e, i, c->ahead_lines), emit_i64(e, j));
    LLVMValueRef lane = LLVMBuildURem(e->builder, n, emit_i64(e, lanes), "");
    LLVMValueRef line = LLVMBuildUDiv(e->builder, n, emit_i64(e, lanes), "");
    lane = tile_times(e, lane, lane_bytes(c));
    fetch_line(c, base, tile_add(e, lane, tile_times(e, line, CACHE_LINE)), 0);
  }
}

static void fetch_rows(Contract *c, LLVMValueRef base, LLVMValueRef i) {
  int64_t lines = lines_of_row(c), rows = c->ahead_lines / lines;
  LLVMValueRef at = tile_times(c->e, i, rows * row_bytes(c));
  for (int64_t j = 0; j < c->ahead_lines; j++)
    fetch_line(c, base, at, j / lines * row_bytes(c) + j % lines * CACHE_LINE);
}

/* Line n: of a row, or lane, then of the next one. */
static void fetch(Contract *c, LLVMValueRef base, LLVMValueRef n) {
  Emit *e = c->e;
  LLVMValueRef lines = emit_i64(e, lines_of_piece(c));
  LLVMValueRef piece = LLVMBuildUDiv(e->builder, n, lines, "");
  LLVMValueRef line = LLVMBuildURem(e->builder, n, lines, "");
  int64_t stride = contract_runs_of_b(c) ? lane_bytes(c) : row_bytes(c);
  LLVMValueRef in_row = tile_times(e, line, CACHE_LINE);
  fetch_line(c, base, tile_add(e, tile_times(e, piece, stride), in_row), 0);
}

void contract_ahead(Contract *c, LLVMValueRef i) {
  Emit *e = c->e;
  LLVMValueRef base = LLVMGetParam(e->function, MICRO_AHEAD);
  LLVMValueRef turn = LLVMBuildUDiv(e->builder, i, emit_i64(e, c->ahead_turns), "");
  turn = tile_times(e, turn, c->ahead_lines);
  for (int64_t j = 0; j < c->ahead_lines; j++) fetch(c, base, tile_add(e, turn, emit_i64(e, j)));
}

void contract_ahead_matrix(Contract *c, LLVMValueRef i) {
  LLVMValueRef f = c->e->function, base = LLVMGetParam(f, MICRO_AHEAD);
  if (c->sliced && contract_runs_of_b(c)) fetch_runs(c, base, i);
  if (c->sliced && !contract_runs_of_b(c)) fetch_rows(c, base, i);
}

Range contract_slice(Contract *c, LLVMValueRef i, LLVMValueRef n, LLVMValueRef length) {
  Emit *e = c->e;
  LLVMValueRef each = tile_add(e, length, tile_add(e, n, emit_i64(e, -1)));
  each = LLVMBuildUDiv(e->builder, each, n, "");
  LLVMValueRef from = LLVMBuildNSWMul(e->builder, i, each, "");
  from = emit_min_i64(e, from, length);
  return (Range){from, emit_min_i64(e, tile_add(e, from, each), length)};
}
