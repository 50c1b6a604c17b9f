/* Learning rates as IR: shared by optimizer.c and schedule_lr.c. */
#ifndef SHARDC_PASSES_OPTIMIZER_H
#define SHARDC_PASSES_OPTIMIZER_H
#include "passes/base/rebuild.h"

/* Scalar f64 ops on the number of the step. */
typedef struct RateSchedule {
  Module *m;
  Fn *f;
  ValueId t; /* @step as f64[], from 0 */
} RateSchedule;

RateSchedule schedule_begin(Module *m, Fn *f);
ValueId schedule_factor(RateSchedule *schedule); /* f64[]: the factor of the base rate */

ValueId schedule_number(RateSchedule *schedule, double value);
ValueId schedule_binary(RateSchedule *schedule, OpCode c, ValueId a, ValueId b);
/* A number that a run may change (runtime/overrides.c): a scalar named after its setting. */
ValueId schedule_setting(RateSchedule *schedule, Str key);
ValueId schedule_power(RateSchedule *schedule, double base, ValueId exponent);

#endif
