/* The arithmetic of a dot's cut on a GPU; see gemm_gpu.h.

   Rows of 16-bit elements are swizzled so that eight neighbouring rows of one 16-byte piece lie in
   different banks (ldmatrix reads them at once). Rows of f32 are padded instead: by 16 bytes where
   k is contiguous, by 32 where single words of four rows are read at once. */
#include "gemm_gpu.h"
#include "ir/support/num.h"

enum { PIECE = 16, REDUCE_THREADS = 256, REDUCE_EACH = 4 };

const char *const gemm_variant[] = {"fma", "tf32", "mma"};
_Static_assert(COUNT_OF(gemm_variant) == GEMM_MMA + 1, "a word per GemmMath");

static GemmSide side_of(const GemmPlan *g, int64_t extent, int64_t copy) {
  GemmSide s = {.along_k = copy % 2 == COPY_SINGLE_K,
                .async = copy == COPY_ASYNC_K || copy == COPY_ASYNC_MN,
                .wide = copy >= COPY_WIDE_K,
                .swizzled = g->math == GEMM_MMA,
                .elem = g->math == GEMM_MMA ? 2 : 4};
  s.rows = s.along_k ? extent : g->tile[GEMM_K];
  s.columns = s.along_k ? g->tile[GEMM_K] : extent;
  s.pitch = s.columns * s.elem;
  if (!s.swizzled) s.pitch += s.along_k ? PIECE : 2 * PIECE;
  s.bytes = s.rows * s.pitch;
  return s;
}

/* No more room than the ring's, while a pass has fragments of 16 rows and a vector for each lane.
 */
static void plan_out(GemmPlan *g) {
  const int64_t *t = g->tile;
  int64_t ring = t[GEMM_STAGES] * g->stage;
  g->out_pitch = (t[GEMM_N] + 8) * 4;
  for (g->passes = 1, g->out_rows = t[GEMM_WARP_M]; g->warps_m * g->out_rows * g->out_pitch > ring;
       g->passes *= 2, g->out_rows /= 2)
    if (g->out_rows % 32 || g->out_rows / 2 * t[GEMM_WARP_N] % (32 * t[GEMM_LANES])) break;
}

static void plan_phases(GemmPlan *g) {
  const int64_t *t = g->tile;
  int64_t elements = g->batches * g->m * g->n;
  g->phases = t[GEMM_SPLITS] > 1 ? 2 : 1;
  g->chunks[0] = g->batches * g->tiles_m * g->tiles_n * t[GEMM_SPLITS];
  g->threads[0] = 32 * g->warps_m * g->warps_n;
  g->shared[0] = max_i64(t[GEMM_STAGES] * g->stage, g->warps_m * g->out_rows * g->out_pitch);
  g->workspace = g->phases > 1 ? elements * t[GEMM_SPLITS] * 4 : 0;
  g->chunks[1] = ceil_div(elements, REDUCE_THREADS * REDUCE_EACH * t[GEMM_LANES]);
  g->threads[1] = REDUCE_THREADS;
}

GemmPlan gemm_plan(const Product *p, GemmMath math, const int64_t tile[GEMM_COUNT]) {
  GemmPlan g = {.math = math,
                .m = p->m.outer * p->m.inner,
                .n = p->n.outer * p->n.inner,
                .k = p->k.outer * p->k.inner,
                .batches = p->batch.outer * p->batch.inner};
  memcpy(g.tile, tile, sizeof g.tile);
  g.tiles_m = ceil_div(g.m, tile[GEMM_M]), g.tiles_n = ceil_div(g.n, tile[GEMM_N]);
  g.tiles_k = ceil_div(g.k, tile[GEMM_K]);
  g.range = ceil_div(g.tiles_k, tile[GEMM_SPLITS]);
  g.a = side_of(&g, tile[GEMM_M], tile[GEMM_COPY_A]);
  g.b = side_of(&g, tile[GEMM_N], tile[GEMM_COPY_B]);
  g.stage = g.a.bytes + g.b.bytes;
  g.warps_m = (int)(tile[GEMM_M] / tile[GEMM_WARP_M]);
  g.warps_n = (int)(tile[GEMM_N] / tile[GEMM_WARP_N]);
  plan_out(&g);
  plan_phases(&g);
  return g;
}

/* The direction's inner dim is contiguous and holds whole pieces; all others move by whole
 * pieces. */
bool gemm_pieces(const Product *p, bool side_b, bool along_k) {
  const ProductDims *all[] = {&p->batch, side_b ? &p->n : &p->m, &p->k};
  const ProductDims *along = all[along_k ? 2 : 1];
  int64_t piece = PIECE / elem_bytes(side_b ? p->elem_b : p->elem_a);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < all[i]->count; j++) {
      const ProductDim *d = &all[i]->dim[j];
      int64_t stride = side_b ? d->b : d->a;
      bool inner = all[i] == along && j + 1 == along->count;
      if (inner ? stride != 1 || d->size % piece : stride % piece) return false;
    }
  return along->count > 0;
}
