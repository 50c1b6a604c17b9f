/* The stand-in for libcuda.so.1, through the runtime's own loader: memory, launches, streams,
   events, graphs, refusals. A driver is state of a process, so every case runs in a child of its
   own, with the environment that it needs. */
#include "runtime/device/cuda/cuda.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { N = 1000 };

/* y[i] += x[i] for i < 1000; `wild` adds a bound that is never checked. */
static const char add_text[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry add(.param .u64 y, .param .u64 x)\n{\n"
    ".reg .b64 %rd<6>; .reg .b32 %r<5>; .reg .f32 %f<4>; .reg .pred %p;\n"
    "ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [x];\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "mad.lo.s32 %r4, %r1, %r2, %r3;\n"
    "setp.ge.s32 %p, %r4, 1000; @%p ret;\n"
    "mul.wide.s32 %rd3, %r4, 4; add.s64 %rd4, %rd1, %rd3;\n"
    "add.s64 %rd5, %rd2, %rd3;\n"
    "ld.global.f32 %f1, [%rd4]; ld.global.f32 %f2, [%rd5];\n"
    "add.f32 %f3, %f1, %f2; st.global.f32 [%rd4], %f3; ret;\n}\n";

#define MUST(x) must(x, #x, __LINE__)
static void must(CUresult e, const char *what, int line) {
  if (e == CU_SUCCESS) return;
  fprintf(stderr, "line %d: %s: %d\n", line, what, e);
  _exit(1);
}
#define SAME(a, b) same((long long)(a), (long long)(b), __LINE__)
static void same(long long a, long long b, int line) {
  if (a == b) return;
  fprintf(stderr, "line %d: %lld, not %lld\n", line, a, b);
  _exit(1);
}

typedef struct Bench {
  CudaApi a;
  CUcontext context;
  CUstream stream;
  CUfunction add;
  CUdeviceptr x, y;
  float *host; /* N, pinned */
} Bench;

static void open_bench(Bench *b) {
  Fault f = {0};
  CUmodule m;
  setenv("SHARDC_LIBCUDA", LIBCUDA, 1);
  if (!rt_cuda_load(&b->a, &f)) rt_die(&f);
  MUST(b->a.cuDevicePrimaryCtxRetain(&b->context, 0));
  MUST(b->a.cuCtxSetCurrent(b->context));
  MUST(b->a.cuStreamCreate(&b->stream, 1));
  MUST(b->a.cuMemAlloc(&b->x, N * sizeof *b->host));
  MUST(b->a.cuMemAlloc(&b->y, N * sizeof *b->host));
  b->host = aligned_alloc(4096, N * sizeof *b->host);
  MUST(b->a.cuMemHostRegister(b->host, N * sizeof *b->host, 0));
  MUST(b->a.cuModuleLoadDataEx(&m, add_text, 0, NULL, NULL));
  MUST(b->a.cuModuleGetFunction(&b->add, m, "add"));
  for (int i = 0; i < N; i++) b->host[i] = (float)i;
  MUST(b->a.cuMemcpyHtoDAsync(b->x, b->host, N * sizeof *b->host, b->stream));
  MUST(b->a.cuMemsetD32Async(b->y, 0, N, b->stream));
}

static CUresult launch(Bench *b, unsigned ctas, CUdeviceptr y) {
  void *params[] = {&y, &b->x};
  return b->a.cuLaunchKernel(b->add, ctas, 1, 1, 128, 1, 1, 0, b->stream, params, NULL);
}

static void read_back(Bench *b, float out[N]) {
  MUST(b->a.cuMemcpyDtoHAsync(out, b->y, sizeof(float[N]), b->stream));
  MUST(b->a.cuStreamSynchronize(b->stream));
}

static void launches(void) {
  Bench b;
  float out[N];
  open_bench(&b);
  MUST(launch(&b, 8, b.y)), MUST(launch(&b, 8, b.y));
  read_back(&b, out);
  for (int i = 0; i < N; i++) SAME(out[i], 2 * i);
}

/* A graph does nothing when it is recorded, and the same each time it is launched. */
static void graphs(void) {
  Bench b;
  CUgraph g;
  CUgraphExec x;
  float out[N];
  open_bench(&b);
  MUST(b.a.cuStreamBeginCapture(b.stream, 1));
  MUST(launch(&b, 8, b.y)), MUST(launch(&b, 8, b.y));
  MUST(b.a.cuMemcpyDtoDAsync(b.x, b.y, sizeof out, b.stream));
  MUST(b.a.cuStreamEndCapture(b.stream, &g));
  MUST(b.a.cuGraphInstantiateWithFlags(&x, g, 0)), MUST(b.a.cuGraphDestroy(g));
  read_back(&b, out);
  SAME(out[5], 0);
  MUST(b.a.cuGraphLaunch(x, b.stream)), MUST(b.a.cuGraphLaunch(x, b.stream));
  read_back(&b, out);
  for (int i = 0; i < N; i++) SAME(out[i], 6 * i);
  MUST(b.a.cuGraphExecDestroy(x));
}

/* A call that is forbidden while a stream is recorded breaks the recording. */
static void broken_capture(void) {
  Bench b;
  CUgraph g;
  CUdeviceptr p;
  open_bench(&b);
  MUST(b.a.cuStreamBeginCapture(b.stream, 1));
  MUST(launch(&b, 8, b.y));
  SAME(b.a.cuMemAlloc(&p, 64), 900);
  SAME(b.a.cuStreamEndCapture(b.stream, &g), 901);
  MUST(b.a.cuMemAlloc(&p, 64));
  MUST(b.a.cuStreamBeginCapture(b.stream, 1));
  SAME(b.a.cuStreamSynchronize(b.stream), 900);
  SAME(b.a.cuStreamEndCapture(b.stream, &g), 901);
}

static void events(void) {
  Bench b;
  CUevent from, to;
  CUstream other;
  float out[N], milliseconds = -1;
  open_bench(&b);
  MUST(b.a.cuEventCreate(&from, 0)), MUST(b.a.cuEventCreate(&to, 0));
  SAME(b.a.cuEventElapsedTime(&milliseconds, from, to), 400);
  MUST(b.a.cuEventRecord(from, b.stream)), MUST(launch(&b, 8, b.y));
  MUST(b.a.cuEventRecord(to, b.stream)), MUST(b.a.cuEventSynchronize(to));
  MUST(b.a.cuEventElapsedTime(&milliseconds, from, to));
  if (!(milliseconds >= 0)) _exit(1);
  MUST(b.a.cuStreamCreate(&other, 1));
  (void)other;
  read_back(&b, out);
  SAME(out[7], 7);
}

typedef struct TwoStreams { /* y is added to on one, and copied to z on the other one */
  Bench b;
  CUdeviceptr z;
  CUstream other;
  CUevent made, copied;
} TwoStreams;

static void open_two(TwoStreams *t) {
  open_bench(&t->b);
  MUST(t->b.a.cuMemAlloc(&t->z, sizeof(float[N])));
  MUST(t->b.a.cuStreamCreate(&t->other, 1));
  MUST(t->b.a.cuEventCreate(&t->made, 0)), MUST(t->b.a.cuEventCreate(&t->copied, 0));
  MUST(t->b.a.cuMemsetD32Async(t->z, 0, N, t->b.stream));
  MUST(t->b.a.cuStreamSynchronize(t->b.stream));
}

/* z is y + x, and x is then z; y goes on meanwhile. */
static void step_of_two(TwoStreams *t) {
  CudaApi *a = &t->b.a;
  size_t bytes = sizeof(float[N]);
  MUST(launch(&t->b, 8, t->b.y));
  MUST(a->cuEventRecord(t->made, t->b.stream)), MUST(a->cuStreamWaitEvent(t->other, t->made, 0));
  MUST(a->cuMemcpyDtoDAsync(t->z, t->b.y, bytes, t->other));
  MUST(a->cuEventRecord(t->copied, t->other));
  MUST(a->cuStreamWaitEvent(t->b.stream, t->copied, 0));
  MUST(a->cuMemcpyDtoDAsync(t->b.x, t->z, bytes, t->b.stream));
}

static float two_streams_give(TwoStreams *t, bool graph) {
  float out[N];
  CUgraph g;
  CUgraphExec x = NULL;
  if (graph) {
    MUST(t->b.a.cuStreamBeginCapture(t->b.stream, 1));
    step_of_two(t);
    MUST(t->b.a.cuStreamEndCapture(t->b.stream, &g));
    MUST(t->b.a.cuGraphInstantiateWithFlags(&x, g, 0)), MUST(t->b.a.cuGraphDestroy(g));
  }
  for (int i = 0; i < 3; i++)
    if (graph) MUST(t->b.a.cuGraphLaunch(x, t->b.stream));
    else step_of_two(t);
  read_back(&t->b, out);
  return out[1];
}

/* y = 1, x = 1; y = 2, x = 2; y = 4: in every order that the events allow. */
static void two_streams(void) {
  TwoStreams t;
  open_two(&t);
  SAME(two_streams_give(&t, false), 4);
}

static void two_streams_in_a_graph(void) {
  TwoStreams t;
  open_two(&t);
  SAME(two_streams_give(&t, true), 4);
}

/* One wait is left out: the order of this process shows it. */
static void one_wait_less(void) {
  TwoStreams t;
  open_two(&t);
  if ((int)two_streams_give(&t, false) == 4) _exit(1);
}

/* Operations recorded on a stream that is never joined are refused, and so is an edge to work
   outside. */
static void stray_streams(void) {
  TwoStreams t;
  CUgraph g;
  CudaApi *a = &t.b.a;
  open_two(&t);
  MUST(a->cuStreamBeginCapture(t.b.stream, 1));
  MUST(a->cuEventRecord(t.made, t.b.stream)), MUST(a->cuStreamWaitEvent(t.other, t.made, 0));
  MUST(a->cuMemcpyDtoDAsync(t.z, t.b.y, 64, t.other));
  SAME(a->cuStreamEndCapture(t.b.stream, &g), 904);
  MUST(a->cuEventRecord(t.made, t.other));
  MUST(a->cuStreamBeginCapture(t.b.stream, 1));
  SAME(a->cuStreamWaitEvent(t.b.stream, t.made, 0), 905);
  SAME(a->cuStreamEndCapture(t.b.stream, &g), 901);
}

/* Pinned memory is read when the copy is done, not when it is asked for; other memory at once. */
static void late_copies(void) {
  Bench b;
  float other[N], out[N];
  open_bench(&b);
  for (int i = 0; i < N; i++) b.host[i] = 1, other[i] = 5;
  MUST(launch(&b, 8, b.y));
  MUST(b.a.cuMemcpyHtoDAsync(b.x, other, sizeof other, b.stream));
  for (int i = 0; i < N; i++) other[i] = 9;
  MUST(launch(&b, 8, b.y));
  read_back(&b, out);
  for (int i = 0; i < N; i++) SAME(out[i], 6);
}

static void late_reads(void) {
  Bench b;
  open_bench(&b);
  float *out = b.host;
  MUST(b.a.cuStreamSynchronize(b.stream));
  out[7] = -1;
  MUST(launch(&b, 8, b.y));
  MUST(b.a.cuMemcpyDtoHAsync(out, b.y, N * sizeof *out, b.stream));
  SAME(out[7], -1);
  MUST(b.a.cuStreamSynchronize(b.stream));
  SAME(out[7], 7);
}

/* A fault is told by whoever waits next, and the context is lost. */
static void faults(void) {
  Bench b;
  CUdeviceptr p;
  open_bench(&b);
  MUST(b.a.cuMemAlloc(&p, 64));
  CUresult e = launch(&b, 8, p);
  if (!e) e = b.a.cuStreamSynchronize(b.stream);
  SAME(e, CU_ILLEGAL_ADDRESS);
  SAME(b.a.cuStreamSynchronize(b.stream), CU_ILLEGAL_ADDRESS);
  SAME(launch(&b, 8, b.y), CU_ILLEGAL_ADDRESS);
}

static void refusals(void) {
  Bench b;
  CUmodule m;
  CUdeviceptr p;
  char log[400] = "";
  int option[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES};
  void *value[] = {log, (void *)(uintptr_t)sizeof log};
  open_bench(&b);
  void *params[] = {&b.y, &b.x};
  SAME(b.a.cuModuleLoadDataEx(&m, "\177ELF", 0, NULL, NULL), CU_NO_BINARY_FOR_GPU);
  SAME(b.a.cuModuleLoadDataEx(&m, ".version 7.0\nnonsense", 2, option, value), CU_INVALID_PTX);
  if (!*log) _exit(1);
  SAME(b.a.cuModuleLoadDataEx(&m, ".version 9.9\n", 0, NULL, NULL), CU_UNSUPPORTED_PTX_VERSION);
  SAME(b.a.cuLaunchKernel(b.add, 1, 1, 1, 2048, 1, 1, 0, b.stream, params, NULL), CU_INVALID_VALUE);
  SAME(b.a.cuLaunchKernel(b.add, 0, 1, 1, 32, 1, 1, 0, b.stream, params, NULL), CU_INVALID_VALUE);
  SAME(b.a.cuLaunchKernel(b.add, 1, 1, 1, 32, 1, 1, 50000, b.stream, params, NULL),
       CU_INVALID_VALUE);
  MUST(b.a.cuFuncSetAttribute(b.add, CU_FUNC_SHARED, 60000));
  MUST(b.a.cuLaunchKernel(b.add, 1, 1, 1, 32, 1, 1, 60000, b.stream, params, NULL));
  SAME(b.a.cuFuncSetAttribute(b.add, CU_FUNC_SHARED, 200000), CU_INVALID_VALUE);
  CuTensorMap map;
  rt_tensor_map t = {0, 2, 2, {200, 20}, {2, 400}, {64, 8}};
  MUST(rt_cuda_map(&b.a, &t, b.x, &map));
  SAME(rt_cuda_map(&b.a, &t, b.x + 8, &map), CU_INVALID_VALUE);
  t.stride[1] = 404;
  SAME(rt_cuda_map(&b.a, &t, b.x, &map), CU_INVALID_VALUE);
  t.elem_bytes = 4;
  SAME(rt_cuda_map(&b.a, &t, b.x, &map), CU_NOT_FOUND);
  SAME(b.a.cuMemAlloc(&p, (size_t)2 << 30), CU_OUT_OF_MEMORY);
  SAME(b.a.cuMemcpyHtoDAsync(b.x + 4000, b.host, 8, b.stream), CU_INVALID_VALUE);
}

static void devices(void) {
  Bench b;
  CudaDevice d;
  Fault f = {0};
  open_bench(&b);
  SAME(rt_cuda_device(&b.a, 2, &d, &f), true);
  SAME(d.sm, 86);
  SAME(d.shared_limit, 49152);
  SAME(rt_cuda_device(&b.a, 3, &d, &f), false);
  SAME(f.code, 1002);
  SAME(b.a.version, 11040);
}

static void hidden_devices(void) {
  Bench b;
  CudaDevice d;
  Fault f = {0};
  open_bench(&b);
  SAME(rt_cuda_device(&b.a, 0, &d, &f), true);
  SAME(d.sm, 90);
  SAME(strcmp(d.name, "shardc stand-in 2"), 0);
  SAME(rt_cuda_device(&b.a, 1, &d, &f), true);
  SAME(d.sm, 75);
  SAME(rt_cuda_device(&b.a, 2, &d, &f), false);
}

static void no_device(void) {
  Fault f = {0};
  CudaApi a;
  setenv("SHARDC_LIBCUDA", LIBCUDA, 1);
  SAME(rt_cuda_load(&a, &f), false);
  SAME(f.code, 1002);
  f = (Fault){0};
  setenv("SHARDC_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  SAME(rt_cuda_load(&a, &f), false);
  SAME(f.code, 1001);
}

static void in_child(void (*f)(void), const char *settings) {
  int status;
  pid_t pid = fork();
  if (!pid) {
    for (char *p = strdup(settings), *word; (word = strsep(&p, " "));)
      if (*word) putenv(word);
    f();
    fflush(NULL);
    _exit(0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

#define CASE(name, f, settings)                                                                    \
  static void name(void **state) {                                                                 \
    (void)state;                                                                                   \
    in_child(f, settings);                                                                         \
  }
CASE(launches_now, launches, "SHARDC_EMULATE_CHECK=1")
CASE(launches_late, launches, "SHARDC_EMULATE_LATE=1")
CASE(graphs_now, graphs, "")
CASE(graphs_late, graphs, "SHARDC_EMULATE_LATE=1 SHARDC_EMULATE_SEED=5")
CASE(captures, broken_capture, "")
CASE(events_now, events, "")
CASE(events_late, events, "SHARDC_EMULATE_LATE=1")
#define ORDER "SHARDC_EMULATE_LATE=1 SHARDC_EMULATE_ORDER="
CASE(streams_late, two_streams, ORDER "0")
CASE(streams_early, two_streams, ORDER "1")
CASE(streams_drawn, two_streams, ORDER "7")
CASE(streams_in_graph, two_streams_in_a_graph, ORDER "0")
CASE(streams_in_graph_early, two_streams_in_a_graph, ORDER "1")
CASE(streams_in_graph_drawn, two_streams_in_a_graph, ORDER "7")
CASE(stray, stray_streams, "")
CASE(no_wait_for_what_is_sent, one_wait_less, ORDER "1 SHARDC_EMULATE_DROP=wait=1")
CASE(no_wait_for_what_comes, one_wait_less, ORDER "0 SHARDC_EMULATE_DROP=wait=2")
CASE(no_record_of_what_is_sent, one_wait_less, ORDER "1 SHARDC_EMULATE_DROP=record=3")
CASE(no_record_of_what_comes, one_wait_less, ORDER "0 SHARDC_EMULATE_DROP=record=4")
CASE(copies_late, late_copies, "SHARDC_EMULATE_LATE=1")
CASE(reads_late, late_reads, "SHARDC_EMULATE_LATE=1")
CASE(faults_now, faults, "")
CASE(faults_late, faults, "SHARDC_EMULATE_LATE=1")
CASE(refuses, refusals, "SHARDC_EMULATE_MEMORY=1073741824")
CASE(many_devices, devices,
     "SHARDC_EMULATE_DEVICES=3 SHARDC_EMULATE_SM=86 SHARDC_EMULATE_SHARED=49152 "
     "SHARDC_EMULATE_DRIVER=11040")
CASE(some_hidden, hidden_devices,
     "SHARDC_EMULATE_DEVICES=4 SHARDC_EMULATE_SM=75,86,90 CUDA_VISIBLE_DEVICES=2,0")
CASE(none, no_device, "SHARDC_EMULATE_DEVICES=0")

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(launches_now),
                                     cmocka_unit_test(launches_late),
                                     cmocka_unit_test(graphs_now),
                                     cmocka_unit_test(graphs_late),
                                     cmocka_unit_test(captures),
                                     cmocka_unit_test(events_now),
                                     cmocka_unit_test(events_late),
                                     cmocka_unit_test(copies_late),
                                     cmocka_unit_test(reads_late),
                                     cmocka_unit_test(faults_now),
                                     cmocka_unit_test(faults_late),
                                     cmocka_unit_test(refuses),
                                     cmocka_unit_test(many_devices),
                                     cmocka_unit_test(some_hidden),
                                     cmocka_unit_test(none),
                                     cmocka_unit_test(streams_late),
                                     cmocka_unit_test(streams_early),
                                     cmocka_unit_test(streams_drawn),
                                     cmocka_unit_test(streams_in_graph),
                                     cmocka_unit_test(streams_in_graph_early),
                                     cmocka_unit_test(streams_in_graph_drawn),
                                     cmocka_unit_test(stray),
                                     cmocka_unit_test(no_wait_for_what_is_sent),
                                     cmocka_unit_test(no_wait_for_what_comes),
                                     cmocka_unit_test(no_record_of_what_is_sent),
                                     cmocka_unit_test(no_record_of_what_comes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
