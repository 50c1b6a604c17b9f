/* Packing b: copies a panel of b into scratch in the order in which the micro-kernel reads it, as
   factors (contract_operand.c); contract_pack_a.c packs a.

   Panels of b are [k][vectors * lanes]. Where b's lanes are contiguous a row of the panel is a
   vector load; where k is, squares of lanes x lanes elements are transposed in registers; otherwise
   lanes are gathered one by one. Lanes past the end of the inner n dim repeat its last element or
   hold zero: their sums are never stored.

   This file counts k in factors (words): a step has plan.words of them, the last step of the inner
   dim perhaps some that are half empty or, for AMX tiles, zero. */
#include "contract_pack.h"
#include "ir/support/num.h"

void contract_store_f32(Contract *contract, LLVMValueRef x, LLVMValueRef base,
                        LLVMValueRef offset) {
  Emit *emit = contract->e;
  LLVMValueRef s =
      LLVMBuildStore(emit->builder, x, tile_elements(emit, contract->f32, base, offset));
  LLVMSetAlignment(s, 4);
}

LLVMValueRef contract_insert(Contract *contract, LLVMValueRef vector, LLVMValueRef x, int i) {
  must(i >= 0 && i < emit_lanes_of(vector), "kernel %s: lane %d of %d", contract->k->name, i,
       emit_lanes_of(vector));
  LLVMTypeRef i32 = LLVMInt32TypeInContext(contract->e->context);
  return LLVMBuildInsertElement(contract->e->builder, vector, x, LLVMConstInt(i32, (unsigned)i, 0),
                                "");
}

typedef struct PackB {
  Contract *c;
  LLVMValueRef src, dst, length, o0, o1, from, to, half; /* from, to: words of inner k */
  LLVMValueRef full;                                     /* steps before this one are whole */
  int width;                                             /* vectors of the panel */
} PackB;

typedef struct LaneRow {          /* where the lanes of one vector come from */
  LLVMValueRef base, valid, mask; /* at k = 0; number of lanes that exist; NULL mask: all */
  int v;
} LaneRow;

bool contract_has_halves(const Contract *contract) {
  return contract->product.k.inner % contract->plan.tile[TILE_DEPTH] != 0;
}

/* Elements of a word, which are neighbours along k. */
int64_t contract_word_depth(const Contract *contract) { return contract->pairs ? 2 : 1; }

/* Whole words of the inner k dim's last step, where it is not full; whether one more has half. */
static int64_t last_words(const Contract *contract) {
  return contract->product.k.inner % contract->plan.tile[TILE_DEPTH] /
         contract_word_depth(contract);
}
bool contract_last_half(const Contract *contract) {
  return contract->product.k.inner % contract_word_depth(contract) != 0;
}

/* Words of `length` steps that are whole. */
LLVMValueRef contract_full_words(Contract *contract, LLVMValueRef length, LLVMValueRef half) {
  LLVMValueRef all = tile_times(contract->e, length, contract->plan.words);
  if (!contract_has_halves(contract)) return all;
  return LLVMBuildNSWSub(contract->e->builder, all,
                         tile_times(contract->e, half, contract->plan.words - last_words(contract)),
                         "");
}

static bool has_tail(const Contract *contract) {
  return contract->product.n.inner % contract->plan.lanes != 0;
}

static LaneRow lane_row(PackB *pack, LLVMValueRef v0, int v) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  LLVMValueRef flat = tile_add(emit, v0, emit_i64(emit, v)), first = flat,
               outer = emit_i64(emit, 0);
  if (contract->product.n.outer > 1) {
    outer = LLVMBuildUDiv(emit->builder, flat, emit_i64(emit, contract->plan.vectors_inner), "");
    first = LLVMBuildURem(emit->builder, flat, emit_i64(emit, contract->plan.vectors_inner), "");
  }
  first = tile_times(emit, first, contract->plan.lanes);
  LLVMValueRef offset =
      contract_offset(emit, &contract->product.n, contract->product.n.count - 1, outer, SIDE_B);
  offset = tile_add(emit, offset,
                    tile_times(emit, first, contract_inner_stride(&contract->product.n, SIDE_B)));
  LaneRow row = {.v = v};
  row.base =
      tile_elements(emit, contract_memory(emit, contract->product.elem_b), pack->src, offset);
  row.valid = LLVMBuildNSWSub(emit->builder, emit_i64(emit, contract->product.n.inner), first, "");
  if (has_tail(contract))
    row.mask = emit_tail_mask(emit, first, emit_i64(emit, contract->product.n.inner),
                              contract->plan.lanes);
  return row;
}

