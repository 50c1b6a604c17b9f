/* Each check of the machine shown by a small wrong kernel (checks.def); texts it must refuse, with
 * the line and the reason; launches that cannot be. */
#include "small.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct Check {
  const char *name;
  uint32_t threads, ctas, shared;
  const char *body, *says; /* says: one of the texts between | */
} Check;
static const Check checks[] = {
#define CHECK(NAME, T, C, S, BODY, SAYS) {#NAME, T, C, S, BODY, SAYS},
#include "checks.def"
};
enum { COUNT = sizeof checks / sizeof *checks };

static bool says(const char *error, const char *expected) {
  char all[400], *save = NULL;
  snprintf(all, sizeof all, "%s", expected);
  for (char *one = strtok_r(all, "|", &save); one; one = strtok_r(NULL, "|", &save))
    if (strstr(error, one)) return true;
  return false;
}

static void test_checks(void **state) {
  (void)state;
  static uint32_t out[OUT];
  int wrong = 0;
  for (int i = 0; i < COUNT; i++)
    for (uint64_t k = 0; k < 4; k++) {
      const Check *c = &checks[i];
      char error[1000] = "nothing";
      Small s = {
          c->body,    NULL,
          c->threads, c->ctas,
          c->shared,  {.check = true, .late = k & 1, .seed = k > 1 ? k : 0, .budget = 200000}};
      bool ran = small_run(&s, out, error, sizeof error);
      if (!ran && says(error, c->says) && strstr(error, "kernel `k`, PTX line ")) continue;
      printf("%s (%d): %s\n", c->name, (int)k, ran ? "no report" : error), wrong++;
    }
  assert_int_equal(wrong, 0);
}

/* ---- texts ---- */
static const struct {
  const char *body, *says;
} refused[] = {
    {"frobnicate.b32 %r4, %r5;",
     "PTX line 23: instruction `frobnicate.b32` is not known to this machine"},
    {"add.s31 %r4, %r5, %r6;", "`add.s31` is not known"},
    {"add.s32 %r4, %r5;", "`add.s32` has 2 operands here"},
    {"add.s32 %d4, %r5, %r6;", "`add.s32` gives 32 bits, the register has 64 bits"},
    {"add.s32 %r4, %f5, %p6;", "the register has a predicate"},
    {"add.s32 %r4, %r5, %r600;", "`%r600` is not declared"},
    {"add.s32 5, %r5, %r6;", "needs a register for its result"},
    {"mov.u32 %r4, 0f3F800000", "expected `;`"},
    {"mov.u64 %d4, 0f3F800000;", "a float of another size"},
    {"bra.uni NOWHERE;", "PTX line 23: no label `NOWHERE`"},
    {"L: L: mov.u32 %r4, 1;", "`L` is declared twice"},
    {"{ mov.u32 %r4, 1;", "`{` without its `}`"},
    {"@%r4 bra L; L:", "the guard is not a predicate"},
    {"call.uni f;", "call of `f`, which this text does not define"},
    {"ld.global.u32 %r4, %d3;", "needs an address in brackets"},
    {"ld.global.v2.u32 %r4, [%d3];", "has 1 registers here"},
    {"ld.global.v4.u64 {%d4, %d5, %d6, %d7}, [%d3];", "not known"},
    {"ld.nowhere.u32 %r4, [%d3];", "not known"},
    {"ld.global.u32 %r4, [nothing];", "`nothing` is not declared"},
    {"cp.async.cg.shared.global [%r4], [%d3], 8;", "copies 16 bytes"},
    {"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f0}, {%r4}, {%r5}, {%f0};",
     "needs 4 registers"},
    {".reg .b32 %big<99999999>;", "too many registers"},
    {".local .b8 huge[99999999999];", "array too large"},
    {".shared .align 3 .b8 odd[4];", "bad alignment"},
    {"texture.b32 %r4;", "not known"},
    {"ret 5;", "operands here"},
};

static void test_refused(void **state) {
  (void)state;
  static uint32_t out[OUT];
  int wrong = 0;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char error[1000] = "nothing";
    Small s = {refused[i].body, NULL, 1, 1, 0, {0}};
    bool ran = small_run(&s, out, error, sizeof error);
    if (ran || !strstr(error, refused[i].says))
      printf("`%s`: %s\n", refused[i].body, ran ? "accepted" : error), wrong++;
  }
  assert_int_equal(wrong, 0);
}

static const struct {
  const char *text, *says;
} modules[] = {
    {".version 8.0\n.target sm_90a\n.address_size 64\n",
     "the text is for sm_90a, this device is sm_80"},
    {".version 7.0\n.target sm_80\n.address_size 32\n", "only .address_size 64"},
    {".entry k() { exit; } .entry k() { exit; }", "`k` is there twice"},
    {".entry k(.param .u64 a, .param .u64 a) { exit; }", "`a` is declared twice"},
    {".func f() { call.uni f; } .entry k() { call.uni f; }", "nested too deeply"},
    {".func f(.param .b32 a) { ret; } .entry k() { call.uni f; }", "too few parameters"},
    {".global .b32 x[2] = {1, 2, 3};", "too many initial values"},
    {".nonsense", "unknown directive `.nonsense`"},
    {".entry k(.param .u64 a", "expected `)`"},
    {".entry k() .maxntid 0 { exit; }", "a size of threads is 1 to"},
    {"5", "expected a directive"},
};

