/* Messages in flight on a GPU: a second stream, and events (docs/gpu.md).

   Where a program starts messages before it waits for them, or sends to neighbours, all its
   collectives go to a stream of their own, one after the other in the order of the program, the
   same on all ranks: so no two operations of NCCL can meet in different orders, whatever the
   kernels do. A start records an event behind what has been computed, makes the other stream wait
   for it, gives it the collective, and records another event behind that; a wait makes the stream
   of the kernels wait for that event. A graph that is recorded meanwhile takes both streams,
   joined, since every entry waits for all that it starts. A flight of several messages has the
   events of its first and its last one.

   The program says how many flights of a row are under way at once (rt_collective.flights); so many
   events it has, in turn.

   What is sent to a neighbour lies in a slot until it is taken; kernels go on, and only the next
   send waits for that. On a GPU a send waits for its receiver, and two stages that send to each
   other would for ever: so a send goes to NCCL in one group with the receive that this rank comes
   to next, and at once where another send comes next (rt_collective.alone, ir/send_pairs.h) or no
   receive is left in the entry. It goes before any collective over that axis, in which all meet.

   Must not: allocate, or let the host wait, after the start. */
#include "device_cuda.h"
#include <stdlib.h>

enum { NO_TIME = 2, LINE = 64 }; /* CU_EVENT_DISABLE_TIMING; bytes in front of the slot */

typedef struct RowFlights { /* of a row of the program's table */
  CUevent *over;
  int64_t messages, waited; /* started; flights that were waited for */
} RowFlights;

struct CudaFlights {
  CUstream stream;
  CUevent computed, over; /* over: of a collective that is waited for at once */
  RowFlights *row;
  CUdeviceptr slot;
  CUevent taken;              /* from the slot, of a send that went alone */
  const rt_collective *given; /* the send in the slot that waits for a receive */
  bool out;                   /* one that went alone is there */
  int64_t receives;           /* left in the entry */
};

static bool make_event(const Cuda *c, CUevent *e, Fault *f) {
  return rt_cuda_ok(c, c->api.cuEventCreate(e, NO_TIME), "make an event", f);
}

static bool has_neighbours(const rt_program *p) {
  for (int i = 0; i < p->ncollectives; i++)
    if (rt_is_hop(p->collectives[i].kind)) return true;
  return false;
}

bool rt_cuda_flights_open(Cuda *c, const rt_program *p, Fault *f) {
  if (!p->flies && !has_neighbours(p)) return true;
  CudaFlights *x = c->flights = rt_alloc(sizeof *x);
  x->row = rt_alloc(sizeof *x->row * (size_t)(p->ncollectives + 1));
  x->slot = c->word + LINE;
  if (!rt_cuda_ok(c, c->api.cuStreamCreate(&x->stream, 1), "make a stream for messages", f) ||
      !make_event(c, &x->computed, f) || !make_event(c, &x->over, f) ||
      !make_event(c, &x->taken, f))
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
  destroy(c, x->computed), destroy(c, x->over), destroy(c, x->taken);
  if (x->stream) c->api.cuStreamDestroy(x->stream);
  free(x->row), free(x);
  c->flights = NULL;
}

static void wait_on(const Cuda *c, CUstream to, CUevent e) {
  rt_cuda_must(c, c->api.cuStreamWaitEvent(to, e, 0), "wait for an event");
}

static void record(const Cuda *c, CUevent e, CUstream from) {
  rt_cuda_must(c, c->api.cuEventRecord(e, from), "record an event");
}

/* What `to` is given from here on comes behind what `from` has been given. */
static void put_behind(const Cuda *c, CUstream to, CUevent e, CUstream from) {
  record(c, e, from), wait_on(c, to, e);
}

/* ---- sends to neighbours ---- */

static void send_alone(const Cuda *c) {
  CudaFlights *f = c->flights;
  put_behind(c, f->stream, f->computed, c->stream);
  rt_nccl_neighbours(c->nccl, f->given, (void *)(uintptr_t)f->slot, NULL, NULL, f->stream);
  record(c, f->taken, f->stream);
  f->given = NULL, f->out = true;
}

