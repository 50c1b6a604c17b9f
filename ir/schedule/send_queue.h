/* Sends of a rank to its neighbours that have not been passed to the library yet: their slots, and
   the order in which they are passed (send_order.h). Pass `prove` and the runtime share this code.
   Each message of the rank, sent or received, has a place in its order; a send waits in its slot
   until it is the next one, and a send that joins waits until the next receive. Must not: know of
   an IR. */
#ifndef SHARDC_IR_SEND_QUEUE_H
#define SHARDC_IR_SEND_QUEUE_H
#include <stdbool.h>
#include <stdint.h>

typedef struct SendSlot {
  int64_t at;       /* in the order of the rank's messages */
  bool held, joins; /* held: not given yet */
} SendSlot;

typedef struct SendQueue { /* of one rank, from the start of an entry */
  SendSlot *slot;
  int64_t n;
  int64_t issued, given; /* messages that the program came to; that were passed on */
} SendQueue;

/* For the next send: the free one whose last was given first. */
static inline int64_t send_free_slot(const SendQueue *queue) {
  int64_t best = -1;
  for (int64_t i = 0; i < queue->n; i++)
    if (!queue->slot[i].held && (best < 0 || queue->slot[i].at < queue->slot[best].at)) best = i;
  return best;
}

static inline void send_hold(SendQueue *queue, int64_t slot, int64_t later, bool joins) {
  queue->slot[slot] = (SendSlot){queue->issued++ + later, true, joins};
}

/* Passes on the slot that is next; with `all`, also if it joins a receive; -1: none is next. */
static inline int64_t send_give(SendQueue *queue, bool all) {
  for (int64_t i = 0; i < queue->n; i++)
    if (queue->slot[i].held && queue->slot[i].at == queue->given && (all || !queue->slot[i].joins))
      return queue->given++, queue->slot[i].held = false, i;
  return -1;
}

static inline void send_receives(SendQueue *queue) { queue->issued++, queue->given++; }
#endif
