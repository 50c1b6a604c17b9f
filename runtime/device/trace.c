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

static void read_steps(Trace *t, const char *text) {
  const char *colon = strrchr(text, ':');
  long long a, b;
  int used = 0;
  t->first = 2, t->last = 4; /* the first step also warms up */
  snprintf(t->path, sizeof t->path, "%s", text);
  if (!colon || sscanf(colon, ":%lld..%lld%n", &a, &b, &used) != 2 || colon[used]) return;
  t->first = a, t->last = b;
  t->path[colon - text] = 0;
}

Trace *rt_trace_open(const rt_program *p, const char *text, Fault *f) {
  Trace *t = rt_alloc(sizeof *t);
  t->program = p, t->opened = rt_now();
  size_t n = (size_t)p->nkernels;
  t->sorted = rt_alloc(sizeof *t->sorted * (n + 1)), t->row = rt_alloc(sizeof *t->row * (n + 2));
  for (size_t i = 0; i < n; i++) {
    t->sorted[i] = p->kernels[i];
    t->row[i] = (TraceRow){.name = p->kernels[i]->name, .source = p->kernels[i]->source};
  }
  t->row[n].name = "copy", t->row[n + 1].name = "fill with zeros";
  t->row[n].source = t->row[n + 1].source = "";
  qsort(t->sorted, n, sizeof *t->sorted, by_address);
  t->number = rt_alloc(sizeof *t->number * (n + 1));
  for (size_t i = 0; i < n; i++)
    t->number[(const rt_kernel **)bsearch(&p->kernels[i], t->sorted, n, sizeof *t->sorted,
                                          by_address) -
              t->sorted] = (int)i;
  if (!text) return t;
  read_steps(t, text);
  t->event = rt_alloc(sizeof *t->event * MOST_EVENTS);
  if (*t->path && t->first >= 1 && t->last >= t->first) return t;
  rt_fault(f, 103, "--trace takes FILE or FILE:A..B with steps from 1, not `%s`", text);
  return NULL;
}

void rt_trace_workers(Trace *t, Pool *p) {
  if (!p) return;
  t->workers = rt_pool_workers(p);
  t->span = rt_alloc(sizeof *t->span * (size_t)t->workers);
  rt_pool_watch(p, t->span);
}

/* ---- while it runs ---- */

static void record(Trace *t, TraceEvent e) {
  if (t->nevents < MOST_EVENTS) t->event[t->nevents++] = e;
  else t->full = true;
}

/* One phase, and what every worker did in it. */
static double run_phase(Trace *t, Pool *p, int what, int phase, rt_chunk *run, void *const *buffers,
                        int64_t chunks) {
  for (int i = 0; i < t->workers; i++) t->span[i].chunks = 0;
  double start = rt_now();
  rt_pool_run(p, run, buffers, chunks);
  double end = rt_now();
  for (int i = 0; t->recording && i < t->workers; i++)
    if (t->span[i].chunks)
      record(t, (TraceEvent){what, phase, i, t->span[i].chunks, t->span[i].start, t->span[i].end});
  return end - start;
}

static int number_of(const Trace *t, const rt_kernel *k) {
  const rt_kernel **at =
      bsearch(&k, t->sorted, (size_t)t->program->nkernels, sizeof *t->sorted, by_address);
  return at ? t->number[at - t->sorted] : 0;
}

void rt_trace_launch(Trace *t, Pool *p, const rt_kernel *k, void *const *buffers) {
  int what = number_of(t, k);
  TraceRow *r = &t->row[what];
  for (int i = 0; i < k->phases; i++)
    r->seconds += run_phase(t, p, what, i, k->phase[i].run, buffers, k->phase[i].chunks);
  r->calls++, r->flop += k->flop, r->bytes += k->bytes;
}

void rt_trace_timed(Trace *t, const rt_kernel *k, int phase, double seconds) {
  int what = number_of(t, k);
  double end = rt_now();
  if (t->recording)
    record(t, (TraceEvent){what, phase, 0, k->phase[phase].chunks, end - seconds, end});
  t->row[what].seconds += seconds;
  if (phase) return;
  t->row[what].calls++, t->row[what].flop += k->flop, t->row[what].bytes += k->bytes;
}

void rt_trace_move(Trace *t, Pool *p, int what, rt_chunk *run, void *const *buffers, int64_t chunks,
                   double bytes) {
  TraceRow *r = &t->row[t->program->nkernels - 1 - what];
  r->seconds += run_phase(t, p, what, 0, run, buffers, chunks);
  r->calls++, r->bytes += bytes;
}

