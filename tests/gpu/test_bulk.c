/* mbarriers and bulk tensor copies on the PTX machine: a small ring that is right in all modes, and
 * what is wrong with others, each of which is reported or shows in the numbers.
 *
 * Must not: leak a device. */
#include "ptx.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 20, COLUMNS = 200, BOX_ROWS = 8, WARPS = 3, STAGES = 2, TURNS = 6 };
enum { SHARED = 4096, OUT = TURNS * BOX_ROWS * 64 };

/* Thread 0 brings boxes of 8 rows and 64 columns, in turn from the columns 0, 64, 128, 192 and
 * rows 16 on; warps 1 and 2 each read half of a box and write it out. */
typedef struct Parts { /* texts of parts of the kernel; NULL: the right text */
  const char *full_count, *fences, *sync, *empty_wait, *bytes, *copy, *full_wait, *leave, *again;
  const char *before; /* the first turn of the reading warps */
} Parts;

#define OR(part, text) (parts->part ? parts->part : (text))

static const char *const head =
    ".version 8.0\n.target sm_90a\n.address_size 64\n"
    ".extern .shared .align 1024 .b8 sm[];\n"
    ".visible .entry k(.param .u64 out, .param .align 64 .b8 map[128], .param .u64 in)\n{\n"
    ".reg .pred %p<10>; .reg .b16 %h<10>; .reg .b32 %r<40>; .reg .b64 %d<20>;\n"
    "mov.u32 %r0, %tid.x; mov.u32 %r10, sm; add.s32 %r11, %r10, 2048; setp.ne.u32 %p0, %r0, 0;\n"
    "mov.b64 %d0, map; cvta.param.u64 %d1, %d0; ld.param.u64 %d2, [out];\n"
    "mov.u32 %r20, 0; mov.u32 %r21, 0; setp.gt.u32 %p1, %r0, 31;\n";

static void text_of(const Parts *parts, char *out, size_t n) {
  snprintf(
      out, n,
      "%s@%%p0 bra GO;\n"
      "mbarrier.init.shared::cta.b64 [%%r11], %s; mbarrier.init.shared::cta.b64 [%%r11+8], %s;\n"
      "mbarrier.init.shared::cta.b64 [%%r11+16], 2; mbarrier.init.shared::cta.b64 [%%r11+24], 2;\n"
      "%s\nGO: %s\n@%%p1 bra READ;\n@%%p0 bra END;\n"
      /* the copying thread: r20 the turn, r21 the stage, r22 its parity, r23 its full, r24 room */
      "mov.u32 %%r22, 1;\nCOPY: shl.b32 %%r23, %%r21, 3; add.s32 %%r23, %%r23, %%r11;\n"
      "shl.b32 %%r24, %%r21, 10; add.s32 %%r24, %%r24, %%r10;\n%s\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%r23], %s;\n"
      "and.b32 %%r25, %%r20, 3; shl.b32 %%r25, %%r25, 6; mov.u32 %%r26, 16;\n%s\n"
      "xor.b32 %%r21, %%r21, 1; setp.eq.u32 %%p2, %%r21, 0; selp.u32 %%r27, 1, 0, %%p2;\n"
      "xor.b32 %%r22, %%r22, %%r27; add.s32 %%r20, %%r20, 1; setp.lt.u32 %%p3, %%r20, 6;\n"
      "@%%p3 bra COPY; bra END;\n"
      /* a reading warp: each lane 16 bytes of one of four rows, whose place is swizzled */
      "READ: sub.s32 %%r1, %%r0, 32; shr.u32 %%r2, %%r1, 3; and.b32 %%r3, %%r1, 7;\n"
      "xor.b32 %%r4, %%r3, %%r2; shl.b32 %%r5, %%r2, 7; shl.b32 %%r6, %%r4, 4;\n"
      "add.s32 %%r5, %%r5, %%r6; mov.u32 %%r22, 0; mul.wide.u32 %%d3, %%r1, 16;\n"
      "add.s64 %%d3, %%d3, %%d2; and.b32 %%r7, %%r0, 31; setp.ne.u32 %%p5, %%r7, 0;\n"
      "%s\nTAKE: shl.b32 %%r23, %%r21, 3; add.s32 %%r23, %%r23, %%r11;\n"
      "shl.b32 %%r24, %%r21, 10; add.s32 %%r24, %%r24, %%r10; add.s32 %%r24, %%r24, %%r5;\n"
      "%s\nld.shared.v4.u32 {%%r30, %%r31, %%r32, %%r33}, [%%r24];\n"
      "bar.warp.sync -1;\n%s\n"
      "st.global.v4.u32 [%%d3], {%%r30, %%r31, %%r32, %%r33}; add.s64 %%d3, %%d3, 1024;\n"
      "xor.b32 %%r21, %%r21, 1; setp.eq.u32 %%p2, %%r21, 0; selp.u32 %%r27, 1, 0, %%p2;\n"
      "xor.b32 %%r22, %%r22, %%r27; add.s32 %%r20, %%r20, 1; setp.lt.u32 %%p3, %%r20, 6;\n"
      "@%%p3 bra TAKE;\nEND: ret;\n}\n",
      head, OR(full_count, "1"), OR(full_count, "1"),
      OR(fences, "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;"),
      OR(sync, "bar.sync 0;"),
      OR(empty_wait,
         "E: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r23+16], %r22; @!%p4 bra E;"),
      OR(bytes, "1024"),
      OR(copy, "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%r24], [%d1, {%r25, %r26}], [%r23];"),
      OR(before, ""),
      OR(full_wait, "F: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r23], %r22; @!%p4 bra F;"),
      OR(leave, "@!%p5 mbarrier.arrive.shared::cta.b64 _, [%r23+16];"));
}

