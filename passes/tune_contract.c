/* Tuning of family contract: register tile, packing, blocks of k, chunks. ir/product.h says what
   the numbers mean.

   Register tile: rows * vectors accumulators, one register per vector of b and one for the spread
   element of a must fit the register file, with a few to spare. Blocks of k keep a panel of b and
   the rows of a that meet it in the second-level cache. Chunks: columns first, because rows share a
   packed panel; rows are cut where a block of a would not stay in the cache, or where columns do
   not give enough chunks. Other cuts that a tuner tries: vary_contract.c. */
#include "tune.h"

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

/* In place, element by element. */
static bool a_readable(const Product *p, const int64_t *tile) {
  if (tile[TILE_DEPTH] == 1) return p->elem_a == ELEM_f32 && p->compute == ELEM_f32;
  return p->elem_a == p->compute && p->k.n && p->k.dim[p->k.n - 1].a == 1;
}

/* In place, by whole vectors. */
static bool b_readable(const Product *p, int lanes) {
  if (p->elem_b != ELEM_f32 || p->compute != ELEM_f32 || !p->n.n || p->n.outer > 1 ||
      p->n.inner % lanes)
    return false;
  return p->n.dim[p->n.n - 1].b == 1;
}

enum { K_BLOCK = 768 };

static void choose_k(const Product *p, int64_t *tile) {
  int64_t steps = ceil_div(p->k.inner, tile[TILE_DEPTH]), k = p->k.outer * steps;
  tile[TILE_K_OUTER] = tile[TILE_K_INNER] = 1;
  if (k <= K_BLOCK * 3 / 2) return;
  if (steps <= K_BLOCK * 3 / 2 && p->k.outer > 1)
    tile[TILE_K_OUTER] = at_most(p->k.outer, ceil_div(k, K_BLOCK));
  else tile[TILE_K_OUTER] = p->k.outer, tile[TILE_K_INNER] = ceil_div(steps, K_BLOCK);
}

/* Pairs along k, where the machine has them and k is no list of single elements. */
static bool has_pairs(const Product *p, const Machine *x) {
  return x->pairs && p->compute == ELEM_bf16 && p->k.inner > 1;
}

/* Cycles per element of copying an operand into scratch: by vectors, by transposing squares, one by
   one; of reading it in place: little, from whichever cache it is in. */
static double copy_cost(const ProductDims *across, const ProductDims *k, bool of_b,
                        int64_t packed) {
  const ProductDim *x = across->n ? &across->dim[across->n - 1] : NULL;
  const ProductDim *y = k->n ? &k->dim[k->n - 1] : NULL;
  if (!packed) return 0.1;
  if (packed == PACK_ROWS) return 0.25;
  if (!x || (of_b ? x->b : x->a) == 1) return 0.35;
  return y && (of_b ? y->b : y->a) == 1 ? 0.45 : 2;
}

typedef struct Cost {    /* of one product of the batch, in cycles */
  int64_t tiles, panels; /* of rows, of columns */
  double height, width;  /* of a tile, of a panel */
  double k, per_multiply, per_a, per_b, start;
} Cost;

static Cost cost_of(const Product *p, const ProductPlan *q, const Machine *x, const int64_t *tile) {
  Cost c = {.tiles = q->tiles, .panels = q->panels};
  c.height = (double)(p->m.outer * p->m.inner) / (double)q->tiles;
  c.width = (double)(q->vectors * x->lanes) / (double)q->panels;
  c.k = (double)(p->k.outer * q->steps);
  c.per_multiply = 1.1 / (2.0 * x->lanes); /* two vector units */
  c.per_a = copy_cost(&p->m, &p->k, false, tile[TILE_PACK_A]);
  if (!tile[TILE_PACK_A] && c.k * (double)(p->m.outer * p->m.inner) > (double)x->l2)
    c.per_a *= 3; /* comes from far each time */
  c.per_b = copy_cost(&p->n, &p->k, true, tile[TILE_PACK_B]);
  double panel = (double)(q->k_outer_max * q->k_inner_max * tile[TILE_VECTORS] * x->lanes);
  c.start = 4000 + panel / 2; /* hand-out; the first panel comes from memory without warning */
  return c;
}

static double chunk_time(const Cost *c, int64_t rows,
                         int64_t columns) { /* the largest of so many blocks */
  double m = c->height * (double)ceil_div(c->tiles, rows),
         n = c->width * (double)ceil_div(c->panels, columns);
  return c->start + c->k * (m * n * c->per_multiply + m * c->per_a + n * c->per_b);
}

/* Time of all chunks if r blocks of rows and c of columns are dealt out to the workers, and one of
 * them is held up. */
static double makespan(const Cost *c, const Machine *x, int64_t batches, int64_t rows,
                       int64_t columns) {
  double chunk = chunk_time(c, rows, columns);
  return chunk * ((double)ceil_div(batches * rows * columns, x->workers) + 0.1);
}

/* At least `rows` blocks of rows. */
static void cut(const Cost *c, const ProductPlan *q, const Machine *x, int64_t rows,
                int64_t *tile) {
  double least = 0;
  int64_t most = 16 * x->workers, batches = tile[TILE_BATCH];
  tile[TILE_ROW] = 0;
  for (int64_t i = rows; i <= at_most(q->tiles, rows + most); i++)
    for (int64_t j = 1; j <= at_most(q->panels, most); j++) {
      double t = makespan(c, x, batches, i, j);
      if (tile[TILE_ROW] && t >= least) continue;
      tile[TILE_ROW] = i, tile[TILE_COLUMN] = j, least = t;
    }
}

