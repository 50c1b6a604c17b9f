/* Copies between a GPU and its host, and kernels of the host, on clocks of their own: as the
   runtime does them (runtime/device/cuda_lanes.c). A part of lanes.c. */
#ifndef SHARDC_IR_LANES_HOST_H
#define SHARDC_IR_LANES_HOST_H
#include "machine.h"
#include "events.h"

enum { HOST_DOWN, HOST_KERNELS, HOST_UP, HOST_LANES, HOST_TOUCHES = 32 };

typedef struct HostLane {
  double free; /* when it has done what it was given */
  struct {
    const Event *event;
    double over;
  } touch[HOST_TOUCHES];
  int64_t n;
} HostLane;

typedef struct HostClocks {
  const Module *m;
  const Machine *x;
  const EventList *events;
  HostLane lane[HOST_LANES];
  double slot[2][MOVE_SLOTS];        /* down, up: when it is empty again */
  int64_t taken[2], slots[2], bytes; /* of a slot */
} HostClocks;

HostClocks host_clocks(const Module *m, const Machine *x, const EventList *events);
/* Of a move of so many bytes; `now`, and what is returned: the kernels' clock before and behind. */
double host_clock_move(HostClocks *clocks, const Event *event, double bytes, bool up, double now);
void host_clock_kernel(HostClocks *clocks, const Event *event, double seconds);
double host_clock_over(const HostClocks *clocks); /* all lanes have done */
/* Rounds are left out, in which the kernels' clock stands still here: `periods` of them, like the
   last one, in which that clock went on by `kernels`, and each lane's from `free`. A lane that was
   behind has caught up by what it did not do in them. */
void host_clock_skip(HostClocks *clocks, const double *free, double kernels, double periods);

#endif
