/* A collective as the runtime does it: blocks of rows in dense buffers (rt_collective of
   runtime/rt.h says the same in C). Host tables are written from it, and the interpreter in bytes
   moves its bytes by it. */
#ifndef SHARDC_IR_MESSAGE_H
#define SHARDC_IR_MESSAGE_H
#include "ir.h"

typedef struct Message {
  int64_t ways, count;           /* ranks; elements of a block */
  int64_t send_row, receive_row; /* of the buffers that hold a block of every rank */
} Message;

/* Of a collective of f, below pass `order`. */
Message message_of(const Fn *f, const Op *o);

/* Where element j of block i lies in a buffer with a block of every rank. */
int64_t message_at(const Message *m, int64_t row, int64_t i, int64_t j);
#endif
