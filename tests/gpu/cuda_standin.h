/* Shared declarations of the stand-in for libcuda.so.1.

   The library is the CUDA driver as far as shardc and a stand-in for NCCL call it, over the PTX
   machine (ptx.h). A driver is state of a process: one struct holds all of it, and one lock
   protects it. Work is a queue of operations per stream; a graph is such queues that were recorded,
   one per stream that took part. Without SHARDC_EMULATE_LATE an operation is done when it is
   enqueued, with it when something waits for it, in an order that events allow (cuda_queue.c). Must
   not: accept calls that a real driver refuses. */
#ifndef TESTS_GPU_CUDA_STANDIN_H
#define TESTS_GPU_CUDA_STANDIN_H
#include "ptx.h"
#include "runtime/device/cuda/cuda.h"
#include <pthread.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

enum { MOST_DEVICES = 16, MOST_QUEUES = 8, HOST = 1, DEVICE = 2, EITHER = 4 };

enum { /* results in addition to those of runtime/device/cuda/cuda.h */
       CU_NOT_INITIALIZED = 3,
       CU_INVALID_DEVICE = 101,
       CU_INVALID_HANDLE = 400,
       CU_MISALIGNED = 716,
       CU_CAPTURE_UNSUPPORTED = 900,
       CU_CAPTURE_INVALIDATED = 901,
       CU_CAPTURE_UNJOINED = 904,
       CU_CAPTURE_ISOLATION = 905,
       CU_UNKNOWN = 999
};

typedef void HostFunction(void *data);

typedef enum OpKind { OP_LAUNCH, OP_COPY, OP_SET, OP_RECORD, OP_WAIT, OP_GRAPH, OP_CALL } OpKind;

typedef struct Queue Queue;

typedef struct Op {
  OpKind kind;
  union {
    struct {
      CUfunction function;
      PtxLaunch launch; /* its params are the operation's own */
    } launch;
    struct {
      CuCopy2D c;
      void *staged; /* what the source held when it was enqueued; NULL: read it when it is done */
    } copy;
    struct {
      CUdeviceptr to;
      uint32_t value;
      int bytes; /* of the value */
      size_t n;
    } set;
    CUevent event; /* record */
    struct {
      Queue *queue;     /* until the operations of this one */
      int64_t position; /* operations before this position are done */
    } wait;
    CUgraphExec graph;
    struct {
      HostFunction *f;
      void *data;
    } call;
  };
} Op;

struct Queue {
  Op *at;
  size_t n, room, done; /* done: how many are complete */
  int64_t gone;         /* operations before at[0] */
  bool meets;           /* others wait for it, or it for others */
};

struct CUctx { /* the primary context of a device */
  int number, users;
  int place, sm; /* place: among all devices, also those that CUDA_VISIBLE_DEVICES hides */
  PtxDevice *machine;
  int64_t allocated, most; /* bytes; most: at any time */
  CUresult sticky;         /* of a kernel that failed: all calls from then on */
  CUstream streams;        /* list; the default stream is the first */
};

struct CUstrm {
  CUcontext context;
  CUstream next;
  Queue queue;
  CUgraph capture; /* where operations are recorded; NULL: not capturing */
  int as;          /* its queue in the graph; 0: it began the capture */
};

struct CUevnt {
  CUcontext context;
  CUstream stream;  /* of the last record; NULL: none */
  int64_t position; /* it covers the stream's operations up to this position */
  int capture, as;  /* it was recorded in the capture of this number, in this queue; 0: in none */
  int64_t knows[MOST_QUEUES];
  bool recorded, external; /* external: by graphs, each time that they run */
  double when;
};

struct CUgrph {
  int number; /* of the capture */
  int nqueues;
  Queue queue[MOST_QUEUES];                /* of the streams that took part */
  int64_t knows[MOST_QUEUES][MOST_QUEUES]; /* for each queue's end, the position in each other one
                                              that it waits for */
  bool broken; /* a call that must not be made while recording was made */
};

struct CUgrphExec {
  CUcontext context;
  int nqueues;
  Queue queue[MOST_QUEUES];
  bool runs, dead; /* dead: was destroyed while it ran */
};

struct CUmod {
  CUcontext context;
  PtxModule *module;
  CUfunction functions; /* list */
};

struct CUfunc {
  CUmodule module;
  CUfunction next;
  char *name;
  int shared; /* dynamic shared memory allowed: attribute 8 */
};

typedef struct Range { /* of host memory that is pinned */
  char *at;
  size_t n;
  bool own; /* allocated by the stand-in */
} Range;

typedef struct Driver {
  pthread_mutex_t lock;
  bool started, late, check, log;
  int ndevices, version, captures, captured; /* captured: the number of the last capture */
  int64_t shared, memory, used;
  uint64_t seed;
  const char *fails; /* CALL=RESULT: what that call returns; "": none fails */
  const char *drops; /* wait=N, record=N: the N-th call of that kind does nothing */
  int64_t waits, records, order;
  uint64_t drawn;   /* random numbers of orders */
  const char *name; /* of the devices; NULL: their own */
  struct CUctx context[MOST_DEVICES];
  Range *pinned;
  int npinned;
  int64_t host, most_host; /* bytes that are pinned; at any time */
} Driver;

extern Driver standin_driver;
#define driver (&standin_driver)

/* Every call holds the lock, which is free inside host functions. */
void standin_enter(void);
CUresult standin_leave(CUresult e);

CUcontext standin_context(void);     /* current; NULL: none */
CUstream standin_stream(CUstream s); /* 0, 1 and 2 are the default stream */
/* Which context's memory an address is; NULL: none. */
CUcontext standin_owner(CUdeviceptr at);
bool standin_pinned(const void *at, size_t n);
CUresult standin_told(const char *call); /* to fail by SHARDC_EMULATE_FAIL; else success */
/* A call that must not be made while a stream is recorded. */
CUresult standin_unsafe(void);

CUresult standin_enqueue(CUstream s, const Op *op);
CUresult standin_flush(CUstream s);                      /* all operations enqueued in it */
CUresult standin_flush_to(CUstream s, int64_t position); /* and no more than that needs */
CUresult standin_flush_all(CUcontext c);                 /* on all streams of a context */
bool standin_push(Queue *q, const Op *op);
int64_t standin_end(const Queue *q);    /* the position after its last operation */
int64_t standin_behind(const Queue *q); /* the position up to which all is done */
void standin_queue_free(Queue *q);
CUresult standin_graph(CUgraphExec g); /* runs it */
void standin_graph_free(CUgraphExec g);
CUresult standin_copy(CUcontext c, const CuCopy2D *x);
CUresult standin_set(CUdeviceptr to, uint32_t value, int bytes, size_t n);
CUresult standin_launch(CUcontext c, const PtxLaunch *l, CUfunction f);
#endif
