/* The rates of a profiled training as a machine block, for the forecast of `plan`:
   machine measured { node .. reached products = .. }. Rank 0 measures. */
#ifndef SHARDC_RT_MEASURED_H
#define SHARDC_RT_MEASURED_H
#include "trace.h"

void rt_measured_open(Trace *trace, const Comm *c); /* at the start, of --profile */
void rt_measured_step(Trace *trace);                /* a step has ended */
/* The block, for free(); NULL: there were too few steps. */
char *rt_measured_text(const Trace *trace);
#endif
