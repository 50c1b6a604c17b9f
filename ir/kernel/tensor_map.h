/* Operands and results as bulk tensor copies (TMA) describe them: at most five dims, the contiguous
   one first, and the box that one copy moves. The driver encodes a description as 128 bytes, which
   a kernel gets as parameters after its buffers (codegen/nvptx/phase.c,
   runtime/device/cuda/cuda_kernel.c).

   In a box that reaches beyond the size of a dim, a copy to shared memory fills the elements
   outside with zeros, and a copy from shared memory leaves them out. */
#ifndef SHARDC_TENSOR_MAP_H
#define SHARDC_TENSOR_MAP_H
#include "ir/ir.h"

enum { MAP_RANK = 5, MAP_BYTES = 128, MAP_ALIGN = 64, OPERAND_MAPS = 2, KERNEL_MAPS = 6 };

/* Limits of cuTensorMapEncodeTiled: elements of a dim, bytes from one to the next. */
static const int64_t MAP_SIZE = (int64_t)1 << 32, MAP_STRIDE = (int64_t)1 << 40;

typedef struct TensorMap {
  uint32_t buffer; /* of the kernel: arguments, then results */
  Elem elem;
  int rank;
  int64_t size[MAP_RANK], stride[MAP_RANK], box[MAP_RANK]; /* elements; bytes; elements */
} TensorMap;

/* The maps of a kernel for a GPU; none, unless its attribute tile says so. */
int kernel_maps(const Module *m, const Fn *k, TensorMap out[KERNEL_MAPS]);
#endif
