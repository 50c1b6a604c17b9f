/* Streams, internal declarations: the loop over micro-batches (stream.c), cut in two
   (loop_split.c), and its backward half in two again (stream_weights.c), or in one for each chunk
   of layers, forward and backward (stream_chunks.c). */
#ifndef SHARDC_PASSES_STREAM_H
#define SHARDC_PASSES_STREAM_H
#include "ir/schedule/pipeline_schedule.h"
#include "passes/base/rebuild.h"

/* A loop split into two consecutive loops. The first does the ops of the body that `first` names,
   and all their dependences; the second does the rest. Values that the second reads from the first
   are stacked over the rounds. A carried value continues in the first loop if `early` says so,
   else in the second. */
typedef struct LoopSplit {
  Module *m;
  Fn *f;                /* where the new loops go */
  const Op *loop;       /* its callee is the body that is cut */
  const ValueId *in;    /* its operands in f */
  const bool *first;    /* by op of the body */
  const bool *early;    /* by carried operand; NULL: none */
  const char *names[2]; /* of the bodies, appended to the body's own */
  ValueId *out;         /* by result of the loop: its value in f */
  OpId made[2];         /* the loops in f */
} LoopSplit;

void loop_split(LoopSplit *split);

typedef struct Chunks { /* of the layers, on each stage */
  Module *m;
  Str dim;  /* that counts layers */
  int axis; /* of the stages */
  int64_t n;
} Chunks;

/* `body`, or an entry, with a loop of stages for each chunk. A carried sum is split into pieces if
   `split` says so: n arguments and results replace each of its. */
Fn *chunks_body(const Chunks *chunks, const Fn *body, const bool *split, uint32_t carry);
/* Is the carried value a sum over micro-batches of a result of a loop of stages? */
bool chunks_sum(const Fn *body, uint32_t carried);
ValueId chunks_join(const Chunks *chunks, Fn *f, const ValueId *piece, const Type *whole);
/* The loop over parts with such a body as one loop for each chunk, forward, then backward; `out` by
   its results. */
void chunks_parts(const Chunks *chunks, Fn *f, const Op *loop, const ValueId *in, ValueId *out);

/* In `step`: gradients of weights get a loop of their own after that of inputs. */
void stream_weights(Module *m, Fn *step);
#endif
