/* How a dot is cut on a GPU: which mathematics, how operands are loaded, which tile, how many
   splits of k. ir/kernel/gemm_gpu.h explains the numbers.

   The choice among tiles is by time: whole waves of CTAs over the multiprocessors, each CTA bound
   by its multiply-adds or by the bytes of its operands. Small tiles waste bandwidth, large ones
   waste waves and ragged edges; the table's last column holds the share of peak that a tile
   reaches with eight warps on a multiprocessor. Fewer warps leave gaps: they synchronise at each
   tile of k, and only other CTAs' warps could fill that time. Likewise, the multiply-adds of CTAs
   on the same multiprocessor hide the start of a CTA (its first stages) and its end (the stores of
   its sums).

   The bf16 rates of tiles of 128 x 128 and more were measured on GPT-2 124M's 15 products on an
   H100, 40 cuts each, before fragments were read ahead (docs/gpu.md); all others are estimates.
   Tiles that need more registers or shared memory than available are skipped. */
#include "gpu.h"
#include "ir/support/num.h"
#include "tune.h"
#include "ir/plan/module_settings.h"

enum { ENOUGH_WARPS = 8 };
enum { LOADED = 40 };                     /* bytes of a multiprocessor and cycle */
enum { TAKE_SHARE = 1200 };               /* cycles: an atomic addition, which the CTA waits for */
enum { LINE = 128, FAR_ROWS = 32 << 10 }; /* bytes: of a cache line; of a row of k, for loaded */
static const double FEW_WARPS = 0.8;      /* of the rate, with half of them */
/* Cycles of an element that leaves by bulk copies: the ends of a tile of a kernel written by
   hand with such copies (bench/cuda/wgmma.cu) took 0.77 us on an H100. */
static const double LEAVES = 0.026;
/* Cycles to read an element that such copies bring: shared memory gives 128 bytes a cycle, and the
   copy runs while the tile is multiplied. Sums of columns take about as many, for shuffles. No run
   has timed either. */
static const double COMES = 0.016;
static const double GROUP_CYCLES = 60, GROUP_COLUMN = 4.88, WORTH_OTHERS = 0.98;

typedef struct ProductShape { /* a row of a table: of equal times the first wins */
  int64_t m, n, k, warp_m, warp_n, stages;
  double rate; /* multiply-adds per multiprocessor and cycle */
} ProductShape;

static const ProductShape mma_shapes[] = {
    {128, 256, 64, 64, 64, 3, 850}, {256, 128, 64, 64, 64, 3, 850}, {128, 256, 32, 64, 64, 4, 820},
    {256, 128, 32, 64, 64, 4, 820}, {128, 128, 32, 64, 64, 4, 850}, {128, 128, 32, 64, 64, 3, 840},
    {128, 128, 64, 64, 64, 3, 845}, {128, 64, 32, 64, 32, 4, 600},  {64, 128, 32, 32, 64, 4, 600},
    {64, 64, 32, 32, 32, 4, 420},   {32, 128, 32, 32, 32, 4, 350},  {32, 64, 32, 16, 32, 4, 250},
    {32, 32, 32, 16, 16, 4, 150},
};
static const ProductShape tf32_shapes[] = {
    {128, 256, 16, 64, 64, 3, 415}, {256, 128, 16, 64, 64, 3, 415}, {128, 128, 16, 64, 64, 3, 380},
    {128, 64, 16, 64, 32, 3, 300},  {64, 64, 16, 32, 32, 3, 210},   {32, 64, 16, 16, 32, 3, 120},
    {32, 32, 16, 16, 16, 3, 75},
};
static const ProductShape fma_shapes[] = {
    {128, 128, 16, 32, 64, 3, 58}, {128, 64, 16, 32, 32, 3, 52}, {64, 64, 16, 32, 32, 3, 46},
    {32, 64, 16, 16, 32, 3, 32},   {32, 32, 16, 16, 32, 3, 20},
};

typedef struct Shapes {
  const ProductShape *at;
  int n;
} Shapes;

#define SHAPES(list)                                                                               \
  { list, sizeof list / sizeof *list }
static const Shapes shapes[] = {/* by GemmMath */
                                SHAPES(fma_shapes), SHAPES(tf32_shapes), SHAPES(mma_shapes)};
_Static_assert(COUNT_OF(shapes) == GEMM_MMA + 1, "a list per mathematics of operands");

