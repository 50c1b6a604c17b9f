/* Each lane-wise instruction against hand-computed results (ops.def), with all lanes and with some.
 *
 * Every row becomes a kernel of one module. The odd lanes run it in a branch of their own as well:
 * the even lanes must keep what they had. With the module's text as argument 1 nothing is run but
 * the text is written to that file, for ptxas (assemble.sh). */
#include "ptx.h"
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct Case {
  const char *text;
  uint64_t a, b, c, expect;
} Case;
static const Case cases[] = {
#define OP(TEXT, A, B, C, R) {TEXT, A, B, C, R},
#include "ops.def"
};
enum { COUNT = sizeof cases / sizeof *cases, LANES = 32 };

static const char *head = ".version 7.8\n.target sm_80\n.address_size 64\n";
static const char *setup =
    "{\n.reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<19>;\n.reg .b64 %d<19>;\n.reg .f32 "
    "%f<9>;\n"
    ".reg .f64 %g<9>;\nld.param.u64 %d10, [out];\nld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\n"
    "ld.param.u64 %d3, [c];\n";
static const char *cut =
    "cvt.u32.u64 %rI, %dI;\ncvt.u16.u64 %hI, %dI;\nmov.b32 %fI, %rI;\nmov.b64 %gI, %dI;\n"
    "and.b32 %r9, %rI, 1;\nsetp.eq.b32 %pI, %r9, 1;\n";

static void put(char **at, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(char **at, const char *format, ...) {
  va_list list;
  va_start(list, format);
  *at += vsprintf(*at, format, list);
  va_end(list);
}

static void put_cut(char **at, int i) {
  for (const char *s = cut; *s; s++) *(*at)++ = *s == 'I' ? (char)('0' + i) : *s;
}

/* The register with number 0 that the text writes: its class. */
static char class_of(const char *text) {
  for (const char *s = text; (s = strchr(s, '%')); s++)
    if (s[2] == '0') return s[1];
  return 'r';
}

static void put_result(char **at, char k) {
  const char *as = k == 'p'   ? "selp.u32 %r0, 1, 0, %p0;\ncvt.u64.u32 %d0, %r0;\n"
                   : k == 'h' ? "cvt.u64.u16 %d0, %h0;\n"
                   : k == 'r' ? "cvt.u64.u32 %d0, %r0;\n"
                   : k == 'f' ? "mov.b32 %r0, %f0;\ncvt.u64.u32 %d0, %r0;\n"
                   : k == 'g' ? "mov.b64 %d0, %g0;\n"
                              : "";
  put(at, "%s", as);
}

static void put_kernel(char **at, int i, bool part) {
  const char *text = cases[i].text;
  put(at, ".visible .entry k%d%s(.param .u64 out, .param .u64 a, .param .u64 b, .param .u64 c)\n%s",
      i, part ? "part" : "", setup);
  for (int k = 1; k <= 3; k++) put_cut(at, k);
  put(at,
      "mov.u32 %%r8, %%tid.x;\nmov.u64 %%d0, 77;\nmov.b32 %%r0, 77;\nmov.b16 %%h0, 77;\n"
      "mov.f32 %%f0, 0f00000000;\nmov.f64 %%g0, 0d0000000000000000;\nsetp.eq.u32 %%p0, 0, 1;\n");
  if (part) put(at, "and.b32 %%r9, %%r8, 1;\nsetp.eq.u32 %%p8, %%r9, 0;\n@%%p8 bra SKIP;\n");
  put(at, "%s\n", text);
  put_result(at, class_of(text));
  if (part) put(at, "SKIP:\n");
  put(at, "mul.wide.u32 %%d4, %%r8, 8;\nadd.s64 %%d4, %%d4, %%d10;\nst.global.u64 [%%d4], "
          "%%d0;\nret;\n}\n");
}

static char *module_text(void) {
  char *text = malloc(COUNT * 4000), *at = text;
  put(&at, "%s", head);
  for (int i = 0; i < COUNT; i++) put_kernel(&at, i, false), put_kernel(&at, i, true);
  return text;
}

static int run(PtxDevice *d, PtxModule *m, int i, bool part) {
  char name[32], error[1000];
  snprintf(name, sizeof name, "k%d%s", i, part ? "part" : "");
  uint64_t out = ptx_alloc(d, 8 * LANES), got[LANES];
  uint64_t params[4] = {out, cases[i].a, cases[i].b, cases[i].c};
  PtxLaunch l = {name, {1, 1, 1}, {LANES, 1, 1}, 0, params, sizeof params};
  int wrong = 0;
  if (!ptx_launch(m, &l, error, sizeof error)) return printf("%s: %s\n", cases[i].text, error), 1;
  ptx_read(d, got, out, sizeof got);
  for (int k = 0; k < LANES; k++) {
    uint64_t want = part && !(k & 1) ? 77 : cases[i].expect;
    if (got[k] != want && !wrong++)
      printf("%s: lane %d has %#llx, expected %#llx\n", cases[i].text, k,
             (unsigned long long)got[k], (unsigned long long)want);
  }
  ptx_release(d, out);
  return wrong > 0;
}

static void test_ops(void **state) {
  (void)state;
  char *text = module_text(), error[1000];
  PtxDevice *d = ptx_device_new(&(PtxOptions){.check = true});
  PtxModule *m = ptx_parse(d, text, error, sizeof error);
  if (!m) fail_msg("%s", error);
  int wrong = 0;
  for (int i = 0; i < COUNT; i++) wrong += run(d, m, i, false) + run(d, m, i, true);
  ptx_module_free(m), ptx_device_free(d), free(text);
  assert_int_equal(wrong, 0);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    FILE *f = fopen(argv[1], "w");
    char *text = module_text();
    int bad = !f || fputs(text, f) < 0 || fclose(f);
    free(text);
    return bad;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ops)};
  return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
