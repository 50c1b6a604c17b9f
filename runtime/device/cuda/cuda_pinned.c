/* Pinned host memory that a GPU copies from and to, allocated once at start: buffers that the
   runtime itself reads and writes (Device.apart), and the arenas of the host, where a plan with
   `offload` keeps parameters, states and values that layers save for the backward pass, and `save
   async` the state that is being written to files. Addresses
   of both memories differ, so a copy needs no direction (unified addressing). Memory that the
   driver refuses to pin stays pageable, with a warning. Must not: allocate after the start. */
#include "device_cuda.h"
#include <sys/mman.h>

enum { ON_device, ON_host }; /* ir/tiers.def */

static const int memory_of[] = {
#define ARENA(name, word, tier, globals) [RT_##name] = ON_##tier,
#include "ir/arenas.def"
#undef ARENA
};
_Static_assert(sizeof memory_of / sizeof *memory_of == RT_ARENAS, "a memory per arena");

bool rt_cuda_on_host(rt_arena a) { return memory_of[a] == ON_host; }

static bool no_room(int64_t bytes, Fault *f) {
  char text[32];
  rt_fault(f, 701, "no memory of the host for %s that the GPU reads and writes",
           rt_cuda_mebibytes(text, (double)bytes));
  return rt_help(f, "`offload` of less, or a machine with more memory");
}

/* The driver leaves it pageable. Copies then go through memory of its own, in which order to the
   rest of a stream it does not promise: so one after the other, and in no graph. */
static void go_on_slower(Cuda *cuda, CUresult e, int64_t bytes) {
  Fault f = {0};
  char text[32], why[300];
  if (!cuda->pageable) {
    rt_cuda_error(&cuda->api, e, why, sizeof why);
    rt_fault(&f, 1011, "the driver does not pin %s of the host's memory: %s",
             rt_cuda_mebibytes(text, (double)bytes), why);
    rt_help(&f,
            "the run continues with slower copies; `ulimit -l` or the system limits such memory, "
            "which is never written to disk");
    rt_print_fault(&f, "warning");
  }
  cuda->no_graph = cuda->pageable = true;
}

/* Allocates zeroed memory without writing it: fresh pages of the system, large ones if available,
   on the NUMA node of the cores that this thread may use. The driver then pins them, several times
   as fast as memory that it allocates itself. */
static bool allocate(Cuda *cuda, int64_t bytes, void **at, Fault *f) {
  if (!bytes) return true;
  void *pages =
      mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return no_room(bytes, f);
  madvise(pages, (size_t)bytes, MADV_HUGEPAGE); /* where the system has any */
  CUresult e = cuda->api.cuMemHostRegister(pages, (size_t)bytes, 0);
  if (e != CU_SUCCESS) go_on_slower(cuda, e, bytes);
  cuda->host[cuda->nhost++] = (HostPages){pages, bytes, e == CU_SUCCESS};
  *at = pages;
  return true;
}

bool rt_cuda_pin(Device *d, Fault *f) {
  const rt_program *program = d->program;
  Cuda *cuda = d->inside;
  void *at = NULL;
  int64_t bytes =
      program->host_view + program->host_window + program->host_messages + program->host_ahead;
  for (int i = 0; i < RT_ARENAS; i++, at = NULL) {
    if (!rt_cuda_on_host(i)) continue;
    if (!allocate(cuda, rt_arena_bytes(d, i), &at, f)) return false;
    cuda->arena[i] = (CUdeviceptr)(uintptr_t)at, d->ctx.arena[i] = at;
  }
  if (!allocate(cuda, bytes, &at, f)) return false;
  cuda->pinned = d->apart = at;
  return true;
}

void rt_cuda_unpin(Cuda *cuda) {
  for (int i = 0; i < cuda->nhost; i++) {
    if (cuda->host[i].pinned) cuda->api.cuMemHostUnregister(cuda->host[i].at);
    munmap(cuda->host[i].at, (size_t)cuda->host[i].bytes);
  }
}

void rt_cuda_copy(const Cuda *cuda, CUdeviceptr to, CUdeviceptr from, int64_t bytes,
                  const char *what) {
  if (cuda->pageable) rt_cuda_wait(cuda); /* it may be read at once */
  rt_cuda_must(cuda, cuda->api.cuMemcpyAsync(to, from, (size_t)bytes, cuda->stream), what);
}

/* ---- check runs ---- */

void rt_cuda_poison_host(const Device *d, const rt_entry *e) {
  rt_cuda_wait(d->inside);
  rt_poison(d->ctx.arena[RT_HOST_WORK], e->host_bytes / 4 * 4);
}

void rt_cuda_measure_host(const Device *d, const rt_entry *e) {
  int64_t *most = &d->touched[d->program->nentries + (e - d->program->entries)];
  rt_cuda_wait(d->inside);
  int64_t now = rt_touched(d->ctx.arena[RT_HOST_WORK], e->host_bytes / 4 * 4);
  if (now > *most) *most = now;
}
