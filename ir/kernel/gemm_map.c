/* Operands and results of a product as bulk tensor copies see them; see tensor_map.h and GemmMap.
   Neighbouring dims that are one range in memory are one dim of the map, so that a tile of any of
   them, whole or not, is in one dim (gemm_flat), and its end is the end of that dim. */
#include "gpu_plan.h"
#include "ir/codes.h"

static bool push(GemmMap *map, int of, int64_t size, int64_t stride, int64_t below, int64_t box) {
  int i = map->map.rank;
  if (i == MAP_RANK || size > MAP_SIZE) return false;
  if (stride > (MAP_STRIDE - 1) / elem_bytes(map->map.elem)) return false;
  map->map.size[i] = size, map->map.stride[i] = stride * elem_bytes(map->map.elem);
  map->map.box[i] = box, map->of[i] = of, map->below[i] = below;
  map->map.rank++;
  return true;
}

/* box: elements of the innermost range that a copy moves; one of each other range. Only a batch
   may have no dims. */
static bool push_dims(GemmMap *map, const ProductDims *dims, bool side_b, int of, int64_t box) {
  int64_t below = 1, size, stride;
  for (int last = dims->count - 1, first; last >= 0; last = first - 1) {
    first = gemm_range(dims, side_b, last, &size, &stride);
    if (!stride && of != OF_BATCH) return false;
    if (stride && !push(map, of, size, stride, below, below == 1 ? box : 1)) return false;
    if (stride) map->outermost[map->map.rank - 1] = first == 0;
    below *= size;
  }
  return dims->count > 0 || of == OF_BATCH;
}

int64_t gemm_bulk_bytes(const GemmSide *side) {
  return gemm_panels(side) * side->rows * side->pitch;
}

bool gemm_map(const Product *product, const GemmPlan *plan, bool side_b, GemmMap *out) {
  const GemmSide *side = side_b ? &plan->b : &plan->a;
  const ProductDims *mn = side_b ? &product->n : &product->m;
  *out = (GemmMap){.map = {.buffer = side_b ? product->arg_b : product->arg_a,
                           .elem = side_b ? product->elem_b : product->elem_a}};
  bool good = side->along_k ? push_dims(out, &product->k, side_b, OF_K, plan->tile[GEMM_K]) &&
                                  push_dims(out, mn, side_b, OF_MN, side->rows)
                            : push_dims(out, mn, side_b, OF_MN, WGMMA_K) &&
                                  push_dims(out, &product->k, side_b, OF_K, side->rows);
  return good && push_dims(out, &product->batch, side_b, OF_BATCH, 1);
}

/* The dims with the strides of that value in place of the left operand's. */
static ProductDims dims_in(const Fn *k, ValueId v, const ProductDims *dims) {
  ProductDims out = *dims;
  for (int i = 0; i < out.count; i++) out.dim[i].a = buffer_stride(k, v, out.dim[i].dim);
  return out;
}

static bool strides_fit(const TensorMap *map) {
  for (int i = 1; i < map->rank; i++)
    if (map->stride[i] % WGMMA_PIECE) return false;
  return map->stride[0] == elem_bytes(map->elem);
}

bool gemm_panel_map(const Fn *k, const Product *product, const GemmPlan *plan, uint32_t buffer,
                    GemmMap *out) {
  bool read = buffer < k->args.n;
  ValueId v = read ? k->args.at[buffer] : k->results.at[buffer - k->args.n];
  const Type *type = value_type(k, v);
  *out = (GemmMap){.map = {.buffer = buffer, .elem = type->elem}};
  if (!elem_is_half(type->elem) || kernel_codes(k, buffer, &(Codes){0}) || !gpu_aligned(k, buffer))
    return false;
  if (!type_same_dims(type, value_type(k, product->value))) return false;
  ProductDims rows = dims_in(k, v, &product->m), columns = dims_in(k, v, &product->n),
              batches = dims_in(k, v, &product->batch);
  /* a panel that begins anywhere is in one dim only if all columns are */
  int64_t stride, unit = plan->tile[GEMM_N] % WGMMA_LEAVE ? INT64_MAX : WGMMA_LEAVE;
  return gemm_flat(&columns, false, unit, &stride) &&
         gemm_flat(&rows, false, WGMMA_LEAVE_ROWS, &stride) &&
         push_dims(out, &columns, false, OF_N, WGMMA_LEAVE) &&
         push_dims(out, &rows, false, OF_MN, WGMMA_LEAVE_ROWS) &&
         push_dims(out, &batches, false, OF_BATCH, 1) && strides_fit(&out->map);
}

/* Maps of results, then of elements, from the n-th on. */
static int panel_maps(const GpuProduct *product, const GemmPlan *plan, int n,
                      TensorMap out[KERNEL_MAPS]) {
  const Fn *k = product->k;
  int results = product->p.results;
  for (int i = 0; i < results + product->p.elements; i++, n++) {
    uint32_t buffer = i < results ? k->args.n + (uint32_t)i : product->p.element[i - results];
    GemmMap map;
    if (n == KERNEL_MAPS || !gemm_panel_map(k, &product->p, plan, buffer, &map))
      bug("kernel %s: no map of buffer %u", k->name, buffer);
    out[n] = map.map;
  }
  return n;
}

int kernel_maps(const Module *m, const Fn *k, TensorMap out[KERNEL_MAPS]) {
  const Attr *tile = attr_get(&k->attrs, ATTR_tile);
  const char *family = attr_str(&k->attrs, ATTR_family, "");
  if (!tile || strcmp(attr_str(&k->attrs, ATTR_variant, ""), gemm_variant[GEMM_WGMMA])) return 0;
  if (!strncmp(family, "attention", strlen("attention")))
    return tile->i == FLASH_GPU_COUNT ? flash_maps(k, tile->list, out) : 0;
  if (strcmp(family, "contract") || tile->i != GEMM_COUNT || tile->list[GEMM_BY] == BY_THREADS)
    return 0;
  GpuProduct product = gpu_product_of(m, k, GEMM_MMA, INT64_MAX);
  GemmPlan plan = gpu_product_plan(&product, tile->list);
  GemmMap map;
  int n = 0;
  for (; n < OPERAND_MAPS; out[n++] = map.map)
    if (!gemm_map(&product.p, &plan, n, &map)) bug("kernel %s: no map of an operand", k->name);
  return tile->list[GEMM_BY] == BY_BULK_ALL ? panel_maps(&product, &plan, n, out) : n;
}
