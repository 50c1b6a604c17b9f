/* Packing of a for AMX tiles where k is not contiguous: squares of 16 rows x 16
   words (pairs along k) are read column by column, transposed in registers and stored row by row.
   Rows that do not exist are zero in such a square; words beyond the end of k are zeros. */
#include "contract.h"

typedef struct Squares { /* of one row tile and one outer index of k */
  Contract *c;
  LLVMValueRef src, dst, rows; /* src: first row's first element; rows that exist */
  int from;                    /* first row of the squares within the tile */
} Squares;

static LLVMTypeRef memory(const Squares *squares) {
  return contract_memory(squares->c->e, squares->c->product.elem_a);
}

/* Rows `from` on that exist, as a mask; NULL: all of them */
static LLVMValueRef existing(const Squares *squares) {
  Contract *contract = squares->c;
  if (contract->product.m.inner % contract->plan.tile[TILE_ROWS] == 0) return NULL;
  return emit_tail_mask(contract->e, emit_i64(contract->e, squares->from), squares->rows, AMX_ROWS);
}

/* Rows one by one; those that do not exist repeat the first one. */
static LLVMValueRef gathered(const Squares *squares, LLVMValueRef at, bool half) {
  Contract *contract = squares->c;
  Emit *emit = contract->e;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(emit->context);
  LLVMValueRef x = LLVMGetPoison(contract->vector), zero = emit_i64(emit, 0);
  for (int r = 0; r < AMX_ROWS; r++) {
    LLVMValueRef row = emit_i64(emit, squares->from + r);
    LLVMValueRef present = LLVMBuildICmp(emit->builder, LLVMIntSLT, row, squares->rows, "");
    row = LLVMBuildSelect(emit->builder, present, row, zero, "");
    row = tile_times(emit, row, contract_inner_stride(&contract->product.m, SIDE_A));
    LLVMValueRef one = tile_elements(emit, memory(squares), squares->src, tile_add(emit, at, row));
    one = contract_operand(contract, SIDE_A, one, 1, NULL, half);
    x = LLVMBuildInsertElement(emit->builder, x, one, LLVMConstInt(i32, (unsigned)r, 0), "");
  }
  return x;
}

/* A word of all rows; at: its first element in the first row. */
static LLVMValueRef column(const Squares *squares, LLVMValueRef at, bool half) {
  Contract *contract = squares->c;
  if (contract->product.m.count && contract_inner_stride(&contract->product.m, SIDE_A) != 1)
    return gathered(squares, at, half);
  LLVMValueRef from = tile_add(contract->e, at, emit_i64(contract->e, squares->from));
  from = tile_elements(contract->e, memory(squares), squares->src, from);
  return contract_operand(contract, SIDE_A, from, AMX_ROWS, existing(squares), half);
}

/* Step k, whose first `words` are whole; half: one more has one element. */
static void square(const Squares *squares, LLVMValueRef k, int64_t words, bool half) {
  Contract *contract = squares->c;
  Emit *emit = contract->e;
  LLVMValueRef row[AMX_ROWS];
  int64_t stride = contract_inner_stride(&contract->product.k, SIDE_A);
  LLVMValueRef first = tile_times(emit, k, stride * DEPTH_AMX);
  for (int j = 0; j < AMX_ROWS; j++) {
    LLVMValueRef at = tile_add(emit, first, emit_i64(emit, 2 * j * stride));
    row[j] = j < words + half ? column(squares, at, j == words) : LLVMConstNull(contract->vector);
  }
  tile_transpose(emit, row, AMX_ROWS);
  for (int r = 0; r < AMX_ROWS; r++) {
    LLVMValueRef to = tile_add(emit, tile_times(emit, k, AMX_ROWS),
                               emit_i64(emit, (squares->from + r) * contract->plan.pitch));
    LLVMSetAlignment(
        LLVMBuildStore(emit->builder, row[r], tile_elements(emit, contract->f32, squares->dst, to)),
        4);
  }
}

static void all_steps(const Squares *squares, const KBlock *block) {
  Contract *contract = squares->c;
  Emit *emit = contract->e;
  int64_t rest = contract->product.k.inner % DEPTH_AMX;
  LLVMValueRef full = block->length;
  if (rest) full = LLVMBuildNSWSub(emit->builder, full, block->half, "");
  Loop loop = emit_loop(emit, emit_i64(emit, 0), full, 1, 0, NULL);
  square(squares, loop.i, AMX_ROWS, false);
  emit_loop_end(emit, &loop);
  if (!rest) return;
  Loop last = emit_loop(emit, full, block->length, 1, 0, NULL);
  square(squares, last.i, rest / 2, rest % 2);
  emit_loop_end(emit, &last);
}

void contract_pack_squares(Contract *contract, LLVMValueRef src, LLVMValueRef dst,
                           LLVMValueRef rows, const KBlock *block) {
  Emit *emit = contract->e;
  must(contract->amx, "kernel %s: squares are for AMX tiles", contract->k->name);
  Loop loop = emit_loop(emit, block->o0, block->o1, 1, 0, NULL);
  LLVMValueRef from =
      contract_offset(emit, &contract->product.k, contract->product.k.count - 1, loop.i, SIDE_A);
  LLVMValueRef done = LLVMBuildNSWSub(emit->builder, loop.i, block->o0, "");
  done = LLVMBuildNSWMul(emit->builder, done, block->length, "");
  Squares squares = {.c = contract, .rows = rows};
  squares.src = tile_elements(emit, memory(&squares), src, from);
  squares.dst = tile_elements(emit, contract->f32, dst, tile_times(emit, done, AMX_ROWS));
  for (; squares.from < contract->plan.tile[TILE_ROWS]; squares.from += AMX_ROWS)
    all_steps(&squares, block);
  emit_loop_end(emit, &loop);
}
