/* Operations outside of entries (background.def), which run while entries do. Each has a stream,
   and tokens: it waits for the latest operation of these names, and, with the name of a stream of
   the host's memory (ir/schedule/stream_order.h), for all that this stream was given. In a dump:

     background send on inputs after read, take

   Pass `streams` decides which there are and writes their tokens, pass `prove` checks them, and the
   runtime waits by them (rt_program.background). */
#ifndef SHARDC_IR_BACKGROUND_H
#define SHARDC_IR_BACKGROUND_H
#include "ir/support/diag.h"

typedef enum BackgroundOp {
#define BACKGROUND(name, stream, reads, writes, meaning) BACKGROUND_##name,
#include "background.def"
#undef BACKGROUND
  BACKGROUNDS
} BackgroundOp;

typedef struct Background { /* of a module, one row per operation */
  bool there;
  unsigned after;   /* 1 << BackgroundOp */
  unsigned streams; /* 1 << OpStream */
  Span span;        /* of its line, where it was read */
} Background;

#endif
