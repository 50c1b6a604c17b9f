/* A device: its arenas, and the execution of entries. Each kind of device is a table of functions
   (device_cpu.c; GPUs: a folder). The runtime reads and writes tensors of a CPU in place. On other
   devices it has a view of the small tensors in host memory: reading one fetches it if an entry has
   run since, and a written one is copied to the device before the next entry runs. Entries never
   write inputs and scalars. All other tensors are transferred through a window of a fixed size, a
   span at a time: so the runtime's host memory does not grow with the model. */
#ifndef SHARDC_RT_DEVICE_H
#define SHARDC_RT_DEVICE_H
#include "runtime/comm/comm.h"
#include "region.h"
#include "pool.h"
#include "trace.h"

typedef struct Device Device;

/* Can a GPU of this compute capability run the program's code? */
static inline bool rt_runs_on(const rt_program *program, int sm) {
  return program->alone ? sm == program->sm : sm >= program->sm;
}

typedef struct DeviceOptions {
  int threads;         /* of a CPU */
  bool samples;        /* entries `logits` and `decode` run: memory that only they need is
                          allocated */
  bool saves;          /* the snapshot of `save async = on` is allocated */
  bool check;          /* poison WORK before each entry and measure it */
  bool no_graph;       /* GPU: every launch by itself */
  bool waited;         /* GPU: time what the kernels wait for messages */
  bool careful;        /* GPU: wait for every kernel, so that a fault names its kernel */
  int number;          /* GPU: which, from 0; -1: by the rank's number on its machine */
  const char *kernels; /* GPU: a folder of files of kernels that are taken instead; NULL: none */
} DeviceOptions;

typedef struct RowCopy { /* `rows` times `bytes`, between strided rows */
  const rt_tensor *to, *from;
  int64_t to_at, to_apart, from_at, from_apart; /* bytes */
  int64_t bytes, rows;
} RowCopy;

typedef struct DeviceFound {
  char name[96];
  int sm;      /* its generation, as rt_program.sm */
  bool driver; /* the driver of such devices is installed */
} DeviceFound;

typedef struct DeviceCalls {
  const char *target; /* for `shardc compile --target`: any device of this kind */
  bool (*start)(Device *d, const DeviceOptions *o, Fault *f);
  bool (*join)(Device *d, Fault *f); /* with the devices of all ranks; NULL: nothing to do */
  void (*stop)(Device *d);
  bool (*run)(Device *d, const rt_entry *e, Fault *f);
  /* what rt_abi.def says */
  void (*launch)(Device *d, const rt_kernel *k, void *const *buffers);
  void (*copy)(Device *d, void *to, const void *from, int64_t bytes);
  void (*move)(Device *d, void *to, const void *from, int64_t bytes, rt_way way);
  /* rt_after, or rt_until; NULL: all is done in order. */
  void (*after)(Device *d, rt_stream stream, rt_stream other, int64_t number, bool since_start);
  void (*zero)(Device *d, void *to, int64_t bytes);
  void *(*counter)(Device *d, int64_t i);
  void (*collect)(Device *d, const rt_collective *c, const void *send, void *receive, void *work);
  void (*begin)(Device *d, const rt_collective *c, const void *send, void *receive, void *work);
  void (*end)(Device *d, const rt_collective *c, int64_t n);
  void (*rows)(Device *d, const RowCopy *c);
  /* An operation outside of entries, after those for which it has tokens; a thread's, `read` or
     `write`: returns when the thread may begin. Does nothing if the program does not have it. One
     thread at a time calls it for `read` and `send`, the thread that runs entries for `take`, after
     a `send`, and `keep`. */
  void (*background)(const Device *d, rt_background_op op);
  void (*words)(const Device *d, char *out, size_t n); /* what it is: 2 workers */
  /* Describes device `number` of this kind on this machine without starting it. NULL: every machine
     has one. */
  bool (*find)(int number, DeviceFound *found, Fault *f);
  /* Seconds for which kernels of the last run waited for messages; NaN: not known. NULL: it is the
     host that waits (rt_comm_waited). */
  double (*waited)(const Device *d);
  /* Between the view and the device; NULL: the view is the tensor itself. */
  void (*fetch)(const Device *d, const rt_tensor *t);
  void (*push)(const Device *d, const rt_tensor *t);
  void (*drain)(const Device *d); /* waits until all pushed data has arrived */
  /* Where `read` writes an input of the next step; NULL: in memory of its own. NULL: all are. */
  char *(*ahead_at)(const Device *d, const rt_tensor *t);
  /* Bytes of a tensor without a view, in the window. */
  char *(*span)(const Device *d, const rt_tensor *t, int64_t from, int64_t bytes, bool writes);
} DeviceCalls;

