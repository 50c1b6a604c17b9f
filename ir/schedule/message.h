/* A collective as the runtime does it: blocks of rows in dense buffers (rt_collective of
   runtime/rt.h says the same in C). Host tables are written from it, and the interpreter of placed
   values moves bytes by it.

   The whole value holds a block of every rank. Cut along its first dim in storage, the blocks are
   contiguous; cut along another one, each block is cut in rows, and row r of all blocks is
   contiguous. So the rows in order are the pieces that can be sent without a copy, `times` messages
   of some rows each.

   If a message has several rows and a library takes only contiguous blocks (communicators.def), the
   blocks are made contiguous in the op's `workspace`; an all-to-all exchange passes `piece`
   elements of each block at a time through it. The same holds for every message that is staged
   through the host, from a GPU over a communicator that works in host memory. */
#ifndef SHARDC_IR_MESSAGE_H
#define SHARDC_IR_MESSAGE_H
#include "ir/collective.h"

typedef struct Message {
  int64_t ways, count;             /* ranks; elements of a block, of each message */
  int64_t send_row, receive_row;   /* of the buffers that hold a block of every rank */
  int64_t times, rows;             /* messages; rows of a block, in all of them together */
  int64_t send_step, receive_step; /* elements from one message to the next */
  int64_t piece, pieces;           /* elements of a block that go at a time; how often */
  int64_t bytes;                   /* of what goes at a time: of its blocks together */
} Message;

/* For a collective of f, after pass `order`. */
Message message_of(const Fn *f, const Op *o);

/* For a send or receive: the coordinate, of n, of the peer of coordinate `at`; -1: none. */
int64_t hop_peer(const Op *o, int64_t at, int64_t n);

/* The position of element j of block i in a buffer with a block of every rank. */
int64_t message_at(const Message *message, int64_t row, int64_t i, int64_t j);

/* Bytes for the contiguous blocks of one message, as sent and as received; 0: they are
   contiguous. */
int64_t message_workspace(const Fn *f, const Op *o);
/* Does it go over a library that knows blocks end to end only? */
bool message_needs_line(const Module *m);
/* Does it go by way of the host, from a GPU? */
bool message_by_host(const Module *m);
/* Bytes of its larger buffer in host memory. */
int64_t message_host_bytes(const Fn *f, const Op *o);
/* The fewest messages of equal numbers of rows, none larger than `most` bytes if a row is not. */
int64_t message_fewest(int64_t rows, int64_t row_bytes, int64_t most);
#endif
