/* Software prefetch and double-buffered packing: FMAs hide memory's latency.

   Only a chunk's first panel of b is packed at once, without a prefetch. Where lanes are contiguous
   each later panel is packed into a second buffer while its predecessor is computed: a slice of k
   with each row tile, which the micro-kernel fetched during the tile before. Where k is contiguous
   the source is read in long runs when it is packed, and each row tile fetches some lanes.

   --quick: each panel is packed at once, and sums leave through scratch: the least code. */
#include "contract.h"
#include "ir/support/num.h"
#include <string.h>

static int64_t row_bytes(const Contract *contract) { /* between neighbours along k */
  return contract_inner_stride(&contract->product.k, SIDE_B) * elem_bytes(contract->product.elem_b);
}

static int64_t lane_bytes(const Contract *contract) {
  return contract_inner_stride(&contract->product.n, SIDE_B) * elem_bytes(contract->product.elem_b);
}

static int64_t lanes_of_panel(const Contract *contract) {
  return (contract->plan.width + (contract->plan.wide > 0)) * contract->plan.lanes;
}

/* lanes are not contiguous: perhaps k does */
static bool contract_runs_of_b(const Contract *contract) {
  return contract_inner_stride(&contract->product.n, SIDE_B) != 1;
}

/* Lines of b that one step of k in one lane, or in all lanes, has. */
static int64_t lines_of_run(const Contract *contract) {
  return ceil_div(DEPTH_AMX * elem_bytes(contract->product.elem_b), CACHE_LINE);
}

static int64_t lines_of_row(const Contract *contract) {
  return ceil_div(lanes_of_panel(contract) * elem_bytes(contract->product.elem_b), CACHE_LINE) +
         (row_bytes(contract) % CACHE_LINE != 0);
}

/* AMX tiles: the lines of a slice are dealt out evenly to the steps of a tile. */
static void early_slice(Contract *contract) {
  if (!contract->amx || !contract->double_buffered) return;
  int64_t steps = contract->plan.steps / contract->plan.tile[TILE_K_INNER],
          tiles = contract->plan.tiles / contract->plan.tile[TILE_ROW];
  int64_t slice = ceil_div(contract->plan.k_inner_max, tiles), lanes = lanes_of_panel(contract);
  int64_t lines = slice * (contract_runs_of_b(contract) ? lanes * lines_of_run(contract)
                                                        : DEPTH_AMX * lines_of_row(contract));
  contract->prefetch_lines = ceil_div(lines, steps);
  if (!contract_runs_of_b(contract))
    contract->prefetch_lines =
        ceil_div(contract->prefetch_lines, lines_of_row(contract)) * lines_of_row(contract);
}

/* Where k is contiguous: lanes whose lines each row tile fetches. */
int64_t contract_prefetch_lanes(const Contract *contract) {
  return ceil_div(lanes_of_panel(contract), contract->plan.tiles / contract->plan.tile[TILE_ROW]);
}

/* Lines of a row of the panel, or of a lane. */
static int64_t lines_of_piece(const Contract *contract) {
  if (contract->prefetch_copy) return ceil_div(lanes_of_panel(contract) * 4, CACHE_LINE);
  if (!contract_runs_of_b(contract)) return lines_of_row(contract);
  int64_t bytes = contract->plan.k_inner_max * contract->plan.tile[TILE_DEPTH] *
                  elem_bytes(contract->product.elem_b);
  return ceil_div(bytes, CACHE_LINE) + (lane_bytes(contract) % CACHE_LINE != 0);
}

/* The others: evenly over the rounds. A burst would fill the queue to memory, and requests that the
   caches could serve would wait for it. */
static void early_lines(Contract *contract) {
  enum { MOST = 4, TURNS = 8 };
  if (contract->amx || !contract->prefetch) return;
  int64_t rounds = contract->plan.steps / contract->plan.tile[TILE_K_INNER] / MICRO_ROUND;
  int64_t slice =
      ceil_div(contract->plan.k_inner_max, contract->plan.tiles / contract->plan.tile[TILE_ROW]);
  int64_t pieces = slice * contract->plan.tile[TILE_DEPTH];
  if (contract->prefetch_copy) pieces = slice; /* a step of k is a row */
  else if (contract_runs_of_b(contract)) pieces = contract_prefetch_lanes(contract);
  int64_t lines = pieces * lines_of_piece(contract);
  contract->prefetch_lines = rounds * MOST < lines ? MOST : ceil_div(lines, rounds ? rounds : 1);
  contract->prefetch_period = 1;
  while (contract->prefetch_period < TURNS && contract->prefetch_period * 2 * lines <= rounds)
    contract->prefetch_period *= 2;
}