/* A lane that does not exist repeats the last one that does. */
static LLVMValueRef one_lane(PackB *pack, const LaneRow *row, LLVMValueRef k_offset,
                             LLVMValueRef at, bool half) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  if (has_tail(contract))
    at = emit_min_i64(emit, at, tile_add(emit, row->valid, emit_i64(emit, -1)));
  at = tile_add(emit, k_offset,
                tile_times(emit, at, contract_inner_stride(&contract->product.n, SIDE_B)));
  LLVMValueRef address =
      tile_elements(emit, contract_memory(emit, contract->product.elem_b), row->base, at);
  return contract_operand(contract, SIDE_B, address, 1, NULL, half);
}

static LLVMValueRef gathered(PackB *pack, const LaneRow *row, LLVMValueRef k_offset, bool half) {
  Contract *contract = pack->c;
  LLVMValueRef x = LLVMGetPoison(contract->vector);
  for (int j = 0; j < contract->plan.lanes; j++)
    x = contract_insert(contract, x, one_lane(pack, row, k_offset, emit_i64(contract->e, j), half),
                        j);
  return x;
}

static void copy_lanes(PackB *pack, const LaneRow *row, LLVMValueRef k_offset, LLVMValueRef to,
                       bool half) {
  Emit *emit = pack->c->e;
  Loop lane = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, pack->c->plan.lanes), 1, 0, NULL);
  LLVMValueRef x = one_lane(pack, row, k_offset, lane.i, half);
  contract_store_f32(pack->c, x, pack->dst, tile_add(emit, to, lane.i));
  emit_loop_end(emit, &lane);
}

static LLVMValueRef panel_row(PackB *pack, LLVMValueRef o, LLVMValueRef k) { /* offset in dst */
  Emit *emit = pack->c->e;
  LLVMValueRef row = LLVMBuildNSWMul(emit->builder, LLVMBuildNSWSub(emit->builder, o, pack->o0, ""),
                                     pack->length, "");
  return tile_times(emit, tile_add(emit, row, k), pack->width * pack->c->plan.lanes);
}

static LLVMValueRef source_offset(PackB *pack, LLVMValueRef o, LLVMValueRef k) {
  Contract *contract = pack->c;
  LLVMValueRef outer =
      contract_offset(contract->e, &contract->product.k, contract->product.k.count - 1, o, SIDE_B);
  int64_t stride =
      contract_inner_stride(&contract->product.k, SIDE_B) * contract_word_depth(contract);
  return tile_add(contract->e, outer, tile_times(contract->e, k, stride));
}

/* A row of the panel: vector loads if the lanes are contiguous, else gathers, or, with --quick, a
   loop. */
static void copy_row(PackB *pack, const LaneRow *lane_row, int n, LLVMValueRef o, LLVMValueRef k,
                     bool half) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  bool plain = contract_inner_stride(&contract->product.n, SIDE_B) == 1;
  LLVMValueRef source = source_offset(pack, o, k), row = panel_row(pack, o, k);
  for (int i = 0; i < n; i++) {
    LLVMValueRef x, at = tile_elements(emit, contract_memory(emit, contract->product.elem_b),
                                       lane_row[i].base, source);
    LLVMValueRef to = tile_add(emit, row, emit_i64(emit, lane_row[i].v * contract->plan.lanes));
    if (!plain && emit->quick) {
      copy_lanes(pack, &lane_row[i], source, to, half);
      continue;
    }
    if (!plain) x = gathered(pack, &lane_row[i], source, half);
    else x = contract_operand(contract, SIDE_B, at, contract->plan.lanes, lane_row[i].mask, half);
    contract_store_f32(contract, x, pack->dst, to);
  }
}

