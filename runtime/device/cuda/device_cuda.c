/* The CUDA device: arenas in the memory of one GPU, a stream, entries as graphs. Messages in flight
   have a stream of their own (cuda_flight.c).

   The first run of an entry waits for each launch, so that a fault or refused code is reported with
   its kernel. The second run is recorded, with the same calls of generated code, into a graph; from
   then on a run is one launch of it. Addresses are final and scalars are in device memory, so a
   graph stays valid for the whole process. Running an entry does not wait for the device; reading a
   tensor does. Entries whose collectives are staged through the host are not recorded. Must not:
   allocate after the start. */
#include "device_cuda.h"
#include "ir/support/num.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREAD_LOCAL_CAPTURE = 1 };

bool rt_cuda_ok(const Cuda *cuda, CUresult e, const char *what, Fault *f) {
  return e == CU_SUCCESS || rt_cuda_fault(&cuda->api, e, 1008, f, "cannot %s", what);
}

bool rt_cuda_event(const Cuda *cuda, CUevent *e, Fault *f) {
  enum { NO_TIME = 2 }; /* CU_EVENT_DISABLE_TIMING */
  return rt_cuda_ok(cuda, cuda->api.cuEventCreate(e, NO_TIME), "make an event", f);
}

void rt_cuda_wait_event(const Cuda *cuda, CUstream to, CUevent e) {
  rt_cuda_must(cuda, cuda->api.cuStreamWaitEvent(to, e, 0), "wait for an event");
}

void rt_cuda_record(const Cuda *cuda, CUevent e, CUstream from) {
  rt_cuda_must(cuda, cuda->api.cuEventRecord(e, from), "record an event");
}

/* Faults of kernels reach the host at whatever call comes next. */
void rt_cuda_must(const Cuda *cuda, CUresult e, const char *what) {
  Fault f = {0};
  char why[300];
  if (e == CU_SUCCESS) return;
  if (e < CU_ILLEGAL_ADDRESS || !cuda->running) {
    rt_cuda_ok(cuda, e, what, &f);
    rt_die(&f);
  }
  rt_cuda_error(&cuda->api, e, why, sizeof why);
  rt_fault(&f, 1007, "a kernel of entry %s failed on the GPU: %s", cuda->running, why);
  rt_help(&f, "SHARDC_DEBUG=launch waits for every kernel and so names it");
  rt_die(&f);
}