static uint16_t given(int row, int column) { return (uint16_t)(row * 1000 + column + 1); }

static PtxTensor tensor(uint64_t at) {
  return (PtxTensor){.at = at,
                     .size = {COLUMNS, ROWS},
                     .stride = {COLUMNS * 2},
                     .box = {64, BOX_ROWS},
                     .rank = 2,
                     .element_bytes = 2};
}

static int wrong_results(PtxDevice *d, uint64_t out) {
  int wrong = 0;
  for (int i = 0; i < OUT; i++) {
    uint16_t got = 0;
    int row = 16 + i / 64 % BOX_ROWS, column = i / 64 / BOX_ROWS % 4 * 64 + i % 64;
    ptx_read(d, &got, out + 2 * (uint64_t)i, 2);
    wrong += got != (row < ROWS && column < COLUMNS ? given(row, column) : 0);
  }
  return wrong;
}

static bool launch(PtxModule *m, uint64_t in, uint64_t out, char *error, int n) {
  _Alignas(64) char params[64 + PTX_TENSOR_BYTES + 8] = {0};
  PtxTensor t = tensor(in);
  memcpy(params, &out, 8), memcpy(params + 64 + PTX_TENSOR_BYTES, &in, 8);
  assert_null(ptx_tensor_map(params + 64, &t));
  PtxLaunch l = {"k", {1, 1, 1}, {32 * WARPS, 1, 1}, SHARED, params, sizeof params};
  return ptx_launch(m, &l, error, n);
}

/* The number of wrong results; -1: the launch failed. */
static int wrong_of(const Parts *parts, bool late, uint64_t seed, char *error, int n) {
  char text[8000];
  uint16_t values[ROWS * COLUMNS];
  text_of(parts, text, sizeof text);
  for (int i = 0; i < ROWS * COLUMNS; i++) values[i] = given(i / COLUMNS, i % COLUMNS);
  PtxDevice *d = ptx_device_new(
      &(PtxOptions){.sm = 90, .check = true, .late = late, .seed = seed, .budget = 1000000});
  PtxModule *m = ptx_parse(d, text, error, n);
  uint64_t in = ptx_alloc(d, sizeof values), out = ptx_alloc(d, 2 * OUT);
  ptx_write(d, in, values, sizeof values);
  int wrong = m && launch(m, in, out, error, n) ? wrong_results(d, out) : -1;
  ptx_module_free(m), ptx_device_free(d);
  return wrong;
}

static void right(void **state) {
  (void)state;
  for (uint64_t i = 0; i < 20; i++) {
    char error[1000] = "";
    int wrong = wrong_of(&(Parts){0}, i % 2, i / 2, error, sizeof error);
    if (wrong) fail_msg("case %d: %d wrong %s", (int)i, wrong, error);
  }
}

#define COPY_TO(to, map, at, signal)                                                               \
  "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [" to          \
  "], [" map ", {" at "}], [" signal "];"

/* Each broken kernel is reported in eager mode, in late mode, and with a seed, unless its row says
   in which of these. */
