/* A double of NCCL for one rank that runs alone on one GPU: values are wrong, times are right.

   Loaded by SHARDC_LIBNCCL=libpaced.so. Each collective launches PACED_CTAS CTAs (16, as NCCL over
   NVLink) on the given stream. They copy as many bytes as the rank would send or receive, no faster
   than PACED_RATE GB/s after the first PACED_LATENCY microseconds: so a message holds its
   multiprocessors and memory for as long as it would over that link. Bytes moved are those of a
   ring: an all-reduce of n ranks 2 (n - 1) / n of its buffer, gathers and reduce-scatters n - 1
   blocks. NCCL reads and writes up to half as much memory again for its buffers, and its CTAs hold
   more registers. PACED_RATE=0: as fast as these CTAs can copy, at once.

   PACED_PRIORITY=1 launches them with the highest priority. Rank 0 appends a line to PACED_LOG per
   message that a graph repeats: its operation, ranks, bytes, runs, and microseconds: on the link,
   from the start of the first CTA to the end of the last, from when it could start until it
   started, between the starts of its first and its last CTA. The driver of ranks without a
   GPU is idle.c. Must not: allocate or wait after ncclCommInitRank. */
#include "paced_kernel.h"
#include "runtime/device/cuda/nccl.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* SCRATCH: bytes of zeros to receive, and as many to send to */
enum { ROWS = 1 << 12, SCRATCH = 4 << 20, SHARED = 48 << 10, WIDTHS = 3, GROUP = 256 };
enum { UNHANDLED = 1, INVALID = 4, CAPTURING = 1, PRIORITY = 8 /* CU_LAUNCH_ATTRIBUTE_PRIORITY */ };

static const int widths[WIDTHS] = {16, 4, 1};

typedef struct Told { /* what the log says of a message */
  const char *what;
  double bytes, nanoseconds;
} Told;

struct ncclComm {
  int n, me;
  CudaApi api;
  double rate, latency; /* bytes per nanosecond; nanoseconds */
  unsigned ctas;
  int priority; /* 0: that of the stream */
  CUmodule module[WIDTHS + 1];
  CUfunction ready, move[WIDTHS];
  CUdeviceptr rows, scratch;
  int used;
  Told told[ROWS];
};

typedef struct Move {
  NcclComm comm;
  CUstream stream;
  const char *what;
  CUdeviceptr to, from;
  uint64_t bytes, span, to_step, from_step;
  double moved; /* the larger number of bytes: sent or received */
} Move;

typedef struct Pending { /* sends and receives of the open group of this thread */
  int depth, nsent, ntaken;
  bool late; /* a message has begun, so the latency is over */
  Move sent[GROUP], taken[GROUP];
} Pending;

static _Thread_local Pending group;

/* ---- launches ---- */

typedef struct Attribute { /* CUlaunchAttribute */
  int what, pad;
  union {
    int priority;
    char room[64];
  } value;
} Attribute;

typedef struct Config { /* CUlaunchConfig */
  unsigned grid[3], block[3], shared;
  CUstream stream;
  const Attribute *attributes;
  unsigned n;
} Config;

static bool launch(NcclComm c, CUfunction f, unsigned ctas, unsigned threads, unsigned shared,
                   CUstream s, void **params) {
  CUresult (*launch_by)(const Config *, CUfunction, void **, void **);
  Attribute most = {.what = PRIORITY, .value = {.priority = c->priority}};
  Config config = {{ctas, 1, 1}, {threads, 1, 1}, shared, s, &most, 1};
  if (!c->priority)
    return !c->api.cuLaunchKernel(f, ctas, 1, 1, threads, 1, 1, shared, s, params, NULL);
  *(void **)&launch_by = dlsym(RTLD_DEFAULT, "cuLaunchKernelEx");
  return launch_by && !launch_by(&config, f, params, NULL);
}

static bool captures(CUstream s) {
  CUresult (*ask)(CUstream, int *);
  int status = 0;
  *(void **)&ask = dlsym(RTLD_DEFAULT, "cuStreamIsCapturing");
  return ask && !ask(s, &status) && status == CAPTURING;
}

