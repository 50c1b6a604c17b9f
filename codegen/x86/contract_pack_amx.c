/* Packing of a for AMX tiles where k is not contiguous: squares of 16 rows x 16
   words (pairs along k) are read column by column, transposed in registers and stored row by row.
   Rows that do not exist are zero in such a square; words beyond the end of k are zeros. */
#include "contract.h"

typedef struct Squares { /* of one row tile and one outer index of k */
  Contract *c;
  LLVMValueRef src, dst, rows; /* src: first row's first element; rows that exist */
  int from;                    /* first row of the squares within the tile */
} Squares;

static LLVMTypeRef memory(const Squares *s) {
  return contract_memory(s->c->e, s->c->product.elem_a);
}

/* Rows `from` on that exist, as a mask; NULL: all of them */
static LLVMValueRef existing(const Squares *s) {
  Contract *c = s->c;
  if (c->product.m.inner % c->plan.tile[TILE_ROWS] == 0) return NULL;
  return emit_tail_mask(c->e, emit_i64(c->e, s->from), s->rows, AMX_ROWS);
}

/* Rows one by one; those that do not exist repeat the first one. */
static LLVMValueRef gathered(const Squares *s, LLVMValueRef at, bool half) {
  Contract *c = s->c;
  Emit *e = c->e;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef x = LLVMGetPoison(c->vector), zero = emit_i64(e, 0);
  for (int r = 0; r < AMX_ROWS; r++) {
    LLVMValueRef row = emit_i64(e, s->from + r);
    LLVMValueRef there = LLVMBuildICmp(e->builder, LLVMIntSLT, row, s->rows, "");
    row = LLVMBuildSelect(e->builder, there, row, zero, "");
    row = tile_times(e, row, contract_inner_stride(&c->product.m, SIDE_A));
    LLVMValueRef one = tile_elements(e, memory(s), s->src, tile_add(e, at, row));
    one = contract_operand(c, SIDE_A, one, 1, NULL, half);
    x = LLVMBuildInsertElement(e->builder, x, one, LLVMConstInt(i32, (unsigned)r, 0), "");
  }
  return x;
}

/* A word of all rows; at: its first element in the first row. */
static LLVMValueRef column(const Squares *s, LLVMValueRef at, bool half) {
  Contract *c = s->c;
  if (c->product.m.count && contract_inner_stride(&c->product.m, SIDE_A) != 1)
    return gathered(s, at, half);
  LLVMValueRef from = tile_add(c->e, at, emit_i64(c->e, s->from));
  from = tile_elements(c->e, memory(s), s->src, from);
  return contract_operand(c, SIDE_A, from, AMX_ROWS, existing(s), half);
}

/* Step k, whose first `words` are whole; half: one more has one element. */
static void square(const Squares *s, LLVMValueRef k, int64_t words, bool half) {
  Contract *c = s->c;
  Emit *e = c->e;
  LLVMValueRef row[AMX_ROWS];
  int64_t stride = contract_inner_stride(&c->product.k, SIDE_A);
  LLVMValueRef first = tile_times(e, k, stride * DEPTH_AMX);
  for (int j = 0; j < AMX_ROWS; j++) {
    LLVMValueRef at = tile_add(e, first, emit_i64(e, 2 * j * stride));
    row[j] = j < words + half ? column(s, at, j == words) : LLVMConstNull(c->vector);
  }
  tile_transpose(e, row, AMX_ROWS);
  for (int r = 0; r < AMX_ROWS; r++) {
    LLVMValueRef to =
        tile_add(e, tile_times(e, k, AMX_ROWS), emit_i64(e, (s->from + r) * c->plan.pitch));
    LLVMSetAlignment(LLVMBuildStore(e->builder, row[r], tile_elements(e, c->f32, s->dst, to)), 4);
  }
}

static void all_steps(const Squares *s, const KBlock *x) {
  Contract *c = s->c;
  Emit *e = c->e;
  int64_t rest = c->product.k.inner % DEPTH_AMX;
  LLVMValueRef full = x->length;
  if (rest) full = LLVMBuildNSWSub(e->builder, full, x->half, "");
  Loop k = emit_loop(e, emit_i64(e, 0), full, 1, 0, NULL);
  square(s, k.i, AMX_ROWS, false);
  emit_loop_end(e, &k);
  if (!rest) return;
  Loop last = emit_loop(e, full, x->length, 1, 0, NULL);
  square(s, last.i, rest / 2, rest % 2);
  emit_loop_end(e, &last);
}

void contract_pack_squares(Contract *c, LLVMValueRef src, LLVMValueRef dst, LLVMValueRef rows,
                           const KBlock *x) {
  Emit *e = c->e;
  must(c->amx, "kernel %s: squares are for AMX tiles", c->k->name);
  Loop o = emit_loop(e, x->o0, x->o1, 1, 0, NULL);
  LLVMValueRef from = contract_offset(e, &c->product.k, c->product.k.count - 1, o.i, SIDE_A);
  LLVMValueRef done = LLVMBuildNSWSub(e->builder, o.i, x->o0, "");
  done = LLVMBuildNSWMul(e->builder, done, x->length, "");
  Squares s = {.c = c, .rows = rows};
  s.src = tile_elements(e, memory(&s), src, from);
  s.dst = tile_elements(e, c->f32, dst, tile_times(e, done, AMX_ROWS));
  for (; s.from < c->plan.tile[TILE_ROWS]; s.from += AMX_ROWS) all_steps(&s, x);
  emit_loop_end(e, &o);
}
