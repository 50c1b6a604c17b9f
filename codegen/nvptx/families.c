/* The kernel families of GPUs as a table, each with its emitter gpu_NAME_emit (one file each): the
   rows of ir/kernel/families.def whose devices are BOTH. `select` reports the others as not
   implemented. */
#include "families.h"
#include <string.h>

#define DECLARE_BOTH(name) void gpu_##name##_emit(Emit *e);
#define DECLARE_CPU(name)
#define ROW_BOTH(name) {#name, gpu_##name##_emit},
#define ROW_CPU(name)

#define FAMILY(name, anchors, buffers, neighbours, devices, what) DECLARE_##devices(name)
#include "ir/kernel/families.def"
#undef FAMILY

static const KernelFamily families[] = {
#define FAMILY(name, anchors, buffers, neighbours, devices, what) ROW_##devices(name)
#include "ir/kernel/families.def"
#undef FAMILY
};

const KernelFamily *nvptx_family(const char *name) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (!strcmp(families[i].name, name)) return &families[i];
  return NULL;
}
