/* The interpreter in bytes: right placements give the numbers of the mathematics, wrong ones are
 * found. */
#include "common.h"
#include "ir/eights.h"
#include <math.h>

static const char kernels[] =
    "shardc-ir 1\nmodel T\nafter memory\nparam @p : f32[A:4] at(0)\n"
    "param @s : f32[L:3, A:4] at(64)\noutput @y : f32[A:4] at(0)\n"
    "output @z : f32[L:3, A:4] at(64)\n"
    "kernel @exp(%0 : f32[A:4]) {workspace = 16} {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
    "kernel @add(%0 : f32[A:4], %1 : f32[A:4]) {\n%2 = add %0, %1 : f32[A:4]\nreturn %2\n}\n";

/* The message for a broken one must contain one of the words. NULL: the module is correct. */
static void check(const char *lines, const char *complaint, const double *want) {
  Ctx *c = ctx_new();
  Module *m = module_of(c, arena_printf(c->arena, "%s%s", kernels, lines));
  if (!m) fail_msg("%s\n%s", lines, reported(c));
  bool fine = ir_verify(m);
  if (!complaint && !fine) fail_msg("%s\n%s", lines, reported(c));
  Interp *in = interp_new(m, c->arena);
  interp_set(in, "p", (double[]){0, 1, 2, 3});
  interp_set(in, "s", (double[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  fine = interp_run_placed(in, "e");
  if (complaint) {
    if (fine) fail_msg("not noticed: %s\n%s", complaint, lines);
    if (!strstr(interp_error(in), complaint))
      fail_msg("expected `%s`, got: %s", complaint, interp_error(in));
  } else {
    if (!fine) fail_msg("%s\n%s", interp_error(in), lines);
    for (int i = 0; i < 4; i++) assert_true(interp_get(in, "y")->at[i] == (float)want[i]);
  }
  ctx_free(c);
}

static void kernels_in_a_row(void **state) {
  (void)state;
  double want[] = {exp((float)exp(0)), exp((float)exp(1)), exp((float)exp(2)), exp((float)exp(3))};
  check("entry @e {frame = 64} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
        "%1 = kernel @exp, %0 {work_at = 16} : f32[A:4] {0: at(frame + 0)}\n"
        "%2 = kernel @exp, %1 {work_at = 16} : f32[A:4] {0: inplace(%1) at(frame + 0)}\nstore @y, "
        "%2\n}\n",
        NULL, want);
  check("entry @e {frame = 64} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
        "%1 = kernel @exp, %0 {work_at = 16} : f32[A:4] {0: at(frame + 0)}\n"
        "%2 = kernel @exp, %1 {work_at = 0} : f32[A:4] {0: at(frame + 32)}\nstore @y, %2\n}\n",
        "reads bytes that are another value's", NULL); /* the workspace overlaps the operand */
  check("entry @e {frame = 64} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
        "%1 = kernel @exp, %0 {work_at = 32} : f32[A:4] {0: at(frame + 0)}\n"
        "%2 = kernel @exp, %1 {work_at = 32} : f32[A:4] {0: at(frame + 0)}\nstore @y, %2\n}\n",
        "reads bytes that are another value's", NULL); /* in place, without the attribute */
  check("kernel @apart(%0 : f32[A:4]) {apart = [1]} {\n%1 = exp %0 : f32[A:4]\nreturn %1\n}\n"
        "entry @e {frame = 64} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
        "%1 = kernel @exp, %0 {work_at = 16} : f32[A:4] {0: at(frame + 0)}\n"
        "%2 = kernel @apart, %1 : f32[A:4] {0: inplace(%1) at(frame + 0)}\nstore @y, %2\n}\n",
        "reads bytes that are another value's", NULL); /* in place, but `apart` denies it */
  check("entry @e {frame = 20} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
        "%1 = kernel @add, %0, %0 : f32[A:4] {0: at(frame + 8)}\nstore @y, %1\n}\n",
        "outside of its memory", NULL);
  check("entry @e {frame = 20} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
        "%1 = kernel @exp, %0 {work_at = 16} : f32[A:4] {0: at(frame + 0)}\nstore @y, %1\n}\n",
        "workspace outside", NULL);
}

#define TWO_PARTS(second, between)                                                                 \
  "entry @e {frame = 64} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"                      \
  "%1 = kernel @add, %0, %0 : f32[A:4] {0: at(frame + 0)}\n"                                       \
  "%2 = kernel @add, %1, %0 : f32[A:4] {0: at(frame + " second ")}\n" between                      \
  "%3 = concat[A, A -> D] %1, %2 : f32[D:8] {0: assembled at(frame + 0)}\n"                        \
  "%4 = slice[D -> A] %3 {at = 0} : f32[A:4] {0: view(%3 + 0) at(frame + 0)}\n"                    \
  "%5 = slice[D -> A] %3 {at = 4} : f32[A:4] {0: view(%3 + 4) at(frame + 16)}\n"
#define SUM_OF(a, b)                                                                               \
  "%20 = kernel @add, " a ", " b " : f32[A:4] {0: at(global @y + 0)}\nstore @y, %20\n}\n"

/* Parts of a concat, written at their places in it; and once more, added to pieces of a value. */
static void laid(void **state) {
  (void)state;
  check(TWO_PARTS("16", "") SUM_OF("%4", "%5"), NULL, (double[]){0, 5, 10, 15});
  check(TWO_PARTS("32", "") SUM_OF("%4", "%5"), "is not at its place in the result", NULL);
  check(TWO_PARTS("16", "%9 = kernel @add, %0, %0 : f32[A:4] {0: at(frame + 8)}\n")
            SUM_OF("%4", "%5"),
        "not all bytes are its own any more", NULL);
  check(TWO_PARTS("16", "") SUM_OF("%1", "%5"), "another value's", NULL); /* a part, later */
#define OVER                                                                                       \
  "%6 = kernel @add, %4, %0 : f32[A:4] {0: inplace(%4) at(frame + 0)}\n"                           \
  "%7 = kernel @add, %5, %0 : f32[A:4] {0: inplace(%5) at(frame + 16)}\n"                          \
  "%8 = concat[A, A -> D] %6, %7 : f32[D:8] {0: assembled at(frame + 0)}\n"                        \
  "%10 = slice[D -> A] %8 {at = 0} : f32[A:4] {0: view(%8 + 0) at(frame + 0)}\n"                   \
  "%11 = slice[D -> A] %8 {at = 4} : f32[A:4] {0: view(%8 + 4) at(frame + 16)}\n"
  check(TWO_PARTS("16", "") OVER SUM_OF("%10", "%11"), NULL, (double[]){0, 7, 14, 21});
  check(TWO_PARTS("16", "") OVER SUM_OF("%10", "%5"), "another value's", NULL); /* a piece, later */
}

static void globals(void **state) {
  (void)state;
  check("entry @e {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
        "%1 = kernel @add, %0, %0 : f32[A:4] {0: at(global @y + 0)}\nstore @y, %1\n}\n",
        NULL, (double[]){0, 2, 4, 6});
  check("entry @e {frame = 16} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
        "%1 = kernel @add, %0, %0 : f32[A:4] {0: at(frame + 0)}\nstore @p, %1\n"
        "%2 = kernel @add, %0, %1 : f32[A:4] {0: at(global @y + 0)}\nstore @y, %2\n}\n",
        "reads bytes that are another value's", NULL); /* @p is overwritten too early */
  check("entry @e {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
        "%1 = kernel @add, %0, %0 : f32[A:4] {0: at(global @y + 0)}\n}\n",
        "does not hold its value", NULL); /* @y is written without a store */
  check("entry @e {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
        "%1 = slice[A -> B] %0 {at = 1} : f32[B:3] {0: at(global @p + 4)}\n}\n",
        "is no view", NULL);
}

static const char add_slice[] =
    "body @b(%0 : i32[] {at(arg 0 + 0)}, %1 : f32[A:4] {at(arg 1 + 0)}, %2 : f32[A:4] {at(arg 2 + "
    "0)}) {frame = 16} {\n"
    "%3 = kernel @add, %2, %2 : f32[A:4] {0: at(frame + 0)}\n"
    "%4 = kernel @add, %1, %3 : f32[A:4] {0: at(result 0 + 0)}\nreturn %4\n}\n";

static void loops(void **state) {
  (void)state;
  Arena *a = arena_new();
  const char *entry = "entry @e {frame = 48} {\n%%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
                      "%%1 = load @s : f32[L:3, A:4] {0: at(global @s + 0)}\n"
                      "%%2 = loop[L] @b, %%0, %%1 {carry = 1, invariant = 0, trip = 3, work_at = "
                      "%d, slots = [%d]} : "
                      "f32[A:4] {0: at(frame + 0)}\nstore @y, %%2\n}\n";
  const double want[] = {30, 37, 44, 51}; /* p + 2 * sum of s */
  check(arena_printf(a, "%s%s", add_slice, arena_printf(a, entry, 16, 32)), NULL, want);
  check(arena_printf(a, "%s%s", add_slice, arena_printf(a, entry, 16, 0)), "another value's", NULL);
  check(arena_printf(a, "%s%s", add_slice, arena_printf(a, entry, 32, 32)), "another value's",
        NULL);
  check(arena_printf(a, "%s%s", add_slice, arena_printf(a, entry, 40, 16)), "body's frame outside",
        NULL);
  arena_free(a);
}

/* The body returns what it was given, to be stacked: the carried buffers are the slices. */
static void saved_slices(void **state) {
  (void)state;
  const char *reverses[] = {"", "reverse = 1, "};
  Arena *a = arena_new();
  for (int i = 0; i < 2; i++)
    check(arena_printf(
              a,
              "body @b(%%0 : i32[] {at(arg 0 + 0)}, %%1 : f32[A:4] {at(arg 1 + 0)}, %%2 : f32[A:4] "
              "{at(arg 2 + 0)}) {\n"
              "%%3 = kernel @add, %%1, %%2 : f32[A:4] {0: at(result 0 + 0)}\nreturn %%3, %%1\n}\n"
              "entry @e {frame = 64} {\n%%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
              "%%1 = load @s : f32[L:3, A:4] {0: at(global @s + 0)}\n"
              "%%2, %%3 = loop[L] @b, %%0, %%1 {carry = 1, invariant = 0, trip = 3, %swork_at = 0, "
              "slots = [-1]} : "
              "f32[A:4], f32[L:3, A:4] {0: at(frame + 0)} {1: at(frame + 16)}\nstore @y, "
              "%%2\nstore @z, %%3\n}\n",
              reverses[i]),
          NULL, (double[]){15, 19, 23, 27});
  arena_free(a);
}

/* The body updates its argument: one buffer, which the operand is copied into. */
static void updated_in_place(void **state) {
  (void)state;
  check("body @b(%0 : i32[] {at(arg 0 + 0)}, %1 : f32[A:4] {at(arg 1 + 0)}, %2 : f32[A:4] {at(arg "
        "2 + 0)}) {\n"
        "%3 = kernel @add, %1, %2 : f32[A:4] {0: inplace(%1) at(arg 1 + 0)}\nreturn %3\n}\n"
        "entry @e {frame = 64} {\n%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
        "%1 = load @s : f32[L:3, A:4] {0: at(global @s + 0)}\n"
        "%2 = loop[L] @b, %0, %1 {carry = 1, invariant = 0, trip = 3, slots = [-1]} : f32[A:4] {0: "
        "at(frame + 0)}\n"
        "store @y, %2\n}\n",
        NULL, (double[]){15, 19, 23, 27});
}

/* Two loops write one stack, the second one in the buffer of the first, or in one of its own. */
static void one_stack(void **state) {
  (void)state;
  Arena *a = arena_new();
  const char *lines =
      "body @b(%%0 : i32[] {at(arg 0 + 0)}, %%1 : f32[A:4] {at(arg 1 + 0)}) {\n%%2 = kernel @add, "
      "%%1, %%1 : f32[A:4] {0: at(result 0 + 0)}\nreturn %%2\n}\n"
      "body @n(%%0 : i32[] {at(arg 0 + 0)}, %%1 : f32[A:4] {at(arg 1 + 0)}, %%2 : f32[A:4] {at(arg "
      "2 + 0)}) {\n%%3 = kernel @add, %%1, %%1 : f32[A:4] {0: at(result 0 + 0)}\nreturn %%3\n}\n"
      "body @t(%%0 : i32[] {at(arg 0 + 0)}, %%1 : f32[A:4] {at(arg 1 + 0)}, %%2 : f32[A:4] {at(arg "
      "2 + 0)}) {\n%%3 = kernel @add, %%1, %%2 : f32[A:4] {0: inplace(%%1) at(arg 1 + 0)}\nreturn "
      "%%3\n}\n"
      "entry @e {frame = 128} {\n%%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
      "%%1 = load @s : f32[L:3, A:4] {0: at(global @s + 0)}\n"
      "%%2 = loop[L] @b, %%1 {carry = 0, invariant = 0, trip = 2, start = 1, stack_length = 3, "
      "continues = [-2], "
      "reverse = 1} : f32[L:3, A:4] {0: at(frame + 0)}\n"
      "%%3 = loop[L] @n, %%1, %%2 {carry = 0, invariant = 0, trip = 1, stack_length = 3, continues "
      "= "
      "[1]} : "
      "f32[L:3, A:4] {0: %sat(frame + %d)}\n"
      "%%4 = loop[L] @t, %%0, %%3 {carry = 1, invariant = 0, trip = 3, slots = [-1]} : f32[A:4] "
      "{0: "
      "at(frame + %d)}\nstore @y, %%4\n}\n";
  const double want[] = {30, 37, 44, 51}; /* p + 2 * sum of s */
  check(arena_printf(a, lines, "inplace(%2) ", 0, 48), NULL, want);
  check(arena_printf(a, lines, "", 48, 96), NULL, want);
  check(arena_printf(a, lines, "", 32, 96), "another value's", NULL);
  check(arena_printf(a, lines, "inplace(%2) ", 0, 16), "another value's", NULL);
  arena_free(a);
}

#define CODES_OF(name, dim)                                                                        \
  "kernel @" name "(%%0 : bf16[" dim ":4, K:128]) {family = \"row\", codes = [1, 0, 128]} {\n"     \
  "%%1 = cast %%0 : f32[" dim ":4, K:128]\n%%2 = abs %%1 : f32[" dim ":4, K:128]\n"                \
  "%%3 = rmax[K] %%2 : f32[" dim ":4]\n%%4 = quantize %%1, %%3 {format = \"e4m3\"} : f32[" dim     \
  ":4, K:128]\n%%5 = cast %%4 : bf16[" dim ":4, K:128]\nreturn %%5\n}\n"

/* A product of codes of 8 bits, whose buffers have 512 bytes of them and four scales: of 1.1, 2.2
   and 3.3, which e4m3 rounds to 1.125, 2.25 and 3.25. */
static void codes(void **state) {
  (void)state;
  static const char lines[] = CODES_OF("a", "A") CODES_OF(
      "c",
      "C") "kernel @dot(%%0 : bf16[A:4, K:128], %%1 : bf16[C:4, K:128]) {family = \"contract\", "
           "codes = [0, 0, 128, 1, 0, 128]} {\n%%2 = dot[K] %%0, %%1 : f32[A:4, C:4]\n"
           "return %%2\n}\n"
           "kernel @sum(%%0 : f32[A:4, C:4]) {\n%%1 = sum[C] %%0 : f32[A:4]\nreturn %%1\n}\n"
           "kernel @x(%%0 : f32[A:4]) {\n%%1 = const {value = 1.1} : f32[]\n"
           "%%2 = mul %%0, %%1 : f32[A:4]\n%%3 = cast %%2 : bf16[A:4]\n"
           "%%4 = expand[K] %%3 : bf16[A:4, K:128]\nreturn %%4\n}\n"
           "entry @e {frame = 4096} {\n%%0 = load @p : f32[A:4] {0: at(global @p + 0)}\n"
           "%%1 = kernel @x, %%0 : bf16[A:4, K:128] {0: at(frame + 2048)}\n"
           "%%2 = kernel @a, %%1 : bf16[A:4, K:128] {0: at(frame + 0)}\n"
           "%%3 = rename[A -> C] %%1 : bf16[C:4, K:128] {0: view(%%1 + 0) at(frame + 2048)}\n"
           "%%4 = kernel @c, %%3 : bf16[C:4, K:128] {0: at(frame + %d)}\n"
           "%%5 = kernel @dot, %%2, %%4 : f32[A:4, C:4] {0: at(frame + 3072)}\n"
           "%%6 = kernel @sum, %%5 : f32[A:4] {0: at(global @y + 0)}\nstore @y, %%6\n}\n";
  Arena *a = arena_new();
  const double sum = 128 * (1.125 + 2.25 + 3.25), want[] = {0, 1.125 * sum, 2.25 * sum, 3.25 * sum};
  check(arena_printf(a, lines, 528), NULL, want);
  check(arena_printf(a, lines, 520), "reads bytes that are another value's", NULL);
  arena_free(a);
}

/* Every code of both formats is that of its number. */
static void codes_and_numbers(void **state) {
  (void)state;
  for (int i = 0; i < 256; i++) /* by hand: 0x38 and 0x3C are 1 */
    for (int k = 0; k < 2; k++) {
      const EightsFormat *format = eights_format(k ? "e5m2" : "e4m3");
      double units = eights_units(format, (unsigned char)i);
      bool number = fabs(units) <= 1.75 * ldexp(1, format->top);
      if (number && eights_code(format, units) != i) fail_msg("code %d is %g", i, units);
    }
  assert_true(eights_units(eights_format("e4m3"), 0x38) == 1);
  assert_true(eights_units(eights_format("e5m2"), 0x3C) == 1);
  assert_true(eights_units(eights_format("e4m3"), 0xFE) == -448);
  assert_true(eights_code(eights_format("e4m3"), NAN) == 0x7F);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kernels_in_a_row),  cmocka_unit_test(laid),
      cmocka_unit_test(globals),           cmocka_unit_test(loops),
      cmocka_unit_test(saved_slices),      cmocka_unit_test(updated_in_place),
      cmocka_unit_test(one_stack),         cmocka_unit_test(codes),
      cmocka_unit_test(codes_and_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
