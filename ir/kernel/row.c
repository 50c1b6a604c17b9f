/* Family row: reductions and scans along rows. Its tile has a number per walk over a row; scratch
   holds the values that later walks need again (row_kept.c), the workspace the sums of columns. */
#include "family.h"
#include "gpu_lines.h"
#include "row_kept.h"
#include "online_rows.h"
#include "row_turned.h"

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
  for (int i = 0; i < gpu_rows.r.ncolumns; i++)
    gpu_rows.root[gpu_rows.nroots++] = k->ops.at[gpu_rows.r.column[i]].in[0];
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId packed = reduction_packed(k, &gpu_rows.r, k->results.at[i]);
    if (nest_is_column_sum(k, &gpu_rows.r, k->results.at[i])) continue;
    gpu_rows.root[gpu_rows.nroots++] = k->results.at[i];
    if (packed != NO_VALUE) gpu_rows.root[gpu_rows.nroots++] = packed;
  }
  gpu_rows.packs = reduction_packs(k, &gpu_rows.r);
  gpu_rows.once =
      gpu_rows.passes <= 1 && !gpu_rows.r.scans && !gpu_rows.packs && !gpu_rows.r.ncolumns;
  for (uint32_t i = (uint32_t)gpu_rows.r.n; i < gpu_rows.nroots; i++)
    gpu_rows.once &=
        !reduction_along(k, &gpu_rows.r, gpu_rows.root[i]) || !gpu_rows.level[gpu_rows.root[i]];
  return gpu_rows;
}

int64_t gpu_scan_row(const Fn *k, const Reductions *r) {
  int64_t bytes = 0;
  for (int i = 0; i < r->n; i++)
    if (op_family(k->ops.at[r->op[i]].code) == FAMILY_SCAN) bytes += gpu_scan_bytes(r);
  return bytes;
}

bool gpu_scan_in_workspace(const Fn *k, const Reductions *r) {
  return r->scans && (r->ncolumns || attr_get(&k->attrs, ATTR_workspace));
}

static void plan_scan(GpuCut *cut, const GpuRows *gpu_rows, int64_t rows) {
  int64_t bytes = gpu_scan_row(cut->k, &gpu_rows->r);
  if (!gpu_need(cut,
                gpu_is_variant(cut, "turns") && cut->tile[ROW_GROUP] == GPU_WARP &&
                    cut->tile[ROW_LANES] == 1,
                "a scan is made by a warp, element by element"))
    return;
  if (gpu_scan_in_workspace(cut->k, &gpu_rows->r)) cut->p.workspace = rows * bytes;
  else cut->p.shared[0] = cut->threads[0] / GPU_WARP * bytes;
}

/* The walk for all levels: a CTA per row, whose operands it may keep. */
static void plan_online(GpuCut *cut, const GpuRows *gpu_rows, int64_t length) {
  OnlineRows online;
  bool fits = rows_online(cut->m->arena, cut->k, &gpu_rows->r, &online);
  if (!gpu_need(cut, fits, "its rows have no walk for all levels") ||
      !gpu_need(cut, cut->tile[ROW_GROUP] == cut->threads[0], "a CTA has one row"))
    return;
  if (gpu_is_variant(cut, "kept"))
    cut->p.shared[0] += round_up(rows_online_bytes(cut->k, &online, length), 16);
  gpu_need(cut, cut->p.shared[0] <= cut->m->target.shared, "its row has no shared memory");
}

/* Rows in turn, and lines of sums of columns that the second phase adds up. */
static void plan_columns(GpuCut *cut, const GpuRows *gpu_rows, int64_t rows) {
  bool held = gpu_is_variant(cut, "held");
  int64_t group = cut->tile[ROW_GROUP], groups = cut->threads[0] / group;
  gpu_need(cut, group >= GPU_WARP && !gpu_is_variant(cut, "rows"),
           "sums of columns are added by whole warps along the rows");
  gpu_need(cut, cut->threads[1] == LINES_THREADS, "its second phase has other threads");
  if (!gpu_need(cut, held || groups == 1, "the groups of a CTA would share a line of sums")) return;
  cut->p.chunks[0] = ceil_div(rows, groups * cut->tile[ROW_TURNS]);
  SumLines lines = {nest_count(&gpu_rows->over), gpu_rows->r.ncolumns, cut->p.chunks[0],
                    cut->p.workspace};
  if (groups > 1 && cut->p.shared[0] < lines.columns * lines.sums * 4)
    cut->p.shared[0] = lines.columns * lines.sums * 4;
  gpu_need(cut, cut->p.shared[0] <= cut->m->target.shared,
           "the groups of a CTA have no room for their sums");
  cut->p.shared[1] = LINES_SHARED;
  cut->p.chunks[1] = lines_blocks(&lines) * lines.sums;
  cut->p.workspace += lines_workspace(&lines);
}

