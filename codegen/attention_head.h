/* The head of attention that a kernel works on, and what its mask admits: the same on all targets
   (attention_head.c). */
#ifndef SHARDC_ATTENTION_HEAD_H
#define SHARDC_ATTENTION_HEAD_H
#include "emit.h"
#include "ir/kernel/attention_shape.h"

typedef struct AttentionHead {
  Emit *e;
  const Flash *f;
  LLVMValueRef shared, group; /* flat indexes of the head */
  bool reads;                 /* bounds of whole numbers in memory are read: see attention_head.c */
} AttentionHead;

Point attention_head_point(const AttentionHead *head); /* its indexes */

typedef struct MaskFacts {
  LLVMValueRef some, all; /* i1: a key may be admitted; all are, surely */
} MaskFacts;
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
