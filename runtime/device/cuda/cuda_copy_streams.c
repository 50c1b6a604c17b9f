/* Copies between the memories of a GPU and its host, and kernels of the host, concurrent with the
   kernels of the GPU: each kind has a stream of its own (docs/gpu.md).

   Only the kernel stream touches the GPU's memory, in the order of the program. For a download it
   copies the data into a slot, at the speed of GPU memory, and continues while `down` copies the
   slot to the host. For an upload it copies the data out of a slot, which `up` has filled as soon
   as a slot was free and the host had the data. A copy larger than a slot is split into pieces, so
   that both stages overlap.

   Only these streams touch the host's memory. Each runs its operations in the order of the program
   and records an event after each. The program says which operations of which other stream one
   waits for, as a number that counts back from the latest, or from the start of this run (rt_after,
   rt_until, ir/schedule/stream_order.h); a stream has events for as many operations as such numbers
   go back, and waits for the oldest of them in place of older ones.

   The streams begin after the work that the kernel stream had when the entry began, and that stream
   ends after them: an entry leaves no operation in flight, and a recorded graph contains all of
   them.

   If the host runs updates, entries are launched kernel by kernel and their streams continue
   across runs of the same entry: the next step starts while copies of the last one are in flight.
   Parameters are uploaded directly to their final address; such a copy waits for the work that the
   kernel stream had at that point of the program, and what uses the parameters follows an rt_after.
   Before another entry, or any other access to memory that these streams touch, the kernel stream
   waits for all of them. Runs that wait for each launch, or time it, use a single stream. Must not:
   allocate, or block the host, after the start. */
#include "device_cuda.h"
#include "ir/support/num.h"
#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

typedef struct CopyStream {
  CUstream stream;
  CUevent *over;              /* of its latest operations, in turn */
  int64_t n, started;         /* operations since the streams began; those before this run */
  int64_t waited[RT_STREAMS]; /* operations of other streams that it already waits for */
} CopyStream;

typedef struct CopySlot {
  CUdeviceptr at;
  CUevent full, empty;
  bool used; /* since the streams began */
} CopySlot;

struct CudaStreams {
  CopyStream stream[RT_STREAMS]; /* the kernels' has no events */
  int64_t events;                /* of a stream */
  CopySlot *slot[2];             /* down, up */
  int64_t taken[2], bytes;       /* of a slot */
  int slots[2];
  CUevent began, computed; /* computed: what the kernel stream had before a direct upload */
  const rt_entry *entry;   /* the last one */
  bool on;                 /* in this entry */
  bool across_steps;       /* runs of an entry leave operations in flight */
  bool in_flight;          /* there are some, between entries */
};

/* ---- start and stop ---- */

static bool open_stream(const Cuda *cuda, CopyStream *stream, int64_t events, Fault *f) {
  if (!rt_cuda_ok(cuda, cuda->api.cuStreamCreate(&stream->stream, 1), "make a stream for copies",
                  f))
    return false;
  stream->over = rt_alloc(sizeof *stream->over * (size_t)events);
  for (int64_t i = 0; i < events; i++)
    if (!rt_cuda_event(cuda, &stream->over[i], f)) return false;
  return true;
}

static bool open_slot(const Cuda *cuda, CopySlot *slot, CUdeviceptr at, Fault *f) {
  slot->at = at;
  return rt_cuda_event(cuda, &slot->full, f) && rt_cuda_event(cuda, &slot->empty, f);
}

bool rt_cuda_streams_open(Cuda *cuda, const rt_program *program, bool checks, Fault *f) {
  if (!program->move_slot) return true;
  CudaStreams *streams = cuda->streams = rt_alloc(sizeof *streams);
  CUdeviceptr at = cuda->word + LINE + (CUdeviceptr)(program->send_slot * program->send_slots);
  streams->bytes = program->move_slot, streams->events = program->most_back + 1;
  streams->across_steps = cuda->beside && !cuda->careful && !checks;
  streams->stream[RT_STREAM_COMPUTE].stream = cuda->stream;
  if (!rt_cuda_event(cuda, &streams->began, f) || !rt_cuda_event(cuda, &streams->computed, f))
    return false;
  for (rt_stream i = RT_STREAM_DOWN; i < RT_STREAMS; i++)
    if (!open_stream(cuda, &streams->stream[i], streams->events, f)) return false;
  for (int up = 0; up < 2; up++) {
    streams->slots[up] = program->move_slots[up];
    streams->slot[up] = rt_alloc(sizeof *streams->slot[up] * (size_t)streams->slots[up]);
    for (int i = 0; i < streams->slots[up]; i++, at += (CUdeviceptr)streams->bytes)
      if (!open_slot(cuda, &streams->slot[up][i], at, f)) return false;
  }
  return true;
}

