/* Family elem: POINT ops over one space, block by block. */
#include "family.h"

static CpuPlan plan(const CpuCut *c) {
  (void)c;
  return (CpuPlan){.phases = 1};
}

static void plan_elem(GpuCut *cut) {
  Nest nest = elem_space(cut->k, NULL);
  if (!gpu_need_tile(cut, POINT_TILES) || !gpu_need_threads(cut, 1)) return;
  int64_t lanes = cut->tile[POINT_LANES], vectors = cut->tile[POINT_VECTORS];
  if (!gpu_need_lanes(cut, lanes, &nest, cut->k->results.n, cut->k->results.at)) return;
  gpu_need(cut, vectors <= GPU_UNROLL_MOST, "a thread has too many vectors");
  cut->p.chunks[0] = ceil_div(nest_count(&nest) / lanes, cut->threads[0] * vectors);
}

const FamilyShape elem_family = {
    .heart = FAMILY_ELEM,
    .most = FAMILY_MANY,
    .in_place = IN_PLACE_ANY,
    .tile = 1,
    .variants = {"vector", "scalar"},
    .plan = plan,
    .gpu_variants = " vector scalar ",
    .gpu_plan = plan_elem,
};
