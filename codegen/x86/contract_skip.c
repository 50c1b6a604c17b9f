/* Products over the places of experts (attribute `skips`, set by pass select): many places are
   empty, and their rows are zeros.

   A chunk first lists its row tiles of a: those with an element that is not zero from the front,
   the empty ones from the back. Products visit the front of the list alone, so panels of b are
   packed and fetched while these are computed. The empty tiles follow: their epilogue reads zeros
   in place of sums; if all results are products with the sums, it writes zeros and reads nothing.
   Where places are summed (gradients of weights), each outer index of k is a block of its own, and
   the block ends at the last step at which the chunk's rows of a are not zero.

   Zeros are looked for in memory, once per chunk, not derived from counts: this
   needs no further operand, whichever rank the rows come from, and a row is seen to be filled by
   its first elements. The result is that of all products, but for zeros times an infinity or NaN
   of b. */
#include "contract_loops.h"

static bool contract_skips_tiles(const Contract *contract) {
  const Product *product = &contract->product;
  return contract->plan.e_bytes && product->k.count && product->sum == NO_VALUE &&
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

/* Entry i of the list; the first word is the one that `seek` writes. */
static LLVMValueRef entry(ChunkLoops *loops, LLVMValueRef i) {
  return tile_elements(loops->c->e, loops->c->i64, loops->list,
                       tile_add(loops->c->e, i, emit_i64(loops->c->e, 1)));
}

static LLVMValueRef entry_from_back(ChunkLoops *loops, LLVMValueRef i) {
  LLVMValueRef last = emit_i64(loops->c->e, loops->c->plan.tiles_max - 1);
  return entry(loops, LLVMBuildNSWSub(loops->c->e->builder, last, i, ""));
}

/* Appends a tile to the front or the back of the list: loop's carried counts. */
static void list_tile(ChunkLoops *loops, Loop *loop) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  LLVMValueRef base = tile_elements(emit, contract_memory(emit, contract->product.elem_a),
                                    loops->a_base, contract_tile_offset(contract, loop->i, SIDE_A));
  LLVMValueRef args[SEEK_ARGS] = {
      base, loops->list, contract_tile_rows(contract, loop->i),
      emit_i64(emit, contract->product.k.inner),
      emit_i64(emit, contract_inner_stride(&contract->product.m, SIDE_A))};
  seek(contract, false, args);
  LLVMValueRef found = LLVMBuildLoad2(emit->builder, contract->i64, loops->list, "");
  LLVMValueRef some = LLVMBuildICmp(emit->builder, LLVMIntNE, found, emit_i64(emit, 0), "");
  LLVMValueRef at = LLVMBuildSelect(emit->builder, some, entry(loops, loop->phi[0]),
                                    entry_from_back(loops, loop->phi[1]), "");
  LLVMBuildStore(emit->builder, loop->i, at);
  LLVMValueRef one = LLVMBuildZExt(emit->builder, some, contract->i64, "");
  loop->next[0] = tile_add(emit, loop->phi[0], one);
  loop->next[1] =
      tile_add(emit, loop->phi[1], LLVMBuildXor(emit->builder, one, emit_i64(emit, 1), ""));
}

void contract_list_tiles(ChunkLoops *loops) {
  Emit *emit = loops->c->e;
  loops->count = LLVMBuildNSWSub(emit->builder, loops->row.to, loops->row.from, "");
  loops->empty = NULL;
  if (!contract_skips_tiles(loops->c)) return;
  contract_enter_block(loops, emit_i64(emit, 0));
  LLVMValueRef none[2] = {emit_i64(emit, 0), emit_i64(emit, 0)};
  Loop loop = emit_loop(emit, loops->row.from, loops->row.to, 1, 2, none);
  list_tile(loops, &loop);
  emit_loop_end(emit, &loop);
  loops->count = loop.phi[0], loops->empty = loop.phi[1];
}

LLVMValueRef contract_listed_tile(ChunkLoops *loops, LLVMValueRef i) {
  Emit *emit = loops->c->e;
  if (!loops->empty) return tile_add(emit, loops->row.from, i);
  return LLVMBuildLoad2(emit->builder, loops->c->i64, entry(loops, i), "tile");
}

/* A tile of zeros where sums are. */
static void zero_sums(ChunkLoops *loops) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  int64_t each = contract->plan.tile[TILE_ROWS] * contract->plan.tile[TILE_VECTORS];
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, each), 1, 0, NULL);
  LLVMValueRef at = tile_elements(emit, contract->f32, loops->sums,
                                  tile_times(emit, loop.i, contract->plan.lanes));
  LLVMSetAlignment(LLVMBuildStore(emit->builder, LLVMConstNull(contract->vector), at), 4);
  emit_loop_end(emit, &loop);
}

static void empty_panel(ChunkLoops *loops, LLVMValueRef tile, LLVMValueRef panel, int wide) {
  Contract *contract = loops->c;
  TileAt at = contract_tile_at(contract, loops->b, tile, contract_panel_first(contract, panel),
                               (int)contract->plan.width + wide);
  at.values = loops->sums, at.zero = contract_zero_epilogue(contract);
  contract_epilogue(contract, &at);
}

void contract_empty_tiles(ChunkLoops *loops) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (!loops->empty) return;
  if (!contract_zero_epilogue(contract)) zero_sums(loops);
  Loop loop = emit_loop(emit, emit_i64(emit, 0), loops->empty, 1, 0, NULL);
  LLVMValueRef tile =
      LLVMBuildLoad2(emit->builder, contract->i64, entry_from_back(loops, loop.i), "tile");
  Loop panel = emit_loop(emit, loops->panel.from, loops->panel.to, 1, 0, NULL);
  LLVMValueRef wide = contract_is_wide(contract, panel.i);
  for (int i = 0; i <= (contract->plan.wide > 0); i++) {
    Branch branch = emit_if(emit, i ? wide : LLVMBuildNot(emit->builder, wide, ""));
    empty_panel(loops, tile, panel.i, i);
    emit_end_if(emit, branch);
  }
  emit_loop_end(emit, &panel);
  emit_loop_end(emit, &loop);
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
      tile_elements(emit, contract_memory(emit, product->elem_a), loops->a_base, at), loops->list,
      tile_times(emit, loops->k.length, depth), LLVMBuildNSWSub(emit->builder, to, from, ""),
      emit_i64(emit, contract_inner_stride(&product->k, SIDE_A))};
  seek(contract, true, args);
  LLVMValueRef n = LLVMBuildLoad2(emit->builder, contract->i64, loops->list, "steps");
  n = tile_add(emit, n, emit_i64(emit, depth - 1));
  loops->k.length = LLVMBuildUDiv(emit->builder, n, emit_i64(emit, depth), "");
  if (contract->plan.tile[TILE_K_OUTER] * contract->plan.tile[TILE_K_INNER] == 1)
    loops->next_length = loops->k.length;
}
