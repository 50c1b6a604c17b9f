/* When a rank does what in a step, by the machine of the plan: kernels one after the other at the
   machine's peaks, messages one after the other over its links, beside the kernels where they fly
   (ir/schedule/events.h). What of them is hidden, and what the kernels wait for. */
#ifndef SHARDC_IR_LANES_H
#define SHARDC_IR_LANES_H
#include "machine.h"
#include "ir/schedule/events.h"

typedef struct LaneSpan { /* of the rounds that the list of events has */
  int axis;               /* -1: kernels */
  double from, to;        /* seconds */
  const Event *event;
} LaneSpan;

typedef struct LaneBreak { /* rounds that are not drawn */
  double at;
  int64_t rounds;
} LaneBreak;

typedef struct Lanes {
  VEC(LaneSpan) span;
  VEC(LaneBreak) cut;
  double shown;                             /* seconds that the spans take */
  double busy[MAX_MESH], exposed[MAX_MESH]; /* of a run: messages; what kernels wait for them */
  double slowed; /* by which kernels take longer, since the processors carry messages, too */
  double away;   /* in which the GPU waits for copies from and to the host, or kernels there */
} Lanes;

/* Of the entry of the events; nothing if the machine does not say how fast it is. */
Lanes lanes_of(const Module *m, const Machine *machine, const EventList *events);
/* Of an entry after pass `memory`. */
Lanes plan_lanes(const Module *m, const Machine *machine, const Fn *entry);
/* Takes what is hidden out of a step's time, and adds what hiding costs. */
void lanes_hide(const Lanes *lanes, const Module *m, StepTime *step_time);

#endif
