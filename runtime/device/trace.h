/* Where time goes: --trace writes the kernels of some steps for Chrome's and Perfetto's viewers,
   --profile prints a table. Off, both cost one test of a pointer per launch. */
#ifndef SHARDC_RT_TRACE_H
#define SHARDC_RT_TRACE_H
#include "pool.h"

typedef struct TraceEvent {
  int what;   /* number of a kernel; -1 copy, -2 zero, -3 a step, -4 data of one */
  int phase;  /* of the kernel; of a step: its number */
  int worker; /* of a step: -1; of data: behind all workers */
  int64_t chunks;
  double start, end;
} TraceEvent;

typedef struct TraceRow { /* all launches of a kernel */
  const char *name, *source;
  int64_t calls;
  double seconds, flop, bytes;
} TraceRow;

typedef struct Trace {
  const rt_program *program;
  const rt_kernel **sorted; /* by address, to find numbers */
  int *number;
  TraceRow *row; /* kernels, then copies, zeros */
  JobSpan *span; /* per worker: of the phase that ran last */
  int workers;
  char path[RT_PATH]; /* of the trace, empty: none */
  int64_t first, last;
  bool recording, full;
  TraceEvent *event;
  int64_t nevents;
  double opened, in_steps, step_start;
  double reading, for_data; /* seconds: of reading data beside steps, of waiting for it */
  int64_t steps;
} Trace;

/* text: FILE or FILE:A..B, NULL: only the table. Steps count from 1. */
Trace *rt_trace_open(const rt_program *program, const char *text, Fault *f);
void rt_trace_workers(Trace *trace, Pool *pool); /* pool NULL: a GPU */
void rt_trace_launch(Trace *trace, Pool *pool, const rt_kernel *k, void *const *buffers);
/* The same where somebody else measured: no workers. */
void rt_trace_timed(Trace *trace, const rt_kernel *k, int phase, double seconds);
/* A copy (-1) or fill (-2) of so many bytes. */
void rt_trace_move(Trace *trace, Pool *pool, int what, rt_chunk *run, void *const *buffers,
                   int64_t chunks, double bytes);
void rt_trace_step(Trace *trace, int64_t step);    /* the step begins */
void rt_trace_stepped(Trace *trace, int64_t step); /* it ended */
/* The batch of that step was read from `start` to `end`, and then waited for. */
void rt_trace_data(Trace *trace, int64_t step, double start, double end, double waited);
bool rt_trace_write(Trace *trace, Fault *f); /* the file, once, if its steps are over */
void rt_trace_table(const Trace *trace);     /* on stderr */
void rt_trace_close(Trace *trace);
#endif
