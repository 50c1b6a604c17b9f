/* Operands and results as bulk tensor copies (TMA) see them: at most five dims, the contiguous one
   first, and the box that one copy brings or takes. The driver encodes such a description as 128
   bytes, which a kernel gets as parameters after its buffers (codegen/nvptx/phase.c,
   runtime/device/cuda/cuda_kernel.c).

   What does not exist in a dim is brought as zeros, and not taken. */
#ifndef SHARDC_TENSOR_MAP_H
#define SHARDC_TENSOR_MAP_H
#include "ir/ir.h"

enum { MAP_RANK = 5, MAP_BYTES = 128, MAP_ALIGN = 64, OPERAND_MAPS = 2, KERNEL_MAPS = 6 };

typedef struct TensorMap {
  uint32_t buffer; /* of the kernel: arguments, then results */
  Elem elem;
  int rank;
  int64_t size[MAP_RANK], stride[MAP_RANK], box[MAP_RANK]; /* elements; bytes; elements */
} TensorMap;

/* The maps of a kernel for a GPU; none, unless its attribute tile says so. */
int kernel_maps(const Module *m, const Fn *k, TensorMap out[KERNEL_MAPS]);
#endif
