/* Operands of attention and attention_grad after q, k, v (and y, lse, dy), each at most once: a
   mask, which is a bool, and the sink, a float. */
#ifndef SHARDC_ATTENTION_OPERANDS_H
#define SHARDC_ATTENTION_OPERANDS_H
#include "ir.h"

uint32_t attention_fixed(const Op *attention);            /* number of the operands before those */
ValueId attention_mask(const Fn *f, const Op *attention); /* NO_VALUE: none */
/* A further score of each query, without a value: it takes its share of the softmax. Pass `sinks`
   removes it. */
ValueId attention_sink(const Fn *f, const Op *attention);
#endif
