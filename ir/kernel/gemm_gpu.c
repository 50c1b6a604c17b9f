/* The arithmetic of a dot's cut on a GPU; see gemm_gpu.h.

   Rows of 16-bit elements are swizzled so that eight neighbouring rows of one 16-byte piece are in
   different banks (ldmatrix reads them at once). Rows of f32 are padded instead: by 16 bytes where
   k is contiguous, by 32 where single words of four rows are read at once. */
#include "gemm_gpu.h"
#include "ir/support/num.h"

enum { PIECE = 16, REDUCE_THREADS = 256, REDUCE_EACH = 4 };

const char *const gemm_variant[] = {"fma", "tf32", "mma", "wgmma"};
_Static_assert(COUNT_OF(gemm_variant) == GEMM_WGMMA + 1, "a word per GemmMath");

static bool halves(const GemmPlan *plan) { return plan->math >= GEMM_MMA; }

int64_t gemm_panels(const GemmSide *side) {
  return ceil_div(side->columns * side->elem, WGMMA_PANEL);
}

int64_t gemm_panel_bytes(const GemmSide *side) {
  return ceil_div(side->rows, WGMMA_COPY_ROWS) * WGMMA_COPY_ROWS * side->pitch;
}

static GemmSide side_of(const GemmPlan *plan, int64_t extent, int64_t copy, Elem memory,
                        bool codes) {
  GemmSide side = {.along_k = copy % 2 == COPY_SINGLE_K,
                   .async = copy == COPY_ASYNC_K || copy == COPY_ASYNC_MN,
                   .wide = copy >= COPY_WIDE_K,
                   .swizzled = halves(plan),
                   .panels = plan->math == GEMM_WGMMA,
                   .passes = halves(plan) || memory != ELEM_f32,
                   .elem = codes          ? 1
                           : halves(plan) ? 2
                                          : 4};
  side.passes &= !side.async;
  side.rows = side.along_k ? extent : plan->tile[GEMM_K];
  side.columns = side.along_k ? plan->tile[GEMM_K] : extent;
  side.pitch = side.panels ? WGMMA_PANEL : side.columns * side.elem;
  if (!side.swizzled) side.pitch += side.along_k ? PIECE : 2 * PIECE;
  side.bytes = side.rows * side.columns * side.elem;
  if (!side.swizzled) side.bytes = side.rows * side.pitch;
  if (side.panels) side.bytes = gemm_panels(&side) * gemm_panel_bytes(&side);
  return side;
}

/* No more room than the ring's, while a pass has fragments of 16 rows and a vector for each lane.
 */
static void plan_out(GemmPlan *plan) {
  const int64_t *t = plan->tile;
  int64_t ring = t[GEMM_STAGES] * plan->stage;
  plan->out_pitch = (t[GEMM_N] + 8) * 4;
  for (plan->passes = 1, plan->out_rows = t[GEMM_WARP_M];
       plan->warps_m * plan->out_rows * plan->out_pitch > ring;
       plan->passes *= 2, plan->out_rows /= 2)
    if (plan->out_rows % 32 || plan->out_rows / 2 * t[GEMM_WARP_N] % (32 * t[GEMM_LANES])) break;
}

/* For a panel of each of its columns; if elements are brought, they have rooms of their own, all of
   a tile at once, and a second result one more. */
static int64_t rooms_of(const Product *product, const GemmPlan *plan) {
  int64_t panels = gemm_panels_across(plan);
  if (!product->elements) return panels;
  return panels * product->elements + max_i64(product->results - product->elements, 0);
}

/* Each warp has eight of its 16 rows at once, and no more columns than these; or, for bulk copies,
   all of them in 16 bits. */
