/* One run of an entry on a rank, as a list of events in the order in which its host program issues
   them: kernels and copies, starts of messages, and waits. It is made after pass `memory`, so that
   every event says which bytes it touches. Pass `prove` shows on it that nothing in flight is
   touched and that ranks cannot wait for each other for ever; `plan` gives the events times.

   A loop is listed with as many rounds as it takes until everything repeats: the first ones until
   its rings are full, one period (after which rotating buffers come in the same order again), an
   event that says how many rounds are skipped, and the last ones. The skipped rounds repeat the
   period before them, so what holds for the list holds for the run. */
#ifndef SHARDC_IR_EVENTS_H
#define SHARDC_IR_EVENTS_H
#include "ir/ir.h"

typedef enum EventKind {
  EVENT_RUN,     /* a kernel, a move, or a copy that a store or a loop needs */
  EVENT_START,   /* a message is in flight from this event on */
  EVENT_END,     /* and has arrived */
  EVENT_COLLECT, /* both at once */
  EVENT_SKIP     /* `rounds` rounds like those since event `since`, `period` of them */
} EventKind;

typedef struct EventBytes {
  uint32_t space;   /* t: the entry's frame in tier t; TIERS + n: global n */
  int64_t from, to; /* from the first byte to the one after the last */
  const Value *of;  /* whose layout it is, NULL: all bytes between */
  bool written;
} EventBytes;

enum { NO_EVENT = UINT32_MAX, NO_ROUND = -1 };

typedef struct Event {
  EventKind kind;
  const Fn *f;
  OpId op;        /* of f; SKIP: the loop */
  int64_t round;  /* of the loop around it, the one for which a loop starts it; or NO_ROUND */
  uint32_t start; /* END: the event that started it; NO_EVENT: none has */
  uint32_t bytes, nbytes; /* in EventList.bytes; START: sent, received */
  int64_t rounds, period; /* SKIP */
  uint32_t since;
} Event;

typedef struct EventList {
  const Fn *entry;
  VEC(Event) at;
  VEC(EventBytes) bytes;
} EventList;

EventList events_of(const Module *m, const Fn *entry);
/* Stages of a pipeline run the same rounds in another order. `rank`: the rank whose events are
   listed; other axes have the coordinates of rank 0. `arena` holds the list: with many
   micro-batches it takes more memory than the module. */
EventList events_of_rank(const Module *m, const Fn *entry, int64_t rank, Arena *arena);
/* The same, for the bytes of the host and of parameters: rounds are skipped only in loops whose
   rounds all touch the same of these, with two periods of rounds before them and one after them.
   `every`: no rounds are skipped. */
EventList events_in_periods(const Module *m, const Fn *entry, int64_t rank, bool every,
                            Arena *arena);
/* Only its messages over one axis, of all rounds, without bytes. The previous contents of the list
   are dropped; its memory is used again. */
void messages_of_rank(const Module *m, const Fn *entry, int64_t rank, Str axis, EventList *list);
EventList events_in_order(const Module *m, const Fn *entry); /* also before `memory`: no bytes */
const Op *event_op(const Event *event);
bool event_sends(const Event *event); /* START or COLLECT */
/* Do both touch a byte? Exact for one with a layout and one without. */
bool bytes_meet(const EventBytes *a, const EventBytes *b);

#endif
