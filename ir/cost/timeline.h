/* The timeline of a rank's step, by the machine of the plan: kernels one after the other at the
   machine's peaks, and messages one after the other over its links, concurrently with the kernels
   while they are in flight (ir/schedule/events.h). It shows which part of the messages is hidden,
   and what the kernels wait for. */
#ifndef SHARDC_IR_LANES_H
#define SHARDC_IR_LANES_H
#include "machine.h"
#include "ir/schedule/events.h"

typedef struct LaneSpan { /* of the rounds that the list of events has */
  int axis;               /* of messages; -1: kernels; -1 - s: stream s (stream_order.h) */
  double from, to;        /* seconds */
  const Event *event;
} LaneSpan;

typedef struct LaneArrow { /* a token: the operation that ends first, the one that waits */
  int from, to;            /* lanes, as `axis` */
  double left, right;      /* seconds */
} LaneArrow;

typedef struct LaneBreak { /* rounds that are not drawn */
  double at;
  int64_t rounds;
} LaneBreak;

typedef struct Lanes {
  VEC(LaneSpan) span;
  VEC(LaneBreak) cut;
  VEC(LaneArrow) arrow;
  double shown;                             /* seconds that the spans take */
  double busy[MAX_MESH], exposed[MAX_MESH]; /* of a run: messages; what kernels wait for them */
  double slowed; /* factor by which kernels take longer, because the processors copy messages as
                    well */
  double away;   /* seconds in which the GPU waits for copies from and to the host, or for host
                    kernels */
} Lanes;

/* For the entry of the events; empty if the machine does not give its speed. */
Lanes lanes_of(const Module *m, const Machine *machine, const EventList *events);
/* For an entry after pass `memory`. */
Lanes plan_lanes(const Module *m, const Machine *machine, const Fn *entry);
/* Takes what is hidden out of a step's time, and adds what hiding costs. */
void lanes_hide(const Lanes *lanes, const Module *m, StepTime *step_time);

#endif
