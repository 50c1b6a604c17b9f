/* Lines of partial sums in the workspace of a GPU kernel: `sums` sums of `columns` columns, each in
   `lines` parts of f32 that a phase of the kernel adds up. A CTA of that phase has LINES_ACROSS
   adjacent columns of one sum, and LINES_JOINERS threads for each. */
#ifndef SHARDC_GPU_LINES_H
#define SHARDC_GPU_LINES_H
#include "ir/support/num.h"
#include <stdint.h>

typedef struct SumLines {
  int64_t columns, sums, lines, at; /* at: their first byte in the workspace */
} SumLines;

enum { LINES_ACROSS = 32, LINES_JOINERS = 16, LINES_THREADS = LINES_ACROSS * LINES_JOINERS };
enum { LINES_SHARED = LINES_THREADS * 4 };

/* Bytes of one line of one sum, of the workspace; CTAs per sum. */
static inline int64_t lines_bytes(const SumLines *lines) {
  return round_up(lines->columns * 4, 64);
}
static inline int64_t lines_workspace(const SumLines *lines) {
  return lines->sums * lines->lines * lines_bytes(lines);
}
static inline int64_t lines_blocks(const SumLines *lines) {
  return ceil_div(lines->columns, LINES_ACROSS);
}

#endif
