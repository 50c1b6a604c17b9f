/* Packing b: copies a panel of b into scratch in the order in which the micro-kernel reads it, as
   factors (contract_operand.c); contract_pack_a.c packs a.

   Panels of b are [k][vectors * lanes]. Where b's lanes are contiguous a row of the panel is a
   vector load; where k is, squares of lanes x lanes elements are transposed in registers;
   otherwise lanes are gathered one by one. Lanes beyond the end of the inner n dim repeat its last
   element or hold zero: nobody stores what comes of them.

   Everything here counts k in factors (words): a step has plan.words of them, the last step of the
   inner dim perhaps some that are half empty or, for AMX tiles, zero. */
#include "contract_pack.h"
#include "ir/support/num.h"

void contract_store_f32(Contract *c, LLVMValueRef x, LLVMValueRef base, LLVMValueRef offset) {
  Emit *e = c->e;
  LLVMValueRef s = LLVMBuildStore(e->builder, x, tile_elements(e, c->f32, base, offset));
  LLVMSetAlignment(s, 4);
}

LLVMValueRef contract_insert(Contract *c, LLVMValueRef vector, LLVMValueRef x, int i) {
  must(i >= 0 && i < emit_lanes_of(vector), "kernel %s: lane %d of %d", c->k->name, i,
       emit_lanes_of(vector));
  LLVMTypeRef i32 = LLVMInt32TypeInContext(c->e->context);
  return LLVMBuildInsertElement(c->e->builder, vector, x, LLVMConstInt(i32, (unsigned)i, 0), "");
}

typedef struct PackB {
  Contract *c;
  LLVMValueRef src, dst, length, o0, o1, from, to, half; /* from, to: words of inner k */
  LLVMValueRef full;                                     /* up to here they are whole */
  int width;                                             /* vectors of the panel */
} PackB;

typedef struct LaneRow {          /* where the lanes of one vector come from */
  LLVMValueRef base, valid, mask; /* at k = 0; number of lanes that exist; NULL mask: all */
  int v;
} LaneRow;

bool contract_has_halves(const Contract *c) {
  return c->product.k.inner % c->plan.tile[TILE_DEPTH] != 0;
}

/* Elements of a word, which are neighbours along k. */
int64_t contract_word_depth(const Contract *c) { return c->pairs ? 2 : 1; }

/* Whole words of the inner k dim's last step, where it is not full; whether one more has half. */
static int64_t last_words(const Contract *c) {
  return c->product.k.inner % c->plan.tile[TILE_DEPTH] / contract_word_depth(c);
}
bool contract_last_half(const Contract *c) {
  return c->product.k.inner % contract_word_depth(c) != 0;
}

/* Words of `length` steps that are whole. */
LLVMValueRef contract_full_words(Contract *c, LLVMValueRef length, LLVMValueRef half) {
  LLVMValueRef all = tile_times(c->e, length, c->plan.words);
  if (!contract_has_halves(c)) return all;
  return LLVMBuildNSWSub(c->e->builder, all, tile_times(c->e, half, c->plan.words - last_words(c)),
                         "");
}

static bool has_tail(const Contract *c) { return c->product.n.inner % c->plan.lanes != 0; }

static LaneRow lane_row(PackB *b, LLVMValueRef v0, int v) {
  Contract *c = b->c;
  Emit *e = c->e;
  LLVMValueRef flat = tile_add(e, v0, emit_i64(e, v)), first = flat, outer = emit_i64(e, 0);
  if (c->product.n.outer > 1) {
    outer = LLVMBuildUDiv(e->builder, flat, emit_i64(e, c->plan.vectors_inner), "");
    first = LLVMBuildURem(e->builder, flat, emit_i64(e, c->plan.vectors_inner), "");
  }
  first = tile_times(e, first, c->plan.lanes);
  LLVMValueRef offset = contract_offset(e, &c->product.n, c->product.n.count - 1, outer, SIDE_B);
  offset = tile_add(e, offset, tile_times(e, first, contract_inner_stride(&c->product.n, SIDE_B)));
  LaneRow r = {.v = v};
  r.base = tile_elements(e, contract_memory(e, c->product.elem_b), b->src, offset);
  r.valid = LLVMBuildNSWSub(e->builder, emit_i64(e, c->product.n.inner), first, "");
  if (has_tail(c))
    r.mask = emit_tail_mask(e, first, emit_i64(e, c->product.n.inner), c->plan.lanes);
  return r;
}