static GpuProduct product_on(const Module *m, const Fn *k) {
  bool half = elem_is_half(product_of(k, 8).compute);
  bool tf32 = !strcmp(plan_precision(m), "tf32");
  return gpu_product_of(m, k, half ? GEMM_MMA : tf32 ? GEMM_TF32 : GEMM_FMA, m->target.shared);
}

/* Bytes of operands for a multiprocessor and cycle. Very long rows along k are in separate memory
   pages: pieces shorter than a cache line then cost as much as whole ones (measured for k = 50304:
   22 % of the product; not seen at 3072). */
static double loaded(const GemmPlan *plan) {
  bool apart = (plan->a.along_k && plan->a.elem * plan->k > FAR_ROWS) ||
               (plan->b.along_k && plan->b.elem * plan->k > FAR_ROWS);
  return apart && plan->tile[GEMM_K] * plan->a.elem < LINE ? LOADED / 2 : LOADED;
}

/* CTAs that share a multiprocessor, of `each` that it has in all. */
static int64_t sharing(const GpuProduct *product, const GemmPlan *plan, int64_t each) {
  int64_t most = gpu_resident(product->m, plan->shared[0], plan->threads[0], gemm_registers(plan));
  return each < most ? each : most;
}

/* The part of a shape's rate that is left where few warps work on a multiprocessor. */
static double filled(int64_t warps) {
  return warps >= ENOUGH_WARPS ? 1 : 2 * warps >= ENOUGH_WARPS ? FEW_WARPS : FEW_WARPS * FEW_WARPS;
}

/* The number of a CTA; sums that it leaves in the second-level cache, and those that it adds. */
static double share_cycles(const GemmPlan *plan) {
  if (!gemm_is_shared(plan)) return 0;
  int64_t each = ceil_div(gemm_tiles(plan) * plan->tiles_k, plan->chunks[0]),
          pieces = 1 + ceil_div(plan->tiles_k, each);
  return TAKE_SHARE + (double)(pieces * plan->tile[GEMM_M] * plan->tile[GEMM_N] * 4) / LOADED;
}

/* The second phase, and what it adds up: sums of ranges of k, or of columns. */
static double reduce_cycles(const GemmPlan *plan) {
  int64_t bytes = gemm_is_split(plan) ? plan->workspace : lines_workspace(&plan->lines);
  return plan->phases == 1 ? 0 : 4000 + (double)bytes * 2 / 1000;
}

/* Cycles that an element takes longer in the epilogue, if each vector of a ragged tile is stored
   after a branch: loads of other operands then wait for stores before them. */
static double branches(const GpuProduct *product, const GemmPlan *plan) {
  bool ragged = plan->m % plan->tile[GEMM_M] || plan->n % plan->tile[GEMM_N];
  return !ragged ? 0 : product->k->args.n > 2 && plan->phases == 1 ? 0.24 : 0.02;
}

/* By wgmma: one CTA per multiprocessor takes tile after tile; only the epilogue is not hidden. */
static double cycles_of_groups(const GpuProduct *product, const GemmPlan *plan,
                               const ProductShape *shape) {
  int64_t each = ceil_div(gemm_tiles(plan), gpu_ctas(product->m, product->k)),
          steps = each * plan->range;
  if (gemm_is_shared(plan)) steps = ceil_div(gemm_tiles(plan) * plan->tiles_k, plan->chunks[0]);
  double area = (double)(shape->m * shape->n), element = 0.12 + branches(product, plan);
  if (plan->tile[GEMM_BY] == BY_BULK_ALL) element = LEAVES + COMES * product_others(&product->p);
  double out = 500 + area * element;
  return (double)(steps * plan->tile[GEMM_K]) * area / shape->rate + (double)each * out +
         reduce_cycles(plan) + share_cycles(plan);
}

/* Cycles of the whole product on all multiprocessors. */
static double cycles_of(const GpuProduct *product, const GemmPlan *plan,
                        const ProductShape *shape) {
  if (plan->math == GEMM_WGMMA) return cycles_of_groups(product, plan, shape);
  int64_t each = ceil_div(plan->chunks[0], gpu_ctas(product->m, product->k)),
          at_once = sharing(product, plan, each);
  double steps = (double)(plan->range * plan->tile[GEMM_K]), area = (double)(shape->m * shape->n);
  double bytes = (double)(shape->m * plan->a.elem + shape->n * plan->b.elem);
  double multiply = area * steps / shape->rate / filled(at_once * plan->threads[0] / 32);
  double load = bytes * steps / loaded(plan), ends = 1500 + area * 0.3;
  return (double)each * (multiply > load ? multiply : load) +
         (double)ceil_div(each, at_once) * ends + reduce_cycles(plan);
}