static void destroy(const Cuda *cuda, CUevent e) {
  if (e) cuda->api.cuEventDestroy(e);
}

static void close_stream(const Cuda *cuda, CopyStream *stream, int64_t events) {
  if (stream->stream) cuda->api.cuStreamSynchronize(stream->stream);
  for (int64_t i = 0; stream->over && i < events; i++) destroy(cuda, stream->over[i]);
  free(stream->over);
  if (stream->stream) cuda->api.cuStreamDestroy(stream->stream);
}

void rt_cuda_streams_close(Cuda *cuda) {
  CudaStreams *streams = cuda->streams;
  if (!streams) return;
  for (rt_stream i = RT_STREAM_DOWN; i < RT_STREAMS; i++)
    close_stream(cuda, &streams->stream[i], streams->events);
  for (int up = 0; up < 2; up++) {
    for (int i = 0; streams->slot[up] && i < streams->slots[up]; i++)
      destroy(cuda, streams->slot[up][i].full), destroy(cuda, streams->slot[up][i].empty);
    free(streams->slot[up]);
  }
  destroy(cuda, streams->began), destroy(cuda, streams->computed);
  free(streams);
  cuda->streams = NULL;
}

/* ---- operations ---- */

/* The first operation follows what the kernel stream had when the entry began. */
static CUstream begin_operation(const Cuda *cuda, rt_stream i) {
  CopyStream *stream = &cuda->streams->stream[i];
  if (!stream->n) rt_cuda_wait_event(cuda, stream->stream, cuda->streams->began);
  return stream->stream;
}

static void end_operation(const Cuda *cuda, rt_stream i) {
  CopyStream *stream = &cuda->streams->stream[i];
  rt_cuda_record(cuda, stream->over[stream->n++ % cuda->streams->events], stream->stream);
}

void rt_cuda_streams_after(const Cuda *cuda, rt_stream i, rt_stream other, int64_t number,
                           bool since_start) {
  CopyStream *stream = &cuda->streams->stream[i];
  const CopyStream *first = &cuda->streams->stream[other];
  int64_t last = since_start ? min_i64(first->started + number, first->n) : first->n - number;
  if (last <= stream->waited[other]) return;
  int64_t oldest = first->n - cuda->streams->events + 1;
  if (last < oldest) last = oldest; /* later operations have its event */
  rt_cuda_wait_event(cuda, stream->stream, first->over[(last - 1) % cuda->streams->events]);
  stream->waited[other] = last;
}

/* ---- copies ---- */

static void copy(const Cuda *cuda, CUdeviceptr to, CUdeviceptr from, int64_t bytes, CUstream s) {
  rt_cuda_must(cuda, cuda->api.cuMemcpyAsync(to, from, (size_t)bytes, s),
               "copy from or to the host");
}

static CopySlot *next_slot(CudaStreams *streams, bool up) {
  return &streams->slot[up][streams->taken[up]++ % streams->slots[up]];
}

static void piece_down(const Cuda *cuda, CUdeviceptr to, CUdeviceptr from, int64_t bytes,
                       CUstream down) {
  CopySlot *slot = next_slot(cuda->streams, false);
  if (slot->used) rt_cuda_wait_event(cuda, cuda->stream, slot->empty);
  copy(cuda, slot->at, from, bytes, cuda->stream), rt_cuda_record(cuda, slot->full, cuda->stream);
  rt_cuda_wait_event(cuda, down, slot->full);
  copy(cuda, to, slot->at, bytes, down), rt_cuda_record(cuda, slot->empty, down);
  slot->used = true;
}

static void piece_up(const Cuda *cuda, CUdeviceptr to, CUdeviceptr from, int64_t bytes,
                     CUstream up) {
  CopySlot *slot = next_slot(cuda->streams, true);
  if (slot->used) rt_cuda_wait_event(cuda, up, slot->empty);
  copy(cuda, slot->at, from, bytes, up), rt_cuda_record(cuda, slot->full, up);
  rt_cuda_wait_event(cuda, cuda->stream, slot->full);
  copy(cuda, to, slot->at, bytes, cuda->stream), rt_cuda_record(cuda, slot->empty, cuda->stream);
  slot->used = true;
}

