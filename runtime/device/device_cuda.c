/* The CUDA device: arenas in the memory of one GPU, a stream, entries as graphs. Messages in flight
   have a stream of their own (cuda_flight.c).

   The first run of an entry goes launch by launch and waits for each, so that code which is refused
   or faults is told with its kernel. The second run is recorded, with the same calls of generated
   code, into a graph; from then on a run is one launch of it. Addresses are final and scalars lie
   in device memory, so a graph holds for the whole process. Nothing in a run waits for the device;
   who reads a tensor does. Entries whose collectives go by way of the host are not recorded. Must
   not: allocate after the start. */
#include "device_cuda.h"
#include "ir/support/num.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREAD_LOCAL_CAPTURE = 1 };

bool rt_cuda_ok(const Cuda *c, CUresult e, const char *what, Fault *f) {
  return e == CU_SUCCESS || rt_cuda_fault(&c->api, e, 1008, f, "cannot %s", what);
}

/* Faults of kernels reach the host at whatever call comes next. */
void rt_cuda_must(const Cuda *c, CUresult e, const char *what) {
  Fault f = {0};
  char why[300];
  if (e == CU_SUCCESS) return;
  if (e < CU_ILLEGAL_ADDRESS || !c->running) {
    rt_cuda_ok(c, e, what, &f);
    rt_die(&f);
  }
  rt_cuda_error(&c->api, e, why, sizeof why);
  rt_fault(&f, 1007, "a kernel of entry %s failed on the GPU: %s", c->running, why);
  rt_help(&f, "SHARDC_DEBUG=launch waits for every kernel and so names it");
  rt_die(&f);
}

