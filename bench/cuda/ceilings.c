/* The speed that the GPU reaches with code that does one thing: multiply-adds of f32, tensor cores
   by mma.sync (bf16, tf32), copies. Shares in the other parts are of these, measured in the same
   run. On sm_90 mma.sync is not the fastest way to the tensor cores; code written for sm_80 cannot
   exceed it. Operands are never zero: zeros draw less power and run faster than data. */
#include "bundle.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHAINS = 16, ROUNDS = 9, COPY_THREADS = 256, MULTIPLY_THREADS = 256 };

typedef struct Peak {
  const char *name, *line; /* one instruction on four sums; NULL: four fma */
  double flop;             /* of one line and thread */
} Peak;

static const Peak peaks[] = {
    {"bf16 mma.sync",
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%%f%d,%%f%d,%%f%d,%%f%d}, "
     "{%%r1,%%r2,%%r3,%%r4}, {%%r5,%%r6}, {%%f%d,%%f%d,%%f%d,%%f%d};\n",
     2.0 * 16 * 8 * 16 / 32},
    {"tf32 mma.sync",
     "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%%f%d,%%f%d,%%f%d,%%f%d}, "
     "{%%r1,%%r2,%%r3,%%r4}, {%%r5,%%r6}, {%%f%d,%%f%d,%%f%d,%%f%d};\n",
     2.0 * 16 * 8 * 8 / 32},
    {"f32 fma", NULL, 8},
};

#define HEAD ".version 7.0\n.target sm_80\n.address_size 64\n"

/* bits of the operands: signs by thread, numbers in 0.5 .. 1 for bf16 pairs as for f32 */
static const char open_text[] =
    HEAD ".visible .entry peak(.param .u64 out)\n{\n.reg .b64 %d<4>; .reg .b32 %r<12>; .reg .pred "
         "%p; .reg .f32 %f<64>; .reg .f32 %x<3>;\n"
         "mov.u32 %r7, %tid.x; mov.u32 %r8, %ctaid.x; mov.u32 %r9, %ntid.x;\n"
         "mad.lo.s32 %r10, %r8, %r9, %r7;\n"
         "mul.lo.s32 %r1, %r10, 747796405; and.b32 %r1, %r1, 0x807f807f; or.b32 %r1, %r1, "
         "0x3f003f00;\n"
         "xor.b32 %r2, %r1, 0x80000013; xor.b32 %r3, %r1, 0x00418000; xor.b32 %r4, %r1, "
         "0x80158022;\n"
         "xor.b32 %r5, %r1, 0x00078000; xor.b32 %r6, %r1, 0x80238001;\n"
         "mov.b32 %x1, %r3; mov.b32 %x2, %r4;\n";

static char *peak_text(const Peak *p, int rounds) {
  char *text = NULL;
  size_t n;
  FILE *out = open_memstream(&text, &n);
  fputs(open_text, out);
  for (int i = 0; i < 4 * CHAINS; i++) fprintf(out, "mov.f32 %%f%d, 0f00000000;\n", i);
  fprintf(out, "mov.u32 %%r11, %d;\nAGAIN:\n", rounds);
  for (int i = 0; i < CHAINS; i++) {
    int f = 4 * i;
    if (p->line) fprintf(out, p->line, f, f + 1, f + 2, f + 3, f, f + 1, f + 2, f + 3);
    else
      for (int k = 0; k < 4; k++)
        fprintf(out, "fma.rn.f32 %%f%d, %%x1, %%x2, %%f%d;\n", f + k, f + k);
  }
  fputs("sub.s32 %r11, %r11, 1; setp.ne.s32 %p, %r11, 0; @%p bra AGAIN;\n", out);
  for (int i = 1; i < 4 * CHAINS; i++) fprintf(out, "add.f32 %%f0, %%f0, %%f%d;\n", i);
  fputs("ld.param.u64 %d1, [out]; mul.wide.u32 %d2, %r10, 4; add.s64 %d3, %d1, %d2;\n"
        "st.global.f32 [%d3], %f0; ret;\n}\n",
        out);
  fclose(out);
  return text;
}

/* Seconds of a launch, the median of some. NaN: it failed. */
static double timed(Gpu *g, CUfunction f, int64_t ctas, int threads, CUdeviceptr *at, int n) {
  double t[ROUNDS];
  for (int i = -2; i < ROUNDS; i++) {
    gpu_begin(g);
    if (!gpu_launch(g, f, ctas, threads, 0, at, n, NULL)) return NAN;
    t[i < 0 ? 0 : i] = gpu_end(g);
  }
  return median(t, ROUNDS);
}

static bool one_peak(Bundle *b, Gpu *g, const Peak *p, CUdeviceptr room) {
  int rounds = b->quick ? 4 : 20000;
  int64_t ctas = b->quick ? 2 : 4 * (int64_t)g->device.multiprocessors;
  CUmodule m;
  CUfunction f;
  char *text = peak_text(p, rounds);
  bool ok = gpu_load(g, text, &m) && gpu_function(g, m, "peak", 0, &f);
  double seconds = ok ? timed(g, f, ctas, MULTIPLY_THREADS, &room, 1) : NAN;
  double rate = p->flop * CHAINS * rounds * (double)ctas * MULTIPLY_THREADS / seconds;
  free(text);
  if (!isfinite(rate)) return say(b, "%-16s %s\n", p->name, g->why), false;
  put_row(b, "{\"name\": %s, \"flops\": %.5g}", quoted(p->name), rate);
  say(b, "%-16s %10.2f TFLOP/s\n", p->name, 1e-12 * rate);
  return true;
}