static void direct_up(const Cuda *cuda, CUdeviceptr to, CUdeviceptr from, int64_t bytes,
                      CUstream up) {
  rt_cuda_record(cuda, cuda->streams->computed, cuda->stream);
  rt_cuda_wait_event(cuda, up, cuda->streams->computed);
  copy(cuda, to, from, bytes, up);
}

bool rt_cuda_has_streams(const Cuda *cuda) { return cuda->streams && cuda->streams->on; }

void rt_cuda_streams_move(const Cuda *cuda, void *to, const void *from, int64_t bytes, rt_way way) {
  CUdeviceptr a = (CUdeviceptr)(uintptr_t)to, b = (CUdeviceptr)(uintptr_t)from;
  rt_stream i = way == RT_WAY_DOWN ? RT_STREAM_DOWN : RT_STREAM_UP;
  CUstream stream = begin_operation(cuda, i);
  if (way == RT_WAY_DIRECT) direct_up(cuda, a, b, bytes, stream);
  for (int64_t at = 0, n; way != RT_WAY_DIRECT && at < bytes; at += n) {
    CUdeviceptr k = (CUdeviceptr)at;
    n = min_i64(bytes - at, cuda->streams->bytes);
    if (way == RT_WAY_UP) piece_up(cuda, a + k, b + k, n, stream);
    else piece_down(cuda, a + k, b + k, n, stream);
  }
  end_operation(cuda, i);
}

/* ---- what the host does ---- */

void rt_cuda_streams_copy(const Cuda *cuda, void *to, const void *from, int64_t bytes) {
  CUdeviceptr a = (CUdeviceptr)(uintptr_t)to, b = (CUdeviceptr)(uintptr_t)from;
  copy(cuda, a, b, bytes, begin_operation(cuda, RT_STREAM_HOST));
  end_operation(cuda, RT_STREAM_HOST);
}

void rt_cuda_streams_zero(const Cuda *cuda, void *to, int64_t bytes) {
  CUstream stream = begin_operation(cuda, RT_STREAM_HOST);
  CUresult e = cuda->api.cuMemsetD8Async((CUdeviceptr)(uintptr_t)to, 0, (size_t)bytes, stream);
  rt_cuda_must(cuda, e, "fill with zeros");
  end_operation(cuda, RT_STREAM_HOST);
}

void rt_cuda_streams_call(const Cuda *cuda, void (*f)(void *), void *data) {
  CUstream stream = begin_operation(cuda, RT_STREAM_HOST);
  rt_cuda_must(cuda, cuda->api.cuLaunchHostFunc(stream, f, data), "launch a kernel of the host");
  end_operation(cuda, RT_STREAM_HOST);
}

/* ---- entries ---- */

bool rt_cuda_streams_across_steps(const Cuda *cuda) {
  return cuda->streams && cuda->streams->across_steps;
}

static void join(const Cuda *cuda) {
  for (rt_stream i = RT_STREAM_DOWN; i < RT_STREAMS; i++) {
    const CopyStream *stream = &cuda->streams->stream[i];
    if (stream->n)
      rt_cuda_wait_event(cuda, cuda->stream, stream->over[(stream->n - 1) % cuda->streams->events]);
  }
}

void rt_cuda_streams_drain(const Cuda *cuda) {
  if (!cuda->streams || !cuda->streams->in_flight) return;
  join(cuda);
  cuda->streams->in_flight = false;
}

void rt_cuda_streams_begin(const Cuda *cuda, const rt_entry *entry, bool on) {
  CudaStreams *streams = cuda->streams;
  if (!on || (streams && streams->entry != entry)) rt_cuda_streams_drain(cuda);
  if (streams) streams->on = on, streams->entry = entry;
  for (rt_stream i = 0; streams && i < RT_STREAMS; i++)
    streams->stream[i].started = streams->stream[i].n;
  if (!rt_cuda_has_streams(cuda) || streams->in_flight) return;
  for (rt_stream i = 0; i < RT_STREAMS; i++) {
    streams->stream[i].n = streams->stream[i].started = 0;
    memset(streams->stream[i].waited, 0, sizeof streams->stream[i].waited);
  }
  for (int up = 0; up < 2; up++)
    for (int i = 0; i < streams->slots[up]; i++) streams->slot[up][i].used = false;
  rt_cuda_record(cuda, streams->began, cuda->stream);
}

void rt_cuda_streams_end(const Cuda *cuda) {
  if (!rt_cuda_has_streams(cuda)) return;
  if (cuda->streams->across_steps) cuda->streams->in_flight = true;
  else join(cuda);
}
