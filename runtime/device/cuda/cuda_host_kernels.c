/* Kernels of the host in a program for a GPU: updates of host-resident states (`offload
   optimizer`), on workers of the rank's own processors.

   Each is a host function on a stream of theirs (cuda_copy_streams.c): it runs when the operations
   are done for which the program makes that stream wait, and a graph that was recorded with it
   calls it again (CUDA driver API, cuLaunchHostFunc). Its arguments are copied to memory that is
   kept permanently for recorded calls, and until the call is over for others. Must not: call the
   driver from such a function; allocate once the largest number of calls in flight is reached. */
#include "device_cuda.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct HostRun { /* of a kernel */
  atomic_bool waits;     /* called, and not over */
  Pool *pool;
  const rt_kernel *kernel;
  void *buffers[];
} HostRun;

typedef struct HostRuns {
  HostRun **at;
  int made, room, next; /* next: where one that is over is looked for */
} HostRuns;

struct CudaBeside {
  Pool *pool;
  int buffers; /* of a kernel, at most */
  HostRuns once, recorded;
};

bool rt_cuda_beside_open(Device *d, int threads, Fault *f) {
  const rt_program *program = d->program;
  Cuda *cuda = d->inside;
  const Launch *launch = d->comm ? &d->comm->launch : NULL;
  Share among = launch ? (Share){launch->local_world, launch->local_rank} : (Share){1, 0};
  int most = -1;
  for (int i = 0; i < program->nkernels; i++)
    if (!program->kernels[i]->image && program->kernels[i]->nbuffers > most)
      most = program->kernels[i]->nbuffers;
  if (most < 0) return true;
  CudaBeside *beside = cuda->beside = rt_alloc(sizeof *beside);
  beside->buffers = most;
  beside->pool = rt_pool_start_among(threads, among, program->scratch, f);
  return beside->pool != NULL;
}

static void forget(HostRuns *runs) {
  for (int i = 0; i < runs->made; i++) free(runs->at[i]);
  free(runs->at);
}

void rt_cuda_beside_close(Cuda *cuda) {
  CudaBeside *beside = cuda->beside;
  if (!beside) return;
  if (beside->pool) rt_pool_stop(beside->pool);
  forget(&beside->once), forget(&beside->recorded);
  free(beside);
  cuda->beside = NULL;
}

/* One that is over, in turn, or a new one; of calls that are recorded a new one each time. */
static HostRun *next_run(CudaBeside *beside, HostRuns *runs) {
  for (int i = 0; runs == &beside->once && i < runs->made; i++) {
    HostRun *run = runs->at[runs->next++ % runs->made];
    if (!atomic_load_explicit(&run->waits, memory_order_acquire)) return run;
  }
  if (runs->made == runs->room) {
    runs->room = runs->room * 2 + 16;
    runs->at = realloc(runs->at, sizeof *runs->at * (size_t)runs->room);
    if (!runs->at) rt_fail(701, "no memory for the kernels of the host");
  }
  runs->next = 0;
  return runs->at[runs->made++] =
             rt_alloc(sizeof(HostRun) + sizeof(void *) * (size_t)beside->buffers);
}

static void run(void *data) {
  HostRun *host_run = data;
  for (int i = 0; i < host_run->kernel->phases; i++)
    rt_pool_run(host_run->pool, host_run->kernel->phase[i].run, host_run->buffers,
                host_run->kernel->phase[i].chunks);
  atomic_store_explicit(&host_run->waits, false, memory_order_release);
}

/* --profile: runs it immediately, after all work of the stream. */
static void run_timed(const Cuda *cuda, const HostRun *host_run, Trace *trace) {
  rt_cuda_wait(cuda);
  for (int i = 0; i < host_run->kernel->phases; i++) {
    double start = rt_now();
    rt_pool_run(host_run->pool, host_run->kernel->phase[i].run, host_run->buffers,
                host_run->kernel->phase[i].chunks);
    rt_trace_timed(trace, host_run->kernel, i, rt_now() - start);
  }
}

void rt_cuda_launch_beside(const Cuda *cuda, const rt_kernel *kernel, void *const *buffers,
                           Trace *trace) {
  CudaBeside *beside = cuda->beside;
  HostRun *host_run = next_run(beside, cuda->recording ? &beside->recorded : &beside->once);
  host_run->pool = beside->pool, host_run->kernel = kernel;
  memcpy(host_run->buffers, buffers, sizeof *buffers * (size_t)kernel->nbuffers);
  atomic_store_explicit(&host_run->waits, !trace, memory_order_relaxed);
  if (trace) {
    run_timed(cuda, host_run, trace);
    return;
  }
  if (rt_cuda_has_streams(cuda)) {
    rt_cuda_streams_call(cuda, run, host_run);
    return;
  }
  rt_cuda_must(cuda, cuda->api.cuLaunchHostFunc(cuda->stream, run, host_run),
               "launch a kernel of the host");
  if (cuda->waits) rt_cuda_wait(cuda);
}
