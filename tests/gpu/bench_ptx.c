/* Speed of the PTX machine in million lane-operations per second: arithmetic, memory, both,
 * matrices; bounds only and with all checks. Run by hand: gpu_bench_ptx [SECONDS]. No test. */
#include "ptx.h"
#include "small.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
  const char *name, *body;
  uint32_t threads, ctas, shared;
} rows[] = {
    {"fma",
     "mov.f32 %f1, 0f3F800000; mov.u32 %r5, 0;\nL:"
     "fma.rn.f32 %f2, %f1, %f1, %f2; fma.rn.f32 %f3, %f1, %f1, %f3; fma.rn.f32 %f4, %f1, %f1, %f4;"
     "fma.rn.f32 %f5, %f1, %f1, %f5; fma.rn.f32 %f6, %f1, %f1, %f6; fma.rn.f32 %f7, %f1, %f1, %f7;"
     "fma.rn.f32 %f8, %f1, %f1, %f8; fma.rn.f32 %f9, %f1, %f1, %f9; fma.rn.f32 %f10, %f1, %f1, "
     "%f10;"
     "add.s32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 1000; @%p0 bra L;",
     128, 4, 0},
    {"divergent",
     "mov.u32 %r5, 0;\nL: and.b32 %r6, %r0, 1; setp.eq.u32 %p1, %r6, 0; @%p1 bra A; add.f32 %f2, "
     "%f2, %f1;"
     "mul.f32 %f3, %f2, %f1; bra.uni B;\nA: add.f32 %f2, %f2, %f1; mul.f32 %f3, %f2, %f1;\nB:"
     "add.s32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 1000; @%p0 bra L;",
     128, 4, 0},
    {"global",
     "mov.u32 %r5, 0;\nL: ld.global.u32 %r6, [%d3]; st.global.u32 [%d2], %r6;"
     "add.s32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 200; @%p0 bra L;",
     128, 8, 0},
    {"global_v4",
     "mov.u32 %r5, 0; mul.wide.u32 %d3, %r0, 16; add.s64 %d4, %d3, %d1; add.s64 %d3, %d3, %d0;\nL:"
     "ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d3]; st.global.v4.u32 [%d4], {%r6, %r7, %r8, %r9};"
     "add.s32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 200; @%p0 bra L;",
     128, 1, 0},
    {"halves",
     "mov.u32 %r5, 0; mul.wide.u32 %d3, %r0, 2; add.s64 %d4, %d3, %d1; add.s64 %d3, %d3, %d0;\nL:"
     "ld.global.b16 %h0, [%d3]; st.global.b16 [%d4], %h0;"
     "add.s32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 200; @%p0 bra L;",
     128, 1, 0},
    {"tile",
     "mov.u32 %r4, sm; shl.b32 %r5, %r0, 2; add.s32 %r4, %r4, %r5; st.shared.u32 [%r4], 0; "
     "bar.sync 0;"
     "mov.u32 %r4, sm; mov.u32 %r5, 0;\nL: ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r4]; "
     "ld.shared.v4.f32 {%f5, %f6, %f7, %f8}, [%r4+64];"
     "fma.rn.f32 %f9, %f1, %f5, %f9; fma.rn.f32 %f10, %f2, %f5, %f10; fma.rn.f32 %f11, %f3, %f5, "
     "%f11; fma.rn.f32 %f12, %f4, %f5, %f12;"
     "fma.rn.f32 %f13, %f1, %f6, %f13; fma.rn.f32 %f14, %f2, %f6, %f14; fma.rn.f32 %f15, %f3, %f6, "
     "%f15; fma.rn.f32 %f16, %f4, %f6, %f16;"
     "fma.rn.f32 %f17, %f1, %f7, %f17; fma.rn.f32 %f18, %f2, %f7, %f18; fma.rn.f32 %f19, %f3, %f7, "
     "%f19; fma.rn.f32 %f20, %f4, %f7, %f20;"
     "fma.rn.f32 %f21, %f1, %f8, %f21; fma.rn.f32 %f22, %f2, %f8, %f22; fma.rn.f32 %f23, %f3, %f8, "
     "%f23; fma.rn.f32 %f24, %f4, %f8, %f24;"
     "bar.sync 0; add.s32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 200; @%p0 bra L;",
     128, 4, 512},
    {"matrix",
     "mov.u32 %r4, sm; shl.b32 %r5, %r0, 4; add.s32 %r4, %r4, %r5; st.shared.v4.u32 [%r4], {0, 0, "
     "0, 0}; bar.sync 0; mov.u32 %r5, 0;\n"
     "L: ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7, %r8, %r9}, [%r4]; "
     "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r4];"
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r6, %r7, %r8, "
     "%r9}, {%r10, %r11}, {%f0, %f1, %f2, %f3};"
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4, %f5, %f6, %f7}, {%r6, %r7, %r8, "
     "%r9}, {%r12, %r13}, {%f4, %f5, %f6, %f7};"
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f8, %f9, %f10, %f11}, {%r6, %r7, %r8, "
     "%r9}, {%r10, %r11}, {%f8, %f9, %f10, %f11};"
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f12, %f13, %f14, %f15}, {%r6, %r7, "
     "%r8, %r9}, {%r12, %r13}, {%f12, %f13, %f14, %f15};"
     "add.s32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 200; @%p0 bra L;",
     128, 4, 2048},
    {"ex2",
     "mov.u32 %r5, 0;\nL: ex2.approx.f32 %f1, %f2; add.s32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, "
     "1000; @%p0 bra L;",
     128, 4, 0},
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure(int i, bool check, double seconds) {
  char *body = small_text("k", NULL, rows[i].body), text[10000], error[1000];
  snprintf(text, sizeof text, "%s%s", small_head, body);
  PtxDevice *d = ptx_device_new(&(PtxOptions){.check = check, .sm = 90});
  PtxModule *m = ptx_parse(d, text, error, sizeof error);
  static uint32_t words[4096];
  uint64_t params[2] = {ptx_alloc(d, sizeof words), ptx_alloc(d, 4 * OUT)}, warps, lanes, before;
  ptx_write(d, params[0], words, sizeof words), ptx_write(d, params[1], words, sizeof words);
  PtxLaunch l = {"k",    {rows[i].ctas, 1, 1}, {rows[i].threads, 1, 1}, rows[i].shared,
                 params, sizeof params};
  if (!m || !ptx_launch(m, &l, error, sizeof error)) printf("%s\n", error), exit(1);
  double best = 0, end = now() + seconds;
  while (now() < end) {
    ptx_counts(d, &warps, &before);
    double start = now();
    ptx_launch(m, &l, error, sizeof error);
    double t = now() - start;
    ptx_counts(d, &warps, &lanes);
    if ((double)(lanes - before) / t > best) best = (double)(lanes - before) / t;
  }
  printf("%10.0f", best / 1e6);
  ptx_module_free(m), ptx_device_free(d), free(body);
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 0.2;
  printf("million lane-operations/s  bounds   checks\n");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    printf("%-24s", rows[i].name);
    measure((int)i, false, seconds), measure((int)i, true, seconds);
    printf("\n");
  }
  return 0;
}
