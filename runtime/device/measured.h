/* The rates of a profiled training as a machine block, for the forecast of `plan`:
   machine measured { node .. reached products = .. }. All ranks measure, rank 0 writes. */
#ifndef SHARDC_RT_MEASURED_H
#define SHARDC_RT_MEASURED_H
#include "trace.h"

void rt_measured_open(Trace *trace, const Comm *c); /* at the start, of --profile */
void rt_measured_step(Trace *trace);                /* a step has ended */
/* A call of all ranks. The block, for free(), on rank 0; NULL: there were too few steps. */
char *rt_measured_text(const Trace *trace, Comm *c);
#endif
