/* How long the kernels of a GPU stood still for messages (SHARDC_DEBUG=waited): what `plan` calls
   exposed, measured.

   Around each wait of the kernels' stream, and around each collective that stands in it, the stream
   records an event before and one behind; nothing else is in between, so the time from one to the
   other is what it waited. Where an entry is recorded as a graph, the events are nodes of it
   (CU_EVENT_RECORD_EXTERNAL), so that every run of the graph records them anew. Of a run with more
   than MOST_WAITS waits no time is told. Off, none of this is called. Must not: let the host wait,
   but in rt_cuda_waited, which is asked behind a run. */
#include "device_cuda.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_WAITS = 1 << 14, EXTERNAL = 1 };

struct CudaWaited {
  CUevent *at; /* two by two: before, behind; made when they are first needed */
  int64_t n;   /* waits of the run that is issued or recorded now, or of the last one */
  int64_t *of; /* by entry: of a run, as it was recorded last */
};

void rt_cuda_waited_open(Cuda *c, const rt_program *p) {
  CudaWaited *x = rt_alloc(sizeof *x);
  x->at = rt_alloc(sizeof *x->at * 2 * MOST_WAITS);
  x->of = rt_alloc(sizeof *x->of * (size_t)(p->nentries + 1));
  c->waited = x;
}

void rt_cuda_waited_close(Cuda *c) {
  CudaWaited *x = c->waited;
  for (int64_t i = 0; x && i < 2 * MOST_WAITS; i++)
    if (x->at[i]) c->api.cuEventDestroy(x->at[i]);
  if (x) free(x->at), free(x->of), free(x);
  c->waited = NULL;
}

/* The host issues an entry from here on. */
void rt_cuda_waited_begin(const Cuda *c) {
  if (c->waited) c->waited->n = 0;
}

/* It did; or a graph of it runs, with the events that it was recorded with. */
void rt_cuda_waited_end(const Cuda *c, int entry, bool issued) {
  if (!c->waited) return;
  if (issued) c->waited->of[entry] = c->waited->n;
  else c->waited->n = c->waited->of[entry];
}

static void mark(const Cuda *c, int64_t i) {
  CudaWaited *x = c->waited;
  if (!x->at[i]) rt_cuda_must(c, c->api.cuEventCreate(&x->at[i], 0), "make an event");
  rt_cuda_must(c, c->api.cuEventRecordWithFlags(x->at[i], c->stream, c->recording ? EXTERNAL : 0),
               "record an event");
}

void rt_cuda_waits(const Cuda *c) {
  if (c->waited && c->waited->n < MOST_WAITS) mark(c, 2 * c->waited->n);
}

void rt_cuda_goes_on(const Cuda *c) {
  if (c->waited && c->waited->n < MOST_WAITS) mark(c, 2 * c->waited->n + 1);
  if (c->waited) c->waited->n++;
}

/* NaN: not known. */
double rt_cuda_waited(const Device *d) {
  const Cuda *c = d->inside;
  const CudaWaited *x = c->waited;
  double seconds = 0;
  if (!x || x->n > MOST_WAITS) return NAN;
  rt_cuda_wait(c);
  for (int64_t i = 0; i < x->n; i++) {
    float milliseconds = 0;
    CUresult e = c->api.cuEventElapsedTime(&milliseconds, x->at[2 * i], x->at[2 * i + 1]);
    rt_cuda_must(c, e, "read the time of an event");
    seconds += 1e-3 * (double)milliseconds;
  }
  return seconds;
}
