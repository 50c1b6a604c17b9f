/* Inputs of the next step on their way to the GPU while kernels run: a stream of copies, and two
   events (docs/gpu.md).

   The host writes them into pinned memory of their own, one copy takes all of them into room beside
   the inputs, and when their step begins the stream of the kernels waits for that copy (`sent`) and
   moves them into the inputs, at the speed of the GPU's memory, before the graph of the step. The
   next copy waits until that has happened (`taken`), and the host until the last copy has left
   before it writes again. Addresses of inputs stay, so a recorded graph holds. Must not: allocate
   after the start; wait for anything on the stream of the kernels. */
#include "device_cuda.h"
#include <stdlib.h>

enum { NO_TIME = 2 }; /* CU_EVENT_DISABLE_TIMING */

struct CudaAhead {
  CUstream stream;
  CUevent sent, taken;
};

bool rt_cuda_ahead_open(Cuda *c, const rt_program *p, Fault *f) {
  if (!p->host_ahead) return true;
  CudaAhead *x = c->ahead = rt_alloc(sizeof *x);
  return rt_cuda_ok(c, c->api.cuStreamCreate(&x->stream, 1), "make a stream for inputs", f) &&
         rt_cuda_ok(c, c->api.cuEventCreate(&x->sent, NO_TIME), "make an event", f) &&
         rt_cuda_ok(c, c->api.cuEventCreate(&x->taken, NO_TIME), "make an event", f);
}

void rt_cuda_ahead_close(Cuda *c) {
  CudaAhead *x = c->ahead;
  if (!x) return;
  if (x->stream) c->api.cuStreamSynchronize(x->stream);
  if (x->sent) c->api.cuEventDestroy(x->sent);
  if (x->taken) c->api.cuEventDestroy(x->taken);
  if (x->stream) c->api.cuStreamDestroy(x->stream);
  free(x);
  c->ahead = NULL;
}

static char *room(const Device *d) {
  const rt_program *p = d->program;
  return ((const Cuda *)d->inside)->pinned + p->host_view + p->host_window + p->host_messages;
}

static CUdeviceptr waiting(const Device *d) {
  return ((const Cuda *)d->inside)->arena[RT_IO] + (CUdeviceptr)d->program->ahead_at;
}

static char *ahead_at(const Device *d, const rt_tensor *t) {
  return t->ahead < 0 || !d->program->host_ahead ? NULL : room(d) + t->ahead;
}

/* From whatever thread reads the data. */
static void begin(const Device *d) {
  const Cuda *c = d->inside;
  if (!c->ahead) return;
  rt_cuda_must(c, c->api.cuCtxSetCurrent(c->context), "use the GPU");
  rt_cuda_must(c, c->api.cuEventSynchronize(c->ahead->sent), "wait for the last inputs");
}

static void send(const Device *d) {
  const Cuda *c = d->inside;
  const CudaAhead *x = c->ahead;
  if (!x) return;
  size_t bytes = (size_t)d->program->host_ahead;
  rt_cuda_must(c, c->api.cuCtxSetCurrent(c->context), "use the GPU");
  rt_cuda_must(c, c->api.cuStreamWaitEvent(x->stream, x->taken, 0), "wait for an event");
  rt_cuda_must(c, c->api.cuMemcpyHtoDAsync(waiting(d), room(d), bytes, x->stream),
               "copy the next inputs to the GPU");
  rt_cuda_must(c, c->api.cuEventRecord(x->sent, x->stream), "record an event");
}

static void take(const Device *d) {
  const Cuda *c = d->inside;
  const CudaAhead *x = c->ahead;
  if (!x) return;
  rt_cuda_must(c, c->api.cuStreamWaitEvent(c->stream, x->sent, 0), "wait for an event");
  for (int i = 0; i < d->program->ntensors; i++) {
    const rt_tensor *t = &d->program->tensors[i];
    if (t->kind != RT_INPUT || t->ahead < 0) continue;
    CUdeviceptr to = c->arena[t->arena] + (CUdeviceptr)t->offset;
    CUresult e = c->api.cuMemcpyDtoDAsync(to, waiting(d) + (CUdeviceptr)t->ahead, (size_t)t->bytes,
                                          c->stream);
    rt_cuda_must(c, e, "move inputs");
  }
  rt_cuda_must(c, c->api.cuEventRecord(x->taken, c->stream), "record an event");
}

const DeviceAhead rt_cuda_ahead = {.at = ahead_at, .begin = begin, .send = send, .take = take};
