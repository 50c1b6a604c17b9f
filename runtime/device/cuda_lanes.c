/* Copies between the memories of a GPU and its host, and kernels of the host, beside those of the
   GPU: each has a stream of its own, a lane (docs/gpu.md).

   The GPU's memory is touched by the stream of the kernels alone, in the order of the program: what
   goes down it copies into a slot, at the speed of its own memory, and goes on while the lane takes
   it from there; what comes up it copies out of a slot, into which the lane has put it as early as
   slots are free and the host has it. A copy larger than a slot goes in pieces, so that both ways
   are under way at once.

   The host's memory is touched by the lanes alone. Each does its operations in the order of the
   program; one that touches bytes of another lane's waits for the last such one. Of a lane's
   operations the latest TOUCHES are known, byte by byte; an older one is waited for with the oldest
   of them. So no order of the program that a byte could tell of is ever turned around, and nothing
   else waits.

   Lanes begin behind what the stream of the kernels had when the entry began, and that stream ends
   behind them: an entry leaves nothing under way, and a graph that is recorded takes all of it.
   Runs in which each launch is waited for, or timed, have one stream alone. Must not: allocate, or
   let the host wait, after the start. */
#include "device_cuda.h"
#include "ir/support/num.h"
#include <stdlib.h>
#include <string.h>

typedef enum HostLaneKind { LANE_DOWN, LANE_HOST, LANE_UP, LANES } HostLaneKind;
enum { TOUCHES = 32, NO_TIME = 2, LINE = 64 }; /* NO_TIME: CU_EVENT_DISABLE_TIMING */

typedef struct HostTouch { /* an operation of a lane */
  CUevent over;
  int n;
  HostSpan *span;
} HostTouch;

typedef struct LaneQueue {
  CUstream stream;
  HostTouch touch[TOUCHES];
  int64_t n;             /* operations of this entry */
  int64_t behind[LANES]; /* so many of another one's it comes behind already */
} LaneQueue;

typedef struct CopySlot {
  CUdeviceptr at;
  CUevent full, empty;
  bool used; /* in this entry */
} CopySlot;

struct CudaLanes {
  LaneQueue lane[LANES];
  CopySlot *slot[2];       /* down, up */
  int64_t taken[2], bytes; /* of a slot */
  int slots[2];
  CUevent began;
  bool on; /* in this entry */
};

/* ---- start and stop ---- */

static bool make_event(const Cuda *c, CUevent *e, Fault *f) {
  return rt_cuda_ok(c, c->api.cuEventCreate(e, NO_TIME), "make an event", f);
}

static bool open_lane(const Cuda *c, LaneQueue *q, int spans, Fault *f) {
  if (!rt_cuda_ok(c, c->api.cuStreamCreate(&q->stream, 1), "make a stream for copies", f))
    return false;
  for (int i = 0; i < TOUCHES; i++) {
    q->touch[i].span = rt_alloc(sizeof *q->touch[i].span * (size_t)spans);
    if (!make_event(c, &q->touch[i].over, f)) return false;
  }
  return true;
}

static bool open_slot(const Cuda *c, CopySlot *s, CUdeviceptr at, Fault *f) {
  s->at = at;
  return make_event(c, &s->full, f) && make_event(c, &s->empty, f);
}

/* spans: of an operation, at most */
bool rt_cuda_lanes_open(Cuda *c, const rt_program *p, int spans, Fault *f) {
  if (!p->move_slot) return true;
  CudaLanes *x = c->lanes = rt_alloc(sizeof *x);
  CUdeviceptr at = c->word + LINE + (CUdeviceptr)p->send_slot;
  x->bytes = p->move_slot;
  if (!make_event(c, &x->began, f)) return false;
  for (HostLaneKind l = 0; l < LANES; l++)
    if (!open_lane(c, &x->lane[l], spans < 2 ? 2 : spans, f)) return false;
  for (int up = 0; up < 2; up++) {
    x->slots[up] = p->move_slots[up];
    x->slot[up] = rt_alloc(sizeof *x->slot[up] * (size_t)x->slots[up]);
    for (int i = 0; i < x->slots[up]; i++, at += (CUdeviceptr)x->bytes)
      if (!open_slot(c, &x->slot[up][i], at, f)) return false;
  }
  return true;
}

