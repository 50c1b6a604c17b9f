/* The kernel families as a table: one row per row of ir/kernel/families.def, each with its emitter
 * NAME_emit (one file each). */
#include "codegen/emit.h"

#define FAMILY(name, anchors, buffers, neighbours, devices, what) void name##_emit(Emit *e);
#include "ir/kernel/families.def"
#undef FAMILY

static const KernelFamily families[] = {
#define FAMILY(name, anchors, buffers, neighbours, devices, what) {#name, name##_emit},
#include "ir/kernel/families.def"
#undef FAMILY
};

const KernelFamily *x86_family(const char *name) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (!strcmp(families[i].name, name)) return &families[i];
  return NULL;
}
