/* The head of attention that a kernel works on, and what its mask admits: the same on all targets
   (attention_head.c). */
#ifndef SHARDC_ATTENTION_HEAD_H
#define SHARDC_ATTENTION_HEAD_H
#include "emit.h"
#include "ir/kernel/attention_shape.h"

/* Threads that share the reads: all of them have the result. */
typedef struct AttentionReaders {
  int64_t count;
  LLVMValueRef number;                                      /* i64: of this thread */
  LLVMValueRef (*join)(Emit *e, LLVMValueRef x, bool most); /* i32: the least or largest of all */
} AttentionReaders;

typedef struct AttentionHead {
  Emit *e;
  const Flash *f;
  LLVMValueRef shared, group; /* flat indexes of the head */
  bool reads;                 /* bounds of whole numbers in memory are read: see attention_head.c */
  const AttentionReaders *readers; /* who reads; NULL: one thread */
  const struct Bounds *side;       /* what attention_head_side found; NULL: nothing */
} AttentionHead;

Point attention_head_point(const AttentionHead *head); /* its indexes */

typedef struct MaskFacts {
  LLVMValueRef some, all; /* i1: a key may be admitted; all are, surely */
} MaskFacts;
/* Bounds of values that depend on the shared dims and lo .. hi - 1 of `dim` alone, made once before
   a loop over the other dim. */
const struct Bounds *attention_head_side(const AttentionHead *head, Str dim, LLVMValueRef lo,
                                         LLVMValueRef hi);
/* for queries q0 .. q1 - 1 and keys k0 .. k1 - 1 */
MaskFacts attention_head_facts(const AttentionHead *head, LLVMValueRef q0, LLVMValueRef q1,
                               LLVMValueRef k0, LLVMValueRef k1);
/* A score in units of log 2, capped, and the slope of the cap at it. */
typedef struct CappedScore {
  LLVMValueRef score, slope;
} CappedScore;
CappedScore attention_head_cap(const AttentionHead *head, LLVMValueRef score);
/* The factor of dropout on these queries' probabilities at a key, 0 or 1 / (1 - drop): <lanes x
   f32>. */
LLVMValueRef attention_head_kept(const AttentionHead *head, const Point *queries, LLVMValueRef key,
                                 int lanes);
/* The bias of these queries' scores at a key, if there is one, in units of log 2: <lanes x f32>. */
LLVMValueRef attention_head_bias(const AttentionHead *head, const Point *queries, LLVMValueRef key,
                                 int lanes);
/* Is a key admitted for these queries, if the head has a mask: <lanes x i1>. */
LLVMValueRef attention_head_admits(const AttentionHead *head, const Point *queries,
                                   LLVMValueRef key, int lanes);
#endif
