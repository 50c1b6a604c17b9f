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

static bool make_event(const Cuda *cuda, CUevent *e, Fault *f) {
  return rt_cuda_ok(cuda, cuda->api.cuEventCreate(e, NO_TIME), "make an event", f);
}

static bool has_neighbours(const rt_program *program) {
  for (int i = 0; i < program->ncollectives; i++)
    if (rt_is_hop(program->collectives[i].kind)) return true;
  return false;
}

bool rt_cuda_flights_open(Cuda *cuda, const rt_program *program, Fault *f) {
  if (!program->flies && !has_neighbours(program)) return true;
  CudaFlights *flights = cuda->flights = rt_alloc(sizeof *flights);
  flights->row = rt_alloc(sizeof *flights->row * (size_t)(program->ncollectives + 1));
  flights->slot = cuda->word + LINE;
  if (!rt_cuda_ok(cuda, cuda->api.cuStreamCreate(&flights->stream, 1), "make a stream for messages",
                  f) ||
      !make_event(cuda, &flights->computed, f) || !make_event(cuda, &flights->over, f) ||
      !make_event(cuda, &flights->taken, f))
    return false;
  for (int i = 0; i < program->ncollectives; i++) {
    int64_t n = program->collectives[i].flights;
    if (n) flights->row[i].over = rt_alloc(sizeof(CUevent) * (size_t)n);
    for (int64_t k = 0; k < n; k++)
      if (!make_event(cuda, &flights->row[i].over[k], f)) return false;
  }
  return true;
}

static void destroy(const Cuda *cuda, CUevent e) {
  if (e) cuda->api.cuEventDestroy(e);
}

void rt_cuda_flights_close(Cuda *cuda, const rt_program *program) {
  CudaFlights *flights = cuda->flights;
  if (!flights) return;
  for (int i = 0; i < program->ncollectives; i++) {
    for (int64_t k = 0; flights->row[i].over && k < program->collectives[i].flights; k++)
      destroy(cuda, flights->row[i].over[k]);
    free(flights->row[i].over);
  }
  destroy(cuda, flights->computed), destroy(cuda, flights->over), destroy(cuda, flights->taken);
  if (flights->stream) cuda->api.cuStreamDestroy(flights->stream);
  free(flights->row), free(flights);
  cuda->flights = NULL;
}

static void wait_on(const Cuda *cuda, CUstream to, CUevent e) {
  rt_cuda_must(cuda, cuda->api.cuStreamWaitEvent(to, e, 0), "wait for an event");
}

static void record(const Cuda *cuda, CUevent e, CUstream from) {
  rt_cuda_must(cuda, cuda->api.cuEventRecord(e, from), "record an event");
}

/* What `to` is given from here on comes behind what `from` has been given. */
static void put_behind(const Cuda *cuda, CUstream to, CUevent e, CUstream from) {
  record(cuda, e, from), wait_on(cuda, to, e);
}

/* ---- sends to neighbours ---- */

static void send_alone(const Cuda *cuda) {
  CudaFlights *flights = cuda->flights;
  put_behind(cuda, flights->stream, flights->computed, cuda->stream);
  rt_nccl_neighbours(cuda->nccl, flights->given, (void *)(uintptr_t)flights->slot, NULL, NULL,
                     flights->stream);
  record(cuda, flights->taken, flights->stream);
  flights->given = NULL, flights->out = true;
}

/* All ranks of an axis meet in its collectives: what one of them still keeps may be missing. */
static void settle_axis(const Cuda *cuda, int axis) {
  if (cuda->flights->given && cuda->flights->given->axis == axis) send_alone(cuda);
}

static void empty_slot(const Cuda *cuda) {
  CudaFlights *flights = cuda->flights;
  if (flights->given) send_alone(cuda);
  if (flights->out) wait_on(cuda, cuda->stream, flights->taken);
  flights->out = false;
}