extern const DeviceCalls rt_device_cpu, rt_device_gpu;

typedef enum View { SAME, STALE, WRITTEN } View; /* of a tensor, against the device */

struct Device {
  const DeviceCalls *kind; /* NULL: not started */
  const rt_program *program;
  const rt_program *first; /* of the executable's programs; NULL: there is only this one */
  rt_ctx ctx; /* what generated code gets; ctx.state points at the holder of this struct */
  Region arena[RT_ARENAS];
  char *view[RT_ARENAS]; /* where the runtime finds an arena */
  char *apart;           /* the view of a GPU's tensors */
  uint8_t *state;        /* View of every tensor, then whether some are on their way; NULL: there is
                            no view apart */
  Pool *pool;            /* of a CPU */
  void *inside;          /* the kind's */
  Comm *comm;            /* NULL: one rank */
  Trace *trace;          /* NULL: off */
  int32_t *counters;
  bool check, samples, saves;
  bool *ran; /* per entry: has it run? */
  int64_t
      *touched; /* per entry: the most bytes of WORK touched, in check runs; then, of HOST_WORK */
  int64_t now[2],
      *moved; /* bytes copied to the host and to the device: now; per entry, its last run */
};

bool rt_device_start(Device *d, const rt_program *program, Comm *comm, const DeviceOptions *options,
                     Fault *f);           /* comm: NULL for one rank */
bool rt_device_join(Device *d, Fault *f); /* called by all ranks, after all have started */
void rt_device_stop(Device *d);
bool rt_device_run(Device *d, const rt_entry *entry, Fault *f);
bool rt_has_run(const Device *d, const rt_entry *entry);
int64_t rt_arena_bytes(const Device *d, rt_arena a); /* that are allocated */
/* Does the tensor have memory? Tensors only for sampling have none while a model trains. */
bool rt_is_there(const Device *d, const rt_tensor *tensor);
/* Zeroes a tensor on the device, after the work in flight; not for a tensor that the host has a
   view of. */
void rt_tensor_zero(Device *d, const rt_tensor *tensor);
void rt_device_words(const Device *d, char *out, size_t n);
bool rt_processor_fits(const rt_program *program, Fault *f); /* processor.c */
const rt_entry *rt_entry_find(const rt_program *program, const char *name);
/* Its entry of a phase of training, or NULL; is an entry a step, `step` or one that replaces it? */
const rt_entry *rt_entry_of_phase(const rt_program *program, rt_phase phase);
bool rt_entry_trains(const rt_entry *entry);
bool rt_phase_replaces(rt_phase phase);
const rt_tensor *rt_tensor_find(const rt_program *program, const char *name);
int64_t rt_tensor_count(const rt_tensor *tensor);
int rt_tensor_axis(const rt_tensor *tensor, const char *dim); /* -1: it has none */
int64_t rt_tensor_stride(const rt_tensor *tensor, int axis);  /* elements; 0 for axis -1 */

/* A tensor as the last entry left it; to write into, all of it or a part. Both hold until the next
   entry runs; that of a tensor without a view, which must be small, until the next span. */
const void *rt_tensor_read(const Device *d, const rt_tensor *tensor);
void *rt_tensor_write(const Device *d, const rt_tensor *tensor);
void rt_tensor_rows(Device *d, const RowCopy *c);
void rt_ahead_take(const Device *d); /* all inputs that were read ahead */

/* The same of bytes from .. from + bytes - 1, rt_span_most of them at most. A span without a view
   holds until the next one is asked for. */
bool rt_is_viewed(const Device *d, const rt_tensor *tensor);
int64_t rt_span_most(const Device *d, const rt_tensor *tensor);
const char *rt_span_read(const Device *d, const rt_tensor *tensor, int64_t from, int64_t bytes);
char *rt_span_write(const Device *d, const rt_tensor *tensor, int64_t from, int64_t bytes);
void rt_tensor_copy(const Device *d, const rt_tensor *tensor, int64_t from, int64_t bytes,
                    void *to);
#endif
