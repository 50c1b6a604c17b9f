/* Whole numbers: the few functions that every room needs, and the length of an array. Inline, so
   that the runtime may use them too. Must not: know anything of the IR. */
#ifndef SHARDC_NUM_H
#define SHARDC_NUM_H
#include <stdint.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Alignment of buffers, and distance of counters of different threads; in bytes. */
enum { CACHE_LINE = 64 };

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* For n >= 0 and unit > 0. */
static inline int64_t ceil_div(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
static inline int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

/* Cuts [0, n) into `shares` consecutive ranges of nearly equal length: the begin of range i, which
   is the end of range i - 1. */
static inline int64_t share_begin(int64_t n, int64_t shares, int64_t i) { return i * n / shares; }
/* The longest of these ranges over their mean length; n > 0. */
static inline double share_longest(int64_t n, int64_t shares) {
  return (double)ceil_div(n, shares) * (double)shares / (double)n;
}

/* For a, b >= 0; INT64_MAX if the product overflows. */
static inline int64_t times_i64(int64_t a, int64_t b) {
  return b && a > INT64_MAX / b ? INT64_MAX : a * b;
}

/* The greatest common divisor; 0 of 0 and 0. */
static inline int64_t gcd_i64(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b, b = rest;
  }
  return a < 0 ? -a : a;
}

/* Divisors come in pairs, so that counting to the root finds them all; of numbers above 2^40, those
   whose smaller one is below 2^20. */
enum { DIVISOR_STEPS = 1 << 20 };
static inline int64_t divisor_from(int64_t n, int64_t least) { /* the least one >= `least` <= n */
  int64_t best = n;
  for (int64_t i = 1; i <= n / i && i <= DIVISOR_STEPS; i++) {
    if (n % i) continue;
    if (i >= least) return i;
    if (n / i >= least) best = n / i;
  }
  return best;
}
static inline int64_t divisor_to(int64_t n, int64_t most) { /* the largest one <= `most`, >= 1 */
  int64_t best = 1;
  for (int64_t i = 1; i <= n / i && i <= DIVISOR_STEPS; i++) {
    if (n % i) continue;
    if (n / i <= most) return n / i;
    if (i <= most) best = i;
  }
  return best;
}
#endif