static void plan_warpgroups(const Product *product, GemmPlan *plan) {
  const int64_t *t = plan->tile;
  plan->out_rows = 8, plan->out_pitch = (WGMMA_OUT + 8) * 4, plan->passes = 1;
  plan->rooms = t[GEMM_BY] == BY_BULK_ALL ? rooms_of(product, plan) : 0;
  if (plan->rooms) plan->out_rows = WGMMA_LEAVE_ROWS, plan->out_pitch = plan->rooms * WGMMA_PANEL;
  plan->threads[0] = WGMMA_THREADS * (1 + plan->warps_m);
  plan->shared[0] = t[GEMM_STAGES] * plan->stage +
                    plan->warps_m * WGMMA_THREADS / 32 * plan->out_rows * plan->out_pitch;
  plan->signals_at = plan->shared[0];
  if (t[GEMM_BY] != BY_THREADS)
    plan->shared[0] += round_up(2 * SIGNAL_BYTES * t[GEMM_STAGES], CACHE_LINE);
  plan->elements_at = plan->shared[0];
  if (plan->rooms && product->elements) plan->shared[0] += CACHE_LINE;
  plan->sums_at = plan->shared[0];
  if (plan->rooms && product->columns != NO_VALUE)
    plan->shared[0] += plan->warps_m * (WGMMA_THREADS / 32) * round_up(t[GEMM_N] * 4, CACHE_LINE);
  plan->share_at = plan->shared[0];
  if (gemm_is_shared(plan)) plan->shared[0] += CACHE_LINE;
}

static void plan_phases(const Product *product, GemmPlan *plan) {
  const int64_t *t = plan->tile;
  int64_t elements = plan->batches * plan->m * plan->n;
  plan->phases = plan->splits > 1 ? 2 : 1;
  plan->chunks[0] = gemm_tiles(plan);
  plan->threads[0] = 32 * plan->warps_m * plan->warps_n;
  plan->shared[0] =
      max_i64(t[GEMM_STAGES] * plan->stage, plan->warps_m * plan->out_rows * plan->out_pitch);
  plan->workspace = plan->phases > 1 ? elements * plan->splits * 4 : 0;
  plan->chunks[1] = ceil_div(elements, REDUCE_THREADS * REDUCE_EACH * t[GEMM_LANES]);
  plan->threads[1] = REDUCE_THREADS;
  if (plan->math == GEMM_WGMMA) plan_warpgroups(product, plan);
}

static void plan_shares(GemmPlan *plan, int64_t ctas) {
  plan->chunks[0] = min_i64(gemm_tiles(plan) * plan->tiles_k, ctas);
  plan->pieces_at = round_up(plan->workspace, CACHE_LINE);
  plan->workspace = plan->pieces_at + plan->chunks[0] * plan->tile[GEMM_M] * plan->tile[GEMM_N] * 4;
}

static void plan_lines(GemmPlan *plan) {
  int64_t each = plan->math == GEMM_WGMMA ? WGMMA_GROUPS : 1;
  plan->lines = (SumLines){plan->n, 1, plan->tiles_m * each, round_up(plan->workspace, CACHE_LINE)};
  plan->workspace = plan->lines.at + lines_workspace(&plan->lines);
  plan->phases = 2, plan->chunks[1] = lines_blocks(&plan->lines);
  plan->threads[1] = LINES_THREADS, plan->shared[1] = LINES_SHARED;
}

/* Rows are places of experts, and whole pieces of them can be read at once. */
static bool seeks(const Product *product, const int64_t *tile) {
  if (!product->place) return false;
  if (tile[GEMM_COPY_A] != COPY_ASYNC_K && tile[GEMM_COPY_A] != COPY_WIDE_K) return false;
  for (int i = 0; i < product->m.count; i++)
    if (product->m.dim[i].dim == product->place) return true;
  return false;
}

bool gemm_of_warpgroups(const int64_t *cut) {
  return cut[GEMM_WARP_M] == WGMMA_ROWS && cut[GEMM_WARP_N] == cut[GEMM_N] &&
         cut[GEMM_N] >= WGMMA_LEAST;
}

