/* Copies between the memories of a GPU and its host, and kernels of the host, concurrent with the
   kernels of the GPU: each kind has a stream of its own, a lane (docs/gpu.md).

   Only the kernel stream touches the GPU's memory, in the order of the program. For a download it
   copies the data into a slot, at the speed of GPU memory, and continues while the lane copies the
   slot to the host. For an upload it copies the data out of a slot, which the lane has filled as
   soon as a slot was free and the host had the data. A copy larger than a slot is split into
   pieces, so that both stages overlap.

   Only the lanes touch the host's memory. Each lane runs its operations in the order of the
   program; an operation that touches bytes of another lane's operation waits for the last such one.
   The byte ranges of the latest LANE_TOUCHES operations of a lane are recorded; an older operation
   is waited for by waiting for the oldest recorded one. So the order of two operations on the same
   byte is always that of the program, and no other operations wait for each other.

   Lanes begin after the work that the kernel stream had when the entry began, and that stream ends
   after the lanes: an entry leaves no operation in flight, and a recorded graph contains all of
   them.

   If the host runs updates, entries are launched kernel by kernel and their lanes continue across
   entries: the next entry starts while copies of the last one are in flight. Parameters are
   uploaded directly to their final address; each such copy waits for the work that the kernel
   stream had at that point of the program, and a later operation on these bytes waits for that copy
   only. So the next step's first layers compute while the host updates the last layers. Any other
   access to memory that lanes touch drains the lanes first. Runs that wait for each launch, or time
   it, use a single stream. Must not: allocate, or block the host, after the start. */
#include "device_cuda.h"
#include "ir/support/lane_touches.h"
#include "ir/support/num.h"
#include <stdlib.h>
#include <string.h>

typedef enum HostLaneKind { LANE_DOWN, LANE_HOST, LANE_UP, LANES } HostLaneKind;
enum { ARRIVALS = 128, NO_TIME = 2, LINE = 64 };
/* NO_TIME: CU_EVENT_DISABLE_TIMING */

typedef struct HostTouch { /* an operation of a lane */
  CUevent over;
  int n;
  HostSpan *span;
} HostTouch;

typedef struct LaneQueue {
  CUstream stream;
  HostTouch touch[LANE_TOUCHES];
  int64_t n;             /* operations of this entry */
  int64_t behind[LANES]; /* operations of another lane that this lane already waits for */
} LaneQueue;

typedef struct CopySlot {
  CUdeviceptr at;
  CUevent full, empty;
  bool used; /* in this entry */
} CopySlot;

typedef struct Arrival { /* a copy that goes straight to its place */
  CUdeviceptr at;
  int64_t bytes;
  CUevent ready, over;
} Arrival;

struct CudaLanes {
  LaneQueue lane[LANES];
  CopySlot *slot[2];       /* down, up */
  int64_t taken[2], bytes; /* of a slot */
  int slots[2];
  CUevent began;
  bool on;             /* in this entry */
  CUdeviceptr weights; /* bytes of parameters */
  bool across_steps;   /* entries leave lanes under way */
  bool in_flight;      /* lanes have operations under way, between entries */
  Arrival arrival[ARRIVALS];
  int64_t uploads, arrived; /* copies, and how many of them the kernel stream waits for */
};

/* ---- start and stop ---- */

static bool make_event(const Cuda *cuda, CUevent *e, Fault *f) {
  return rt_cuda_ok(cuda, cuda->api.cuEventCreate(e, NO_TIME), "make an event", f);
}

static bool open_lane(const Cuda *cuda, LaneQueue *queue, int spans, Fault *f) {
  if (!rt_cuda_ok(cuda, cuda->api.cuStreamCreate(&queue->stream, 1), "make a stream for copies", f))
    return false;
  for (int i = 0; i < LANE_TOUCHES; i++) {
    queue->touch[i].span = rt_alloc(sizeof *queue->touch[i].span * (size_t)spans);
    if (!make_event(cuda, &queue->touch[i].over, f)) return false;
  }
  return true;
}

static bool open_slot(const Cuda *cuda, CopySlot *slot, CUdeviceptr at, Fault *f) {
  slot->at = at;
  return make_event(cuda, &slot->full, f) && make_event(cuda, &slot->empty, f);
}

