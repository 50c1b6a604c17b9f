/* Tuning of family contract: register tile, packing, blocks of k, chunks. ir/kernel/product.h says
   what the numbers mean.

   Register tile: rows * vectors accumulators, one register per vector of b and one for the spread
   element of a must fit the register file, with a few to spare. Blocks of k keep a panel of b and
   the rows of a that meet it in the second-level cache. Chunks: columns first, because rows share a
   packed panel; rows are cut where a block of a would not stay in the cache, or where columns do
   not give enough chunks. Other cuts that a tuner tries: vary_contract.c. */
#include "gpu.h"
#include "tune.h"
#include "ir/support/num.h"

/* Tall tiles where k is short: they need fewer lines of the second-level cache, which then has time
   for the result. Not where k is cut (measured at 2048 steps: 80 % of the peak, 83 with wide ones),
   nor where 14 rows of a are read at once: their distance may be a multiple of what the first
   level tells apart. */
static bool tall_tiles(const Product *p, const KernelLimits *x) {
  enum { COLUMNS = 12, STEPS = 768 };
  int64_t vectors = p->n.outer * ceil_div(p->n.inner, x->lanes);
  return x->registers >= 32 && p->compute == ELEM_f32 && !product_a_in_order(p) &&
         vectors >= COLUMNS && p->k.outer * p->k.inner <= STEPS;
}

/* Two by two registers, or fewer where there are no more rows or columns. */
static void matrix_tile(const Product *p, const KernelLimits *x, int64_t *tile) {
  int64_t vectors = p->n.outer * ceil_div(p->n.inner, x->lanes);
  tile[TILE_VECTORS] = min_i64(vectors, 2);
  tile[TILE_ROWS] = p->m.inner <= AMX_ROWS ? AMX_ROWS : 2 * AMX_ROWS;
}

static void choose_tile(const Product *p, const KernelLimits *x, int64_t *tile) {
  int64_t vectors = p->n.outer * ceil_div(p->n.inner, x->lanes);
  if (tile[TILE_DEPTH] == DEPTH_AMX) {
    matrix_tile(p, x, tile);
    return;
  }
  int64_t widest = x->registers >= 32 && !tall_tiles(p, x) ? 3 : 2;
  int64_t width = ceil_div(vectors, ceil_div(vectors, widest));
  static const int64_t rows_wide[] = {0, 16, 12, 8}, rows_narrow[] = {0, 12, 6, 0};
  tile[TILE_VECTORS] = width;
  tile[TILE_ROWS] = x->registers >= 32 ? rows_wide[width] : rows_narrow[width];
  if (tall_tiles(p, x) && width == 2) tile[TILE_ROWS] = 14;
}

enum { K_BLOCK = 768, K_MATRIX = 24 }; /* steps */

static void choose_k(const Product *p, int64_t *tile) {
  bool matrix = tile[TILE_DEPTH] == DEPTH_AMX;
  int64_t block = matrix ? K_MATRIX : K_BLOCK;
  int64_t steps = ceil_div(p->k.inner, tile[TILE_DEPTH]), k = p->k.outer * steps;
  tile[TILE_K_OUTER] = tile[TILE_K_INNER] = 1;
  int64_t most = matrix ? block * 3 / 2 : block * 4 / 3; /* two panels of vectors are kept */
  if (k <= most) return;
  if (steps <= block * 3 / 2 && p->k.outer > 1)
    tile[TILE_K_OUTER] = min_i64(p->k.outer, ceil_div(k, block));
  else tile[TILE_K_OUTER] = p->k.outer, tile[TILE_K_INNER] = ceil_div(steps, block);
}

/* Pairs along k, where the machine has them and k is no list of single elements. */
static bool has_pairs(const Product *p, const KernelLimits *x) {
  return x->bf16_dot_fast && p->compute == ELEM_bf16 && p->k.inner > 1;
}

/* AMX tiles, where a good part of them has something to do. */
static bool has_matrix(const Product *p, const KernelLimits *x) {
  enum { LEAST = 8 };
  return x->amx && p->compute == ELEM_bf16 && p->m.inner >= LEAST && p->n.inner >= LEAST &&
         p->k.inner >= LEAST;
}

static int64_t choose_depth(const Product *p, const KernelLimits *x) {
  return has_matrix(p, x) ? DEPTH_AMX : has_pairs(p, x) ? DEPTH_PAIRS : 1;
}

/* Cycles per element of copying an operand into scratch: by vectors, by transposing squares, one by
   one; tiles of a in short pieces from far apart; of reading it in place: little, from whichever
   cache it is in. Measured. */
