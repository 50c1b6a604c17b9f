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

static int64_t state_parts(const Fn *k, const GpuRows *rows, int64_t *bytes) {
  int64_t parts = 0;
  for (int i = 0; i < rows->r.n; i++) {
    const Op *o = &k->ops.at[rows->r.op[i]];
    int own = elem_bytes(value_type(k, o->in[0])->elem);
    *bytes += own < 4 ? 4 : own, parts++;
    if (o->code == OP_argmax) *bytes += 4, parts++;
  }
  return parts;
}

/* The threads of a column combine their sums in shared memory. */
static int64_t columns_shared(GpuCut *cut, const GpuRows *rows) {
  int64_t lanes = cut->tile[COLUMN_LANES], threads = cut->threads[0], bytes = 0;
  if (gpu_is_variant(cut, "along"))
    return threads > GPU_WARP ? rows->r.n * (int64_t)GROUP_EXCHANGE : 0;
  if (threads == cut->tile[COLUMN_ACROSS]) return 0;
  gpu_need(cut, state_parts(cut->k, rows, &bytes) <= MAX_CARRIED, "it sums too much at once");
  return bytes * lanes * threads;
}

static bool column_tile_fits(GpuCut *cut, const GpuRows *rows, int64_t length) {
  const int64_t *t = cut->tile;
  int64_t splits = t[COLUMN_SPLITS], last = t[COLUMN_JOINERS];
  gpu_need(cut, rows->once, "its rows are not summed once");
  gpu_need(cut,
           gpu_power_within(t[COLUMN_ACROSS], 1, cut->threads[0]) &&
               (t[COLUMN_ACROSS] == 1 || !gpu_is_variant(cut, "along")),
           "its columns do not divide its threads");
  gpu_need(cut, t[COLUMN_TURNS] <= GPU_UNROLL_MOST, "a thread has too many elements at once");
  gpu_need(cut, splits == 1 || (splits - 1) * ceil_div(length, splits) < length,
           "a split is empty");
  return gpu_need(cut, gpu_power_within(last, 1, GPU_WARP) && last <= splits,
                  "a joiner has no split");
}

void gpu_plan_column(GpuCut *cut, const GpuRows *rows) {
  if (!gpu_need_tile(cut, COLUMN_TILES)) return;
  const int64_t *t = cut->tile;
  int64_t splits = t[COLUMN_SPLITS], lanes = t[COLUMN_LANES], all = nest_count(&rows->kept);
  bool along = gpu_is_variant(cut, "along");
  if (!gpu_need_threads(cut, splits > 1 ? 2 : 1)) return;
  if (!gpu_need_lanes(cut, lanes, along ? &rows->over : &rows->kept, rows->nroots, rows->root))
    return;
  if (!column_tile_fits(cut, rows, nest_count(&rows->over) / (along ? lanes : 1))) return;
  cut->p.chunks[0] = ceil_div(all / (along ? 1 : lanes), t[COLUMN_ACROSS]) * splits;
  cut->p.shared[0] = columns_shared(cut, rows);
  if (splits == 1) return;
  cut->p.chunks[1] = ceil_div(all * t[COLUMN_JOINERS], cut->threads[1]);
  cut->p.workspace = reduction_workspace(cut->k, &rows->r, splits);
}

static void plan_columns(GpuCut *cut) {
  ReducedSpace space = column_space(cut->k);
  GpuRows rows = gpu_rows_of(cut->m, cut->k, &space);
  gpu_plan_column(cut, &rows);
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
