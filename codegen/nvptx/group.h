/* Groups of threads that share the work of one row or column: a power of two of neighbours, within
   a warp or a whole CTA of warps. */
#ifndef SHARDC_NVPTX_GROUP_H
#define SHARDC_NVPTX_GROUP_H
#include "codegen/reduce.h"
#include "ir/kernel/gpu_tile.h"
#include "simt.h"

typedef struct GroupSum { /* one reduction's state in every thread */
  const Op *op;
  Elem elem; /* of the operand */
  LLVMValueRef state[2];
} GroupSum;

/* Joins the n states over the threads of each group; every thread has the results then, and the
   same bits every time. Groups of more than a warp are the whole CTA; they meet at one barrier, and
   exchange in shared memory from byte `at` on, GROUP_EXCHANGE bytes for each state, which nothing
   else in the phase uses. */
void group_join(Emit *e, int64_t threads, int64_t at, int n, GroupSum *sum);

/* A state in memory: its element type in memory, and stores and loads of it. */
void state_store(Emit *e, const GroupSum *s, int part, LLVMValueRef pointer, LLVMValueRef value);
LLVMValueRef state_load(Emit *e, const GroupSum *s, int part, LLVMValueRef pointer, int lanes);

/* The sum of x of all lanes of the warp up to the own one. */
LLVMValueRef group_sum_up_to(Emit *e, LLVMValueRef x);

#endif
