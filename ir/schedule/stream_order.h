/* Streams of a program for a GPU whose host holds states or activations: `compute` runs kernels of
   the GPU, `down` copies to the host, `host` runs kernels and copies of the host, `up` copies to
   the GPU. A stream runs its operations in the order in which the host program issues them.

   Tokens order operations of different streams. A token of an op says how many operations of a
   stream S must be done before it, in one of two ways: all but the latest d that S was given, or n
   since the run of the entry began (0: all of the runs before; -2: all of these but 2). In a loop
   the number may depend on the round: number + step * round. So one token holds for all rounds of
   all loops around the op: the first way where its operations are a fixed distance away, the second
   where they were done before the loops began. It may hold for the rounds first .. last alone.
   Attributes are lists [number, step, first, last, 1], whose end may be missing, with 1 for the
   second way: `after_down`, `after_host`, `after_up` for the op's own stream, and
   `arrived`, for which `compute` waits: a number of uploads. Pass `streams` assigns them, pass
   `prove` checks them, `plan` gives times by them, and the runtime issues, records and waits by
   them. The runtime has events of the latest operations only, and waits for the oldest of these in
   place of older ones.

   Two more orders hold without a token, since copies go through slots of the GPU's memory: a
   download follows what `compute` was given before it, and `compute` goes on after an upload. A
   direct upload, to a parameter, uses no slot: it follows what `compute` was given before it, and
   `compute` goes on at once; what reads the parameter has the token `arrived`. Steps of a program
   with direct uploads overlap; in others `compute` waits at the end of an entry for all streams. */
#ifndef SHARDC_STREAM_ORDER_H
#define SHARDC_STREAM_ORDER_H
#include "events.h"

typedef enum OpStream { STREAM_compute, STREAM_down, STREAM_host, STREAM_up, STREAMS } OpStream;
enum { MOST_BACK = 1023 };

typedef struct StreamToken {
  bool waits, since_start; /* since_start: `number` counts from the start of the run */
  int64_t number, step;
  int64_t first, last; /* rounds; last < 0: all from `first` on */
} StreamToken;

typedef struct StreamTokens { /* of an op */
  StreamToken after[STREAMS]; /* for its own stream: those of other streams */
  StreamToken arrived;        /* for `compute`: uploads */
} StreamTokens;

typedef struct StreamEvent { /* an operation of a stream, or of `compute` */
  const Event *event;
  uint32_t op; /* of all ops of the module, by function */
  OpStream stream;
  bool direct;              /* an upload to a parameter */
  int64_t issued[STREAMS];  /* operations before it, also those of rounds that are not listed */
  int64_t started[STREAMS]; /* operations before the run of the entry */
  int64_t needs[STREAMS];   /* the operations of other streams that must be done before it */
  int64_t needs_arrived;    /* the uploads that must be done before `compute` goes on */
} StreamEvent;

typedef struct StreamOrder { /* the operations of an entry; if steps overlap, of two of its runs */
  const Fn *entry;
  int64_t rank;   /* of its stage */
  EventList list; /* the events of these operations */
  VEC(StreamEvent) at;
} StreamOrder;

typedef struct StreamClock { /* when operation `number` of a stream is done, these are done */
  int64_t number, done[STREAMS];
} StreamClock;

typedef struct StreamClocks { /* while operations are issued, one after the other */
  Arena *arena;
  StreamClock now[STREAMS];
  VEC(StreamClock) issued[STREAMS];
} StreamClocks;

const char *stream_name(OpStream stream);
/* The stream of collectives in flight, which waits need no tokens for (flight.h). */
extern const char stream_messages[];
bool module_has_streams(const Module *m);
OpStream event_stream(const Module *m, const EventList *list, const Event *event);
/* An upload of a program in which steps overlap, to a parameter. */
bool event_to_parameter(const Module *m, const EventList *list, const Event *event);
int64_t module_most_back(const Module *m); /* of all tokens, in all rounds */
/* The number of the last operation that it waits for; 0: none. */
int64_t token_last(const StreamToken *token, int64_t round, int64_t issued, int64_t started);
StreamTokens op_tokens(const Op *o);
void op_drop_attr(Op *o, AttrKey key);
void op_set_tokens(Module *m, Op *o, OpStream stream, const StreamTokens *tokens);
OpStream
op_stream(const Op *o); /* as pass `streams` has written it; `compute`: nothing is written */
/* One per entry, and one for each of its stages whose rounds follow the schedule in another order;
   none for a program without streams. `every`: with all rounds of loops, instead of those that show
   all. */
typedef VEC(StreamOrder) StreamOrders;
StreamOrders stream_orders(const Module *m, bool every);
/* The same for the first stage of one entry; false: it has no streams. */
bool stream_order_of(const Module *m, const Fn *entry, StreamOrder *out);

typedef struct StreamNeed { /* an operation that must be done, and that nothing waits for */
  bool missing, arrived;    /* arrived: `compute` must wait for it */
  OpStream of;
  int64_t number;
} StreamNeed;

/* Waits by tokens. */
void clocks_wait(StreamClocks *clocks, const StreamEvent *event, const StreamTokens *tokens);
StreamNeed clocks_need(const StreamClocks *clocks, const StreamEvent *event);
/* Waits for just that operation. */
void clocks_meet(StreamClocks *clocks, const StreamEvent *event, const StreamNeed *need);
void clocks_issue(StreamClocks *clocks, const StreamEvent *event);
void clocks_begin(StreamClocks *clocks);
#endif
