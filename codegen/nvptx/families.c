/* The kernel families that GPUs have, each with its emitter gpu_NAME_emit (one file each); the
   table of passes/tune/gpu.c says how they are cut. A family of ir/kernel/families.def that is
   missing in both cannot be compiled for a GPU yet, which `select` reports. */
#include "families.h"
#include <string.h>

static const KernelFamily families[] = {
    {"elem", gpu_elem_emit},
    {"row", gpu_row_emit},
    {"column", gpu_column_emit},
    {"scatter", gpu_scatter_emit},
    {"contract", gpu_contract_emit},
    {"attention", gpu_attention_emit},
    {"attention_grad", gpu_attention_grad_emit},
};

const KernelFamily *nvptx_family(const char *name) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (!strcmp(families[i].name, name)) return &families[i];
  return NULL;
}
