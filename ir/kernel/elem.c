/* Family elem: POINT ops over one space, block by block. */
#include "family.h"

static CpuPlan plan(const CpuCut *c) {
  (void)c;
  return (CpuPlan){.phases = 1};
}

static void plan_elem(GpuCut *x) {
  Axes all = {0};
  for (uint32_t r = 0; r < x->k->results.n; r++)
    axes_add(&all, value_type(x->k, x->k->results.at[r]));
  Nest n = nest_of(x->k, &all, nest_reference(x->k, &all));
  if (!gpu_need_tile(x, POINT_TILES) || !gpu_need_threads(x, 1)) return;
  int64_t lanes = x->tile[POINT_LANES], vectors = x->tile[POINT_VECTORS];
  if (!gpu_need_lanes(x, lanes, &n, x->k->results.n, x->k->results.at)) return;
  gpu_need(x, vectors <= GPU_UNROLL_MOST, "a thread has too many vectors");
  x->p.chunks[0] = ceil_div(nest_count(&n) / lanes, x->threads[0] * vectors);
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
