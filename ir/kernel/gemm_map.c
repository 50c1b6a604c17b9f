/* Operands of a product as bulk tensor copies see them; see tensor_map.h and GemmMap. Neighbouring
   dims that are one range in memory are one dim of the map, so that a tile of any of them, whole or
   not, is in one dim (gemm_flat), and its end is the end of that dim. */
#include "gpu_plan.h"
#include "ir/support/num.h"

/* Limits of cuTensorMapEncodeTiled. */
static const int64_t MOST_SIZE = (int64_t)1 << 32, MOST_STRIDE = ((int64_t)1 << 40) - 1;

static bool push(GemmMap *map, int of, int64_t size, int64_t stride, int64_t below, int64_t box) {
  int i = map->map.rank;
  if (i == MAP_RANK || size > MOST_SIZE) return false;
  if (stride > MOST_STRIDE / elem_bytes(map->map.elem)) return false;
  map->map.size[i] = size, map->map.stride[i] = stride * elem_bytes(map->map.elem);
  map->map.box[i] = box, map->of[i] = of, map->below[i] = below;
  map->map.rank++;
  return true;
}

/* box: elements of the innermost range that a copy brings; one of each other range. Only a batch
   may have no dims. */
static bool push_dims(GemmMap *map, const ProductDims *dims, bool side_b, int of, int64_t box) {
  int64_t below = 1;
  for (int last = dims->count - 1, first; last >= 0; last = first - 1) {
    int64_t stride = side_b ? dims->dim[last].b : dims->dim[last].a, size = dims->dim[last].size;
    for (first = last; first > 0; size *= dims->dim[--first].size)
      if ((side_b ? dims->dim[first - 1].b : dims->dim[first - 1].a) != stride * size) break;
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

int kernel_maps(const Module *m, const Fn *k, TensorMap out[KERNEL_MAPS]) {
  const Attr *tile = attr_get(&k->attrs, ATTR_tile);
  if (!tile || strcmp(attr_str(&k->attrs, ATTR_variant, ""), gemm_variant[GEMM_WGMMA])) return 0;
  if (strcmp(attr_str(&k->attrs, ATTR_family, ""), "contract") || tile->i != GEMM_COUNT ||
      tile->list[GEMM_BY] != BY_BULK)
    return 0;
  GpuProduct product = gpu_product_of(m, k, GEMM_MMA, INT64_MAX);
  GemmPlan plan = gpu_product_plan(&product, tile->list);
  for (int i = 0; i < KERNEL_MAPS; i++) {
    GemmMap map;
    if (!gemm_map(&product.p, &plan, i, &map)) bug("kernel %s: no map of an operand", k->name);
    out[i] = map.map;
  }
  return KERNEL_MAPS;
}