/* Lanes gathered one by one; those that do not exist repeat the last one that does. */
static LLVMValueRef gathered(PackB *b, const LaneRow *r, LLVMValueRef k_offset, bool half) {
  Contract *c = b->c;
  Emit *e = c->e;
  LLVMValueRef x = LLVMGetPoison(c->vector);
  for (int j = 0; j < c->plan.lanes; j++) {
    LLVMValueRef at = emit_i64(e, j);
    if (has_tail(c)) at = emit_min_i64(e, at, tile_add(e, r->valid, emit_i64(e, -1)));
    at = tile_add(e, k_offset, tile_times(e, at, contract_inner_stride(&c->product.n, SIDE_B)));
    LLVMValueRef address = tile_elements(e, contract_memory(e, c->product.elem_b), r->base, at);
    x = contract_insert(c, x, contract_operand(c, SIDE_B, address, 1, NULL, half), j);
  }
  return x;
}

static LLVMValueRef panel_row(PackB *b, LLVMValueRef o, LLVMValueRef k) { /* offset in dst */
  Emit *e = b->c->e;
  LLVMValueRef row =
      LLVMBuildNSWMul(e->builder, LLVMBuildNSWSub(e->builder, o, b->o0, ""), b->length, "");
  return tile_times(e, tile_add(e, row, k), b->width * b->c->plan.lanes);
}

static LLVMValueRef source_offset(PackB *b, LLVMValueRef o, LLVMValueRef k) {
  Contract *c = b->c;
  LLVMValueRef outer = contract_offset(c->e, &c->product.k, c->product.k.count - 1, o, SIDE_B);
  int64_t stride = contract_inner_stride(&c->product.k, SIDE_B) * contract_word_depth(c);
  return tile_add(c->e, outer, tile_times(c->e, k, stride));
}

/* A row of the panel: vector loads if the lanes are contiguous, else gathers. */
static void copy_row(PackB *b, const LaneRow *r, int n, LLVMValueRef o, LLVMValueRef k, bool half) {
  Contract *c = b->c;
  Emit *e = c->e;
  bool plain = contract_inner_stride(&c->product.n, SIDE_B) == 1;
  LLVMValueRef source = source_offset(b, o, k), row = panel_row(b, o, k);
  for (int i = 0; i < n; i++) {
    LLVMValueRef x, at = tile_elements(e, contract_memory(e, c->product.elem_b), r[i].base, source);
    if (!plain) x = gathered(b, &r[i], source, half);
    else x = contract_operand(c, SIDE_B, at, c->plan.lanes, r[i].mask, half);
    contract_store_f32(c, x, b->dst, tile_add(e, row, emit_i64(e, r[i].v * c->plan.lanes)));
  }
}

static void copy_rows(PackB *b, const LaneRow *r, int n, LLVMValueRef o, LLVMValueRef from,
                      LLVMValueRef to, bool half) {
  Loop k = emit_loop(b->c->e, from, to, 1, 0, NULL);
  copy_row(b, r, n, o, k.i, half);
  emit_loop_end(b->c->e, &k);
}

/* Squares of lanes x lanes, for a vector all of whose lanes exist. */
static void transpose_rows(PackB *b, const LaneRow *r, LLVMValueRef o, LLVMValueRef to) {
  Contract *c = b->c;
  Emit *e = c->e;
  LLVMValueRef row[64];
  Loop k = emit_loop(e, b->from, to, c->plan.lanes, 0, NULL);
  LLVMValueRef source = source_offset(b, o, k.i);
  for (int j = 0; j < c->plan.lanes; j++) {
    LLVMValueRef at =
        tile_add(e, source, emit_i64(e, j * contract_inner_stride(&c->product.n, SIDE_B)));
    row[j] = contract_run(c, SIDE_B,
                          tile_elements(e, contract_memory(e, c->product.elem_b), r->base, at),
                          c->plan.lanes);
  }
  tile_transpose(e, row, c->plan.lanes);
  LLVMValueRef first = tile_add(e, panel_row(b, o, k.i), emit_i64(e, r->v * c->plan.lanes));
  for (int j = 0; j < c->plan.lanes; j++)
    contract_store_f32(c, row[j], b->dst,
                       tile_add(e, first, emit_i64(e, j * b->width * c->plan.lanes)));
  emit_loop_end(e, &k);
}