/* Batches go together in chunks while there are enough of them; otherwise each is cut by itself. */
static void choose_chunks(const Product *p, const Machine *x, int64_t *tile) {
  int64_t batches = p->batch.outer * p->batch.inner;
  tile[TILE_BATCH] = batches, tile[TILE_ROW] = tile[TILE_COLUMN] = 1;
  ProductPlan q = product_plan(p, x->lanes, tile);
  Cost c = cost_of(p, &q, x, tile);
  double whole = chunk_time(&c, 1, 1);
  int64_t a_bytes = p->m.outer * p->m.inner * q.k_outer_max * q.k_inner_max * 4;
  cut(&c, &q, x, at_most(q.tiles, ceil_div(a_bytes, x->l2)), tile);
  if (tile[TILE_ROW] * tile[TILE_COLUMN] > 1 || batches <= 8 * x->workers) return;
  double each = at_least(8 * x->workers, 1),
         enough = whole * (double)batches / 60000; /* some 20 microseconds each */
  tile[TILE_BATCH] = enough < each ? at_least((int64_t)enough, 1) : (int64_t)each;
}

/* A copy pays off when it is read several times. */
static void choose_packing(const Product *p, const Machine *x, int64_t *tile) {
  int64_t rows = p->m.outer * p->m.inner, columns = p->n.outer * p->n.inner;
  bool a_in_order = p->k.n && p->k.dim[p->k.n - 1].a == 1;
  bool often = !a_in_order && columns > tile[TILE_VECTORS] * x->lanes;
  tile[TILE_PACK_A] = a_readable(p, tile) ? often ? PACK_TILES : PACK_NOT
                      : a_in_order        ? PACK_ROWS
                                          : PACK_TILES;
  tile[TILE_PACK_B] = !b_readable(p, x->lanes) || p->sum != NO_VALUE || rows >= 4 * tile[TILE_ROWS];
}

bool contract_fits(const Module *m, const Fn *k, const Cut *c) {
  Machine x = machine_of(m);
  Product p = product_of(k, x.lanes);
  const int64_t *t = c->at;
  if (t[TILE_ROWS] < 1 || t[TILE_VECTORS] < 1 || t[TILE_ROWS] > 32 || t[TILE_VECTORS] > 8)
    return false;
  if (t[TILE_ROWS] * t[TILE_VECTORS] + t[TILE_VECTORS] + 1 > x.registers) return false;
  if (t[TILE_BATCH] < 1 || t[TILE_ROW] < 1 || t[TILE_COLUMN] < 1) return false;
  if (t[TILE_DEPTH] != 1 &&
      (t[TILE_DEPTH] != 2 || !x.rounds || p.compute != ELEM_bf16 || p.k.inner < 2))
    return false;
  if (t[TILE_PACK_A] > PACK_ROWS || t[TILE_PACK_B] > 1) return false;
  if (t[TILE_PACK_A] == PACK_ROWS && (!p.k.n || p.k.dim[p.k.n - 1].a != 1)) return false;
  if (!t[TILE_PACK_A] && !a_readable(&p, t)) return false;
  if (!t[TILE_PACK_B] && (!b_readable(&p, x.lanes) || p.sum != NO_VALUE)) return false;
  if (t[TILE_K_OUTER] < 1 || t[TILE_K_OUTER] > p.k.outer) return false;
  if (t[TILE_K_INNER] < 1 || t[TILE_K_INNER] > ceil_div(p.k.inner, t[TILE_DEPTH])) return false;
  if (t[TILE_K_INNER] > 1 && t[TILE_K_OUTER] != p.k.outer) return false;
  ProductPlan q = product_plan(&p, x.lanes, t);
  return t[TILE_BATCH] <= p.batch.outer * p.batch.inner && t[TILE_ROW] <= q.tiles &&
         t[TILE_COLUMN] <= q.panels;
}

Cut contract_rule(const Module *m, const Fn *k) {
  Machine x = machine_of(m);
  Product p = product_of(k, x.lanes);
  Cut c = {{0}};
  choose_tile(&p, &x, c.at);
  c.at[TILE_DEPTH] = has_pairs(&p, &x) ? 2 : 1;
  choose_k(&p, c.at);
  choose_packing(&p, &x, c.at);
  choose_chunks(&p, &x, c.at);
  return c;
}

void contract_apply(Module *m, Fn *k, const Cut *c) {
  int lanes = machine_of(m).lanes;
  Product p = product_of(k, lanes);
  ProductPlan q = product_plan(&p, lanes, c->at);
  static const char *const variant[3][2] = {
      {"in_place", "pack_b"}, {"pack_a", "pack_ab"}, {"rows_a", "rows_ab"}};
  attr_set_str(m, &k->attrs, ATTR_variant,
               intern(m->ctx->names, variant[c->at[TILE_PACK_A]][c->at[TILE_PACK_B]]));
  attr_set_ints(m, &k->attrs, ATTR_tile, TILE_COUNT, c->at);
  attr_set_ints(m, &k->attrs, ATTR_chunks, 1, &q.chunks);
  attr_set_int(m, &k->attrs, ATTR_scratch, q.a_bytes + q.b_bytes + q.c_bytes + q.s_bytes);
}

void tune_contract(Module *m, Fn *k) {
  Cut c = contract_rule(m, k);
  contract_apply(m, k, &c);
}
