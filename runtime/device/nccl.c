/* Collectives over NCCL. One communicator per axis of the mesh; its id is made by the first rank of
   each group and travels over the communicator of the host. Where a program cuts buffers in rows
   (rt_collective), blocks are put end to end by copies of rows on the device, before or behind, in
   memory that the program has planned for it. An all-to-all is a group of sends and receives, and
   so are a send to a neighbour and the receive behind it (cuda_flight.c).
   Must not: allocate, or wait, after the start. */
#include "nccl.h"
#include "ir/support/num.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- loading ---- */

bool rt_nccl_load(NcclApi *a, Fault *f) {
  const char *given = getenv("SHARDC_LIBNCCL"), *path = given && *given ? given : "libnccl.so.2";
  *a = (NcclApi){.library = dlopen(path, RTLD_NOW | RTLD_GLOBAL)};
  if (!a->library) {
    rt_fault(f, 1009, "NCCL cannot be loaded: %s", dlerror());
    return rt_help(f, "install libnccl2 of NVIDIA's repository (SHARDC_LIBNCCL=FILE names another "
                      "place), or compile with --comm local: ranks of one machine over its memory");
  }
  snprintf(a->path, sizeof a->path, "%s", path);
#define NCCL(name, arguments)                                                                      \
  *(void **)&a->name = dlsym(a->library, #name);                                                   \
  if (!a->name) return rt_fault(f, 1009, "%s has no %s", a->path, #name);
#include "nccl_api.def"
#undef NCCL
  a->ncclGetVersion(&a->version);
  return true;
}

/* ---- messages ---- */

static void error_text(const Nccl *n, NcclResult e, char *out, size_t size) {
  const char *(*text)(NcclResult), *(*last)(NcclComm);
  *(void **)&text = dlsym(n->api.library, "ncclGetErrorString");
  *(void **)&last = dlsym(n->api.library, "ncclGetLastError");
  const char *more = last ? last(NULL) : NULL;
  snprintf(out, size, "%s (%d)%s%.200s", text ? text(e) : "NCCL error", e,
           more && *more ? ": " : "", more ? more : "");
}

static void must(const Nccl *n, NcclResult e, const rt_collective *c) {
  char why[400];
  Fault f = {0};
  if (e == NCCL_SUCCESS || e == NCCL_IN_PROGRESS) return;
  error_text(n, e, why, sizeof why);
  if (c)
    rt_fault(&f, 1010, "%s of %s%s%s failed: %s", rt_collective_name((int)c->kind), c->what,
             *c->source ? ", " : "", c->source, why);
  else rt_fault(&f, 1010, "NCCL failed: %s", why);
  rt_help(&f, "NCCL_DEBUG=WARN tells more");
  rt_die(&f);
}

static void copied(const Nccl *n, CUresult e, const rt_collective *c) {
  const char *name = NULL;
  if (e == CU_SUCCESS) return;
  n->cuda->cuGetErrorName(e, &name);
  rt_fail(1008, "cannot copy blocks of %s: %s", c->what, name ? name : "CUDA error");
}

/* Who was lost is the better message: the watchdog gets a moment to say it and to end the process.
   */
void rt_nccl_look(Nccl *n) {
  const struct timespec moment = {.tv_sec = 5};
  for (int i = 0; i < n->comm->program->naxes; i++) {
    NcclResult e = NCCL_SUCCESS;
    if (n->axis[i]) n->api.ncclCommGetAsyncError(n->axis[i], &e);
    if (e && e != NCCL_IN_PROGRESS) nanosleep(&moment, NULL);
    must(n, e, n->last);
  }
}

/* ---- where the device is ---- */

static void mark(Nccl *n, unsigned row, CUstream s) {
  CUresult e = n->cuda->cuMemsetD32Async(n->word, n->position << 16 | (row & 0xffff), 1, s);
  if (e) rt_fail(1008, "cannot mark on the GPU where it is: error %d", (int)e);
}

void rt_nccl_begin(Nccl *n, CUstream s) {
  n->position = 0;
  mark(n, 0, s);
}

void rt_nccl_waits(Nccl *n, bool new_run) {
  rt_comm_device_begins(n->comm, new_run);
  atomic_store(&n->since, rt_now());
}

void rt_nccl_goes_on(Nccl *n) {
  atomic_store(&n->since, 0);
  rt_comm_device_ends(n->comm);
}

void rt_nccl_abort(Nccl *n) {
  for (int i = 0; i < n->comm->program->naxes; i++)
    if (n->axis[i]) n->api.ncclCommAbort(n->axis[i]);
}

/* ---- start ---- */

static bool join_axis(Nccl *n, int axis, Fault *f) {
  Comm *c = n->comm;
  const RankGroup *g = &c->group[axis];
  NcclId mine = {0}, *all = rt_alloc(sizeof *all * (size_t)c->launch.world);
  NcclResult e = g->n > 1 && !g->me ? n->api.ncclGetUniqueId(&mine) : NCCL_SUCCESS;
  rt_comm_gather(c, "the ids of NCCL", &mine, all, sizeof mine);
  rt_nccl_waits(n, true);
  if (!e && g->n > 1) e = n->api.ncclCommInitRank(&n->axis[axis], g->n, all[g->first], g->me);
  rt_nccl_goes_on(n);
  free(all);
  char why[400];
  if (!e) return true;
  error_text(n, e, why, sizeof why);
  return rt_fault(f, 1010, "NCCL does not start over axis %s: %s", c->program->mesh[axis].name,
                  why);
}

Nccl *rt_nccl_start(Comm *c, const CudaApi *cuda, CUcontext context, CUdeviceptr word, Fault *f) {
  Nccl *n = rt_alloc(sizeof *n);
  n->cuda = cuda, n->comm = c, n->context = context, n->word = word;
  bool ok = rt_nccl_load(&n->api, f) && rt_nccl_watch_start(n, f);
  ok = rt_comm_all(c, "load NCCL", ok, f);
  for (int i = 0; ok && i < c->program->naxes; i++)
    ok = rt_comm_all(c, "join NCCL", join_axis(n, i, f), f);
  if (ok) return n;
  rt_nccl_watch_stop(n);
  free(n);
  return NULL;
}

void rt_nccl_stop(Nccl *n) {
  rt_nccl_watch_stop(n);
  for (int i = 0; i < n->comm->program->naxes; i++)
    if (n->axis[i]) n->api.ncclCommDestroy(n->axis[i]);
  free(n);
}

/* ---- rows ---- */

typedef struct Rows { /* one collective on its way */
  Nccl *n;
  const rt_collective *c;
  CUstream stream;
  int ways, type;
  size_t size;       /* of an element */
  int64_t at, count; /* elements of each block that go now */
  CUdeviceptr work;  /* where these are put end to end */
} Rows;

static const void *host(CUdeviceptr p) { return (const void *)(uintptr_t)p; }

/* Rows of `run` elements; those of a block lie all ranks' rows apart. */
static void copy_run(const Rows *x, CUdeviceptr in_blocks, CUdeviceptr in_line, int64_t row,
                     int64_t run, int64_t rows, bool out) {
  size_t width = (size_t)run * x->size, apart = (size_t)row * x->size * (size_t)x->ways;
  CuCopy2D copy = {.from_kind = CU_ON_DEVICE,
                   .from_device = out ? in_blocks : in_line,
                   .from_pitch = out ? apart : width,
                   .to_kind = CU_ON_DEVICE,
                   .to_device = out ? in_line : in_blocks,
                   .to_pitch = out ? width : apart,
                   .bytes = width,
                   .rows = (size_t)rows};
  copied(x->n, x->n->cuda->cuMemcpy2DAsync(&copy, x->stream), x->c);
}

/* Between n blocks cut in rows and a piece of each, end to end. */
static void copy_rows(const Rows *x, CUdeviceptr blocks, CUdeviceptr line, int64_t row, bool out) {
  for (int i = 0; i < x->ways; i++)
    for (BlockRuns b = {.row = row, .left = x->at, .end = x->at + x->count}; rt_block_run(&b);) {
      int64_t first = rt_block_at(x->ways, i, row, b.from), to = i * x->count + b.from - x->at;
      copy_run(x, blocks + (CUdeviceptr)first * x->size, line + (CUdeviceptr)to * x->size, row,
               b.count, b.rows, out);
    }
}

/* Blocks to send, end to end. */
static const char *packed(const Rows *x, const void *send) {
  if (x->c->send_row == x->c->count) return send;
  copy_rows(x, (CUdeviceptr)(uintptr_t)send, x->work, x->c->send_row, true);
  return host(x->work);
}

/* Behind what is sent, if that is put end to end, too. */
static CUdeviceptr unpacked_from(const Rows *x) {
  int64_t piece = x->c->piece ? x->c->piece : x->c->count;
  int64_t bytes = x->ways * piece * (int64_t)x->size;
  return x->work + (CUdeviceptr)(x->c->send_row == x->c->count ? 0 : round_up(bytes, CACHE_LINE));
}

/* Where blocks are received end to end; `unpack` puts them in rows. */
static char *landing(const Rows *x, void *receive) {
  return x->c->receive_row == x->c->count ? receive : (char *)(uintptr_t)unpacked_from(x);
}

static void unpack(const Rows *x, void *receive) {
  if (x->c->receive_row != x->c->count)
    copy_rows(x, (CUdeviceptr)(uintptr_t)receive, unpacked_from(x), x->c->receive_row, false);
}

/* ---- collectives ---- */

/* A piece of every block: from where it lies, or from where it is put. */
static size_t block_of(const Rows *x, int i, int64_t row) {
  bool whole = row == x->c->count;
  return (size_t)(whole ? i * x->c->count + x->at : i * x->count) * x->size;
}

static void exchange(const Rows *x, NcclComm comm, const char *send, char *receive) {
  const NcclApi *a = &x->n->api;
  size_t count = (size_t)x->count;
  must(x->n, a->ncclGroupStart(), x->c);
  for (int i = 0; i < x->ways; i++) {
    const char *from = send + block_of(x, i, x->c->send_row);
    char *to = receive + block_of(x, i, x->c->receive_row);
    must(x->n, a->ncclSend(from, count, x->type, i, comm, x->stream), x->c);
    must(x->n, a->ncclRecv(to, count, x->type, i, comm, x->stream), x->c);
  }
  must(x->n, a->ncclGroupEnd(), x->c);
}

static void all_to_all(Rows *x, NcclComm comm, const void *send, void *receive) {
  int64_t piece = x->c->piece ? x->c->piece : x->c->count;
  for (; x->at < x->c->count; x->at += piece) {
    x->count = x->c->count - x->at < piece ? x->c->count - x->at : piece;
    exchange(x, comm, packed(x, send), landing(x, receive));
    unpack(x, receive);
  }
}

/* By rt_elem: f32, bf16, f16, f64, i32, i64, bool, u8 (both ncclUint8) */
static const int types[] = {7, 9, 6, 8, 2, 4, 1, 1};
_Static_assert(COUNT_OF(types) == RT_U8 + 1, "a type of NCCL per rt_elem");

static void come_to(Nccl *n, const rt_collective *c, CUstream stream) {
  n->last = c, n->position++;
  mark(n, (unsigned)(c - n->comm->program->collectives) + 1, stream);
}

void rt_nccl_pass(Nccl *n) { n->position++; }

static void one_way(Nccl *n, const rt_collective *c, const void *from, void *into, CUstream s) {
  int peer = rt_hop_peer(c, &n->comm->group[c->axis]), type = types[c->elem];
  size_t count = (size_t)c->count;
  NcclComm comm = n->axis[c->axis];
  must(n,
       from ? n->api.ncclSend(from, count, type, peer, comm, s)
            : n->api.ncclRecv(into, count, type, peer, comm, s),
       c);
}

void rt_nccl_neighbours(Nccl *n, const rt_collective *send, const void *from,
                        const rt_collective *receive, void *into, CUstream s) {
  if (send) come_to(n, send, s);
  if (receive) come_to(n, receive, s);
  must(n, n->api.ncclGroupStart(), n->last);
  if (send) one_way(n, send, from, NULL, s);
  if (receive) one_way(n, receive, NULL, into, s);
  must(n, n->api.ncclGroupEnd(), n->last);
}

void rt_nccl_collect(Nccl *n, const rt_collective *c, const void *send, void *receive, void *work,
                     CUstream stream) {
  const NcclApi *a = &n->api;
  Rows x = {.n = n,
            .c = c,
            .stream = stream,
            .ways = n->comm->group[c->axis].n,
            .type = types[c->elem],
            .size = (size_t)rt_elem_bytes((int)c->elem),
            .count = c->count,
            .work = (CUdeviceptr)(uintptr_t)work};
  NcclComm comm = n->axis[c->axis];
  size_t count = (size_t)c->count;
  int op = c->reduction == RT_MAX || c->elem == RT_BOOL ? NCCL_MAX : NCCL_SUM;
  come_to(n, c, stream);
  switch (c->kind) {
  case RT_ALL_REDUCE:
    must(n, a->ncclAllReduce(send, receive, count, x.type, op, comm, stream), c);
    return;
  case RT_BROADCAST:
    must(n, a->ncclBroadcast(send, receive, count, x.type, 0, comm, stream), c);
    return;
  case RT_REDUCE_SCATTER:
    must(n, a->ncclReduceScatter(packed(&x, send), receive, count, x.type, op, comm, stream), c);
    return;
  case RT_ALL_GATHER:
    must(n, a->ncclAllGather(send, landing(&x, receive), count, x.type, comm, stream), c);
    break;
  case RT_ALL_TO_ALL: all_to_all(&x, comm, send, receive); return;
  case RT_SEND:
  case RT_RECEIVE: break; /* rt_nccl_neighbours */
  }
  unpack(&x, receive);
}