static void copy_rows(PackB *pack, const LaneRow *row, int n, LLVMValueRef o, LLVMValueRef from,
                      LLVMValueRef to, bool half) {
  Loop loop = emit_loop(pack->c->e, from, to, 1, 0, NULL);
  copy_row(pack, row, n, o, loop.i, half);
  emit_loop_end(pack->c->e, &loop);
}

/* Squares of lanes x lanes, for a vector all of whose lanes exist. */
static void transpose_rows(PackB *pack, const LaneRow *lane_row, LLVMValueRef o, LLVMValueRef to) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  LLVMValueRef row[64];
  Loop loop = emit_loop(emit, pack->from, to, contract->plan.lanes, 0, NULL);
  LLVMValueRef source = source_offset(pack, o, loop.i);
  for (int j = 0; j < contract->plan.lanes; j++) {
    LLVMValueRef at = tile_add(
        emit, source, emit_i64(emit, j * contract_inner_stride(&contract->product.n, SIDE_B)));
    row[j] = contract_run(
        contract, SIDE_B,
        tile_elements(emit, contract_memory(emit, contract->product.elem_b), lane_row->base, at),
        contract->plan.lanes);
  }
  tile_transpose(emit, row, contract->plan.lanes);
  LLVMValueRef first = tile_add(emit, panel_row(pack, o, loop.i),
                                emit_i64(emit, lane_row->v * contract->plan.lanes));
  for (int j = 0; j < contract->plan.lanes; j++)
    contract_store_f32(
        contract, row[j], pack->dst,
        tile_add(emit, first, emit_i64(emit, j * pack->width * contract->plan.lanes)));
  emit_loop_end(emit, &loop);
}

static void transpose_vector(PackB *pack, const LaneRow *row, LLVMValueRef o) {
  Contract *contract = pack->c;
  Emit *emit = contract->e;
  LLVMValueRef whole = LLVMBuildICmp(emit->builder, LLVMIntSGE, row->valid,
                                     emit_i64(emit, contract->plan.lanes), "");
  LLVMValueRef most = LLVMBuildNSWSub(emit->builder, pack->full, pack->from, "");
  most = tile_add(emit, pack->from,
                  LLVMBuildAnd(emit->builder, most, emit_i64(emit, -contract->plan.lanes), ""));
  most = LLVMBuildSelect(emit->builder, whole, most, pack->from, "");
  transpose_rows(pack, row, o, most);
  copy_rows(pack, row, 1, o, most, pack->full, false);
}

static void zero_rows(PackB *pack, LLVMValueRef o, LLVMValueRef from, LLVMValueRef to) {
  Contract *contract = pack->c;
  Loop loop = emit_loop(contract->e, from, to, 1, 0, NULL);
  for (int v = 0; v < pack->width; v++)
    contract_store_f32(contract, LLVMConstNull(contract->vector), pack->dst,
                       tile_add(contract->e, panel_row(pack, o, loop.i),
                                emit_i64(contract->e, v * contract->plan.lanes)));
  emit_loop_end(contract->e, &loop);
}

/* Fills the missing words of the inner dim's last step, if it is in this part. */
static void end_panel(PackB *pack, const LaneRow *row, LLVMValueRef o) {
  Contract *contract = pack->c;
  LLVMValueRef end = pack->full;
  if (contract_last_half(contract))
    end = emit_min_i64(contract->e, pack->to, tile_add(contract->e, end, emit_i64(contract->e, 1)));
  if (contract_last_half(contract)) copy_rows(pack, row, pack->width, o, pack->full, end, true);
  if (contract->amx) zero_rows(pack, o, end, pack->to);
}

