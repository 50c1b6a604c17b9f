/* wgmma on the PTX machine: one product of 64 x 8 x 16, or of 64 x 8 x 32 in 8 bits, whose operands
 * are filled row by row, right in both orders and modes; and what is wrong with others is said, or
 * shows in the numbers. */
#include "small.h"
#include "ptx_lanes.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { THREADS = 128, SHARED = 8192 + 1024 };

typedef struct Parts { /* texts of parts of the kernel; NULL: the right text */
  const char *fence, *wait, *descriptor, *rows;
  const char *before; /* text before the wait */
  int turned;         /* the left operand: its rows are k */
  bool inside;        /* the left operand is in registers: 1 for k = 0 and 1, else 0 */
  const char *form;   /* type of 8 bits, to which cvt rounds the rows; NULL: bf16 */
  const char *forms;
  uint32_t threads;
} Parts;

/* The text of the left operand, or of the orders of both. */
static const char *product_of(const Parts *parts, bool orders) {
  if (parts->form) return orders ? "1, 1" : "%d4";
  if (parts->inside) return orders ? "1, 1, 0" : "{%r30, %r31, %r31, %r31}";
  return !orders ? "%d4" : parts->turned ? "1, 1, 1, 0" : "1, 1, 0, 0";
}

/* Every element of row n of shared memory, of 128 bytes each, is n % 8: 64 rows of a, 8 of b. */
static void text_of(const Parts *parts, char *body, size_t n) {
  snprintf(
      body, n,
      "mov.u32 %%r10, sm; mov.u32 %%r11, 0;\n"
      "F: mad.lo.s32 %%r12, %%r11, 128, %%r0; shl.b32 %%r13, %%r12, 2; shr.u32 %%r14, %%r13, 7;"
      "and.b32 %%r14, %%r14, 7; cvt.rn.f32.u32 %%f0, %%r14; %s"
      "add.s32 %%r13, %%r13, %%r10; st.shared.u32 [%%r13], %%r15; add.s32 %%r11, %%r11, 1;"
      "setp.lt.u32 %%p0, %%r11, %s; @%%p0 bra F;\n"
      "%s bar.sync 0; cvt.u64.u32 %%d4, %%r10; shr.u64 %%d4, %%d4, 4; or.b64 %%d4, %%d4, %s;"
      "add.s64 %%d5, %%d4, 512; setp.ne.u32 %%p1, %%r0, %%r0; and.b32 %%r31, %%r0, 3;"
      "setp.eq.u32 %%p2, %%r31, 0; mov.u32 %%r31, 0; selp.b32 %%r30, 0x3f803f80, 0, %%p2;"
      "wgmma.fence.sync.aligned;"
      "wgmma.mma_async.sync.aligned.m64n8%s {%%f10, %%f11, %%f12, %%f13}, %s, "
      "%%d5, %%p1, %s; wgmma.commit_group.sync.aligned; %s %s"
      "mul.wide.u32 %%d6, %%r0, 16; add.s64 %%d6, %%d6, %%d1;"
      "cvt.rzi.u32.f32 %%r20, %%f10; cvt.rzi.u32.f32 %%r21, %%f11; cvt.rzi.u32.f32 %%r22, %%f12;"
      "cvt.rzi.u32.f32 %%r23, %%f13; st.global.v4.u32 [%%d6], {%%r20, %%r21, %%r22, %%r23};",
      parts->form ? parts->form : "cvt.rn.bf16x2.f32 %r15, %f0, %f0;",
      parts->rows ? parts->rows : "18",
      parts->fence ? parts->fence : "fence.proxy.async.shared::cta;",
      parts->descriptor ? parts->descriptor : "0x4000004000010000",
      parts->forms ? parts->forms : "k16.f32.bf16.bf16", product_of(parts, false),
      product_of(parts, true), parts->before ? parts->before : "",
      parts->wait ? parts->wait : "wgmma.wait_group.sync.aligned 0;");
}

