/* Which cuts of a dot a tuner tries on a GPU, one decision after the other: the CTA's tile, its
   warps, the ring of stages and who fills it, splits of k. Which of them can be:
   ir/kernel/gpu_product.c. */
#include "ir/support/num.h"
#include "tune.h"

static void add(Module *m, CutList *out, Cut cut) { vec_push(m->arena, *out, cut); }

/* Half to twice the present size; wide: everything. */
typedef struct SizeRange {
  int64_t from, to;
} SizeRange;

static SizeRange around(int64_t now, int64_t low, int64_t high, bool wide) {
  return wide ? (SizeRange){low, high}
              : (SizeRange){now / 2 < low ? low : now / 2, min_i64(2 * now, high)};
}

static void vary_two(Module *m, const Cut *from, int first, int second, bool wide, CutList *out) {
  SizeRange a = around(from->at[first], 16, 256, wide), b = around(from->at[second], 16, 256, wide);
  for (int64_t i = a.to; i >= a.from; i /= 2)
    for (int64_t j = b.to; j >= b.from; j /= 2) {
      Cut cut = *from;
      cut.at[first] = i, cut.at[second] = j;
      cut.at[GEMM_WARP_M] = min_i64(cut.at[GEMM_WARP_M], cut.at[GEMM_M]);
      cut.at[GEMM_WARP_N] = min_i64(cut.at[GEMM_WARP_N], cut.at[GEMM_N]);
      add(m, out, cut);
    }
}

/* Tiles of wgmma have any width in steps of 8: all, or those next to the present one. */
static void vary_width(Module *m, const Cut *from, bool wide, CutList *out) {
  SizeRange range = {WGMMA_LEAST, WGMMA_MOST};
  if (!wide) range.from = from->at[GEMM_N] - 3 * WGMMA_STEP, range.to = range.from + 6 * WGMMA_STEP;
  for (int64_t n = range.from; n <= range.to; n += WGMMA_STEP) {
    Cut cut = *from;
    cut.at[GEMM_N] = cut.at[GEMM_WARP_N] = n;
    add(m, out, cut);
  }
}

static void vary_ring(Module *m, const Cut *from, bool wide, CutList *out) {
  int64_t stages = from->at[GEMM_STAGES];
  SizeRange range = around(from->at[GEMM_K], 8, 128, wide);
  for (int64_t i = range.from; i <= range.to; i *= 2)
    for (int64_t j = wide ? 2 : stages - 1; j <= (wide ? 6 : stages + 1); j++) {
      Cut cut = *from;
      cut.at[GEMM_K] = i, cut.at[GEMM_STAGES] = j, add(m, out, cut);
    }
}

static void vary_splits(Module *m, const Cut *from, bool wide, CutList *out) {
  int64_t now = from->at[GEMM_SPLITS] == GEMM_SHARES ? 1 : from->at[GEMM_SPLITS];
  for (int64_t i = 1; i <= (wide ? 64 : 2 * now + 1); i += wide && i > 4 ? i / 4 : 1) {
    Cut cut = *from;
    cut.at[GEMM_SPLITS] = i;
    if (wide || 2 * i >= now) add(m, out, cut);
  }
  Cut shared = *from;
  shared.at[GEMM_SPLITS] = GEMM_SHARES;
  if (gemm_of_warpgroups(from->at)) add(m, out, shared);
}

/* The other ways of operands of wgmma, and of its results, with as many stages and with one more:
   these need other room than operands alone. */
static void vary_way(Module *m, const Cut *from, CutList *out) {
  for (int64_t by = BY_THREADS; by <= BY_BULK_ALL; by++)
    for (int64_t more = -1; more <= 1; more++) {
      Cut cut = *from;
      cut.at[GEMM_BY] = by, cut.at[GEMM_STAGES] += more;
      if (by != from->at[GEMM_BY]) add(m, out, cut);
    }
}

void gpu_contract_vary(Module *m, const Fn *k, const Cut *from, int stage, bool wide,
                       CutList *out) {
  (void)k;
  if (stage == 0) vary_two(m, from, GEMM_M, GEMM_N, wide, out);
  if (stage == 0 && gemm_of_warpgroups(from->at)) vary_width(m, from, wide, out);
  if (stage == 1) vary_two(m, from, GEMM_WARP_M, GEMM_WARP_N, wide, out);
  if (stage == 2) vary_ring(m, from, wide, out);
  if (stage == 2 && gemm_of_warpgroups(from->at)) vary_way(m, from, out);
  if (stage == 3) vary_splits(m, from, wide, out);
}
