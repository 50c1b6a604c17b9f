/* Addresses of the contract family: flat indexes over several dims into offsets, row tiles into
   rows.

   All sizes and strides are constants; a flat index is taken apart with divisions by constants,
   done once per tile or per panel, never in an inner loop. Size 1 and stride 0 vanish. */
#include "contract.h"

int64_t contract_stride(const ProductDim *d, ProductSide s) {
  return s == SIDE_A ? d->a : s == SIDE_B ? d->b : d->r;
}

int64_t contract_inner_stride(const ProductDims *d, ProductSide s) {
  return d->count ? contract_stride(&d->dim[d->count - 1], s) : 0;
}

LLVMValueRef contract_index(Emit *e, const ProductDims *d, int n, int at, LLVMValueRef flat) {
  must(at >= 0 && at < n && n <= d->count, "kernel %s: dim %d of %d", e->k->name, at, n);
  int64_t below = 1;
  for (int i = at + 1; i < n; i++) below *= d->dim[i].size;
  if (d->dim[at].size == 1) return emit_i64(e, 0);
  LLVMValueRef x = below == 1 ? flat : LLVMBuildUDiv(e->builder, flat, emit_i64(e, below), "");
  if (at == 0) return x;
  return LLVMBuildURem(e->builder, x, emit_i64(e, d->dim[at].size), "");
}

LLVMValueRef contract_offset(Emit *e, const ProductDims *d, int n, LLVMValueRef flat,
                             ProductSide s) {
  LLVMValueRef sum = emit_i64(e, 0);
  for (int i = 0; i < n; i++) {
    int64_t stride = contract_stride(&d->dim[i], s);
    if (!stride || d->dim[i].size == 1) continue;
    sum = tile_add(e, sum, tile_times(e, contract_index(e, d, n, i, flat), stride));
  }
  return sum;
}

LLVMTypeRef contract_memory(Emit *e, Elem elem) { return emit_memory_type(e, elem); }

static LLVMValueRef tile_within(Contract *c, LLVMValueRef t) { /* its inner m column */
  if (c->product.m.outer == 1) return t;
  return LLVMBuildURem(c->e->builder, t, emit_i64(c->e, c->plan.tiles_inner), "");
}

LLVMValueRef contract_tile_outer(Contract *c, LLVMValueRef t) {
  if (c->product.m.outer == 1) return emit_i64(c->e, 0);
  return LLVMBuildUDiv(c->e->builder, t, emit_i64(c->e, c->plan.tiles_inner), "");
}

LLVMValueRef contract_tile_row(Contract *c, LLVMValueRef t) {
  LLVMValueRef i = tile_within(c, t);
  LLVMValueRef extra = emit_min_i64(c->e, i, emit_i64(c->e, c->plan.high));
  return tile_add(c->e, tile_times(c->e, i, c->plan.height), extra);
}

LLVMValueRef contract_tile_rows(Contract *c, LLVMValueRef t) {
  Emit *e = c->e;
  LLVMValueRef tall =
      LLVMBuildICmp(e->builder, LLVMIntSLT, tile_within(c, t), emit_i64(e, c->plan.high), "");
  return LLVMBuildSelect(e->builder, tall, emit_i64(e, c->plan.height + 1),
                         emit_i64(e, c->plan.height), "rows");
}

LLVMValueRef contract_tile_offset(Contract *c, LLVMValueRef t, ProductSide s) {
  Emit *e = c->e;
  LLVMValueRef outer =
      contract_offset(e, &c->product.m, c->product.m.count - 1, contract_tile_outer(c, t), s);
  return tile_add(e, outer,
                  tile_times(e, contract_tile_row(c, t), contract_inner_stride(&c->product.m, s)));
}
