/* Addresses of the contract family: flat indexes over several dims into offsets, row tiles into
   rows.

   All sizes and strides are constants; a flat index is taken apart with divisions by constants,
   done once per tile or per panel, never in an inner loop. Size 1 and stride 0 vanish. */
#include "contract.h"

static int64_t contract_stride(const ProductDim *d, ProductSide s) {
  return s == SIDE_A ? d->a : s == SIDE_B ? d->b : d->r;
}

int64_t contract_inner_stride(const ProductDims *dims, ProductSide side) {
  return dims->count ? contract_stride(&dims->dim[dims->count - 1], side) : 0;
}

LLVMValueRef contract_index(Emit *emit, const ProductDims *dims, int n, int at, LLVMValueRef flat) {
  must(at >= 0 && at < n && n <= dims->count, "kernel %s: dim %d of %d", emit->k->name, at, n);
  int64_t below = 1;
  for (int i = at + 1; i < n; i++) below *= dims->dim[i].size;
  if (dims->dim[at].size == 1) return emit_i64(emit, 0);
  LLVMValueRef x =
      below == 1 ? flat : LLVMBuildUDiv(emit->builder, flat, emit_i64(emit, below), "");
  if (at == 0) return x;
  return LLVMBuildURem(emit->builder, x, emit_i64(emit, dims->dim[at].size), "");
}

LLVMValueRef contract_offset(Emit *emit, const ProductDims *dims, int n, LLVMValueRef flat,
                             ProductSide side) {
  LLVMValueRef sum = emit_i64(emit, 0);
  for (int i = 0; i < n; i++) {
    int64_t stride = contract_stride(&dims->dim[i], side);
    if (!stride || dims->dim[i].size == 1) continue;
    sum = tile_add(emit, sum, tile_times(emit, contract_index(emit, dims, n, i, flat), stride));
  }
  return sum;
}

LLVMTypeRef contract_memory(Emit *emit, Elem elem) { return emit_memory_type(emit, elem); }

static LLVMValueRef tile_within(Contract *contract, LLVMValueRef t) { /* its inner m column */
  if (contract->product.m.outer == 1) return t;
  return LLVMBuildURem(contract->e->builder, t, emit_i64(contract->e, contract->plan.tiles_inner),
                       "");
}

LLVMValueRef contract_tile_outer(Contract *contract, LLVMValueRef t) {
  if (contract->product.m.outer == 1) return emit_i64(contract->e, 0);
  return LLVMBuildUDiv(contract->e->builder, t, emit_i64(contract->e, contract->plan.tiles_inner),
                       "");
}

LLVMValueRef contract_tile_row(Contract *contract, LLVMValueRef t) {
  LLVMValueRef i = tile_within(contract, t);
  LLVMValueRef extra = emit_min_i64(contract->e, i, emit_i64(contract->e, contract->plan.high));
  return tile_add(contract->e, tile_times(contract->e, i, contract->plan.height), extra);
}

LLVMValueRef contract_tile_rows(Contract *contract, LLVMValueRef t) {
  Emit *emit = contract->e;
  LLVMValueRef tall = LLVMBuildICmp(emit->builder, LLVMIntSLT, tile_within(contract, t),
                                    emit_i64(emit, contract->plan.high), "");
  return LLVMBuildSelect(emit->builder, tall, emit_i64(emit, contract->plan.height + 1),
                         emit_i64(emit, contract->plan.height), "rows");
}

LLVMValueRef contract_tile_offset(Contract *contract, LLVMValueRef t, ProductSide side) {
  Emit *emit = contract->e;
  LLVMValueRef outer = contract_offset(emit, &contract->product.m, contract->product.m.count - 1,
                                       contract_tile_outer(contract, t), side);
  return tile_add(emit, outer,
                  tile_times(emit, contract_tile_row(contract, t),
                             contract_inner_stride(&contract->product.m, side)));
}
