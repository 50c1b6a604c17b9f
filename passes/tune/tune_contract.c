/* Tuning of family contract: register tile, packing, blocks of k, chunks. ir/kernel/product.h
   explains the numbers.

   Register tile: rows * vectors accumulators, one register per vector of b and one for the spread
   element of a must fit the register file, with a few to spare. Blocks of k keep a panel of b and
   the rows of a that are multiplied with it in the second-level cache. Chunks: columns first,
   because rows share a packed panel; rows are cut if a block of a would not stay in the cache, or
   if columns do not give enough chunks. Other cuts that a tuner tries: vary_contract.c. */
#include "gpu.h"
#include "tune.h"
#include "ir/cost/count.h"
#include "ir/support/num.h"

/* Tall tiles if k is short: they need fewer lines of the second-level cache, which then has time
   for the result. Not if k is cut (measured at 2048 steps: 80 % of the peak, 83 with wide ones),
   nor if 14 rows of a are read at once: their distance may be a multiple of the first level's set
   stride. */
static bool tall_tiles(const Product *product, const KernelLimits *limits, const int64_t *tile) {
  enum { COLUMNS = 12, STEPS = 768 };
  int64_t vectors = product->n.outer * ceil_div(product->n.inner, limits->lanes);
  return limits->registers >= 32 && tile[TILE_DEPTH] == 1 && !product_a_in_order(product) &&
         vectors >= COLUMNS && product->k.outer * product->k.inner <= STEPS;
}

/* Two by two registers, or fewer where there are no more rows or columns. */
static void matrix_tile(const Product *product, const KernelLimits *limits, int64_t *tile) {
  int64_t vectors = product->n.outer * ceil_div(product->n.inner, limits->lanes);
  tile[TILE_VECTORS] = min_i64(vectors, 2);
  tile[TILE_ROWS] = product->m.inner <= AMX_ROWS ? AMX_ROWS : 2 * AMX_ROWS;
}

static void choose_tile(const Product *product, const KernelLimits *limits, int64_t *tile) {
  int64_t vectors = product->n.outer * ceil_div(product->n.inner, limits->lanes);
  if (tile[TILE_DEPTH] == DEPTH_AMX) {
    matrix_tile(product, limits, tile);
    return;
  }
  bool tall = tall_tiles(product, limits, tile);
  int64_t widest = limits->registers >= 32 && !tall ? 3 : 2;
  int64_t width = ceil_div(vectors, ceil_div(vectors, widest));
  static const int64_t rows_wide[] = {0, 16, 12, 8}, rows_narrow[] = {0, 12, 6, 0};
  tile[TILE_VECTORS] = width;
  tile[TILE_ROWS] = limits->registers >= 32 ? rows_wide[width] : rows_narrow[width];
  if (tall && width == 2) tile[TILE_ROWS] = 14;
}

enum { K_BLOCK = 768, K_MATRIX = 24 }; /* steps */

static bool sums_places(const Product *product) {
  return product->place && product->k.count &&
         product->k.dim[product->k.count - 1].dim == product->place;
}

static void choose_k(const Product *product, int64_t *tile) {
  bool matrix = tile[TILE_DEPTH] == DEPTH_AMX;
  int64_t block = matrix ? K_MATRIX : K_BLOCK;
  int64_t steps = ceil_div(product->k.inner, tile[TILE_DEPTH]), k = product->k.outer * steps;
  tile[TILE_K_OUTER] = tile[TILE_K_INNER] = 1;
  int64_t most = matrix ? block * 3 / 2 : block * 4 / 3; /* two panels of vectors are kept */
  if (sums_places(product) && !matrix) { /* a block ends where the places of a sequence are empty */
    tile[TILE_K_OUTER] = product->k.outer;
    if (product->k.outer > 1) tile[TILE_K_INNER] = ceil_div(steps, most);
    return;
  }
  if (k <= most) return;
  if (steps <= block * 3 / 2 && product->k.outer > 1)
    tile[TILE_K_OUTER] = min_i64(product->k.outer, ceil_div(k, block));
  else tile[TILE_K_OUTER] = product->k.outer, tile[TILE_K_INNER] = ceil_div(steps, block);
}

/* Pairs along k, where the machine has them and k is no list of single elements. */
static bool has_pairs(const Product *product, const KernelLimits *limits) {
  return limits->bf16_dot_fast && product->compute == ELEM_bf16 && product->k.inner > 1;
}