static void test_modules(void **state) {
  (void)state;
  PtxDevice *d = ptx_device_new(NULL);
  int wrong = 0;
  for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
    char error[1000] = "accepted";
    PtxModule *m = ptx_parse(d, modules[i].text, error, sizeof error);
    ptx_module_free(m);
    if (m || !strstr(error, modules[i].says)) printf("%s: %s\n", modules[i].text, error), wrong++;
  }
  assert_int_equal(wrong, 0);
  ptx_device_free(d);
}

/* ---- launches ---- */
static const char *const limits =
    ".visible .entry k(.param .u32 a) .maxntid 64, 1, 1 { .shared .b8 s[1024]; exit; }"
    ".visible .entry q() .reqntid 32, 2, 1 { exit; }";

static void refused_launch(PtxModule *m, PtxLaunch l, const char *says) {
  char error[1000] = "launched";
  bool ran = ptx_launch(m, &l, error, sizeof error);
  if (ran || !strstr(error, says)) fail_msg("%s, expected %s", error, says);
}

static void test_launches(void **state) {
  (void)state;
  char error[1000];
  uint32_t five = 5;
  PtxDevice *d = ptx_device_new(&(PtxOptions){.shared_limit = 50000});
  PtxModule *m = ptx_parse(d, limits, error, sizeof error);
  assert_non_null(m);
  PtxEntry e;
  assert_true(ptx_entry(m, "k", &e));
  assert_int_equal(e.params_bytes, 4), assert_int_equal(e.static_shared, 1024),
      assert_int_equal(e.max_threads, 64);
  PtxLaunch good = {"k", {2, 1, 1}, {64, 1, 1}, 48976, &five, 4};
  assert_true(ptx_launch(m, &good, error, sizeof error));
  refused_launch(m, (PtxLaunch){"x", {1, 1, 1}, {1, 1, 1}, 0, &five, 4}, "no such entry");
  refused_launch(m, (PtxLaunch){"k", {1, 1, 1}, {65, 1, 1}, 0, &five, 4}, ".maxntid says 64");
  refused_launch(m, (PtxLaunch){"q", {1, 1, 1}, {64, 1, 1}, 0, NULL, 0}, ".reqntid says 32");
  refused_launch(m, (PtxLaunch){"k", {1, 1, 1}, {64, 1, 1}, 48977, &five, 4},
                 "50001 bytes of shared memory, the limit is 50000");
  refused_launch(m, (PtxLaunch){"k", {1, 1, 1}, {64, 1, 1}, 0, NULL, 0},
                 "bytes of parameters, it takes 4");
  refused_launch(m, (PtxLaunch){"k", {0, 1, 1}, {64, 1, 1}, 0, &five, 4},
                 "grid or block out of range");
  ptx_module_free(m), ptx_device_free(d);
}

/* ---- memory ---- */
static void test_memory(void **state) {
  (void)state;
  PtxDevice *d = ptx_device_new(&(PtxOptions){.memory = 1 << 20});
  uint64_t a = ptx_alloc(d, 100), b = ptx_alloc(d, 100), first;
  uint8_t bytes[100] = {1, 2, 3};
  int64_t size;
  assert_true(a && b && a % 256 == 0 && b % 256 == 0 && b - a >= 256);
  assert_int_equal(ptx_unwritten(d, a, 100), 0);
  assert_true(ptx_write(d, a, bytes, 10));
  assert_int_equal(ptx_unwritten(d, a, 100), 10);
  assert_true(ptx_copy(d, b + 1, a, 20));
  assert_int_equal(ptx_unwritten(d, b + 1, 20), 10);
  assert_true(ptx_set32(d, a, 7, 25) && ptx_set8(d, b, 1, 100) && ptx_set16(d, b, 1, 50));
  assert_int_equal(ptx_unwritten(d, a, 100), -1);
  assert_false(ptx_write(d, a, bytes, 101) || ptx_read(d, bytes, a + 99, 2) ||
               ptx_set32(d, a, 1, 26));
  assert_true(ptx_range(d, a + 50, &first, &size) && first == a && size == 100);
  assert_true(ptx_release(d, a));
  assert_false(ptx_release(d, a) || ptx_read(d, bytes, a, 1));
  assert_int_equal(ptx_alloc(d, 2 << 20), 0);
  for (int i = 0; i < 10000; i++) assert_true(ptx_release(d, ptx_alloc(d, 3000)));
  ptx_device_free(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_checks), cmocka_unit_test(test_refused), cmocka_unit_test(test_modules),
      cmocka_unit_test(test_launches), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests_name("checks", tests, NULL, NULL);
}
