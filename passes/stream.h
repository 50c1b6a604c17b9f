/* Streams, inside: the loop over parts of the batch (stream.c), cut in two (stream_split.c). */
#ifndef SHARDC_PASSES_STREAM_H
#define SHARDC_PASSES_STREAM_H
#include "passes/internal.h"

/* A loop over parts of the batch, as two behind each other: all that `first`, an op of its body,
   asks for is done for every part in the first loop, the rest in the second. `out`: by result of
   the loop, its value in f. What goes from one to the other is stacked over the parts. */
typedef struct StreamSplit {
  Module *m;
  Fn *f;             /* where the new loops go */
  const Op *loop;    /* its callee is the body that is cut */
  const ValueId *in; /* its operands in f */
  OpId first;        /* of the body */
  ValueId *out;
} StreamSplit;

void stream_split(StreamSplit *s);
#endif