static void pack_panel(PackB *pack, LLVMValueRef v0) {
  Contract *contract = pack->c;
  bool transpose = !contract->e->quick &&
                   contract_inner_stride(&contract->product.k, SIDE_B) == 1 &&
                   contract_inner_stride(&contract->product.n, SIDE_B) != 1 &&
                   contract->plan.steps * contract->plan.words >= contract->plan.lanes;
  LaneRow row[8];
  for (int v = 0; v < pack->width; v++) row[v] = lane_row(pack, v0, v);
  Loop loop = emit_loop(contract->e, pack->o0, pack->o1, 1, 0, NULL);
  if (!transpose) copy_rows(pack, row, pack->width, loop.i, pack->from, pack->full, false);
  for (int v = 0; transpose && v < pack->width; v++) transpose_vector(pack, &row[v], loop.i);
  if (pack->full != pack->to) end_panel(pack, row, loop.i);
  emit_loop_end(contract->e, &loop);
}

/* A function that packs takes the addresses that it reads and writes, then numbers. */
LLVMTypeRef contract_pack_type(Contract *contract, int numbers) {
  LLVMTypeRef t[10] = {contract->ptr, contract->ptr}; /* at most */
  int n = 2 + numbers;
  must(n <= (int)COUNT_OF(t), "kernel %s: packing takes %d arguments", contract->k->name, n);
  for (int i = 2; i < n; i++) t[i] = contract->i64;
  return LLVMFunctionType(contract->nothing, t, (unsigned)n, 0);
}

/* x: outer k from, to; the block's length; steps from, to; half */
static PackB panel_words(Contract *contract, LLVMValueRef src, LLVMValueRef dst,
                         const LLVMValueRef *x) {
  PackB pack = {.c = contract, .src = src, .dst = dst, .o0 = x[0], .o1 = x[1], .half = x[5]};
  pack.length = tile_times(contract->e, x[2], contract->plan.words),
  pack.from = tile_times(contract->e, x[3], contract->plan.words);
  pack.to = pack.full = tile_times(contract->e, x[4], contract->plan.words);
  if (contract_has_halves(contract)) /* the block's last step may be outside of this part */
    pack.full = emit_min_i64(contract->e, pack.to, contract_full_words(contract, x[2], x[5]));
  return pack;
}

static LLVMValueRef make_pack_b(Contract *contract, int wide) {
  Aside aside =
      tile_aside(contract->e, wide ? "pack_wide" : "pack", contract_pack_type(contract, 7));
  LLVMValueRef p[9];
  for (unsigned i = 0; i < 9; i++) p[i] = LLVMGetParam(aside.function, i);
  PackB pack = panel_words(contract, p[0], p[1], p + 3);
  pack.width = (int)contract->plan.width + wide;
  pack_panel(&pack, p[2]);
  tile_aside_end(contract->e, &aside);
  return aside.function;
}

void contract_pack_b(Contract *contract, int wide, LLVMValueRef src, LLVMValueRef dst,
                     LLVMValueRef v0, const KBlock *block, Range part) {
  if (!contract->pack_b[wide]) contract->pack_b[wide] = make_pack_b(contract, wide);
  LLVMValueRef half = block->half ? block->half : emit_i64(contract->e, 0);
  LLVMValueRef args[] = {src,           dst,       v0,      block->o0, block->o1,
                         block->length, part.from, part.to, half};
  LLVMBuildCall2(contract->e->builder, contract_pack_type(contract, 7), contract->pack_b[wide],
                 args, 9, "");
}

/* ---- all panels of b ---- */

typedef void PanelPart(PackB *b, const LaneRow *r, LLVMValueRef o, LLVMValueRef k);

LLVMValueRef contract_packed_panel(Contract *contract, LLVMValueRef v0, const KBlock *block) {
  LLVMBuilderRef b = contract->e->builder;
  LLVMValueRef words =
      LLVMBuildNSWMul(b, LLVMBuildNSWSub(b, block->o1, block->o0, ""), block->length, "");
  return tile_times(contract->e, LLVMBuildNSWMul(b, v0, words, ""),
                    contract->plan.words * contract->plan.lanes);
}

