/* Charts over steps as SVG (svg.c), and the page that compares runs (report.c). */
#ifndef SHARDC_RT_CHART_H
#define SHARDC_RT_CHART_H
#include "metrics.h"
#include <stdio.h>

typedef struct Series {
  const Curve *curve;
  const char *name, *colour;
  bool dots; /* few values, such as those of evaluations */
} Series;

void rt_chart(FILE *file, const char *title, const char *unit, const Series *series, int n);
void rt_put_escaped(FILE *file, const char *s); /* as text of HTML or SVG */

/* One HTML page about run directories, from their metrics.jsonl alone; needs nothing else to be
   looked at. */
/* Where each rank of a job that was lost was, by the files of its flight recorders; false: the
   folder has none (flight_report.c). */
bool rt_report_flights(FILE *out, const char *folder);
/* seconds: after which a browser reads the page again; 0: never */
bool rt_report(FILE *file, const char *const *folders, int n, int seconds, Fault *f);
#endif