static void early_panel(Contract *contract) {
  contract->double_buffered = product_sliced(&contract->product, contract->plan.tile);
  bool plain = contract->plan.tile[TILE_PACK_B] == 1 && contract->product.n.count &&
               contract->product.n.outer == 1 && contract->product.k.count &&
               contract->product.k.outer == 1;
  contract->prefetch_copy = contract->plan.shared_b && !contract->amx &&
                            contract->product.k.count && contract->product.k.outer == 1;
  contract->prefetch = contract->prefetch_copy || contract->double_buffered ||
                       (plain && contract_inner_stride(&contract->product.k, SIDE_B) == 1);
  early_slice(contract);
  early_lines(contract);
}

/* Every element at the same offset, of the same size. */
static bool lies_alike(const Value *a, const Value *b) {
  size_t strides = sizeof *a->storage.stride * (size_t)a->type.rank;
  return type_equal(&a->type, &b->type) && a->storage.ordered == b->storage.ordered &&
         (!a->storage.ordered || !memcmp(a->storage.stride, b->storage.stride, strides));
}

static void fetch_beside(Contract *contract, uint32_t buffer) {
  if (contract->nbeside < BESIDE) contract->beside[contract->nbeside++] = buffer;
}

/* Other results, and operands of the epilogue, in the layout of this one. An operand is read row by
   row from distant lines, for which the epilogue of a tile would wait (measured: a third of the
   time of the gradient of GELU). */
static void early_beside(Contract *contract, const Value *value) {
  const Fn *k = contract->k;
  for (uint32_t i = contract->first + 1; i < k->results.n; i++)
    if (lies_alike(&k->values.at[k->results.at[i]], value)) fetch_beside(contract, k->args.n + i);
  contract->nresults = contract->nbeside;
  for (uint32_t i = 0; i < k->args.n; i++)
    if (i != contract->product.arg_a && i != contract->product.arg_b &&
        lies_alike(&k->values.at[k->args.at[i]], value))
      fetch_beside(contract, i);
}

static void early_result(Contract *contract) {
  bool only = contract->k->results.n == 1 + (contract->product.sum != NO_VALUE);
  contract->first = contract->k->results.at[0] == contract->product.sum;
  const Value *value = &contract->k->values.at[contract->k->results.at[contract->first]];
  bool rows = contract->product.n.count && contract->product.m.count &&
              contract->product.n.outer == 1 &&
              contract_inner_stride(&contract->product.n, SIDE_R) == 1;
  if (!rows || elem_class(value->type.elem) != CLASS_FLOAT || value->type.elem == ELEM_f64) return;
  contract->out = value->type.elem,
  contract->out_row =
      contract_inner_stride(&contract->product.m, SIDE_R) * elem_bytes(contract->out);
  contract->direct = only && contract->k->results.at[contract->first] == contract->product.value;
  early_beside(contract, value);
}

/* With 32 registers a tile takes twice as many cycles per line, and fetching did no harm. */
static bool fetch_evicts(const Contract *contract) {
  const int64_t *tile = contract->plan.tile;
  return contract->e->target->facts.vector_registers < 32 && !tile[TILE_PACK_A] &&
         product_rows_evict(&contract->product, tile[TILE_ROWS]);
}

void contract_plan_prefetch(Contract *contract) {
  if (contract->e->quick) return;
  early_panel(contract);
  bool in_place =
      !contract->plan.tile[TILE_PACK_A] && contract_inner_stride(&contract->product.k, SIDE_A) == 1;
  contract->prefetch_a = contract->product.m.count && contract->product.k.count &&
                         (in_place || contract->plan.rows_a) && !fetch_evicts(contract);
  early_result(contract);
  if (!contract->amx) return;
  contract->prefetch_a = false;
  contract->direct &=
      contract->out == ELEM_f32 && contract->product.m.inner % contract->plan.tile[TILE_ROWS] == 0;
}

