/* Messages in flight on a GPU: a second stream, and events (docs/gpu.md).

   Where a program starts messages before it waits for them, all its collectives go to a stream of
   their own, one after the other in the order of the program, the same on all ranks: so no two
   operations of NCCL can meet in different orders, whatever the kernels do. A start records an
   event behind what has been computed, makes the other stream wait for it, gives it the collective,
   and records another event behind that; a wait makes the stream of the kernels wait for that
   event. A graph that is recorded meanwhile takes both streams, joined, since every entry waits for
   all that it starts. A flight of several messages has the events of its first and its last one.

   The program says how many flights of a row are under way at once (rt_collective.flights); so many
   events it has, in turn. Must not: allocate, or let the host wait, after the start. */
#include "device_cuda.h"
#include <stdlib.h>

enum { NO_TIME = 2 }; /* CU_EVENT_DISABLE_TIMING */

typedef struct RowFlights { /* of a row of the program's table */
  CUevent *over;
  int64_t messages, waited; /* started; flights that were waited for */
} RowFlights;

struct CudaFlights {
  CUstream stream;
  CUevent computed, over; /* over: of a collective that is waited for at once */
  RowFlights *row;
};

static bool make_event(const Cuda *c, CUevent *e, Fault *f) {
  return rt_cuda_ok(c, c->api.cuEventCreate(e, NO_TIME), "make an event", f);
}

bool rt_cuda_flights_open(Cuda *c, const rt_program *p, Fault *f) {
  if (!p->flies) return true;
  CudaFlights *x = c->flights = rt_alloc(sizeof *x);
  x->row = rt_alloc(sizeof *x->row * (size_t)(p->ncollectives + 1));
  if (!rt_cuda_ok(c, c->api.cuStreamCreate(&x->stream, 1), "make a stream for messages", f) ||
      !make_event(c, &x->computed, f) || !make_event(c, &x->over, f))
    return false;
  for (int i = 0; i < p->ncollectives; i++) {
    int64_t n = p->collectives[i].flights;
    if (n) x->row[i].over = rt_alloc(sizeof(CUevent) * (size_t)n);
    for (int64_t k = 0; k < n; k++)
      if (!make_event(c, &x->row[i].over[k], f)) return false;
  }
  return true;
}

static void destroy(const Cuda *c, CUevent e) {
  if (e) c->api.cuEventDestroy(e);
}

void rt_cuda_flights_close(Cuda *c, const rt_program *p) {
  CudaFlights *x = c->flights;
  if (!x) return;
  for (int i = 0; i < p->ncollectives; i++) {
    for (int64_t k = 0; x->row[i].over && k < p->collectives[i].flights; k++)
      destroy(c, x->row[i].over[k]);
    free(x->row[i].over);
  }
  destroy(c, x->computed), destroy(c, x->over);
  if (x->stream) c->api.cuStreamDestroy(x->stream);
  free(x->row), free(x);
  c->flights = NULL;
}

/* What `to` is given from here on comes behind what `from` has been given. */
static void put_behind(const Cuda *c, CUstream to, CUevent e, CUstream from) {
  rt_cuda_must(c, c->api.cuEventRecord(e, from), "record an event");
  rt_cuda_must(c, c->api.cuStreamWaitEvent(to, e, 0), "wait for an event");
}

static RowFlights *row_of(const Device *d, const rt_collective *x) {
  const Cuda *c = d->inside;
  return &c->flights->row[x - d->program->collectives];
}

void rt_cuda_start(Device *d, const rt_collective *x, const void *send, void *receive, void *work) {
  Cuda *c = d->inside;
  RowFlights *r = row_of(d, x);
  int64_t message = r->messages++, flight = message / x->times % x->flights;
  if (message % x->times == 0) put_behind(c, c->flights->stream, c->flights->computed, c->stream);
  rt_nccl_collect(c->nccl, x, send, receive, work, c->flights->stream);
  if (message % x->times == x->times - 1)
    rt_cuda_must(c, c->api.cuEventRecord(r->over[flight], c->flights->stream), "record an event");
}

void rt_cuda_await(Device *d, const rt_collective *x) {
  Cuda *c = d->inside;
  RowFlights *r = row_of(d, x);
  CUevent over = r->over[r->waited++ % x->flights];
  rt_cuda_must(c, c->api.cuStreamWaitEvent(c->stream, over, 0), "wait for an event");
}

void rt_cuda_collect_behind(Device *d, const rt_collective *x, const void *send, void *receive,
                            void *work) {
  Cuda *c = d->inside;
  CudaFlights *f = c->flights;
  put_behind(c, f->stream, f->computed, c->stream);
  rt_nccl_collect(c->nccl, x, send, receive, work, f->stream);
  put_behind(c, c->stream, f->over, f->stream);
}
