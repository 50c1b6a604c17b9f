/* What the micro-kernel fetches early, so that packing and the epilogue find it in a cache.

   While the row tiles of one panel are computed, the source of the next panel is touched, a part by each tile: every round
   of the micro-kernel's loop (four steps of k) asks for two lines. Where b's lanes lie side by side a tile takes two lines
   of a quarter of the rows; where k does, it takes two whole rows. Tiles beyond what is needed stay where they are: the same
   line again costs nothing. */
#include "contract.h"

enum { LINE = 64, STEPS = 4 };

static bool lanes_side_by_side(const Contract *c) { return contract_inner_stride(&c->p.n, SIDE_B) == 1; }

static int64_t step_bytes(const Contract *c) { return contract_inner_stride(&c->p.k, SIDE_B) * elem_bytes(c->p.elem_b); }

static int64_t lane_bytes(const Contract *c) { return contract_inner_stride(&c->p.n, SIDE_B) * elem_bytes(c->p.elem_b); }

static int64_t lanes_of_panel(const Contract *c) { return (c->q.width + (c->q.wide > 0)) * c->q.lanes; }

/* pairs of lines of one row of a panel */
static int64_t pairs(const Contract *c) {
  int64_t lines = (lanes_of_panel(c) * elem_bytes(c->p.elem_b) + LINE - 1) / LINE + (step_bytes(c) % LINE != 0);
  return (lines + 1) / 2;
}

static int64_t half_lanes(const Contract *c) { return (lanes_of_panel(c) + 1) / 2; }

void contract_ahead_of(Contract *c) {
  bool plain = c->q.tile[TILE_PACK_B] && c->p.n.n && c->p.n.outer == 1 && c->p.k.n && c->p.k.outer == 1;
  if (plain && lanes_side_by_side(c)) c->ahead_gap = LINE;
  else if (plain && contract_inner_stride(&c->p.k, SIDE_B) == 1) c->ahead_gap = half_lanes(c) * lane_bytes(c);
  bool out = c->p.n.n && c->p.m.n && c->p.n.outer == 1 && contract_inner_stride(&c->p.n, SIDE_R) == 1;
  const Value *r = &c->k->values.at[c->k->results.at[0]];
  if (out && r->type.elem == ELEM_f32) c->out_row = contract_inner_stride(&c->p.m, SIDE_R) * 4;
  c->direct = c->out_row && c->k->results.n == 1 && c->k->results.at[0] == c->p.value;
  bool aligned = c->out_row % LINE == 0; /* rows; whether the result starts at a line is asked at run time */
  c->stream = c->direct && aligned && type_count(&r->type) * 4 >= c->e->target->l2_bytes;
}

/* Tile i takes pair i mod pairs of the rows of quarter i / pairs. */
static LLVMValueRef by_lines(Contract *c, LLVMValueRef i, LLVMValueRef length, LLVMValueRef *needed) {
  Emit *e = c->e;
  LLVMValueRef n = emit_i64(e, pairs(c));
  LLVMValueRef quarter = LLVMBuildUDiv(e->builder, i, n, ""), pair = LLVMBuildURem(e->builder, i, n, "");
  LLVMValueRef rows = LLVMBuildUDiv(e->builder, length, emit_i64(e, STEPS), "");
  LLVMValueRef offset = tile_times(e, LLVMBuildNSWMul(e->builder, quarter, rows, ""), step_bytes(c));
  *needed = LLVMBuildICmp(e->builder, LLVMIntSLT, quarter, emit_i64(e, STEPS), "");
  return tile_add(e, offset, tile_times(e, pair, 2 * LINE));
}

LLVMValueRef contract_ahead(Contract *c, LLVMValueRef i, LLVMValueRef panel, LLVMValueRef length, LLVMValueRef *step) {
  Emit *e = c->e;
  LLVMValueRef needed, offset, zero = emit_i64(e, 0);
  int64_t each = step_bytes(c);
  if (!c->ahead_gap) {
    *step = zero;
    return panel;
  }
  if (lanes_side_by_side(c)) offset = by_lines(c, i, length, &needed);
  else {
    offset = tile_times(e, i, lane_bytes(c)), each *= STEPS;
    needed = LLVMBuildICmp(e->builder, LLVMIntSLT, i, emit_i64(e, half_lanes(c)), "");
  }
  *step = LLVMBuildSelect(e->builder, needed, emit_i64(e, each), zero, "");
  offset = LLVMBuildSelect(e->builder, needed, offset, zero, "");
  return tile_elements(e, LLVMInt8TypeInContext(e->context), panel, offset);
}
