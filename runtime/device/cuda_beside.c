/* Kernels of the host in a program for a GPU: updates of what lies in its memory (`offload
   optimizer`), on workers of the rank's own processors.

   Each is a host function on a stream of theirs (cuda_lanes.c): it runs when all that touches its
   bytes before it is done, and a graph that was recorded with it calls it again (CUDA driver API,
   cuLaunchHostFunc). What it needs is copied to a place that stays: of calls that are recorded for
   good, of others until the next run, which waits for the stream first. Must not: call the driver
   from such a function; allocate once every entry has run twice. */
#include "device_cuda.h"
#include <stdlib.h>
#include <string.h>

typedef struct HostRun { /* of a kernel */
  Pool *pool;
  const rt_kernel *kernel;
  void *buffers[];
} HostRun;

typedef struct HostRuns {
  HostRun **at;
  int n, made, room;
} HostRuns;

struct CudaBeside {
  Pool *pool;
  int buffers;    /* of a kernel, at most */
  HostSpan *span; /* of the one that is launched */
  HostRuns once, recorded;
};

bool rt_cuda_beside_open(Device *d, int threads, Fault *f) {
  const rt_program *p = d->program;
  Cuda *c = d->inside;
  const Launch *l = d->comm ? &d->comm->launch : NULL;
  Share among = l ? (Share){l->local_world, l->local_rank} : (Share){1, 0};
  int most = -1;
  for (int i = 0; i < p->nkernels; i++)
    if (!p->kernels[i]->image && p->kernels[i]->nbuffers > most) most = p->kernels[i]->nbuffers;
  if (most < 0) return true;
  CudaBeside *x = c->beside = rt_alloc(sizeof *x);
  x->buffers = most, x->span = rt_alloc(sizeof *x->span * (size_t)(most + 1));
  x->pool = rt_pool_start_among(threads, among, p->scratch, f);
  return x->pool != NULL;
}

int rt_cuda_beside_buffers(const Cuda *c) { return c->beside ? c->beside->buffers : 0; }

static void forget(HostRuns *l) {
  for (int i = 0; i < l->made; i++) free(l->at[i]);
  free(l->at);
}

void rt_cuda_beside_close(Cuda *c) {
  CudaBeside *x = c->beside;
  if (!x) return;
  if (x->pool) rt_pool_stop(x->pool);
  forget(&x->once), forget(&x->recorded);
  free(x->span);
  free(x);
  c->beside = NULL;
}

void rt_cuda_beside_begin(const Cuda *c) {
  if (!c->beside || c->recording) return;
  if (c->beside->once.n) rt_cuda_wait(c);
  c->beside->once.n = 0;
}

static HostRun *next_run(CudaBeside *x, HostRuns *l) {
  if (l->n == l->room) {
    l->room = l->room * 2 + 16;
    l->at = realloc(l->at, sizeof *l->at * (size_t)l->room);
    if (!l->at) rt_fail(701, "no memory for the kernels of the host");
  }
  if (l->n == l->made)
    l->at[l->made++] = rt_alloc(sizeof(HostRun) + sizeof(void *) * (size_t)x->buffers);
  return l->at[l->n++];
}

static void run(void *data) {
  const HostRun *r = data;
  for (int i = 0; i < r->kernel->phases; i++)
    rt_pool_run(r->pool, r->kernel->phase[i].run, r->buffers, r->kernel->phase[i].chunks);
}

/* --profile: at once, behind all that the stream has. */
static void run_timed(const Cuda *c, const HostRun *r, Trace *trace) {
  rt_cuda_wait(c);
  for (int i = 0; i < r->kernel->phases; i++) {
    double start = rt_now();
    rt_pool_run(r->pool, r->kernel->phase[i].run, r->buffers, r->kernel->phase[i].chunks);
    rt_trace_timed(trace, r->kernel, i, rt_now() - start);
  }
}

void rt_cuda_launch_beside(const Cuda *c, const rt_kernel *k, void *const *buffers, Trace *trace) {
  CudaBeside *x = c->beside;
  HostRun *r = next_run(x, c->recording ? &x->recorded : &x->once);
  r->pool = x->pool, r->kernel = k;
  memcpy(r->buffers, buffers, sizeof *buffers * (size_t)k->nbuffers);
  if (trace) {
    run_timed(c, r, trace);
    return;
  }
  for (int i = 0; i < k->nbuffers; i++)
    x->span[i] = (HostSpan){buffers[i], k->spans[i], i >= k->operands};
  if (rt_cuda_has_lanes(c)) {
    rt_cuda_lanes_call(c, run, r, x->span, k->nbuffers);
    return;
  }
  rt_cuda_must(c, c->api.cuLaunchHostFunc(c->stream, run, r), "launch a kernel of the host");
  if (c->waits) rt_cuda_wait(c);
}