/* Every thread takes four times 16 bytes, all loads before the first store. */
static const char copy_text[] =
    HEAD ".visible .entry copy(.param .u64 to, .param .u64 from)\n{\n.reg .b64 %d<8>; .reg .b32 "
         "%r<24>;\n"
         "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;\n"
         "mul.wide.u32 %d1, %r2, 16384; mul.wide.u32 %d2, %r1, 16; add.s64 %d1, %d1, %d2;\n"
         "ld.param.u64 %d3, [to]; ld.param.u64 %d4, [from]; add.s64 %d3, %d3, %d1; add.s64 %d4, "
         "%d4, %d1;\n"
         "ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%d4]; ld.global.v4.u32 {%r8,%r9,%r10,%r11}, "
         "[%d4+4096];\n"
         "ld.global.v4.u32 {%r12,%r13,%r14,%r15}, [%d4+8192]; ld.global.v4.u32 "
         "{%r16,%r17,%r18,%r19}, [%d4+12288];\n"
         "st.global.v4.u32 [%d3], {%r4,%r5,%r6,%r7}; st.global.v4.u32 [%d3+4096], "
         "{%r8,%r9,%r10,%r11};\n"
         "st.global.v4.u32 [%d3+8192], {%r12,%r13,%r14,%r15}; st.global.v4.u32 [%d3+12288], "
         "{%r16,%r17,%r18,%r19};\nret;\n}\n";

static double driver_copy(Gpu *g, CUdeviceptr *at, size_t bytes) {
  double t[ROUNDS];
  for (int i = -2; i < ROUNDS; i++) {
    gpu_begin(g);
    g->api.cuMemcpyDtoDAsync(at[0], at[1], bytes, g->stream);
    t[i < 0 ? 0 : i] = gpu_end(g);
  }
  return median(t, ROUNDS);
}

/* Two buffers of 1 GiB, or less where there is no room; the caches are far smaller than either. */
static bool make_two(Gpu *g, size_t *bytes, size_t least, CUdeviceptr at[2]) {
  for (; *bytes >= least; *bytes /= 2) {
    if (gpu_ok(g, g->api.cuMemAlloc(&at[0], *bytes), "allocate") &&
        gpu_ok(g, g->api.cuMemAlloc(&at[1], *bytes), "allocate"))
      return true;
    if (at[0]) g->api.cuMemFree(at[0]);
    at[0] = 0;
  }
  return false;
}

/* The better of a kernel and of the driver's copy; bytes count when read and when written. */
static bool copies(Bundle *b, Gpu *g) {
  size_t bytes = b->quick ? 64 << 10 : (size_t)1 << 30;
  CUdeviceptr at[2] = {0};
  CUmodule m;
  CUfunction f;
  bool ok = make_two(g, &bytes, b->quick ? bytes : 4 * (size_t)g->device.l2_bytes, at) &&
            gpu_ok(g, g->api.cuMemsetD32Async(at[1], 0x3f8ccccd, bytes / 4, g->stream), "fill") &&
            gpu_load(g, copy_text, &m) && gpu_function(g, m, "copy", 0, &f);
  double own = ok ? timed(g, f, (int64_t)bytes / 16384, COPY_THREADS, at, 2) : NAN;
  double driver = ok ? driver_copy(g, at, bytes) : NAN, best = fmin(own, driver);
  if (at[0]) g->api.cuMemFree(at[0]);
  if (at[1]) g->api.cuMemFree(at[1]);
  if (!isfinite(best)) return say(b, "%-16s %s\n", "copy", g->why), false;
  put_row(b, "{\"name\": \"copy\", \"bytes_per_second\": %.5g, \"kernel\": %.5g, \"driver\": %.5g}",
          2 * (double)bytes / best, 2 * (double)bytes / own, 2 * (double)bytes / driver);
  say(b, "%-16s %10.1f GB/s read and written (kernel %.1f, driver %.1f)\n", "copy",
      2e-9 * (double)bytes / best, 2e-9 * (double)bytes / own, 2e-9 * (double)bytes / driver);
  return true;
}

int part_ceilings(Bundle *b) {
  Gpu g;
  CUdeviceptr room = 0;
  bool good = true;
  if (!gpu_open(&g, 0)) return say(b, "%s\n", g.why), PART_BAD;
  put_row(b,
          "{\"name\": \"gpu\", \"gpu\": %s, \"sm\": %d, \"multiprocessors\": %d, \"driver\": %d, "
          "\"shared\": %d, \"l2\": %d, \"bytes\": %zu}",
          quoted(g.device.name), g.device.sm, g.device.multiprocessors, g.api.version,
          g.device.shared_limit, g.device.l2_bytes, g.device.bytes);
  say(b, "%s: sm_%d, %d multiprocessors, %d bytes of shared memory, %.1f GB, driver %d.%d\n",
      g.device.name, g.device.sm, g.device.multiprocessors, g.device.shared_limit,
      1e-9 * (double)g.device.bytes, g.api.version / 1000, g.api.version % 1000 / 10);
  size_t bytes = 4 * (size_t)MULTIPLY_THREADS * 4 * (size_t)(g.device.multiprocessors + 4);
  if (!gpu_ok(&g, g.api.cuMemAlloc(&room, bytes), "allocate"))
    return say(b, "%s\n", g.why), PART_BAD;
  for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++)
    good &= one_peak(b, &g, &peaks[i], room);
  return copies(b, &g) && good ? PART_GOOD : PART_BAD;
}
