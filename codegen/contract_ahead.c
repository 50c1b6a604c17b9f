/* What is done early, so that memory's latency hides behind arithmetic.

   Only a chunk's first panel of b is packed at once without warning. Where lanes lie side by side
   each later panel is packed into a second buffer while its predecessor is computed: a slice of k
   before each row tile, whose rows the micro-kernel fetched during the tile before, one per round
   of its loop (four steps of k). Where k lies side by side the source is read in long runs when its
   turn comes, and each row tile fetches two lanes' runs of it, a few bytes per round. */
#include "contract.h"

enum { LINE = 64 };

static int64_t row_bytes(const Contract *c) { /* between neighbours along k */
  return contract_inner_stride(&c->p.k, SIDE_B) * elem_bytes(c->p.elem_b);
}

static int64_t step_bytes(const Contract *c) { return row_bytes(c) * c->q.tile[TILE_DEPTH]; }

static int64_t lane_bytes(const Contract *c) {
  return contract_inner_stride(&c->p.n, SIDE_B) * elem_bytes(c->p.elem_b);
}

static int64_t lanes_of_panel(const Contract *c) {
  return (c->q.width + (c->q.wide > 0)) * c->q.lanes;
}

static int64_t half_lanes(const Contract *c) { return (lanes_of_panel(c) + 1) / 2; }

/* Row tiles share the rows of a panel; a round per four steps is more than enough for a row where
   there are many tiles. Then a row's lines are fetched in several rounds: a burst would fill the
   queue to memory, and hits behind it would wait. */
static int turns_of(const Contract *c) {
  int64_t tiles = c->q.tiles / c->q.tile[TILE_ROW];
  return tiles >= 18 ? 4 : tiles >= 9 ? 2 : 1;
}

static void early_panel(Contract *c) {
  c->sliced = product_sliced(&c->p, c->q.tile);
  bool plain =
      c->q.tile[TILE_PACK_B] && c->p.n.n && c->p.n.outer == 1 && c->p.k.n && c->p.k.outer == 1;
  if (!plain) return;
  if (c->sliced) {
    int64_t lines = (lanes_of_panel(c) * elem_bytes(c->p.elem_b) + LINE - 1) / LINE;
    c->ahead_count = (int)lines + (row_bytes(c) % LINE != 0), c->ahead_gap = LINE;
    c->ahead_turns = turns_of(c);
  } else if (contract_inner_stride(&c->p.k, SIDE_B) == 1) {
    c->ahead_count = 2, c->ahead_gap = half_lanes(c) * lane_bytes(c);
  }
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
  bool aligned =
      c->out_row % LINE == 0; /* rows; whether the result starts at a line is asked at run time */
  c->stream =
      c->direct && aligned && type_count(&r->type) * elem_bytes(c->out) >= c->e->target->l2_bytes;
}

void contract_ahead_of(Contract *c) {
  early_panel(c);
  c->ahead_a = !c->q.tile[TILE_PACK_A] && c->p.m.n && c->p.k.n &&
               contract_inner_stride(&c->p.k, SIDE_A) == 1;
  early_result(c);
}

LLVMValueRef contract_ahead(Contract *c, LLVMValueRef panel, LLVMValueRef i, LLVMValueRef from,
                            LLVMValueRef *step) {
  Emit *e = c->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
  *step = emit_i64(e, row_bytes(c)); /* rounds are enough for every row: four steps each */
  if (c->sliced) return tile_elements(e, i8, panel, tile_times(e, from, step_bytes(c)));
  LLVMValueRef zero = emit_i64(e, 0),
               needed = LLVMBuildICmp(e->builder, LLVMIntSLT, i, emit_i64(e, half_lanes(c)), "");
  *step = LLVMBuildSelect(e->builder, needed, emit_i64(e, 4 * step_bytes(c)), zero, "");
  return tile_elements(
      e, i8, panel, LLVMBuildSelect(e->builder, needed, tile_times(e, i, lane_bytes(c)), zero, ""));
}

/* Whole vectors of k, so that only the last slice has squares that are not full. */
Range contract_slice(Contract *c, LLVMValueRef i, LLVMValueRef n, LLVMValueRef length) {
  Emit *e = c->e;
  LLVMValueRef lanes = emit_i64(e, c->q.lanes),
               each = tile_add(e, length, tile_add(e, n, emit_i64(e, -1)));
  each = LLVMBuildUDiv(e->builder, each, n, "");
  each = tile_add(e, each, tile_add(e, lanes, emit_i64(e, -1)));
  each = LLVMBuildAnd(e->builder, each, emit_i64(e, -c->q.lanes), "");
  LLVMValueRef from = LLVMBuildNSWMul(e->builder, i, each, "");
  from = emit_min_i64(e, from, length);
  return (Range){from, emit_min_i64(e, tile_add(e, from, each), length)};
}
