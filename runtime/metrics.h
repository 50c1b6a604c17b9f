/* metrics.jsonl, loss.svg and the progress line. */
#ifndef SHARDC_RT_METRICS_H
#define SHARDC_RT_METRICS_H
#include "runtime/base/base.h"

enum { HISTORY = 2048 };

typedef struct Curve { /* at most HISTORY points; each is the mean of `stride` values */
  int n, stride, pending;
  double sum, step[HISTORY], value[HISTORY];
} Curve;

typedef struct Metrics {
  int fd;           /* metrics.jsonl */
  int csv, events;  /* metrics.csv, a file of TensorBoard; -1: none */
  const char *logs; /* --log-as; NULL: neither */
  char path[RT_PATH];
  double best; /* smallest validation loss so far; infinite: none */
  Curve train, valid;
} Metrics;

typedef struct StepRecord { /* NaN: not known, left out */
  int64_t step, samples, tokens;
  double loss, valid_loss, lr, norm, milliseconds, waited; /* of these, for messages of ranks */
  double scale, overflows; /* of the loss; steps left out for its sake so far */
  double slowest,
      slower;     /* the rank with the longest step, its waits left out, and by how many ms */
  double counted; /* labels that counted, or the sum of their weights */
  bool skipped;   /* it was not finite and nothing of it was applied */
} StepRecord;

/* Opens metrics.jsonl in the run directory. Lines of later steps than `step` are dropped, others
   are read back; lines that cannot be read are dropped as well, and a note says what is missing.
   own: the run directory is that of the steps before. */
bool rt_metrics_open(Metrics *metrics, const char *run, int64_t step, bool own, Fault *f);
/* To a run directory made anew. */
bool rt_metrics_move(Metrics *metrics, const char *run, int64_t step, Fault *f);
void rt_metrics_close(Metrics *metrics);
bool rt_metrics_step(Metrics *metrics, const StepRecord *record, Fault *f); /* allocates nothing */
bool rt_metrics_picture(const Metrics *metrics, const char *run, const char *title, Fault *f);
bool rt_metrics_line(Bytes line,
                     StepRecord *record); /* one line of the file; false: not such a line */
typedef struct MetricsKept {
  int64_t bytes;                                /* of the lines that stay */
  int64_t damaged;                              /* lines that cannot be read */
  int64_t missing, first_missing, last_missing; /* steps without a line, up to `step` */
} MetricsKept;

/* Lines up to `step` into the curves and, unless NULL, end to end into `kept`. */
MetricsKept rt_metrics_read(Metrics *metrics, Bytes file, int64_t step, char *kept);
bool rt_metrics_sync(const Metrics *metrics, Fault *f); /* before a checkpoint counts on them */
char *rt_loss_svg(const Metrics *metrics, const char *title, size_t *n);
void rt_curve_add(Curve *c, double step, double value);

/* metrics_logs.c: the files of --log-as. step: the newest step of before. */
bool rt_logs_check(const char *list, Fault *f);
bool rt_logs_open(Metrics *metrics, const char *run, const char *list, int64_t step, Fault *f);
bool rt_logs_step(const Metrics *metrics, const StepRecord *record, Fault *f);
void rt_logs_close(Metrics *metrics);

/* metrics_port.c: the port of --metrics; NULL: f. */
typedef struct MetricsPort MetricsPort;
MetricsPort *rt_metrics_port(const char *place, const char *model, int ranks, int64_t steps,
                             Fault *f);
void rt_metrics_port_step(MetricsPort *port, const StepRecord *record); /* NULL: none */
void rt_metrics_port_close(MetricsPort *port);

typedef struct Meter {   /* the progress line on stderr */
  bool tty, quiet, open; /* open: an unfinished line is on the terminal */
  int64_t every, last_step;
  double last_time, last_print, rate; /* steps per second, smoothed */
  double valid;
  bool tokens;       /* the model has tokens; else it counts samples */
  int64_t per_step;  /* tokens, or samples */
  double flop, peak; /* of a step; of the machine, per second, 0: not known */
  double forecast;   /* seconds of a step, by the compiler; 0: not known */
} Meter;

void rt_meter_start(Meter *meter, bool quiet, int64_t every, int64_t step);
/* Prints when due; `last`: in any case. limit: seconds left by --max-time,
 * infinite if none. */
void rt_meter_step(Meter *meter, const StepRecord *record, int64_t steps, double limit, bool last);
void rt_meter_break(Meter *meter); /* ends an open line, so that other text can follow */
void rt_text_seconds(char out[32], double seconds);
#endif