static const struct Broken {
  Parts parts;
  const char *says;
  bool late_only;
} broken[] = {
    {{.fences = "fence.proxy.async.shared::cta;"}, "no fence.mbarrier_init", false},
    {{.fences = "fence.mbarrier_init.release.cluster;"}, "no fence.proxy.async", false},
    {{.sync = ""}, "", false}, /* no mbarrier yet, or a race with its init */
    {{.full_wait = ""}, "", false},
    {{.full_wait = "F: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r23], %r22;"}, "", true},
    {{.empty_wait = ""}, "", false},
    {{.leave = ""}, "deadlock: the mbarrier at", false},
    {{.leave = "mbarrier.arrive.shared::cta.b64 _, [%r23+16];"}, "", false},
    {{.bytes = "1008"}, "", false},
    {{.bytes = "1040"}, "deadlock: the mbarrier at", false},
    {{.bytes = "1048576"}, "expects at most", false},
    {{.full_count = "2"}, "deadlock: the mbarrier at", false},
    {{.full_count = "0"}, "0 arrivals cannot be", false},
    {{.copy = COPY_TO("%r24+64", "%d1", "%r25, %r26", "%r23")}, "misaligned", false},
    {{.copy = COPY_TO("%r24+8192", "%d1", "%r25, %r26", "%r23")}, "out of bounds", false},
    {{.copy = COPY_TO("%r24", "%d1-64", "%r25, %r26", "%r23")}, "no tensor map", false},
    {{.copy = COPY_TO("%r24", "%d2", "%r25, %r26", "%r23")}, "is no parameter", false},
    {{.copy = COPY_TO("%r24", "%d1", "%r25, %r26", "%r23+4")},
     "no mbarrier was initialised",
     false},
    {{.copy = COPY_TO("%r24", "%d1", "%r25, %r26", "%r23")
          COPY_TO("%r24", "%d1", "%r25, %r26", "%r23")},
     "",
     false},
    {{.before = "ld.shared.u32 %r30, [%r11];"}, "is an mbarrier", false},
    {{.before = "st.shared.u32 [%r24], %r30;"}, "", false},
};

static void reported(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
    for (uint64_t mode = broken[i].late_only; mode < 3; mode++) {
      char error[1000] = "";
      int wrong = wrong_of(&broken[i].parts, mode == 1, mode == 2 ? 7 : 0, error, sizeof error);
      if (wrong != -1 || !strstr(error, broken[i].says))
        fail_msg("case %d, mode %d: `%s` expected: %d wrong %s", (int)i, (int)mode, broken[i].says,
                 wrong, error);
    }
}

/* Nobody waits for the last copies: the CTA must not end. */
static void left_alone(void **state) {
  (void)state;
  char error[1000] = "";
  const Parts parts = {.before = "bra END;",
                       .empty_wait = "setp.gt.u32 %p6, %r20, 1; @%p6 bra END;"};
  assert_int_equal(wrong_of(&parts, true, 0, error, sizeof error), -1);
  assert_non_null(strstr(error, "the CTA ended before a copy"));
}

static void maps(void **state) {
  (void)state;
  _Alignas(64) char room[PTX_TENSOR_BYTES + 64];
  PtxTensor t = tensor(4096);
  assert_null(ptx_tensor_map(room, &t));
  assert_string_equal(ptx_tensor_map(room + 32, &t), "a map is aligned to 64 bytes");
  const struct {
    PtxTensor t;
    const char *says;
  } of[] = {
      {{.rank = 6}, "1 to 5 dims"},
      {{.at = 4104, .rank = 1}, "begins on a multiple of 16"},
      {{.at = 16, .rank = 1, .box = {8}, .element_bytes = 2}, "1 to 2^32 elements"},
      {{.at = 16, .rank = 1, .size = {9}, .box = {257}, .element_bytes = 2}, "1 to 256 elements"},
      {{.at = 16, .rank = 2, .size = {9, 9}, .stride = {18}, .box = {8, 8}, .element_bytes = 2},
       "strides are multiples of 16"},
      {{.at = 16, .rank = 1, .size = {9}, .box = {9}, .element_bytes = 2}, "multiples of 16"},
      {{.at = 16, .rank = 1, .size = {9}, .box = {72}, .element_bytes = 2}, "at most 128 bytes"}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    const char *wrong = ptx_tensor_map(room, &of[i].t);
    if (!wrong || !strstr(wrong, of[i].says)) fail_msg("case %d: %s", (int)i, wrong);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(right), cmocka_unit_test(reported),
                                     cmocka_unit_test(left_alone), cmocka_unit_test(maps)};
  return cmocka_run_group_tests_name("bulk", tests, NULL, NULL);
}