/* AMX tiles, where a good part of them has something to do. */
static bool has_matrix(const Product *product, const KernelLimits *limits) {
  enum { LEAST = 8 };
  return limits->amx && product->compute == ELEM_bf16 && product->m.inner >= LEAST &&
         product->n.inner >= LEAST && product->k.inner >= LEAST;
}

static int64_t choose_depth(const Product *product, const KernelLimits *limits) {
  return has_matrix(product, limits) ? DEPTH_AMX : has_pairs(product, limits) ? DEPTH_PAIRS : 1;
}

/* Measured costs. Cycles per element of an operand: to read it in place, from whichever cache holds
   it; to copy it into scratch by vectors (of a in short pieces from distant lines), by transposing
   squares, one by one; to copy b for AMX, whose memory is faster than its products; with 16
   registers to copy squares of rows of a that evict each other, and, not concurrent with products,
   once for all chunks. Cycles per multiply-add of a vector and of an AMX tile row. Cycles to hand
   out a chunk. */
static const double IN_PLACE = 0.1, BY_VECTORS_B = 0.35, BY_VECTORS_A = 1, BY_SQUARES = 0.45,
                    BY_ELEMENTS = 2, AMX_B = 1.3, MULTIPLY = 1.1, MULTIPLY_AMX = 2.5,
                    FAR_ROWS = 1.3, FAR_ROWS_ONCE = 2.5, HAND_OUT = 4000;
/* Factors of the time: of products whose rows of a evict each other, or are read in place without
   evicting; of a copy from memory. HELD_UP: chunks by which a worker that is held up is late. */
static const double EVICTED = 1.04, ROWS_IN_PLACE = 1.03, FROM_MEMORY = 3, HELD_UP = 0.1;

/* Cycles per element of copying or reading an operand. */
static double copy_cost(const ProductDims *across, const ProductDims *dims, bool of_b,
                        int64_t packed) {
  const ProductDim *x = across->count ? &across->dim[across->count - 1] : NULL;
  const ProductDim *y = dims->count ? &dims->dim[dims->count - 1] : NULL;
  if (!packed) return IN_PLACE;
  if ((packed & ~PACK_SHARED) == PACK_ROWS) return BY_SQUARES;
  if (!x || (of_b ? x->b : x->a) == 1) return of_b ? BY_VECTORS_B : BY_VECTORS_A;
  return y && (of_b ? y->b : y->a) == 1 ? BY_SQUARES : BY_ELEMENTS;
}

/* AVX2: half the lanes, so an element that is copied is multiplied in twice the cycles, and half
   the second-level cache, so chunks are smaller and need the same copy more often. */
static bool few_registers(const KernelLimits *limits) { return limits->registers < 32; }

/* The factor by which multiplying costs more if rows of a are read in place, one after the other
   in memory. Measured with 16 registers (3072 steps: 91 % of the peak and 97 from a copy on an EPYC
   of family 25, 95 and 94 on one of family 26; 768: 92 and 94 on the former, and 80 and 88 if
   neighbours use the caches); with 32 reading in place is as good as a copy. */
static double in_place_factor(const Product *product, const KernelLimits *limits,
                              const int64_t *tile) {
  if (!few_registers(limits) || tile[TILE_PACK_A] || !product_a_in_order(product) ||
      !product->m.count)
    return 1;
  return product_rows_evict(product, tile[TILE_ROWS]) ? EVICTED : ROWS_IN_PLACE;
}

/* Whether squares are copied from rows of a that evict each other. */
static bool far_rows(const Product *product, const KernelLimits *limits, const int64_t *tile) {
  return few_registers(limits) && (tile[TILE_PACK_A] & ~PACK_SHARED) == PACK_TILES &&
         product_rows_evict(product, tile[TILE_ROWS]);
}

typedef struct ContractCost { /* of one product of the batch, in cycles */
  const Product *product;
  const ProductPlan *plan;
  double filled, vector; /* share of the rows that have something to do; columns of a vector */
  double k, per_multiply, per_a, per_b, start;
  double once; /* before all chunks, by all workers together */
} ContractCost;

