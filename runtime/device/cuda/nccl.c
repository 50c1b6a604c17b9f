/* Collectives over NCCL. One communicator per axis of the mesh; its id is made by the first rank of
   each group and travels over the communicator of the host. If a program cuts buffers in rows
   (rt_collective), the rows of a block are packed by copies on the device before the collective, or
   unpacked after it, in memory that the program has planned for it. An all-to-all is a group of
   sends and receives, and so are sends to neighbours and the following receive (cuda_flight.c).
   Must not: allocate, or wait, after the start. */
#include "nccl.h"
#include "ir/support/num.h"
#include "runtime/base/setting.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- loading ---- */

/* $SHARDC_LIBNCCL, or where the linker finds it */
static bool rt_nccl_load(NcclApi *api, Fault *f) {
  const char *given = getenv("SHARDC_LIBNCCL"), *path = given && *given ? given : "libnccl.so.2";
  *api = (NcclApi){.library = dlopen(path, RTLD_NOW | RTLD_GLOBAL)};
  if (!api->library) {
    rt_fault(f, 1009, "NCCL cannot be loaded: %s", dlerror());
    return rt_help(f, "install libnccl2 of NVIDIA's repository (SHARDC_LIBNCCL=FILE names another "
                      "place), or compile with --comm local: ranks of one machine over its memory");
  }
  snprintf(api->path, sizeof api->path, "%s", path);
#define NCCL(name, arguments)                                                                      \
  *(void **)&api->name = dlsym(api->library, #name);                                               \
  if (!api->name) return rt_fault(f, 1009, "%s has no %s", api->path, #name);
#include "nccl_api.def"
#undef NCCL
  api->ncclGetVersion(&api->version);
  return true;
}

/* ---- messages ---- */

static void error_text(const Nccl *nccl, NcclResult e, char *out, size_t size) {
  const char *(*text)(NcclResult), *(*last)(NcclComm);
  *(void **)&text = dlsym(nccl->api.library, "ncclGetErrorString");
  *(void **)&last = dlsym(nccl->api.library, "ncclGetLastError");
  const char *more = last ? last(NULL) : NULL;
  snprintf(out, size, "%s (%d)%s%.200s", text ? text(e) : "NCCL error", e,
           more && *more ? ": " : "", more ? more : "");
}

static void must(const Nccl *nccl, NcclResult e, const rt_collective *collective) {
  char why[400];
  Fault f = {0};
  if (e == NCCL_SUCCESS || e == NCCL_IN_PROGRESS) return;
  error_text(nccl, e, why, sizeof why);
  if (collective)
    rt_fault(&f, 1010, "%s of %s%s%s failed: %s", rt_collective_facts[collective->kind].words,
             collective->what, *collective->source ? ", " : "", collective->source, why);
  else rt_fault(&f, 1010, "NCCL failed: %s", why);
  rt_help(&f, "NCCL_DEBUG=WARN tells more");
  rt_die(&f);
}

static void copied(const Nccl *nccl, CUresult e, const rt_collective *collective) {
  const char *name = NULL;
  if (e == CU_SUCCESS) return;
  nccl->cuda->cuGetErrorName(e, &name);
  rt_fail(1008, "cannot copy blocks of %s: %s", collective->what, name ? name : "CUDA error");
}

/* The name of the lost rank is the better message: gives the watchdog a moment to report it and to
   end the process.
   */
void rt_nccl_look(Nccl *nccl) {
  const struct timespec moment = {.tv_sec = 5};
  for (int i = 0; i < nccl->comm->program->naxes; i++) {
    NcclResult e = NCCL_SUCCESS;
    if (nccl->axis[i]) nccl->api.ncclCommGetAsyncError(nccl->axis[i], &e);
    if (e && e != NCCL_IN_PROGRESS) nanosleep(&moment, NULL);
    must(nccl, e, nccl->last);
  }
}

/* ---- where the device is ---- */

static void mark(Nccl *nccl, unsigned row, CUstream s) {
  CUresult e =
      nccl->cuda->cuMemsetD32Async(nccl->word, nccl->position << 16 | (row & 0xffff), 1, s);
  if (e) rt_fail(1008, "cannot mark on the GPU where it is: error %d", (int)e);
}

void rt_nccl_begin(Nccl *nccl, CUstream s) {
  nccl->position = 0;
  mark(nccl, 0, s);
}

void rt_nccl_waits(Nccl *nccl, bool new_run) {
  rt_comm_device_begins(nccl->comm, new_run);
  atomic_store(&nccl->since, rt_now());
}

void rt_nccl_goes_on(Nccl *nccl) {
  atomic_store(&nccl->since, 0);
  rt_comm_device_ends(nccl->comm);
}

void rt_nccl_abort(Nccl *nccl) {
  for (int i = 0; i < nccl->comm->program->naxes; i++)
    if (nccl->axis[i]) nccl->api.ncclCommAbort(nccl->axis[i]);
}

/* ---- start ---- */

static bool join_axis(Nccl *nccl, int axis, Fault *f) {
  Comm *c = nccl->comm;
  const RankGroup *group = &c->group[axis];
  NcclId mine = {0}, *all = rt_alloc(sizeof *all * (size_t)c->launch.world);
  NcclResult e = group->n > 1 && !group->me ? nccl->api.ncclGetUniqueId(&mine) : NCCL_SUCCESS;
  rt_comm_gather(c, "the ids of NCCL", &mine, all, sizeof mine);
  rt_nccl_waits(nccl, true);
  if (!e && group->n > 1)
    e = nccl->api.ncclCommInitRank(&nccl->axis[axis], group->n, all[group->first], group->me);
  rt_nccl_goes_on(nccl);
  free(all);
  char why[400];
  if (!e) return true;
  error_text(nccl, e, why, sizeof why);
  return rt_fault(f, 1010, "NCCL does not start over axis %s: %s", c->program->mesh[axis].name,
                  why);
}

/* Kernels of the program leave multiprocessors to that many CTAs (NCCL has one for each channel,
   and knows this limit since 2.17). More would wait for the end of such kernels. */
static void limit_channels(const rt_program *program) {
  const char *most = rt_setting_of(program, "made.channels");
  if (most) setenv("NCCL_MAX_CTAS", most, 0);
}

Nccl *rt_nccl_start(Comm *c, const CudaApi *cuda, CUcontext context, CUdeviceptr word, Fault *f) {
  Nccl *nccl = rt_alloc(sizeof *nccl);
  nccl->cuda = cuda, nccl->comm = c, nccl->context = context, nccl->word = word;
  limit_channels(c->program);
  bool ok = rt_nccl_load(&nccl->api, f) && rt_nccl_watch_start(nccl, f);
  ok = rt_comm_all(c, "load NCCL", ok, f);
  for (int i = 0; ok && i < c->program->naxes; i++)
    ok = rt_comm_all(c, "join NCCL", join_axis(nccl, i, f), f);
  if (ok) return nccl;
  rt_nccl_watch_stop(nccl);
  free(nccl);
  return NULL;
}

void rt_nccl_stop(Nccl *nccl) {
  rt_nccl_watch_stop(nccl);
  for (int i = 0; i < nccl->comm->program->naxes; i++)
    if (nccl->axis[i]) nccl->api.ncclCommDestroy(nccl->axis[i]);
  free(nccl);
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

/* Copies rows of `run` elements; the rows of a block are interleaved with those of all ranks. */
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
static void copy_rows(const Rows *rows, CUdeviceptr blocks, CUdeviceptr line, int64_t row,
                      bool out) {
  for (int i = 0; i < rows->ways; i++)
    for (BlockRuns b = {.row = row, .left = rows->at, .end = rows->at + rows->count};
         rt_block_run(&b);) {
      int64_t first = rt_block_at(rows->ways, i, row, b.from),
              to = i * rows->count + b.from - rows->at;
      copy_run(rows, blocks + (CUdeviceptr)first * rows->size, line + (CUdeviceptr)to * rows->size,
               row, b.count, b.rows, out);
    }
}

/* Blocks to send, end to end. */
static const char *packed(const Rows *rows, const void *send) {
  if (rows->c->send_row == rows->c->count) return send;
  copy_rows(rows, (CUdeviceptr)(uintptr_t)send, rows->work, rows->c->send_row, true);
  return host(rows->work);
}

/* The address for received blocks: after the sent data, if that is packed as well. */
static CUdeviceptr unpacked_from(const Rows *rows) {
  int64_t piece = rows->c->piece ? rows->c->piece : rows->c->count;
  int64_t bytes = rows->ways * piece * (int64_t)rows->size;
  return rows->work +
         (CUdeviceptr)(rows->c->send_row == rows->c->count ? 0 : round_up(bytes, CACHE_LINE));
}

/* Where blocks are received end to end; `unpack` puts them in rows. */
static char *landing(const Rows *rows, void *receive) {
  return rows->c->receive_row == rows->c->count ? receive : (char *)(uintptr_t)unpacked_from(rows);
}

static void unpack(const Rows *rows, void *receive) {
  if (rows->c->receive_row != rows->c->count)
    copy_rows(rows, (CUdeviceptr)(uintptr_t)receive, unpacked_from(rows), rows->c->receive_row,
              false);
}

/* ---- collectives ---- */

/* The address of a piece of a block: in place, or in the packed buffer. */
static size_t block_of(const Rows *rows, int i, int64_t row) {
  bool whole = row == rows->c->count;
  return (size_t)(whole ? i * rows->c->count + rows->at : i * rows->count) * rows->size;
}

static void exchange(const Rows *rows, NcclComm comm, const char *send, char *receive) {
  const NcclApi *api = &rows->n->api;
  size_t count = (size_t)rows->count;
  must(rows->n, api->ncclGroupStart(), rows->c);
  for (int i = 0; i < rows->ways; i++) {
    const char *from = send + block_of(rows, i, rows->c->send_row);
    char *to = receive + block_of(rows, i, rows->c->receive_row);
    must(rows->n, api->ncclSend(from, count, rows->type, i, comm, rows->stream), rows->c);
    must(rows->n, api->ncclRecv(to, count, rows->type, i, comm, rows->stream), rows->c);
  }
  must(rows->n, api->ncclGroupEnd(), rows->c);
}

static void all_to_all(Rows *rows, NcclComm comm, const void *send, void *receive) {
  int64_t piece = rows->c->piece ? rows->c->piece : rows->c->count;
  for (; rows->at < rows->c->count; rows->at += piece) {
    rows->count = rows->c->count - rows->at < piece ? rows->c->count - rows->at : piece;
    exchange(rows, comm, packed(rows, send), landing(rows, receive));
    unpack(rows, receive);
  }
}

static void rotate(const Rows *rows, NcclComm comm, const void *send, void *receive) {
  const NcclApi *api = &rows->n->api;
  const RankGroup *group = &rows->n->comm->group[rows->c->axis];
  size_t count = (size_t)rows->count;
  int to = rt_rotate_to(rows->c, group), from = rt_rotate_from(rows->c, group);
  must(rows->n, api->ncclGroupStart(), rows->c);
  must(rows->n, api->ncclSend(send, count, rows->type, to, comm, rows->stream), rows->c);
  must(rows->n, api->ncclRecv(receive, count, rows->type, from, comm, rows->stream), rows->c);
  must(rows->n, api->ncclGroupEnd(), rows->c);
}

/* By rt_elem: f32, bf16, f16, f64, i32, i64, bool, u8 (both ncclUint8) */
static const int types[] = {7, 9, 6, 8, 2, 4, 1, 1};
_Static_assert(COUNT_OF(types) == RT_U8 + 1, "a type of NCCL per rt_elem");

static void come_to(Nccl *nccl, const rt_collective *collective, CUstream stream) {
  nccl->last = collective, nccl->position++;
  mark(nccl, (unsigned)(collective - nccl->comm->program->collectives) + 1, stream);
}

void rt_nccl_pass(Nccl *nccl) { nccl->position++; }

static void one_way(Nccl *nccl, const rt_collective *collective, const void *from, void *into,
                    CUstream s) {
  int peer = rt_hop_peer(collective, &nccl->comm->group[collective->axis]),
      type = types[collective->elem];
  size_t count = (size_t)collective->count;
  NcclComm comm = nccl->axis[collective->axis];
  must(nccl,
       from ? nccl->api.ncclSend(from, count, type, peer, comm, s)
            : nccl->api.ncclRecv(into, count, type, peer, comm, s),
       collective);
}

void rt_nccl_neighbours(Nccl *nccl, const NeighbourSend *sends, int n, const rt_collective *receive,
                        void *into, CUstream s) {
  for (int i = 0; i < n; i++) come_to(nccl, sends[i].what, s);
  if (receive) come_to(nccl, receive, s);
  must(nccl, nccl->api.ncclGroupStart(), nccl->last);
  for (int i = 0; i < n; i++) one_way(nccl, sends[i].what, host(sends[i].from), NULL, s);
  if (receive) one_way(nccl, receive, NULL, into, s);
  must(nccl, nccl->api.ncclGroupEnd(), nccl->last);
}

void rt_nccl_collect(Nccl *nccl, const rt_collective *collective, const void *send, void *receive,
                     void *work, CUstream stream) {
  const NcclApi *api = &nccl->api;
  Rows rows = {.n = nccl,
               .c = collective,
               .stream = stream,
               .ways = nccl->comm->group[collective->axis].n,
               .type = types[collective->elem],
               .size = (size_t)rt_elem_bytes((int)collective->elem),
               .count = collective->count,
               .work = (CUdeviceptr)(uintptr_t)work};
  NcclComm comm = nccl->axis[collective->axis];
  size_t count = (size_t)collective->count;
  int op = collective->reduction == RT_MAX || collective->elem == RT_BOOL ? NCCL_MAX : NCCL_SUM;
  come_to(nccl, collective, stream);
  switch (collective->kind) {
  case RT_ALL_REDUCE:
    must(nccl, api->ncclAllReduce(send, receive, count, rows.type, op, comm, stream), collective);
    return;
  case RT_BROADCAST:
    must(nccl, api->ncclBroadcast(send, receive, count, rows.type, 0, comm, stream), collective);
    return;
  case RT_REDUCE_SCATTER:
    must(nccl,
         api->ncclReduceScatter(packed(&rows, send), receive, count, rows.type, op, comm, stream),
         collective);
    return;
  case RT_ALL_GATHER:
    must(nccl, api->ncclAllGather(send, landing(&rows, receive), count, rows.type, comm, stream),
         collective);
    break;
  case RT_ALL_TO_ALL: all_to_all(&rows, comm, send, receive); return;
  case RT_ROTATE: rotate(&rows, comm, send, receive); return;
  case RT_SEND:
  case RT_RECEIVE: break; /* rt_nccl_neighbours */
  }
  unpack(&rows, receive);
}