static CUdeviceptr at(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

/* ---- start ---- */

static bool fits(const Cuda *c, const rt_program *p, Fault *f) {
  int64_t shared = 0;
  if (c->device.sm < p->sm) {
    rt_fault(f, 1003, "this executable is for %s, and GPU %s has compute capability %d.%d",
             p->target, c->device.name, c->device.sm / 10, c->device.sm % 10);
    return rt_help(f, "no GPU older than the target can run it: --device gpu:N takes another one");
  }
  for (int i = 0; i < p->nkernels; i++)
    for (int k = 0; k < p->kernels[i]->phases; k++)
      if (p->kernels[i]->phase[k].shared > shared) shared = p->kernels[i]->phase[k].shared;
  return shared <= c->device.shared_limit ||
         rt_fault(f, 1003, "a kernel needs %lld bytes of shared memory, GPU %s has %d",
                  (long long)shared, c->device.name, c->device.shared_limit);
}

const char *rt_cuda_mebibytes(char out[32], double bytes) {
  snprintf(out, 32, bytes < 10 << 20 ? "%.2f MiB" : "%.0f MiB", bytes / (1 << 20));
  return out;
}

static bool allocate(const Device *d, int64_t bytes, CUdeviceptr *to, Fault *f) {
  Cuda *c = d->inside;
  size_t have = 0, all = 0;
  int64_t needed = 0;
  if (!bytes) return true;
  CUresult e = c->api.cuMemAlloc(to, (size_t)bytes);
  if (e != CU_OUT_OF_MEMORY) return rt_cuda_ok(c, e, "allocate device memory", f);
  c->api.cuMemGetInfo(&have, &all);
  for (int i = 0; i < RT_ARENAS; i++) {
    if (rt_cuda_on_host(i)) continue;
    needed += rt_arena_bytes(d, i);
    if (c->arena[i] && &c->arena[i] != to) have += (size_t)rt_arena_bytes(d, i);
  }
  char wants[32], has[32], of[32];
  rt_fault(f, 1005, "this executable needs %s on the GPU, and %s of %s are free on %s",
           rt_cuda_mebibytes(wants, (double)needed), rt_cuda_mebibytes(has, (double)have),
           rt_cuda_mebibytes(of, (double)all), c->device.name);
  return rt_help(f, "nvidia-smi shows who holds the rest; `micro` in the plan, or recompute, needs "
                    "less");
}

static bool make_counters(Cuda *c, const rt_program *p, Fault *f) {
  size_t bytes = sizeof(int32_t) * (size_t)p->counters;
  int32_t *number = rt_alloc(bytes);
  for (int64_t i = 0; i < p->counters; i++) number[i] = (int32_t)i;
  c->counters = c->arena[RT_IO] + (CUdeviceptr)p->counters_at;
  c->word = c->counters + round_up(bytes, CACHE_LINE);
  bool ok =
      !bytes || (rt_cuda_ok(c, c->api.cuMemcpyHtoDAsync(c->counters, number, bytes, c->stream),
                            "copy to the device", f) &&
                 rt_cuda_ok(c, c->api.cuStreamSynchronize(c->stream), "copy to the device", f));
  free(number);
  return ok;
}

static bool make_arenas(Device *d, Cuda *c, Fault *f) {
  for (int i = 0; i < RT_ARENAS; i++) {
    if (rt_cuda_on_host(i)) continue;
    if (!allocate(d, rt_arena_bytes(d, i), &c->arena[i], f)) return false;
    d->ctx.arena[i] = (char *)(uintptr_t)c->arena[i];
  }
  return true;
}

static bool open_context(Cuda *c, int number, Fault *f) {
  const CudaApi *a = &c->api;
  const char *what = "use the GPU";
  return rt_cuda_device(a, number, &c->device, f) &&
         rt_cuda_ok(c, a->cuDevicePrimaryCtxRetain(&c->context, c->device.handle), what, f) &&
         rt_cuda_ok(c, a->cuCtxSetCurrent(c->context), what, f) &&
         rt_cuda_ok(c, a->cuStreamCreate(&c->stream, 1), what, f) &&
         rt_cuda_ok(c, a->cuEventCreate(&c->from, 0), what, f) &&
         rt_cuda_ok(c, a->cuEventCreate(&c->to, 0), what, f);
}

/* Ranks of a machine take its GPUs in turn. */
static int choose(Device *d, const DeviceOptions *o, const CudaApi *a) {
  int count = 0;
  if (o->number >= 0) return o->number;
  if (!d->comm || a->cuDeviceGetCount(&count) != CU_SUCCESS || count < 1) return 0;
  return d->comm->launch.local_rank % count;
}

/* From its view, at any time. */
static bool host_writes(const Device *d, const rt_tensor *t) {
  return (t->kind == RT_INPUT || t->kind == RT_SCALAR) && t->view >= 0 && rt_is_there(d, t);
}

static bool start(Device *d, const DeviceOptions *o, Fault *f) {
  Cuda *c = d->inside = rt_alloc(sizeof *c);
  const rt_program *p = d->program;
  c->no_graph = o->no_graph, c->careful = o->careful, c->kernels = o->kernels;
  c->times_waits = o->waited;
  c->entry = rt_alloc(sizeof *c->entry * (size_t)p->nentries);
  if (!rt_cuda_load(&c->api, f) || !open_context(c, choose(d, o, &c->api), f)) return false;
  if (!fits(c, p, f) || !make_arenas(d, c, f) || !rt_cuda_pin(d, f)) return false;
  if (!make_counters(c, p, f) || !rt_cuda_ahead_open(c, p, f)) return false;
  if (!rt_cuda_kernels_open(c, p, f) || !rt_cuda_beside_open(d, o->threads, f)) return false;
  if (!rt_cuda_lanes_open(c, p, rt_cuda_beside_buffers(c), f)) return false;
  for (int i = 0; i < p->ntensors; i++)
    if (host_writes(d, &p->tensors[i])) d->state[i] = WRITTEN;
  /* Optimizer states begin at zero; device memory is as others left it. */
  size_t states = (size_t)p->arena_bytes[RT_STATES];
  return !states || rt_cuda_ok(c, c->api.cuMemsetD8Async(c->arena[RT_STATES], 0, states, c->stream),
                               "clear the optimizer states", f);
}

/* The job is lost: graphs hold what NCCL has, so they go first. From another thread. */
static void let_go(void *device) {
  Device *d = device;
  Cuda *c = d->inside;
  c->api.cuCtxSetCurrent(c->context);
  for (int i = 0; i < d->program->nentries; i++) {
    CUgraphExec graph = c->entry[i].graph;
    c->entry[i].graph = NULL;
    if (graph) c->api.cuGraphExecDestroy(graph);
  }
  rt_nccl_abort(c->nccl);
}

static bool join(Device *d, Fault *f) {
  Cuda *c = d->inside;
  if (!d->comm || !d->comm->on_device) return true;
  if (!rt_cuda_flights_open(c, d->program, f)) return false;
  if (c->times_waits) rt_cuda_waited_open(c, d->program);
  c->nccl = rt_nccl_start(d->comm, &c->api, c->context, c->word, f);
  if (c->nccl) d->comm->device = d, d->comm->let_go = let_go;
  return c->nccl != NULL;
}

static void stop(Device *d) {
  Cuda *c = d->inside;
  const CudaApi *a = &c->api;
  if (c->stream) a->cuStreamSynchronize(c->stream);
  for (int i = 0; c->stream && i < d->program->nentries; i++)
    if (c->entry[i].graph) a->cuGraphExecDestroy(c->entry[i].graph);
  if (d->comm) d->comm->let_go = NULL;
  if (c->nccl) rt_nccl_stop(c->nccl);
  rt_cuda_flights_close(c, d->program), rt_cuda_waited_close(c), rt_cuda_ahead_close(c);
  rt_cuda_lanes_close(c), rt_cuda_beside_close(c);
  rt_cuda_unpin(c);
  for (int i = 0; i < RT_ARENAS; i++)
    if (c->arena[i] && !rt_cuda_on_host(i)) a->cuMemFree(c->arena[i]);
  rt_cuda_kernels_close(c);
  if (c->from) a->cuEventDestroy(c->from);
  if (c->to) a->cuEventDestroy(c->to);
  if (c->stream) a->cuStreamDestroy(c->stream);
  if (c->context) a->cuDevicePrimaryCtxRelease(c->device.handle);
  free(c->entry), free(c);
}

/* ---- calls of generated code ---- */

static void launch(Device *d, const rt_kernel *k, void *const *buffers) {
  if (k->image) rt_cuda_launch(d->inside, k, buffers, d->trace);
  else rt_cuda_launch_beside(d->inside, k, buffers, d->trace);
}

static bool lies_there(const Device *d, const void *p) {
  const Cuda *c = d->inside;
  for (int i = 0; i < RT_ARENAS; i++) {
    CUdeviceptr from = c->arena[i], bytes = (CUdeviceptr)d->program->arena_bytes[i];
    if (rt_cuda_on_host(i) && at(p) >= from && at(p) < from + bytes) return true;
  }
  return false;
}

static void copy(Device *d, void *to, const void *from, int64_t bytes) {
  Cuda *c = d->inside;
  if (rt_cuda_has_lanes(c) && lies_there(d, to)) rt_cuda_lanes_copy(c, to, from, bytes);
  else rt_cuda_copy(c, at(to), at(from), bytes, "copy");
}

static void move_between(Device *d, void *to, const void *from, int64_t bytes, bool up) {
  Cuda *c = d->inside;
  if (rt_cuda_has_lanes(c)) rt_cuda_lanes_move(c, to, from, bytes, up);
  else rt_cuda_copy(c, at(to), at(from), bytes, "copy");
}

static void zero(Device *d, void *to, int64_t bytes) {
  Cuda *c = d->inside;
  bool words = bytes % 4 == 0 && at(to) % 4 == 0;
  if (rt_cuda_has_lanes(c) && lies_there(d, to)) {
    rt_cuda_lanes_zero(c, to, bytes);
    return;
  }
  CUresult e = words ? c->api.cuMemsetD32Async(at(to), 0, (size_t)bytes / 4, c->stream)
                     : c->api.cuMemsetD8Async(at(to), 0, (size_t)bytes, c->stream);
  rt_cuda_must(c, e, "fill with zeros");
}

static void *counter(Device *d, int64_t i) {
  const Cuda *c = d->inside;
  return (void *)(uintptr_t)(c->counters + (CUdeviceptr)i * sizeof(int32_t));
}

/* A collective of NCCL may never end: while it is waited for, its communicators are asked. */
void rt_cuda_wait(const Cuda *c) {
  const struct timespec nap = {.tv_nsec = 20000};
  CUresult e = c->nccl ? CU_NOT_READY : c->api.cuStreamSynchronize(c->stream);
  if (c->nccl) rt_nccl_waits(c->nccl, false);
  for (int64_t i = 0; e == CU_NOT_READY; i++) {
    e = c->api.cuStreamQuery(c->stream);
    if (e == CU_NOT_READY && i % 500 == 499) rt_nccl_look(c->nccl);
    if (e == CU_NOT_READY && i > 100) nanosleep(&nap, NULL);
  }
  if (c->nccl) rt_nccl_look(c->nccl), rt_nccl_goes_on(c->nccl);
  rt_cuda_must(c, e, "wait for the GPU");
}

static void collect_there(Device *d, const rt_collective *x, const void *send, void *receive,
                          void *work) {
  Cuda *c = d->inside;
  if (x->kind == RT_SEND) rt_cuda_send(d, x, send, receive);
  else if (x->kind == RT_RECEIVE) rt_cuda_receive(d, x, receive);
  else if (c->flights) rt_cuda_collect_behind(d, x, send, receive, work);
  else rt_nccl_collect(c->nccl, x, send, receive, work, c->stream);
}

/* --profile shows counts and times, and records no graphs: it sees every call. */
static void collect_timed(Device *d, const rt_collective *x, const void *send, void *receive,
                          void *work) {
  Cuda *c = d->inside;
  float milliseconds = 0;
  rt_cuda_must(c, c->api.cuEventRecord(c->from, c->stream), "time a collective");
  collect_there(d, x, send, receive, work);
  rt_cuda_must(c, c->api.cuEventRecord(c->to, c->stream), "time a collective");
  rt_cuda_wait(c);
  CUresult e = c->api.cuEventElapsedTime(&milliseconds, c->from, c->to);
  rt_cuda_must(c, e, "time a collective");
  rt_comm_count(d->comm, x, 1e-3 * milliseconds);
}

/* Nobody is there to send to, or to receive from. */
static bool is_end(const Device *d, const rt_collective *x) {
  const RankGroup *g = &d->comm->group[x->axis];
  return g->n == 1 || (rt_is_hop(x->kind) && rt_hop_peer(x, g) < 0);
}

/* Over an axis of one rank, through the host, or timed: done when this returns, or on the stream of
   the kernels. */
static bool collects_here(Device *d, const rt_collective *x, const void *send, void *receive,
                          void *work) {
  Cuda *c = d->inside;
  if (is_end(d, x)) {
    if (send != receive) copy(d, receive, send, x->count * rt_elem_bytes((int)x->elem));
    if (d->trace) rt_comm_count(d->comm, x, 0);
    if (c->nccl) rt_cuda_pass(d, x);
    return true;
  }
  if (c->nccl && d->trace) collect_timed(d, x, send, receive, work);
  if (!c->nccl) rt_cuda_exchange(d, x, send, receive);
  return !c->nccl || d->trace;
}

static void collect(Device *d, const rt_collective *x, const void *send, void *receive,
                    void *work) {
  Cuda *c = d->inside;
  if (collects_here(d, x, send, receive, work)) return;
  rt_cuda_waits(c);
  collect_there(d, x, send, receive, work);
  rt_cuda_goes_on(c);
}

static void begin(Device *d, const rt_collective *x, const void *send, void *receive, void *work) {
  if (!collects_here(d, x, send, receive, work)) rt_cuda_start(d, x, send, receive, work);
}

/* n: the messages of one flight. */
static void end(Device *d, const rt_collective *x, int64_t n) {
  const Cuda *c = d->inside;
  (void)n;
  if (!c->nccl || d->trace || d->comm->group[x->axis].n == 1) return;
  rt_cuda_waits(c);
  rt_cuda_await(d, x);
  rt_cuda_goes_on(c);
}

/* ---- views ---- */

static void move(const Device *d, const rt_tensor *t, int64_t from, int64_t bytes, char *here,
                 bool fetches) {
  const Cuda *c = d->inside;
  CUdeviceptr there = c->arena[t->arena] + (CUdeviceptr)(t->offset + from);
  if (fetches) rt_cuda_copy(c, at(here), there, bytes, "copy from the GPU");
  else rt_cuda_copy(c, there, at(here), bytes, "copy to the GPU");
}

static void move_tensor(const Device *d, const rt_tensor *t, bool fetches) {
  if (t->bytes) move(d, t, 0, t->bytes, d->apart + t->view, fetches);
}

/* What was written in the window goes to the device; what lies there no longer counts. */
static void close_window(const Device *d) {
  Cuda *c = d->inside;
  OpenSpan *o = &c->open;
  if (o->t && o->written) {
    move(d, o->t, o->from, o->bytes, c->pinned + d->program->host_view, false);
    rt_cuda_wait(c);
  }
  *o = (OpenSpan){0};
}

static char *span(const Device *d, const rt_tensor *t, int64_t from, int64_t bytes, bool writes) {
  Cuda *c = d->inside;
  OpenSpan *o = &c->open;
  char *window = c->pinned + d->program->host_view;
  if (o->t != t || o->from != from || o->bytes != bytes) {
    close_window(d);
    if (bytes) move(d, t, from, bytes, window, true), rt_cuda_wait(c);
    *o = (OpenSpan){t, from, bytes, false};
  }
  o->written = o->written || writes;
  return window;
}

/* ---- entries ---- */

static void call_entry(Device *d, Cuda *c, const rt_entry *e) {
  if (c->nccl) rt_nccl_begin(c->nccl, c->stream);
  rt_cuda_beside_begin(c);
  rt_cuda_lanes_begin(c, !c->waits && !d->trace);
  rt_cuda_waited_begin(c);
  rt_cuda_flights_begin(d, e);
  e->run(&d->ctx);
  rt_cuda_flights_end(d);
  rt_cuda_lanes_end(c);
  rt_cuda_waited_end(c, (int)(e - d->program->entries), true);
}

static void record(Device *d, Cuda *c, const rt_entry *e, Recorded *r) {
  CUgraph graph = NULL;
  const char *what = "record a graph";
  rt_cuda_must(c, c->api.cuStreamBeginCapture(c->stream, THREAD_LOCAL_CAPTURE), what);
  c->recording = true;
  call_entry(d, c, e);
  c->recording = false;
  rt_cuda_must(c, c->api.cuStreamEndCapture(c->stream, &graph), what);
  rt_cuda_must(c, c->api.cuGraphInstantiateWithFlags(&r->graph, graph, 0), what);
  c->api.cuGraphDestroy(graph);
}

static bool goes_through_host(const Device *d) {
  const Cuda *c = d->inside;
  return d->program->ncollectives && rt_comm_world(d->comm) > 1 && !c->nccl;
}

static void hand_over(Device *d, const rt_entry *e) {
  Cuda *c = d->inside;
  Recorded *r = &c->entry[e - d->program->entries];
  bool first = r->runs++ == 0;
  c->running = e->name, c->waits = first || c->careful;
  if (first || c->no_graph || c->careful || d->check || d->trace || goes_through_host(d)) {
    call_entry(d, c, e);
    return;
  }
  if (!r->graph) record(d, c, e, r);
  rt_cuda_must(c, c->api.cuGraphLaunch(r->graph, c->stream), "launch a graph");
  rt_cuda_waited_end(c, (int)(e - d->program->entries), false);
}

static bool run_entry(Device *d, const rt_entry *e) {
  Cuda *c = d->inside;
  close_window(d);
  if (c->nccl) rt_nccl_waits(c->nccl, true);
  hand_over(d, e);
  if (c->nccl) rt_nccl_goes_on(c->nccl);
  return true;
}

/* Check runs: the end of what an entry touched, read back a piece at a time from behind. */
static int64_t touched(Cuda *c, int64_t bytes) {
  enum { PIECE = 1 << 20 };
  char *piece = rt_alloc(PIECE + 64);
  int64_t most = 0;
  for (int64_t end = round_up(bytes, CACHE_LINE); end > 0 && !most;) {
    int64_t from = end > PIECE ? end - PIECE : 0;
    CUresult e =
        c->api.cuMemcpyDtoHAsync(piece, c->arena[RT_WORK] + (CUdeviceptr)from,
                                 (size_t)(end > bytes ? bytes - from : end - from), c->stream);
    rt_cuda_must(c, e, "copy"), rt_cuda_wait(c);
    if (end > bytes) rt_poison(piece + (bytes - from) / 4 * 4, end - bytes);
    int64_t n = rt_touched(piece, end - from);
    if (n) most = from + n;
    end = from;
  }
  free(piece);
  return most;
}

static bool run(Device *d, const rt_entry *e, Fault *f) {
  Cuda *c = d->inside;
  int64_t *most = &d->touched[e - d->program->entries], words = e->work_bytes / 4;
  if (!d->check) return run_entry(d, e);
  if (e->work_bytes > d->program->arena_bytes[RT_WORK])
    return rt_fault(f, 105, "entry %s needs more work memory than there is", e->name);
  if (words)
    rt_cuda_must(c, c->api.cuMemsetD32Async(c->arena[RT_WORK], RT_POISON, (size_t)words, c->stream),
                 "poison the work arena");
  rt_cuda_poison_host(d, e);
  bool ok = run_entry(d, e);
  int64_t now = touched(c, e->work_bytes / 4 * 4);
  if (now > *most) *most = now;
  rt_cuda_measure_host(d, e);
  return ok;
}

/* ---- what the runtime reads and writes ---- */

/* Outputs come together: who reads the loss reads the others, too. */
static void fetch(const Device *d, const rt_tensor *t) {
  const rt_program *p = d->program;
  bool output = t->kind == RT_OUTPUT;
  if (!output) move_tensor(d, t, true);
  for (int i = 0; output && i < p->ntensors; i++) {
    const rt_tensor *o = &p->tensors[i];
    if (o->kind != RT_OUTPUT || o->view < 0 || d->state[i] != STALE) continue;
    move_tensor(d, o, true), d->state[i] = SAME;
  }
  rt_cuda_wait(d->inside);
}

static void push(const Device *d, const rt_tensor *t) { move_tensor(d, t, false); }

static void settle(const Device *d) { rt_cuda_wait(d->inside); }

static void rows(Device *d, const RowCopy *x) {
  Cuda *c = d->inside;
  close_window(d);
  CuCopy2D copy = {.from_kind = CU_ON_DEVICE,
                   .from_device = at(d->ctx.arena[x->from->arena] + x->from->offset + x->from_at),
                   .from_pitch = (size_t)x->from_apart,
                   .to_kind = CU_ON_DEVICE,
                   .to_device = at(d->ctx.arena[x->to->arena] + x->to->offset + x->to_at),
                   .to_pitch = (size_t)x->to_apart,
                   .bytes = (size_t)x->bytes,
                   .rows = (size_t)x->rows};
  rt_cuda_must(c, c->api.cuMemcpy2DAsync(&copy, c->stream), "copy rows");
}

static void words(const Device *d, char *out, size_t n) {
  const Cuda *c = d->inside;
  snprintf(out, n, "%s (sm_%d, driver %d.%d)", c->device.name, c->device.sm, c->api.version / 1000,
           c->api.version % 1000 / 10);
}

const DeviceCalls rt_device_cuda = {.start = start,
                                    .join = join,
                                    .stop = stop,
                                    .run = run,
                                    .launch = launch,
                                    .copy = copy,
                                    .move = move_between,
                                    .zero = zero,
                                    .counter = counter,
                                    .collect = collect,
                                    .begin = begin,
                                    .end = end,
                                    .rows = rows,
                                    .words = words,
                                    .waited = rt_cuda_waited,
                                    .fetch = fetch,
                                    .push = push,
                                    .settle = settle,
                                    .ahead = &rt_cuda_ahead,
                                    .span = span};