/* All ranks of an axis meet in its collectives: what one of them still keeps may be missing. */
static void settle_axis(const Cuda *c, int axis) {
  if (c->flights->given && c->flights->given->axis == axis) send_alone(c);
}

static void empty_slot(const Cuda *c) {
  CudaFlights *f = c->flights;
  if (f->given) send_alone(c);
  if (f->out) wait_on(c, c->stream, f->taken);
  f->out = false;
}

/* Who has sent is left with 0. */
void rt_cuda_send(Device *d, const rt_collective *x, const void *from, void *to) {
  Cuda *c = d->inside;
  CudaFlights *f = c->flights;
  size_t bytes = (size_t)(x->count * rt_elem_bytes((int)x->elem));
  CUdeviceptr here = (CUdeviceptr)(uintptr_t)from, there = (CUdeviceptr)(uintptr_t)to;
  empty_slot(c);
  rt_cuda_must(c, c->api.cuMemcpyDtoDAsync(f->slot, here, bytes, c->stream), "copy what is sent");
  rt_cuda_must(c, c->api.cuMemsetD8Async(there, 0, bytes, c->stream), "fill with zeros");
  f->given = x;
  if (x->alone || !f->receives) send_alone(c);
}

void rt_cuda_receive(Device *d, const rt_collective *x, void *to) {
  Cuda *c = d->inside;
  CudaFlights *f = c->flights;
  if (f->given && f->given->axis != x->axis) send_alone(c);
  put_behind(c, f->stream, f->computed, c->stream);
  rt_nccl_neighbours(c->nccl, f->given, (void *)(uintptr_t)f->slot, x, to, f->stream);
  put_behind(c, c->stream, f->over, f->stream);
  f->given = NULL, f->out = false, f->receives--;
}

/* No receive comes of this one: what waited for it goes. */
void rt_cuda_pass(Device *d, const rt_collective *x) {
  const Cuda *c = d->inside;
  rt_nccl_pass(c->nccl);
  if (x->kind != RT_RECEIVE || !c->flights) return;
  settle_axis(c, x->axis);
  c->flights->receives--;
}

void rt_cuda_flights_begin(Device *d, const rt_entry *e) {
  const Cuda *c = d->inside;
  if (c->flights) c->flights->receives = e->receives;
}

void rt_cuda_flights_end(Device *d) {
  const Cuda *c = d->inside;
  if (!c->flights || (!c->flights->given && !c->flights->out)) return;
  rt_cuda_waits(c);
  empty_slot(c);
  rt_cuda_goes_on(c);
}

/* ---- collectives ---- */

static RowFlights *row_of(const Device *d, const rt_collective *x) {
  const Cuda *c = d->inside;
  return &c->flights->row[x - d->program->collectives];
}

void rt_cuda_start(Device *d, const rt_collective *x, const void *send, void *receive, void *work) {
  Cuda *c = d->inside;
  RowFlights *r = row_of(d, x);
  int64_t message = r->messages++, flight = message / x->times % x->flights;
  settle_axis(c, x->axis);
  if (message % x->times == 0) put_behind(c, c->flights->stream, c->flights->computed, c->stream);
  rt_nccl_collect(c->nccl, x, send, receive, work, c->flights->stream);
  if (message % x->times == x->times - 1) record(c, r->over[flight], c->flights->stream);
}

void rt_cuda_await(Device *d, const rt_collective *x) {
  Cuda *c = d->inside;
  RowFlights *r = row_of(d, x);
  wait_on(c, c->stream, r->over[r->waited++ % x->flights]);
}

void rt_cuda_collect_behind(Device *d, const rt_collective *x, const void *send, void *receive,
                            void *work) {
  Cuda *c = d->inside;
  CudaFlights *f = c->flights;
  settle_axis(c, x->axis);
  put_behind(c, f->stream, f->computed, c->stream);
  rt_nccl_collect(c->nccl, x, send, receive, work, f->stream);
  put_behind(c, c->stream, f->over, f->stream);
  f->out = false;
}