/* Panels that all have this width. */
static void across_panels(const PackB *all, Range panels, int width, LLVMValueRef o, LLVMValueRef k,
                          PanelPart *part) {
  Contract *contract = all->c;
  Emit *emit = contract->e;
  Loop loop = emit_loop(emit, panels.from, panels.to, 1, 0, NULL);
  LLVMValueRef extra = emit_min_i64(emit, loop.i, emit_i64(emit, contract->plan.wide));
  LLVMValueRef v0 = tile_add(emit, tile_times(emit, loop.i, contract->plan.width), extra);
  LLVMValueRef words = LLVMBuildNSWSub(emit->builder, all->o1, all->o0, "");
  words = LLVMBuildNSWMul(emit->builder, words, all->length, "");
  PackB pack = *all;
  LaneRow row[8];
  LLVMValueRef at = LLVMBuildNSWMul(emit->builder, v0, words, "");
  pack.width = width, pack.dst = tile_elements(emit, contract->f32, all->dst,
                                               tile_times(emit, at, contract->plan.lanes));
  for (int v = 0; v < width; v++) row[v] = lane_row(&pack, v0, v);
  part(&pack, row, o, k);
  emit_loop_end(emit, &loop);
}

static void across(const PackB *pack, Range panels, LLVMValueRef o, LLVMValueRef k,
                   PanelPart *part) {
  Contract *contract = pack->c;
  LLVMValueRef narrow = panels.from;
  if (contract->plan.wide) {
    LLVMValueRef wide =
        emit_min_i64(contract->e, emit_i64(contract->e, contract->plan.wide), panels.to);
    across_panels(pack, (Range){panels.from, wide}, (int)contract->plan.width + 1, o, k, part);
    LLVMValueRef more = LLVMBuildICmp(contract->e->builder, LLVMIntSGT, wide, panels.from, "");
    narrow = LLVMBuildSelect(contract->e->builder, more, wide, panels.from, "");
  }
  across_panels(pack, (Range){narrow, panels.to}, (int)contract->plan.width, o, k, part);
}

static void whole_word(PackB *pack, const LaneRow *row, LLVMValueRef o, LLVMValueRef k) {
  copy_row(pack, row, pack->width, o, k, false);
}

static void rest_of_words(PackB *pack, const LaneRow *row, LLVMValueRef o, LLVMValueRef k) {
  (void)k;
  end_panel(pack, row, o);
}

static LLVMValueRef make_pack_across(Contract *contract) {
  Emit *emit = contract->e;
  Aside aside = tile_aside(emit, "pack_across", contract_pack_type(contract, 8));
  LLVMValueRef p[10];
  for (unsigned i = 0; i < 10; i++) p[i] = LLVMGetParam(aside.function, i);
  PackB pack = panel_words(contract, p[0], p[1], p + 2);
  Range panels = {p[8], p[9]};
  Loop o = emit_loop(emit, pack.o0, pack.o1, 1, 0, NULL);
  Loop k = emit_loop(emit, pack.from, pack.full, 1, 0, NULL);
  across(&pack, panels, o.i, k.i, whole_word);
  emit_loop_end(emit, &k);
  if (pack.full != pack.to) across(&pack, panels, o.i, pack.full, rest_of_words);
  emit_loop_end(emit, &o);
  tile_aside_end(emit, &aside);
  return aside.function;
}

void contract_pack_across(Contract *contract, LLVMValueRef src, LLVMValueRef dst,
                          const KBlock *block, Range panels, Range part) {
  if (!contract->pack_across) contract->pack_across = make_pack_across(contract);
  LLVMValueRef half = block->half ? block->half : emit_i64(contract->e, 0);
  LLVMValueRef args[] = {src,       dst,     block->o0, block->o1,   block->length,
                         part.from, part.to, half,      panels.from, panels.to};
  LLVMBuildCall2(contract->e->builder, contract_pack_type(contract, 8), contract->pack_across, args,
                 10, "");
}