static void fill(int64_t *tile, const ProductShape *shape, int by) {
  tile[GEMM_M] = shape->m, tile[GEMM_N] = shape->n, tile[GEMM_K] = shape->k;
  tile[GEMM_WARP_M] = shape->warp_m, tile[GEMM_WARP_N] = shape->warp_n,
  tile[GEMM_STAGES] = shape->stages, tile[GEMM_BY] = by;
}

/* None gets less than some elements of k. */
static bool worth_it(const GemmPlan *plan) {
  return plan->splits == 1 || plan->range * plan->tile[GEMM_K] >= 256;
}

/* One more each, so that they fill whole waves; twice as many from 16 on. */
static int64_t more_splits(int64_t n) { return n < 16 ? n + 1 : 2 * n; }

/* Cycles of the multiply-adds alone on all multiprocessors: no cut of the shape takes fewer. */
static double least_cycles(const GpuProduct *product, const ProductShape *shape) {
  static const double ROUNDING = 0.999;
  int64_t tile[GEMM_COUNT] = {[GEMM_SPLITS] = 1};
  fill(tile, shape, BY_THREADS);
  GemmPlan plan = gpu_product_plan(product, tile);
  double sums = (double)plan.batches * (double)plan.m * (double)plan.n;
  return ROUNDING * sums * (double)plan.k / shape->rate / (double)gpu_ctas(product->m, product->k);
}

/* A cut with fewer than `least` cycles (0: none yet), and its cycles. */
static double search_list(const GpuProduct *product, Shapes list, int by, double least, Cut *best) {
  Cut cut = {{0}};
  for (int i = 0; i < list.n; i++) {
    const ProductShape *shape = &list.at[i];
    fill(cut.at, shape, by);
    double multiply = least_cycles(product, shape);
    for (cut.at[GEMM_SPLITS] = 1; cut.at[GEMM_SPLITS] <= 64;
         cut.at[GEMM_SPLITS] = more_splits(cut.at[GEMM_SPLITS])) {
      if (!gpu_product_fits(product, cut.at)) continue;
      GemmPlan plan = gpu_product_plan(product, cut.at);
      if (!worth_it(&plan)) break;
      if (least && multiply + reduce_cycles(&plan) >= least) break; /* more splits reduce more */
      double t = cycles_of(product, &plan, shape);
      if (least && t >= least) continue;
      least = t, *best = cut;
    }
  }
  return least;
}

/* A tile of wgmma of n columns, with as many stages as its CTA has room for. A tile of k takes
   GROUP_CYCLES + n * GROUP_COLUMN cycles: a line through the times of both widths of GPT-2 124M's
   products on an H100, 128 and 256. Nobody has measured the widths between them, nor codes of 8
   bits, of which a tile of k has twice as many. */
static ProductShape group_shape(const GpuProduct *product, int64_t n, int by) {
  int64_t k = gemm_depth(&product->p);
  ProductShape shape = {WGMMA_GROUPS * WGMMA_ROWS, n, k, WGMMA_ROWS, n, WGMMA_STAGES, 0};
  shape.rate = (double)(shape.m * n * shape.k) / (GROUP_CYCLES + GROUP_COLUMN * (double)n);
  for (; shape.stages > 3; shape.stages--) {
    Cut cut = {.at = {[GEMM_SPLITS] = 1}};
    fill(cut.at, &shape, by);
    if (gpu_product_plan(product, cut.at).shared[0] <= product->limit) break;
  }
  return shape;
}

/* One width, in equal shares. */
static double search_shares(const GpuProduct *product, const ProductShape *shape, int by,
                            double least, Cut *best) {
  Cut cut = {.at = {[GEMM_SPLITS] = GEMM_SHARES}};
  fill(cut.at, shape, by);
  while (cut.at[GEMM_STAGES] > 3 && !gpu_product_fits(product, cut.at)) cut.at[GEMM_STAGES]--;
  if (!gpu_product_fits(product, cut.at)) return least;
  GemmPlan plan = gpu_product_plan(product, cut.at);
  double t = cycles_of_groups(product, &plan, shape);
  if (least && t >= least) return least;
  *best = cut;
  return t;
}

