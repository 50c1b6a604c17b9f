/* Recording for --trace and --profile. Every launch is timed by the caller; the pool notes when
   each worker was in the phase, the communicator when it worked on a message and when the main
   thread was blocked by one. Events go into a block made at the start, so that a step allocates
   nothing; when it is full, recording stops and the file says so. Must not: change what runs; write
   the file (trace_file.c). */
#include "trace.h"
#include "ir/support/num.h"
#include "measured.h"
#include "runtime/base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Events of all ranks together, which one of them holds as text; of one rank. */
enum { MOST_OF_ALL = 1 << 23, MOST_EVENTS = 1 << 20, LEAST_EVENTS = 1 << 14 };

static int by_address(const void *a, const void *b) {
  const rt_kernel *x = *(const rt_kernel *const *)a, *y = *(const rt_kernel *const *)b;
  return (x > y) - (x < y);
}

static void read_steps(Trace *trace, const char *text) {
  const char *colon = strrchr(text, ':');
  long long a, b;
  int used = 0;
  trace->first = 2, trace->last = 4; /* the first step also warms up */
  snprintf(trace->path, sizeof trace->path, "%s", text);
  if (!colon || sscanf(colon, ":%lld..%lld%n", &a, &b, &used) != 2 || colon[used]) return;
  trace->first = a, trace->last = b;
  trace->path[colon - text] = 0;
}

static int64_t most_events(int ranks) {
  int64_t most = MOST_OF_ALL / ranks;
  return most > MOST_EVENTS ? MOST_EVENTS : most < LEAST_EVENTS ? LEAST_EVENTS : most;
}

Trace *rt_trace_open(const rt_program *program, const char *text, int ranks, Fault *f) {
  Trace *trace = rt_alloc(sizeof *trace);
  trace->program = program, trace->opened = rt_now();
  size_t n = (size_t)program->nkernels;
  trace->sorted = rt_alloc(sizeof *trace->sorted * (n + 1)),
  trace->row = rt_alloc(sizeof *trace->row * (n + 2));
  for (size_t i = 0; i < n; i++) {
    trace->sorted[i] = program->kernels[i];
    trace->row[i] =
        (TraceRow){.name = program->kernels[i]->name, .source = program->kernels[i]->source};
  }
  trace->row[n].name = "copy", trace->row[n + 1].name = "fill with zeros";
  trace->row[n].source = trace->row[n + 1].source = "";
  qsort(trace->sorted, n, sizeof *trace->sorted, by_address);
  trace->number = rt_alloc(sizeof *trace->number * (n + 1));
  for (size_t i = 0; i < n; i++)
    trace->number[(const rt_kernel **)bsearch(&program->kernels[i], trace->sorted, n,
                                              sizeof *trace->sorted, by_address) -
                  trace->sorted] = (int)i;
  if (!text) return trace;
  read_steps(trace, text);
  trace->most = most_events(ranks);
  trace->event = rt_alloc(sizeof *trace->event * (size_t)trace->most);
  if (*trace->path && trace->first >= 1 && trace->last >= trace->first) return trace;
  rt_fault(f, 103, "--trace takes FILE or FILE:A..B with steps from 1, not `%s`", text);
  return NULL;
}

void rt_trace_workers(Trace *trace, Pool *pool) {
  if (!pool) return;
  trace->workers = rt_pool_workers(pool);
  trace->span = rt_alloc(sizeof *trace->span * (size_t)trace->workers);
  rt_pool_watch(pool, trace->span);
}

/* ---- while it runs ---- */

static void record(Trace *trace, TraceEvent event) {
  int64_t at = trace->nevents++;
  if (at < trace->most) trace->event[at] = event;
  else trace->full = true;
}

static void watch_message(void *watcher, int row, double from, double to, bool stood) {
  Trace *trace = watcher;
  if (trace->recording && row < trace->program->ncollectives)
    record(trace, (TraceEvent){stood ? WAIT : MESSAGE, row, 0, 0, from, to});
}

void rt_trace_messages(Trace *trace, Comm *c) {
  trace->before = rt_clock_bound(c);
  c->watch = watch_message, c->watcher = trace;
}

void rt_trace_turn(Trace *trace, rt_turn_kind kind, int chunk, int64_t part) {
  double now = rt_now();
  if (trace->in_turn) trace->turn.end = now, record(trace, trace->turn);
  trace->in_turn = trace->recording && kind != RT_TURN_NONE;
  trace->turn = (TraceEvent){TURN, (int)part, (int)kind, chunk, now, now};
}

/* One phase, and what every worker did in it. */
static void run_phase(Trace *trace, Pool *pool, int what, int phase, rt_chunk *run,
                      void *const *buffers, int64_t chunks, TraceRow *row) {
  for (int i = 0; i < trace->workers; i++) trace->span[i].chunks = 0;
  double start = rt_now();
  rt_pool_run(pool, run, buffers, chunks);
  double end = rt_now(), busy = 0;
  for (int i = 0; i < trace->workers; i++) {
    const JobSpan *span = &trace->span[i];
    if (!span->chunks) continue;
    busy += (span->end - span->start) / trace->workers;
    if (trace->recording)
      record(trace, (TraceEvent){what, phase, i, span->chunks, span->start, span->end});
  }
  row->seconds += end - start, row->busy += busy;
  if (chunks > 0) trace->joined += busy * share_longest(chunks, trace->workers);
}

