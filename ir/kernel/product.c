/* Classification of a dot's dims and the arithmetic of its cut; see product.h.

   The lane dim is the result dim (outside batch) that fills vectors best: whole vectors count
   fully, a dim whose elements are not contiguous in the result counts half, ties go to the
   smaller stride. The rows of a tile run along the m dim that is long enough for full tiles; k's
   inner dim is a long one that is contiguous in an operand. */
#include "product.h"
#include "ir/support/num.h"
#include "nest.h"

static int64_t stride_of(const Value *value, Str dim) {
  int at = type_find(&value->type, dim);
  if (at < 0) return 0;
  if (value->storage.ordered) return value->storage.stride[at];
  int64_t s = 1;
  for (int i = value->type.rank - 1; i > at; i--) s *= value->type.axis[i].size;
  return s;
}

static OpId find_dot(const Fn *fn) {
  for (uint32_t i = 0; i < fn->ops.n; i++)
    if (op_family(fn->ops.at[i].code) == FAMILY_CONTRACT) return i;
  bug("kernel %s has no dot", fn->name);
}

/* What is read for operand v: an operand may be cast on the way in. */
static ValueId source_of(const Fn *fn, ValueId value) {
  const Op *op = value_def(fn, value);
  return op && op->code == OP_cast ? op->in[0] : value;
}

/* The operand that is summed beside the product: sum and what of it, if there is one. */
static ValueId find_sum(const Fn *fn, ValueId *sum) {
  for (OpId i = 0; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    if (op_family(op->code) != FAMILY_REDUCE) continue;
    *sum = op->out;
    return source_of(fn, op->in[0]);
  }
  *sum = NO_VALUE;
  return NO_VALUE;
}

static uint32_t find_arg(const Fn *fn, ValueId value) {
  for (uint32_t i = 0; i < fn->args.n; i++)
    if (fn->args.at[i] == value) return i;
  bug("an operand of the dot of %s is not an argument", fn->name);
}

/* The result of the kernel whose storage decides what is innermost: the first one with the dot's
 * dims. */
static const Value *first_result(const Fn *k, ValueId dot) {
  for (uint32_t i = 0; i < k->results.n; i++) {
    const Value *v = &k->values.at[k->results.at[i]];
    if (type_same_dims(&v->type, &k->values.at[dot].type)) return v;
  }
  return &k->values.at[dot];
}

static void add_dim(ProductDims *d, ProductDim x) { d->dim[d->count++] = x; }

/* Percent of the work that is not wasted when `size` elements are cut into pieces of `unit`. */
static int64_t filled(int64_t size, int64_t unit) {
  return 100 * size / ((size + unit - 1) / unit * unit);
}

static int64_t lane_score(const ProductDim *d, int lanes) {
  return d->size == 1 ? 0 : filled(d->size, lanes) * (d->r == 1 ? 2 : 1);
}

static int64_t row_score(const ProductDim *d) { return d->size < 64 ? d->size : 64; }

static int64_t k_score(const ProductDim *d) {
  return (d->size < 64 ? d->size : 64) * (d->a == 1 || d->b == 1 ? 2 : 1);
}

/* Dim x as the inner one before dim y? */
static bool better(int64_t sx, int64_t sy, const ProductDim *x, const ProductDim *y) {
  return sx != sy ? sx > sy : x->r < y->r;
}

static void move_last(ProductDims *d, int at) {
  ProductDim x = d->dim[at];
  for (int i = at; i + 1 < d->count; i++) d->dim[i] = d->dim[i + 1];
  d->dim[d->count - 1] = x;
}

static void sort_outward(ProductDims *d) { /* by stride in the result (k: in a), largest first */
  for (int i = 1; i < d->count; i++)
    for (int j = i; j > 0; j--) {
      ProductDim *x = &d->dim[j - 1], *y = &d->dim[j];
      if ((x->r ? x->r : x->a) >= (y->r ? y->r : y->a)) break;
      ProductDim t = *x;
      *x = *y, *y = t;
    }
}

