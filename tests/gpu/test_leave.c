/* Bulk tensor copies out of shared memory on the PTX machine: a room that is used in turn, right in
 * all modes, and what is wrong with others, each of which is reported or shows in the numbers.
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

enum { ROWS = 20, COLUMNS = 200, BOX_ROWS = 8, TURNS = 4, FIRST_ROW = 16, SHARED = 2056 };

typedef struct Parts { /* texts of parts of the kernel; NULL: the right text */
  const char *room, *met, *fence, *fenced, *copy, *commit, *end;
} Parts;

#define OR(part, text) (parts->part ? parts->part : (text))

/* One warp writes boxes of 8 rows and 64 columns, each lane 32 bytes of a row; its lane 0 copies
 * them to the columns 0, 64, 128, 192 of rows 16 on. r20: the turn. */
static void text_of(const Parts *parts, char *out, size_t n) {
  snprintf(out, n,
           ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 sm[];\n"
           ".visible .entry k(.param .align 64 .b8 map[128])\n{\n"
           ".reg .pred %%p<10>; .reg .b32 %%r<40>; .reg .b64 %%d<20>;\n"
           "mov.u32 %%r0, %%tid.x; mov.u32 %%r10, sm; setp.ne.u32 %%p0, %%r0, 0;\n"
           "mov.b64 %%d0, map; cvta.param.u64 %%d1, %%d0; mov.u32 %%r20, 0; mov.u32 %%r26, 16;\n"
           "shr.u32 %%r2, %%r0, 2; and.b32 %%r3, %%r0, 3; shl.b32 %%r3, %%r3, 1;\n"
           "xor.b32 %%r4, %%r3, %%r2; shl.b32 %%r4, %%r4, 4; shl.b32 %%r5, %%r2, 7;\n"
           "add.s32 %%r4, %%r4, %%r5; add.s32 %%r4, %%r4, %%r10; xor.b32 %%r5, %%r4, 16;\n"
           "TURN: @%%p0 bra MEET;\n%s\nMEET: %s\n"
           "shl.b32 %%r6, %%r20, 16; shl.b32 %%r7, %%r0, 4; add.s32 %%r30, %%r6, %%r7;\n"
           "add.s32 %%r31, %%r30, 1; add.s32 %%r32, %%r30, 2; add.s32 %%r33, %%r30, 3;\n"
           "st.shared.v4.u32 [%%r4], {%%r30, %%r31, %%r32, %%r33}; add.s32 %%r34, %%r30, 4;\n"
           "add.s32 %%r35, %%r30, 5; add.s32 %%r36, %%r30, 6; add.s32 %%r37, %%r30, 7;\n"
           "st.shared.v4.u32 [%%r5], {%%r34, %%r35, %%r36, %%r37};\n%s\n%s\n@%%p0 bra NEXT;\n"
           "shl.b32 %%r25, %%r20, 6;\n%s\n%s\n"
           "NEXT: add.s32 %%r20, %%r20, 1; setp.lt.u32 %%p3, %%r20, 4; @%%p3 bra TURN;\n"
           "@%%p0 bra END;\n%s\nEND: ret;\n}\n",
           OR(room, "cp.async.bulk.wait_group.read 0;"), OR(met, "bar.warp.sync -1;"),
           OR(fence, "fence.proxy.async.shared::cta;"), OR(fenced, "bar.warp.sync -1;"),
           OR(copy,
              "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d1, {%r25, %r26}], "
              "[%r10];"),
           OR(commit, "cp.async.bulk.commit_group;"), OR(end, "cp.async.bulk.wait_group 0;"));
}

static uint32_t wanted(int row, int column) { /* two neighbouring elements */
  int turn = column / 64, lane = 4 * (row - FIRST_ROW) + column % 64 / 16;
  return row < FIRST_ROW ? 0 : (uint32_t)(turn << 16 | lane << 4 | column % 16 / 2);
}

static int wrong_results(PtxDevice *d, uint64_t out) {
  int wrong = 0;
  for (int row = 0; row < ROWS; row++)
    for (int column = 0; column < COLUMNS; column += 2) {
      uint32_t got = 0;
      ptx_read(d, &got, out + 2 * (uint64_t)(row * COLUMNS + column), 4);
      wrong += got != wanted(row, column);
    }
  return wrong;
}

