/* Inputs of the next step on their way to the GPU while kernels run: a stream of copies, and two
   events (docs/gpu.md).

   The host writes them into pinned memory of their own, one copy takes all of them into a second
   buffer, and when their step begins the kernel stream waits for that copy (`sent`) and moves them
   into the inputs, at the speed of the GPU's memory, before the graph of the step. The next copy
   waits until that has happened (`taken`), and the host until the last copy has left before it
   writes again. Addresses of inputs do not change, so a recorded graph stays valid. Must not:
   allocate after the start; wait for anything on the kernel stream. */
#include "device_cuda.h"
#include <stdlib.h>

enum { NO_TIME = 2 }; /* CU_EVENT_DISABLE_TIMING */

struct CudaAhead {
  CUstream stream;
  CUevent sent, taken;
};

bool rt_cuda_ahead_open(Cuda *cuda, const rt_program *p, Fault *f) {
  if (!p->host_ahead) return true;
  CudaAhead *ahead = cuda->ahead = rt_alloc(sizeof *ahead);
  return rt_cuda_ok(cuda, cuda->api.cuStreamCreate(&ahead->stream, 1), "make a stream for inputs",
                    f) &&
         rt_cuda_ok(cuda, cuda->api.cuEventCreate(&ahead->sent, NO_TIME), "make an event", f) &&
         rt_cuda_ok(cuda, cuda->api.cuEventCreate(&ahead->taken, NO_TIME), "make an event", f);
}

void rt_cuda_ahead_close(Cuda *cuda) {
  CudaAhead *ahead = cuda->ahead;
  if (!ahead) return;
  if (ahead->stream) cuda->api.cuStreamSynchronize(ahead->stream);
  if (ahead->sent) cuda->api.cuEventDestroy(ahead->sent);
  if (ahead->taken) cuda->api.cuEventDestroy(ahead->taken);
  if (ahead->stream) cuda->api.cuStreamDestroy(ahead->stream);
  free(ahead);
  cuda->ahead = NULL;
}

static char *room(const Device *d) {
  const rt_program *p = d->program;
  return ((const Cuda *)d->inside)->pinned + p->host_view + p->host_window + p->host_messages;
}

static CUdeviceptr waiting(const Device *d) {
  return ((const Cuda *)d->inside)->arena[RT_IO] + (CUdeviceptr)d->program->ahead_at;
}

static char *ahead_at(const Device *d, const rt_tensor *tensor) {
  return tensor->ahead < 0 || !d->program->host_ahead ? NULL : room(d) + tensor->ahead;
}

/* From whatever thread reads the data. */
static void begin(const Device *d) {
  const Cuda *cuda = d->inside;
  if (!cuda->ahead) return;
  rt_cuda_must(cuda, cuda->api.cuCtxSetCurrent(cuda->context), "use the GPU");
  rt_cuda_must(cuda, cuda->api.cuEventSynchronize(cuda->ahead->sent), "wait for the last inputs");
}

static void send(const Device *d) {
  const Cuda *cuda = d->inside;
  const CudaAhead *ahead = cuda->ahead;
  if (!ahead) return;
  size_t bytes = (size_t)d->program->host_ahead;
  rt_cuda_must(cuda, cuda->api.cuCtxSetCurrent(cuda->context), "use the GPU");
  rt_cuda_must(cuda, cuda->api.cuStreamWaitEvent(ahead->stream, ahead->taken, 0),
               "wait for an event");
  rt_cuda_must(cuda, cuda->api.cuMemcpyHtoDAsync(waiting(d), room(d), bytes, ahead->stream),
               "copy the next inputs to the GPU");
  rt_cuda_must(cuda, cuda->api.cuEventRecord(ahead->sent, ahead->stream), "record an event");
}

static void take(const Device *d) {
  const Cuda *cuda = d->inside;
  const CudaAhead *ahead = cuda->ahead;
  if (!ahead) return;
  rt_cuda_must(cuda, cuda->api.cuStreamWaitEvent(cuda->stream, ahead->sent, 0),
               "wait for an event");
  for (int i = 0; i < d->program->ntensors; i++) {
    const rt_tensor *tensor = &d->program->tensors[i];
    if (tensor->kind != RT_INPUT || tensor->ahead < 0) continue;
    CUdeviceptr to = cuda->arena[tensor->arena] + (CUdeviceptr)tensor->offset;
    CUresult e = cuda->api.cuMemcpyDtoDAsync(to, waiting(d) + (CUdeviceptr)tensor->ahead,
                                             (size_t)tensor->bytes, cuda->stream);
    rt_cuda_must(cuda, e, "move inputs");
  }
  rt_cuda_must(cuda, cuda->api.cuEventRecord(ahead->taken, cuda->stream), "record an event");
}

const DeviceAhead rt_cuda_ahead = {.at = ahead_at, .begin = begin, .send = send, .take = take};