/* Who has sent is left with 0. */
void rt_cuda_send(Device *d, const rt_collective *collective, const void *from, void *to) {
  Cuda *cuda = d->inside;
  CudaFlights *flights = cuda->flights;
  size_t bytes = (size_t)(collective->count * rt_elem_bytes((int)collective->elem));
  CUdeviceptr here = (CUdeviceptr)(uintptr_t)from, there = (CUdeviceptr)(uintptr_t)to;
  empty_slot(cuda);
  rt_cuda_must(cuda, cuda->api.cuMemcpyDtoDAsync(flights->slot, here, bytes, cuda->stream),
               "copy what is sent");
  rt_cuda_must(cuda, cuda->api.cuMemsetD8Async(there, 0, bytes, cuda->stream), "fill with zeros");
  flights->given = collective;
  if (collective->alone || !flights->receives) send_alone(cuda);
}

void rt_cuda_receive(Device *d, const rt_collective *collective, void *to) {
  Cuda *cuda = d->inside;
  CudaFlights *flights = cuda->flights;
  if (flights->given && flights->given->axis != collective->axis) send_alone(cuda);
  put_behind(cuda, flights->stream, flights->computed, cuda->stream);
  rt_nccl_neighbours(cuda->nccl, flights->given, (void *)(uintptr_t)flights->slot, collective, to,
                     flights->stream);
  put_behind(cuda, cuda->stream, flights->over, flights->stream);
  flights->given = NULL, flights->out = false, flights->receives--;
}

/* No receive comes of this one: what waited for it goes. */
void rt_cuda_pass(Device *d, const rt_collective *collective) {
  const Cuda *cuda = d->inside;
  rt_nccl_pass(cuda->nccl);
  if (collective->kind != RT_RECEIVE || !cuda->flights) return;
  settle_axis(cuda, collective->axis);
  cuda->flights->receives--;
}

void rt_cuda_flights_begin(Device *d, const rt_entry *e) {
  const Cuda *cuda = d->inside;
  if (cuda->flights) cuda->flights->receives = e->receives;
}

void rt_cuda_flights_end(Device *d) {
  const Cuda *cuda = d->inside;
  if (!cuda->flights || (!cuda->flights->given && !cuda->flights->out)) return;
  rt_cuda_waits(cuda);
  empty_slot(cuda);
  rt_cuda_goes_on(cuda);
}

/* ---- collectives ---- */

static RowFlights *row_of(const Device *d, const rt_collective *collective) {
  const Cuda *cuda = d->inside;
  return &cuda->flights->row[collective - d->program->collectives];
}

void rt_cuda_start(Device *d, const rt_collective *collective, const void *send, void *receive,
                   void *work) {
  Cuda *cuda = d->inside;
  RowFlights *r = row_of(d, collective);
  int64_t message = r->messages++, flight = message / collective->times % collective->flights;
  settle_axis(cuda, collective->axis);
  if (message % collective->times == 0)
    put_behind(cuda, cuda->flights->stream, cuda->flights->computed, cuda->stream);
  rt_nccl_collect(cuda->nccl, collective, send, receive, work, cuda->flights->stream);
  if (message % collective->times == collective->times - 1)
    record(cuda, r->over[flight], cuda->flights->stream);
}

void rt_cuda_await(Device *d, const rt_collective *collective) {
  Cuda *cuda = d->inside;
  RowFlights *r = row_of(d, collective);
  wait_on(cuda, cuda->stream, r->over[r->waited++ % collective->flights]);
}

void rt_cuda_collect_behind(Device *d, const rt_collective *collective, const void *send,
                            void *receive, void *work) {
  Cuda *cuda = d->inside;
  CudaFlights *flights = cuda->flights;
  settle_axis(cuda, collective->axis);
  put_behind(cuda, flights->stream, flights->computed, cuda->stream);
  rt_nccl_collect(cuda->nccl, collective, send, receive, work, flights->stream);
  put_behind(cuda, cuda->stream, flights->over, flights->stream);
  flights->out = false;
}