static void destroy(const Cuda *c, CUevent e) {
  if (e) c->api.cuEventDestroy(e);
}

static void close_lane(const Cuda *c, LaneQueue *q) {
  if (q->stream) c->api.cuStreamSynchronize(q->stream);
  for (int i = 0; i < TOUCHES; i++) destroy(c, q->touch[i].over), free(q->touch[i].span);
  if (q->stream) c->api.cuStreamDestroy(q->stream);
}

void rt_cuda_lanes_close(Cuda *c) {
  CudaLanes *x = c->lanes;
  if (!x) return;
  for (HostLaneKind l = 0; l < LANES; l++) close_lane(c, &x->lane[l]);
  for (int up = 0; up < 2; up++) {
    for (int i = 0; i < x->slots[up]; i++)
      destroy(c, x->slot[up][i].full), destroy(c, x->slot[up][i].empty);
    free(x->slot[up]);
  }
  destroy(c, x->began);
  free(x);
  c->lanes = NULL;
}

/* ---- who waits for whom ---- */

static void wait_on(const Cuda *c, CUstream to, CUevent e) {
  rt_cuda_must(c, c->api.cuStreamWaitEvent(to, e, 0), "wait for an event");
}

static void record(const Cuda *c, CUevent e, CUstream from) {
  rt_cuda_must(c, c->api.cuEventRecord(e, from), "record an event");
}

static bool meets(const HostTouch *t, const HostSpan *span, int n) {
  for (int i = 0; i < t->n; i++)
    for (int k = 0; k < n; k++) {
      const HostSpan *a = &t->span[i], *b = &span[k];
      if ((a->written || b->written) && a->from < b->from + b->bytes &&
          b->from < a->from + a->bytes)
        return true;
    }
  return false;
}

/* How many operations there are up to the last that touches these bytes, or might have. */
static int64_t last_touch(const LaneQueue *q, const HostSpan *span, int n) {
  int64_t oldest = q->n > TOUCHES ? q->n - TOUCHES : 0;
  for (int64_t i = q->n; i-- > oldest;)
    if (meets(&q->touch[i % TOUCHES], span, n)) return i + 1;
  return oldest ? oldest + 1 : 0;
}

/* The stream, behind all that it has to wait for to touch these bytes of the host. */
static CUstream go_behind(const Cuda *c, HostLaneKind lane, const HostSpan *span, int n) {
  LaneQueue *q = &c->lanes->lane[lane];
  if (!q->n) wait_on(c, q->stream, c->lanes->began);
  for (HostLaneKind l = 0; l < LANES; l++) {
    const LaneQueue *other = &c->lanes->lane[l];
    int64_t last = l == lane ? 0 : last_touch(other, span, n);
    if (last <= q->behind[l]) continue;
    wait_on(c, q->stream, other->touch[(last - 1) % TOUCHES].over);
    q->behind[l] = last;
  }
  return q->stream;
}

static void note(const Cuda *c, HostLaneKind lane, const HostSpan *span, int n) {
  LaneQueue *q = &c->lanes->lane[lane];
  HostTouch *t = &q->touch[q->n++ % TOUCHES];
  memcpy(t->span, span, sizeof *span * (size_t)n);
  t->n = n;
  record(c, t->over, q->stream);
}

/* Pieces of a move are one operation: the next one goes on where the last has ended. */
static void note_piece(const Cuda *c, HostLaneKind lane, const HostSpan *span, bool first) {
  LaneQueue *q = &c->lanes->lane[lane];
  HostTouch *t = first ? NULL : &q->touch[(q->n - 1) % TOUCHES];
  if (!t) {
    note(c, lane, span, 1);
    return;
  }
  t->span->bytes += span->bytes;
  record(c, t->over, q->stream);
}

/* ---- copies ---- */

static void copy(const Cuda *c, CUdeviceptr to, CUdeviceptr from, int64_t bytes, CUstream s) {
  rt_cuda_must(c, c->api.cuMemcpyAsync(to, from, (size_t)bytes, s), "copy from or to the host");
}

static CopySlot *next_slot(CudaLanes *x, bool up) {
  return &x->slot[up][x->taken[up]++ % x->slots[up]];
}

