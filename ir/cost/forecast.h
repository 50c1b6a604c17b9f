/* A forecast of a step's time: the walk of timeline.h over kernels and messages as programs reach
   them, in place of the peaks that they never exceed. */
#ifndef SHARDC_FORECAST_H
#define SHARDC_FORECAST_H
#include "step.h"

typedef enum RateUnit { RATE_FLOP, RATE_BYTES, RATE_SECONDS } RateUnit;

typedef struct PublishedRate { /* which the machine block does not give */
  const char *words;           /* node f16 */
  double value;                /* operations or bytes per second; seconds */
  RateUnit unit;
} PublishedRate;
enum { MOST_PUBLISHED = 6 };

/* By which a rate of a forecast is known. */
typedef enum RateSource {
  BY_RECORD,  /* tuning records of the same shapes */
  BY_NEAREST, /* .. of the nearest ones */
  BY_MACHINE, /* the line `reached` of the machine block */
  BY_MODEL,   /* attention_time.h: published rates of other kernels */
  BY_ARCH,    /* the row of arch.def, checked by runs */
  BY_GUESS,   /* .. checked by none */
  RATE_SOURCES
} RateSource;

typedef struct SourceOf { /* a part of a step, or several */
  const char *parts;      /* "products, over data"; "": none */
  double error;           /* expected */
} SourceOf;

typedef struct Forecast {
  bool known;        /* the plan has a machine, and it can be told */
  const char *lacks; /* not known: the line of the machine that it lacks; NULL: the plan has none */
  const Arch *arch;
  Machine machine;
  int published;
  PublishedRate rate[MOST_PUBLISHED]; /* taken from the arch */
  const char *measured;               /* "products, launch": what the line `reached` gives; "" */
  SourceOf source[RATE_SOURCES];
  double error; /* of the step: the mean of its parts by their seconds */
  PlanStep step;
} Forecast;

const char *source_key(RateSource source); /* record, nearest, machine, model, .. */
const char *source_words(Arena *arena, const Forecast *forecast, RateSource source);
/* A forecast with its machine alone (reach NULL: none); stages: the plan has several programs. */
Forecast forecast_machine(const Module *m, bool stages);
/* For the programs of a plan and an entry, as plan_step. */
Forecast plan_forecast(Module *const *programs, uint32_t n, const Fn *entry);
/* The machine of the plan with the latency between nodes that forecasts take, at its peaks: for
   choices by the links before there are programs. */
Machine forecast_links(const Module *m);
/* Makes a forecast's machine one for bounds: kernels have no launches and no ends of tiles, threads
   share them evenly, ranks do not wait for a slow one. So kernels take no longer for a sample in a
   larger micro-batch. */
void forecast_least(Machine *machine, Arch *whole);
#endif
