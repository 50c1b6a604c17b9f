/* Messages in flight on a GPU: a second stream, and events (docs/gpu.md).

   If a program starts messages before it waits for them, or sends to neighbours, all its
   collectives run on a stream of their own, in the order of the program, which is the same on all
   ranks: so no two operations of NCCL can be issued in different orders, whatever the kernels do. A
   start records an event on the kernel stream, makes the communication stream wait for it, issues
   the collective, and records a second event after it; a wait makes the kernel stream wait for the
   second event. A recorded graph contains both streams, joined, since every entry waits for all
   messages that it starts. A flight of several messages has one event before its first message and
   one after its last. The program has the number of flights of a row in flight at the same time
   (rt_collective.flights); the row has that many events, used in turn.

   Data sent to a neighbour stays in a slot until it is taken; kernels continue, and only a send
   that finds no free slot waits. On a GPU a send waits for its receiver, so stages that send to
   each other would deadlock: therefore each send is issued to NCCL at its position in one global
   order of messages (rt_collective.sends, send_order.h), some in one group with the next receive of
   this rank. Remaining sends are issued before any collective over that axis, which synchronises
   all its ranks. Must not: allocate, or block the host, after the start. */
#include "device_cuda.h"
#include "ir/schedule/send_queue.h"
#include <stdlib.h>
#include <string.h>

enum { LINE = 64 }; /* bytes before the slot */

typedef struct RowFlights { /* of a row of the program's table */
  CUevent *over;
  int64_t messages, waited; /* started; flights that were waited for */
} RowFlights;

struct CudaFlights {
  CUstream stream;
  CUevent computed, over; /* over: of a collective that is waited for at once */
  RowFlights *row;
  SendQueue queue;
  NeighbourSend *sent;  /* by slot */
  NeighbourSend *group; /* those that go together: as many at most */
  CUevent *taken;       /* by slot: a send without a group was taken */
  bool *out;            /* by slot: it holds a send without a group */
  int64_t *sends;       /* by row: number of its sends in this entry */
  int axis;             /* of the last message to a neighbour or from one */
};

static bool has_neighbours(const rt_program *program) {
  for (int i = 0; i < program->ncollectives; i++)
    if (rt_is_hop(program->collectives[i].kind)) return true;
  return false;
}

static bool open_slots(const Cuda *cuda, const rt_program *program, Fault *f) {
  CudaFlights *flights = cuda->flights;
  size_t n = (size_t)program->send_slots;
  flights->queue.slot = rt_alloc(sizeof *flights->queue.slot * (n + 1));
  flights->sent = rt_alloc(sizeof *flights->sent * (n + 1));
  flights->group = rt_alloc(sizeof *flights->group * (n + 1));
  flights->taken = rt_alloc(sizeof *flights->taken * (n + 1));
  flights->out = rt_alloc(sizeof *flights->out * (n + 1));
  flights->queue.n = program->send_slots;
  for (size_t i = 0; i < n; i++) {
    flights->sent[i].from = cuda->word + LINE + i * (size_t)program->send_slot;
    if (!rt_cuda_event(cuda, &flights->taken[i], f)) return false;
  }
  return true;
}

