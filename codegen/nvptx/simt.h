/* Vocabulary in which kernels for GPUs are written, in addition to that of emit.h: the number of a
   thread, what it shares with its warp and its CTA, instructions that LLVM has no intrinsic for.

   A phase is a kernel: attribute `chunks` is its number of CTAs (grid x), `threads` the threads of
   a CTA (block x), `shared` the dynamic shared memory of a CTA in bytes. Synchronizing calls must
   be reached by all threads that they wait for; they are convergent, so that LLVM keeps them where
   they are. Shared memory is one block that families divide by byte offsets. */
#ifndef SHARDC_SIMT_H
#define SHARDC_SIMT_H
#include "codegen/emit.h"

enum { WARP = 32, GLOBAL_SPACE = 1, SHARED_SPACE = 3 };

/* Entries of attributes threads, chunks for this phase. */
int64_t simt_threads(Emit *e, int phase);
int64_t simt_ctas(Emit *e, int phase);

/* i32 numbers, their ranges known to LLVM */
LLVMValueRef simt_thread(Emit *e); /* in its CTA */
LLVMValueRef simt_cta(Emit *e);
LLVMValueRef simt_lane(Emit *e); /* thread % 32 */
LLVMValueRef simt_warp(Emit *e); /* thread / 32, the same register in the whole warp */
LLVMValueRef simt_i32(Emit *e, int64_t v);
LLVMValueRef simt_i32_like(Emit *e, LLVMValueRef x, int64_t v); /* with the lanes of x */
LLVMValueRef simt_f32_like(Emit *e, LLVMValueRef x, double v);
LLVMValueRef simt_index(Emit *e,
                        LLVMValueRef number); /* an i32 that is not negative, as e->index */

void simt_barrier(Emit *e); /* all threads of the CTA; shared and global writes are seen after it */
void simt_warp_barrier(Emit *e);

/* Shared memory: ptr addrspace(3) to the byte at this i32 offset. */
LLVMValueRef simt_shared_at(Emit *e, LLVMValueRef byte);

/* Exchange within a warp; all 32 lanes take part. x: 32-bit or 64-bit numbers, i1. */
LLVMValueRef simt_shuffle_xor(Emit *e, LLVMValueRef x, int mask);
LLVMValueRef simt_shuffle_up(Emit *e, LLVMValueRef x, int by); /* lanes below `by` keep theirs */
LLVMValueRef simt_shuffle_from(Emit *e, LLVMValueRef x, LLVMValueRef lane);
LLVMValueRef simt_ballot(Emit *e, LLVMValueRef bit); /* i32: bit n is that of lane n */

/* Machine code: $0, $1, .. are the results, then the arguments; constraints as LLVM writes them
   ("=r,r,l"). `pure`: no memory, no order: may be shared, moved, dropped; else it has effects, is
   convergent, and its constraints should name ~{memory} if it touches memory. */
LLVMValueRef simt_asm(Emit *e, const char *text, const char *constraints, LLVMTypeRef result, int n,
                      LLVMValueRef *args, bool pure);
/* A number that is read at this point, in machine code that LLVM does not look into: what is
   computed with it does not wait in registers from where the same was computed before. */
LLVMValueRef simt_read_now(Emit *e, LLVMValueRef number);
/* Machine intrinsics without overloads, such as llvm.nvvm.ex2.approx.ftz.f. */
LLVMValueRef simt_intrinsic(Emit *e, const char *name, int n, LLVMValueRef *args);

#endif
