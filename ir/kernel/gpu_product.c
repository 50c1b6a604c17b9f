/* Which cuts of a dot a GPU can run, and the parts that all of them share; see gpu_plan.h.

   A cut fits only where an estimate of its registers says so (gemm_registers.c); the assembler,
   where it is installed, confirms (codegen/assemble.h) and never decides: the same model gives the
   same kernels with and without it. */
#include "gpu_plan.h"
#include "ir/codes.h"
#include "ir/support/num.h"

enum { PIECE = 16, MOST_WARPS = 16, MOST_STAGES = 8, MOST_SPLITS = 1024, MOST_SHARED = 1 << 30 };
/* ---- what no cut chooses ---- */

/* Whole pieces where alignment is known; else along what is contiguous. */
static int64_t copy_of(const Fn *k, const Product *product, GemmMath math, bool is_b) {
  Elem memory = is_b ? product->elem_b : product->elem_a,
       shared = math == GEMM_MMA ? product->compute : ELEM_f32;
  const ProductDims *mn = is_b ? &product->n : &product->m;
  bool wide = memory == ELEM_f32 && memory != shared;
  if ((memory == shared || wide || product->codes) &&
      gpu_aligned(k, is_b ? product->arg_b : product->arg_a)) {
    if (gemm_pieces(product, is_b, true)) return wide ? COPY_WIDE_K : COPY_ASYNC_K;
    if (gemm_pieces(product, is_b, false)) return wide ? COPY_WIDE_MN : COPY_ASYNC_MN;
  }
  const ProductDim *k1 = product->k.count ? &product->k.dim[product->k.count - 1] : NULL;
  const ProductDim *mn1 = mn->count ? &mn->dim[mn->count - 1] : NULL;
  if (!k1) return COPY_SINGLE_MN;
  if (!mn1) return COPY_SINGLE_K;
  return (is_b ? mn1->b : mn1->a) < (is_b ? k1->b : k1->a) ? COPY_SINGLE_MN : COPY_SINGLE_K;
}

/* Vectors over the inner columns, where nothing that follows the product takes them apart. */
static int64_t lanes_of(const Module *m, const Fn *k, const Product *product) {
  if (!product->n.count) return 1;
  for (OpId i = product->dot; i < k->ops.n; i++)
    if (k->ops.at[i].code == OP_rename) return 1;
  const ProductDim *inner = &product->n.dim[product->n.count - 1];
  Nest nest = {.n = 1, .dim = {{inner->dim, inner->size}}};
  ValueId root[MAX_RESULTS];
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId v = k->results.at[i];
    root[i] = v == product->columns ? value_def(k, v)->in[0] : v;
  }
  return gpu_lanes(m, k, &nest, k->results.n, root);
}

GpuProduct gpu_product_of(const Module *m, const Fn *k, GemmMath math, int64_t limit) {
  GpuProduct product = {.m = m, .k = k, .p = product_of(k, 8), .math = math, .limit = limit};
  product.fixed[GEMM_LANES] = lanes_of(m, k, &product.p);
  product.fixed[GEMM_COPY_A] = copy_of(k, &product.p, math, false);
  product.fixed[GEMM_COPY_B] = copy_of(k, &product.p, math, true);
  return product;
}

GemmPlan gpu_product_plan(const GpuProduct *product, const int64_t *cut) {
  int64_t tile[GEMM_COUNT];
  memcpy(tile, product->fixed, sizeof tile);
  memcpy(tile, cut, sizeof *tile * (GEMM_BY + 1));
  bool groups = product->math == GEMM_MMA && gemm_of_warpgroups(cut);
  return gemm_plan(&product->p, groups ? GEMM_WGMMA : product->math, tile,
                   gpu_ctas(product->m, product->k));
}

/* ---- what can be ---- */

static bool power_within(int64_t n, int64_t low, int64_t high) {
  return n >= low && n <= high && !(n & (n - 1));
}

static bool tile_fits(const GpuProduct *product, const int64_t *t) {
  bool fma = product->math == GEMM_FMA;
  int64_t step = product->math == GEMM_MMA ? 16 : fma ? 4 : 8; /* of k at a time */
  if (!power_within(t[GEMM_M], 16, 256) || !power_within(t[GEMM_N], 16, 256)) return false;
  if (!power_within(t[GEMM_K], step, 128)) return false;
  if (!power_within(t[GEMM_WARP_M], 16, min_i64(fma ? 64 : 128, t[GEMM_M]))) return false;
  if (!power_within(t[GEMM_WARP_N], fma ? 32 : 16, min_i64(128, t[GEMM_N]))) return false;
  if (t[GEMM_SPLITS] < 1 || t[GEMM_SPLITS] > MOST_SPLITS || t[GEMM_BY] != BY_THREADS) return false;
  return t[GEMM_STAGES] >= 2 && t[GEMM_STAGES] <= MOST_STAGES;
}

/* A row of a tile is at most one piece for each thread. */
static bool side_fits(const GemmSide *s, int64_t threads) {
  return s->columns * s->elem / PIECE <= threads;
}

static bool split_fits(const GemmPlan *plan) { /* none has no work */
  return plan->splits == 1 || plan->range * (plan->splits - 1) < plan->tiles_k;
}

/* Tiles of k are numbered through all tiles of the result. Where tiles have no filled place, shares
   would not be equal. Codes of 8 bits have whole tiles. */
static bool shares_fit(const GpuProduct *product, const GemmPlan *plan) {
  if (plan->seek_ctas || product->p.codes) return false;
  return gemm_tiles(plan) * plan->tiles_k < MOST_SHARED;
}

/* Sums of blocks of codes are added to others in registers, which leaves no room for wider tiles. A
   thread reads the scales of two columns at once, of runs that follow each other. */
