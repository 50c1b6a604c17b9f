/* Which buffers of a kernel share bytes with none on the other side, operands against results, so
   that their bytes may be read again, or early, while it runs. Pass `select` writes it, the
   verifier computes it again, code generation and the interpreter believe it. */
#ifndef SHARDC_APART_H
#define SHARDC_APART_H
#include "ir/ir.h"

/* Buffer i of k, arguments first, then results, then the workspace: by attribute `apart` or by its
   size. */
bool kernel_buffer_apart(const Fn *k, uint32_t i);

/* By function and buffer: true of one that shares bytes with none in any call of the module. */
bool *const *kernels_apart(const Module *m);

void kernels_mark_apart(Module *m); /* sets attribute `apart` of kernels, where sizes do not tell */
#endif
