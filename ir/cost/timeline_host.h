/* Copies between a GPU and its host, and kernels of the host, on clocks of their own: as the
   copy streams of the runtime do them (runtime/device/). A part of timeline.c. */
#ifndef SHARDC_TIMELINE_HOST_H
#define SHARDC_TIMELINE_HOST_H
#include "timeline.h"
#include "ir/schedule/events.h"
#include "ir/schedule/stream_order.h"

typedef struct HostLane {     /* a stream */
  double free;                /* when it has done what it was given */
  double busy;                /* seconds in which it is busy; of downloads */
  double over[MOST_BACK + 1]; /* when its latest operations are done, by number */
  int64_t n, started;         /* its operations; those before this step */
} HostLane;

typedef struct HostAt { /* before an event */
  double free[STREAMS], busy[STREAMS];
  int64_t n[STREAMS];
} HostAt;

typedef struct HostClocks {
  const Module *m;
  const Machine *x;
  const EventList *events;
  Lanes *lanes;                      /* where spans and arrows go */
  HostLane lane[STREAMS];            /* `compute`: none */
  double slot[2][MOVE_SLOTS];        /* down, up: when it is empty again */
  int64_t taken[2], slots[2], bytes; /* of a slot */
  bool stays;                        /* the next step begins while streams have work to do */
} HostClocks;

HostClocks host_clocks(const Module *m, const Machine *x, const EventList *events);
/* A move of that many bytes; `now` and the result are the kernels' clock before and after it. */
double host_clock_move(HostClocks *clocks, const Event *event, double bytes, bool up, double now);
/* When the kernels may do what the event does: the uploads that it waits for are over. */
double host_clock_arrived(const HostClocks *clocks, const Event *event, double now);
void host_clock_kernel(HostClocks *clocks, const Event *event, double seconds);
double host_clock_over(const HostClocks *clocks); /* all lanes have done */
HostAt host_clock_at(const HostClocks *clocks);
/* Rounds are skipped, during which this clock does not advance the kernels: `periods` of them, like
   the last one, in which the kernels' clock advanced by `kernels`, and the lanes from `since`. A
   lane that was late has caught up by the work that it did not have in them; a lane with more work
   than the kernels is late. Downloads wait for the host only in the first rounds, if at all. */
void host_clock_skip(HostClocks *clocks, const HostAt *since, double kernels, double periods);
/* The next step begins: what was `seconds` is 0. */
void host_clock_shift(HostClocks *clocks, double seconds);

#endif