static void piece_down(const Cuda *c, char *to, CUdeviceptr from, int64_t bytes, bool first) {
  CopySlot *s = next_slot(c->lanes, false);
  HostSpan there = {to, bytes, true};
  if (s->used) wait_on(c, c->stream, s->empty);
  copy(c, s->at, from, bytes, c->stream), record(c, s->full, c->stream);
  CUstream lane = go_behind(c, LANE_DOWN, &there, 1);
  wait_on(c, lane, s->full);
  copy(c, (CUdeviceptr)(uintptr_t)to, s->at, bytes, lane), record(c, s->empty, lane);
  note_piece(c, LANE_DOWN, &there, first);
  s->used = true;
}

static void piece_up(const Cuda *c, CUdeviceptr to, char *from, int64_t bytes, bool first) {
  CopySlot *s = next_slot(c->lanes, true);
  HostSpan there = {from, bytes, false};
  CUstream lane = go_behind(c, LANE_UP, &there, 1);
  if (s->used) wait_on(c, lane, s->empty);
  copy(c, s->at, (CUdeviceptr)(uintptr_t)from, bytes, lane), record(c, s->full, lane);
  note_piece(c, LANE_UP, &there, first);
  wait_on(c, c->stream, s->full);
  copy(c, to, s->at, bytes, c->stream), record(c, s->empty, c->stream);
  s->used = true;
}

bool rt_cuda_has_lanes(const Cuda *c) { return c->lanes && c->lanes->on; }

void rt_cuda_lanes_move(const Cuda *c, void *to, const void *from, int64_t bytes, bool up) {
  CUdeviceptr a = (CUdeviceptr)(uintptr_t)to, b = (CUdeviceptr)(uintptr_t)from;
  for (int64_t at = 0, n; at < bytes; at += n) {
    n = min_i64(bytes - at, c->lanes->bytes);
    CUdeviceptr i = (CUdeviceptr)at;
    if (up) piece_up(c, a + i, (char *)(uintptr_t)(b + i), n, !at);
    else piece_down(c, (char *)(uintptr_t)(a + i), b + i, n, !at);
  }
}

/* ---- what the host does ---- */

void rt_cuda_lanes_copy(const Cuda *c, void *to, const void *from, int64_t bytes) {
  HostSpan span[] = {{from, bytes, false}, {to, bytes, true}};
  CUdeviceptr a = (CUdeviceptr)(uintptr_t)to, b = (CUdeviceptr)(uintptr_t)from;
  copy(c, a, b, bytes, go_behind(c, LANE_HOST, span, 2));
  note(c, LANE_HOST, span, 2);
}

void rt_cuda_lanes_zero(const Cuda *c, void *to, int64_t bytes) {
  HostSpan span = {to, bytes, true};
  CUstream lane = go_behind(c, LANE_HOST, &span, 1);
  CUresult e = c->api.cuMemsetD8Async((CUdeviceptr)(uintptr_t)to, 0, (size_t)bytes, lane);
  rt_cuda_must(c, e, "fill with zeros");
  note(c, LANE_HOST, &span, 1);
}

void rt_cuda_lanes_call(const Cuda *c, void (*f)(void *), void *data, const HostSpan *span, int n) {
  CUstream lane = go_behind(c, LANE_HOST, span, n);
  rt_cuda_must(c, c->api.cuLaunchHostFunc(lane, f, data), "launch a kernel of the host");
  note(c, LANE_HOST, span, n);
}

/* ---- entries ---- */

void rt_cuda_lanes_begin(const Cuda *c, bool on) {
  CudaLanes *x = c->lanes;
  if (x) x->on = on;
  if (!rt_cuda_has_lanes(c)) return;
  for (HostLaneKind l = 0; l < LANES; l++) {
    x->lane[l].n = 0;
    memset(x->lane[l].behind, 0, sizeof x->lane[l].behind);
  }
  for (int up = 0; up < 2; up++)
    for (int i = 0; i < x->slots[up]; i++) x->slot[up][i].used = false;
  record(c, x->began, c->stream);
}

void rt_cuda_lanes_end(const Cuda *c) {
  if (!rt_cuda_has_lanes(c)) return;
  for (HostLaneKind l = 0; l < LANES; l++) {
    const LaneQueue *q = &c->lanes->lane[l];
    if (q->n) wait_on(c, c->stream, q->touch[(q->n - 1) % TOUCHES].over);
  }
}