/* spans: of an operation, at most */
bool rt_cuda_lanes_open(Cuda *cuda, const rt_program *program, int spans, bool checks, Fault *f) {
  if (!program->move_slot) return true;
  CudaLanes *lanes = cuda->lanes = rt_alloc(sizeof *lanes);
  CUdeviceptr at = cuda->word + LINE + (CUdeviceptr)(program->send_slot * program->send_slots);
  lanes->bytes = program->move_slot;
  lanes->weights = (CUdeviceptr)program->arena_bytes[RT_WEIGHTS];
  lanes->across_steps = cuda->beside && !cuda->careful && !checks;
  if (!make_event(cuda, &lanes->began, f)) return false;
  for (int i = 0; lanes->across_steps && i < ARRIVALS; i++)
    if (!make_event(cuda, &lanes->arrival[i].ready, f) ||
        !make_event(cuda, &lanes->arrival[i].over, f))
      return false;
  for (HostLaneKind l = 0; l < LANES; l++)
    if (!open_lane(cuda, &lanes->lane[l], spans < 2 ? 2 : spans, f)) return false;
  for (int up = 0; up < 2; up++) {
    lanes->slots[up] = program->move_slots[up];
    lanes->slot[up] = rt_alloc(sizeof *lanes->slot[up] * (size_t)lanes->slots[up]);
    for (int i = 0; i < lanes->slots[up]; i++, at += (CUdeviceptr)lanes->bytes)
      if (!open_slot(cuda, &lanes->slot[up][i], at, f)) return false;
  }
  return true;
}

static void destroy(const Cuda *cuda, CUevent e) {
  if (e) cuda->api.cuEventDestroy(e);
}

static void close_lane(const Cuda *cuda, LaneQueue *queue) {
  if (queue->stream) cuda->api.cuStreamSynchronize(queue->stream);
  for (int i = 0; i < LANE_TOUCHES; i++)
    destroy(cuda, queue->touch[i].over), free(queue->touch[i].span);
  if (queue->stream) cuda->api.cuStreamDestroy(queue->stream);
}

void rt_cuda_lanes_close(Cuda *cuda) {
  CudaLanes *lanes = cuda->lanes;
  if (!lanes) return;
  for (HostLaneKind l = 0; l < LANES; l++) close_lane(cuda, &lanes->lane[l]);
  for (int up = 0; up < 2; up++) {
    for (int i = 0; i < lanes->slots[up]; i++)
      destroy(cuda, lanes->slot[up][i].full), destroy(cuda, lanes->slot[up][i].empty);
    free(lanes->slot[up]);
  }
  destroy(cuda, lanes->began);
  for (int i = 0; i < ARRIVALS; i++)
    destroy(cuda, lanes->arrival[i].ready), destroy(cuda, lanes->arrival[i].over);
  free(lanes);
  cuda->lanes = NULL;
}

/* ---- who waits for whom ---- */

static void wait_on(const Cuda *cuda, CUstream to, CUevent e) {
  rt_cuda_must(cuda, cuda->api.cuStreamWaitEvent(to, e, 0), "wait for an event");
}

static void record(const Cuda *cuda, CUevent e, CUstream from) {
  rt_cuda_must(cuda, cuda->api.cuEventRecord(e, from), "record an event");
}

static bool meets(const HostTouch *touch, const HostSpan *span, int n) {
  for (int i = 0; i < touch->n; i++)
    for (int k = 0; k < n; k++) {
      const HostSpan *a = &touch->span[i], *b = &span[k];
      if ((a->written || b->written) && a->from < b->from + b->bytes &&
          b->from < a->from + a->bytes)
        return true;
    }
  return false;
}

/* How many operations there are up to the last that touches these bytes, or might have. */
static int64_t last_touch(const LaneQueue *queue, const HostSpan *span, int n) {
  int64_t oldest = queue->n > LANE_TOUCHES ? queue->n - LANE_TOUCHES : 0;
  for (int64_t i = queue->n; i-- > oldest;)
    if (meets(&queue->touch[i % LANE_TOUCHES], span, n)) return i + 1;
  return oldest ? oldest + 1 : 0;
}

/* The lane's stream, after it was made to wait for all other operations on these bytes of the
   host. */
static CUstream go_behind(const Cuda *cuda, HostLaneKind lane, const HostSpan *span, int n) {
  LaneQueue *queue = &cuda->lanes->lane[lane];
  if (!queue->n) wait_on(cuda, queue->stream, cuda->lanes->began);
  for (HostLaneKind l = 0; l < LANES; l++) {
    const LaneQueue *other = &cuda->lanes->lane[l];
    int64_t last = l == lane ? 0 : last_touch(other, span, n);
    if (last <= queue->behind[l]) continue;
    wait_on(cuda, queue->stream, other->touch[(last - 1) % LANE_TOUCHES].over);
    queue->behind[l] = last;
  }
  return queue->stream;
}

