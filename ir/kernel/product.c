/* Classification of a dot's dims and the arithmetic of its cut; see product.h.

   The lane dim is the result dim (outside batch) that fills vectors best: whole vectors count
   fully, a dim whose elements are not contiguous in the result counts half, ties go to the
   smaller stride. The rows of a tile run along the m dim that is long enough for full tiles; k's
   inner dim is a long one that is contiguous in an operand. */
#include "product.h"
#include "ir/codes.h"
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

/* The value that is read for operand v: an operand may be cast when it is read. */
static ValueId source_of(const Fn *fn, ValueId value) {
  const Op *op = value_def(fn, value);
  return op && op->code == OP_cast ? op->in[0] : value;
}

/* The kernel's sum: of an operand, which is returned, or of a value of the epilogue. */
static ValueId find_sum(const Fn *fn, Product *product) {
  product->sum = product->columns = NO_VALUE;
  EACH_OP (fn, op) {
    if (op_family(op->code) != FAMILY_REDUCE) continue;
    ValueId of = source_of(fn, op->in[0]);
    bool factor = fn->values.at[of].def == NO_OP;
    *(factor ? &product->sum : &product->columns) = op->out;
    return factor ? of : NO_VALUE;
  }
  return NO_VALUE;
}

/* Columns that are summed are n. */
static bool sums_n(const Product *product, const Fn *fn) {
  const Type *kept = value_type(fn, product->columns);
  return product->n.count && type_find(kept, product->n.dim[product->n.count - 1].dim) < 0;
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

static void add_dim(ProductDims *dims, ProductDim dim) { dims->dim[dims->count++] = dim; }

/* Percent of the work that is not wasted when `size` elements are cut into pieces of `unit`. */
static int64_t filled(int64_t size, int64_t unit) {
  return 100 * size / ((size + unit - 1) / unit * unit);
}

static int64_t lane_score(const ProductDim *dim, int lanes) {
  return dim->size == 1 ? 0 : filled(dim->size, lanes) * (dim->r == 1 ? 2 : 1);
}

static int64_t row_score(const ProductDim *dim) { return dim->size < 64 ? dim->size : 64; }

static int64_t k_score(const ProductDim *dim) {
  return (dim->size < 64 ? dim->size : 64) * (dim->a == 1 || dim->b == 1 ? 2 : 1);
}

/* Dim x as the inner one before dim y? */
static bool better(int64_t sx, int64_t sy, const ProductDim *x, const ProductDim *y) {
  return sx != sy ? sx > sy : x->r < y->r;
}

static void move_last(ProductDims *dims, int at) {
  ProductDim dim = dims->dim[at];
  for (int i = at; i + 1 < dims->count; i++) dims->dim[i] = dims->dim[i + 1];
  dims->dim[dims->count - 1] = dim;
}

static void sort_outward(ProductDims *dims) { /* by stride in the result (k: in a), largest first */
  for (int i = 1; i < dims->count; i++)
    for (int j = i; j > 0; j--) {
      ProductDim *x = &dims->dim[j - 1], *y = &dims->dim[j];
      if ((x->r ? x->r : x->a) >= (y->r ? y->r : y->a)) break;
      ProductDim t = *x;
      *x = *y, *y = t;
    }
}

static void count(ProductDims *dims) {
  dims->inner = dims->count ? dims->dim[dims->count - 1].size : 1, dims->outer = 1;
  for (int i = 0; i + 1 < dims->count; i++) dims->outer *= dims->dim[i].size;
}

static int best_lane(const ProductDims *dims, int lanes) {
  int best = -1;
  for (int i = 0; i < dims->count; i++)
    if (best < 0 || better(lane_score(&dims->dim[i], lanes), lane_score(&dims->dim[best], lanes),
                           &dims->dim[i], &dims->dim[best]))
      best = i;
  return best;
}

static int best_inner(const ProductDims *dims, int64_t (*score)(const ProductDim *)) {
  int best = 0;
  for (int i = 1; i < dims->count; i++)
    if (better(score(&dims->dim[i]), score(&dims->dim[best]), &dims->dim[i], &dims->dim[best]))
      best = i;
  return best;
}

static bool in_group(const Group *group, Str dim) {
  for (int i = 0; i < group->nfrom; i++)
    if (group->from[i] == dim) return true;
  return false;
}

static void classify(Product *product, const Fn *fn, const Op *dot) {
  const Value *a = &fn->values.at[source_of(fn, dot->in[0])];
  const Value *b = &fn->values.at[source_of(fn, dot->in[1])];
  const Value *r = first_result(fn, product->value);
  for (int i = 0; i < a->type.rank; i++) {
    Str dim = a->type.axis[i].dim;
    ProductDim product_dim = {dim, a->type.axis[i].size, stride_of(a, dim), stride_of(b, dim),
                              stride_of(r, dim)};
    if (in_group(&dot->group[0], dim)) add_dim(&product->k, product_dim);
    else add_dim(type_find(&b->type, dim) < 0 ? &product->m : &product->batch, product_dim);
  }
  for (int i = 0; i < b->type.rank; i++) {
    Str dim = b->type.axis[i].dim;
    if (type_find(&a->type, dim) >= 0 || in_group(&dot->group[0], dim)) continue;
    add_dim(&product->n,
            (ProductDim){dim, b->type.axis[i].size, 0, stride_of(b, dim), stride_of(r, dim)});
  }
}

static void drop(Product *product, ProductDims *dims, int at) { /* stays at index 0 */
  product->zero[product->nzero++] = dims->dim[at].dim;
  for (int i = at; i + 1 < dims->count; i++) dims->dim[i] = dims->dim[i + 1];
  dims->count--;
}

static bool join_one(Product *product, const Fn *fn, ProductDims *dims) {
  for (int i = 0; i < dims->count; i++)
    for (int j = 0; j < dims->count; j++) {
      ProductDim *outer = &dims->dim[i], *inner = &dims->dim[j];
      bool place = product->place && (outer->dim == product->place || inner->dim == product->place);
      if (i == j || (place && dims == &product->k) ||
          !nest_joins(fn, outer->dim, inner->dim, inner->size))
        continue;
      inner->size *= outer->size;
      drop(product, dims, i);
      return true;
    }
  return false;
}

/* Neighbours that contiguous in every buffer become one dim; dims of size 1 go. */
static void join_dims(Product *product, const Fn *fn, ProductDims *dims) {
  for (int i = dims->count - 1; i >= 0; i--)
    if (dims->dim[i].size == 1) drop(product, dims, i);
  while (join_one(product, fn, dims)) {}
}

static void swap_dims(ProductDims *dims) {
  for (int i = 0; i < dims->count; i++) {
    int64_t t = dims->dim[i].a;
    dims->dim[i].a = dims->dim[i].b, dims->dim[i].b = t;
  }
}

static void swap_sides(Product *product) {
  ProductDims dims = product->m;
  product->m = product->n, product->n = dims;
  swap_dims(&product->m), swap_dims(&product->n), swap_dims(&product->k),
      swap_dims(&product->batch);
  uint32_t arg = product->arg_a;
  product->arg_a = product->arg_b, product->arg_b = arg;
  Elem e = product->elem_a;
  product->elem_a = product->elem_b, product->elem_b = e;
}

static bool wants_swap(const Product *product, int lanes) {
  int m = best_lane(&product->m, lanes), n = best_lane(&product->n, lanes);
  if (m < 0 || n < 0) return n < 0 && m >= 0;
  return better(lane_score(&product->m.dim[m], lanes), lane_score(&product->n.dim[n], lanes),
                &product->m.dim[m], &product->n.dim[n]);
}

static bool has_some(const Type *type, const ProductDims *dims) {
  for (int i = 0; i < dims->count; i++)
    if (type_find(type, dims->dim[i].dim) >= 0) return true;
  return false;
}

/* Values that the epilogue reads and writes for each sum. */
static void find_elements(Product *product, const Fn *fn) {
  for (uint32_t i = 0; i < fn->args.n; i++) {
    const Type *type = value_type(fn, fn->args.at[i]);
    if (i == product->arg_a || i == product->arg_b || !has_some(type, &product->m) ||
        !has_some(type, &product->n))
      continue;
    if (product->elements < PRODUCT_ELEMENTS) product->element[product->elements] = i;
    product->elements++;
  }
  for (uint32_t i = 0; i < fn->results.n; i++)
    product->results += fn->results.at[i] != product->sum && fn->results.at[i] != product->columns;
}

Product product_of(const Fn *kernel, int lanes) {
  Product product = {.dot = find_dot(kernel), .place = attr_str(&kernel->attrs, ATTR_skips, NULL)};
  const Op *dot = &kernel->ops.at[product.dot];
  product.value = dot->out;
  ValueId value = source_of(kernel, dot->in[0]), b = source_of(kernel, dot->in[1]);
  product.arg_a = find_arg(kernel, value), product.arg_b = find_arg(kernel, b);
  product.elem_a = value_type(kernel, value)->elem, product.elem_b = value_type(kernel, b)->elem;
  product.compute = value_type(kernel, dot->in[0])->elem;
  product.codes = kernel_codes(kernel, product.arg_a, &(Codes){0});
  if (product.codes) product.elem_a = product.elem_b = ELEM_u8;
  classify(&product, kernel, dot);
  join_dims(&product, kernel, &product.batch), join_dims(&product, kernel, &product.m);
  join_dims(&product, kernel, &product.n), join_dims(&product, kernel, &product.k);
  ValueId summed = find_sum(kernel, &product);
  bool swap = product.columns != NO_VALUE ? sums_n(&product, kernel)
              : product.sum == NO_VALUE   ? wants_swap(&product, lanes)
                                          : kernel->args.at[product.arg_b] != summed;
  if (swap) swap_sides(&product);
  sort_outward(&product.batch), sort_outward(&product.m), sort_outward(&product.n),
      sort_outward(&product.k);
  if (product.n.count) move_last(&product.n, best_lane(&product.n, lanes));
  if (product.m.count) move_last(&product.m, best_inner(&product.m, row_score));
  if (product.k.count) move_last(&product.k, best_inner(&product.k, k_score));
  for (int i = 0; product.place && i < product.k.count; i++)
    if (product.k.dim[i].dim == product.place) move_last(&product.k, i);
  count(&product.batch), count(&product.m), count(&product.n), count(&product.k);
  find_elements(&product, kernel);
  return product;
}

int64_t product_room(int64_t lines, int64_t sets, int64_t ways) {
  for (; sets > 1 && lines % 2 == 0; lines /= 2) sets /= 2;
  return sets * ways / 2;
}

bool product_rows_evict(const Product *product, int64_t rows) {
  if (!product_a_in_order(product) || !product->m.count) return false;
  int64_t row = product->m.dim[product->m.count - 1].a * elem_bytes(product->elem_a);
  return row % CACHE_LINE == 0 && rows > product_room(row / CACHE_LINE, FIRST_SETS, FIRST_WAYS);
}

bool product_sliced(const Product *product, const int64_t tile[TILE_COUNT]) {
  if (tile[TILE_PACK_B] != 1 || !product->n.count || !product->k.count || product->n.outer > 1 ||
      product->k.outer > 1)
    return false;
  return product->n.dim[product->n.count - 1].b == 1 ||
         (tile[TILE_DEPTH] == DEPTH_AMX && product->k.dim[product->k.count - 1].b == 1);
}

bool product_amx_in_place(const Product *product, const int64_t tile[TILE_COUNT]) {
  return product->elem_a == product->compute && product->k.count &&
         product->k.dim[product->k.count - 1].a == 1 && product->k.inner % DEPTH_AMX == 0 &&
         product->m.inner % tile[TILE_ROWS] == 0;
}

bool product_amx_fits(const Product *product, const int64_t tile[TILE_COUNT]) {
  int64_t rows = tile[TILE_ROWS], how = tile[TILE_PACK_A];
  bool in_place = !how && product_amx_in_place(product, tile);
  return product->compute == ELEM_bf16 && (rows == AMX_ROWS || rows == 2 * AMX_ROWS) &&
         tile[TILE_VECTORS] <= 2 && (tile[TILE_PACK_B] & ~PACK_SHARED) == 1 &&
         (in_place || (how & ~PACK_SHARED) == PACK_ROWS);
}

bool product_rows_b(const Product *product) {
  return product->n.count && product->n.outer == 1 && product->n.dim[product->n.count - 1].b == 1;
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

ProductPlan product_plan(const Product *product, int lanes, const int64_t tile[TILE_COUNT]) {
  ProductPlan plan = {.lanes = lanes};
  memcpy(plan.tile, tile, sizeof plan.tile);
  plan.vectors_inner = ceil_div(product->n.inner, lanes),
  plan.vectors = product->n.outer * plan.vectors_inner;
  plan.panels = ceil_div(plan.vectors, tile[TILE_VECTORS]);
  plan.width = plan.vectors / plan.panels, plan.wide = plan.vectors % plan.panels;
  plan.tiles_inner = ceil_div(product->m.inner, tile[TILE_ROWS]),
  plan.tiles = product->m.outer * plan.tiles_inner;
  plan.height = product->m.inner / plan.tiles_inner,
  plan.high = product->m.inner % plan.tiles_inner;
  plan.chunks = tile[TILE_BATCH] * tile[TILE_ROW] * tile[TILE_COLUMN];
  plan.steps = ceil_div(product->k.inner, tile[TILE_DEPTH]);
  plan.words = tile[TILE_DEPTH] == DEPTH_AMX ? DEPTH_AMX / 2 : 1;
  plan.k_outer_max = ceil_div(product->k.outer, tile[TILE_K_OUTER]);
  plan.k_inner_max = ceil_div(plan.steps, tile[TILE_K_INNER]);
  plan.tiles_max = ceil_div(plan.tiles, tile[TILE_ROW]),
  plan.panels_max = ceil_div(plan.panels, tile[TILE_COLUMN]);
  int64_t k = plan.k_outer_max * plan.k_inner_max * plan.words,
          block = tile[TILE_ROWS] * tile[TILE_VECTORS] * lanes * 4;
  bool partial = tile[TILE_K_OUTER] * tile[TILE_K_INNER] > 1;
  plan.pitch = (ceil_div(k, 32) * 2 + 1) * 16;
  plan.shared = tile[TILE_PACK_A] & PACK_SHARED;
  plan.shared_b = tile[TILE_PACK_B] & PACK_SHARED;
  plan.rows_a = (tile[TILE_PACK_A] & ~PACK_SHARED) == PACK_ROWS;
  int64_t column = plan.rows_a ? plan.pitch : k;
  plan_shared(product, &plan, column, k);
  if (tile[TILE_PACK_A] && !plan.shared)
    plan.a_bytes = round_up(plan.tiles_max * column * tile[TILE_ROWS] * 4, CACHE_LINE);
  plan.b_bytes =
      tile[TILE_PACK_B] == 1 ? round_up(k * tile[TILE_VECTORS] * lanes * 4, CACHE_LINE) : 0;
  if (product_sliced(product, tile)) plan.b_bytes *= 2;
  if (product->sum != NO_VALUE)
    plan.s_bytes = round_up(plan.panels_max * tile[TILE_VECTORS] * lanes * 4, CACHE_LINE);
  if (product->place) plan.e_bytes = round_up((plan.tiles_max + 1) * 8, CACHE_LINE);
  bool two = tile[TILE_DEPTH] == DEPTH_AMX; /* one may wait for its epilogue */
  plan.c_bytes =
      round_up(partial ? plan.tiles_max * plan.panels_max * block : block << two, CACHE_LINE);
  return plan;
}

int64_t product_rows_before(const Product *product, const ProductPlan *plan, int64_t tile) {
  int64_t outer = tile / plan->tiles_inner, at = tile % plan->tiles_inner;
  return outer * product->m.inner + at * plan->height + min_i64(at, plan->high);
}

int64_t product_vectors_before(const ProductPlan *plan, int64_t panel) {
  return panel * plan->width + min_i64(panel, plan->wide);
}
