/* Kernel functions of attention and its gradient as text, for tests: shapes and masks in. */
#ifndef SHARDC_TEST_ATTENTION_TEXT_H
#define SHARDC_TEST_ATTENTION_TEXT_H
#include "harness.h"

typedef struct AttentionShape {
  int nq, nk; /* dims of q: batch dims, S, D; of k: some of them, T, D */
  const char *qdim[6], *kdim[6];
  int64_t qsize[6], ksize[6];
  int64_t queries, keys;
} AttentionShape;

/* A mask as text: arguments from value `arg`, ops from value `next`; the last op is the mask. */
typedef struct AttentionMask {
  const char *arguments, *ops;
  int values; /* how many values before the attention op come from it */
} AttentionMask;

/* Add kernel @k<i>, the attention, and @g<i>, its gradient. `together`: all gradients are one
   result. summed: this result, or the gradient of q, is also summed over its rows and its first
   `summed` dims of heads; -1: it is not. */
void attention_forward(Harness *h, int i, const char *elem, AttentionShape s, AttentionMask m);
void attention_backward(Harness *h, int i, const char *elem, AttentionShape s, AttentionMask m,
                        bool together, int summed);
#endif
