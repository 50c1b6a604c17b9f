/* Operations outside of entries (ir/background.def) on a GPU: inputs of the next step and the
   snapshot of a checkpoint, by the tokens of the program.

   `send` has a stream of its own: one copy takes all inputs from pinned memory to a second
   buffer of the GPU while kernels run. `take` moves them into the inputs on the kernel
   stream, at the speed of the GPU's memory, before the graph of the step; so addresses of
   inputs do not change, and a recorded graph stays valid. `keep` copies what a checkpoint
   stores on the kernel stream: kernels of the next step change it afterwards, and the host
   does not wait. Each of the three records an event; whoever has a token for it waits for the
   event: a stream as a stream, a thread of the host by blocking. `read` and `write` are done
   by threads, which hand over what they have done; here they only wait. Must not: allocate
   after the start; wait without a token. */
#include "device_cuda.h"
#include <stdlib.h>

struct CudaBackground {
  CUstream inputs;
  CUevent over[RT_BACKGROUNDS]; /* of the latest one; NULL: a thread does it */
};

/* NULL: a thread's. */
static CUstream stream_of(const Cuda *cuda, rt_background_op op) {
  if (op == RT_BACKGROUND_send) return cuda->background->inputs;
  return op == RT_BACKGROUND_take || op == RT_BACKGROUND_keep ? cuda->stream : NULL;
}

bool rt_cuda_background_open(Cuda *cuda, const rt_program *program, Fault *f) {
  CudaBackground *background = cuda->background = rt_alloc(sizeof *background);
  if (program->background[RT_BACKGROUND_send].there &&
      !rt_cuda_ok(cuda, cuda->api.cuStreamCreate(&background->inputs, 1),
                  "make a stream for inputs", f))
    return false;
  for (rt_background_op op = 0; op < RT_BACKGROUNDS; op++)
    if (program->background[op].there && stream_of(cuda, op) &&
        !rt_cuda_event(cuda, &background->over[op], f))
      return false;
  return true;
}

void rt_cuda_background_close(Cuda *cuda) {
  CudaBackground *background = cuda->background;
  if (!background) return;
  if (background->inputs) cuda->api.cuStreamSynchronize(background->inputs);
  for (rt_background_op op = 0; op < RT_BACKGROUNDS; op++)
    if (background->over[op]) cuda->api.cuEventDestroy(background->over[op]);
  if (background->inputs) cuda->api.cuStreamDestroy(background->inputs);
  free(background);
  cuda->background = NULL;
}

static void wait_by_tokens(const Device *d, rt_background_op op) {
  const Cuda *cuda = d->inside;
  const rt_background *tokens = &d->program->background[op];
  CUstream stream = stream_of(cuda, op);
  for (rt_background_op other = 0; other < RT_BACKGROUNDS; other++) {
    CUevent over = cuda->background->over[other];
    if (!(tokens->after >> other & 1) || !over) continue;
    rt_cuda_must(cuda,
                 stream ? cuda->api.cuStreamWaitEvent(stream, over, 0)
                        : cuda->api.cuEventSynchronize(over),
                 "wait for an event");
  }
  if (tokens->streams) rt_cuda_streams_drain(cuda);
}

static char *staged(const Device *d) {
  const rt_program *p = d->program;
  return ((const Cuda *)d->inside)->pinned + p->host_view + p->host_window + p->host_messages;
}

static CUdeviceptr waiting(const Device *d) {
  return ((const Cuda *)d->inside)->arena[RT_IO] + (CUdeviceptr)d->program->ahead_at;
}

char *rt_cuda_ahead_at(const Device *d, const rt_tensor *tensor) {
  return tensor->ahead < 0 || !d->program->host_ahead ? NULL : staged(d) + tensor->ahead;
}

static void send(const Device *d) {
  const Cuda *cuda = d->inside;
  rt_cuda_must(cuda,
               cuda->api.cuMemcpyHtoDAsync(waiting(d), staged(d), (size_t)d->program->host_ahead,
                                           cuda->background->inputs),
               "copy the next inputs to the GPU");
}

static void take(const Device *d) {
  const Cuda *cuda = d->inside;
  for (int i = 0; i < d->program->ntensors; i++) {
    const rt_tensor *tensor = &d->program->tensors[i];
    if (tensor->kind != RT_INPUT || tensor->ahead < 0) continue;
    CUdeviceptr to = cuda->arena[tensor->arena] + (CUdeviceptr)tensor->offset;
    CUresult e = cuda->api.cuMemcpyDtoDAsync(to, waiting(d) + (CUdeviceptr)tensor->ahead,
                                             (size_t)tensor->bytes, cuda->stream);
    rt_cuda_must(cuda, e, "move inputs");
  }
}

static void keep(const Device *d) {
  const Cuda *cuda = d->inside;
  for (int i = 0; i < d->program->nsnapshot; i++) {
    const rt_range *range = &d->program->snapshot[i];
    rt_cuda_copy(cuda, (CUdeviceptr)(uintptr_t)(d->ctx.arena[RT_SNAPSHOT] + range->at),
                 cuda->arena[range->arena] + (CUdeviceptr)range->from, range->bytes, "snapshot");
  }
}

void rt_cuda_background(const Device *d, rt_background_op op) {
  const Cuda *cuda = d->inside;
  if (!d->program->background[op].there) return;
  rt_cuda_must(cuda, cuda->api.cuCtxSetCurrent(cuda->context), "use the GPU");
  wait_by_tokens(d, op);
  if (op == RT_BACKGROUND_send) send(d);
  else if (op == RT_BACKGROUND_take) take(d);
  else if (op == RT_BACKGROUND_keep) keep(d);
  CUevent over = cuda->background->over[op];
  if (over) rt_cuda_record(cuda, over, stream_of(cuda, op));
}