static void note(const Cuda *cuda, HostLaneKind lane, const HostSpan *span, int n) {
  LaneQueue *queue = &cuda->lanes->lane[lane];
  HostTouch *touch = &queue->touch[queue->n++ % LANE_TOUCHES];
  memcpy(touch->span, span, sizeof *span * (size_t)n);
  touch->n = n;
  record(cuda, touch->over, queue->stream);
}

/* Pieces of a move are one operation: the next one goes on where the last has ended. */
static void note_piece(const Cuda *cuda, HostLaneKind lane, const HostSpan *span, bool first) {
  LaneQueue *queue = &cuda->lanes->lane[lane];
  HostTouch *touch = first ? NULL : &queue->touch[(queue->n - 1) % LANE_TOUCHES];
  if (!touch) {
    note(cuda, lane, span, 1);
    return;
  }
  touch->span->bytes += span->bytes;
  record(cuda, touch->over, queue->stream);
}

/* ---- copies ---- */

static void copy(const Cuda *cuda, CUdeviceptr to, CUdeviceptr from, int64_t bytes, CUstream s) {
  rt_cuda_must(cuda, cuda->api.cuMemcpyAsync(to, from, (size_t)bytes, s),
               "copy from or to the host");
}

static CopySlot *next_slot(CudaLanes *lanes, bool up) {
  return &lanes->slot[up][lanes->taken[up]++ % lanes->slots[up]];
}

static void piece_down(const Cuda *cuda, char *to, CUdeviceptr from, int64_t bytes, bool first) {
  CopySlot *slot = next_slot(cuda->lanes, false);
  HostSpan there = {to, bytes, true};
  if (slot->used) wait_on(cuda, cuda->stream, slot->empty);
  copy(cuda, slot->at, from, bytes, cuda->stream), record(cuda, slot->full, cuda->stream);
  CUstream lane = go_behind(cuda, LANE_DOWN, &there, 1);
  wait_on(cuda, lane, slot->full);
  copy(cuda, (CUdeviceptr)(uintptr_t)to, slot->at, bytes, lane), record(cuda, slot->empty, lane);
  note_piece(cuda, LANE_DOWN, &there, first);
  slot->used = true;
}

static void piece_up(const Cuda *cuda, CUdeviceptr to, char *from, int64_t bytes, bool first) {
  CopySlot *slot = next_slot(cuda->lanes, true);
  HostSpan there = {from, bytes, false};
  CUstream lane = go_behind(cuda, LANE_UP, &there, 1);
  if (slot->used) wait_on(cuda, lane, slot->empty);
  copy(cuda, slot->at, (CUdeviceptr)(uintptr_t)from, bytes, lane), record(cuda, slot->full, lane);
  note_piece(cuda, LANE_UP, &there, first);
  wait_on(cuda, cuda->stream, slot->full);
  copy(cuda, to, slot->at, bytes, cuda->stream), record(cuda, slot->empty, cuda->stream);
  slot->used = true;
}

/* ---- straight to their place ---- */

/* Makes the kernel stream wait for this many copies. */
static void arrive(const Cuda *cuda, int64_t copies) {
  CudaLanes *lanes = cuda->lanes;
  if (copies <= lanes->arrived) return;
  wait_on(cuda, cuda->stream, lanes->arrival[(copies - 1) % ARRIVALS].over);
  lanes->arrived = copies;
}

void rt_cuda_arrived(const Cuda *cuda, const void *at, int64_t bytes) {
  CudaLanes *lanes = cuda->lanes;
  CUdeviceptr from = (CUdeviceptr)(uintptr_t)at, to = from + (CUdeviceptr)bytes;
  for (int64_t i = lanes ? lanes->uploads : 0; lanes && i-- > lanes->arrived;) {
    const Arrival *arrival = &lanes->arrival[i % ARRIVALS];
    if (arrival->at < to && from < arrival->at + (CUdeviceptr)arrival->bytes) arrive(cuda, i + 1);
  }
}

void rt_cuda_all_arrived(const Cuda *cuda) {
  if (cuda->lanes) arrive(cuda, cuda->lanes->uploads);
}

static bool goes_straight(const Cuda *cuda, CUdeviceptr to) {
  const CudaLanes *lanes = cuda->lanes;
  CUdeviceptr from = cuda->arena[RT_WEIGHTS];
  return lanes->across_steps && !cuda->recording && to >= from && to < from + lanes->weights;
}