bool rt_cuda_flights_open(Cuda *cuda, const rt_program *program, Fault *f) {
  if (!program->flies && !has_neighbours(program)) return true;
  CudaFlights *flights = cuda->flights = rt_alloc(sizeof *flights);
  flights->row = rt_alloc(sizeof *flights->row * (size_t)(program->ncollectives + 1));
  flights->sends = rt_alloc(sizeof *flights->sends * (size_t)(program->ncollectives + 1));
  if (!rt_cuda_ok(cuda, cuda->api.cuStreamCreate(&flights->stream, 1), "make a stream for messages",
                  f) ||
      !rt_cuda_event(cuda, &flights->computed, f) || !rt_cuda_event(cuda, &flights->over, f) ||
      !open_slots(cuda, program, f))
    return false;
  for (int i = 0; i < program->ncollectives; i++) {
    int64_t n = program->collectives[i].flights;
    if (n) flights->row[i].over = rt_alloc(sizeof(CUevent) * (size_t)n);
    for (int64_t k = 0; k < n; k++)
      if (!rt_cuda_event(cuda, &flights->row[i].over[k], f)) return false;
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
  destroy(cuda, flights->computed), destroy(cuda, flights->over);
  for (int64_t i = 0; flights->taken && i < flights->queue.n; i++) destroy(cuda, flights->taken[i]);
  if (flights->stream) cuda->api.cuStreamDestroy(flights->stream);
  free(flights->queue.slot), free(flights->sent), free(flights->group), free(flights->taken),
      free(flights->out);
  free(flights->row), free(flights->sends), free(flights);
  cuda->flights = NULL;
}

/* Makes later work of stream `to` wait for the work that `from` has so far. */
static void put_behind(const Cuda *cuda, CUstream to, CUevent e, CUstream from) {
  rt_cuda_record(cuda, e, from), rt_cuda_wait_event(cuda, to, e);
}

/* ---- sends to neighbours ---- */

static void send_alone(const Cuda *cuda, int64_t slot) {
  CudaFlights *flights = cuda->flights;
  put_behind(cuda, flights->stream, flights->computed, cuda->stream);
  rt_nccl_neighbours(cuda->nccl, &flights->sent[slot], 1, NULL, NULL, flights->stream);
  rt_cuda_record(cuda, flights->taken[slot], flights->stream);
  flights->out[slot] = true;
}

/* `all`: also those that would join a receive. */
static void send_due(const Cuda *cuda, bool all) {
  for (int64_t i; (i = send_give(&cuda->flights->queue, all)) >= 0;) send_alone(cuda, i);
}

/* All ranks of an axis meet in its collectives: what one of them still keeps may be missing. */
static void settle_axis(const Cuda *cuda, int axis) {
  if (cuda->flights->axis == axis) send_due(cuda, true);
}

static void come_to_axis(const Cuda *cuda, int axis) {
  if (cuda->flights->axis != axis) send_due(cuda, true);
  cuda->flights->axis = axis;
}

static void empty_slot(const Cuda *cuda, int64_t slot) {
  CudaFlights *flights = cuda->flights;
  if (flights->out[slot]) rt_cuda_wait_event(cuda, cuda->stream, flights->taken[slot]);
  flights->out[slot] = false;
}

/* When the k-th send of the row goes. */
static rt_sends place_of(const Device *d, const rt_collective *collective, int64_t k) {
  const rt_program *p = d->program;
  if (!collective->sends) return (rt_sends){0};
  int64_t stage = d->comm->group[collective->axis].me,
          first = p->stages && p->stage_axis == collective->axis ? p->stage_first : 0;
  const rt_sends *run = collective->sends[stage - first];
  while (run->n && k >= run->n) k -= run++->n;
  return *run;
}

/* A send leaves its count at 0. */
void rt_cuda_send(Device *d, const rt_collective *collective, const void *from, void *to) {
  Cuda *cuda = d->inside;
  CudaFlights *flights = cuda->flights;
  size_t bytes = (size_t)(collective->count * rt_elem_bytes((int)collective->elem));
  CUdeviceptr here = (CUdeviceptr)(uintptr_t)from, there = (CUdeviceptr)(uintptr_t)to;
  come_to_axis(cuda, collective->axis);
  int64_t slot = send_free_slot(&flights->queue);
  rt_sends place = place_of(d, collective, flights->sends[collective - d->program->collectives]++);
  empty_slot(cuda, slot);
  rt_cuda_must(cuda,
               cuda->api.cuMemcpyDtoDAsync(flights->sent[slot].from, here, bytes, cuda->stream),
               "copy what is sent");
  rt_cuda_must(cuda, cuda->api.cuMemsetD8Async(there, 0, bytes, cuda->stream), "fill with zeros");
  flights->sent[slot].what = collective;
  send_hold(&flights->queue, slot, place.later, place.joins);
  send_due(cuda, false);
}

/* Behind it all is over that went before. */
void rt_cuda_receive(Device *d, const rt_collective *collective, void *to) {
  Cuda *cuda = d->inside;
  CudaFlights *flights = cuda->flights;
  int n = 0;
  come_to_axis(cuda, collective->axis);
  for (int64_t i; (i = send_give(&flights->queue, true)) >= 0;)
    flights->group[n++] = flights->sent[i];
  put_behind(cuda, flights->stream, flights->computed, cuda->stream);
  rt_nccl_neighbours(cuda->nccl, flights->group, n, collective, to, flights->stream);
  put_behind(cuda, cuda->stream, flights->over, flights->stream);
  for (int64_t i = 0; i < flights->queue.n; i++) flights->out[i] = false;
  send_receives(&flights->queue);
  send_due(cuda, false);
}

void rt_cuda_flights_begin(const Device *d) {
  const Cuda *cuda = d->inside;
  CudaFlights *flights = cuda->flights;
  if (!flights) return;
  flights->queue.issued = flights->queue.given = 0;
  memset(flights->sends, 0, sizeof *flights->sends * (size_t)d->program->ncollectives);
}

void rt_cuda_flights_end(const Device *d) {
  const Cuda *cuda = d->inside;
  if (!cuda->flights || !cuda->flights->queue.issued) return;
  rt_cuda_stall_begin(cuda);
  send_due(cuda, true);
  for (int64_t i = 0; i < cuda->flights->queue.n; i++) empty_slot(cuda, i);
  rt_cuda_stall_end(cuda);
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
    rt_cuda_record(cuda, r->over[flight], cuda->flights->stream);
}

void rt_cuda_await(Device *d, const rt_collective *collective) {
  Cuda *cuda = d->inside;
  RowFlights *r = row_of(d, collective);
  rt_cuda_wait_event(cuda, cuda->stream, r->over[r->waited++ % collective->flights]);
}

void rt_cuda_collect_behind(Device *d, const rt_collective *collective, const void *send,
                            void *receive, void *work) {
  Cuda *cuda = d->inside;
  CudaFlights *flights = cuda->flights;
  settle_axis(cuda, collective->axis);
  put_behind(cuda, flights->stream, flights->computed, cuda->stream);
  rt_nccl_collect(cuda->nccl, collective, send, receive, work, flights->stream);
  put_behind(cuda, cuda->stream, flights->over, flights->stream);
  for (int64_t i = 0; i < flights->queue.n; i++) flights->out[i] = false;
}