static void fetch_line(Contract *contract, LLVMValueRef base, LLVMValueRef at, int64_t offset) {
  Emit *emit = contract->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(emit->context);
  at = tile_add(emit, at, emit_i64(emit, offset));
  emit_prefetch(emit, tile_elements(emit, i8, base, at), false);
}

/* Where k is contiguous: line n of the slice is in lane n % lanes. */
static void fetch_runs(Contract *contract, LLVMValueRef base, LLVMValueRef i) {
  Emit *emit = contract->e;
  int64_t lanes = lanes_of_panel(contract);
  for (int64_t j = 0; j < contract->prefetch_lines; j++) {
    LLVMValueRef n =
        tile_add(emit, tile_times(emit, i, contract->prefetch_lines), emit_i64(emit, j));
    LLVMValueRef lane = LLVMBuildURem(emit->builder, n, emit_i64(emit, lanes), "");
    LLVMValueRef line = LLVMBuildUDiv(emit->builder, n, emit_i64(emit, lanes), "");
    lane = tile_times(emit, lane, lane_bytes(contract));
    fetch_line(contract, base, tile_add(emit, lane, tile_times(emit, line, CACHE_LINE)), 0);
  }
}

static void fetch_rows(Contract *contract, LLVMValueRef base, LLVMValueRef i) {
  int64_t lines = lines_of_row(contract), rows = contract->prefetch_lines / lines;
  LLVMValueRef at = tile_times(contract->e, i, rows * row_bytes(contract));
  for (int64_t j = 0; j < contract->prefetch_lines; j++)
    fetch_line(contract, base, at, j / lines * row_bytes(contract) + j % lines * CACHE_LINE);
}

/* Bytes that the address moves after each round, and after the last round of a piece. */
static int64_t piece_rounds(const Contract *contract) {
  return ceil_div(lines_of_piece(contract), contract->prefetch_lines) * contract->prefetch_period;
}

static int64_t round_bytes(const Contract *contract) {
  return contract->prefetch_lines * CACHE_LINE / contract->prefetch_period;
}

static int64_t piece_bytes(const Contract *contract) {
  if (contract->prefetch_copy) return lines_of_piece(contract) * CACHE_LINE;
  return contract_runs_of_b(contract) ? lane_bytes(contract) : row_bytes(contract);
}

void contract_prefetch(Contract *contract, LLVMValueRef *at, LLVMValueRef *round) {
  Emit *emit = contract->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(emit->context);
  int64_t rounds = piece_rounds(contract), each = round_bytes(contract);
  for (int64_t j = 0; j < contract->prefetch_lines; j++)
    fetch_line(contract, *at, emit_i64(emit, j * CACHE_LINE), 0);
  LLVMValueRef more = tile_add(emit, *round, emit_i64(emit, 1));
  LLVMValueRef over = LLVMBuildICmp(emit->builder, LLVMIntEQ, more, emit_i64(emit, rounds), "");
  LLVMValueRef near = tile_elements(emit, i8, *at, emit_i64(emit, each));
  int64_t far = piece_bytes(contract) - (rounds - 1) * each;
  LLVMValueRef next = tile_elements(emit, i8, *at, emit_i64(emit, far));
  *at = far == each ? near : LLVMBuildSelect(emit->builder, over, next, near, "");
  *round = LLVMBuildSelect(emit->builder, over, emit_i64(emit, 0), more, "");
}

void contract_prefetch_amx(Contract *contract, LLVMValueRef i) {
  must(contract->amx, "kernel %s: has no steps of AMX tiles", contract->k->name);
  LLVMValueRef f = contract->e->function, base = LLVMGetParam(f, MICRO_PREFETCH);
  if (contract->double_buffered && contract_runs_of_b(contract)) fetch_runs(contract, base, i);
  if (contract->double_buffered && !contract_runs_of_b(contract)) fetch_rows(contract, base, i);
}

Range contract_slice(Contract *contract, LLVMValueRef i, LLVMValueRef n, LLVMValueRef length) {
  Emit *emit = contract->e;
  LLVMValueRef each = tile_add(emit, length, tile_add(emit, n, emit_i64(emit, -1)));
  each = LLVMBuildUDiv(emit->builder, each, n, "");
  LLVMValueRef from = LLVMBuildNSWMul(emit->builder, i, each, "");
  from = emit_min_i64(emit, from, length);
  return (Range){from, emit_min_i64(emit, tile_add(emit, from, each), length)};
}
