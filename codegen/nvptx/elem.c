/* Family elem on a GPU: each thread evaluates all results at one vector of points, or several.

   Attribute tile = [lanes, vectors per thread]. Neighbouring threads take neighbouring vectors, so
   a warp reads whole lines; a thread's vectors are a CTA apart. All results are evaluated at a
   point before any is stored, because a result may have the buffer of an operand. A result with
   fewer dims is stored where its missing dims are 0. */
#include "ir/kernel/gpu_tile.h"
#include "space.h"

typedef struct GpuElementwise {
  Nest nest;
  int64_t vectors; /* in all */
} GpuElementwise;

static void one_vector(Emit *e, const GpuElementwise *elementwise, LLVMValueRef flat, bool inside) {
  const Fn *k = e->k;
  Branch branch = {0};
  if (!inside) {
    LLVMValueRef end = emit_index(e, elementwise->vectors);
    branch = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntULT, flat, end, "inside"));
  }
  expr_forget(e);
  Point p = space_point(e, &elementwise->nest, e->lanes, flat, NULL);
  walk_store(e, &elementwise->nest, NULL, &p, k->results.n, k->results.at);
  if (!inside) emit_end_if(e, branch);
}

void gpu_elem_emit(Emit *e) {
  const int64_t *tile = emit_tile(e, POINT_TILES);
  GpuElementwise elementwise = {0};
  elementwise.nest = elem_space(e->k, NULL);
  e->lanes = (int)tile[POINT_LANES];
  elementwise.vectors = space_vectors(e, &elementwise.nest, e->lanes);
  emit_begin_phase(e, 0);
  int64_t threads = simt_threads(e, 0), per_cta = threads * tile[POINT_VECTORS];
  LLVMValueRef cta = simt_index(e, simt_cta(e)), thread = simt_index(e, simt_thread(e));
  LLVMValueRef first = index_mul_add(e, cta, per_cta, thread);
  for (int64_t i = 0; i < tile[POINT_VECTORS]; i++) {
    LLVMValueRef flat = first;
    if (i) flat = LLVMBuildNSWAdd(e->builder, first, emit_index(e, i * threads), "");
    one_vector(e, &elementwise, flat, elementwise.vectors == simt_ctas(e, 0) * per_cta);
  }
  emit_end_phase(e);
}
