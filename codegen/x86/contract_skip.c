/* Products over the places of experts (attribute `skips`, set by pass select): many places are
   empty, and their rows are zeros.

   Row tiles of a whose elements in this block of k are all zero are not multiplied: their
   micro-kernel runs over no steps, so it stores zeros, or adds nothing to the blocks of k before.
   If all results are products with the tile's sums, the epilogue writes zeros and reads nothing.
   Where places are summed (gradients of weights), each outer index of k is a block of its own, and
   the block ends at the last step at which the chunk's rows of a are not zero.

   Zeros are looked for in memory, once per chunk and block of k, not derived from counts: this
   needs no further operand, whichever rank the rows come from, and a row is seen to be filled by
   its first elements. The result is that of all products, but for zeros times an infinity or NaN
   of b. */
#include "contract_loops.h"
#include "ir/support/num.h"

static bool contract_skips_tiles(const Contract *contract) {
  const Product *product = &contract->product;
  return contract->plan.e_bytes && !contract->amx && product->k.count &&
         product->k.dim[product->k.count - 1].a == 1 && product->k.outer == 1;
}

static bool contract_skips_steps(const Contract *contract) {
  const Product *product = &contract->product;
  const ProductPlan *plan = &contract->plan;
  return product->place && !contract->amx && product->sum == NO_VALUE && !plan->shared &&
         !plan->shared_b && product->m.count == 1 && product->m.dim[0].a == 1 && product->k.count &&
         product->k.dim[product->k.count - 1].dim == product->place &&
         plan->tile[TILE_K_OUTER] == product->k.outer &&
         (plan->tile[TILE_K_INNER] == 1 || product->k.outer > 1) &&
         product->k.inner % plan->tile[TILE_DEPTH] == 0;
}

/* ---- is some element of n, which are contiguous, not zero? ---- */

/* The bits of vector i of a run of n. */
static LLVMValueRef bits_at(Contract *contract, LLVMValueRef base, LLVMValueRef i, LLVMValueRef n) {
  Emit *emit = contract->e;
  int lanes = contract->plan.lanes;
  Elem elem = contract->product.elem_a;
  LLVMTypeRef words = LLVMVectorType(LLVMInt32TypeInContext(emit->context), (unsigned)lanes);
  LLVMValueRef at = tile_elements(emit, contract_memory(emit, elem), base, i);
  LLVMValueRef mask = n ? emit_tail_mask(emit, i, n, lanes) : NULL;
  LLVMValueRef x = contract_load(contract, elem, at, lanes, mask);
  return LLVMBuildBitCast(emit->builder, x, words, "");
}

/* i1 */
static LLVMValueRef some_of(Contract *contract, LLVMValueRef base, LLVMValueRef n) {
  Emit *emit = contract->e;
  int lanes = contract->plan.lanes;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(emit->context);
  LLVMValueRef found = LLVMConstNull(LLVMVectorType(i32, (unsigned)lanes));
  LLVMValueRef whole = LLVMBuildAnd(emit->builder, n, emit_i64(emit, -lanes), "");
  Loop loop = emit_loop(emit, emit_i64(emit, 0), whole, lanes, 1, &found);
  loop.next[0] = LLVMBuildOr(emit->builder, loop.phi[0], bits_at(contract, base, loop.i, NULL), "");
  emit_loop_end(emit, &loop);
  found = LLVMBuildOr(emit->builder, loop.phi[0], bits_at(contract, base, whole, n), "");
  found = emit_intrinsic(emit, "llvm.vector.reduce.or", LLVMTypeOf(found), 1, &found);
  found = LLVMBuildAnd(emit->builder, found, LLVMConstInt(i32, 0x7fffffff, 0), ""); /* -0 is 0 */
  return LLVMBuildICmp(emit->builder, LLVMIntNE, found, LLVMConstNull(i32), "");
}

enum { SEEK_BASE, SEEK_OUT, SEEK_RUNS, SEEK_LENGTH, SEEK_STRIDE, SEEK_ARGS };

/* A function: of `runs` runs of `length` elements, `stride` elements apart, the number up to the
   last one (from the first: the last one that is seen) that is not zero, to OUT: i64. `backward`
   begins at the last run. */
