/* Results that are bytes of bits along the row: signs, masks, of what its last walk has at hand.

   Where lanes run along the row, and whole bytes of them do, a vector of bits is the bytes. Else
   bytes are made one after the other before the last walk, which may overwrite what they are made
   from. Must not: store anything but these results. */
#include "codegen/expr.h"
#include "row.h"

bool row_bits_in_step(const RowNest *nest) {
  return nest->lanes_over && nest->e->lanes % BYTE_BITS == 0;
}

static const Op *packing(const RowNest *nest, uint32_t i) {
  return value_def(nest->e->k, nest->packed[i]);
}

/* For a mask of lanes that ends at a whole byte: one lane of each byte. */
static LLVMValueRef mask_of_bytes(Emit *e, LLVMValueRef mask) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef at[64];
  int bytes = e->lanes / BYTE_BITS;
  if (!mask || bytes == 1) return NULL;
  for (int i = 0; i < bytes; i++) at[i] = LLVMConstInt(i32, (uint64_t)(i * BYTE_BITS), 0);
  return LLVMBuildShuffleVector(e->builder, mask, LLVMGetPoison(LLVMTypeOf(mask)),
                                LLVMConstVector(at, (unsigned)bytes), "");
}

static LLVMValueRef bytes_of(Emit *e, LLVMValueRef bits) {
  LLVMTypeRef byte = LLVMInt8TypeInContext(e->context);
  int bytes = e->lanes / BYTE_BITS;
  return LLVMBuildBitCast(e->builder, emit_splat(e, bits, e->lanes),
                          bytes == 1 ? byte : LLVMVectorType(byte, (unsigned)bytes), "");
}

static void put_bytes(RowNest *nest, uint32_t i, const Point *p) {
  Emit *e = nest->e;
  const Op *o = packing(nest, i);
  const Index *bit = point_find(p, o->group[0].from[0]);
  int lanes = e->lanes, bytes = lanes / BYTE_BITS;
  LLVMValueRef value = bytes_of(e, expr_value(e, o->in[0], p));
  Point q = *p;
  q.mask = mask_of_bytes(e, p->mask);
  point_set(&q, (Index){.dim = o->group[0].to[0],
                        .at = LLVMBuildUDiv(e->builder, bit->at, emit_index(e, BYTE_BITS), ""),
                        .lane = bytes > 1,
                        .multiple = bytes});
  e->lanes = bytes;
  walk_put(e, &nest->kept, NULL, &q, 1, &nest->packed[i], &value);
  e->lanes = lanes;
}

void row_bits_put(RowNest *nest, const Point *p) {
  for (uint32_t i = 0; i < nest->npacked && row_bits_in_step(nest); i++) put_bytes(nest, i, p);
}

void row_bits_apart(RowNest *nest) {
  if (nest->npacked && !row_bits_in_step(nest))
    walk_store_packed(nest->e, &nest->kept, nest->row, nest->npacked, nest->packed);
}
