/* The CPU device: what generated code calls (rt_abi.def), arenas, entries.

   Every call returns with the work done. Arenas are mapped once at start. In check runs WORK is
   poisoned before an entry, placed so that the bytes predicted for this entry end at the guard
   page, and measured behind it. Must not: allocate in any call of rt_abi.def. */
#include "device.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rt_state {
  Device *device;
};

enum {
  PIECE = 1 << 20,
  FRONT = 4096
}; /* bytes per chunk of copies; of poison in front of WORK in check runs */

void rt_launch(rt_ctx *rt, const rt_kernel *k, void *const *buffers) {
  Device *d = rt->state->device;
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

static void move(rt_ctx *rt, int what, rt_chunk *run, void *const *buffers, int64_t bytes) {
  Device *d = rt->state->device;
  int64_t chunks = (bytes + PIECE - 1) / PIECE;
  if (d->trace) rt_trace_move(d->trace, d->pool, what, run, buffers, chunks, (double)bytes);
  else rt_pool_run(d->pool, run, buffers, chunks);
}

void rt_copy(rt_ctx *rt, void *to, const void *from, int64_t bytes) {
  void *buffers[] = {to, (void *)from, &bytes};
  move(rt, -1, copy_chunk, buffers, bytes);
}

void rt_zero(rt_ctx *rt, void *to, int64_t bytes) {
  void *buffers[] = {to, NULL, &bytes};
  move(rt, -2, zero_chunk, buffers, bytes);
}

void *rt_counter(rt_ctx *rt, int64_t i) { return rt->state->device->counters + i; }

void rt_collect(rt_ctx *rt, const rt_collective *c, const void *send, void *receive) {
  rt_comm_collect(rt->state->device->comm, c, send, receive);
}

int64_t rt_coordinate(rt_ctx *rt, int axis) { return rt->state->device->comm->group[axis].me; }

/* Check runs: the guard page was touched. Says so; nothing else is safe to do here. */
static void on_guard(int number) {
  static const char text[] =
      "error[R0702]: a kernel touched memory behind an arena or outside of all\n"
      "  = help: `--threads 1` under a debugger shows which kernel\n";
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

/* The scalars mesh.AXIS, from which generated code takes offsets. */
static void set_coordinates(const Device *d) {
  char name[RT_NAME];
  for (int i = 0; i < d->program->naxes && d->comm; i++) {
    snprintf(name, sizeof name, "mesh.%s", d->program->mesh[i].name);
    const rt_tensor *t = rt_tensor_find(d->program, name);
    if (t) rt_elem_put((int)t->elem, rt_tensor_data(d, t), 0, d->comm->group[i].me);
  }
}

bool rt_device_start(Device *d, const rt_program *p, Comm *comm, int threads, bool check,
                     Fault *f) {
  Share among = comm ? (Share){comm->launch.local_world, comm->launch.local_rank} : (Share){1, 0};
  *d = (Device){.program = p, .comm = comm, .check = check};
  d->ctx.state = rt_alloc(sizeof(struct rt_state));
  d->ctx.state->device = d;
  for (int i = 0; i < RT_ARENAS; i++) {
    int64_t front = check && i == RT_WORK ? FRONT : 0;
    if (!rt_region_map(&d->arena[i], p->arena_bytes[i] + front, check, f)) return false;
    d->ctx.arena[i] = d->arena[i].base;
  }
  if (check) watch_guards();
  make_counters(d);
  d->touched = rt_alloc(sizeof(int64_t) * (size_t)p->nentries);
  d->pool = rt_pool_start_among(threads, among, p->scratch, f);
  set_coordinates(d);
  return d->pool != NULL;
}

void rt_device_stop(Device *d) {
  if (d->pool) rt_pool_stop(d->pool);
  for (int i = 0; i < RT_ARENAS; i++) rt_region_unmap(&d->arena[i]);
  rt_trace_close(d->trace);
  free(d->counters), free(d->touched), free(d->ctx.state);
  *d = (Device){0};
}

static bool run_checked(Device *d, const rt_entry *e, Fault *f) {
  const Region *work = &d->arena[RT_WORK];
  if (e->work_bytes > work->bytes)
    return rt_fault(f, 105, "entry %s needs %lld bytes of an arena of %lld", e->name,
                    (long long)e->work_bytes, (long long)work->bytes);
  char *base = rt_region_end(work, e->work_bytes);
  rt_poison(work->base, work->bytes);
  d->ctx.arena[RT_WORK] = base;
  e->run(&d->ctx);
  int64_t touched = rt_touched(base, e->work_bytes), *most = &d->touched[e - d->program->entries];
  if (touched > *most) *most = touched;
  if (rt_touched(work->base, base - work->base) > 0)
    return rt_fault(f, 702, "entry %s wrote in front of its work arena", e->name);
  if (touched > (e->work_bytes + 3) / 4 * 4)
    return rt_fault(f, 702, "entry %s touched %lld bytes of its work arena, %lld were predicted",
                    e->name, (long long)touched, (long long)e->work_bytes);
  return true;
}

bool rt_device_run(Device *d, const rt_entry *e, Fault *f) {
  if (d->check) return run_checked(d, e, f);
  e->run(&d->ctx);
  return true;
}

const rt_entry *rt_entry_find(const rt_program *p, const char *name) {
  for (int i = 0; i < p->nentries; i++)
    if (!strcmp(p->entries[i].name, name)) return &p->entries[i];
  return NULL;
}

const rt_tensor *rt_tensor_find(const rt_program *p, const char *name) {
  for (int i = 0; i < p->ntensors; i++)
    if (!strcmp(p->tensors[i].name, name)) return &p->tensors[i];
  return NULL;
}

void *rt_tensor_data(const Device *d, const rt_tensor *t) {
  return d->ctx.arena[t->arena] + t->offset;
}

int64_t rt_tensor_count(const rt_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->size[i];
  return n;
}
