/* Vocabulary of kernels whose warpgroups (four warps) have roles of their own: barriers of some of
   a CTA's threads, registers handed from one to another, products by wgmma. Instructions of sm_90a.

   Sums of wgmma are not complete before the wait: warpgroup_wait returns them, so that nothing that
   reads them can be moved before it. */
#ifndef SHARDC_WARPGROUP_H
#define SHARDC_WARPGROUP_H
#include "warp.h"

/* Barrier `id` (i32) of that many threads: `meet` waits for all of them; `arrive` does not wait. */
void warpgroup_meet(Warp *w, LLVMValueRef id, int threads);
void warpgroup_arrive(Warp *w, LLVMValueRef id, int threads);
/* Threads that copy leave registers to those that multiply: two of three warpgroups. */
void warpgroup_registers(Warp *w, bool multiplies);
/* Makes this thread's writes to shared memory visible to wgmma once a barrier is passed. */
void warpgroup_publish(Warp *w);

/* i32: where a piece of 16 bytes of a row is in a panel of 128 swizzled bytes of each row. */
LLVMValueRef warpgroup_piece(Warp *w, LLVMValueRef row, LLVMValueRef piece);
/* i64: an operand in shared memory at this offset (i32), in rows or panels of 128 swizzled bytes;
   panel: bytes from one panel of 64 to the next, where k is not contiguous. */
LLVMValueRef warpgroup_operand(Warp *w, LLVMValueRef offset, int64_t panel);

void warpgroup_begin(Warp *w); /* before the first product of a group */
/* sums (n / 2 f32 of a thread) += a b of 64 x n x 16, or = without `add` (i1). across: k is not
   what is contiguous in the operand. */
void warpgroup_multiply(Warp *w, Elem elem, const Registers *sums, LLVMValueRef a, bool a_across,
                        LLVMValueRef b, bool b_across, LLVMValueRef add);
/* The same of 64 x n x 32 codes of these formats (ir/eights.h), with k contiguous. */
void warpgroup_multiply_codes(Warp *w, const char *format_a, const char *format_b,
                              const Registers *sums, LLVMValueRef a, LLVMValueRef b,
                              LLVMValueRef add);
/* The same with a of 16 bits in four words of each thread, as sums leave it: two rows of eight in
   turn. */
void warpgroup_multiply_words(Warp *w, Elem elem, const Registers *sums, const LLVMValueRef a[4],
                              LLVMValueRef b, bool b_across, LLVMValueRef add);
void warpgroup_commit(Warp *w);
void warpgroup_wait(Warp *w, int groups, const Registers *sums);
void warpgroup_waited(Warp *w, const Registers *sums); /* others, complete since the last wait */
#endif