static void count(ProductDims *d) {
  d->inner = d->count ? d->dim[d->count - 1].size : 1, d->outer = 1;
  for (int i = 0; i + 1 < d->count; i++) d->outer *= d->dim[i].size;
}

static int best_lane(const ProductDims *d, int lanes) {
  int best = -1;
  for (int i = 0; i < d->count; i++)
    if (best < 0 || better(lane_score(&d->dim[i], lanes), lane_score(&d->dim[best], lanes),
                           &d->dim[i], &d->dim[best]))
      best = i;
  return best;
}

static int best_inner(const ProductDims *d, int64_t (*score)(const ProductDim *)) {
  int best = 0;
  for (int i = 1; i < d->count; i++)
    if (better(score(&d->dim[i]), score(&d->dim[best]), &d->dim[i], &d->dim[best])) best = i;
  return best;
}

static bool in_group(const Group *g, Str dim) {
  for (int i = 0; i < g->nfrom; i++)
    if (g->from[i] == dim) return true;
  return false;
}

static void classify(Product *p, const Fn *fn, const Op *dot) {
  const Value *a = &fn->values.at[source_of(fn, dot->in[0])];
  const Value *b = &fn->values.at[source_of(fn, dot->in[1])];
  const Value *r = first_result(fn, p->value);
  for (int i = 0; i < a->type.rank; i++) {
    Str dim = a->type.axis[i].dim;
    ProductDim d = {dim, a->type.axis[i].size, stride_of(a, dim), stride_of(b, dim),
                    stride_of(r, dim)};
    if (in_group(&dot->group[0], dim)) add_dim(&p->k, d);
    else add_dim(type_find(&b->type, dim) < 0 ? &p->m : &p->batch, d);
  }
  for (int i = 0; i < b->type.rank; i++) {
    Str dim = b->type.axis[i].dim;
    if (type_find(&a->type, dim) >= 0 || in_group(&dot->group[0], dim)) continue;
    add_dim(&p->n,
            (ProductDim){dim, b->type.axis[i].size, 0, stride_of(b, dim), stride_of(r, dim)});
  }
}

static void drop(Product *p, ProductDims *d, int at) { /* stays at index 0 */
  p->zero[p->nzero++] = d->dim[at].dim;
  for (int i = at; i + 1 < d->count; i++) d->dim[i] = d->dim[i + 1];
  d->count--;
}

static bool join_one(Product *p, const Fn *fn, ProductDims *d) {
  for (int i = 0; i < d->count; i++)
    for (int j = 0; j < d->count; j++) {
      ProductDim *outer = &d->dim[i], *inner = &d->dim[j];
      if (i == j || !nest_joins(fn, outer->dim, inner->dim, inner->size)) continue;
      inner->size *= outer->size;
      drop(p, d, i);
      return true;
    }
  return false;
}

/* Neighbours that contiguous in every buffer become one dim; dims of size 1 go. */
static void join_dims(Product *p, const Fn *fn, ProductDims *d) {
  for (int i = d->count - 1; i >= 0; i--)
    if (d->dim[i].size == 1) drop(p, d, i);
  while (join_one(p, fn, d)) {}
}

static void swap_dims(ProductDims *d) {
  for (int i = 0; i < d->count; i++) {
    int64_t t = d->dim[i].a;
    d->dim[i].a = d->dim[i].b, d->dim[i].b = t;
  }
}

static void swap_sides(Product *p) {
  ProductDims m = p->m;
  p->m = p->n, p->n = m;
  swap_dims(&p->m), swap_dims(&p->n), swap_dims(&p->k), swap_dims(&p->batch);
  uint32_t arg = p->arg_a;
  p->arg_a = p->arg_b, p->arg_b = arg;
  Elem e = p->elem_a;
  p->elem_a = p->elem_b, p->elem_b = e;
}

static bool wants_swap(const Product *p, int lanes) {
  int m = best_lane(&p->m, lanes), n = best_lane(&p->n, lanes);
  if (m < 0 || n < 0) return n < 0 && m >= 0;
  return better(lane_score(&p->m.dim[m], lanes), lane_score(&p->n.dim[n], lanes), &p->m.dim[m],
                &p->n.dim[n]);
}

