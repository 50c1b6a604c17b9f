/* Operands of attention and attention_grad after q, k, v (and y, lse, dy), in this order, each at
   most once: a mask, which is a bool; what dropout keeps, an int; a bias, a float that has K; the
   sink, a float without it. */
#ifndef SHARDC_ATTENTION_OPERANDS_H
#define SHARDC_ATTENTION_OPERANDS_H
#include "ir.h"

typedef enum AttentionRole {
  ATTENTION_MASK,
  ATTENTION_KEPT,
  ATTENTION_BIAS,
  ATTENTION_SINK
} AttentionRole;

uint32_t attention_fixed(const Op *attention); /* number of the operands before those */
AttentionRole attention_role(const Op *attention, const Type *operand); /* of one of those */
ValueId attention_mask(const Fn *f, const Op *attention);               /* NO_VALUE: none */
/* 1: the probability is kept and divided by 1 - drop, 0: it is dropped; sums of rows, and so the
   log-sum-exp, are those of all probabilities. */
ValueId attention_kept(const Fn *f, const Op *attention);
/* Added to the scores, after scale and cap. */
ValueId attention_bias(const Fn *f, const Op *attention);
/* A further score of each query, without a value: it takes its share of the softmax. Pass `sinks`
   removes it. */
ValueId attention_sink(const Fn *f, const Op *attention);
#endif
