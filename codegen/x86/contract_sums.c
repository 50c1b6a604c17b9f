/* Sums of b over k beside the product: once a panel of b is packed it is added up, row by row,
   before the register tiles read it. The panel is in the second-level cache and every row of it
   meets all rows of a, so this costs one addition where the product needs hundreds.

   Only the first block of rows does it: others pack the same panels again. Sums of a block of k are
   added to those of the blocks before, in scratch; the last block stores the result. Must not be
   asked where b is read in place. */
#include "contract.h"

enum { STRANDS = 4 }; /* independent sums, so that additions do not wait for each other */

enum { SUM_PANEL, SUM_TOTAL, SUM_ROWS, SUM_MORE, SUM_ARGS };

static LLVMTypeRef sum_type(Contract *c) {
  LLVMTypeRef t[] = {c->ptr, c->ptr, c->i64, c->i64};
  return LLVMFunctionType(c->nothing, t, SUM_ARGS, 0);
}

static LLVMValueRef load(Contract *c, LLVMValueRef base, LLVMValueRef offset) {
  Emit *e = c->e;
  LLVMValueRef x =
      LLVMBuildLoad2(e->builder, c->vector, tile_elements(e, c->f32, base, offset), "");
  LLVMSetAlignment(x, 4);
  return x;
}

/* Both halves of pairs (contract_operand.c), or the factors themselves. */
static LLVMValueRef plus_factors(Contract *c, LLVMValueRef sum, LLVMValueRef x) {
  LLVMBuilderRef b = c->e->builder;
  if (!c->pairs) return LLVMBuildFAdd(b, sum, x, "");
  LLVMTypeRef i32 = LLVMInt32TypeInContext(c->e->context);
  LLVMTypeRef words = LLVMVectorType(i32, (unsigned)c->plan.lanes);
  LLVMValueRef w = LLVMBuildBitCast(b, x, words, "");
  LLVMValueRef shift = emit_splat(c->e, LLVMConstInt(i32, 16, 0), c->plan.lanes);
  LLVMValueRef upper = emit_splat(c->e, LLVMConstInt(i32, 0xffff0000u, 0), c->plan.lanes);
  LLVMValueRef low = LLVMBuildBitCast(b, LLVMBuildShl(b, w, shift, ""), c->vector, "");
  LLVMValueRef high = LLVMBuildBitCast(b, LLVMBuildAnd(b, w, upper, ""), c->vector, "");
  return LLVMBuildFAdd(b, LLVMBuildFAdd(b, sum, low, ""), high, "");
}

typedef struct Adding {
  Contract *c;
  LLVMValueRef panel, sum[STRANDS * 8];
  int vectors;
} Adding;

/* Rows [from, to), `strands` at a time. */
static void add_rows(Adding *a, LLVMValueRef from, LLVMValueRef to, int strands) {
  Contract *c = a->c;
  Emit *e = c->e;
  Loop l = emit_loop(e, from, to, strands, STRANDS * a->vectors, a->sum);
  for (int i = 0; i < STRANDS * a->vectors; i++) l.next[i] = l.phi[i];
  for (int s = 0; s < strands; s++)
    for (int v = 0; v < a->vectors; v++) {
      LLVMValueRef row =
          tile_times(e, tile_add(e, l.i, emit_i64(e, s)), a->vectors * c->plan.lanes);
      LLVMValueRef x = load(c, a->panel, tile_add(e, row, emit_i64(e, v * c->plan.lanes)));
      int i = s * a->vectors + v;
      l.next[i] = plus_factors(c, l.phi[i], x);
    }
  emit_loop_end(e, &l);
  for (int i = 0; i < STRANDS * a->vectors; i++) a->sum[i] = l.phi[i];
}

/* total[v] = (more ? total[v] : 0) + the strands' sums */
static void join_strands(Adding *a, LLVMValueRef total, LLVMValueRef more) {
  Contract *c = a->c;
  Emit *e = c->e;
  for (int v = 0; v < a->vectors; v++) {
    LLVMValueRef at = emit_i64(e, v * c->plan.lanes), x = a->sum[v];
    for (int s = 1; s < STRANDS; s++)
      x = LLVMBuildFAdd(e->builder, x, a->sum[s * a->vectors + v], "");
    LLVMValueRef before = load(c, total, at);
    before = LLVMBuildSelect(e->builder, more, before, LLVMConstNull(c->vector), "");
    LLVMValueRef to = tile_elements(e, c->f32, total, at);
    LLVMSetAlignment(LLVMBuildStore(e->builder, LLVMBuildFAdd(e->builder, before, x, ""), to), 4);
  }
}

static LLVMValueRef make_sums(Contract *c, int wide) {
  Emit *e = c->e;
  Aside s = tile_aside(e, wide ? "sums_wide" : "sums", sum_type(c));
  Adding a = {.c = c, .panel = LLVMGetParam(s.function, SUM_PANEL)};
  a.vectors = (int)c->plan.width + wide;
  for (int i = 0; i < STRANDS * a.vectors; i++) a.sum[i] = LLVMConstNull(c->vector);
  LLVMValueRef rows = LLVMGetParam(s.function, SUM_ROWS), more = LLVMGetParam(s.function, SUM_MORE);
  LLVMValueRef most = LLVMBuildAnd(e->builder, rows, emit_i64(e, -STRANDS), "");
  add_rows(&a, emit_i64(e, 0), most, STRANDS);
  add_rows(&a, most, rows, 1);
  more = LLVMBuildICmp(e->builder, LLVMIntNE, more, emit_i64(e, 0), "");
  join_strands(&a, LLVMGetParam(s.function, SUM_TOTAL), more);
  tile_aside_end(e, &s);
  return s.function;
}

static void store_sums(Contract *c, const TileAt *t) {
  Emit *e = c->e;
  Elem elem = value_type(c->k, c->product.sum)->elem;
  for (int v = 0; v < t->vectors; v++) {
    Point p = contract_point(c, t, v);
    LLVMValueRef x = load(c, t->values, emit_i64(e, v * c->plan.lanes));
    if (!c->product.n.count) x = LLVMBuildLoad2(e->builder, c->f32, t->values, ""); /* one column */
    expr_put(e, c->product.sum, &p, expr_convert(e, x, ELEM_f32, elem));
  }
}

void contract_sums(Contract *c, int wide, LLVMValueRef panel, const TileAt *t, const KBlock *x,
                   LLVMValueRef more, LLVMValueRef last) {
  Emit *e = c->e;
  if (!c->sums[wide]) c->sums[wide] = make_sums(c, wide);
  LLVMValueRef outer = LLVMBuildNSWSub(e->builder, x->o1, x->o0, "");
  LLVMValueRef rows = LLVMBuildNSWMul(e->builder, outer, x->length, "");
  rows = tile_times(e, rows, c->plan.words);
  LLVMValueRef args[] = {panel, t->values, rows, more};
  LLVMBuildCall2(e->builder, sum_type(c), c->sums[wide], args, SUM_ARGS, "");
  Branch done = emit_if(e, last);
  store_sums(c, t);
  emit_end_if(e, done);
}
