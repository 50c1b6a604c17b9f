/* Sums of b over k in addition to the product: once a panel of b is packed it is added up, row by
   row, before the register tiles read it. The panel is in the second-level cache and every row of
   it is multiplied with all rows of a, so this costs one addition where the product needs hundreds.

   Only the first block of rows does it: others pack the same panels again. Sums of a block of k are
   added to those of the blocks before, in scratch; the last block stores the result. Must not: be
   used where b is read in place. */
#include "contract.h"

enum { STRANDS = 4 }; /* independent sums, so that additions do not wait for each other */

enum { SUM_PANEL, SUM_TOTAL, SUM_ROWS, SUM_MORE, SUM_ARGS };

static LLVMTypeRef sum_type(Contract *contract) {
  LLVMTypeRef t[] = {contract->ptr, contract->ptr, contract->i64, contract->i64};
  return LLVMFunctionType(contract->nothing, t, SUM_ARGS, 0);
}

static LLVMValueRef load(Contract *contract, LLVMValueRef base, LLVMValueRef offset) {
  Emit *emit = contract->e;
  LLVMValueRef x = LLVMBuildLoad2(emit->builder, contract->vector,
                                  tile_elements(emit, contract->f32, base, offset), "");
  LLVMSetAlignment(x, 4);
  return x;
}

/* Both halves of pairs (contract_operand.c), or the factors themselves. */
static LLVMValueRef plus_factors(Contract *contract, LLVMValueRef sum, LLVMValueRef x) {
  LLVMBuilderRef builder = contract->e->builder;
  if (!contract->pairs) return LLVMBuildFAdd(builder, sum, x, "");
  LLVMTypeRef i32 = LLVMInt32TypeInContext(contract->e->context);
  LLVMTypeRef words = LLVMVectorType(i32, (unsigned)contract->plan.lanes);
  LLVMValueRef w = LLVMBuildBitCast(builder, x, words, "");
  LLVMValueRef shift = emit_splat(contract->e, LLVMConstInt(i32, 16, 0), contract->plan.lanes);
  LLVMValueRef upper =
      emit_splat(contract->e, LLVMConstInt(i32, 0xffff0000u, 0), contract->plan.lanes);
  LLVMValueRef low =
      LLVMBuildBitCast(builder, LLVMBuildShl(builder, w, shift, ""), contract->vector, "");
  LLVMValueRef high =
      LLVMBuildBitCast(builder, LLVMBuildAnd(builder, w, upper, ""), contract->vector, "");
  return LLVMBuildFAdd(builder, LLVMBuildFAdd(builder, sum, low, ""), high, "");
}

typedef struct Adding {
  Contract *c;
  LLVMValueRef panel, sum[STRANDS * 8];
  int vectors;
} Adding;

/* Rows [from, to), `strands` at a time. */
static void add_rows(Adding *adding, LLVMValueRef from, LLVMValueRef to, int strands) {
  Contract *contract = adding->c;
  Emit *emit = contract->e;
  Loop loop = emit_loop(emit, from, to, strands, STRANDS * adding->vectors, adding->sum);
  for (int i = 0; i < STRANDS * adding->vectors; i++) loop.next[i] = loop.phi[i];
  for (int s = 0; s < strands; s++)
    for (int v = 0; v < adding->vectors; v++) {
      LLVMValueRef row = tile_times(emit, tile_add(emit, loop.i, emit_i64(emit, s)),
                                    adding->vectors * contract->plan.lanes);
      LLVMValueRef x = load(contract, adding->panel,
                            tile_add(emit, row, emit_i64(emit, v * contract->plan.lanes)));
      int i = s * adding->vectors + v;
      loop.next[i] = plus_factors(contract, loop.phi[i], x);
    }
  emit_loop_end(emit, &loop);
  for (int i = 0; i < STRANDS * adding->vectors; i++) adding->sum[i] = loop.phi[i];
}

/* total[v] = (more ? total[v] : 0) + the strands' sums */
static void join_strands(Adding *adding, LLVMValueRef total, LLVMValueRef more) {
  Contract *contract = adding->c;
  Emit *emit = contract->e;
  for (int v = 0; v < adding->vectors; v++) {
    LLVMValueRef at = emit_i64(emit, v * contract->plan.lanes), x = adding->sum[v];
    for (int s = 1; s < STRANDS; s++)
      x = LLVMBuildFAdd(emit->builder, x, adding->sum[s * adding->vectors + v], "");
    LLVMValueRef before = load(contract, total, at);
    before = LLVMBuildSelect(emit->builder, more, before, LLVMConstNull(contract->vector), "");
    LLVMValueRef to = tile_elements(emit, contract->f32, total, at);
    LLVMSetAlignment(LLVMBuildStore(emit->builder, LLVMBuildFAdd(emit->builder, before, x, ""), to),
                     4);
  }
}

static LLVMValueRef make_sums(Contract *contract, int wide) {
  Emit *emit = contract->e;
  Aside aside = tile_aside(emit, wide ? "sums_wide" : "sums", sum_type(contract));
  Adding adding = {.c = contract, .panel = LLVMGetParam(aside.function, SUM_PANEL)};
  adding.vectors = (int)contract->plan.width + wide;
  for (int i = 0; i < STRANDS * adding.vectors; i++)
    adding.sum[i] = LLVMConstNull(contract->vector);
  LLVMValueRef rows = LLVMGetParam(aside.function, SUM_ROWS),
               more = LLVMGetParam(aside.function, SUM_MORE);
  LLVMValueRef most = LLVMBuildAnd(emit->builder, rows, emit_i64(emit, -STRANDS), "");
  add_rows(&adding, emit_i64(emit, 0), most, STRANDS);
  add_rows(&adding, most, rows, 1);
  more = LLVMBuildICmp(emit->builder, LLVMIntNE, more, emit_i64(emit, 0), "");
  join_strands(&adding, LLVMGetParam(aside.function, SUM_TOTAL), more);
  tile_aside_end(emit, &aside);
  return aside.function;
}

static void store_sums(Contract *contract, const TileAt *place) {
  Emit *emit = contract->e;
  Elem elem = value_type(contract->k, contract->product.sum)->elem;
  for (int v = 0; v < place->vectors; v++) {
    Point p = contract_point(contract, place, v);
    LLVMValueRef x = load(contract, place->values, emit_i64(emit, v * contract->plan.lanes));
    if (!contract->product.n.count)
      x = LLVMBuildLoad2(emit->builder, contract->f32, place->values, ""); /* one column */
    expr_put(emit, contract->product.sum, &p, expr_convert(emit, x, ELEM_f32, elem));
  }
}

void contract_sums(Contract *contract, int wide, LLVMValueRef panel, const TileAt *place,
                   const KBlock *block, LLVMValueRef more, LLVMValueRef last) {
  Emit *emit = contract->e;
  if (!contract->sums[wide]) contract->sums[wide] = make_sums(contract, wide);
  LLVMValueRef outer = LLVMBuildNSWSub(emit->builder, block->o1, block->o0, "");
  LLVMValueRef rows = LLVMBuildNSWMul(emit->builder, outer, block->length, "");
  rows = tile_times(emit, rows, contract->plan.words);
  LLVMValueRef args[] = {panel, place->values, rows, more};
  LLVMBuildCall2(emit->builder, sum_type(contract), contract->sums[wide], args, SUM_ARGS, "");
  Branch done = emit_if(emit, last);
  store_sums(contract, place);
  emit_end_if(emit, done);
}
