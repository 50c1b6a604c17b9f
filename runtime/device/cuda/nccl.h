/* NCCL, found at run time, and the collectives of a program over it: on the device's stream, so
   that they are recorded into graphs like kernels. The ranks meet over another communicator
   (comm.h), which also carries the runtime's own questions and watches who is lost. */
#ifndef SHARDC_RT_NCCL_H
#define SHARDC_RT_NCCL_H
#include "runtime/comm/comm.h"
#include "cuda.h"
#include <pthread.h>
#include <stdatomic.h>

typedef int NcclResult;
typedef struct ncclComm *NcclComm;
typedef struct NcclId { /* passed by value */
  char bytes[128];
} NcclId;

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_SUM = 0, NCCL_MAX = 2 };

typedef struct NcclApi {
  void *library;
  char path[RT_PATH];
  int version; /* 22809 is 2.28.9 */
#define NCCL(name, arguments) NcclResult(*name) arguments;
#include "nccl_api.def"
#undef NCCL
} NcclApi;

typedef struct Nccl {
  NcclApi api;
  const CudaApi *cuda;
  Comm *comm;
  NcclComm axis[RT_MAX_AXES]; /* per axis of the mesh; NULL: an axis of one rank */
  const rt_collective *last;  /* for messages */
  CUcontext context;
  CUstream side;        /* of the watch: it reads while the other one waits */
  CUdeviceptr word;     /* on the device: position << 16 | row of the collective it has come to */
  unsigned position;    /* of the next collective in its entry */
  _Atomic double since; /* the device is waited for since then; 0: it is not */
  pthread_t watch;
  atomic_bool over;
} Nccl;

typedef struct NeighbourSend {
  const rt_collective *what;
  CUdeviceptr from;
} NeighbourSend;

/* A call of all ranks, with the device's context current. NULL: f says why. */
Nccl *rt_nccl_start(Comm *c, const CudaApi *cuda, CUcontext context, CUdeviceptr word, Fault *f);
void rt_nccl_stop(Nccl *nccl);
void rt_nccl_collect(Nccl *nccl, const rt_collective *collective, const void *send, void *receive,
                     void *work, CUstream s);
/* n sends to neighbours and a receive from one in one group, sends between two ranks in that order;
   receive NULL: there is none. */
void rt_nccl_neighbours(Nccl *nccl, const NeighbourSend *sends, int n, const rt_collective *receive,
                        void *into, CUstream s);
void rt_nccl_pass(Nccl *nccl);              /* one that is for other ranks: all count alike */
void rt_nccl_look(Nccl *nccl);              /* ends the process if a communicator has failed */
void rt_nccl_begin(Nccl *nccl, CUstream s); /* of the calls of an entry */
/* Around a time in which the device is given work and waited for. */
void rt_nccl_waits(Nccl *nccl, bool new_run);
void rt_nccl_goes_on(Nccl *nccl);
void rt_nccl_abort(Nccl *nccl); /* from another thread: what waits on the device ends */
bool rt_nccl_watch_start(Nccl *nccl, Fault *f); /* nccl_watchdog.c */
void rt_nccl_watch_stop(Nccl *nccl);
#endif