/* The widest access that all addresses and sizes of the message allow. */
static int width_of(const Move *m) {
  uint64_t bits = m->to | m->from | m->bytes | m->span | m->to_step | m->from_step;
  for (int i = 0; i < WIDTHS; i++)
    if (!(bits & (uint64_t)(widths[i] - 1))) return i;
  return WIDTHS - 1;
}

static NcclResult run(Move m, bool late) {
  NcclComm c = m.comm;
  bool captured = captures(m.stream), paced = c->rate > 0;
  if (!m.bytes) return NCCL_SUCCESS;
  int w = width_of(&m), row = captured && c->used < ROWS - 1 ? c->used++ : ROWS - 1;
  uint64_t chunk = (uint64_t)widths[w] * MOVE_THREADS * MOVE_AT_ONCE,
           chunks = (m.span + chunk - 1) / chunk, repeats = (m.bytes + m.span - 1) / m.span;
  unsigned ctas = chunks < c->ctas ? (unsigned)chunks : c->ctas;
  double each = (double)((chunks + ctas - 1) / ctas * repeats);
  double moving = paced ? m.moved / c->rate : 0, latency = paced && !late ? c->latency : 0;
  uint64_t start = (uint64_t)latency, pace = (uint64_t)(1024 * moving / each);
  CUdeviceptr at = c->rows + (CUdeviceptr)row * sizeof(PacedRow);
  void *ready[] = {&at}, *params[] = {&at,        &m.to,        &m.from, &m.bytes, &m.span,
                                      &m.to_step, &m.from_step, &start,  &pace};
  c->told[row] = (Told){m.what, m.moved, latency + moving};
  return launch(c, c->ready, 1, 1, 0, m.stream, ready) &&
                 launch(c, c->move[w], ctas, MOVE_THREADS, SHARED, m.stream, params)
             ? NCCL_SUCCESS
             : UNHANDLED;
}

/* ---- start and end ---- */

static double setting(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtod(text, NULL) : otherwise;
}

static bool load(NcclComm c, int i, const char *text, const char *entry, CUfunction *f) {
  return !c->api.cuModuleLoadDataEx(&c->module[i], text, 0, NULL, NULL) &&
         !c->api.cuModuleGetFunction(f, c->module[i], entry);
}

/* The text of a chunk: loads, then stores, each only if it is within the message. */
static void chunk_text(char *out, size_t size, int width) {
  const char *type = width == 16 ? "v4.u32" : width == 4 ? "u32" : "u8";
  size_t n = 0;
  for (int i = 0; i < 2 * MOVE_AT_ONCE; i++) {
    int k = i % MOVE_AT_ONCE, x = 4 * k, at = k * width * MOVE_THREADS;
    char value[64];
    if (width == 16)
      snprintf(value, sizeof value, "{%%x%d,%%x%d,%%x%d,%%x%d}", x, x + 1, x + 2, x + 3);
    else snprintf(value, sizeof value, "%%x%d", x);
    n += (size_t)(i < MOVE_AT_ONCE ? snprintf(out + n, size - n,
                                              "@%%p%d ld.global.%s %s, "
                                              "[%%d22+%d];\n",
                                              k + 3, type, value, at)
                                   : snprintf(out + n, size - n,
                                              "@%%p%d st.global.%s "
                                              "[%%d21+%d], %s;\n",
                                              k + 3, type, at, value));
  }
}

static bool load_move(NcclComm c, int i) {
  static const char head[] = ".version 7.0\n.target sm_80\n.address_size 64\n";
  char body[2000], text[8000], entry[16];
  int w = widths[i], chunk = w * MOVE_THREADS * MOVE_AT_ONCE, one = w * MOVE_THREADS;
  chunk_text(body, sizeof body, w);
  int n = snprintf(text, sizeof text, "%s", head);
  snprintf(text + n, sizeof text - (size_t)n, PACED_MOVE, w, chunk, chunk, w, one, 2 * one, 3 * one,
           body);
  snprintf(entry, sizeof entry, "move%d", w);
  return load(c, i, text, entry, &c->move[i]);
}

static int highest_priority(void) {
  CUresult (*range)(int *, int *);
  int least = 0, greatest = 0;
  *(void **)&range = dlsym(RTLD_DEFAULT, "cuCtxGetStreamPriorityRange");
  return range && !range(&least, &greatest) ? greatest : 0;
}