Product product_of(const Fn *kernel, int lanes) {
  Product p = {.dot = find_dot(kernel)};
  const Op *dot = &kernel->ops.at[p.dot];
  p.value = dot->out;
  ValueId value = source_of(kernel, dot->in[0]), b = source_of(kernel, dot->in[1]);
  p.arg_a = find_arg(kernel, value), p.arg_b = find_arg(kernel, b);
  p.elem_a = value_type(kernel, value)->elem, p.elem_b = value_type(kernel, b)->elem;
  p.compute = value_type(kernel, dot->in[0])->elem;
  classify(&p, kernel, dot);
  join_dims(&p, kernel, &p.batch), join_dims(&p, kernel, &p.m);
  join_dims(&p, kernel, &p.n), join_dims(&p, kernel, &p.k);
  ValueId summed = find_sum(kernel, &p.sum);
  bool swap = p.sum == NO_VALUE ? wants_swap(&p, lanes) : kernel->args.at[p.arg_b] != summed;
  if (swap) swap_sides(&p);
  sort_outward(&p.batch), sort_outward(&p.m), sort_outward(&p.n), sort_outward(&p.k);
  if (p.n.count) move_last(&p.n, best_lane(&p.n, lanes));
  if (p.m.count) move_last(&p.m, best_inner(&p.m, row_score));
  if (p.k.count) move_last(&p.k, best_inner(&p.k, k_score));
  count(&p.batch), count(&p.m), count(&p.n), count(&p.k);
  return p;
}

bool product_sliced(const Product *p, const int64_t tile[TILE_COUNT]) {
  if (tile[TILE_PACK_B] != 1 || !p->n.count || !p->k.count || p->n.outer > 1 || p->k.outer > 1)
    return false;
  return p->n.dim[p->n.count - 1].b == 1 ||
         (tile[TILE_DEPTH] == DEPTH_AMX && p->k.dim[p->k.count - 1].b == 1);
}

bool product_amx_in_place(const Product *p, const int64_t tile[TILE_COUNT]) {
  return p->elem_a == p->compute && p->k.count && p->k.dim[p->k.count - 1].a == 1 &&
         p->k.inner % DEPTH_AMX == 0 && p->m.inner % tile[TILE_ROWS] == 0;
}

bool product_amx_fits(const Product *p, const int64_t tile[TILE_COUNT]) {
  int64_t rows = tile[TILE_ROWS], how = tile[TILE_PACK_A];
  bool in_place = !how && product_amx_in_place(p, tile);
  return p->compute == ELEM_bf16 && (rows == AMX_ROWS || rows == 2 * AMX_ROWS) &&
         tile[TILE_VECTORS] <= 2 && (tile[TILE_PACK_B] & ~PACK_SHARED) == 1 &&
         (in_place || (how & ~PACK_SHARED) == PACK_ROWS);
}

bool product_rows_b(const Product *p) {
  return p->n.count && p->n.outer == 1 && p->n.dim[p->n.count - 1].b == 1;
}

/* The phase that copies operands for all chunks: some 65536 words each, but of a whole groups of
   tiles, of b whole steps of k or whole panels. */
enum { SHARED_WORDS = 1 << 16 };

static void plan_shared_a(ProductPlan *product, int64_t blocks, int64_t column) {
  enum { TILES = 8 };
  int64_t most = ceil_div(product->tiles, TILES);
  product->block_floats = product->tiles * column * product->tile[TILE_ROWS];
  product->groups = ceil_div(product->block_floats, SHARED_WORDS);
  if (product->groups > most) product->groups = most;
  product->chunks_a = product->pack_chunks = blocks * product->groups;
  product->at_b = product->w_bytes = round_up(blocks * product->block_floats * 4, CACHE_LINE);
}

/* Blocks of panels as the chunks have them, so that a worker copies what it needs; but no short
   pieces of b's rows. */
static int64_t columns_copied(const Product *p, const ProductPlan *product) {
  enum { PIECE = 1536 };
  int64_t n = product_rows_b(p) ? product->tile[TILE_COLUMN] : 1,
          row = p->n.inner * elem_bytes(p->elem_b);
  while (n > 1 && row / n < PIECE) n = n % 2 ? 1 : n / 2;
  return n;
}

