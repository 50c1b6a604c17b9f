/* Exact arithmetic of the interpreter: the laws that passes rely on, and differences that rounding
   would hide. */
#include "common.h"
#include "ir/interp/field.h"
#include <math.h>

enum { TRIES = 200 };

static double element(int i) { return field_random(11, (uint64_t)i); }

static void laws_hold(void **state) {
  (void)state;
  for (int i = 0; i < TRIES; i++) {
    double a = element(3 * i), b = element(3 * i + 1), c = element(3 * i + 2);
    assert_true(field_add(field_add(a, b), c) == field_add(a, field_add(b, c)));
    assert_true(field_mul(field_mul(a, b), c) == field_mul(a, field_mul(b, c)));
    assert_true(field_mul(a, field_add(b, c)) == field_add(field_mul(a, b), field_mul(a, c)));
    assert_true(field_sub(field_add(a, b), b) == a);
    assert_true(field_mul(field_div(a, b), b) == a);
    assert_true(field_mul(field_power(a, -3), field_power(a, 3)) == 1);
    assert_true(field_less(a, b) != field_less(b, a));
    assert_true(field_sign(a) == field_sub(0, field_sign(field_sub(0, a))));
  }
}

static void real_numbers_are_rational(void **state) {
  (void)state;
  assert_true(field_of(3) == 3 && field_of(0) == 0);
  assert_true(field_mul(field_of(0.125), field_of(8)) == 1);
  assert_true(field_add(field_of(-2.5), field_of(2.5)) == 0);
  assert_true(field_mul(field_of(0x1p-1000), field_of(0x1p1000)) == 1);
  assert_true(field_mul(field_of(0.1), field_of(3)) !=
              field_of(0.3)); /* 0.1 * 3 and 0.3 differ as doubles */
}

static void sums_are_of_their_products(void **state) {
  (void)state;
  FieldSum sum = {0};
  double one_by_one = 0;
  for (int i = 0; i < 100 * TRIES; i++) {
    double a = (double)((1LL << 51) - 130 - i % 7), b = (double)((1LL << 51) - 131 - i % 5);
    field_sum_add(&sum, a, b);
    one_by_one = field_add(one_by_one, field_mul(a, b));
  }
  assert_true(field_sum(&sum) == one_by_one);
  field_sum_add(&sum, -INFINITY, 1);
  assert_true(field_sum(&sum) == -INFINITY);
}

static void constants_are_in_order(void **state) {
  (void)state;
  static const double constants[] = {-1e30f, -3,   -0.1f,  -1e-5f, 0,   1e-30f,
                                     1e-5f,  0.1f, 0.123f, 1,      2.5, 1e9};
  int n = sizeof constants / sizeof *constants, below = 0, between = 0;
  for (int i = 1; i + 1 < n; i++)
    for (int k = 1; k + 1 < n; k++)
      assert_true(field_less(field_of(constants[i]), field_of(constants[k])) == (i < k));
  for (int i = 0; i < TRIES; i++) {
    double a = element(i);
    below += field_less(a, 0);
    bool small = field_less(a, field_of(-3));
    assert_true(!small || field_less(a, 0)); /* the order is one of all */
    between += !small && field_less(a, 0);
  }
  assert_true(between > TRIES / 8); /* so that another threshold is noticed */
  assert_true(below > TRIES / 4 && below < TRIES * 3 / 4);
}

static void functions_keep_whole_images(void **state) {
  (void)state;
  assert_true(field_function(1, 0, exp) == 1 && field_function(2, 1, log) == 0);
  assert_true(field_function(2, 0, log) == -INFINITY && field_function(1, -INFINITY, exp) == 0);
  double x = element(1);
  assert_true(field_function(1, x, exp) == field_function(1, x, exp));
  assert_true(field_function(1, x, exp) != field_function(2, x, exp));
  assert_true(field_less(-INFINITY, x) && field_less(x, INFINITY));
}

static void logarithms_keep_their_element(void **state) {
  (void)state;
  for (int i = 0; i < TRIES; i++) {
    double x = element(i);
    assert_true(!field_is_log(x) && field_is_log(field_log(x)) && field_unlog(field_log(x)) == x);
  }
  assert_true(!field_is_log(INFINITY) && !field_is_log(-INFINITY) && !field_is_log(NAN));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(laws_hold),
      cmocka_unit_test(real_numbers_are_rational),
      cmocka_unit_test(sums_are_of_their_products),
      cmocka_unit_test(constants_are_in_order),
      cmocka_unit_test(functions_keep_whole_images),
      cmocka_unit_test(logarithms_keep_their_element),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
