/* Lines of partial sums on a GPU: each CTA of a phase leaves one f32 per column and sum in the
   workspace, and a later phase adds up the lines in a fixed order (ir/kernel/gpu_lines.h has the
   sizes). Loads and stores of vectors of f32 are also for shared memory. */
#ifndef SHARDC_NVPTX_LINES_H
#define SHARDC_NVPTX_LINES_H
#include "codegen/emit.h"
#include "ir/kernel/gpu_lines.h"

/* Column `at` (of e->index) of line `line` of sum i. */
LLVMValueRef lines_at(Emit *e, const SumLines *lines, int i, LLVMValueRef line, LLVMValueRef at);
LLVMValueRef lines_load(Emit *e, LLVMValueRef pointer, int lanes);
void lines_store(Emit *e, LLVMValueRef pointer, LLVMValueRef x);

/* The phase that adds up the lines; `deliver` stores the sum of column `at` of sum i. */
typedef void LinesDeliver(void *state, int i, LLVMValueRef at, LLVMValueRef sum);
void lines_join(Emit *e, int phase, const SumLines *lines, LinesDeliver *deliver, void *state);

#endif
