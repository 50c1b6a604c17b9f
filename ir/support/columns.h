/* Help in two columns, 80 characters wide. Inline, so that the runtime may use it too. */
#ifndef SHARDC_COLUMNS_H
#define SHARDC_COLUMNS_H
#include <stdio.h>
#include <string.h>

enum { TEXT_WIDTH = 80 };

/* The bytes of `text` that fit into `room` columns, up to a blank that does not follow a digit, so
   that a number keeps its unit; at least one word. */
static inline size_t columns_fit(const char *text, size_t room) {
  size_t n = 0, good = 0;
  for (size_t word; text[n]; n += word) {
    word = strspn(text + n, " ") + strcspn(text + n + strspn(text + n, " "), " ");
    if (n && (text[n - 1] < '0' || text[n - 1] > '9')) good = n;
    if (n && n + word > room) return good ? good : n;
  }
  return n;
}

/* `  left`, and the text from column `at` on; below, if `left` is too long. */
static inline void put_columns(FILE *out, const char *left, int at, const char *text) {
  int used = fprintf(out, "  %s", left);
  if (used + 2 > at) fputc('\n', out), used = 0;
  for (const char *rest = text;; used = 0) {
    size_t n = columns_fit(rest, (size_t)(TEXT_WIDTH - at));
    fprintf(out, "%*s%.*s\n", at - used, "", (int)n, rest);
    rest += n + strspn(rest + n, " ");
    if (!*rest) break;
  }
}
#endif
