/* Measures how long the kernels of a GPU were stalled by messages (SHARDC_DEBUG=waited): the time
   that `plan` calls exposed. The kernel stream records an event before and one after each of its
   waits and each collective in it; nothing else is in between, so the time between the two events
   is the stall. Where an entry is recorded as a graph, the events are nodes of it
   (CU_EVENT_RECORD_EXTERNAL), so that every run of the graph records them anew. A run with more
   than MOST_WAITS waits reports no time. If the measurement is off, none of this is called. Must
   not: block the host, except in rt_cuda_waited, which is called after a run. */
#include "device_cuda.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_WAITS = 1 << 14, EXTERNAL = 1 };

struct CudaWaited {
  CUevent *at; /* in pairs: before, after; made when they are first needed */
  int64_t n;   /* waits of the run that is issued or recorded now, or of the last one */
  int64_t *of; /* by entry: of a run, as it was recorded last */
};

void rt_cuda_waited_open(Cuda *cuda, const rt_program *p) {
  CudaWaited *waited = rt_alloc(sizeof *waited);
  waited->at = rt_alloc(sizeof *waited->at * 2 * MOST_WAITS);
  waited->of = rt_alloc(sizeof *waited->of * (size_t)(p->nentries + 1));
  cuda->waited = waited;
}

void rt_cuda_waited_close(Cuda *cuda) {
  CudaWaited *waited = cuda->waited;
  for (int64_t i = 0; waited && i < 2 * MOST_WAITS; i++)
    if (waited->at[i]) cuda->api.cuEventDestroy(waited->at[i]);
  if (waited) free(waited->at), free(waited->of), free(waited);
  cuda->waited = NULL;
}

/* Called before the host issues an entry. */
void rt_cuda_waited_begin(const Cuda *cuda) {
  if (cuda->waited) cuda->waited->n = 0;
}

/* It did; or a graph of it runs, with the events that it was recorded with. */
void rt_cuda_waited_end(const Cuda *cuda, int entry, bool issued) {
  if (!cuda->waited) return;
  if (issued) cuda->waited->of[entry] = cuda->waited->n;
  else cuda->waited->n = cuda->waited->of[entry];
}

static void mark(const Cuda *cuda, int64_t i) {
  CudaWaited *waited = cuda->waited;
  if (!waited->at[i])
    rt_cuda_must(cuda, cuda->api.cuEventCreate(&waited->at[i], 0), "make an event");
  rt_cuda_must(
      cuda,
      cuda->api.cuEventRecordWithFlags(waited->at[i], cuda->stream, cuda->recording ? EXTERNAL : 0),
      "record an event");
}

void rt_cuda_stall_begin(const Cuda *cuda) {
  if (cuda->waited && cuda->waited->n < MOST_WAITS) mark(cuda, 2 * cuda->waited->n);
}

void rt_cuda_stall_end(const Cuda *cuda) {
  if (cuda->waited && cuda->waited->n < MOST_WAITS) mark(cuda, 2 * cuda->waited->n + 1);
  if (cuda->waited) cuda->waited->n++;
}

/* NaN: not known. */
double rt_cuda_waited(const Device *d) {
  const Cuda *cuda = d->inside;
  const CudaWaited *waited = cuda->waited;
  double seconds = 0;
  if (!waited || waited->n > MOST_WAITS) return NAN;
  rt_cuda_wait(cuda);
  for (int64_t i = 0; i < waited->n; i++) {
    float milliseconds = 0;
    CUresult e =
        cuda->api.cuEventElapsedTime(&milliseconds, waited->at[2 * i], waited->at[2 * i + 1]);
    rt_cuda_must(cuda, e, "read the time of an event");
    seconds += 1e-3 * (double)milliseconds;
  }
  return seconds;
}
