/* Operands of attention by warpgroups as bulk tensor copies see them (tensor_map.h): the width,
   rows, and then each dim of heads. A box has the rows of a tile of columns and a panel of 64
   elements of the width, so that tiles of rows are some boxes below each other. */
#include "flash_gpu.h"
#include "gpu_lanes.h"

static bool push(FlashMap *map, const Fn *k, ValueId v, Str dim, int64_t box) {
  const Value *value = &k->values.at[v];
  int64_t size = type_size(&value->type, dim), stride = buffer_stride(k, v, dim);
  int i = map->map.rank;
  bool fits = i ? stride > 0 && stride * 2 % WGMMA_PIECE == 0 : stride == 1;
  if (i == MAP_RANK || !fits || stride * 2 >= MAP_STRIDE || size > MAP_SIZE) return false;
  map->map.size[i] = size, map->map.stride[i] = stride * 2, map->map.box[i] = box;
  map->dim[i] = dim;
  map->map.rank++;
  return true;
}

ValueId flash_operand(const Flash *flash, int i) {
  const ValueId of[] = {flash->q, flash->k, flash->v, flash->dy};
  return of[i];
}

static bool find_buffer(const Fn *k, ValueId v, uint32_t *buffer) {
  for (*buffer = 0; *buffer < k->args.n; ++*buffer)
    if (k->args.at[*buffer] == v) return true;
  return false;
}

bool flash_map(const Fn *k, const Flash *flash, int i, int64_t rows, FlashMap *out) {
  ValueId v = flash_operand(flash, i);
  const Type *type = value_type(k, v);
  bool keys = i == FLASH_OPERAND_K || i == FLASH_OPERAND_V;
  Str row = keys ? flash->key : flash->query;
  *out = (FlashMap){.map = {.elem = type->elem}};
  if (!find_buffer(k, v, &out->map.buffer) || !gpu_aligned(k, out->map.buffer)) return false;
  if (!push(out, k, v, flash->dim, WGMMA_K) || !push(out, k, v, row, rows)) return false;
  for (int a = 0; a < type->rank; a++) {
    const Axis *axis = &type->axis[a];
    bool head = axis->dim != flash->dim && axis->dim != row && axis->size > 1;
    if (head && !push(out, k, v, axis->dim, 1)) return false;
  }
  return true;
}

int flash_maps(const Fn *k, const int64_t *tile, TensorMap out[KERNEL_MAPS]) {
  Flash flash = flash_of(k);
  int n = flash.grad ? FLASH_OPERANDS : FLASH_OPERANDS - 1;
  if (!((tile[FLASH_GPU_COPY] - 1) & FLASH_COPY_BULK)) return 0;
  for (int i = 0; i < n; i++) {
    FlashMap map;
    if (!flash_map(k, &flash, i, tile[FLASH_GPU_COLUMNS], &map))
      bug("kernel %s: no map of operand %d", k->name, i);
    out[i] = map.map;
  }
  return n;
}
