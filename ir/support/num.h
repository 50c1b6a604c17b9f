/* Whole numbers: the few functions that every room needs, and the length of an array. Inline, so
   that the runtime may use them too. Must not: know anything of the IR. */
#ifndef SHARDC_NUM_H
#define SHARDC_NUM_H
#include <stdint.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Buffers begin on it, and counters of different threads lie this far apart; in bytes. */
enum { CACHE_LINE = 64 };

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Of n >= 0 and unit > 0. */
static inline int64_t ceil_div(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
static inline int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }
#endif
