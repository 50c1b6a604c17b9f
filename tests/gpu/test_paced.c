/* The double of NCCL (bench/cuda/paced.c) on the stand-in for a GPU: every operation moves the
   bytes that it should and no others, whatever their size and place; it is not faster than its
   link; a recorded one is in the log, with its bytes and runs. */
#include "runtime/base/file.h"
#include "runtime/device/cuda/nccl.h"
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum {
  RANKS = 4,
  ME = 2,
  LITTLE = 5 << 18,
  ROOM = 9 << 20,
  LONG = (8 << 20) + 52,
  U8 = 1,
  F32 = 7
};

static CudaApi cuda;
static NcclApi nccl;
static CUstream stream;
static CUdeviceptr from, to;
static unsigned char sent[ROOM], got[ROOM], want[ROOM];

static void ok(int e) { assert_int_equal(e, 0); }
static void *at(CUdeviceptr p) { return (void *)(uintptr_t)p; }

/* Fills n bytes of `from` with numbers that differ from place to place, and of `to` with 0xee. */
static void fill(size_t n) {
  for (size_t i = 0; i < n; i++) sent[i] = (unsigned char)(1 + i * 31 % 251);
  memset(want, 0xee, n);
  ok(cuda.cuMemcpyHtoDAsync(from, sent, n, stream));
  ok(cuda.cuMemcpyHtoDAsync(to, want, n, stream));
}

static void compare(size_t n) {
  ok(cuda.cuMemcpyDtoHAsync(got, to, n, stream));
  ok(cuda.cuStreamSynchronize(stream));
  assert_memory_equal(got, want, n);
}

static NcclComm join(const char *rate, const char *latency) {
  NcclComm c;
  NcclId id;
  setenv("PACED_RATE", rate, 1), setenv("PACED_LATENCY", latency, 1);
  ok(nccl.ncclGetUniqueId(&id));
  ok(nccl.ncclCommInitRank(&c, RANKS, id, ME));
  return c;
}

/* n elements, `skip` bytes after an address that is aligned for all widths. */
static void collectives(NcclComm c, size_t n, int type, size_t skip) {
  size_t bytes = n * (type == F32 ? 4 : 1);
  const void *s = at(from + skip);
  void *r = at(to + skip);
  fill(LITTLE);
  for (int i = 0; i < RANKS; i++) memcpy(want + skip + (size_t)i * bytes, sent + skip, bytes);
  ok(nccl.ncclAllGather(s, r, n, type, c, stream));
  compare(LITTLE);
  fill(LITTLE);
  memcpy(want + skip, sent + skip + (RANKS - 1) * bytes, bytes);
  ok(nccl.ncclReduceScatter(s, r, n, type, NCCL_SUM, c, stream));
  compare(LITTLE);
  fill(LITTLE);
  memcpy(want + skip, sent + skip, bytes);
  ok(nccl.ncclAllReduce(s, r, n, type, NCCL_SUM, c, stream));
  compare(LITTLE);
  ok(nccl.ncclBroadcast(s, r, n, type, 0, c, stream)); /* from another rank */
  compare(LITTLE);
  fill(LITTLE);
  memcpy(want + skip, sent + skip, bytes);
  ok(nccl.ncclBroadcast(s, r, n, type, ME, c, stream));
  compare(LITTLE);
}

static void moves_what_it_should(void **state) {
  static const size_t sizes[] = {1, 3, 1000, 8192, 70001};
  NcclComm c = join("0", "0");
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    collectives(c, sizes[i], F32, 0);
    collectives(c, sizes[i], F32, 4 * (i % 2));
    collectives(c, sizes[i], U8, i);
  }
  ok(nccl.ncclCommDestroy(c));
}

static void sends_and_receives(void **state) {
  NcclComm c = join("0", "0");
  (void)state;
  fill(LITTLE), memcpy(want, sent, 100), memcpy(want + 200, sent + 100, 40),
      memset(want + 300, 0, 8);
  ok(nccl.ncclGroupStart());
  ok(nccl.ncclSend(at(from), 25, F32, 1, c, stream));
  ok(nccl.ncclRecv(at(to), 25, F32, 1, c, stream));
  ok(nccl.ncclSend(at(from + 100), 40, U8, ME, c, stream));
  ok(nccl.ncclRecv(at(to + 200), 40, U8, ME, c, stream));
  ok(nccl.ncclRecv(at(to + 300), 8, U8, 3, c, stream));
  ok(nccl.ncclGroupEnd());
  compare(LITTLE);
  /* Longer than the room for what has no other end. */
  fill(ROOM), memset(want + 16, 0, LONG);
  ok(nccl.ncclSend(at(from), LONG, U8, 1, c, stream));
  ok(nccl.ncclRecv(at(to + 16), LONG, U8, 1, c, stream));
  compare(ROOM);
  assert_int_not_equal(nccl.ncclGroupEnd(), 0);
  ok(nccl.ncclCommDestroy(c));
}

