/* The watchdog of a device that communicates over NCCL. The host cannot see which collective a GPU
   waits for: a collective without its partner runs forever. So before each collective the device
   writes its progress into a word of its memory. A thread reads that word on a stream of its own
   whenever the main thread has waited for some time, and reports it to the watchdog, which compares
   the ranks and names the late one. Must not: touch the device while no thread waits for it. */
#include "nccl.h"
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { AFTER = 1, NAP = 200000000 }; /* seconds; nanoseconds */

static void tell(Nccl *nccl) {
  unsigned at = 0;
  if (nccl->cuda->cuMemcpyDtoHAsync(&at, nccl->word, sizeof at, nccl->side) ||
      nccl->cuda->cuStreamSynchronize(nccl->side))
    return; /* the main thread meets the same error, and says it */
  rt_comm_device_at(nccl->comm, at >> 16, at & 0xffff);
}

static void *stand(void *nccl) {
  Nccl *n = nccl;
  if (n->cuda->cuCtxSetCurrent(n->context)) return NULL;
  while (!atomic_load(&n->over)) {
    nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
    double since = atomic_load(&n->since);
    if (since > 0 && rt_now() - since > AFTER) tell(n);
  }
  return NULL;
}

bool rt_nccl_watch_start(Nccl *nccl, Fault *f) {
  const CudaApi *api = nccl->cuda;
  sigset_t all, old;
  if (api->cuStreamCreate(&nccl->side, 1) || api->cuMemsetD32Async(nccl->word, 0, 1, nccl->side) ||
      api->cuStreamSynchronize(nccl->side))
    return rt_fault(f, 1008, "cannot make what the watch over the GPU needs");
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(&nccl->watch, NULL, stand, nccl);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return !failed || rt_fault(f, 704, "cannot start the thread that watches the GPU");
}

void rt_nccl_watch_stop(Nccl *nccl) {
  if (nccl->watch) atomic_store(&nccl->over, true), pthread_join(nccl->watch, NULL);
  if (nccl->side) nccl->cuda->cuStreamDestroy(nccl->side);
}