/* Sums that are wrong; -1: the launch failed. */
static int wrong_of(const Parts *parts, bool late, char *error, int n) {
  static uint32_t out[OUT];
  static char body[4000];
  int wrong = 0;
  text_of(parts, body, sizeof body);
  Small s = {body, NULL, parts->threads ? parts->threads : THREADS, 1, SHARED, {.sm = 90}};
  s.options.check = true, s.options.late = late;
  if (!small_run(&s, out, error, n)) return -1;
  for (int t = 0; t < THREADS; t++)
    for (int i = 0; i < 4; i++) {
      int row = t / 32 * 16 + t % 32 / 4 + 8 * (i / 2), column = 2 * (t % 4) + i % 2;
      int want = parts->turned ? 56 * column : (parts->form ? 32 : 16) * (row % 8) * column;
      if (parts->inside) want = row % 16 < 8 ? 2 * column : 0;
      wrong += out[4 * t + i] != (uint32_t)want;
    }
  return wrong;
}

static void right(void **state) {
  (void)state;
  char error[1000] = "";
  for (int i = 0; i < 4; i++) {
    int wrong = wrong_of(&(Parts){.turned = i & 1}, i & 2, error, sizeof error);
    if (wrong) fail_msg("case %d: %d wrong %s", i, wrong, error);
  }
}

#define EIGHT(form)                                                                                \
  "cvt.rn.satfinite." form                                                                         \
  "x2.f32 %h0, %f0, %f0; cvt.u32.u16 %r15, %h0; shl.b32 %r16, %r15, 16; or.b32 %r15, %r15, %r16;"

/* Rows are numbers of one form: read as another, all but 0 are others. Products of other depths are
 * unknown. */