static bool worth_other(double other, double known) {
  return other && (!known || other <= WORTH_OTHERS * known);
}

/* Cycles and the cut of the best width. The widest is known from measurements, so others, and equal
   shares, must save something by the model. */
static double search_groups(const GpuProduct *product, int by, Cut *best) {
  double least = 0, narrower = 0, shared = 0;
  Cut cut, in_shares;
  int64_t step = product->m->target.widths ? WGMMA_STEP : WGMMA_MOST - WGMMA_LEAST;
  for (int64_t n = WGMMA_MOST; n >= WGMMA_LEAST; n -= step) {
    ProductShape shape = group_shape(product, n, by);
    Shapes one = {&shape, 1};
    if (n == WGMMA_MOST) least = search_list(product, one, by, 0, best);
    else narrower = search_list(product, one, by, narrower, &cut);
    if (product->m->target.shares) shared = search_shares(product, &shape, by, shared, &in_shares);
  }
  if (worth_other(narrower, least)) least = narrower, *best = cut;
  if (worth_other(shared, least)) least = shared, *best = in_shares;
  return least;
}

/* Operands come by bulk copies; results leave so where they can. Two elements for each sum need so
   much room that only narrow tiles have it: then both ways are tried. */
static double search_bulk(const GpuProduct *product, Cut *best) {
  const TargetFacts *facts = &product->m->target;
  double leaves = 0, least = 0;
  Cut cut;
  if (facts->bulk_results && (!product->p.elements || facts->bulk_elements))
    leaves = search_groups(product, BY_BULK_ALL, best);
  if (!leaves || product->p.elements > 1) least = search_groups(product, BY_BULK, &cut);
  if (!least || (leaves && leaves <= least)) return leaves;
  *best = cut;
  return least;
}

/* The best cut and its cycles. A kernel that leaves multiprocessors to messages is one by
   warpgroups: others leave them anyway. */
static double search(const GpuProduct *product, Cut *best) {
  Cut by_groups;
  bool stays = attr_get(&product->k->attrs, ATTR_spare) != NULL;
  double groups = 0,
         least = stays ? 0 : search_list(product, shapes[product->math], BY_THREADS, 0, best);
  if (product->math == GEMM_MMA && product->m->target.bulk)
    groups = search_bulk(product, &by_groups);
  if (product->math == GEMM_MMA && !groups) /* also of operands that have no tensor map */
    groups = search_groups(product, BY_THREADS, &by_groups);
  if (!groups || (least && groups >= least)) return least;
  *best = by_groups;
  return groups;
}

Cut gpu_contract_rule(const Module *m, const Fn *k) {
  GpuProduct product = product_on(m, k);
  Cut best = {{0}};
  if (!search(&product, &best)) bug("kernel %s: no tile fits", k->name);
  return best;
}

/* Not one with a larger workspace: every device would have to keep it. */
bool gpu_contract_larger(const Module *m, const Fn *k, int64_t limit, Cut *best) {
  GpuProduct product = product_on(m, k);
  double without = search(&product, best);
  int64_t workspace = gpu_product_plan(&product, best->at).workspace;
  product.limit = limit;
  return search(&product, best) < 0.97 * without &&
         gpu_product_plan(&product, best->at).workspace <= workspace;
}

void gpu_contract_apply(Module *m, Fn *k, const Cut *cut) {
  GpuProduct product = product_on(m, k);
  must(cut->at[GEMM_M] > 0 && cut->at[GEMM_N] > 0 && cut->at[GEMM_K] > 0 && cut->at[GEMM_BY] > 0,
       "kernel %s: a cut without a tile", k->name);
  GemmPlan plan = gpu_product_plan(&product, cut->at);
  gpu_set(m, k, gemm_variant[plan.math], GEMM_COUNT, plan.tile, 0, NULL);
}

void gpu_tune_contract(Module *m, Fn *k) {
  Cut cut = gpu_contract_rule(m, k);
  gpu_contract_apply(m, k, &cut);
}

bool gpu_contract_fits(const Module *m, const Fn *k, const Cut *cut) {
  GpuProduct product = product_on(m, k);
  return gpu_product_fits(&product, cut->at);
}
