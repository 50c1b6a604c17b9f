/* Recording for --trace and --profile. Every launch is timed by the caller; the pool notes when
   each worker was in the phase. Events go into a block made at the start, so that a step allocates
   nothing; when it is full, recording stops and the file says so. Must not: change what runs. */
#include "trace.h"
#include "runtime/base/file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EVENTS = 1 << 20, COPY = -1, ZERO = -2, STEP = -3, DATA = -4 };

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

Trace *rt_trace_open(const rt_program *program, const char *text, Fault *f) {
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
  trace->event = rt_alloc(sizeof *trace->event * MOST_EVENTS);
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
  if (trace->nevents < MOST_EVENTS) trace->event[trace->nevents++] = event;
  else trace->full = true;
}

/* One phase, and what every worker did in it. */
static double run_phase(Trace *trace, Pool *pool, int what, int phase, rt_chunk *run,
                        void *const *buffers, int64_t chunks) {
  for (int i = 0; i < trace->workers; i++) trace->span[i].chunks = 0;
  double start = rt_now();
  rt_pool_run(pool, run, buffers, chunks);
  double end = rt_now();
  for (int i = 0; trace->recording && i < trace->workers; i++)
    if (trace->span[i].chunks)
      record(trace, (TraceEvent){what, phase, i, trace->span[i].chunks, trace->span[i].start,
                                 trace->span[i].end});
  return end - start;
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
    r->seconds += run_phase(trace, pool, what, i, k->phase[i].run, buffers, k->phase[i].chunks);
  r->calls++, r->flop += k->flop, r->bytes += k->bytes;
}

void rt_trace_timed(Trace *trace, const rt_kernel *k, int phase, double seconds) {
  int what = number_of(trace, k);
  double end = rt_now();
  if (trace->recording)
    record(trace, (TraceEvent){what, phase, 0, k->phase[phase].chunks, end - seconds, end});
  trace->row[what].seconds += seconds;
  if (phase) return;
  trace->row[what].calls++, trace->row[what].flop += k->flop, trace->row[what].bytes += k->bytes;
}

void rt_trace_move(Trace *trace, Pool *pool, int what, rt_chunk *run, void *const *buffers,
                   int64_t chunks, double bytes) {
  TraceRow *r = &trace->row[trace->program->nkernels - 1 - what];
  r->seconds += run_phase(trace, pool, what, 0, run, buffers, chunks);
  r->calls++, r->bytes += bytes;
}

void rt_trace_step(Trace *trace, int64_t step) {
  trace->recording = trace->event && step >= trace->first && step <= trace->last;
  trace->step_start = rt_now();
}

void rt_trace_stepped(Trace *trace, int64_t step) {
  double end = rt_now();
  if (trace->recording) record(trace, (TraceEvent){STEP, (int)step, -1, 0, trace->step_start, end});
  trace->recording = false, trace->in_steps += end - trace->step_start, trace->steps++;
}

/* It was read while the step before ran. */
void rt_trace_data(Trace *trace, int64_t step, double start, double end, double waited) {
  int line = trace->workers ? trace->workers : 1;
  trace->reading += end - start, trace->for_data += waited;
  if (trace->event && step > trace->first && step - 1 <= trace->last)
    record(trace, (TraceEvent){DATA, (int)step, line, 0, start, end});
}

/* ---- the file ---- */

static const TraceRow *row_of(const Trace *trace, int what) {
  return &trace->row[what >= 0 ? what : trace->program->nkernels - 1 - what];
}

static void write_event(const Trace *trace, const TraceEvent *event, FILE *file) {
  fprintf(file, ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":",
          event->worker + 1, 1e6 * (event->start - trace->opened),
          1e6 * (event->end - event->start));
  if (event->what == STEP || event->what == DATA) {
    fprintf(file,
            event->what == STEP ? "\"step %d\",\"cat\":\"step\"}"
                                : "\"data of step %d\",\"cat\":\"data\"}",
            event->phase);
    return;
  }
  rt_json_write(file, row_of(trace, event->what)->name);
  fprintf(file,
          ",\"cat\":\"kernel\",\"args\":{\"phase\":%d,\"chunks\":%lld,\"source\":", event->phase,
          (long long)event->chunks);
  rt_json_write(file, row_of(trace, event->what)->source);
  fprintf(file, "}}");
}

bool rt_trace_write(Trace *trace, Fault *f) {
  char *text = NULL;
  size_t n = 0;
  if (!trace->event) return true;
  FILE *file = open_memstream(&text, &n);
  if (!file) return rt_fault(f, 701, "no memory for the trace");
  fprintf(file, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"model\":");
  rt_json_write(file, trace->program->model);
  fprintf(file, ",\"complete\":%s},\"traceEvents\":[", trace->full ? "false" : "true");
  fprintf(file, "\n{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"thread_name\",\"args\":{\"name\":"
                "\"steps\"}}");
  for (int i = 0; i < trace->workers; i++)
    fprintf(file,
            ",\n{\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":"
            "\"worker %d\"}}",
            i + 1, i);
  fprintf(file,
          ",\n{\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":"
          "\"data\"}}",
          (trace->workers ? trace->workers : 1) + 1);
  for (int64_t i = 0; i < trace->nevents; i++) write_event(trace, &trace->event[i], file);
  fprintf(file, "]}\n");
  fclose(file);
  bool ok = rt_write_file(trace->path, text, (int64_t)n, false, f);
  free(text), free(trace->event), trace->event = NULL;
  return ok;
}

/* ---- the table ---- */

static void rate(char out[16], double count, double seconds) {
  if (count > 0 && seconds > 0) snprintf(out, 16, "%.1f", 1e-9 * count / seconds);
  else snprintf(out, 16, "-");
}

static void print_row(const TraceRow *r, double all) {
  char flops[16], moved[16];
  rate(flops, r->flop, r->seconds), rate(moved, r->bytes, r->seconds);
  fprintf(stderr, "  %-36s%9lld%12.2f%7.1f%%%11.3f%10s%9s  %s\n", r->name, (long long)r->calls,
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
    fprintf(stderr, "  data: %.2f ms of reading beside the steps, %.2f ms waited for\n",
            1e3 * trace->reading, 1e3 * trace->for_data);
  free(done);
}

void rt_trace_close(Trace *trace) {
  if (!trace) return;
  free(trace->sorted), free(trace->number), free(trace->row), free(trace->span), free(trace->event),
      free(trace);
}
