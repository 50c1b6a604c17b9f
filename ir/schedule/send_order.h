/* The order in which a rank's messages to and from its neighbours are passed to a library of the
   device (communicators.def), where a send waits on the GPU for its receive, on one stream per
   rank.

   All ranks use one order: by the times at which receivers reach their messages, according to the
   table of the schedule (pipeline_schedule.h), with backward twice as long as forward. A receive is
   passed where the program reaches it; a send waits in a slot until all messages of its rank that
   precede it in the order have been passed (send_queue.h). So a message waits only for earlier
   ones, and ranks never wait for each other in a circle, neither in a line of stages nor in the
   ring of chunks.

   Messages of one time are passed to the library as one group, whose calls progress together: a
   send joins the receive of that time, as in Megatron-LM (`send_forward_recv_backward`). Rounds
   that do not take turns send in the order of the program: with the next receive, or at once if the
   next message is another send or there is none. Pass `prove` runs the resulting order. */
#ifndef SHARDC_IR_SEND_ORDER_H
#define SHARDC_IR_SEND_ORDER_H
#include "events.h"
#include "ir/ir.h"
#include "send_queue.h"

typedef struct SendPlace { /* of a send */
  int64_t later; /* number of messages by which it is passed later than the program reaches it;
                    below 0: before those that still wait */
  bool joins;    /* the receive after it */
} SendPlace;

typedef struct SendRun { /* that many sends, one after the other */
  int64_t n;
  SendPlace place;
} SendRun;

typedef VEC(SendRun) SendRuns;

typedef struct SendRow {
  const Op *op;
  const Fn *of;   /* whose op it is */
  SendRuns *runs; /* by stage, from the module's first one */
} SendRow;

typedef struct SendOrder {
  bool used;                /* a send waits for its receive */
  int64_t slots;            /* in which sends wait; 0: there are none */
  int64_t stages[MAX_MESH]; /* by axis: of the module */
  int64_t first[MAX_MESH];
  VEC(SendRow) rows; /* of sends that do not all go at once */
} SendOrder;

SendOrder send_order(const Module *m);
/* NULL: all go at once. */
const SendRuns *send_runs(const SendOrder *order, const Module *m, const Op *send, int64_t stage);
SendPlace send_place(const SendRuns *runs, int64_t k); /* of the k-th */
/* On a GPU: bytes of a slot; 0: nothing is sent. */
int64_t module_send_slot(const Module *m);
int64_t module_send_slots(const Module *m); /* how many */
#endif
