/* The size of a bucket of `zero` by the machine of the plan: a message of less than its links need
   spends its time on latency. For the driver. */
#ifndef SHARDC_IR_BUCKET_H
#define SHARDC_IR_BUCKET_H
#include "machine.h"

enum { BUCKET_LATENCY = 5 }; /* percent of its time, at most */

/* The time of a bucket's messages over the axes that the plan sums gradients over, of which the
   first are those of `zero`; nothing if the machine does not say. */
LinkTime bucket_time(const Module *m, double bytes);
/* The derived default of `bucket`. 0: use the default of the settings. */
int64_t bucket_default(const Module *m);
#endif
