/* See kernel_params.h. */
#include "kernel_params.h"
#include "ir/kernel/tensor_map.h"
#include "ir/support/num.h"
#include "tests/gpu/ptx.h"

static PtxTensor tensor_of(const TensorMap *map, uint64_t at) {
  PtxTensor t = {.at = at, .rank = map->rank, .element_bytes = (int)elem_bytes(map->elem)};
  for (int i = 0; i < map->rank; i++) {
    t.size[i] = (uint64_t)map->size[i], t.box[i] = (uint32_t)map->box[i];
    if (i) t.stride[i - 1] = (uint64_t)map->stride[i];
  }
  return t;
}

const void *kernel_params(const Module *m, const Fn *k, const uint64_t *at, int n, int *bytes) {
  TensorMap map[KERNEL_MAPS];
  int maps = kernel_maps(m, k, map);
  int64_t from = maps ? round_up(8 * n, MAP_ALIGN) : 8 * n;
  char *block = arena_alloc(m->arena, (size_t)(from + maps * MAP_BYTES + MAP_ALIGN));
  block += -(uintptr_t)block % MAP_ALIGN;
  memcpy(block, at, sizeof *at * (size_t)n);
  for (int i = 0; i < maps; i++) {
    PtxTensor t = tensor_of(&map[i], at[map[i].buffer]);
    const char *wrong = ptx_tensor_map(block + from + i * MAP_BYTES, &t);
    if (wrong) bug("kernel %s: %s", k->name, wrong);
  }
  *bytes = (int)from + maps * MAP_BYTES;
  return block;
}