static void plan_shared_b(const Product *p, ProductPlan *product, int64_t blocks, int64_t k) {
  int64_t most = product_rows_b(p) ? product->k_inner_max : product->panels;
  product->block_b = k * product->vectors * product->lanes;
  product->columns_b = columns_copied(p, product);
  product->groups_b = ceil_div(product->block_b, SHARED_WORDS * product->columns_b);
  if (product->groups_b > most) product->groups_b = most;
  product->pack_chunks += blocks * product->columns_b * product->groups_b;
  product->w_bytes += round_up(blocks * product->block_b * 4, CACHE_LINE);
}

static void plan_shared(const Product *p, ProductPlan *product, int64_t column, int64_t k) {
  int64_t blocks = product->tile[TILE_K_OUTER] * product->tile[TILE_K_INNER];
  blocks *= p->batch.outer * p->batch.inner;
  if (product->shared) plan_shared_a(product, blocks, column);
  if (product->shared_b) plan_shared_b(p, product, blocks, k);
}

ProductPlan product_plan(const Product *p, int lanes, const int64_t tile[TILE_COUNT]) {
  ProductPlan q = {.lanes = lanes};
  memcpy(q.tile, tile, sizeof q.tile);
  q.vectors_inner = ceil_div(p->n.inner, lanes), q.vectors = p->n.outer * q.vectors_inner;
  q.panels = ceil_div(q.vectors, tile[TILE_VECTORS]);
  q.width = q.vectors / q.panels, q.wide = q.vectors % q.panels;
  q.tiles_inner = ceil_div(p->m.inner, tile[TILE_ROWS]), q.tiles = p->m.outer * q.tiles_inner;
  q.height = p->m.inner / q.tiles_inner, q.high = p->m.inner % q.tiles_inner;
  q.chunks = tile[TILE_BATCH] * tile[TILE_ROW] * tile[TILE_COLUMN];
  q.steps = ceil_div(p->k.inner, tile[TILE_DEPTH]);
  q.words = tile[TILE_DEPTH] == DEPTH_AMX ? DEPTH_AMX / 2 : 1;
  q.k_outer_max = ceil_div(p->k.outer, tile[TILE_K_OUTER]);
  q.k_inner_max = ceil_div(q.steps, tile[TILE_K_INNER]);
  q.tiles_max = ceil_div(q.tiles, tile[TILE_ROW]),
  q.panels_max = ceil_div(q.panels, tile[TILE_COLUMN]);
  int64_t k = q.k_outer_max * q.k_inner_max * q.words,
          block = tile[TILE_ROWS] * tile[TILE_VECTORS] * lanes * 4;
  bool partial = tile[TILE_K_OUTER] * tile[TILE_K_INNER] > 1;
  q.pitch = (ceil_div(k, 32) * 2 + 1) * 16;
  q.shared = tile[TILE_PACK_A] & PACK_SHARED;
  q.shared_b = tile[TILE_PACK_B] & PACK_SHARED;
  q.rows_a = (tile[TILE_PACK_A] & ~PACK_SHARED) == PACK_ROWS;
  int64_t column = q.rows_a ? q.pitch : k;
  plan_shared(p, &q, column, k);
  if (tile[TILE_PACK_A] && !q.shared)
    q.a_bytes = round_up(q.tiles_max * column * tile[TILE_ROWS] * 4, CACHE_LINE);
  q.b_bytes = tile[TILE_PACK_B] == 1 ? round_up(k * tile[TILE_VECTORS] * lanes * 4, CACHE_LINE) : 0;
  if (product_sliced(p, tile)) q.b_bytes *= 2;
  if (p->sum != NO_VALUE)
    q.s_bytes = round_up(q.panels_max * tile[TILE_VECTORS] * lanes * 4, CACHE_LINE);
  bool two = tile[TILE_DEPTH] == DEPTH_AMX; /* one may wait for its epilogue */
  q.c_bytes = round_up(partial ? q.tiles_max * q.panels_max * block : block << two, CACHE_LINE);
  return q;
}