static double copy_cost(const ProductDims *across, const ProductDims *k, bool of_b,
                        int64_t packed) {
  const ProductDim *x = across->count ? &across->dim[across->count - 1] : NULL;
  const ProductDim *y = k->count ? &k->dim[k->count - 1] : NULL;
  if (!packed) return 0.1;
  if ((packed & ~PACK_SHARED) == PACK_ROWS) return 0.45;
  if (!x || (of_b ? x->b : x->a) == 1) return of_b ? 0.35 : 1;
  return y && (of_b ? y->b : y->a) == 1 ? 0.45 : 2;
}

/* AVX2: half the lanes, so an element that is copied is multiplied in twice the cycles, and half
 * the second-level cache, so chunks are smaller and want the same copy more often. */
static bool few_registers(const KernelLimits *x) { return x->registers < 32; }

/* Room for lines that lie `lines` apart in a cache of so many sets, half of it for others. */
static int64_t room(int64_t lines, int64_t sets, int64_t ways) {
  for (; sets > 1 && lines % 2 == 0; lines /= 2) sets /= 2;
  return sets * ways / 2;
}

enum { LINE = 64, FIRST_SETS = 64, FIRST_WAYS = 8 }; /* of first-level caches */

/* What multiplying costs more where rows of a are read as they lie, one after the other in memory.
   While a tile reads its rows, those of the next tile are fetched, lines of all of them at the same
   step of k; where these fall on one set they put each other out. Measured with 16 registers, whose
   tiles take half as long (3072 steps: 65 % of the peak, 91 from a copy; 768: 92 and 94, and where
   neighbours take the caches 80 and 88); with 32 reading in place is as good as a copy. */
static double in_place_factor(const Product *p, const KernelLimits *x, const int64_t *tile) {
  if (!few_registers(x) || tile[TILE_PACK_A] || !product_a_in_order(p) || !p->m.count) return 1;
  int64_t row = p->m.dim[p->m.count - 1].a * elem_bytes(p->elem_a);
  bool clash = row % LINE == 0 && tile[TILE_ROWS] > room(row / LINE, FIRST_SETS, FIRST_WAYS);
  return clash ? 1.4 : 1.03;
}

typedef struct ContractCost { /* of one product of the batch, in cycles */
  int64_t tiles, panels;      /* of rows, of columns */
  double height, width;       /* of a tile, of a panel */
  double k, per_multiply, per_a, per_b, start;
  double once; /* before all chunks, by all workers together */
} ContractCost;

static ContractCost cost_of(const Product *p, const ProductPlan *q, const KernelLimits *x,
                            const int64_t *tile) {
  ContractCost c = {.tiles = q->tiles, .panels = q->panels};
  c.height = (double)(p->m.outer * p->m.inner) / (double)q->tiles;
  c.width = (double)(q->vectors * x->lanes) / (double)q->panels;
  c.k = (double)(p->k.outer * q->steps * q->words);
  c.per_multiply = 1.1 / (2.0 * x->lanes); /* two vector units */
  if (tile[TILE_DEPTH] == DEPTH_AMX) c.per_multiply = 2.5 / (AMX_ROWS * AMX_ROWS);
  c.per_multiply *= in_place_factor(p, x, tile);
  c.per_a = copy_cost(&p->m, &p->k, false, tile[TILE_PACK_A]);
  if (q->shared) {
    c.once = c.per_a * c.k * (double)(p->m.outer * p->m.inner) + 4000 * (double)x->workers;
    c.per_a = copy_cost(&p->m, &p->k, false, PACK_NOT);
  }
  if ((!tile[TILE_PACK_A] || q->shared) && c.k * (double)(p->m.outer * p->m.inner) > (double)x->l2)
    c.per_a *= 3; /* comes from far each time */
  c.per_b = copy_cost(&p->n, &p->k, true, tile[TILE_PACK_B]);
  if (tile[TILE_DEPTH] == DEPTH_AMX) c.per_b = 1.3; /* comes from memory, faster than products */
  if (q->shared_b) {
    if (few_registers(x)) c.per_b = 1; /* not beside products, and it comes from far again */
    c.once += c.per_b * c.k * (double)(p->n.outer * p->n.inner) + 4000 * (double)x->workers;
    c.per_b = copy_cost(&p->n, &p->k, true, PACK_NOT);
  }
  double panel =
      (double)(q->k_outer_max * q->k_inner_max * q->words * tile[TILE_VECTORS] * x->lanes);
  c.start = 4000 + panel / 2; /* hand-out; the first panel comes from memory without warning */
  return c;
}

