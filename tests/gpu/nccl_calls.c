/* Stand-in for libnccl.so.2: communicators and calls. Operations are enqueued on the stream as host
   functions of the driver; those of a group are enqueued at its end, sends and receives of one
   communicator as one. Must not: run anything at the call. */
#include "nccl_standin.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct Pending { /* of the group of this thread */
  int depth;
  Work *first, *last;
} Pending;

static _Thread_local Pending group;

EXPORT NcclResult ncclGetVersion(int *version) {
  *version = 21805;
  return NCCL_SUCCESS;
}

EXPORT const char *ncclGetErrorString(NcclResult e) {
  static const char *const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return e >= 0 && e < 8 ? texts[e] : "unknown result code";
}

EXPORT const char *ncclGetLastError(NcclComm c) {
  (void)c;
  return "";
}

/* ---- communicators ---- */

EXPORT NcclResult ncclGetUniqueId(NcclId *id) {
  static atomic_int number; /* of this process */
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  memset(id, 0, sizeof *id);
  snprintf(id->bytes, sizeof id->bytes, "/shardc-nccl-%ld-%ld-%d", (long)getpid(), t.tv_nsec,
           atomic_fetch_add(&number, 1));
  return NCCL_SUCCESS;
}

/* All have come, or nobody has for a minute. The name goes when they have. */
static bool meet(NcclComm c, const char *name) {
  const struct timespec nap = {.tv_nsec = 1000000};
  atomic_fetch_add(&c->shared->came, 1);
  for (int i = 0; i < 60000 && atomic_load(&c->shared->came) < c->world; i++) nanosleep(&nap, NULL);
  if (!c->me) shm_unlink(name);
  return atomic_load(&c->shared->came) >= c->world;
}

static NcclResult join(NcclComm c, const char *name) {
  c->bytes = sizeof(Shared) + sizeof(Box) * (size_t)c->world * (size_t)c->world;
  int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)c->bytes)) return NCCL_SYSTEM;
  c->shared = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (c->shared == MAP_FAILED) return c->shared = NULL, NCCL_SYSTEM;
  return meet(c, name) ? NCCL_SUCCESS : NCCL_REMOTE;
}

EXPORT NcclResult ncclCommInitRank(NcclComm *out, int n, NcclId id, int me) {
  if (n < 1 || n > MOST || me < 0 || me >= n || id.bytes[0] != '/') return NCCL_INVALID;
  NcclComm c = calloc(1, sizeof *c);
  if (!c) return NCCL_SYSTEM;
  const char *fails = getenv("SHARDC_EMULATE_NCCL_ERROR");
  c->me = me, c->world = n, c->fails = fails ? strtol(fails, NULL, 10) : 0;
  NcclResult e = join(c, id.bytes);
  if (e) free(c);
  else *out = c;
  return e;
}

EXPORT NcclResult ncclCommInitRankConfig(NcclComm *out, int n, NcclId id, int me, void *config) {
  (void)config;
  return ncclCommInitRank(out, n, id, me);
}

static void forget(NcclComm c) {
  for (Work *w = c->works, *next; w; w = next) next = w->next, free(w);
  if (c->shared) munmap(c->shared, c->bytes);
  free(c);
}

EXPORT NcclResult ncclCommDestroy(NcclComm c) {
  if (!c) return NCCL_INVALID;
  forget(c);
  return NCCL_SUCCESS;
}

EXPORT NcclResult ncclCommFinalize(NcclComm c) { return c ? NCCL_SUCCESS : NCCL_INVALID; }

/* The memory stays: an operation may be under way in another thread. */
EXPORT NcclResult ncclCommAbort(NcclComm c) {
  if (!c) return NCCL_INVALID;
  atomic_store(&c->aborted, 1);
  return NCCL_SUCCESS;
}

EXPORT NcclResult ncclCommGetAsyncError(NcclComm c, NcclResult *e) {
  *e = atomic_load(&c->error);
  return NCCL_SUCCESS;
}

EXPORT NcclResult ncclCommCount(NcclComm c, int *n) { return *n = c->world, NCCL_SUCCESS; }
EXPORT NcclResult ncclCommUserRank(NcclComm c, int *me) { return *me = c->me, NCCL_SUCCESS; }

/* ---- operations ---- */