static bool row_tile_fits(GpuCut *cut, const GpuRows *gpu_rows, int64_t length) {
  bool side = gpu_is_variant(cut, "rows");
  int64_t lanes = cut->tile[ROW_LANES], group = cut->tile[ROW_GROUP], threads = cut->threads[0];
  int64_t each = cut->tile[ROW_VECTORS];
  gpu_need(cut, gpu_power_within(group, 1, threads) && (group <= GPU_WARP || group == threads),
           "the threads of a row are no power of two of a warp, nor all of the CTA");
  gpu_need(cut, !side || group == 1, "rows that are contiguous have a thread each");
  gpu_need(cut, !gpu_rows->packs || group == 1 || group * lanes >= 8,
           "the threads of a row make no whole byte of bits");
  gpu_need(cut, each <= GPU_HELD_MOST, "a thread has too many vectors");
  return gpu_need(cut, !gpu_is_variant(cut, "held") || each * group >= length,
                  "its threads do not hold the whole row");
}

static void plan_row(GpuCut *cut, const GpuRows *gpu_rows) {
  if (!gpu_need_tile(cut, gpu_row_tile(&gpu_rows->r)) ||
      !gpu_need_threads(cut, 1 + (gpu_rows->r.ncolumns > 0)))
    return;
  bool side = gpu_is_variant(cut, "rows");
  int64_t lanes = cut->tile[ROW_LANES], group = cut->tile[ROW_GROUP];
  if (!gpu_need_lanes(cut, lanes, side ? &gpu_rows->kept : &gpu_rows->over, gpu_rows->nroots,
                      gpu_rows->root))
    return;
  int64_t rows = nest_count(&gpu_rows->kept) / (side ? lanes : 1),
          length = nest_count(&gpu_rows->over) / (side ? 1 : lanes);
  if (!row_tile_fits(cut, gpu_rows, length)) return;
  cut->p.chunks[0] = ceil_div(rows, cut->threads[0] / group);
  if (gpu_rows->r.scans) plan_scan(cut, gpu_rows, rows);
  else cut->p.shared[0] = group > GPU_WARP ? gpu_rows->r.n * (int64_t)GROUP_EXCHANGE : 0;
  if (gpu_rows->r.ncolumns && !cut->p.fault) plan_columns(cut, gpu_rows, rows);
  if (gpu_is_variant(cut, "online") || gpu_is_variant(cut, "kept"))
    plan_online(cut, gpu_rows, length * lanes);
}

static void plan_turned(GpuCut *cut) {
  TurnedRows rows;
  if (!gpu_need_tile(cut, ROW_TILES) || !gpu_need_threads(cut, 1)) return;
  bool fits = cut->tile[ROW_LANES] == TURNED_LANES && cut->tile[ROW_VECTORS] == TURNED_DEPTH &&
              cut->tile[ROW_GROUP] == TURNED_THREADS && cut->threads[0] == TURNED_THREADS;
  if (!gpu_need(cut, fits && row_turned(cut->m, cut->k, &rows), "it turns no blocks of 8 bits"))
    return;
  cut->p.chunks[0] = rows.ctas, cut->p.shared[0] = TURNED_SHARED;
}

static void plan_rows(GpuCut *cut) {
  if (gpu_is_variant(cut, "turned")) {
    plan_turned(cut);
    return;
  }
  if (!gpu_need(cut, !codes_other(cut->k), "variant `turned` alone rounds to 8 bits in two orders"))
    return;
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
    .gpu_variants = " held online kept turns rows columns along turned ",
    .gpu_plan = plan_rows,
};