static double chunk_time(const ContractCost *c, int64_t rows,
                         int64_t columns) { /* the largest of so many blocks */
  double m = c->height * (double)ceil_div(c->tiles, rows),
         n = c->width * (double)ceil_div(c->panels, columns);
  return c->start + c->k * (m * n * c->per_multiply + m * c->per_a + n * c->per_b);
}

/* Time of all chunks if r blocks of rows and c of columns are dealt out to the workers, and one of
 * them is held up. */
static double makespan(const ContractCost *c, const KernelLimits *x, int64_t batches, int64_t rows,
                       int64_t columns) {
  double chunk = chunk_time(c, rows, columns);
  return c->once * (double)batches / (double)x->workers +
         chunk * ((double)ceil_div(batches * rows * columns, x->workers) + 0.1);
}

/* At least `rows` blocks of rows. Returns the time. */
static double cut(const ContractCost *c, const ProductPlan *q, const KernelLimits *x, int64_t rows,
                  int64_t *tile) {
  must(rows >= 1 && rows <= q->tiles && x->workers >= 1, "%lld blocks of rows of %lld tiles",
       (long long)rows, (long long)q->tiles);
  double least = 0;
  int64_t most = 16 * x->workers, batches = tile[TILE_BATCH];
  tile[TILE_ROW] = 0;
  for (int64_t i = rows; i <= min_i64(q->tiles, rows + most); i++)
    for (int64_t j = 1; j <= min_i64(q->panels, most); j++) {
      double t = makespan(c, x, batches, i, j);
      if (tile[TILE_ROW] && t >= least) continue;
      tile[TILE_ROW] = i, tile[TILE_COLUMN] = j, least = t;
    }
  return least;
}

/* Batches go together in chunks while there are enough of them; otherwise each is cut by itself.
   Returns the time of it all. */
static double choose_chunks(const Product *p, const KernelLimits *x, int64_t *tile) {
  int64_t batches = p->batch.outer * p->batch.inner;
  tile[TILE_BATCH] = batches, tile[TILE_ROW] = tile[TILE_COLUMN] = 1;
  ProductPlan q = product_plan(p, x->lanes, tile);
  ContractCost c = cost_of(p, &q, x, tile);
  double whole = chunk_time(&c, 1, 1);
  int64_t a_bytes = p->m.outer * p->m.inner * q.k_outer_max * q.k_inner_max * q.words * 4;
  bool rows = product_a_in_order(p), copied = rows && tile[TILE_PACK_A] == PACK_TILES;
  int64_t most = x->l2;
  if (copied) most = most * 3 / 4; /* panels of b want some of it */
  if (!rows) most /= 2;            /* columns are not fetched by the machine */
  double least = cut(&c, &q, x, min_i64(q.tiles, ceil_div(a_bytes, most)), tile);
  if (tile[TILE_ROW] * tile[TILE_COLUMN] > 1 || batches <= 8 * x->workers) return least;
  double each = max_i64(8 * x->workers, 1),
         enough = whole * (double)batches / 60000; /* some 20 microseconds each */
  tile[TILE_BATCH] = enough < each ? max_i64((int64_t)enough, 1) : (int64_t)each;
  return least;
}

Cut contract_chunked(const Module *m, const Fn *k, const Cut *from) {
  KernelLimits x = machine_of(m);
  Product p = product_of(k, x.lanes);
  Cut c = *from;
  choose_chunks(&p, &x, c.at);
  return c;
}

/* Makes the copy that tile entry `which` speaks of once for all chunks where that takes less time
   and is not too large. Returns the time. */
static double share(const Product *p, const KernelLimits *x, int which, double own, int64_t *tile) {
  int64_t most = few_registers(x) ? 24 : 16; /* second-level caches: the smaller, the more */
  int64_t shared[TILE_COUNT];
  if (!tile[which]) return own;
  memcpy(shared, tile, sizeof shared);
  shared[which] |= PACK_SHARED;
  if (product_plan(p, x->lanes, shared).w_bytes > most * x->l2) return own;
  double once = choose_chunks(p, x, shared);
  if (once >= own) return own;
  memcpy(tile, shared, sizeof shared);
  return once;
}

/* Copies tiles of a where reading it as it lies takes longer. Returns the time. */
static double copy_tiles(const Product *p, const KernelLimits *x, double own, int64_t *tile) {
  int64_t copied[TILE_COUNT];
  if (in_place_factor(p, x, tile) == 1) return own;
  memcpy(copied, tile, sizeof copied);
  copied[TILE_PACK_A] = PACK_TILES;
  double t = choose_chunks(p, x, copied);
  if (t >= own) return own;
  memcpy(tile, copied, sizeof copied);
  return t;
}