/* The number of wrong results; -1: the launch failed. */
static int wrong_of(const Parts *parts, bool check, bool late, uint64_t seed, char *error, int n) {
  char text[8000];
  static const uint8_t zeros[2 * ROWS * COLUMNS];
  _Alignas(64) char params[PTX_TENSOR_BYTES] = {0};
  text_of(parts, text, sizeof text);
  PtxDevice *d = ptx_device_new(
      &(PtxOptions){.sm = 90, .check = check, .late = late, .seed = seed, .budget = 1000000});
  PtxModule *m = ptx_parse(d, text, error, n);
  PtxTensor t = {.at = ptx_alloc(d, sizeof zeros),
                 .size = {COLUMNS, ROWS},
                 .stride = {COLUMNS * 2},
                 .box = {64, BOX_ROWS},
                 .rank = 2,
                 .element_bytes = 2};
  ptx_write(d, t.at, zeros, sizeof zeros);
  assert_null(ptx_tensor_map(params, &t));
  PtxLaunch l = {"k", {1, 1, 1}, {32, 1, 1}, SHARED, params, sizeof params};
  int wrong = m && ptx_launch(m, &l, error, n) ? wrong_results(d, t.at) : -1;
  ptx_module_free(m), ptx_device_free(d);
  return wrong;
}

/* A copy into other words, begun before the wait for the last one out, and waited for after it. */
#define ROOM_AND_COPY                                                                              \
  "add.s32 %r11, %r10, 2048; add.s32 %r12, %r10, 1024; and.b32 %r21, %r20, 1; mov.u32 %r27, 0;\n"  \
  "setp.ne.u32 %p1, %r20, 0; @%p1 bra BRING;\n"                                                    \
  "mbarrier.init.shared::cta.b64 [%r11], 1; fence.mbarrier_init.release.cluster;\n"                \
  "fence.proxy.async.shared::cta;\n"                                                               \
  "BRING: mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 1024;\n"                            \
  "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r12], "      \
  "[%d1, {%r27, %r27}], [%r11];\ncp.async.bulk.wait_group.read 0;\n"                               \
  "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], %r21; @!%p2 bra WAIT;"

static void right(void **state) {
  (void)state;
  for (uint64_t i = 0; i < 40; i++) {
    char error[1000] = "";
    Parts parts = {.room = i == 1 ? ROOM_AND_COPY : NULL};
    int wrong = wrong_of(&parts, i & 1, i & 2, i / 4, error, sizeof error);
    if (wrong) fail_msg("case %d: %d wrong %s", (int)i, wrong, error);
  }
}

#define COPY_FROM(map, at, from)                                                                   \
  "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [" map ", {" at "}], [" from "];"

/* Broken kernels: what is reported with checks (says), and without them in late mode (late). NULL:
   nothing, but numbers are wrong; "": not tried. */
static const struct Broken {
  Parts parts;
  const char *says, *late;
} broken[] = {
    {{.room = ""}, "that a bulk copy read, without a wait", NULL},
    {{.room = "cp.async.bulk.wait_group.read 1;"}, "that a bulk copy read, without a wait", NULL},
    {{.met = ""}, "that a bulk copy read, without a wait", ""},
    {{.room = ROOM_AND_COPY, .met = ""}, "that a bulk copy read, without a wait", ""},
    {{.fence = ""}, "no fence.proxy.async followed", ""},
    {{.fenced = ""}, "no barrier between another lane's fence", ""},
    {{.commit = ""}, "that a bulk copy read, without a wait", "out of its shared memory was"},
    {{.end = ""}, "out of its shared memory was", "out of its shared memory was"},
    {{.copy = COPY_FROM("%d1", "%r25, %r26", "%r10+64")}, "misaligned", "misaligned"},
    {{.copy = COPY_FROM("%d1", "%r25, %r26", "%r10+4096")}, "out of bounds", "out of bounds"},
    {{.copy = COPY_FROM("%d1", "%r25, %r26", "%r10+1024")}, "nobody wrote the byte", NULL},
    {{.copy = COPY_FROM("%d1+64", "%r25, %r26", "%r10")}, "is no parameter", "is no parameter"},
    {{.copy = ""}, NULL, NULL},
};

static void reported(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
    for (int late = 0; late < 2; late++) {
      char error[1000] = "";
      const char *says = late ? broken[i].late : broken[i].says;
      int wrong = wrong_of(&broken[i].parts, !late, late, 0, error, sizeof error);
      if (says && !*says) continue;
      if (says ? wrong != -1 || !strstr(error, says) : wrong <= 0)
        fail_msg("case %d, late %d: `%s` expected: %d wrong %s", (int)i, late,
                 says ? says : "wrong numbers", wrong, error);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(right), cmocka_unit_test(reported)};
  return cmocka_run_group_tests_name("leave", tests, NULL, NULL);
}