static void straight_up(const Cuda *cuda, CUdeviceptr to, const char *from, int64_t bytes) {
  CudaLanes *lanes = cuda->lanes;
  HostSpan there = {from, bytes, false};
  arrive(cuda, lanes->uploads - ARRIVALS + 1);
  Arrival *arrival = &lanes->arrival[lanes->uploads++ % ARRIVALS];
  arrival->at = to, arrival->bytes = bytes;
  CUstream lane = go_behind(cuda, LANE_UP, &there, 1);
  record(cuda, arrival->ready, cuda->stream), wait_on(cuda, lane, arrival->ready);
  copy(cuda, to, (CUdeviceptr)(uintptr_t)from, bytes, lane), record(cuda, arrival->over, lane);
  note(cuda, LANE_UP, &there, 1);
}

bool rt_cuda_has_lanes(const Cuda *cuda) { return cuda->lanes && cuda->lanes->on; }

void rt_cuda_lanes_move(const Cuda *cuda, void *to, const void *from, int64_t bytes, bool up) {
  CUdeviceptr a = (CUdeviceptr)(uintptr_t)to, b = (CUdeviceptr)(uintptr_t)from;
  if (up && goes_straight(cuda, a)) {
    straight_up(cuda, a, from, bytes);
    return;
  }
  if (!up) rt_cuda_arrived(cuda, from, bytes);
  for (int64_t at = 0, n; at < bytes; at += n) {
    n = min_i64(bytes - at, cuda->lanes->bytes);
    CUdeviceptr i = (CUdeviceptr)at;
    if (up) piece_up(cuda, a + i, (char *)(uintptr_t)(b + i), n, !at);
    else piece_down(cuda, (char *)(uintptr_t)(a + i), b + i, n, !at);
  }
}

/* ---- what the host does ---- */

void rt_cuda_lanes_copy(const Cuda *cuda, void *to, const void *from, int64_t bytes) {
  HostSpan span[] = {{from, bytes, false}, {to, bytes, true}};
  CUdeviceptr a = (CUdeviceptr)(uintptr_t)to, b = (CUdeviceptr)(uintptr_t)from;
  copy(cuda, a, b, bytes, go_behind(cuda, LANE_HOST, span, 2));
  note(cuda, LANE_HOST, span, 2);
}

void rt_cuda_lanes_zero(const Cuda *cuda, void *to, int64_t bytes) {
  HostSpan span = {to, bytes, true};
  CUstream lane = go_behind(cuda, LANE_HOST, &span, 1);
  CUresult e = cuda->api.cuMemsetD8Async((CUdeviceptr)(uintptr_t)to, 0, (size_t)bytes, lane);
  rt_cuda_must(cuda, e, "fill with zeros");
  note(cuda, LANE_HOST, &span, 1);
}

void rt_cuda_lanes_call(const Cuda *cuda, void (*f)(void *), void *data, const HostSpan *span,
                        int n) {
  CUstream lane = go_behind(cuda, LANE_HOST, span, n);
  rt_cuda_must(cuda, cuda->api.cuLaunchHostFunc(lane, f, data), "launch a kernel of the host");
  note(cuda, LANE_HOST, span, n);
}

/* ---- entries ---- */

bool rt_cuda_lanes_across_steps(const Cuda *cuda) {
  return cuda->lanes && cuda->lanes->across_steps;
}

static void join(const Cuda *cuda) {
  for (HostLaneKind l = 0; l < LANES; l++) {
    const LaneQueue *queue = &cuda->lanes->lane[l];
    if (queue->n) wait_on(cuda, cuda->stream, queue->touch[(queue->n - 1) % LANE_TOUCHES].over);
  }
  cuda->lanes->arrived = cuda->lanes->uploads;
}

void rt_cuda_lanes_drain(const Cuda *cuda) {
  if (!cuda->lanes || !cuda->lanes->in_flight) return;
  join(cuda);
  cuda->lanes->in_flight = false;
}

void rt_cuda_lanes_begin(const Cuda *cuda, bool on) {
  CudaLanes *lanes = cuda->lanes;
  if (!on) rt_cuda_lanes_drain(cuda);
  if (lanes) lanes->on = on;
  if (!rt_cuda_has_lanes(cuda) || lanes->in_flight) return;
  for (HostLaneKind l = 0; l < LANES; l++) {
    lanes->lane[l].n = 0;
    memset(lanes->lane[l].behind, 0, sizeof lanes->lane[l].behind);
  }
  for (int up = 0; up < 2; up++)
    for (int i = 0; i < lanes->slots[up]; i++) lanes->slot[up][i].used = false;
  record(cuda, lanes->began, cuda->stream);
}

void rt_cuda_lanes_end(const Cuda *cuda) {
  if (!rt_cuda_has_lanes(cuda)) return;
  if (cuda->lanes->across_steps) cuda->lanes->in_flight = true;
  else join(cuda);
}