/* Panels of b for vector instructions are packed while others are computed, which costs little with
 * 32 registers; with 16 more chunks need the same ones (measured: 90 % of the peak, 93 shared). */
static void choose_sharing(const Product *p, const KernelLimits *x, int64_t *tile) {
  double own = copy_tiles(p, x, choose_chunks(p, x, tile), tile);
  if (p->batch.outer * p->batch.inner > 1) return;
  own = share(p, x, TILE_PACK_A, own, tile);
  if (tile[TILE_DEPTH] == DEPTH_AMX || few_registers(x)) share(p, x, TILE_PACK_B, own, tile);
}

/* Whether columns of a, read where they lie, stay in both caches of a core: rows whose distance has
   a large power of two in it share few of their sets. The next row tile wants half of the lines
   again, from the first level. */
static bool columns_stay(const Product *p, const KernelLimits *x, const int64_t *tile) {
  enum { WAYS = 16, MOST = 8 }; /* what is larger than so many caches comes from far */
  if (!p->m.count || p->m.dim[p->m.count - 1].a != 1 || p->k.outer > 1) return false;
  int64_t row = p->k.count ? p->k.dim[p->k.count - 1].a * elem_bytes(p->elem_a) : 0;
  int64_t k = ceil_div(p->k.inner, tile[TILE_K_INNER]);
  if (row % LINE || row * p->k.inner > MOST * x->l2) return false;
  return k <= room(row / LINE, x->l2 / LINE / WAYS, WAYS) &&
         k <= room(row / LINE, FIRST_SETS, FIRST_WAYS);
}

/* A copy pays off when it is read several times. */
static void choose_packing(const Product *p, const KernelLimits *x, int64_t *tile) {
  int64_t rows = p->m.outer * p->m.inner, columns = p->n.outer * p->n.inner;
  bool in_order = product_a_in_order(p), often = columns > tile[TILE_VECTORS] * x->lanes;
  bool readable = product_a_readable(p, tile) && (in_order || !often || columns_stay(p, x, tile));
  bool matrix = tile[TILE_DEPTH] == DEPTH_AMX, by_rows = in_order || matrix;
  tile[TILE_PACK_A] = readable ? PACK_NOT : by_rows ? PACK_ROWS : PACK_TILES;
  tile[TILE_PACK_B] = matrix || !product_b_readable(p, x->lanes) || p->sum != NO_VALUE ||
                      rows >= 4 * tile[TILE_ROWS];
}

bool contract_fits(const Module *m, const Fn *k, const Cut *c) {
  Product p = product_of(k, machine_of(m).lanes);
  return product_fits(m, &p, c->at);
}

Cut contract_rule(const Module *m, const Fn *k) {
  KernelLimits x = machine_of(m);
  Product p = product_of(k, x.lanes);
  Cut c = {{0}};
  c.at[TILE_DEPTH] = choose_depth(&p, &x);
  choose_tile(&p, &x, c.at);
  choose_k(&p, c.at);
  choose_packing(&p, &x, c.at);
  choose_sharing(&p, &x, c.at);
  return c;
}

void contract_apply(Module *m, Fn *k, const Cut *c) {
  must(contract_fits(m, k, c), "kernel %s: a cut that does not fit", k->name);
  int lanes = machine_of(m).lanes;
  Product p = product_of(k, lanes);
  ProductPlan q = product_plan(&p, lanes, c->at);
  static const char *const variant[3][2] = {
      {"in_place", "pack_b"}, {"pack_a", "pack_ab"}, {"rows_a", "rows_ab"}};
  const char *name = variant[c->at[TILE_PACK_A] & ~PACK_SHARED][c->at[TILE_PACK_B] > 0];
  int64_t chunks[] = {q.pack_chunks, q.chunks};
  attr_set_str(m, &k->attrs, ATTR_variant, intern(m->ctx->names, name));
  attr_set_ints(m, &k->attrs, ATTR_tile, TILE_COUNT, c->at);
  bool before = q.pack_chunks > 0;
  attr_set_ints(m, &k->attrs, ATTR_chunks, 1 + before, chunks + !before);
  if (before) attr_set_int(m, &k->attrs, ATTR_workspace, q.w_bytes);
  attr_set_int(m, &k->attrs, ATTR_scratch, q.a_bytes + q.b_bytes + q.c_bytes + q.s_bytes);
}

static void tune_contract(Module *m, Fn *k) {
  Cut c = contract_rule(m, k);
  contract_apply(m, k, &c);
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
