/* Shared declarations of the stand-in for libnccl.so.2.

   The processes of a communicator share memory with a mailbox for every ordered pair of ranks: one
   chunk, filled by the sender and emptied by the receiver. Every operation is a set of transfers
   that go on concurrently until all are done, so the order of sends and receives in a group does
   not matter; sums are added in the order of ranks. Operations run as host functions of the stream,
   so they keep its order and are recorded into graphs. */
#ifndef TESTS_GPU_NCCL_STANDIN_H
#define TESTS_GPU_NCCL_STANDIN_H
#include "runtime/device/cuda/nccl.h"
#include <stdatomic.h>

#define EXPORT __attribute__((visibility("default")))

enum { BOX = 1 << 16, MOST = 64 };
enum { NCCL_UNHANDLED = 1, NCCL_SYSTEM = 2, NCCL_INVALID = 4, NCCL_USAGE = 5, NCCL_REMOTE = 6 };

typedef struct Box { /* from one rank to another */
  _Alignas(64) atomic_uint full;
  uint32_t bytes, what; /* what: a mark of the operation, compared by the receiver */
  char data[BOX];
} Box;

typedef struct Shared {
  _Alignas(64) atomic_int came, left;
  Box box[]; /* from * world + to */
} Shared;

struct ncclComm {
  int me, world;
  Shared *shared;
  size_t bytes;
  atomic_int error, aborted;
  long fails; /* SHARDC_EMULATE_NCCL_ERROR: the number of the operation that does; 0: none */
  struct Work *works; /* list: graphs may run them again */
};

typedef enum Kind { SEND, RECEIVE, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST } Kind;

typedef struct Work { /* one operation, or several of a group */
  struct Work *next;
  NcclComm comm;
  CUstream stream;
  Kind kind;
  CUdeviceptr send, receive;
  size_t count, size; /* elements, bytes of one */
  int elem, reduction, peer;
  struct Work *group; /* sends and receives that go on together */
} Work;

typedef struct Transfer {
  int peer;
  char *data;
  size_t bytes, done;
  bool sends, finished;
} Transfer;

/* All of them concurrently; false: aborted, or the other side does something else. */
bool standin_transfer(NcclComm c, Transfer *t, int n, uint32_t what);
void standin_poison(void *work); /* the host functions: first this one */
void standin_work(void *work);
#endif
