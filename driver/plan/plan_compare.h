/* The forecast of a step next to a measured one (plan_compare.c). */
#ifndef SHARDC_PLAN_COMPARE_H
#define SHARDC_PLAN_COMPARE_H
#include "plan_trace.h"

/* Fills measured->compared where the plan has a forecast; false: it is reported. */
bool plan_compare(const TraceReading *reading, Measured *measured);
#endif