static bool find_driver(CudaApi *api) {
#define CU(name, exported, arguments)                                                              \
  if (!(*(void **)&api->name = dlsym(RTLD_DEFAULT, #exported))) return false;
#define CU_12(name, exported, arguments)
#include "runtime/device/cuda/cuda_api.def"
#undef CU
#undef CU_12
  return true;
}

static bool prepare(NcclComm c) {
  const CudaApi *api = &c->api;
  c->rate = setting("PACED_RATE", 450), c->latency = 1e3 * setting("PACED_LATENCY", 5);
  c->ctas = (unsigned)setting("PACED_CTAS", 16);
  if (!find_driver(&c->api) || c->ctas < 1) return false;
  c->priority = setting("PACED_PRIORITY", 0) > 0 ? highest_priority() : 0;
  for (int i = 0; i < WIDTHS; i++)
    if (!load_move(c, i)) return false;
  PacedRow *none = calloc(ROWS, sizeof *none);
  for (int i = 0; none && i < ROWS; i++) none[i].first = UINT64_MAX;
  bool ok = none && load(c, WIDTHS, paced_ready, "ready", &c->ready) &&
            !api->cuMemAlloc(&c->rows, ROWS * sizeof(PacedRow)) &&
            !api->cuMemAlloc(&c->scratch, 2 * SCRATCH) &&
            !api->cuMemsetD8Async(c->scratch, 0, SCRATCH, NULL) &&
            !api->cuMemcpyHtoDAsync(c->rows, none, ROWS * sizeof(PacedRow), NULL) &&
            !api->cuStreamSynchronize(NULL);
  free(none);
  return ok;
}

static void write_log(NcclComm c) {
  const char *path = getenv("PACED_LOG"), *rank = getenv("RANK");
  PacedRow *row = calloc(ROWS, sizeof *row);
  FILE *out = path && rank && !strcmp(rank, "0") ? fopen(path, "a") : NULL;
  bool ok = row && out && !c->api.cuMemcpyDtoHAsync(row, c->rows, ROWS * sizeof *row, NULL) &&
            !c->api.cuStreamSynchronize(NULL);
  for (int i = 0; ok && i < c->used; i++) {
    double runs = (double)row[i].runs;
    if (row[i].runs)
      fprintf(out, "%s %d %.0f %.0f %.3f %.3f %.3f %.3f\n", c->told[i].what, c->n, c->told[i].bytes,
              runs, 1e-3 * c->told[i].nanoseconds, 1e-3 * (double)row[i].took / runs,
              1e-3 * (double)row[i].waited / runs, 1e-3 * (double)row[i].apart / runs);
  }
  if (out) fclose(out);
  free(row);
}

EXPORT NcclResult ncclGetVersion(int *version) { return *version = 22809, NCCL_SUCCESS; }

EXPORT NcclResult ncclGetUniqueId(NcclId *id) {
  memset(id, 1, sizeof *id);
  return NCCL_SUCCESS;
}

EXPORT NcclResult ncclCommInitRank(NcclComm *out, int n, NcclId id, int me) {
  NcclComm c = calloc(1, sizeof *c);
  if (!c || n < 1 || id.bytes[0] != 1) return free(c), INVALID;
  c->n = n, c->me = me;
  if (!prepare(c)) return free(c), UNHANDLED;
  return *out = c, NCCL_SUCCESS;
}

EXPORT NcclResult ncclCommDestroy(NcclComm c) {
  write_log(c);
  c->api.cuMemFree(c->rows), c->api.cuMemFree(c->scratch);
  for (int i = 0; i <= WIDTHS; i++) c->api.cuModuleUnload(c->module[i]);
  free(c);
  return NCCL_SUCCESS;
}

EXPORT NcclResult ncclCommAbort(NcclComm c) { return c ? NCCL_SUCCESS : INVALID; }

EXPORT NcclResult ncclCommGetAsyncError(NcclComm c, NcclResult *e) {
  *e = NCCL_SUCCESS;
  return c ? NCCL_SUCCESS : INVALID;
}

/* ---- operations ---- */

static uint64_t size_of(int type) {
  static const int bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2}; /* ncclDataType_t */
  return type >= 0 && type < 10 ? (uint64_t)bytes[type] : 0;
}

static CUdeviceptr at(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

EXPORT NcclResult ncclAllReduce(const void *send, void *receive, size_t n, int type, int op,
                                NcclComm c, CUstream s) {
  uint64_t bytes = n * size_of(type);
  (void)op;
  return run((Move){c, s, "all-reduce", at(receive), at(send), 2 * bytes, bytes, 0, 0,
                    2 * (double)bytes * (c->n - 1) / c->n},
             false);
}

EXPORT NcclResult ncclReduceScatter(const void *send, void *receive, size_t n, int type, int op,
                                    NcclComm c, CUstream s) {
  uint64_t bytes = n * size_of(type);
  (void)op;
  return run((Move){c, s, "reduce-scatter", at(receive), at(send), bytes * (uint64_t)c->n, bytes, 0,
                    bytes, (double)bytes * (c->n - 1)},
             false);
}

EXPORT NcclResult ncclAllGather(const void *send, void *receive, size_t n, int type, NcclComm c,
                                CUstream s) {
  uint64_t bytes = n * size_of(type);
  return run((Move){c, s, "all-gather", at(receive), at(send), bytes * (uint64_t)c->n, bytes, bytes,
                    0, (double)bytes * (c->n - 1)},
             false);
}

EXPORT NcclResult ncclBroadcast(const void *send, void *receive, size_t n, int type, int root,
                                NcclComm c, CUstream s) {
  uint64_t bytes = n * size_of(type);
  return run((Move){c, s, "broadcast", at(receive), root == c->me ? at(send) : at(receive), bytes,
                    bytes, 0, 0, (double)bytes},
             false);
}

/* A send and a receive of a group go on at the same time, in one kernel. A send alone goes into
   the scratch, a receive alone comes from its zeros. A message to itself is a copy. */
static NcclResult pair(const Move *sent, const Move *taken) {
  const Move *one = sent ? sent : taken;
  NcclComm c = one->comm;
  uint64_t out = sent ? sent->bytes : 0, in = taken ? taken->bytes : 0, bytes = out ? out : in;
  Move m = {.comm = c, .stream = one->stream, .what = "send-receive"};
  m.bytes = sent && taken && in < out ? in : bytes;
  m.span = sent && taken ? m.bytes : m.bytes < SCRATCH ? m.bytes : SCRATCH;
  m.from = sent ? sent->from : c->scratch, m.to = taken ? taken->to : c->scratch + SCRATCH;
  m.from_step = sent ? m.span : 0, m.to_step = taken ? m.span : 0;
  m.moved = sent && taken ? (sent->moved > taken->moved ? sent->moved : taken->moved) : one->moved;
  NcclResult e = run(m, group.late);
  group.late = true;
  return e;
}

EXPORT NcclResult ncclGroupStart(void) { return group.depth++, NCCL_SUCCESS; }

EXPORT NcclResult ncclGroupEnd(void) {
  NcclResult e = NCCL_SUCCESS;
  if (group.depth < 1) return INVALID;
  if (--group.depth) return NCCL_SUCCESS;
  for (int i = 0; !e && (i < group.nsent || i < group.ntaken); i++)
    e = pair(i < group.nsent ? &group.sent[i] : NULL, i < group.ntaken ? &group.taken[i] : NULL);
  group.nsent = group.ntaken = 0, group.late = false;
  return e;
}

static NcclResult post(bool sends, Move m) {
  int *n = sends ? &group.nsent : &group.ntaken;
  if (!m.comm || *n == GROUP) return INVALID;
  ncclGroupStart();
  (sends ? group.sent : group.taken)[(*n)++] = m;
  return ncclGroupEnd();
}

EXPORT NcclResult ncclSend(const void *send, size_t n, int type, int to, NcclComm c, CUstream s) {
  uint64_t bytes = n * size_of(type);
  return post(true, (Move){.comm = c,
                           .stream = s,
                           .from = at(send),
                           .bytes = bytes,
                           .moved = to == c->me ? 0 : (double)bytes});
}

EXPORT NcclResult ncclRecv(void *receive, size_t n, int type, int from, NcclComm c, CUstream s) {
  uint64_t bytes = n * size_of(type);
  return post(false, (Move){.comm = c,
                            .stream = s,
                            .to = at(receive),
                            .bytes = bytes,
                            .moved = from == c->me ? 0 : (double)bytes});
}
