/* Declarations that the files of the CUDA device share. */
#ifndef SHARDC_RT_DEVICE_CUDA_H
#define SHARDC_RT_DEVICE_CUDA_H
#include "cuda.h"
#include "runtime/device/device.h"
#include "nccl.h"

typedef struct Loaded {    /* a kernel's code on the device; module NULL: not yet */
  const rt_kernel *kernel; /* of the program's table */
  const rt_kernel *taken;  /* it, or the larger one that this device allows */
  CUmodule module;
  CUfunction function[RT_MAX_PHASES];
} Loaded;

typedef struct Recorded { /* an entry: its first run goes launch by launch, later ones as a graph */
  int64_t runs;
  CUgraphExec graph;
} Recorded;

typedef struct OpenSpan { /* a span of a tensor, in the window */
  const rt_tensor *t;     /* NULL: empty */
  int64_t from, bytes;
  bool written;
} OpenSpan;

typedef struct CudaFlights CudaFlights;       /* cuda_flight.c */
typedef struct CudaWaited CudaWaited;         /* cuda_stall.c */
typedef struct CudaBackground CudaBackground; /* cuda_background.c */
typedef struct CudaBeside CudaBeside;         /* cuda_host_kernels.c */
typedef struct CudaStreams CudaStreams;       /* cuda_copy_streams.c */

typedef struct HostPages { /* memory of the host that the GPU reads and writes */
  void *at;
  int64_t bytes;
  bool pinned;
} HostPages;

typedef struct Cuda {
  CudaApi api;
  CudaDevice device;
  CUcontext context;
  CUstream stream;
  CUevent from, to;                             /* around a launch that is timed */
  CUdeviceptr arena[RT_ARENAS], counters, word; /* the last two are in IO */
  Loaded *loaded;                               /* by address of the kernel */
  int nloaded;
  Recorded *entry;
  void **arguments;              /* of one launch */
  bool no_graph, careful, waits; /* waits: for every launch, now */
  const char *kernels;           /* a folder; NULL: none */
  HostPages host[RT_ARENAS + 1];
  int nhost;
  bool pageable;        /* some of them */
  char *pinned;         /* of the host, for the runtime: view, window, messages, inputs ahead */
  OpenSpan open;        /* the contents of the window */
  Nccl *nccl;           /* NULL: collectives go through the host */
  CudaFlights *flights; /* NULL: all messages are on the stream of the kernels */
  CudaBackground *background;
  CudaBeside *beside;   /* NULL: the host has no kernels */
  CudaStreams *streams; /* NULL: nothing moves between the memories */
  CudaWaited *waited;   /* NULL: nobody asks how long messages were waited for */
  bool times_waits;     /* somebody does */
  bool recording;       /* a graph, just now */
  const char *running;  /* the entry, for messages */
} Cuda;

/* Ends the process unless e is success. `what` was tried. */
void rt_cuda_must(const Cuda *cuda, CUresult e, const char *what);
void rt_cuda_wait(const Cuda *cuda); /* for all that its stream was given */
/* Pinned memory of the host, including the host arenas (cuda_pinned.c). */
bool rt_cuda_on_host(rt_arena a);
bool rt_cuda_pin(Device *d, Fault *f);
void rt_cuda_unpin(Cuda *cuda);
/* Between any two places of both memories, on the stream of the kernels. */
void rt_cuda_copy(const Cuda *cuda, CUdeviceptr to, CUdeviceptr from, int64_t bytes,
                  const char *what);
void rt_cuda_poison_host(const Device *d, const rt_entry *e);
void rt_cuda_measure_host(const Device *d, const rt_entry *e);
const char *rt_cuda_mebibytes(char out[32], double bytes); /* 1.50 MiB */
/* A collective by way of the host (device_cuda_host.c). */
void rt_cuda_exchange(Device *d, const rt_collective *collective, const void *send, void *receive);
/* In a program whose messages fly: a start and its wait, or both at once (cuda_flight.c). */
void rt_cuda_start(Device *d, const rt_collective *collective, const void *send, void *receive,
                   void *work);