static NcclResult enqueue(Work *w) {
  CUresult (*launch)(CUstream, void (*)(void *), void *);
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *(void **)&launch = library ? dlsym(library, "cuLaunchHostFunc") : NULL;
  if (!launch || launch(w->stream, standin_poison, w)) return NCCL_UNHANDLED;
  return launch(w->stream, standin_work, w) ? NCCL_UNHANDLED : NCCL_SUCCESS;
}

EXPORT NcclResult ncclGroupStart(void) {
  group.depth++;
  return NCCL_SUCCESS;
}

static bool pairs(const Work *w) { return w->kind == SEND || w->kind == RECEIVE; }

/* Sends and receives of one communicator that follow each other are one operation. */
static NcclResult flush(void) {
  NcclResult e = NCCL_SUCCESS;
  for (Work *w = group.first; w && !e;) {
    Work *last = w, *next;
    while (pairs(w) && last->group && pairs(last->group) && last->group->comm == w->comm)
      last = last->group;
    next = last->group, last->group = NULL;
    e = enqueue(w), w = next;
  }
  group.first = group.last = NULL;
  return e;
}

EXPORT NcclResult ncclGroupEnd(void) {
  if (group.depth < 1) return NCCL_USAGE;
  return --group.depth ? NCCL_SUCCESS : flush();
}

/* NCCL's element types to rt_elem; int8 moves like uint8, uint32 like i32. */
static int elem_of(int type) {
  static const int elems[] = {RT_U8,  RT_U8,  RT_I32, RT_I32, RT_I64,
                              RT_I64, RT_F16, RT_F32, RT_F64, RT_BF16};
  return type >= 0 && type < 10 ? elems[type] : -1;
}

static NcclResult post(Work work, int type) {
  Work *w = malloc(sizeof *w);
  int elem = elem_of(type);
  if (!w || !work.comm || elem < 0 || work.peer < 0 || work.peer >= work.comm->world)
    return free(w), NCCL_INVALID;
  *w = work;
  w->elem = elem, w->size = (size_t)rt_elem_bytes(elem);
  w->next = w->comm->works, w->comm->works = w;
  if (!group.depth) return enqueue(w);
  if (group.last) group.last->group = w;
  else group.first = w;
  group.last = w;
  return NCCL_SUCCESS;
}

static CUdeviceptr at(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

static NcclResult reduce(Kind kind, const void *send, void *receive, size_t n, int type, int op,
                         NcclComm c, CUstream s) {
  if (op != NCCL_SUM && op != NCCL_MAX) return NCCL_INVALID;
  return post((Work){.comm = c,
                     .stream = s,
                     .kind = kind,
                     .send = at(send),
                     .receive = at(receive),
                     .count = n,
                     .reduction = op == NCCL_MAX ? RT_MAX : RT_SUM},
              type);
}

EXPORT NcclResult ncclAllReduce(const void *send, void *receive, size_t n, int type, int op,
                                NcclComm c, CUstream s) {
  return reduce(ALL_REDUCE, send, receive, n, type, op, c, s);
}

EXPORT NcclResult ncclReduceScatter(const void *send, void *receive, size_t n, int type, int op,
                                    NcclComm c, CUstream s) {
  return reduce(REDUCE_SCATTER, send, receive, n, type, op, c, s);
}

EXPORT NcclResult ncclAllGather(const void *send, void *receive, size_t n, int type, NcclComm c,
                                CUstream s) {
  return post((Work){.comm = c,
                     .stream = s,
                     .kind = ALL_GATHER,
                     .send = at(send),
                     .receive = at(receive),
                     .count = n},
              type);
}

EXPORT NcclResult ncclBroadcast(const void *send, void *receive, size_t n, int type, int root,
                                NcclComm c, CUstream s) {
  return post((Work){.comm = c,
                     .stream = s,
                     .kind = BROADCAST,
                     .send = at(send),
                     .receive = at(receive),
                     .count = n,
                     .peer = root},
              type);
}

EXPORT NcclResult ncclSend(const void *send, size_t n, int type, int to, NcclComm c, CUstream s) {
  return post(
      (Work){.comm = c, .stream = s, .kind = SEND, .send = at(send), .count = n, .peer = to}, type);
}

EXPORT NcclResult ncclRecv(void *receive, size_t n, int type, int from, NcclComm c, CUstream s) {
  return post((Work){.comm = c,
                     .stream = s,
                     .kind = RECEIVE,
                     .receive = at(receive),
                     .count = n,
                     .peer = from},
              type);
}
