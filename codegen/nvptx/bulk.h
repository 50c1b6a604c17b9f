/* Vocabulary of kernels whose operands come, or whose results leave, by bulk tensor copies:
   mbarriers in shared memory, and copies of boxes of a tensor map. Instructions of sm_90.

   An mbarrier counts the arrivals of a phase, and bytes that copies have yet to bring. Its phases
   have parities 0, 1, 0, ..; to wait for a parity is to wait for the end of the phase that has it.
   So on a new mbarrier a wait for parity 1 does not wait. Places are byte offsets in dynamic shared
   memory (i32). */
#ifndef SHARDC_NVPTX_BULK_H
#define SHARDC_NVPTX_BULK_H
#include "warp.h"

void bulk_begin(Warp *w, LLVMValueRef signal, int arrivals); /* a new mbarrier, of one thread */
/* After the last bulk_begin, by the same thread: copies and, after a barrier of the CTA, other
   threads may use them. */
void bulk_begun(Warp *w);
void bulk_arrive(Warp *w, LLVMValueRef signal);
void bulk_expect(Warp *w, LLVMValueRef signal, int64_t bytes); /* and arrives */
void bulk_wait(Warp *w, LLVMValueRef signal, LLVMValueRef parity);
/* The box at these coordinates (i32, the contiguous dim first), whose bytes `signal` counts; rows
   of 128 bytes are swizzled. */
void bulk_copy(Warp *w, LLVMValueRef to, LLVMValueRef map, int rank, LLVMValueRef *at,
               LLVMValueRef signal);
/* The other way: from shared memory, whose bytes this thread, or others before a barrier, have
   fenced (warpgroup_publish). Copies up to bulk_leave_end are one group of this thread. */
void bulk_leave(Warp *w, LLVMValueRef map, int rank, LLVMValueRef *at, LLVMValueRef from);
void bulk_leave_end(Warp *w);
/* Until all but this many of the thread's last groups have read their bytes of shared memory, so
   that others can take their place; until all bytes have been written. */
void bulk_leave_read(Warp *w, int groups);
void bulk_leave_wait(Warp *w);
#endif
