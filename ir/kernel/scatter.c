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
  Scatter scatter = scatter_of(k, 1);
  const Type *t = value_type(k, scatter.index);
  const Group *group = &k->ops.at[scatter.op].group[0];
  for (int a = 0; a < t->rank; a++) {
    bool from = false;
    for (int i = 0; i < group->nfrom; i++) from |= group->from[i] == t->axis[a].dim;
    if (!from) return false;
  }
  return true;
}

static void plan_order(GpuCut *cut, const Scatter *scatter, int64_t blocks) {
  int64_t rows = nest_count(&scatter->from);
  ScatterOrder order = scatter_order_of(cut->k, scatter, cut->threads[0]);
  gpu_need(cut, scatter->to_size < INT32_MAX && rows < INT32_MAX, "its indexes have over 31 bits");
  gpu_need(cut, order.shared <= cut->m->target.shared, "its counters have no shared memory");
  cut->p.chunks[0]++, cut->p.shared[0] = order.shared, cut->p.workspace = order.workspace;
  int64_t joins = scatter_order_joins(rows) * blocks;
  cut->p.chunks[2] = joins ? ceil_div(joins, cut->threads[2] / GPU_WARP) : 1;
}

static void plan_scatter(GpuCut *cut) {
  Scatter scatter = scatter_of(cut->k, 1);
  ValueId root[] = {scatter.x, scatter.out};
  bool order = gpu_is_variant(cut, "order"), by_warps = order || gpu_is_variant(cut, "search");
  if (!gpu_need_tile(cut, SCATTER_TILES) || !gpu_need_threads(cut, order ? 3 : 2)) return;
  int64_t lanes = cut->tile[SCATTER_LANES], vectors = cut->tile[SCATTER_VECTORS];
  int64_t fill = cut->tile[SCATTER_FILL];
  gpu_need(cut, !by_warps || gpu_scatter_searches(cut->k), "its index is not the same for a warp");
  gpu_need(cut, by_warps || (lanes == 1 && vectors == 1), "a thread has one column");
  gpu_need(cut, vectors <= GPU_COLUMNS_MOST, "a thread has too many columns");
  if (!gpu_need_lanes(cut, lanes, &scatter.kept, 2, root) ||
      !gpu_need_lanes(cut, fill, &scatter.result, 1, &scatter.out))
    return;
  int64_t columns = nest_count(&scatter.kept) / lanes;
  int64_t blocks = ceil_div(columns, GPU_WARP * vectors), rows = nest_count(&scatter.from);
  cut->p.chunks[0] = ceil_div(nest_count(&scatter.result) / fill, cut->threads[0]);
  cut->p.chunks[1] = by_warps ? ceil_div(rows * blocks, cut->threads[1] / GPU_WARP)
                              : ceil_div(columns, cut->threads[1]);
  if (order) plan_order(cut, &scatter, blocks);
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
    .gpu_variants = " order search owner ",
    .gpu_plan = plan_scatter,
};