void rt_cuda_await(Device *d, const rt_collective *collective);
void rt_cuda_collect_behind(Device *d, const rt_collective *collective, const void *send,
                            void *receive, void *work);
void rt_cuda_send(Device *d, const rt_collective *collective, const void *from, void *to);
void rt_cuda_receive(Device *d, const rt_collective *collective, void *to);
void rt_cuda_flights_begin(const Device *d);
void rt_cuda_flights_end(const Device *d); /* of an entry: what was sent has gone */
bool rt_cuda_flights_open(Cuda *cuda, const rt_program *program, Fault *f);
void rt_cuda_flights_close(Cuda *cuda, const rt_program *program);
/* Operations outside of entries (cuda_background.c). */
bool rt_cuda_background_open(Cuda *cuda, const rt_program *program, Fault *f);
void rt_cuda_background_close(Cuda *cuda);
void rt_cuda_background(const Device *d, rt_background_op op);
char *rt_cuda_ahead_at(const Device *d, const rt_tensor *tensor);
/* Kernels of the host (cuda_host_kernels.c). */
bool rt_cuda_beside_open(Device *d, int threads, Fault *f);
void rt_cuda_beside_close(Cuda *cuda);
void rt_cuda_launch_beside(const Cuda *cuda, const rt_kernel *kernel, void *const *buffers,
                           Trace *trace);
/* Copies between host and device, and other operations on host memory, concurrent with the kernels
   of the GPU (cuda_copy_streams.c). Around an entry; on: not if each launch is waited for, or
   timed. */
bool rt_cuda_streams_open(Cuda *cuda, const rt_program *program, bool checks, Fault *f);
void rt_cuda_streams_close(Cuda *cuda);
void rt_cuda_streams_begin(const Cuda *cuda, const rt_entry *entry, bool on);
void rt_cuda_streams_end(const Cuda *cuda);
/* Do entries leave copies and host kernels under way? */
bool rt_cuda_streams_across_steps(const Cuda *cuda);
/* Called before anything but an entry touches memory of these streams: makes the kernel stream wait
   for them. */
void rt_cuda_streams_drain(const Cuda *cuda);
bool rt_cuda_has_streams(
    const Cuda *cuda); /* in this entry; else the next ones must not be called */
void rt_cuda_streams_move(const Cuda *cuda, void *to, const void *from, int64_t bytes, rt_way way);
void rt_cuda_streams_after(const Cuda *cuda, rt_stream stream, rt_stream other, int64_t number,
                           bool since_start);
void rt_cuda_streams_copy(const Cuda *cuda, void *to, const void *from,
                          int64_t bytes); /* of the host */
void rt_cuda_streams_zero(const Cuda *cuda, void *to, int64_t bytes);
void rt_cuda_streams_call(const Cuda *cuda, void (*f)(void *), void *data);
/* How long the kernels' stream waits (cuda_stall.c): around each time that it does; each run. */
void rt_cuda_waited_open(Cuda *cuda, const rt_program *p);
void rt_cuda_waited_close(Cuda *cuda);
void rt_cuda_stall_begin(const Cuda *cuda);
void rt_cuda_stall_end(const Cuda *cuda);
void rt_cuda_waited_begin(const Cuda *cuda);
void rt_cuda_waited_end(const Cuda *cuda, int entry, bool issued);
double rt_cuda_waited(const Device *d); /* seconds of the last run */
bool rt_cuda_ok(const Cuda *cuda, CUresult e, const char *what, Fault *f);
bool rt_cuda_event(const Cuda *cuda, CUevent *e, Fault *f); /* a new one, without a time */
void rt_cuda_wait_event(const Cuda *cuda, CUstream to, CUevent e);
void rt_cuda_record(const Cuda *cuda, CUevent e, CUstream from);

bool rt_cuda_kernels_open(Cuda *cuda, const rt_program *program, Fault *f);
void rt_cuda_kernels_close(Cuda *cuda);
void rt_cuda_launch(Cuda *cuda, const rt_kernel *kernel, void *const *buffers, Trace *trace);
#endif