static LLVMValueRef make_seek(Contract *contract, bool backward) {
  Emit *emit = contract->e;
  LLVMTypeRef t[] = {contract->ptr, contract->ptr, contract->i64, contract->i64, contract->i64};
  contract->seek_type = LLVMFunctionType(contract->nothing, t, SEEK_ARGS, 0);
  Aside aside = tile_aside(emit, backward ? "last" : "some", contract->seek_type);
  LLVMValueRef runs = LLVMGetParam(aside.function, SEEK_RUNS), zero = emit_i64(emit, 0);
  Loop loop = emit_loop(emit, zero, runs, 1, 1, &zero);
  LLVMValueRef up = tile_add(emit, loop.i, emit_i64(emit, 1));
  LLVMValueRef run = backward ? LLVMBuildNSWSub(emit->builder, runs, up, "") : loop.i;
  LLVMValueRef none = LLVMBuildICmp(emit->builder, LLVMIntEQ, loop.phi[0], zero, "");
  LLVMBasicBlockRef before = LLVMGetInsertBlock(emit->builder);
  Branch branch = emit_if(emit, none);
  LLVMValueRef at =
      LLVMBuildNSWMul(emit->builder, run, LLVMGetParam(aside.function, SEEK_STRIDE), "");
  at = tile_elements(emit, contract_memory(emit, contract->product.elem_a),
                     LLVMGetParam(aside.function, SEEK_BASE), at);
  LLVMValueRef some = some_of(contract, at, LLVMGetParam(aside.function, SEEK_LENGTH));
  LLVMValueRef found =
      LLVMBuildSelect(emit->builder, some, tile_add(emit, run, emit_i64(emit, 1)), zero, "");
  LLVMBasicBlockRef made_in = LLVMGetInsertBlock(emit->builder);
  emit_end_if(emit, branch);
  found = emit_if_value(emit, before, made_in, found);
  loop.next[0] = LLVMBuildOr(emit->builder, loop.phi[0], found, ""); /* one of them is 0 */
  emit_loop_end(emit, &loop);
  LLVMBuildStore(emit->builder, loop.phi[0], LLVMGetParam(aside.function, SEEK_OUT));
  tile_aside_end(emit, &aside);
  return aside.function;
}

static void seek(Contract *contract, bool backward, LLVMValueRef *args) {
  if (!contract->seek) contract->seek = make_seek(contract, backward);
  LLVMBuildCall2(contract->e->builder, contract->seek_type, contract->seek, args, SEEK_ARGS, "");
}

/* ---- row tiles ---- */

static LLVMValueRef flag(ChunkLoops *loops, LLVMValueRef tile) {
  Emit *emit = loops->c->e;
  LLVMValueRef n = LLVMBuildNSWSub(emit->builder, tile, loops->row.from, "");
  return tile_elements(emit, loops->c->i64, loops->flags, n);
}

void contract_seek_tiles(ChunkLoops *loops) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (!contract_skips_tiles(contract)) return;
  Loop loop = emit_loop(emit, loops->row.from, loops->row.to, 1, 0, NULL);
  LLVMValueRef length = tile_times(emit, loops->k.length, contract->plan.tile[TILE_DEPTH]);
  if (loops->k.half) length = LLVMBuildNSWSub(emit->builder, length, loops->k.half, "");
  LLVMValueRef base = tile_elements(emit, contract_memory(emit, contract->product.elem_a),
                                    loops->a_base, contract_tile_offset(contract, loop.i, SIDE_A));
  LLVMValueRef args[SEEK_ARGS] = {
      base, flag(loops, loop.i), contract_tile_rows(contract, loop.i), length,
      emit_i64(emit, contract_inner_stride(&contract->product.m, SIDE_A))};
  seek(contract, false, args);
  emit_loop_end(emit, &loop);
}

LLVMValueRef contract_tile_filled(ChunkLoops *loops, LLVMValueRef tile) {
  Emit *emit = loops->c->e;
  if (!contract_skips_tiles(loops->c)) return NULL;
  LLVMValueRef at = LLVMBuildLoad2(emit->builder, loops->c->i64, flag(loops, tile), "filled");
  return LLVMBuildICmp(emit->builder, LLVMIntNE, at, emit_i64(emit, 0), "");
}

/* ---- steps of k ---- */

void contract_seek_steps(ChunkLoops *loops) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (!contract_skips_steps(contract)) return;
  const Product *product = &contract->product;
  LLVMValueRef last = LLVMBuildNSWSub(emit->builder, loops->row.to, emit_i64(emit, 1), "");
  LLVMValueRef from = contract_tile_row(contract, loops->row.from);
  LLVMValueRef to =
      tile_add(emit, contract_tile_row(contract, last), contract_tile_rows(contract, last));
  LLVMValueRef at = tile_add(
      emit, from, contract_offset(emit, &product->k, product->k.count - 1, loops->k.o0, SIDE_A));
  int64_t depth = contract->plan.tile[TILE_DEPTH];
  LLVMValueRef args[SEEK_ARGS] = {
      tile_elements(emit, contract_memory(emit, product->elem_a), loops->a_base, at), loops->flags,
      tile_times(emit, loops->k.length, depth), LLVMBuildNSWSub(emit->builder, to, from, ""),
      emit_i64(emit, contract_inner_stride(&product->k, SIDE_A))};
  seek(contract, true, args);
  LLVMValueRef n = LLVMBuildLoad2(emit->builder, contract->i64, loops->flags, "steps");
  n = tile_add(emit, n, emit_i64(emit, depth - 1));
  loops->k.length = LLVMBuildUDiv(emit->builder, n, emit_i64(emit, depth), "");
  if (contract->plan.tile[TILE_K_OUTER] * contract->plan.tile[TILE_K_INNER] == 1)
    loops->next_length = loops->k.length;
}