static CUdeviceptr at(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

/* ---- start ---- */

static bool fits(const Cuda *cuda, const rt_program *program, Fault *f) {
  int64_t shared = 0;
  if (!rt_runs_on(program, cuda->device.sm)) {
    rt_fault(f, 1003, "this executable is for %s, and GPU %s has compute capability %d.%d",
             program->target, cuda->device.name, cuda->device.sm / 10, cuda->device.sm % 10);
    return rt_help(
        f, program->alone
               ? "its code is for that capability only; `--target sm_90` also runs on newer ones"
               : "no GPU older than the target can run it: --device gpu:N takes another one");
  }
  for (int i = 0; i < program->nkernels; i++)
    for (int k = 0; k < program->kernels[i]->phases; k++)
      if (program->kernels[i]->phase[k].shared > shared)
        shared = program->kernels[i]->phase[k].shared;
  if (shared <= cuda->device.shared_limit) return true;
  rt_fault(f, 1003, "a kernel needs %lld bytes of shared memory, GPU %s has %d", (long long)shared,
           cuda->device.name, cuda->device.shared_limit);
  return rt_help(f, "%s",
                 program->alone ? "kernels for `--target sm_90` need less"
                                : "--device gpu:N takes another GPU, `--device cpu` a processor");
}

const char *rt_cuda_mebibytes(char out[32], double bytes) {
  snprintf(out, 32, bytes < 10 << 20 ? "%.2f MiB" : "%.0f MiB", bytes / (1 << 20));
  return out;
}

static bool allocate(const Device *d, int64_t bytes, CUdeviceptr *to, Fault *f) {
  Cuda *cuda = d->inside;
  size_t have = 0, all = 0;
  int64_t needed = 0;
  if (!bytes) return true;
  CUresult e = cuda->api.cuMemAlloc(to, (size_t)bytes);
  if (e != CU_OUT_OF_MEMORY) return rt_cuda_ok(cuda, e, "allocate device memory", f);
  cuda->api.cuMemGetInfo(&have, &all);
  for (int i = 0; i < RT_ARENAS; i++) {
    if (rt_cuda_on_host(i)) continue;
    needed += rt_arena_bytes(d, i);
    if (cuda->arena[i] && &cuda->arena[i] != to) have += (size_t)rt_arena_bytes(d, i);
  }
  char wants[32], has[32], of[32];
  rt_fault(f, 1005, "this executable needs %s on the GPU, and %s of %s are free on %s",
           rt_cuda_mebibytes(wants, (double)needed), rt_cuda_mebibytes(has, (double)have),
           rt_cuda_mebibytes(of, (double)all), cuda->device.name);
  return rt_help(f, "nvidia-smi shows who holds the rest; `micro` in the plan, or recompute, needs "
                    "less");
}

static bool make_counters(Cuda *cuda, const rt_program *program, Fault *f) {
  size_t bytes = sizeof(int32_t) * (size_t)program->counters;
  int32_t *number = rt_alloc(bytes);
  for (int64_t i = 0; i < program->counters; i++) number[i] = (int32_t)i;
  cuda->counters = cuda->arena[RT_IO] + (CUdeviceptr)program->counters_at;
  cuda->word = cuda->counters + round_up(bytes, CACHE_LINE);
  bool ok =
      !bytes ||
      (rt_cuda_ok(cuda, cuda->api.cuMemcpyHtoDAsync(cuda->counters, number, bytes, cuda->stream),
                  "copy to the device", f) &&
       rt_cuda_ok(cuda, cuda->api.cuStreamSynchronize(cuda->stream), "copy to the device", f));
  free(number);
  return ok;
}

static bool make_arenas(Device *d, Cuda *cuda, Fault *f) {
  for (int i = 0; i < RT_ARENAS; i++) {
    if (rt_cuda_on_host(i)) continue;
    if (!allocate(d, rt_arena_bytes(d, i), &cuda->arena[i], f)) return false;
    d->ctx.arena[i] = (char *)(uintptr_t)cuda->arena[i];
  }
  return true;
}

static bool open_context(Cuda *cuda, int number, Fault *f) {
  const CudaApi *api = &cuda->api;
  const char *what = "use the GPU";
  return rt_cuda_device(api, number, &cuda->device, f) &&
         rt_cuda_ok(cuda, api->cuDevicePrimaryCtxRetain(&cuda->context, cuda->device.handle), what,
                    f) &&
         rt_cuda_ok(cuda, api->cuCtxSetCurrent(cuda->context), what, f) &&
         rt_cuda_ok(cuda, api->cuStreamCreate(&cuda->stream, 1), what, f) &&
         rt_cuda_ok(cuda, api->cuEventCreate(&cuda->from, 0), what, f) &&
         rt_cuda_ok(cuda, api->cuEventCreate(&cuda->to, 0), what, f);
}

/* Ranks of a machine take its GPUs in turn. */
static int choose(Device *d, const DeviceOptions *options, const CudaApi *api) {
  int count = 0;
  if (options->number >= 0) return options->number;
  if (!d->comm || api->cuDeviceGetCount(&count) != CU_SUCCESS || count < 1) return 0;
  return d->comm->launch.local_rank % count;
}

/* From its view, at any time. */
static bool host_writes(const Device *d, const rt_tensor *tensor) {
  return (tensor->kind == RT_INPUT || tensor->kind == RT_SCALAR) && tensor->view >= 0 &&
         rt_is_there(d, tensor);
}

static bool start(Device *d, const DeviceOptions *options, Fault *f) {
  Cuda *cuda = d->inside = rt_alloc(sizeof *cuda);
  const rt_program *program = d->program;
  cuda->no_graph = options->no_graph, cuda->careful = options->careful,
  cuda->kernels = options->kernels;
  cuda->times_waits = options->waited;
  cuda->entry = rt_alloc(sizeof *cuda->entry * (size_t)program->nentries);
  if (!rt_cuda_load(&cuda->api, f) || !open_context(cuda, choose(d, options, &cuda->api), f))
    return false;
  if (!fits(cuda, program, f) || !make_arenas(d, cuda, f) || !rt_cuda_pin(d, f)) return false;
  if (!make_counters(cuda, program, f) || !rt_cuda_background_open(cuda, program, f)) return false;
  if (!rt_cuda_kernels_open(cuda, program, f) || !rt_cuda_beside_open(d, options->threads, f))
    return false;
  if (!rt_cuda_streams_open(cuda, program, options->check, f)) return false;
  for (int i = 0; i < program->ntensors; i++)
    if (host_writes(d, &program->tensors[i])) d->state[i] = WRITTEN;
  /* Optimizer states begin at zero; device memory is as others left it. */
  size_t states = (size_t)program->arena_bytes[RT_STATES];
  return !states ||
         rt_cuda_ok(cuda,
                    cuda->api.cuMemsetD8Async(cuda->arena[RT_STATES], 0, states, cuda->stream),
                    "clear the optimizer states", f);
}

/* The job is lost: graphs hold what NCCL has, so they go first. From another thread. */
static void let_go(void *device) {
  Device *d = device;
  Cuda *cuda = d->inside;
  cuda->api.cuCtxSetCurrent(cuda->context);
  for (int i = 0; i < d->program->nentries; i++) {
    CUgraphExec graph = cuda->entry[i].graph;
    cuda->entry[i].graph = NULL;
    if (graph) cuda->api.cuGraphExecDestroy(graph);
  }
  rt_nccl_abort(cuda->nccl);
}

static bool join(Device *d, Fault *f) {
  Cuda *cuda = d->inside;
  if (!d->comm || !d->comm->on_device) return true;
  if (!rt_cuda_flights_open(cuda, d->program, f)) return false;
  if (cuda->times_waits) rt_cuda_waited_open(cuda, d->program);
  cuda->nccl = rt_nccl_start(d->comm, &cuda->api, cuda->context, cuda->word, f);
  if (cuda->nccl) {
    d->comm->device = d, d->comm->let_go = let_go;
    d->comm->library_help = "NCCL_DEBUG=INFO tells what NCCL does";
  }
  return cuda->nccl != NULL;
}

static void stop(Device *d) {
  Cuda *cuda = d->inside;
  const CudaApi *api = &cuda->api;
  if (cuda->stream) api->cuStreamSynchronize(cuda->stream);
  for (int i = 0; cuda->stream && i < d->program->nentries; i++)
    if (cuda->entry[i].graph) api->cuGraphExecDestroy(cuda->entry[i].graph);
  if (d->comm) d->comm->let_go = NULL;
  if (cuda->nccl) rt_nccl_stop(cuda->nccl);
  rt_cuda_flights_close(cuda, d->program), rt_cuda_waited_close(cuda),
      rt_cuda_background_close(cuda);
  rt_cuda_streams_close(cuda), rt_cuda_beside_close(cuda);
  rt_cuda_unpin(cuda);
  for (int i = 0; i < RT_ARENAS; i++)
    if (cuda->arena[i] && !rt_cuda_on_host(i)) api->cuMemFree(cuda->arena[i]);
  rt_cuda_kernels_close(cuda);
  if (cuda->from) api->cuEventDestroy(cuda->from);
  if (cuda->to) api->cuEventDestroy(cuda->to);
  if (cuda->stream) api->cuStreamDestroy(cuda->stream);
  if (cuda->context) api->cuDevicePrimaryCtxRelease(cuda->device.handle);
  free(cuda->entry), free(cuda);
}

/* ---- calls of generated code ---- */

static void launch(Device *d, const rt_kernel *k, void *const *buffers) {
  if (k->image) rt_cuda_launch(d->inside, k, buffers, d->trace);
  else rt_cuda_launch_beside(d->inside, k, buffers, d->trace);
}

static bool lies_there(const Device *d, const void *p) {
  const Cuda *cuda = d->inside;
  for (int i = 0; i < RT_ARENAS; i++) {
    CUdeviceptr from = cuda->arena[i], bytes = (CUdeviceptr)rt_arena_bytes(d, i);
    if (rt_cuda_on_host(i) && at(p) >= from && at(p) < from + bytes) return true;
  }
  return false;
}

static void copy(Device *d, void *to, const void *from, int64_t bytes) {
  Cuda *cuda = d->inside;
  if (rt_cuda_has_streams(cuda) && lies_there(d, to)) {
    rt_cuda_streams_copy(cuda, to, from, bytes);
    return;
  }
  rt_cuda_copy(cuda, at(to), at(from), bytes, "copy");
}

static void move_between(Device *d, void *to, const void *from, int64_t bytes, rt_way way) {
  Cuda *cuda = d->inside;
  if (rt_cuda_has_streams(cuda)) rt_cuda_streams_move(cuda, to, from, bytes, way);
  else rt_cuda_copy(cuda, at(to), at(from), bytes, "copy");
}

static void after(Device *d, rt_stream stream, rt_stream other, int64_t number, bool since_start) {
  const Cuda *cuda = d->inside;
  if (rt_cuda_has_streams(cuda)) rt_cuda_streams_after(cuda, stream, other, number, since_start);
}

static void zero(Device *d, void *to, int64_t bytes) {
  Cuda *cuda = d->inside;
  bool words = bytes % 4 == 0 && at(to) % 4 == 0;
  if (rt_cuda_has_streams(cuda) && lies_there(d, to)) {
    rt_cuda_streams_zero(cuda, to, bytes);
    return;
  }
  if (cuda->pageable && lies_there(d, to)) { /* which the GPU cannot fill */
    rt_cuda_wait(cuda), memset(to, 0, (size_t)bytes);
    return;
  }
  CUresult e = words ? cuda->api.cuMemsetD32Async(at(to), 0, (size_t)bytes / 4, cuda->stream)
                     : cuda->api.cuMemsetD8Async(at(to), 0, (size_t)bytes, cuda->stream);
  rt_cuda_must(cuda, e, "fill with zeros");
}

static void *counter(Device *d, int64_t i) {
  const Cuda *cuda = d->inside;
  return (void *)(uintptr_t)(cuda->counters + (CUdeviceptr)i * sizeof(int32_t));
}

/* A collective of NCCL may never end: while it is waited for, its communicators are asked. */
void rt_cuda_wait(const Cuda *cuda) {
  const struct timespec nap = {.tv_nsec = 20000};
  CUresult e = cuda->nccl ? CU_NOT_READY : cuda->api.cuStreamSynchronize(cuda->stream);
  if (cuda->nccl) rt_nccl_waits(cuda->nccl, false);
  for (int64_t i = 0; e == CU_NOT_READY; i++) {
    e = cuda->api.cuStreamQuery(cuda->stream);
    if (e == CU_NOT_READY && i % 500 == 499) rt_nccl_look(cuda->nccl);
    if (e == CU_NOT_READY && i > 100) nanosleep(&nap, NULL);
  }
  if (cuda->nccl) rt_nccl_look(cuda->nccl), rt_nccl_goes_on(cuda->nccl);
  rt_cuda_must(cuda, e, "wait for the GPU");
}

static void collect_there(Device *d, const rt_collective *collective, const void *send,
                          void *receive, void *work) {
  Cuda *cuda = d->inside;
  if (collective->kind == RT_SEND) rt_cuda_send(d, collective, send, receive);
  else if (collective->kind == RT_RECEIVE) rt_cuda_receive(d, collective, receive);
  else if (cuda->flights) rt_cuda_collect_behind(d, collective, send, receive, work);
  else rt_nccl_collect(cuda->nccl, collective, send, receive, work, cuda->stream);
}

/* --profile shows counts and times, and records no graphs: it sees every call. */
static void collect_timed(Device *d, const rt_collective *collective, const void *send,
                          void *receive, void *work) {
  Cuda *cuda = d->inside;
  float milliseconds = 0;
  rt_cuda_must(cuda, cuda->api.cuEventRecord(cuda->from, cuda->stream), "time a collective");
  collect_there(d, collective, send, receive, work);
  rt_cuda_must(cuda, cuda->api.cuEventRecord(cuda->to, cuda->stream), "time a collective");
  rt_cuda_wait(cuda);
  CUresult e = cuda->api.cuEventElapsedTime(&milliseconds, cuda->from, cuda->to);
  rt_cuda_must(cuda, e, "time a collective");
  rt_comm_count(d->comm, collective, 1e-3 * milliseconds);
}

/* This rank has no neighbour to send to, or to receive from. */
static bool is_end(const Device *d, const rt_collective *collective) {
  const RankGroup *g = &d->comm->group[collective->axis];
  return g->n == 1 || (rt_is_hop(collective->kind) && rt_hop_peer(collective, g) < 0);
}

/* Over an axis of one rank, through the host, or timed: done when this returns, or on the stream of
   the kernels. */
static bool collects_here(Device *d, const rt_collective *collective, const void *send,
                          void *receive, void *work) {
  Cuda *cuda = d->inside;
  if (is_end(d, collective)) {
    if (send != receive)
      copy(d, receive, send, collective->count * rt_elem_bytes((int)collective->elem));
    if (d->trace) rt_comm_count(d->comm, collective, 0);
    if (cuda->nccl) rt_nccl_pass(cuda->nccl);
    return true;
  }
  if (cuda->nccl && d->trace) collect_timed(d, collective, send, receive, work);
  if (!cuda->nccl) rt_cuda_exchange(d, collective, send, receive);
  return !cuda->nccl || d->trace;
}

static void collect(Device *d, const rt_collective *collective, const void *send, void *receive,
                    void *work) {
  Cuda *cuda = d->inside;
  if (collects_here(d, collective, send, receive, work)) return;
  rt_cuda_stall_begin(cuda);
  collect_there(d, collective, send, receive, work);
  rt_cuda_stall_end(cuda);
}

static void begin(Device *d, const rt_collective *collective, const void *send, void *receive,
                  void *work) {
  if (!collects_here(d, collective, send, receive, work))
    rt_cuda_start(d, collective, send, receive, work);
}

/* n: the messages of one flight. */
static void end(Device *d, const rt_collective *collective, int64_t n) {
  const Cuda *cuda = d->inside;
  (void)n;
  if (!cuda->nccl || d->trace || d->comm->group[collective->axis].n == 1) return;
  rt_cuda_stall_begin(cuda);
  rt_cuda_await(d, collective);
  rt_cuda_stall_end(cuda);
}

/* ---- views ---- */

static void move(const Device *d, const rt_tensor *tensor, int64_t from, int64_t bytes, char *here,
                 bool fetches) {
  const Cuda *cuda = d->inside;
  CUdeviceptr there = cuda->arena[tensor->arena] + (CUdeviceptr)(tensor->offset + from);
  if (tensor->arena != RT_IO) rt_cuda_streams_drain(cuda);
  if (fetches) rt_cuda_copy(cuda, at(here), there, bytes, "copy from the GPU");
  else rt_cuda_copy(cuda, there, at(here), bytes, "copy to the GPU");
}

static void move_tensor(const Device *d, const rt_tensor *tensor, bool fetches) {
  if (tensor->bytes) move(d, tensor, 0, tensor->bytes, d->apart + tensor->view, fetches);
}

/* Copies data written in the window to the device; the window is then empty. */
static void close_window(const Device *d) {
  Cuda *cuda = d->inside;
  OpenSpan *span = &cuda->open;
  if (span->t && span->written) {
    move(d, span->t, span->from, span->bytes, cuda->pinned + d->program->host_view, false);
    rt_cuda_wait(cuda);
  }
  *span = (OpenSpan){0};
}

static char *span(const Device *d, const rt_tensor *tensor, int64_t from, int64_t bytes,
                  bool writes) {
  Cuda *cuda = d->inside;
  OpenSpan *open_span = &cuda->open;
  char *window = cuda->pinned + d->program->host_view;
  if (open_span->t != tensor || open_span->from != from || open_span->bytes != bytes) {
    close_window(d);
    if (bytes) move(d, tensor, from, bytes, window, true), rt_cuda_wait(cuda);
    *open_span = (OpenSpan){tensor, from, bytes, false};
  }
  open_span->written = open_span->written || writes;
  return window;
}

/* ---- entries ---- */

static void call_entry(Device *d, Cuda *cuda, const rt_entry *entry) {
  if (cuda->nccl) rt_nccl_begin(cuda->nccl, cuda->stream);
  rt_cuda_streams_begin(cuda, entry, !cuda->waits && !d->trace && !cuda->pageable);
  rt_cuda_waited_begin(cuda);
  rt_cuda_flights_begin(d);
  entry->run(&d->ctx);
  rt_cuda_flights_end(d);
  rt_cuda_streams_end(cuda);
  rt_cuda_waited_end(cuda, (int)(entry - d->program->entries), true);
}

static void record(Device *d, Cuda *cuda, const rt_entry *entry, Recorded *recorded) {
  CUgraph graph = NULL;
  const char *what = "record a graph";
  rt_cuda_must(cuda, cuda->api.cuStreamBeginCapture(cuda->stream, THREAD_LOCAL_CAPTURE), what);
  cuda->recording = true;
  call_entry(d, cuda, entry);
  cuda->recording = false;
  rt_cuda_must(cuda, cuda->api.cuStreamEndCapture(cuda->stream, &graph), what);
  rt_cuda_must(cuda, cuda->api.cuGraphInstantiateWithFlags(&recorded->graph, graph, 0), what);
  cuda->api.cuGraphDestroy(graph);
}

static bool goes_through_host(const Device *d) {
  const Cuda *cuda = d->inside;
  return d->program->ncollectives && rt_comm_world(d->comm) > 1 && !cuda->nccl;
}

static void hand_over(Device *d, const rt_entry *entry) {
  Cuda *cuda = d->inside;
  Recorded *recorded = &cuda->entry[entry - d->program->entries];
  bool first = recorded->runs++ == 0, across_steps = rt_cuda_streams_across_steps(cuda);
  cuda->running = entry->name, cuda->waits = first || cuda->careful;
  bool by_launch = cuda->no_graph || cuda->careful || d->check || d->trace || goes_through_host(d);
  if (first || across_steps || by_launch) {
    call_entry(d, cuda, entry);
    return;
  }
  if (!recorded->graph) record(d, cuda, entry, recorded);
  rt_cuda_must(cuda, cuda->api.cuGraphLaunch(recorded->graph, cuda->stream), "launch a graph");
  rt_cuda_waited_end(cuda, (int)(entry - d->program->entries), false);
}

static bool run_entry(Device *d, const rt_entry *entry) {
  Cuda *cuda = d->inside;
  close_window(d);
  if (cuda->nccl) rt_nccl_waits(cuda->nccl, true);
  hand_over(d, entry);
  if (cuda->nccl) rt_nccl_goes_on(cuda->nccl);
  return true;
}

/* Check runs: the end of the memory that an entry touched, read back in pieces from the end. */
static int64_t touched(Cuda *cuda, int64_t bytes) {
  enum { PIECE = 1 << 20 };
  char *piece = rt_alloc(PIECE + 64);
  int64_t most = 0;
  for (int64_t end = round_up(bytes, CACHE_LINE); end > 0 && !most;) {
    int64_t from = end > PIECE ? end - PIECE : 0;
    CUresult e = cuda->api.cuMemcpyDtoHAsync(piece, cuda->arena[RT_WORK] + (CUdeviceptr)from,
                                             (size_t)(end > bytes ? bytes - from : end - from),
                                             cuda->stream);
    rt_cuda_must(cuda, e, "copy"), rt_cuda_wait(cuda);
    if (end > bytes) rt_poison(piece + (bytes - from) / 4 * 4, end - bytes);
    int64_t n = rt_touched(piece, end - from);
    if (n) most = from + n;
    end = from;
  }
  free(piece);
  return most;
}

static bool run(Device *d, const rt_entry *entry, Fault *f) {
  Cuda *cuda = d->inside;
  int64_t *most = &d->touched[entry - d->program->entries], words = entry->work_bytes / 4;
  if (!d->check) return run_entry(d, entry);
  if (entry->work_bytes > d->program->arena_bytes[RT_WORK])
    return rt_fault(f, 105, "entry %s needs more work memory than there is", entry->name);
  if (words)
    rt_cuda_must(
        cuda,
        cuda->api.cuMemsetD32Async(cuda->arena[RT_WORK], RT_POISON, (size_t)words, cuda->stream),
        "poison the work arena");
  rt_cuda_poison_host(d, entry);
  bool ok = run_entry(d, entry);
  int64_t now = touched(cuda, entry->work_bytes / 4 * 4);
  if (now > *most) *most = now;
  rt_cuda_measure_host(d, entry);
  return ok;
}

/* ---- what the runtime reads and writes ---- */

/* Fetches all outputs together: a reader of the loss also reads the others. */
static void fetch(const Device *d, const rt_tensor *t) {
  const rt_program *program = d->program;
  bool output = t->kind == RT_OUTPUT;
  if (!output) move_tensor(d, t, true);
  for (int i = 0; output && i < program->ntensors; i++) {
    const rt_tensor *o = &program->tensors[i];
    if (o->kind != RT_OUTPUT || o->view < 0 || d->state[i] != STALE) continue;
    move_tensor(d, o, true), d->state[i] = SAME;
  }
  rt_cuda_wait(d->inside);
}

static void push(const Device *d, const rt_tensor *tensor) { move_tensor(d, tensor, false); }

static void drain(const Device *d) {
  rt_cuda_streams_drain(d->inside);
  rt_cuda_wait(d->inside);
}

static void rows(Device *d, const RowCopy *row_copy) {
  Cuda *cuda = d->inside;
  close_window(d);
  rt_cuda_streams_drain(cuda);
  CuCopy2D copy = {
      .from_kind = CU_ON_DEVICE,
      .from_device =
          at(d->ctx.arena[row_copy->from->arena] + row_copy->from->offset + row_copy->from_at),
      .from_pitch = (size_t)row_copy->from_apart,
      .to_kind = CU_ON_DEVICE,
      .to_device = at(d->ctx.arena[row_copy->to->arena] + row_copy->to->offset + row_copy->to_at),
      .to_pitch = (size_t)row_copy->to_apart,
      .bytes = (size_t)row_copy->bytes,
      .rows = (size_t)row_copy->rows};
  rt_cuda_must(cuda, cuda->api.cuMemcpy2DAsync(&copy, cuda->stream), "copy rows");
}

static void words(const Device *d, char *out, size_t n) {
  const Cuda *cuda = d->inside;
  snprintf(out, n, "%s (sm_%d, driver %d.%d)", cuda->device.name, cuda->device.sm,
           cuda->api.version / 1000, cuda->api.version % 1000 / 10);
}

static bool find(int number, DeviceFound *found, Fault *f) {
  CudaApi api;
  CudaDevice device = {0};
  bool there = rt_cuda_load(&api, f) && rt_cuda_device(&api, number, &device, f);
  *found = (DeviceFound){.sm = device.sm, .driver = api.library != NULL};
  memcpy(found->name, device.name, sizeof found->name);
  return there;
}

const DeviceCalls rt_device_gpu = {.start = start,
                                   .target = "sm_80",
                                   .join = join,
                                   .stop = stop,
                                   .run = run,
                                   .launch = launch,
                                   .copy = copy,
                                   .move = move_between,
                                   .after = after,
                                   .zero = zero,
                                   .counter = counter,
                                   .collect = collect,
                                   .begin = begin,
                                   .end = end,
                                   .rows = rows,
                                   .words = words,
                                   .find = find,
                                   .waited = rt_cuda_waited,
                                   .fetch = fetch,
                                   .push = push,
                                   .drain = drain,
                                   .background = rt_cuda_background,
                                   .ahead_at = rt_cuda_ahead_at,
                                   .span = span};
