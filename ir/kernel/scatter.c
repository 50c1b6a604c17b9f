/* Family scatter: a fill, then rows that are added up by index (scatter_shape.h). */
#include "family.h"
#include "scatter_shape.h"

static const char *heart_fault(const Fn *k, const Op *o) {
  const Op *last = k->results.n == 1 ? value_def(k, k->results.at[0]) : NULL;
  bool adds = last && last->code == OP_add && (last->in[0] == o->out || last->in[1] == o->out);
  return last == o || adds ? NULL : "it has more results than the scatter";
}

static CpuPlan plan(const CpuCut *c) {
  (void)c;
  return (CpuPlan){.phases = 2};
}

/* ---- GPUs ---- */

bool gpu_scatter_searches(const Fn *k) {
  Scatter s = scatter_of(k, 1);
  const Type *t = value_type(k, s.index);
  const Group *g = &k->ops.at[s.op].group[0];
  for (int a = 0; a < t->rank; a++) {
    bool from = false;
    for (int i = 0; i < g->nfrom; i++) from |= g->from[i] == t->axis[a].dim;
    if (!from) return false;
  }
  return true;
}

static void plan_scatter(GpuCut *x) {
  Scatter s = scatter_of(x->k, 1);
  ValueId root[] = {s.x, s.out};
  bool search = gpu_is_variant(x, "search");
  if (!gpu_need_tile(x, SCATTER_TILES) || !gpu_need_threads(x, 2)) return;
  int64_t lanes = x->tile[SCATTER_LANES], vectors = x->tile[SCATTER_VECTORS];
  int64_t fill = x->tile[SCATTER_FILL];
  gpu_need(x, !search || gpu_scatter_searches(x->k), "its index is not the same for a warp");
  gpu_need(x, search || (lanes == 1 && vectors == 1), "a thread has one column");
  gpu_need(x, vectors <= GPU_COLUMNS_MOST, "a thread has too many columns");
  if (!gpu_need_lanes(x, lanes, &s.kept, 2, root) || !gpu_need_lanes(x, fill, &s.result, 1, &s.out))
    return;
  int64_t columns = nest_count(&s.kept) / lanes;
  int64_t warps = nest_count(&s.from) * ceil_div(columns, GPU_WARP * vectors);
  x->p.chunks[0] = ceil_div(nest_count(&s.result) / fill, x->threads[0]);
  x->p.chunks[1] =
      search ? ceil_div(warps, x->threads[1] / GPU_WARP) : ceil_div(columns, x->threads[1]);
}

const FamilyShape scatter_family = {
    .beside = 1u << FAMILY_SCATTER,
    .heart = FAMILY_SCATTER,
    .least = 1,
    .most = 1,
    .heart_fault = heart_fault,
    .in_place = IN_PLACE_ANY,
    .tile = 4,
    .variants = {"vector", "scalar"},
    .plan = plan,
    .gpu_variants = " search owner ",
    .gpu_plan = plan_scatter,
};
