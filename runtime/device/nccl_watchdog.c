/* The watchdog of a device that talks over NCCL. What a GPU waits for is not seen from outside: a
   collective whose partner does not come just goes on. So before each collective the device itself
   writes where it is into a word of its memory, and a thread reads that word on a stream of its own
   whenever the main thread has waited for some time, and tells the watchdog, which compares the
   ranks and names the one that is behind. Must not: touch the device while nobody waits for it. */
#include "nccl.h"
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { AFTER = 1, NAP = 200000000 }; /* seconds; nanoseconds */

static void tell(Nccl *n) {
  unsigned at = 0;
  if (n->cuda->cuMemcpyDtoHAsync(&at, n->word, sizeof at, n->side) ||
      n->cuda->cuStreamSynchronize(n->side))
    return; /* the main thread meets the same error, and says it */
  rt_comm_device_at(n->comm, at >> 16, at & 0xffff);
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

bool rt_nccl_watch_start(Nccl *n, Fault *f) {
  const CudaApi *a = n->cuda;
  sigset_t all, old;
  if (a->cuStreamCreate(&n->side, 1) || a->cuMemsetD32Async(n->word, 0, 1, n->side) ||
      a->cuStreamSynchronize(n->side))
    return rt_fault(f, 1008, "cannot make what the watch over the GPU needs");
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(&n->watch, NULL, stand, n);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return !failed || rt_fault(f, 704, "cannot start the thread that watches the GPU");
}

void rt_nccl_watch_stop(Nccl *n) {
  if (n->watch) atomic_store(&n->over, true), pthread_join(n->watch, NULL);
  if (n->side) n->cuda->cuStreamDestroy(n->side);
}
