/* Lanes (ir/cost/timeline.h) as a picture: of `plan --html`, with times, and of `dump --format
   html`, without. */
#ifndef SHARDC_PLAN_TIMELINE_H
#define SHARDC_PLAN_TIMELINE_H
#include "ir/cost/timeline.h"
#include <stdio.h>

typedef struct LanesPicture {
  const Module *m;
  const Machine *machine; /* NULL: without times, one operation after the other */
  const Lanes *lanes;
} LanesPicture;

void lanes_svg(FILE *out, const LanesPicture *picture);
#endif