void rt_trace_step(Trace *t, int64_t step) {
  t->recording = t->event && step >= t->first && step <= t->last;
  t->step_start = rt_now();
}

void rt_trace_stepped(Trace *t, int64_t step) {
  double end = rt_now();
  if (t->recording) record(t, (TraceEvent){STEP, (int)step, -1, 0, t->step_start, end});
  t->recording = false, t->in_steps += end - t->step_start, t->steps++;
}

/* It was read while the step before ran. */
void rt_trace_data(Trace *t, int64_t step, double start, double end, double waited) {
  int line = t->workers ? t->workers : 1;
  t->reading += end - start, t->for_data += waited;
  if (t->event && step > t->first && step - 1 <= t->last)
    record(t, (TraceEvent){DATA, (int)step, line, 0, start, end});
}

/* ---- the file ---- */

static const TraceRow *row_of(const Trace *t, int what) {
  return &t->row[what >= 0 ? what : t->program->nkernels - 1 - what];
}

static void write_event(const Trace *t, const TraceEvent *e, FILE *o) {
  fprintf(o,
          ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":", e->worker + 1,
          1e6 * (e->start - t->opened), 1e6 * (e->end - e->start));
  if (e->what == STEP || e->what == DATA) {
    fprintf(o,
            e->what == STEP ? "\"step %d\",\"cat\":\"step\"}"
                            : "\"data of step %d\",\"cat\":\"data\"}",
            e->phase);
    return;
  }
  rt_json_write(o, row_of(t, e->what)->name);
  fprintf(o, ",\"cat\":\"kernel\",\"args\":{\"phase\":%d,\"chunks\":%lld,\"source\":", e->phase,
          (long long)e->chunks);
  rt_json_write(o, row_of(t, e->what)->source);
  fprintf(o, "}}");
}

bool rt_trace_write(Trace *t, Fault *f) {
  char *text = NULL;
  size_t n = 0;
  if (!t->event) return true;
  FILE *o = open_memstream(&text, &n);
  if (!o) return rt_fault(f, 701, "no memory for the trace");
  fprintf(o, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"model\":");
  rt_json_write(o, t->program->model);
  fprintf(o, ",\"complete\":%s},\"traceEvents\":[", t->full ? "false" : "true");
  fprintf(o, "\n{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"thread_name\",\"args\":{\"name\":"
             "\"steps\"}}");
  for (int i = 0; i < t->workers; i++)
    fprintf(o,
            ",\n{\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":"
            "\"worker %d\"}}",
            i + 1, i);
  fprintf(o,
          ",\n{\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":"
          "\"data\"}}",
          (t->workers ? t->workers : 1) + 1);
  for (int64_t i = 0; i < t->nevents; i++) write_event(t, &t->event[i], o);
  fprintf(o, "]}\n");
  fclose(o);
  bool ok = rt_write_file(t->path, text, (int64_t)n, false, f);
  free(text), free(t->event), t->event = NULL;
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

void rt_trace_table(const Trace *t) {
  int n = t->program->nkernels + 2, shown = 0;
  double all = 0;
  bool *done = rt_alloc((size_t)n);
  for (int i = 0; i < n; i++) all += t->row[i].seconds;
  fprintf(stderr, "\n  %-36s%9s%12s%8s%11s%10s%9s  %s\n", "kernel", "calls", "total ms", "share",
          "ms/call", "GFLOP/s", "GB/s", "source");
  for (;; shown++) {
    int best = -1;
    for (int i = 0; i < n; i++)
      if (!done[i] && t->row[i].calls && (best < 0 || t->row[i].seconds > t->row[best].seconds))
        best = i;
    if (best < 0) break;
    done[best] = true;
    print_row(&t->row[best], all);
  }
  fprintf(stderr, "  %d kernels, %.2f ms", shown, 1e3 * all);
  if (t->steps)
    fprintf(stderr, "; %lld steps took %.2f ms, %.2f ms each", (long long)t->steps,
            1e3 * t->in_steps, 1e3 * t->in_steps / (double)t->steps);
  fprintf(stderr, "\n");
  if (t->reading > 0)
    fprintf(stderr, "  data: %.2f ms of reading beside the steps, %.2f ms waited for\n",
            1e3 * t->reading, 1e3 * t->for_data);
  free(done);
}

void rt_trace_close(Trace *t) {
  if (!t) return;
  free(t->sorted), free(t->number), free(t->row), free(t->span), free(t->event), free(t);
}
