/* Times of operations outside of entries (ir/background.def): a part of timeline.c. */
#ifndef SHARDC_TIMELINE_BACKGROUND_H
#define SHARDC_TIMELINE_BACKGROUND_H
#include "timeline.h"

typedef struct BackgroundClocks {
  const Module *m;
  Lanes *lanes;
  bool streams;               /* the snapshot also waits for the streams of the host's memory */
  double takes, sends, keeps; /* seconds; 0: the program does not have it, or no rate is known */
  double sent;                /* when the inputs of the next step have arrived */
} BackgroundClocks;

BackgroundClocks background_clocks(const Module *m, const Machine *machine, const Fn *entry);
/* A step begins; the result is the kernels' clock after it has taken its inputs. */
double background_begin(BackgroundClocks *clocks, double now);
/* The kernels are done at `now`, the streams of the host's memory at `over`; the result is when the
   next step can begin. */
double background_end(BackgroundClocks *clocks, double now);
/* A save after the step. */
void background_save(BackgroundClocks *clocks, double now, double over);

#endif
