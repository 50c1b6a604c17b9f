/* In which order a rank's messages to and from its neighbours go to NCCL, where a send waits on the
   GPU for its receive, on one stream per rank.

   All ranks go by one order: that of the times at which receivers come to their messages, as the
   table of the schedule has them (pipeline_schedule.h), backward twice as long as forward. A
   receive goes where the program comes to it; a send waits in a slot until all messages of its
   rank that come
   before it in the order have gone (send_queue.h). So a message waits for earlier ones alone, and
   ranks never wait for each other in a circle, however they stand: neither in a line nor in the
   ring of chunks. What comes at one time is given to NCCL as one group, whose calls go on together:
   a send joins the receive of that time, as in Megatron-LM (`send_forward_recv_backward`). Rounds
   that do not take turns send in the order of the program: with the receive that comes next, or at
   once where another send does, or nothing. Pass `prove` runs what follows. */
#ifndef SHARDC_IR_SEND_ORDER_H
#define SHARDC_IR_SEND_ORDER_H
#include "events.h"
#include "ir/ir.h"
#include "send_queue.h"

typedef struct SendPlace { /* of a send */
  int64_t later; /* so many messages later than the program comes to it; below 0: before those that
                    still wait */
  bool joins;    /* the receive behind */
} SendPlace;

typedef struct SendRun { /* so many sends, one after the other */
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
  bool used;                /* the module's messages go over NCCL */
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
