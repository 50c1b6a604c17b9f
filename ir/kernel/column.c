/* Family column: sums over outer dims. Its third number splits them; splits meet in the workspace,
   in a second phase. */
#include "family.h"

static CpuPlan plan(const CpuCut *c) {
  Reductions r = reductions_of(c->k);
  int64_t splits = c->tile[2];
  return (CpuPlan){.phases = 1 + (splits > 1),
                   .workspace = splits > 1 ? reduction_workspace(c->k, &r, splits) : 0};
}

/* ---- GPUs ---- */

static int64_t state_parts(const Fn *k, const GpuRows *w, int64_t *bytes) {
  int64_t parts = 0;
  for (int i = 0; i < w->r.n; i++) {
    const Op *o = &k->ops.at[w->r.op[i]];
    int own = elem_bytes(value_type(k, o->in[0])->elem);
    *bytes += own < 4 ? 4 : own, parts++;
    if (o->code == OP_argmax) *bytes += 4, parts++;
  }
  return parts;
}

/* What the threads of a column have meets in shared memory. */
static int64_t columns_shared(GpuCut *x, const GpuRows *w) {
  int64_t lanes = x->tile[COLUMN_LANES], threads = x->threads[0], bytes = 0;
  if (gpu_is_variant(x, "along")) return threads > GPU_WARP ? w->r.n * (int64_t)GROUP_EXCHANGE : 0;
  if (threads == x->tile[COLUMN_ACROSS]) return 0;
  gpu_need(x, state_parts(x->k, w, &bytes) <= MAX_CARRIED, "it sums too much at once");
  return bytes * lanes * threads;
}

static bool column_tile_fits(GpuCut *x, const GpuRows *w, int64_t length) {
  const int64_t *t = x->tile;
  int64_t splits = t[COLUMN_SPLITS], last = t[COLUMN_JOINERS];
  gpu_need(x, w->once, "its rows are not summed once");
  gpu_need(x,
           gpu_power_within(t[COLUMN_ACROSS], 1, x->threads[0]) &&
               (t[COLUMN_ACROSS] == 1 || !gpu_is_variant(x, "along")),
           "its columns do not divide its threads");
  gpu_need(x, t[COLUMN_TURNS] <= GPU_UNROLL_MOST, "a thread has too many elements at once");
  gpu_need(x, splits == 1 || (splits - 1) * ceil_div(length, splits) < length, "a split is empty");
  return gpu_need(x, gpu_power_within(last, 1, GPU_WARP) && last <= splits,
                  "a joiner has no split");
}

void gpu_plan_column(GpuCut *x, const GpuRows *w) {
  if (!gpu_need_tile(x, COLUMN_TILES)) return;
  const int64_t *t = x->tile;
  int64_t splits = t[COLUMN_SPLITS], lanes = t[COLUMN_LANES], all = nest_count(&w->kept);
  bool along = gpu_is_variant(x, "along");
  if (!gpu_need_threads(x, splits > 1 ? 2 : 1)) return;
  if (!gpu_need_lanes(x, lanes, along ? &w->over : &w->kept, w->nroots, w->root)) return;
  if (!column_tile_fits(x, w, nest_count(&w->over) / (along ? lanes : 1))) return;
  x->p.chunks[0] = ceil_div(all / (along ? 1 : lanes), t[COLUMN_ACROSS]) * splits;
  x->p.shared[0] = columns_shared(x, w);
  if (splits == 1) return;
  x->p.chunks[1] = ceil_div(all * t[COLUMN_JOINERS], x->threads[1]);
  x->p.workspace = reduction_workspace(x->k, &w->r, splits);
}

static void plan_columns(GpuCut *x) {
  GpuRows w = gpu_rows_of(x->m, x->k);
  gpu_plan_column(x, &w);
}

const FamilyShape column_family = {
    .beside = 1u << FAMILY_REDUCE,
    .heart = FAMILY_REDUCE,
    .least = 1,
    .most = MAX_RESULTS,
    .reduces = REDUCES_COLUMNS,
    .tile = 4,
    .unroll = 3,
    .variants = {"columns", "row", "scalar"},
    .plan = plan,
    .gpu_variants = " columns along ",
    .gpu_plan = plan_columns,
};
