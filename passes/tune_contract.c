/* Tuning of family contract: register tile, packing, blocks of k, chunks. ir/product.h says what
   the numbers mean.

   Register tile: rows * vectors accumulators, one register per vector of b and one for the spread
   element of a must fit the register file, with a few to spare. Blocks of k keep a panel of b and
   the rows of a that meet it in the second-level cache. Chunks: columns first, because rows share a
   packed panel; rows are cut where a block of a would not stay in the cache, or where columns do
   not give enough chunks. */
#include "tune.h"
#include "ir/product.h"

typedef struct Machine {
  int64_t registers, l2, workers;
  int lanes;
} Machine;

static Machine machine_of(const Module *m) {
  return (Machine){.registers = (int64_t)module_number(m, "target.vector_registers", 16),
                   .l2 = (int64_t)module_number(m, "target.l2", 1 << 20),
                   .workers = (int64_t)module_number(m, "target.workers", 2),
                   .lanes = (int)module_number(m, "target.vector_bytes", 32) / 4};
}

static int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static void choose_tile(const Product *p, const Machine *x, int64_t *tile) {
  int64_t vectors = p->n.outer * ceil_div(p->n.inner, x->lanes);
  int64_t widest = x->registers >= 32 ? 3 : 2;
  int64_t width = ceil_div(vectors, ceil_div(vectors, widest));
  static const int64_t rows_wide[] = {0, 16, 12, 8}, rows_narrow[] = {0, 12, 6, 0};
  tile[TILE_VECTORS] = width;
  tile[TILE_ROWS] = x->registers >= 32 ? rows_wide[width] : rows_narrow[width];
}

static bool b_readable(const Product *p, int lanes) { /* in place, by whole vectors */
  if (p->elem_b != ELEM_f32 || !p->n.n || p->n.outer > 1 || p->n.inner % lanes) return false;
  return p->n.dim[p->n.n - 1].b == 1;
}

enum { K_BLOCK = 768 };

static void choose_k(const Product *p, int64_t *tile) {
  int64_t k = p->k.outer * p->k.inner;
  tile[TILE_K_OUTER] = tile[TILE_K_INNER] = 1;
  if (k <= K_BLOCK * 3 / 2) return;
  if (p->k.inner <= K_BLOCK * 3 / 2 && p->k.outer > 1)
    tile[TILE_K_OUTER] = at_most(p->k.outer, ceil_div(k, K_BLOCK));
  else tile[TILE_K_OUTER] = p->k.outer, tile[TILE_K_INNER] = ceil_div(p->k.inner, K_BLOCK);
}

/* About eight chunks per worker, but none below some two million operations. */
static int64_t chunks_wanted(const Product *p, const Machine *x) {
  double work = 2.0 * (double)p->batch.outer * (double)p->batch.inner * (double)p->m.outer *
                (double)p->m.inner * (double)p->n.outer * (double)p->n.inner * (double)p->k.outer *
                (double)p->k.inner;
  double most = 8.0 * (double)x->workers;
  return work / 2e6 > most ? (int64_t)most : at_least((int64_t)(work / 2e6), 1);
}

/* Cycles per element of copying an operand into scratch, in hundredths: by vectors, by transposing
 * squares, one by one. */
static double copy_cost(const ProductDims *across, const ProductDims *k, bool of_b) {
  const ProductDim *x = &across->dim[across->n - 1], *y = &k->dim[k->n - 1];
  if (!across->n || (of_b ? x->b : x->a) == 1) return 20;
  return k->n && (of_b ? y->b : y->a) == 1 ? 40 : 150;
}

/* Rows and columns into `each` chunks or more, at least `rows` blocks of rows: the cut that copies
 * least. */
static void cut(const Product *p, const ProductPlan *q, int64_t rows, int64_t each, int64_t *tile) {
  double a = (double)(p->m.outer * p->m.inner), b = (double)(p->n.outer * p->n.inner), least = 0;
  a *= tile[TILE_PACK_A] ? copy_cost(&p->m, &p->k, false) : 2;
  b *= tile[TILE_PACK_B] ? copy_cost(&p->n, &p->k, true) : 2;
  tile[TILE_ROW] = 0;
  for (int64_t r = rows; r <= at_most(q->tiles, at_least(rows, each)); r++) {
    int64_t c = at_most(q->panels, ceil_div(each, r));
    double cost = a * (double)c + b * (double)r;
    bool enough = r * c >= each || r == q->tiles;
    if (tile[TILE_ROW] && (!enough || cost >= least)) continue;
    tile[TILE_ROW] = r, tile[TILE_COLUMN] = c, least = enough ? cost : 1e300;
  }
}

static void choose_chunks(const Product *p, const Machine *x, int64_t *tile) {
  int64_t wanted = chunks_wanted(p, x), batches = p->batch.outer * p->batch.inner;
  tile[TILE_BATCH] = at_most(batches, wanted);
  tile[TILE_ROW] = tile[TILE_COLUMN] = 1;
  ProductPlan q = product_plan(p, x->lanes, tile);
  int64_t a_bytes = p->m.outer * p->m.inner * q.k_outer_max * q.k_inner_max * 4;
  cut(p, &q, at_most(q.tiles, ceil_div(a_bytes, x->l2 / 2)), ceil_div(wanted, tile[TILE_BATCH]),
      tile);
}

/* A copy pays off when it is read several times. */
static void choose_packing(const Product *p, const Machine *x, int64_t *tile) {
  int64_t rows = p->m.outer * p->m.inner, columns = p->n.outer * p->n.inner;
  bool a_in_order = p->k.n && p->k.dim[p->k.n - 1].a == 1;
  tile[TILE_PACK_A] =
      p->elem_a != ELEM_f32 || (!a_in_order && columns >= 4 * tile[TILE_VECTORS] * x->lanes);
  tile[TILE_PACK_B] = !b_readable(p, x->lanes) || rows >= 4 * tile[TILE_ROWS];
}

void tune_contract(Module *m, Fn *k) {
  Machine x = machine_of(m);
  Product p = product_of(k, x.lanes);
  int64_t tile[TILE_COUNT] = {0};
  choose_tile(&p, &x, tile);
  choose_k(&p, tile);
  choose_packing(&p, &x, tile);
  choose_chunks(&p, &x, tile);
  ProductPlan q = product_plan(&p, x.lanes, tile);
  static const char *const variant[2][2] = {{"in_place", "pack_b"}, {"pack_a", "pack_ab"}};
  attr_set_str(m, &k->attrs, ATTR_variant,
               intern(m->ctx->names, variant[tile[TILE_PACK_A]][tile[TILE_PACK_B]]));
  attr_set_ints(m, &k->attrs, ATTR_tile, TILE_COUNT, tile);
  attr_set_ints(m, &k->attrs, ATTR_chunks, 1, &q.chunks);
  attr_set_int(m, &k->attrs, ATTR_scratch, q.a_bytes + q.b_bytes + q.c_bytes);
}
