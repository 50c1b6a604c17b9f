/* Sends to a neighbour over NCCL, where a send waits on the GPU for its receive. A rank that
   receives next gives both to NCCL as one group, whose calls go on together: so two stages that
   send to each other do not wait for ever, on one stream, with nothing beside it (docs/gpu.md). A
   send that another one follows somewhere, as on the first stage while its pipeline fills, goes
   alone and at once, and so does what is sent when no receive is left in the entry. */
#ifndef SHARDC_IR_SEND_PAIRS_H
#define SHARDC_IR_SEND_PAIRS_H
#include "ir.h"

typedef struct SendPairs {
  bool used;             /* the module's messages go over NCCL */
  VEC(const Op *) alone; /* sends; all others wait for the receive behind them */
} SendPairs;

SendPairs send_pairs(const Module *m);
bool send_is_alone(const SendPairs *pairs, const Op *send);
int64_t entry_receives(const Fn *f); /* in one run */
/* On a GPU: bytes in which the runtime keeps what is sent until it is; 0: nothing is. */
int64_t module_send_slot(const Module *m);
#endif