int gemm_range(const ProductDims *dims, bool side_b, int last, int64_t *size, int64_t *stride) {
  const ProductDim *dim = dims->dim;
  int first = last;
  *size = dim[last].size, *stride = side_b ? dim[last].b : dim[last].a;
  for (; first > 0; *size *= dim[--first].size)
    if ((side_b ? dim[first - 1].b : dim[first - 1].a) != *stride * *size) break;
  return first;
}

bool gemm_flat(const ProductDims *dims, bool side_b, int64_t unit, int64_t *stride) {
  int64_t size;
  *stride = 1;
  return !dims->count || !gemm_range(dims, side_b, dims->count - 1, &size, stride) ||
         size % unit == 0;
}

static bool far_apart(const Product *product, bool side_b, bool along_k) {
  const ProductDims *mn = side_b ? &product->n : &product->m;
  int64_t stride, piece = PIECE / elem_bytes(product->compute);
  return !gemm_flat(along_k ? &product->k : mn, side_b, piece, &stride);
}

GemmPlan gemm_plan(const Product *product, GemmMath math, const int64_t tile[GEMM_COUNT],
                   int64_t ctas) {
  GemmPlan plan = {.math = math,
                   .m = product->m.outer * product->m.inner,
                   .n = product->n.outer * product->n.inner,
                   .k = product->k.outer * product->k.inner,
                   .batches = product->batch.outer * product->batch.inner};
  memcpy(plan.tile, tile, sizeof plan.tile);
  plan.tiles_m = ceil_div(plan.m, tile[GEMM_M]), plan.tiles_n = ceil_div(plan.n, tile[GEMM_N]);
  plan.tiles_k = ceil_div(plan.k, tile[GEMM_K]);
  plan.splits = gemm_is_shared(&plan) ? 1 : tile[GEMM_SPLITS];
  plan.range = ceil_div(plan.tiles_k, plan.splits);
  plan.a = side_of(&plan, tile[GEMM_M], tile[GEMM_COPY_A], product->elem_a, product->codes);
  plan.b = side_of(&plan, tile[GEMM_N], tile[GEMM_COPY_B], product->elem_b, product->codes);
  plan.a.far = far_apart(product, false, plan.a.along_k);
  plan.b.far = far_apart(product, true, plan.b.along_k);
  plan.stage = plan.a.bytes + plan.b.bytes;
  plan.warps_m = (int)(tile[GEMM_M] / tile[GEMM_WARP_M]);
  plan.warps_n = (int)(tile[GEMM_N] / tile[GEMM_WARP_N]);
  plan_out(&plan);
  plan_phases(product, &plan);
  gemm_hold(&plan);
  if (seeks(product, tile)) {
    plan.seek_ctas = plan.batches * plan.tiles_m, plan.seek_at = plan.workspace;
    plan.workspace += plan.seek_ctas * 4;
  }
  if (product->columns != NO_VALUE) plan_lines(&plan);
  if (math == GEMM_WGMMA) plan.chunks[0] = min_i64(plan.chunks[0], ctas);
  if (gemm_is_shared(&plan)) plan_shares(&plan, ctas);
  return plan;
}

/* The direction's inner dim is contiguous and holds whole pieces; all others move by whole
 * pieces. */
bool gemm_pieces(const Product *product, bool side_b, bool along_k) {
  const ProductDims *all[] = {&product->batch, side_b ? &product->n : &product->m, &product->k};
  const ProductDims *along = all[along_k ? 2 : 1];
  int64_t piece = PIECE / elem_bytes(side_b ? product->elem_b : product->elem_a);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < all[i]->count; j++) {
      const ProductDim *dim = &all[i]->dim[j];
      int64_t stride = side_b ? dim->b : dim->a;
      bool inner = all[i] == along && j + 1 == along->count;
      if (inner ? stride != 1 || dim->size % piece : stride % piece) return false;
    }
  return along->count > 0;
}