static ContractCost cost_of(const Product *product, const ProductPlan *plan,
                            const KernelLimits *limits, const int64_t *tile) {
  ContractCost cost = {product, plan, .filled = 1, .vector = limits->lanes};
  if (!sums_places(product)) cost.filled = limits->filled;
  cost.k = (double)(product->k.outer * plan->steps * plan->words);
  if (sums_places(product)) cost.k *= limits->filled;
  cost.per_multiply = MULTIPLY / (2.0 * limits->lanes); /* two vector units */
  if (tile[TILE_DEPTH] == DEPTH_AMX) cost.per_multiply = MULTIPLY_AMX / (AMX_ROWS * AMX_ROWS);
  cost.per_multiply *= in_place_factor(product, limits, tile);
  cost.per_a = copy_cost(&product->m, &product->k, false, tile[TILE_PACK_A]);
  if (far_rows(product, limits, tile)) cost.per_a = FAR_ROWS;
  if (plan->shared) {
    if (far_rows(product, limits, tile)) cost.per_a = FAR_ROWS_ONCE;
    cost.once = cost.per_a * cost.k * (double)(product->m.outer * product->m.inner) +
                HAND_OUT * (double)limits->workers;
    cost.per_a = copy_cost(&product->m, &product->k, false, PACK_NOT);
  }
  if ((!tile[TILE_PACK_A] || plan->shared) &&
      cost.k * (double)(product->m.outer * product->m.inner) > (double)limits->l2)
    cost.per_a *= FROM_MEMORY;
  cost.per_b = copy_cost(&product->n, &product->k, true, tile[TILE_PACK_B]);
  if (tile[TILE_DEPTH] == DEPTH_AMX) cost.per_b = AMX_B;
  if (plan->shared_b) {
    if (few_registers(limits))
      cost.per_b = 1; /* not concurrent with products, and read again from memory */
    cost.once += cost.per_b * cost.k * (double)(product->n.outer * product->n.inner) +
                 HAND_OUT * (double)limits->workers;
    cost.per_b = copy_cost(&product->n, &product->k, true, PACK_NOT);
  }
  double panel = (double)(plan->k_outer_max * plan->k_inner_max * plan->words * tile[TILE_VECTORS] *
                          limits->lanes);
  cost.start = HAND_OUT + panel / 2; /* the first panel comes from memory without warning */
  return cost;
}

static int64_t before(const ContractCost *cost, bool rows, int64_t i) {
  return rows ? product_rows_before(cost->product, cost->plan, i)
              : product_vectors_before(cost->plan, i);
}

/* Rows, or vectors, of the largest block, if all tiles, or panels, are in this number of blocks:
   the first one, or the first one that has one more. Larger ones come first. */
static double largest(const ContractCost *cost, bool rows, int64_t blocks) {
  int64_t n = rows ? cost->plan->tiles : cost->plan->panels, most = 0, from = 0, to = 0;
  for (int64_t i = 0; i < blocks && to - from < ceil_div(n, blocks); i++) {
    from = share_begin(n, blocks, i), to = share_begin(n, blocks, i + 1);
    most = max_i64(most, before(cost, rows, to) - before(cost, rows, from));
  }
  return (double)most * (rows ? cost->filled : cost->vector);
}

/* The largest of this number of blocks. */
static double chunk_time(const ContractCost *cost, int64_t rows, int64_t columns) {
  double m = largest(cost, true, rows), n = largest(cost, false, columns);
  return cost->start + cost->k * (m * n * cost->per_multiply + m * cost->per_a + n * cost->per_b);
}

/* Time of all chunks if r blocks of rows and c of columns are dealt out to the workers, and one of
 * them is held up. */
static double makespan(const ContractCost *cost, const KernelLimits *limits, int64_t batches,
                       int64_t rows, int64_t columns) {
  double chunk = chunk_time(cost, rows, columns);
  return cost->once * (double)batches / (double)limits->workers +
         chunk * ((double)ceil_div(batches * rows * columns, limits->workers) + HELD_UP);
}

/* At least `rows` blocks of rows. Returns the time. */
static double cut(const ContractCost *cost, const ProductPlan *plan, const KernelLimits *limits,
                  int64_t rows, int64_t *tile) {
  must(rows >= 1 && rows <= plan->tiles && limits->workers >= 1,
       "%lld blocks of rows of %lld tiles", (long long)rows, (long long)plan->tiles);
  double least = 0;
  int64_t most = 16 * limits->workers, batches = tile[TILE_BATCH];
  tile[TILE_ROW] = 0;
  for (int64_t i = rows; i <= min_i64(plan->tiles, rows + most); i++)
    for (int64_t j = 1; j <= min_i64(plan->panels, most); j++) {
      double t = makespan(cost, limits, batches, i, j);
      if (tile[TILE_ROW] && t >= least) continue;
      tile[TILE_ROW] = i, tile[TILE_COLUMN] = j, least = t;
    }
  return least;
}

/* Batches go together in chunks while there are enough of them; otherwise each is cut by itself.
   Returns the time of it all. */