static void of_eight_bits(void **state) {
  (void)state;
  char error[1000] = "";
  const Parts of[] = {{.form = EIGHT("e4m3"), .forms = "k32.f32.e4m3.e4m3"},
                      {.form = EIGHT("e5m2"), .forms = "k32.f32.e5m2.e5m2"},
                      {.form = EIGHT("e5m2"), .forms = "k32.f32.e4m3.e5m2"},
                      {.form = EIGHT("e4m3"), .forms = "k16.f32.e4m3.e4m3"},
                      {.form = EIGHT("e4m3"), .forms = "k32.f32.bf16.bf16"}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    for (int late = 0; late < 2; late++) {
      int wrong = wrong_of(&of[i], late, error, sizeof error);
      bool good = i < 2 ? !wrong : i == 2 ? wrong > 0 : wrong < 0;
      if (!good) fail_msg("case %zu: %d wrong %s", i, wrong, error);
    }
}

static float of_code(bool e5m2, int code) {
  return e5m2 ? f16_to_float((uint16_t)(code << 8)) : e4m3_to_float((uint8_t)code);
}

/* In both forms of 8 bits: numbers round to themselves, those halfway between two codes to the even
 * code, those beyond the range to its end. */
static void codes(void **state) {
  (void)state;
  for (int e5m2 = 0; e5m2 < 2; e5m2++) {
    uint8_t (*code_of)(float) = e5m2 ? float_to_e5m2 : float_to_e4m3;
    int most = e5m2 ? 0x7b : 0x7e;
    for (int code = 0; code < most; code++) {
      float x = of_code(e5m2, code), next = of_code(e5m2, code + 1), half = x + (next - x) / 2;
      assert_true(x < next);
      assert_int_equal(code_of(x), code);
      assert_int_equal(code_of(half), code + code % 2);
      assert_int_equal(code_of(-nextafterf(half, 0)), code | 0x80);
      assert_int_equal(code_of(nextafterf(half, INFINITY)), code + 1);
    }
    assert_int_equal(code_of(1e9f), most);
    assert_int_equal(code_of(-INFINITY), most | 0x80);
    assert_int_equal(code_of(NAN) & 0x7f, 0x7f);
    assert_true(of_code(e5m2, most) == (e5m2 ? 57344 : 448) && isnan(of_code(e5m2, 0x7f)));
  }
}

static void refused(void **state) {
  (void)state;
  const struct {
    Parts parts;
    const char *says;
  } of[] = {{{.fence = ""}, "no fence.proxy.async followed"},
            {{.descriptor = "0x0000004000010000"}, "without swizzles of 128 bytes"},
            {{.descriptor = "0x4000002000010000"}, "the descriptor says 512"},
            {{.descriptor = "0x4000004000013000"}, "out of shared memory"},
            {{.rows = "17"}, "nobody wrote"},
            {{.threads = 96}, "four whole warps"}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    char error[1000] = "";
    int wrong = wrong_of(&of[i].parts, i & 1, error, sizeof error);
    if (wrong != -1 || !strstr(error, of[i].says))
      fail_msg("`%s` expected: %d wrong %s", of[i].says, wrong, error);
  }
}

/* Sums are not there before the wait. */
static void early(void **state) {
  (void)state;
  char error[1000] = "";
  assert_int_not_equal(wrong_of(&(Parts){.wait = ""}, true, error, sizeof error), 0);
}

/* A lane reads what its neighbour wrote before the wait, at bytes that no product reads. Waits for
 * products and fences, which each lane makes for itself, do not order their accesses. */
static void among_lanes(void **state) {
  (void)state;
  static const struct {
    const char *between;
    bool good;
  } of[] = {{"wgmma.wait_group.sync.aligned 0;", false},
            {"wgmma.wait_group.sync.aligned 0; fence.proxy.async.shared::cta;", false},
            {"wgmma.wait_group.sync.aligned 0; bar.warp.sync -1;", true},
            {"bar.warp.sync -1; wgmma.wait_group.sync.aligned 0;", true}};
  for (size_t i = 0; i < 2 * sizeof of / sizeof *of; i++) {
    char error[1000] = "", wait[500];
    snprintf(wait, sizeof wait,
             "%s xor.b32 %%r17, %%r16, 4; @%%p3 ld.shared.u32 %%r18, [%%r17+64];",
             of[i / 2].between);
    const Parts parts = {.before = "setp.lt.u32 %p3, %r0, 16; shl.b32 %r16, %r0, 2;"
                                   "add.s32 %r16, %r16, %r10; @%p3 st.shared.u32 [%r16+64], %r0;",
                         .wait = wait};
    int wrong = wrong_of(&parts, i % 2, error, sizeof error);
    if (of[i / 2].good ? wrong : wrong != -1 || !strstr(error, "race on shared memory"))
      fail_msg("case %zu: %d wrong %s", i, wrong, error);
  }
}

/* The left operand in registers; in late mode they are read at the wait, not before. */
static void in_registers(void **state) {
  (void)state;
  char error[1000] = "";
  const Parts right_one = {.inside = true},
              changed = {.inside = true, .before = "mov.u32 %r30, 0;"};
  for (int late = 0; late < 2; late++) {
    assert_int_equal(wrong_of(&right_one, late, error, sizeof error), 0);
    int wrong = wrong_of(&changed, late, error, sizeof error);
    if (late ? wrong <= 0 : wrong) fail_msg("late %d: %d wrong %s", late, wrong, error);
  }
}

/* Text for sm_90a is for that one. */
static void alone(void **state) {
  (void)state;
  static const int sm[] = {80, 90, 100};
  for (int i = 0; i < 3; i++) {
    char error[300] = "";
    PtxDevice *d = ptx_device_new(&(PtxOptions){.sm = sm[i]});
    PtxModule *m =
        ptx_parse(d, ".version 8.0\n.target sm_90a\n.address_size 64\n", error, sizeof error);
    assert_int_equal(m != NULL, sm[i] == 90);
    ptx_module_free(m), ptx_device_free(d);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(right),       cmocka_unit_test(of_eight_bits),
                                     cmocka_unit_test(codes),       cmocka_unit_test(refused),
                                     cmocka_unit_test(early),       cmocka_unit_test(in_registers),
                                     cmocka_unit_test(among_lanes), cmocka_unit_test(alone)};
  return cmocka_run_group_tests_name("wgmma", tests, NULL, NULL);
}