static void transpose_vector(PackB *b, const LaneRow *r, LLVMValueRef o) {
  Contract *c = b->c;
  Emit *e = c->e;
  LLVMValueRef whole =
      LLVMBuildICmp(e->builder, LLVMIntSGE, r->valid, emit_i64(e, c->plan.lanes), "");
  LLVMValueRef most = LLVMBuildNSWSub(e->builder, b->full, b->from, "");
  most = tile_add(e, b->from, LLVMBuildAnd(e->builder, most, emit_i64(e, -c->plan.lanes), ""));
  most = LLVMBuildSelect(e->builder, whole, most, b->from, "");
  transpose_rows(b, r, o, most);
  copy_rows(b, r, 1, o, most, b->full, false);
}

static void zero_rows(PackB *b, LLVMValueRef o, LLVMValueRef from, LLVMValueRef to) {
  Contract *c = b->c;
  Loop k = emit_loop(c->e, from, to, 1, 0, NULL);
  for (int v = 0; v < b->width; v++)
    contract_store_f32(c, LLVMConstNull(c->vector), b->dst,
                       tile_add(c->e, panel_row(b, o, k.i), emit_i64(c->e, v * c->plan.lanes)));
  emit_loop_end(c->e, &k);
}

/* What the last step of the inner dim lacks, if it is in this part. */
static void end_panel(PackB *b, const LaneRow *r, LLVMValueRef o) {
  Contract *c = b->c;
  LLVMValueRef end = b->full;
  if (contract_last_half(c))
    end = emit_min_i64(c->e, b->to, tile_add(c->e, end, emit_i64(c->e, 1)));
  if (contract_last_half(c)) copy_rows(b, r, b->width, o, b->full, end, true);
  if (c->amx) zero_rows(b, o, end, b->to);
}

static void pack_panel(PackB *b, LLVMValueRef v0) {
  Contract *c = b->c;
  bool transpose = contract_inner_stride(&c->product.k, SIDE_B) == 1 &&
                   contract_inner_stride(&c->product.n, SIDE_B) != 1 &&
                   c->plan.steps * c->plan.words >= c->plan.lanes;
  LaneRow r[8];
  for (int v = 0; v < b->width; v++) r[v] = lane_row(b, v0, v);
  Loop o = emit_loop(c->e, b->o0, b->o1, 1, 0, NULL);
  if (!transpose) copy_rows(b, r, b->width, o.i, b->from, b->full, false);
  for (int v = 0; transpose && v < b->width; v++) transpose_vector(b, &r[v], o.i);
  if (b->full != b->to) end_panel(b, r, o.i);
  emit_loop_end(c->e, &o);
}

LLVMTypeRef contract_pack_type(Contract *c, int pointers, int numbers) {
  LLVMTypeRef t[10]; /* at most */
  must(pointers + numbers <= (int)COUNT_OF(t), "kernel %s: packing takes %d arguments", c->k->name,
       pointers + numbers);
  for (int i = 0; i < pointers + numbers; i++) t[i] = i < pointers ? c->ptr : c->i64;
  return LLVMFunctionType(c->nothing, t, (unsigned)(pointers + numbers), 0);
}

/* x: outer k from, to; the block's length; steps from, to; half */
static PackB panel_words(Contract *c, LLVMValueRef src, LLVMValueRef dst, const LLVMValueRef *x) {
  PackB b = {.c = c, .src = src, .dst = dst, .o0 = x[0], .o1 = x[1], .half = x[5]};
  b.length = tile_times(c->e, x[2], c->plan.words), b.from = tile_times(c->e, x[3], c->plan.words);
  b.to = b.full = tile_times(c->e, x[4], c->plan.words);
  if (contract_has_halves(c)) /* the block's last step may be outside of this part */
    b.full = emit_min_i64(c->e, b.to, contract_full_words(c, x[2], x[5]));
  return b;
}

static LLVMValueRef make_pack_b(Contract *c, int wide) {
  Aside s = tile_aside(c->e, wide ? "pack_wide" : "pack", contract_pack_type(c, 2, 7));
  LLVMValueRef p[9];
  for (unsigned i = 0; i < 9; i++) p[i] = LLVMGetParam(s.function, i);
  PackB b = panel_words(c, p[0], p[1], p + 3);
  b.width = (int)c->plan.width + wide;
  pack_panel(&b, p[2]);
  tile_aside_end(c->e, &s);
  return s.function;
}

void contract_pack_b(Contract *c, int wide, LLVMValueRef src, LLVMValueRef dst, LLVMValueRef v0,
                     const KBlock *x, Range part) {
  if (!c->pack_b[wide]) c->pack_b[wide] = make_pack_b(c, wide);
  LLVMValueRef half = x->half ? x->half : emit_i64(c->e, 0);
  LLVMValueRef args[] = {src, dst, v0, x->o0, x->o1, x->length, part.from, part.to, half};
  LLVMBuildCall2(c->e->builder, contract_pack_type(c, 2, 7), c->pack_b[wide], args, 9, "");
}

