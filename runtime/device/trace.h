/* Where time goes: --trace writes the kernels, turns and messages of some steps, of all ranks, for
   Chrome's and Perfetto's viewers; --profile prints a table. Off, both cost one test of a pointer
   per launch. */
#ifndef SHARDC_RT_TRACE_H
#define SHARDC_RT_TRACE_H
#include "runtime/comm/clocks.h"
#include "pool.h"

/* The kind of an event; a kernel has its number, from 0. */
enum { COPY = -1, ZERO = -2, STEP = -3, DATA = -4, TURN = -5, MESSAGE = -6, WAIT = -7 };

typedef struct TraceEvent {
  int what;
  int number;    /* phase of a kernel; a step; part of a turn; row of a message and a wait for it */
  int lane;      /* worker of a kernel; rt_turn_kind of a turn */
  int64_t count; /* chunks of a kernel; of a turn, the chunk of layers */
  double start, end;
} TraceEvent;

typedef struct TraceRow { /* all launches of a kernel */
  const char *name, *source;
  int64_t calls;
  double seconds, flop, bytes;
  double busy; /* seconds of a worker in chunks, in the mean of workers */
} TraceRow;

typedef struct Trace {
  const rt_program *program;
  const rt_kernel **sorted; /* by address, to find numbers */
  int *number;
  TraceRow *row; /* kernels, then copies, zeros */
  JobSpan *span; /* per worker: of the phase that ran last */
  double joined; /* seconds that phases would take if all workers had the mean speed */
  int workers;
  char path[RT_PATH]; /* of the trace, empty: none */
  int64_t first, last;
  _Atomic bool recording, full;
  TraceEvent *event;
  _Atomic int64_t nevents; /* asked for; also a thread that communicates asks */
  int64_t most;
  TraceEvent turn;   /* that has begun and not ended */
  bool in_turn;      /* there is one */
  ClockBound before; /* this rank's clock, when the run began */
  double opened, in_steps, step_start;
  const Comm *comm; /* of --profile, as the following (measured.c); else NULL */
  TraceRow *marked; /* rows, messages, steps and their seconds when the first steps were over */
  CommCount *sent;
  double marked_joined;
  int64_t marked_steps;
  double marked_seconds;
  double reading, for_data; /* seconds: of reading data during steps, of waiting for it */
  int64_t tokens;           /* that were read so */
  int64_t steps;
} Trace;

/* text: FILE or FILE:A..B, NULL: only the table. Steps count from 1. ranks: the number of ranks of
   the job. */
Trace *rt_trace_open(const rt_program *program, const char *text, int ranks, Fault *f);
void rt_trace_messages(Trace *trace, Comm *c); /* also what it communicates; a call of all ranks */
void rt_trace_workers(Trace *trace, Pool *pool); /* pool NULL: a GPU */
void rt_trace_launch(Trace *trace, Pool *pool, const rt_kernel *k, void *const *buffers);
/* The same where somebody else measured: no workers. */
void rt_trace_timed(Trace *trace, const rt_kernel *k, int phase, double seconds);
/* A copy (-1) or fill (-2) of a number of bytes. */
void rt_trace_move(Trace *trace, Pool *pool, int what, rt_chunk *run, void *const *buffers,
                   int64_t chunks, double bytes);
void rt_trace_step(Trace *trace, int64_t step);    /* the step begins */
void rt_trace_stepped(Trace *trace, int64_t step); /* it ended */
/* The batch of that step was read from `start` to `end`, and then waited for; tokens: of it. */
void rt_trace_data(Trace *trace, int64_t step, double start, double end, double waited,
                   int64_t tokens);
/* A turn begins (rt_abi.def). */
void rt_trace_turn(Trace *trace, rt_turn_kind kind, int chunk, int64_t part);
/* The file, once: rank 0 writes what all have recorded. A call of all ranks (trace_file.c). */
bool rt_trace_write(Trace *trace, Comm *c, Fault *f);
void rt_trace_table(const Trace *trace); /* on stderr */
void rt_trace_close(Trace *trace);
#endif
