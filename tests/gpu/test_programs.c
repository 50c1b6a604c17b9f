/* Whole kernels that are right (programs.def): control flow, memory spaces, barriers, warp and
 * matrix instructions, asynchronous copies. Results are known for every thread; no check may
 * complain, whatever the order and whenever asynchronous data arrives. */
#include "small.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct Program {
  const char *name;
  uint32_t threads, ctas, shared;
  const char *before, *body;
  uint32_t (*expect)(uint32_t i, uint32_t x);
} Program;
#define PROGRAM(NAME, T, C, S, BEFORE, BODY, EXPECT)                                               \
  static uint32_t expect_##NAME(uint32_t i, uint32_t x) {                                          \
    (void)i, (void)x;                                                                              \
    return (uint32_t)(EXPECT);                                                                     \
  }
#include "programs.def"
#undef PROGRAM
static const Program programs[] = {
#define PROGRAM(NAME, T, C, S, BEFORE, BODY, EXPECT) {#NAME, T, C, S, BEFORE, BODY, expect_##NAME},
#include "programs.def"
};
enum { COUNT = sizeof programs / sizeof *programs };

static int run(const Program *p, const PtxOptions *o) {
  static uint32_t out[OUT];
  char error[1000];
  Small s = {p->body, p->before, p->threads, p->ctas, p->shared, *o};
  if (!small_run(&s, out, error, sizeof error)) return printf("%s: %s\n", p->name, error), 1;
  for (uint32_t i = 0; i < p->threads * p->ctas; i++) {
    uint32_t want = p->expect(i, i % p->threads);
    if (out[i] == want) continue;
    printf("%s: out[%u] is %#x, expected %#x\n", p->name, i, out[i], want);
    return 1;
  }
  return 0;
}

static void test_programs(void **state) {
  (void)state;
  int wrong = 0;
  for (int i = 0; i < COUNT; i++)
    for (uint64_t k = 0; k < 6; k++) {
      PtxOptions o = {.check = k != 1, .late = k & 1, .seed = k};
      wrong += run(&programs[i], &o);
    }
  assert_int_equal(wrong, 0);
}

/* A product against sums in the order of K: m16n8k16 and m16n8k8 of every type. */
static void product(const char *shape, const char *type, int depth, int each) {
  char body[2000], *at = body;
  int na = each == 2 ? depth / 4 : depth / 2, nb = na / 2;
  uint32_t out[OUT];
  char error[1000];
  bool tf32 = each == 1;
  const char *convert = tf32                    ? ""
                        : !strcmp(type, "bf16") ? "cvt.rn.bf16x2.f32"
                                                : "cvt.rn.f16x2.f32";
  /* A[row][k] = row + 2k, B[k][col] = k - col: small enough to be exact everywhere */
  at += sprintf(at, "shr.u32 %%r10, %%r0, 2; and.b32 %%r11, %%r0, 3;");
  for (int m = 0; m < 2; m++)
    for (int i = 0; i < (m ? nb : na); i++) {
      int half = m ? i : i >> 1;
      for (int h = 0; h < each; h++) {
        at += sprintf(at, "mad.lo.s32 %%r12, %%r11, %d, %d;", each, h + 4 * each * half);
        if (!m)
          at += sprintf(
              at, "shl.b32 %%r12, %%r12, 1; add.s32 %%r12, %%r12, %%r10; add.s32 %%r12, %%r12, %d;",
              8 * (i & 1));
        else at += sprintf(at, "sub.s32 %%r12, %%r12, %%r10;");
        at += sprintf(at, "cvt.rn.f32.s32 %%f%d, %%r12;", h);
      }
      if (tf32) at += sprintf(at, "mov.b32 %%r%d, %%f0;", 20 + 10 * m + i);
      else at += sprintf(at, "%s %%r%d, %%f1, %%f0;", convert, 20 + 10 * m + i);
    }
  const char *a = na == 4 ? "{%r20, %r21, %r22, %r23}" : "{%r20, %r21}";
  const char *b = nb == 2 ? "{%r30, %r31}" : "{%r30}";
  at += sprintf(
      at,
      "mov.f32 %%f10, 0f3F800000;mma.sync.aligned.%s.row.col.f32.%s.%s.f32 {%%f20, %%f21, %%f22, "
      "%%f23}, %s, %s,"
      "{%%f10, %%f10, %%f10, %%f10}; mul.wide.u32 %%d4, %%r0, 16; add.s64 %%d4, %%d4, %%d1;"
      "cvt.rzi.s32.f32 %%r40, %%f20; cvt.rzi.s32.f32 %%r41, %%f21; cvt.rzi.s32.f32 %%r42, %%f22;"
      "cvt.rzi.s32.f32 %%r43, %%f23; st.global.v4.u32 [%%d4], {%%r40, %%r41, %%r42, %%r43};",
      shape, type, type, a, b);
  Small s = {body, NULL, 32, 1, 0, {.check = true}};
  if (!small_run(&s, out, error, sizeof error)) fail_msg("%s %s: %s", shape, type, error);
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) {
      int row = l / 4 + 8 * (i / 2), column = 2 * (l % 4) + i % 2, sum = 1;
      for (int k = 0; k < depth; k++) sum += (row + 2 * k) * (k - column);
      if (out[4 * l + i] != (uint32_t)sum)
        fail_msg("%s %s: lane %d register %d is %d, expected %d", shape, type, l, i,
                 (int)out[4 * l + i], sum);
    }
}

static void test_products(void **state) {
  (void)state;
  product("m16n8k16", "bf16", 16, 2), product("m16n8k16", "f16", 16, 2);
  product("m16n8k8", "bf16", 8, 2), product("m16n8k8", "f16", 8, 2);
  product("m16n8k8", "tf32", 8, 1), product("m16n8k4", "tf32", 4, 1);
}

static int write_all(const char *path) {
  FILE *f = fopen(path, "w");
  if (!f) return 1;
  fputs(small_head, f);
  for (int i = 0; i < COUNT; i++) {
    char *text = small_text(programs[i].name, programs[i].before, programs[i].body);
    fputs(text, f);
    free(text);
  }
  return fclose(f) != 0;
}

/* Each program as a module of its own: seeds for fuzz_ptx.c. */
static int write_each(const char *dir) {
  for (int i = 0; i < COUNT; i++) {
    char path[500], *text = small_text("k", programs[i].before, programs[i].body);
    snprintf(path, sizeof path, "%s/%s", dir, programs[i].name);
    FILE *f = fopen(path, "w");
    if (!f) return 1;
    fprintf(f, "%s%s", small_head, text);
    free(text), fclose(f);
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 2 && !strcmp(argv[1], "--seeds")) return write_each(argv[2]);
  if (argc > 1) return write_all(argv[1]);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs),
                                     cmocka_unit_test(test_products)};
  return cmocka_run_group_tests_name("programs", tests, NULL, NULL);
}
