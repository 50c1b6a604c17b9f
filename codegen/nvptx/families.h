/* The emitters of the GPU's kernel families, one file each. */
#ifndef SHARDC_NVPTX_FAMILIES_H
#define SHARDC_NVPTX_FAMILIES_H
#include "simt.h"

const KernelFamily *nvptx_family(const char *name); /* NULL: GPUs have none of that name yet */
void gpu_column_emit(Emit *e); /* row kernels are cut as columns where these are faster (row.c) */

#endif