static double choose_chunks(const Product *product, const KernelLimits *limits, int64_t *tile) {
  int64_t batches = product->batch.outer * product->batch.inner;
  tile[TILE_BATCH] = batches, tile[TILE_ROW] = tile[TILE_COLUMN] = 1;
  ProductPlan plan = product_plan(product, limits->lanes, tile);
  ContractCost cost = cost_of(product, &plan, limits, tile);
  double whole = chunk_time(&cost, 1, 1);
  double factors = (double)(product->m.outer * product->m.inner * plan.k_outer_max *
                            plan.k_inner_max * plan.words);
  int64_t a_bytes = (int64_t)(factors * limits->filled) * 4 + 1;
  bool rows = product_a_in_order(product), copied = rows && tile[TILE_PACK_A] == PACK_TILES;
  int64_t most = limits->l2;
  if (copied) most = most * 3 / 4; /* panels of b need some of it */
  if (!rows) most /= 2;            /* columns are not fetched by the machine */
  double least = cut(&cost, &plan, limits, min_i64(plan.tiles, ceil_div(a_bytes, most)), tile);
  if (tile[TILE_ROW] * tile[TILE_COLUMN] > 1 || batches <= 8 * limits->workers) return least;
  double each = max_i64(8 * limits->workers, 1),
         enough = whole * (double)batches / 60000; /* some 20 microseconds each */
  tile[TILE_BATCH] = enough < each ? max_i64((int64_t)enough, 1) : (int64_t)each;
  return least;
}

static KernelLimits limits_of(const Module *m, const Fn *k) {
  KernelLimits limits = machine_of(m);
  Product product = product_of(k, limits.lanes);
  if (product.place) limits.filled = ir_filled_share(m, k, &k->ops.at[product.dot]);
  return limits;
}

Cut contract_chunked(const Module *m, const Fn *k, const Cut *from) {
  KernelLimits limits = limits_of(m, k);
  Product product = product_of(k, limits.lanes);
  Cut cut = *from;
  choose_chunks(&product, &limits, cut.at);
  return cut;
}

/* Makes the copy that tile entry `which` speaks of once for all chunks where that takes less time
   and is not too large. Returns the time. */
static double share(const Product *product, const KernelLimits *limits, int which, double own,
                    int64_t *tile) {
  int64_t most = few_registers(limits) ? 56 : 16; /* second-level caches: the smaller, the more */
  int64_t shared[TILE_COUNT];
  if (!tile[which]) return own;
  memcpy(shared, tile, sizeof shared);
  shared[which] |= PACK_SHARED;
  if (product_plan(product, limits->lanes, shared).w_bytes > most * limits->l2) return own;
  double once = choose_chunks(product, limits, shared);
  if (once >= own) return own;
  memcpy(tile, shared, sizeof shared);
  return once;
}

/* Copies tiles of a if reading it in place takes longer. Returns the time. */
static double copy_tiles(const Product *product, const KernelLimits *limits, double own,
                         int64_t *tile) {
  int64_t copied[TILE_COUNT];
  if (in_place_factor(product, limits, tile) == 1) return own;
  memcpy(copied, tile, sizeof copied);
  copied[TILE_PACK_A] = PACK_TILES;
  double t = choose_chunks(product, limits, copied);
  if (t >= own) return own;
  memcpy(tile, copied, sizeof copied);
  return t;
}

/* Panels of b for vector instructions are packed while others are computed, which costs little with
 * 32 registers; with 16 more chunks need the same ones (measured: 90 % of the peak, 93 shared; 84
 * and 92 in bf16, which is widened while it is packed). That may pay off without a shared a. */
static void choose_sharing(const Product *product, const KernelLimits *limits, int64_t *tile) {
  double own = copy_tiles(product, limits, choose_chunks(product, limits, tile), tile);
  if (product->batch.outer * product->batch.inner > 1) return;
  int64_t only_b[TILE_COUNT];
  memcpy(only_b, tile, sizeof only_b);
  bool shares_b = tile[TILE_DEPTH] == DEPTH_AMX || few_registers(limits);
  double b = few_registers(limits) ? share(product, limits, TILE_PACK_B, own, only_b) : own;
  own = share(product, limits, TILE_PACK_A, own, tile);
  if (shares_b) own = share(product, limits, TILE_PACK_B, own, tile);
  if (b < own) memcpy(tile, only_b, sizeof only_b);
}

/* Do columns of a, read in place, stay in both caches of a core? Rows whose distance has a large
   power of two in it share few of their sets. The next row tile needs half of the lines again,
   from the first level. */
