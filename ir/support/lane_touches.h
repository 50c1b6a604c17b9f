/* The number of latest operations of a lane between a GPU and its host whose bytes are remembered:
   the copy streams of the runtime wait for older ones through the oldest of these, and so do the
   clocks of a plan (ir/cost/timeline_host.c). */
#ifndef SHARDC_LANE_TOUCHES_H
#define SHARDC_LANE_TOUCHES_H

enum { LANE_TOUCHES = 128 };

#endif