static int number_of(const Trace *trace, const rt_kernel *k) {
  const rt_kernel **at = bsearch(&k, trace->sorted, (size_t)trace->program->nkernels,
                                 sizeof *trace->sorted, by_address);
  return at ? trace->number[at - trace->sorted] : 0;
}

void rt_trace_launch(Trace *trace, Pool *pool, const rt_kernel *k, void *const *buffers) {
  int what = number_of(trace, k);
  TraceRow *r = &trace->row[what];
  for (int i = 0; i < k->phases; i++)
    run_phase(trace, pool, what, i, k->phase[i].run, buffers, k->phase[i].chunks, r);
  r->calls++, r->flop += k->flop, r->bytes += k->bytes;
}

void rt_trace_timed(Trace *trace, const rt_kernel *k, int phase, double seconds) {
  int what = number_of(trace, k);
  double end = rt_now();
  if (trace->recording)
    record(trace, (TraceEvent){what, phase, 0, k->phase[phase].chunks, end - seconds, end});
  trace->row[what].seconds += seconds, trace->row[what].busy += seconds;
  if (phase) return;
  trace->row[what].calls++, trace->row[what].flop += k->flop, trace->row[what].bytes += k->bytes;
}

void rt_trace_move(Trace *trace, Pool *pool, int what, rt_chunk *run, void *const *buffers,
                   int64_t chunks, double bytes) {
  TraceRow *r = &trace->row[trace->program->nkernels - 1 - what];
  run_phase(trace, pool, what, 0, run, buffers, chunks, r);
  r->calls++, r->bytes += bytes;
}

void rt_trace_step(Trace *trace, int64_t step) {
  trace->recording = trace->event && step >= trace->first && step <= trace->last;
  trace->step_start = rt_now();
}

void rt_trace_stepped(Trace *trace, int64_t step) {
  double end = rt_now();
  if (trace->recording) record(trace, (TraceEvent){STEP, (int)step, 0, 0, trace->step_start, end});
  trace->recording = false;
  trace->in_steps += end - trace->step_start, trace->steps++;
  rt_measured_step(trace);
}

/* It was read while the step before ran. */
void rt_trace_data(Trace *trace, int64_t step, double start, double end, double waited,
                   int64_t tokens) {
  trace->reading += end - start, trace->for_data += waited, trace->tokens += tokens;
  if (trace->event && step > trace->first && step - 1 <= trace->last)
    record(trace, (TraceEvent){DATA, (int)step, 0, 0, start, end});
}

/* ---- the table ---- */

static void rate(char out[16], double count, double seconds) {
  if (count > 0 && seconds > 0) snprintf(out, 16, "%.1f", 1e-9 * count / seconds);
  else snprintf(out, 16, "-");
}

static void print_row(const TraceRow *r, double all) {
  char flops[16], moved[16];
  rate(flops, r->flop, r->seconds), rate(moved, r->bytes, r->seconds);
  rt_say(stderr, "  %-36s%9lld%12.2f%7.1f%%%11.3f%10s%9s  %s\n", r->name, (long long)r->calls,
         1e3 * r->seconds, all > 0 ? 100 * r->seconds / all : 0.0,
         1e3 * r->seconds / (double)r->calls, flops, moved, r->source);
}

void rt_trace_table(const Trace *trace) {
  int n = trace->program->nkernels + 2, shown = 0;
  double all = 0;
  bool *done = rt_alloc((size_t)n);
  for (int i = 0; i < n; i++) all += trace->row[i].seconds;
  fprintf(stderr, "\n  %-36s%9s%12s%8s%11s%10s%9s  %s\n", "kernel", "calls", "total ms", "share",
          "ms/call", "GFLOP/s", "GB/s", "source");
  for (;; shown++) {
    int best = -1;
    for (int i = 0; i < n; i++)
      if (!done[i] && trace->row[i].calls &&
          (best < 0 || trace->row[i].seconds > trace->row[best].seconds))
        best = i;
    if (best < 0) break;
    done[best] = true;
    print_row(&trace->row[best], all);
  }
  fprintf(stderr, "  %d kernels, %.2f ms", shown, 1e3 * all);
  if (trace->steps)
    fprintf(stderr, "; %lld steps took %.2f ms, %.2f ms each", (long long)trace->steps,
            1e3 * trace->in_steps, 1e3 * trace->in_steps / (double)trace->steps);
  fprintf(stderr, "\n");
  if (trace->reading > 0)
    fprintf(stderr, "  data: %.2f ms of reading during the steps, %.2f ms waited for",
            1e3 * trace->reading, 1e3 * trace->for_data);
  if (trace->reading > 0 && trace->tokens)
    fprintf(stderr, "; %.3g tokens/s", (double)trace->tokens / trace->reading);
  if (trace->reading > 0) fprintf(stderr, "\n");
  free(done);
}

void rt_trace_close(Trace *trace) {
  if (!trace) return;
  free(trace->marked), free(trace->sent);
  free(trace->sorted), free(trace->number), free(trace->row), free(trace->span), free(trace->event),
      free(trace);
}