static bool codes_fit(const GpuProduct *product, const int64_t *cut) {
  const Product *of = &product->p;
  Codes codes;
  int64_t stride, n = of->n.outer * of->n.inner;
  if (cut[GEMM_N] != WGMMA_LEAST) return false;
  if (!kernel_codes(product->k, of->arg_b, &codes) || of->k.outer * of->k.inner % EIGHTS_BLOCK ||
      n % 2 || codes.count / codes.run % 2)
    return false;
  return gemm_flat(&of->n, true, cut[GEMM_N], &stride) && stride == codes.run &&
         product->fixed[GEMM_COPY_A] == COPY_ASYNC_K && product->fixed[GEMM_COPY_B] == COPY_ASYNC_K;
}

/* Nothing but element-wise ops reads what that argument gives, so that an element is read where its
   sum is. */
static bool read_in_place(const GpuProduct *product, uint32_t arg) {
  const Fn *k = product->k;
  bool *of = ARENA_ARRAY(product->m->arena, bool, k->values.n);
  of[k->args.at[arg]] = true;
  EACH_OP (k, o) {
    bool some = false;
    for (uint32_t i = 0; i < o->nin; i++) some |= of[o->in[i]];
    if (!some || o->out == product->p.columns) continue;
    if (op_family(o->code) != FAMILY_ELEM) return false;
    of[o->out] = true;
  }
  return true;
}

static bool elements_fit(const GpuProduct *product, const GemmPlan *plan) {
  const Product *of = &product->p;
  GemmMap map;
  if (of->elements > PRODUCT_ELEMENTS) return false;
  for (int i = 0; i < of->elements; i++)
    if (!gemm_panel_map(product->k, of, plan, of->element[i], &map) ||
        !read_in_place(product, of->element[i]))
      return false;
  return true;
}

/* All results leave by bulk copies, straight from the places of the sums. */
static bool results_fit(const GpuProduct *product, const GemmPlan *plan) {
  const Fn *k = product->k;
  GemmMap map;
  uint32_t results = (uint32_t)product->p.results;
  if (gemm_is_split(plan) || product->fixed[GEMM_LANES] < 2) return false;
  if (results > PRODUCT_RESULTS || !elements_fit(product, plan)) return false;
  for (uint32_t i = 0; i < results; i++)
    if (!gemm_panel_map(k, &product->p, plan, k->args.n + i, &map)) return false;
  return results == k->results.n || k->results.at[results] == product->p.columns;
}

/* Both operands are copied in whole pieces that are as far apart as in one dim. */
static bool warpgroups_fit(const GpuProduct *product, const int64_t *cut) {
  int64_t stride;
  if (!product->m->target.wgmma || product->math != GEMM_MMA) return false;
  if (cut[GEMM_M] != WGMMA_GROUPS * WGMMA_ROWS) return false;
  if (cut[GEMM_K] != gemm_depth(&product->p)) return false;
  if (product->p.codes && !codes_fit(product, cut)) return false;
  if (cut[GEMM_N] < WGMMA_LEAST || cut[GEMM_N] % WGMMA_STEP) return false;
  if (cut[GEMM_N] > WGMMA_NARROW && cut[GEMM_N] != WGMMA_MOST) return false;
  if (cut[GEMM_STAGES] < 3 || cut[GEMM_STAGES] > WGMMA_STAGES) return false;
  bool shared = cut[GEMM_SPLITS] == GEMM_SHARES;
  if (!shared && (cut[GEMM_SPLITS] < 1 || cut[GEMM_SPLITS] > MOST_SPLITS)) return false;
  if (cut[GEMM_BY] < BY_THREADS || cut[GEMM_BY] > BY_BULK_ALL) return false;
  for (int side = 0; side < 2; side++) {
    int64_t copy = product->fixed[side ? GEMM_COPY_B : GEMM_COPY_A];
    if (copy != COPY_ASYNC_K && copy != COPY_ASYNC_MN) return false;
    if (!gemm_flat(side ? &product->p.n : &product->p.m, side, cut[side ? GEMM_N : GEMM_M],
                   &stride) ||
        !gemm_flat(&product->p.k, side, gemm_depth(&product->p), &stride))
      return false;
  }
  GemmPlan plan = gpu_product_plan(product, cut);
  GemmMap map;
  for (int side = 0; cut[GEMM_BY] != BY_THREADS && side < OPERAND_MAPS; side++)
    if (!gemm_map(&product->p, &plan, side, &map)) return false;
  if (cut[GEMM_BY] == BY_BULK_ALL && !results_fit(product, &plan)) return false;
  return plan.shared[0] <= product->limit &&
         (shared ? shares_fit(product, &plan) : split_fits(&plan));
}

bool gpu_product_fits(const GpuProduct *product, const int64_t *cut) {
  bool split = cut[GEMM_SPLITS] > 1 && cut[GEMM_SPLITS] != GEMM_SHARES;
  if (product->p.columns != NO_VALUE && split) return false; /* rows leave once */
  if (gemm_of_warpgroups(cut)) return warpgroups_fit(product, cut);
  if (product->p.codes) return false; /* no other instructions multiply them */
  if (!tile_fits(product, cut)) return false;
  GemmPlan plan = gpu_product_plan(product, cut);
  int64_t threads = plan.threads[0];
  if (threads > 32 * MOST_WARPS || plan.shared[0] > product->limit) return false;
  if (!side_fits(&plan.a, threads) || !side_fits(&plan.b, threads)) return false;
  if (cut[GEMM_M] * cut[GEMM_N] % (product->fixed[GEMM_LANES] * threads)) return false;
  return split_fits(&plan) && gemm_registers(&plan) <= gemm_registers_most(threads);
}
