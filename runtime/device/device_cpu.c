/* The CPU device: what generated code calls, arenas, entries.

   Every call but rt_start returns with the work done. Arenas are mapped once at start. In check
   runs WORK is poisoned before an entry, placed so that the bytes predicted for this entry end at
   the guard page, and measured after the entry. Must not: allocate in any call of rt_abi.def. */
#include "device.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  PIECE = 1 << 20,
  FRONT = 4096
}; /* bytes per chunk of copies; bytes of poison before WORK in check runs */

static void launch(Device *d, const rt_kernel *k, void *const *buffers) {
  Pool *p = d->pool;
  if (d->trace) {
    rt_trace_launch(d->trace, p, k, buffers);
    return;
  }
  for (int i = 0; i < k->phases; i++) rt_pool_run(p, k->phase[i].run, buffers, k->phase[i].chunks);
}

static size_t piece(int64_t bytes, int64_t chunk) {
  int64_t left = bytes - chunk * PIECE;
  return (size_t)(left < PIECE ? left : PIECE);
}

static void copy_chunk(void *const *b, int64_t chunk, void *scratch) {
  (void)scratch;
  memcpy((char *)b[0] + chunk * PIECE, (const char *)b[1] + chunk * PIECE,
         piece(*(int64_t *)b[2], chunk));
}

static void zero_chunk(void *const *b, int64_t chunk, void *scratch) {
  (void)scratch;
  memset((char *)b[0] + chunk * PIECE, 0, piece(*(int64_t *)b[2], chunk));
}

static void move(Device *d, int what, rt_chunk *run, void *const *buffers, int64_t bytes) {
  int64_t chunks = (bytes + PIECE - 1) / PIECE;
  if (d->trace) rt_trace_move(d->trace, d->pool, what, run, buffers, chunks, (double)bytes);
  else rt_pool_run(d->pool, run, buffers, chunks);
}

static void copy(Device *d, void *to, const void *from, int64_t bytes) {
  void *buffers[] = {to, (void *)from, &bytes};
  move(d, -1, copy_chunk, buffers, bytes);
}

/* Inputs are taken from memory of the thread that reads them; threads hand over what they did. */
static void background(const Device *d, rt_background_op op) {
  for (int i = 0; op == RT_BACKGROUND_keep && i < d->program->nsnapshot; i++) {
    const rt_range *range = &d->program->snapshot[i];
    int64_t bytes = range->bytes;
    void *buffers[] = {d->ctx.arena[RT_SNAPSHOT] + range->at,
                       d->ctx.arena[range->arena] + range->from, &bytes};
    rt_pool_run(d->pool, copy_chunk, buffers, (bytes + PIECE - 1) / PIECE);
  }
}

/* Both memories are one. */
static void move_between(Device *d, void *to, const void *from, int64_t bytes, rt_way way) {
  (void)way;
  copy(d, to, from, bytes);
}

static void zero(Device *d, void *to, int64_t bytes) {
  void *buffers[] = {to, NULL, &bytes};
  move(d, -2, zero_chunk, buffers, bytes);
}

static void *counter(Device *d, int64_t i) { return d->counters + i; }

static void collect(Device *d, const rt_collective *c, const void *send, void *receive,
                    void *work) {
  (void)work;
  rt_comm_collect(d->comm, c, send, receive);
}

static void begin(Device *d, const rt_collective *c, const void *send, void *receive, void *work) {
  (void)work;
  rt_comm_start(d->comm, c, send, receive);
}

static void end(Device *d, const rt_collective *c, int64_t n) { rt_comm_await(d->comm, c, n); }

static void rows(Device *d, const RowCopy *c) {
  char *to = rt_tensor_write(d, c->to);
  const char *from = rt_tensor_read(d, c->from);
  for (int64_t i = 0; i < c->rows; i++)
    memcpy(to + c->to_at + i * c->to_apart, from + c->from_at + i * c->from_apart,
           (size_t)c->bytes);
}

static void words(const Device *d, char *out, size_t n) {
  int workers = rt_pool_workers(d->pool);
  snprintf(out, n, "%d worker%s", workers, workers > 1 ? "s" : "");
}

