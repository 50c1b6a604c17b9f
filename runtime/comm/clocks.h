/* The clocks of the ranks of a job against that of rank 0: see clocks.c. */
#ifndef SHARDC_RT_CLOCKS_H
#define SHARDC_RT_CLOCKS_H
#include "comm.h"

/* At `at` of this rank's own clock (rt_now), which is ahead of rank 0's by a number of seconds
   between low and high. */
typedef struct ClockBound {
  double at, low, high;
} ClockBound;

ClockBound rt_clock_bound(Comm *c); /* a call of all ranks */
/* The bound that follows from n meetings of rank 0 and another rank: for each rank the times of
   entering and leaving by its own clock. */
ClockBound rt_clock_of_meetings(const double (*first)[2], const double (*other)[2], int n);
/* How far this rank's clock is ahead at a time of its own, by what was found before and after. */
double rt_clock_ahead(const ClockBound *before, const ClockBound *after, double now);
/* No error of rt_clock_ahead is larger, as long as clocks run evenly. */
double rt_clock_error(const ClockBound *before, const ClockBound *after);
#endif