static double seconds_of(NcclComm c, size_t n) {
  double start = rt_now();
  ok(nccl.ncclAllReduce(at(from), at(to), n, F32, NCCL_SUM, c, stream));
  ok(cuda.cuStreamSynchronize(stream));
  return rt_now() - start;
}

/* 2 * 3 / 4 * 40,000 bytes at a megabyte a second; the stand-in
   runs two CTAs one after the other. */
static void keeps_its_pace(void **state) {
  NcclComm c = join("0.001", "20000");
  (void)state;
  fill(LITTLE);
  double both = seconds_of(c, 10000), late = INFINITY;
  for (int i = 0; i < 9; i++)
    late = fmin(late, seconds_of(c, 1)); /* the least time, as the machine may be busy */
  assert_true(both > 0.080 && late > 0.020 && late < 0.070);
  ok(nccl.ncclCommDestroy(c));
}

static void logs_what_graphs_repeat(void **state) {
  char folder[] = "/tmp/shardc-paced-XXXXXX", path[100], what[40];
  CUgraph graph;
  CUgraphExec exec;
  int ranks;
  double x[6];
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/log", folder);
  setenv("PACED_LOG", path, 1), setenv("RANK", "0", 1), setenv("PACED_PRIORITY", "1", 1);
  NcclComm c = join("1", "300");
  ok(nccl.ncclAllGather(at(from), at(to), 5, F32, c, stream)); /* in no graph, so not in the log */
  ok(cuda.cuStreamBeginCapture(stream, 0));
  ok(nccl.ncclReduceScatter(at(from), at(to), 1000, F32, NCCL_SUM, c, stream));
  ok(cuda.cuStreamEndCapture(stream, &graph));
  ok(cuda.cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 3; i++) ok(cuda.cuGraphLaunch(exec, stream));
  ok(cuda.cuStreamSynchronize(stream));
  ok(nccl.ncclCommDestroy(c));
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  assert_int_equal(fscanf(f, "%39s %d %lf %lf %lf %lf %lf %lf", what, &ranks, &x[0], &x[1], &x[2],
                          &x[3], &x[4], &x[5]),
                   8);
  assert_string_equal(what, "reduce-scatter");
  assert_true(ranks == RANKS && x[0] == 12000 && x[1] == 3 && x[2] == 312);
  assert_true(x[3] > 312 && x[4] > 0 && x[4] < 1e6 && x[5] >= 0 && x[5] < x[3]);
  assert_int_equal(fgetc(f), '\n'), assert_int_equal(fgetc(f), EOF);
  fclose(f), remove(path), rmdir(folder), unsetenv("PACED_LOG");
}

static int start(void **state) {
  Fault f = {0};
  CUcontext context;
  CUdevice device;
  (void)state;
  setenv("SHARDC_LIBCUDA", LIBCUDA, 1), setenv("PACED_CTAS", "2", 1);
  if (!rt_cuda_load(&cuda, &f)) return 1;
  nccl.library = dlopen(LIBPACED, RTLD_NOW);
#define NCCL(name, arguments)                                                                      \
  if (!nccl.library || !(*(void **)&nccl.name = dlsym(nccl.library, #name))) return 1;
#include "runtime/device/cuda/nccl_api.def"
#undef NCCL
  return cuda.cuDeviceGet(&device, 0) || cuda.cuDevicePrimaryCtxRetain(&context, device) ||
         cuda.cuCtxSetCurrent(context) || cuda.cuStreamCreate(&stream, 1) ||
         cuda.cuMemAlloc(&from, ROOM) || cuda.cuMemAlloc(&to, ROOM);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(moves_what_it_should), cmocka_unit_test(sends_and_receives),
      cmocka_unit_test(keeps_its_pace), cmocka_unit_test(logs_what_graphs_repeat)};
  return cmocka_run_group_tests_name("gpu/paced", tests, start, NULL);
}
