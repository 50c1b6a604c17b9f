/* Family row: reductions and scans along rows. Its tile has a number per walk over a row; scratch
   holds the values that later walks need again (row_kept.c), the workspace the sums of columns. */
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

GpuRows gpu_rows_of(const Module *m, const Fn *k, const ReducedSpace *space) {
  GpuRows gpu_rows = {.r = space->r, .kept = space->kept, .over = space->over};
  gpu_rows.reference = space->reference, gpu_rows.level = reduction_levels(m->arena, k);
  gpu_rows.passes = reduction_passes(k, &gpu_rows.r, gpu_rows.level);
  for (int i = 0; i < gpu_rows.r.n; i++)
    gpu_rows.root[gpu_rows.nroots++] = k->ops.at[gpu_rows.r.op[i]].in[0];
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId packed = reduction_packed(k, &gpu_rows.r, k->results.at[i]);
    gpu_rows.root[gpu_rows.nroots++] = k->results.at[i];
    if (packed != NO_VALUE) gpu_rows.root[gpu_rows.nroots++] = packed;
  }
  gpu_rows.packs = reduction_packs(k, &gpu_rows.r);
  gpu_rows.once = gpu_rows.passes <= 1 && !gpu_rows.r.scans && !gpu_rows.packs;
  for (uint32_t i = (uint32_t)gpu_rows.r.n; i < gpu_rows.nroots; i++)
    gpu_rows.once &=
        !reduction_along(k, &gpu_rows.r, gpu_rows.root[i]) || !gpu_rows.level[gpu_rows.root[i]];
  return gpu_rows;
}

/* Rows of scans are in shared memory, or in the workspace if there is one. */
static void plan_scan(GpuCut *cut, const GpuRows *gpu_rows, int64_t rows) {
  int64_t bytes = 0;
  for (int i = 0; i < gpu_rows->r.n; i++)
    if (op_family(cut->k->ops.at[gpu_rows->r.op[i]].code) == FAMILY_SCAN)
      bytes += gpu_scan_bytes(&gpu_rows->r);
  if (!gpu_need(cut,
                gpu_is_variant(cut, "turns") && cut->tile[ROW_GROUP] == GPU_WARP &&
                    cut->tile[ROW_LANES] == 1,
                "a scan is made by a warp, element by element"))
    return;
  if (attr_get(&cut->k->attrs, ATTR_workspace)) cut->p.workspace = rows * bytes;
  else cut->p.shared[0] = cut->threads[0] / GPU_WARP * bytes;
}

static void plan_row(GpuCut *cut, const GpuRows *gpu_rows) {
  if (!gpu_need_tile(cut, ROW_TILES) || !gpu_need_threads(cut, 1)) return;
  bool side = gpu_is_variant(cut, "rows");
  int64_t lanes = cut->tile[ROW_LANES], group = cut->tile[ROW_GROUP], each = cut->tile[ROW_VECTORS];
  if (!gpu_need_lanes(cut, lanes, side ? &gpu_rows->kept : &gpu_rows->over, gpu_rows->nroots,
                      gpu_rows->root))
    return;
  int64_t rows = nest_count(&gpu_rows->kept) / (side ? lanes : 1),
          length = nest_count(&gpu_rows->over) / (side ? 1 : lanes), threads = cut->threads[0];
  gpu_need(cut, gpu_power_within(group, 1, threads) && (group <= GPU_WARP || group == threads),
           "the threads of a row are no power of two of a warp, nor all of the CTA");
  gpu_need(cut, !side || group == 1, "rows that are contiguous have a thread each");
  gpu_need(cut, !gpu_rows->packs || group == 1 || group * lanes >= 8,
           "the threads of a row make no whole byte of bits");
  gpu_need(cut, each <= GPU_HELD_MOST, "a thread has too many vectors");
  if (!gpu_need(cut, !gpu_is_variant(cut, "held") || each * group >= length,
                "its threads do not hold the whole row"))
    return;
  cut->p.chunks[0] = ceil_div(rows, threads / group);
  if (gpu_rows->r.scans) plan_scan(cut, gpu_rows, rows);
  else cut->p.shared[0] = group > GPU_WARP ? gpu_rows->r.n * (int64_t)GROUP_EXCHANGE : 0;
}

static void plan_rows(GpuCut *cut) {
  bool columns = gpu_is_variant(cut, "columns") || gpu_is_variant(cut, "along");
  ReducedSpace space = columns ? column_space(cut->k) : row_space(cut->k);
  GpuRows gpu_rows = gpu_rows_of(cut->m, cut->k, &space);
  if (columns) gpu_plan_column(cut, &gpu_rows);
  else plan_row(cut, &gpu_rows);
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