static bool columns_stay(const Product *product, const KernelLimits *limits, const int64_t *tile) {
  enum { WAYS = 16, MOST = 8 }; /* data larger than MOST caches comes from memory */
  if (!product->m.count || product->m.dim[product->m.count - 1].a != 1 || product->k.outer > 1)
    return false;
  int64_t row =
      product->k.count ? product->k.dim[product->k.count - 1].a * elem_bytes(product->elem_a) : 0;
  int64_t k = ceil_div(product->k.inner, tile[TILE_K_INNER]);
  if (row % CACHE_LINE || row * product->k.inner > MOST * limits->l2) return false;
  return k <= product_room(row / CACHE_LINE, limits->l2 / CACHE_LINE / WAYS, WAYS) &&
         k <= product_room(row / CACHE_LINE, FIRST_SETS, FIRST_WAYS);
}

/* A copy pays off when it is read several times. */
static void choose_packing(const Product *product, const KernelLimits *limits, int64_t *tile) {
  int64_t rows = product->m.outer * product->m.inner, columns = product->n.outer * product->n.inner;
  bool in_order = product_a_in_order(product), often = columns > tile[TILE_VECTORS] * limits->lanes;
  bool readable = product_a_readable(product, tile) &&
                  (in_order || !often || columns_stay(product, limits, tile));
  bool matrix = tile[TILE_DEPTH] == DEPTH_AMX, by_rows = in_order || matrix;
  tile[TILE_PACK_A] = readable ? PACK_NOT : by_rows ? PACK_ROWS : PACK_TILES;
  tile[TILE_PACK_B] = matrix || !product_b_readable(product, limits->lanes) ||
                      product->sum != NO_VALUE || rows >= 4 * tile[TILE_ROWS];
}

bool contract_fits(const Module *m, const Fn *k, const Cut *cut) {
  Product product = product_of(k, machine_of(m).lanes);
  return product_fits(m, &product, cut->at);
}

Cut contract_rule(const Module *m, const Fn *k) {
  KernelLimits limits = limits_of(m, k);
  Product product = product_of(k, limits.lanes);
  Cut cut = {{0}};
  cut.at[TILE_DEPTH] = choose_depth(&product, &limits);
  choose_tile(&product, &limits, cut.at);
  choose_k(&product, cut.at);
  choose_packing(&product, &limits, cut.at);
  choose_sharing(&product, &limits, cut.at);
  return cut;
}

void contract_apply(Module *m, Fn *k, const Cut *cut) {
  must(contract_fits(m, k, cut), "kernel %s: a cut that does not fit", k->name);
  int lanes = machine_of(m).lanes;
  Product product = product_of(k, lanes);
  ProductPlan plan = product_plan(&product, lanes, cut->at);
  static const char *const variant[3][2] = {
      {"in_place", "pack_b"}, {"pack_a", "pack_ab"}, {"rows_a", "rows_ab"}};
  const char *name = variant[cut->at[TILE_PACK_A] & ~PACK_SHARED][cut->at[TILE_PACK_B] > 0];
  int64_t chunks[] = {plan.pack_chunks, plan.chunks};
  attr_set_str(m, &k->attrs, ATTR_variant, intern(m->ctx->names, name));
  attr_set_ints(m, &k->attrs, ATTR_tile, TILE_COUNT, cut->at);
  bool before = plan.pack_chunks > 0;
  attr_set_ints(m, &k->attrs, ATTR_chunks, 1 + before, chunks + !before);
  if (before) attr_set_int(m, &k->attrs, ATTR_workspace, plan.w_bytes);
  attr_set_int(m, &k->attrs, ATTR_scratch,
               plan.a_bytes + plan.b_bytes + plan.c_bytes + plan.s_bytes + plan.e_bytes);
}

static void tune_contract(Module *m, Fn *k) {
  Cut cut = contract_rule(m, k);
  contract_apply(m, k, &cut);
}

static const Variants variants = {"contract",    "gemm",         CONTRACT_COUNT, contract_rule,
                                  contract_fits, contract_apply, contract_vary,  contract_shape};
static const Variants gpu_variants = {"contract",         "gemm",
                                      GPU_CONTRACT_COUNT, gpu_contract_rule,
                                      gpu_contract_fits,  gpu_contract_apply,
                                      gpu_contract_vary,  contract_shape};

const FamilyRules contract_rules = {.cpu = tune_contract,
                                    .gpu = gpu_tune_contract,
                                    .cpu_variants = &variants,
                                    .gpu_variants = &gpu_variants,
                                    .larger = gpu_contract_larger};
