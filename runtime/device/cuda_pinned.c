/* Memory of the host that a GPU copies from and to, pinned, allocated once at start: what the
   runtime itself reads and writes there (Device.apart), and the arenas of the host, where a plan
   with `offload` keeps parameters, states and what layers leave for the backward pass. Addresses of
   both memories differ, so a copy needs to be told no direction (unified addressing). Must not:
   allocate after the start. */
#include "device_cuda.h"
#include <string.h>

enum { ON_device, ON_host }; /* ir/tiers.def */

static const int memory_of[] = {
#define ARENA(name, word, tier, globals) [RT_##name] = ON_##tier,
#include "ir/arenas.def"
#undef ARENA
};
_Static_assert(sizeof memory_of / sizeof *memory_of == RT_ARENAS, "a memory per arena");

bool rt_cuda_on_host(rt_arena a) { return memory_of[a] == ON_host; }

/* Of zeros. */
static bool allocate(const Cuda *cuda, int64_t bytes, void **at, Fault *f) {
  char text[32];
  CUresult e = bytes ? cuda->api.cuMemHostAlloc(at, (size_t)bytes, 0) : CU_SUCCESS;
  if (e == CU_OUT_OF_MEMORY) {
    rt_fault(f, 701, "no memory of the host for %s that the GPU reads and writes",
             rt_cuda_mebibytes(text, (double)bytes));
    return rt_help(f, "such memory is pinned: it is never written to disk, and `ulimit -l` or the "
                      "system may limit it");
  }
  if (!rt_cuda_ok(cuda, e, "allocate pinned memory", f)) return false;
  if (bytes) memset(*at, 0, (size_t)bytes);
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
    if (!allocate(cuda, program->arena_bytes[i], &at, f)) return false;
    cuda->arena[i] = (CUdeviceptr)(uintptr_t)at, d->ctx.arena[i] = at;
  }
  if (!allocate(cuda, bytes, &at, f)) return false;
  cuda->pinned = d->apart = at;
  return true;
}

void rt_cuda_unpin(Cuda *cuda) {
  if (cuda->pinned) cuda->api.cuMemFreeHost(cuda->pinned);
  for (int i = 0; i < RT_ARENAS; i++)
    if (rt_cuda_on_host(i) && cuda->arena[i])
      cuda->api.cuMemFreeHost((void *)(uintptr_t)cuda->arena[i]);
}

void rt_cuda_copy(const Cuda *cuda, CUdeviceptr to, CUdeviceptr from, int64_t bytes,
                  const char *what) {
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
