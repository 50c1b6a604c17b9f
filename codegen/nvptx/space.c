/* Points of an iteration space from flat numbers: see space.h. */
#include "space.h"

LLVMValueRef index_mul_add(Emit *e, LLVMValueRef a, int64_t b, LLVMValueRef c) {
  LLVMValueRef by = LLVMConstInt(LLVMTypeOf(a), (uint64_t)b, 1);
  return LLVMBuildNSWAdd(e->builder, LLVMBuildNSWMul(e->builder, a, by, ""), c, "");
}

LLVMValueRef index_div(Emit *e, LLVMValueRef a, int64_t b) {
  return LLVMBuildUDiv(e->builder, a, LLVMConstInt(LLVMTypeOf(a), (uint64_t)b, 0), "");
}

LLVMValueRef index_rem(Emit *e, LLVMValueRef a, int64_t b) {
  return LLVMBuildURem(e->builder, a, LLVMConstInt(LLVMTypeOf(a), (uint64_t)b, 0), "");
}

int64_t space_vectors(Emit *e, const Nest *nest, int lanes) {
  if (nest_inner(nest) % lanes)
    bug("kernel %s: %d lanes do not divide its rows", e->k->name, lanes);
  return nest_count(nest) / lanes;
}

Point space_point(Emit *e, const Nest *nest, int lanes, LLVMValueRef flat, const Point *base) {
  must(!nest->n || nest->dim[nest->n - 1].size % lanes == 0, "kernel %s: %d lanes of %lld elements",
       e->k->name, lanes, (long long)nest->dim[nest->n - 1].size);
  Point p = base ? *base : (Point){0};
  for (int i = nest->n - 1; i >= 0; i--) {
    int64_t size = nest->dim[i].size;
    bool inner = i == nest->n - 1;
    if (inner) size /= lanes;
    LLVMValueRef at = i ? index_rem(e, flat, size) : flat;
    if (i) flat = index_div(e, flat, size);
    if (inner && lanes > 1) at = LLVMBuildNSWMul(e->builder, at, emit_index(e, lanes), "");
    point_set(&p, (Index){.dim = nest->dim[i].dim,
                          .at = at,
                          .lane = inner && lanes > 1,
                          .multiple = inner ? lanes : 0});
  }
  for (int i = 0; i < nest->nzero; i++)
    point_set(&p, (Index){.dim = nest->zero[i], .at = emit_index(e, 0)});
  return p;
}