/* ---- all panels of b ---- */

typedef void PanelPart(PackB *b, const LaneRow *r, LLVMValueRef o, LLVMValueRef k);

LLVMValueRef contract_packed_panel(Contract *c, LLVMValueRef v0, const KBlock *x) {
  LLVMBuilderRef b = c->e->builder;
  LLVMValueRef words = LLVMBuildNSWMul(b, LLVMBuildNSWSub(b, x->o1, x->o0, ""), x->length, "");
  return tile_times(c->e, LLVMBuildNSWMul(b, v0, words, ""), c->plan.words * c->plan.lanes);
}

/* Panels that all have this width. */
static void across_panels(const PackB *all, Range panels, int width, LLVMValueRef o, LLVMValueRef k,
                          PanelPart *part) {
  Contract *c = all->c;
  Emit *e = c->e;
  Loop p = emit_loop(e, panels.from, panels.to, 1, 0, NULL);
  LLVMValueRef extra = emit_min_i64(e, p.i, emit_i64(e, c->plan.wide));
  LLVMValueRef v0 = tile_add(e, tile_times(e, p.i, c->plan.width), extra);
  LLVMValueRef words = LLVMBuildNSWSub(e->builder, all->o1, all->o0, "");
  words = LLVMBuildNSWMul(e->builder, words, all->length, "");
  PackB b = *all;
  LaneRow r[8];
  LLVMValueRef at = LLVMBuildNSWMul(e->builder, v0, words, "");
  b.width = width, b.dst = tile_elements(e, c->f32, all->dst, tile_times(e, at, c->plan.lanes));
  for (int v = 0; v < width; v++) r[v] = lane_row(&b, v0, v);
  part(&b, r, o, k);
  emit_loop_end(e, &p);
}

static void across(const PackB *b, Range panels, LLVMValueRef o, LLVMValueRef k, PanelPart *part) {
  Contract *c = b->c;
  LLVMValueRef narrow = panels.from;
  if (c->plan.wide) {
    LLVMValueRef wide = emit_min_i64(c->e, emit_i64(c->e, c->plan.wide), panels.to);
    across_panels(b, (Range){panels.from, wide}, (int)c->plan.width + 1, o, k, part);
    LLVMValueRef more = LLVMBuildICmp(c->e->builder, LLVMIntSGT, wide, panels.from, "");
    narrow = LLVMBuildSelect(c->e->builder, more, wide, panels.from, "");
  }
  across_panels(b, (Range){narrow, panels.to}, (int)c->plan.width, o, k, part);
}

static void whole_word(PackB *b, const LaneRow *r, LLVMValueRef o, LLVMValueRef k) {
  copy_row(b, r, b->width, o, k, false);
}

static void rest_of_words(PackB *b, const LaneRow *r, LLVMValueRef o, LLVMValueRef k) {
  (void)k;
  end_panel(b, r, o);
}

static LLVMValueRef make_pack_across(Contract *c) {
  Emit *e = c->e;
  Aside s = tile_aside(e, "pack_across", contract_pack_type(c, 2, 8));
  LLVMValueRef p[10];
  for (unsigned i = 0; i < 10; i++) p[i] = LLVMGetParam(s.function, i);
  PackB b = panel_words(c, p[0], p[1], p + 2);
  Range panels = {p[8], p[9]};
  Loop o = emit_loop(e, b.o0, b.o1, 1, 0, NULL);
  Loop k = emit_loop(e, b.from, b.full, 1, 0, NULL);
  across(&b, panels, o.i, k.i, whole_word);
  emit_loop_end(e, &k);
  if (b.full != b.to) across(&b, panels, o.i, b.full, rest_of_words);
  emit_loop_end(e, &o);
  tile_aside_end(e, &s);
  return s.function;
}

void contract_pack_across(Contract *c, LLVMValueRef src, LLVMValueRef dst, const KBlock *x,
                          Range panels, Range part) {
  if (!c->pack_across) c->pack_across = make_pack_across(c);
  LLVMValueRef half = x->half ? x->half : emit_i64(c->e, 0);
  LLVMValueRef args[] = {src,       dst,     x->o0, x->o1,       x->length,
                         part.from, part.to, half,  panels.from, panels.to};
  LLVMBuildCall2(c->e->builder, contract_pack_type(c, 2, 8), c->pack_across, args, 10, "");
}
