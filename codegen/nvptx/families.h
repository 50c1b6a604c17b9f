/* The emitters of the GPU's kernel families, one file each. */
#ifndef SHARDC_NVPTX_FAMILIES_H
#define SHARDC_NVPTX_FAMILIES_H
#include "simt.h"

const KernelFamily *nvptx_family(const char *name); /* NULL: GPUs have none of that name yet */

void gpu_elem_emit(Emit *e);
void gpu_contract_emit(Emit *e);
void gpu_attention_emit(Emit *e);
void gpu_attention_grad_emit(Emit *e);
void gpu_row_emit(Emit *e);
void gpu_column_emit(Emit *e);
void gpu_scatter_emit(Emit *e);

#endif
