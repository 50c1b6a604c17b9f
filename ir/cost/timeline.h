/* The timeline of a rank's step, by the machine of the plan: kernels one after the other at the
   machine's peaks, and messages one after the other over its links, concurrently with the kernels
   while they are in flight (ir/schedule/events.h). It shows which part of the messages is hidden,
   and what the kernels wait for. */
#ifndef SHARDC_IR_LANES_H
#define SHARDC_IR_LANES_H
#include "machine.h"
#include "ir/background.h"
#include "ir/schedule/stream_order.h"

/* Lanes have numbers: an axis of the mesh for its messages; below 0 the kernels, the streams of the
   host's memory, and the operations outside of entries that have a stream of their own. */
enum { LANE_KERNELS = -1, LANE_LOWEST = -(int)STREAMS - (int)BACKGROUNDS };
static inline int stream_lane(OpStream stream) { return LANE_KERNELS - (int)stream; }
int background_lane(BackgroundOp op);
const char *lane_name(const Module *m, int lane);

typedef struct LaneSpan { /* of the rounds that the list of events has */
  int axis;               /* its lane */
  double from, to;        /* seconds */
  const Event *event;
  const char *name; /* without an event: of an operation outside of entries */
} LaneSpan;

typedef struct LaneArrow { /* a token: the operation that ends first, the one that waits */
  int from, to;            /* lanes, as `axis` */
  double left, right;      /* seconds */
  bool before;             /* the first one is of the round, or the step, before */
} LaneArrow;

typedef struct LaneLoop { /* in lanes without times: one round of it */
  const Fn *body;
  int64_t rounds;
  int depth; /* loops around it */
  double from, to;
} LaneLoop;

typedef struct LaneBreak { /* rounds that are not drawn */
  double at;
  int64_t rounds;
} LaneBreak;

typedef struct Lanes {
  VEC(LaneSpan) span;
  VEC(LaneBreak) cut;
  VEC(LaneArrow) arrow;
  VEC(LaneLoop) loop;
  double shown;                             /* seconds that the spans take */
  double busy[MAX_MESH], exposed[MAX_MESH]; /* of a run: messages; what kernels wait for them */
  double slowed; /* factor by which kernels take longer, because the processors copy messages as
                    well */
  double away;   /* seconds in which the GPU waits for copies from and to the host, or for host
                    kernels */
  double sends, inputs; /* the copy of the next inputs; kernels wait for it, and for its move into
                           place */
  double snapshot;      /* a step that saves takes longer */
} Lanes;

/* For the entry of the events; empty if the machine does not give its speed. */
Lanes lanes_of(const Module *m, const Machine *machine, const EventList *events);
/* For an entry after pass `memory`. */
Lanes plan_lanes(const Module *m, const Machine *machine, const Fn *entry);
/* Without a machine: every operation takes one unit of time, loops have one round. For an entry
   after pass `streams` (timeline_order.c). */
Lanes lanes_in_order(const Module *m, const Fn *entry);
/* Takes what is hidden out of a step's time, and adds what hiding costs. */
void lanes_hide(const Lanes *lanes, const Module *m, StepTime *step_time);

#endif
