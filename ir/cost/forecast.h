/* A forecast of a step's time: the walk of timeline.h over kernels and messages as programs reach
   them, in place of the peaks that they never exceed. */
#ifndef SHARDC_FORECAST_H
#define SHARDC_FORECAST_H
#include "step.h"

typedef struct PublishedRate { /* which the machine block does not give */
  const char *words;           /* node f16 */
  double value;                /* per second */
  bool flop;                   /* operations; else bytes */
} PublishedRate;
enum { MOST_PUBLISHED = 5 };

typedef struct Forecast {
  bool known;        /* the plan has a machine, and it can be told */
  const char *lacks; /* not known: the line of the machine that it lacks; NULL: the plan has none */
  const Arch *arch;
  Machine machine;
  int published;
  PublishedRate rate[MOST_PUBLISHED]; /* taken from the arch */
  const char *measured;               /* "products, launch": what the line `reached` gives; "" */
  PlanStep step;
} Forecast;

/* For the programs of a plan and an entry, as plan_step. */
Forecast plan_forecast(Module *const *programs, uint32_t n, const Fn *entry);
/* Seconds of the kernels of an entry without launches, in whole tiles without their ends: of a
   sample they take no longer in a larger micro-batch. */
double forecast_least(const Forecast *forecast, const Module *m, const Fn *entry);
#endif