/* Check runs: the guard page was touched. Reports it; nothing else is safe in a signal handler. */
static void on_guard(int number) {
  static const char text[] =
      "error[R0702]: a kernel touched memory past the end of an arena or outside of all\n  = help: "
      "`--threads 1` under a debugger shows which kernel\n";
  (void)number;
  if (write(2, text, sizeof text - 1) < 0) _exit(2);
  _exit(1);
}

static void watch_guards(void) {
  struct sigaction a = {.sa_handler = on_guard};
  sigaction(SIGSEGV, &a, NULL);
  sigaction(SIGBUS, &a, NULL);
}

static void make_counters(Device *d) {
  int64_t n = d->program->counters;
  d->counters = rt_alloc(sizeof(int32_t) * (size_t)n);
  for (int64_t i = 0; i < n; i++) d->counters[i] = (int32_t)i;
}

/* The system gives memory when it is first written: at the start, not in the step of the first
   save. */
static void touch_snapshot(Device *d) {
  int64_t bytes = rt_arena_bytes(d, RT_SNAPSHOT);
  void *buffers[] = {d->ctx.arena[RT_SNAPSHOT], NULL, &bytes};
  if (bytes) rt_pool_run(d->pool, zero_chunk, buffers, (bytes + PIECE - 1) / PIECE);
}

static bool start(Device *d, const DeviceOptions *options, Fault *f) {
  const rt_program *program = d->program;
  const Launch *launch = d->comm ? &d->comm->launch : NULL;
  Share among = launch ? (Share){launch->local_world, launch->local_rank} : (Share){1, 0};
  for (int i = 0; i < RT_ARENAS; i++) {
    int64_t front = options->check && (i == RT_WORK || i == RT_HOST_WORK) ? FRONT : 0;
    if (!rt_region_map(&d->arena[i], rt_arena_bytes(d, i) + front, options->check, f)) return false;
    d->ctx.arena[i] = d->view[i] = d->arena[i].base;
  }
  if (options->check) watch_guards();
  make_counters(d);
  d->pool = rt_pool_start_among(options->threads, among, program->scratch, f);
  if (d->pool) touch_snapshot(d);
  return d->pool != NULL;
}

static void stop(Device *d) {
  if (d->pool) rt_pool_stop(d->pool);
}

typedef struct Frame { /* an entry's, in one memory */
  rt_arena arena;
  int64_t bytes;
  int which; /* row of Device.touched */
} Frame;

static bool poison_frame(Device *d, const rt_entry *entry, const Frame *frame, Fault *f) {
  const Region *work = &d->arena[frame->arena];
  if (frame->bytes > work->bytes)
    return rt_fault(f, 105, "entry %s needs %lld bytes of an arena of %lld", entry->name,
                    (long long)frame->bytes, (long long)work->bytes);
  rt_poison(work->base, work->bytes);
  d->ctx.arena[frame->arena] = rt_region_end(work, frame->bytes);
  return true;
}

static bool measure_frame(Device *d, const rt_entry *entry, const Frame *frame, Fault *f) {
  const Region *work = &d->arena[frame->arena];
  const char *base = d->ctx.arena[frame->arena];
  int64_t touched = rt_touched(base, frame->bytes);
  int64_t *most = &d->touched[frame->which * d->program->nentries + (entry - d->program->entries)];
  if (touched > *most) *most = touched;
  if (rt_touched(work->base, base - work->base) > 0)
    return rt_fault(f, 702, "entry %s wrote before the start of its work arena", entry->name);
  if (touched > (frame->bytes + 3) / 4 * 4)
    return rt_fault(f, 702, "entry %s touched %lld bytes of its work arena, %lld were predicted",
                    entry->name, (long long)touched, (long long)frame->bytes);
  return true;
}

static bool run_checked(Device *d, const rt_entry *entry, Fault *f) {
  const Frame near = {RT_WORK, entry->work_bytes, 0}, host = {RT_HOST_WORK, entry->host_bytes, 1};
  if (!poison_frame(d, entry, &near, f) || !poison_frame(d, entry, &host, f)) return false;
  entry->run(&d->ctx);
  return measure_frame(d, entry, &near, f) && measure_frame(d, entry, &host, f);
}

static bool run(Device *d, const rt_entry *entry, Fault *f) {
  if (d->check) return run_checked(d, entry, f);
  entry->run(&d->ctx);
  return true;
}

const DeviceCalls rt_device_cpu = {.target = "native",
                                   .start = start,
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
                                   .background = background,
                                   .words = words};
