/* Which cuts of a dot a GPU can run, and which a tuner tries, one decision after the other: the
   CTA's tile, its warps, the ring of stages, splits of k.

   ptxas gives a thread at most 255 registers, fewer where a CTA has many threads, and what does not
   fit goes to memory, which is many times slower. So a cut fits only where an estimate of its
   registers says so; ptxas, where it is there, confirms (codegen/assemble.c) and never decides:
   the same model gives the same kernels with and without it. */
#include "gpu.h"
#include "gpu_contract.h"

enum { PIECE = 16, MOST_WARPS = 16, MOST_STAGES = 8, MOST_SPLITS = 1024 };

static bool power_within(int64_t n, int64_t low, int64_t high) {
  return n >= low && n <= high && !(n & (n - 1));
}
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- registers ---- */

int64_t gpu_product_registers(const GpuProduct *x, const GemmPlan *g) {
  (void)x;
  return g->tile[GEMM_WARP_M] * g->tile[GEMM_WARP_N] / 32 + 64;
}

/* ---- what can be ---- */

static bool tile_fits(const GpuProduct *x, const int64_t *t) {
  bool fma = x->math == GEMM_FMA;
  int64_t step = x->math == GEMM_MMA ? 16 : fma ? 4 : 8; /* of k at a time */
  if (!power_within(t[GEMM_M], 16, 256) || !power_within(t[GEMM_N], 16, 256)) return false;
  if (!power_within(t[GEMM_K], step, 128)) return false;
  if (!power_within(t[GEMM_WARP_M], 16, least(fma ? 64 : 128, t[GEMM_M]))) return false;
  if (!power_within(t[GEMM_WARP_N], fma ? 32 : 16, least(128, t[GEMM_N]))) return false;
  if (t[GEMM_SPLITS] < 1 || t[GEMM_SPLITS] > MOST_SPLITS) return false;
  return t[GEMM_STAGES] >= 2 && t[GEMM_STAGES] <= MOST_STAGES;
}

/* A row of a tile is at most one piece for each thread. */
static bool side_fits(const GemmSide *s, int64_t threads) {
  return s->columns * s->elem / PIECE <= threads;
}

bool gpu_product_fits(const GpuProduct *x, const Cut *c) {
  if (!tile_fits(x, c->at)) return false;
  GemmPlan g = gpu_product_plan(x, c);
  int64_t threads = g.threads[0], splits = c->at[GEMM_SPLITS];
  if (threads > 32 * MOST_WARPS || g.shared[0] > x->limit) return false;
  if (!side_fits(&g.a, threads) || !side_fits(&g.b, threads)) return false;
  if (c->at[GEMM_M] * c->at[GEMM_N] % (x->fixed[GEMM_LANES] * threads)) return false;
  if (splits > 1 && g.range * (splits - 1) >= g.tiles_k) return false; /* one has no work */
  return gpu_product_registers(x, &g) <= gpu_registers(threads);
}

/* ---- what a tuner tries ---- */

static void add(Module *m, CutList *out, Cut c) { vec_push(m->arena, *out, c); }

/* Half to twice of what it is; wide: everything. */
typedef struct Range {
  int64_t from, to;
} Range;

static Range around(int64_t now, int64_t low, int64_t high, bool wide) {
  return wide ? (Range){low, high} : (Range){now / 2 < low ? low : now / 2, least(2 * now, high)};
}

static void vary_two(Module *m, const Cut *from, int first, int second, bool wide, CutList *out) {
  Range a = around(from->at[first], 16, 256, wide), b = around(from->at[second], 16, 256, wide);
  for (int64_t i = a.to; i >= a.from; i /= 2)
    for (int64_t j = b.to; j >= b.from; j /= 2) {
      Cut c = *from;
      c.at[first] = i, c.at[second] = j;
      c.at[GEMM_WARP_M] = least(c.at[GEMM_WARP_M], c.at[GEMM_M]);
      c.at[GEMM_WARP_N] = least(c.at[GEMM_WARP_N], c.at[GEMM_N]);
      add(m, out, c);
    }
}

static void vary_ring(Module *m, const Cut *from, bool wide, CutList *out) {
  int64_t stages = from->at[GEMM_STAGES];
  Range k = around(from->at[GEMM_K], 8, 128, wide);
  for (int64_t i = k.from; i <= k.to; i *= 2)
    for (int64_t j = wide ? 2 : stages - 1; j <= (wide ? 6 : stages + 1); j++) {
      Cut c = *from;
      c.at[GEMM_K] = i, c.at[GEMM_STAGES] = j, add(m, out, c);
    }
}

static void vary_splits(Module *m, const Cut *from, bool wide, CutList *out) {
  int64_t now = from->at[GEMM_SPLITS];
  for (int64_t i = 1; i <= (wide ? 64 : 2 * now + 1); i += wide && i > 4 ? i / 4 : 1) {
    Cut c = *from;
    c.at[GEMM_SPLITS] = i;
    if (wide || 2 * i >= now) add(m, out, c);
  }
}

void gpu_contract_vary(Module *m, const Fn *k, const Cut *from, int stage, bool wide,
                       CutList *out) {
  (void)k;
  if (stage == 0) vary_two(m, from, GEMM_M, GEMM_N, wide, out);
  if (stage == 1) vary_two(m, from, GEMM_WARP_M, GEMM_WARP_N, wide, out);
  if (stage == 2) vary_ring(m, from, wide, out);
  if (stage == 3) vary_splits(m, from, wide, out);
}
