/* Family row: reductions and scans along rows. Its tile has a number per walk over a row; scratch
   holds what later walks need again (row_kept.c), the workspace sums of columns beside. */
#include "family.h"
#include "row_kept.h"

static int count_tile(Arena *a, const Fn *k) {
  Reductions r = reductions_of(k);
  return 1 + reduction_passes(k, &r, reduction_levels(a, k));
}

static CpuPlan plan(const CpuCut *c) {
  Reductions r = reductions_of(c->k);
  return (CpuPlan){.phases = 1 + (r.ncolumns > 0),
                   .scratch = row_scratch(c->m->arena, c->k, &r),
                   .workspace = column_workspace(&r, c->chunks[0])};
}

/* ---- GPUs ---- */

GpuRows gpu_rows_of(const Module *m, const Fn *k) {
  GpuRows w = {.r = reductions_of(k), .level = reduction_levels(m->arena, k), .once = true};
  w.passes = reduction_passes(k, &w.r, w.level);
  w.reference = nest_reference(k, &w.r.over);
  w.kept = nest_of(k, &w.r.kept, w.reference), w.over = nest_of(k, &w.r.over, w.reference);
  for (int i = 0; i < w.r.n; i++) w.root[w.nroots++] = k->ops.at[w.r.op[i]].in[0];
  for (uint32_t i = 0; i < k->results.n; i++) w.root[w.nroots++] = k->results.at[i];
  w.once = w.passes <= 1 && !w.r.scans;
  for (uint32_t i = (uint32_t)w.r.n; i < w.nroots; i++)
    w.once &= !reduction_along(k, &w.r, w.root[i]) || !w.level[w.root[i]];
  return w;
}

/* Rows of scans lie in shared memory, or in the workspace if there is one. */
static void plan_scan(GpuCut *x, const GpuRows *w, int64_t rows) {
  int64_t bytes = 0;
  for (int i = 0; i < w->r.n; i++)
    if (op_family(x->k->ops.at[w->r.op[i]].code) == FAMILY_SCAN) bytes += gpu_scan_bytes(&w->r);
  if (!gpu_need(x,
                gpu_is_variant(x, "turns") && x->tile[ROW_GROUP] == GPU_WARP &&
                    x->tile[ROW_LANES] == 1,
                "a scan is made by a warp, element by element"))
    return;
  if (attr_get(&x->k->attrs, ATTR_workspace)) x->p.workspace = rows * bytes;
  else x->p.shared[0] = x->threads[0] / GPU_WARP * bytes;
}

static void plan_row(GpuCut *x, const GpuRows *w) {
  if (!gpu_need_tile(x, ROW_TILES) || !gpu_need_threads(x, 1)) return;
  bool side = gpu_is_variant(x, "rows");
  int64_t lanes = x->tile[ROW_LANES], group = x->tile[ROW_GROUP], each = x->tile[ROW_VECTORS];
  if (!gpu_need_lanes(x, lanes, side ? &w->kept : &w->over, w->nroots, w->root)) return;
  int64_t rows = nest_count(&w->kept) / (side ? lanes : 1),
          length = nest_count(&w->over) / (side ? 1 : lanes), threads = x->threads[0];
  gpu_need(x, gpu_power_within(group, 1, threads) && (group <= GPU_WARP || group == threads),
           "the threads of a row are no power of two of a warp, nor all of the CTA");
  gpu_need(x, !side || group == 1, "rows that are contiguous have a thread each");
  gpu_need(x, each <= GPU_HELD_MOST, "a thread has too many vectors");
  if (!gpu_need(x, !gpu_is_variant(x, "held") || each * group >= length,
                "its threads do not hold the whole row"))
    return;
  x->p.chunks[0] = ceil_div(rows, threads / group);
  if (w->r.scans) plan_scan(x, w, rows);
  else x->p.shared[0] = group > GPU_WARP ? w->r.n * (int64_t)GROUP_EXCHANGE : 0;
}

static void plan_rows(GpuCut *x) {
  GpuRows w = gpu_rows_of(x->m, x->k);
  if (gpu_is_variant(x, "columns") || gpu_is_variant(x, "along")) gpu_plan_column(x, &w);
  else plan_row(x, &w);
}

const FamilyShape row_family = {
    .beside = 1u << FAMILY_REDUCE | 1u << FAMILY_SCAN,
    .heart = FAMILY_REDUCE,
    .most = MAX_RESULTS,
    .reduces = REDUCES_ROWS,
    .in_place = IN_PLACE_ONE, /* results are written in the last walk, and walks may differ */
    .count_tile = count_tile,
    .unroll = 1,
    .variants = {"row", "rows", "scalar"},
    .plan = plan,
    .gpu_variants = " held turns rows columns along ",
    .gpu_plan = plan_rows,
};
