/* UTF-8 (RFC 3629: no surrogates, nothing longer than needed), and lookups in the tables of
   unicode.def, which tools/unicode.py makes. Hangul syllables decompose by the arithmetic of the
   Unicode standard, chapter 3.12. Must not: know tokenizers. */
#include "unicode.h"
#include <stdlib.h>
#include <string.h>

int32_t rt_utf8_next(const uint8_t *p, const uint8_t *end, int *bytes) {
  static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  *bytes = 1;
  if (*p < 0x80) return *p;
  int n = *p >= 0xf0 && *p < 0xf8 ? 4 : *p >= 0xe0 && *p < 0xf0 ? 3 : *p >= 0xc0 ? 2 : 0;
  if (!n || *p >= 0xf8 || end - p < n) return -1;
  int32_t c = *p & (0x7f >> n);
  for (int i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) return -1;
    c = c << 6 | (p[i] & 0x3f);
  }
  if (c < least[n] || c >= RT_CHARACTERS || (c >= 0xd800 && c <= 0xdfff)) return -1;
  *bytes = n;
  return c;
}

uint16_t *rt_unicode_classes(void) {
  static const struct {
    int32_t first;
    uint16_t count, bits;
  } rows[] = {
#define C(first, count, bits) {first, count, bits},
#include "unicode.def"
  };
  uint16_t *at = rt_alloc(RT_CHARACTERS * sizeof *at);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (uint16_t *p = at + rows[i].first, *end = p + rows[i].count; p < end;) *p++ = rows[i].bits;
  return at;
}

int rt_unicode_lower(int32_t c, int32_t out[2]) {
  static const struct {
    int32_t first, last, step, distance;
  } rows[] = {
#define L(first, last, step, distance) {first, last, step, distance},
#include "unicode.def"
  };
  static const int32_t two[][3] = {
#define LL(c, a, b) {c, a, b},
#include "unicode.def"
  };
  for (size_t i = 0; i < sizeof two / sizeof *two; i++)
    if (c == two[i][0]) return out[0] = two[i][1], out[1] = two[i][2], 2;
  out[0] = c;
  for (size_t i = 0; i < sizeof rows / sizeof *rows && rows[i].first <= c; i++)
    if (c <= rows[i].last && (c - rows[i].first) % rows[i].step == 0) {
      out[0] = c + rows[i].distance;
      break;
    }
  return 1;
}

static int hangul(int32_t c, int32_t out[4]) {
  int32_t s = c - 0xac00, tail = s % 28;
  out[0] = 0x1100 + s / 588, out[1] = 0x1161 + s % 588 / 28, out[2] = 0x11a7 + tail;
  return tail ? 3 : 2;
}

int rt_unicode_decompose(int32_t c, int32_t out[4]) {
  static const struct {
    int32_t from, to[4];
  } rows[] = {
#define D(c, a1, a2, a3, a4) {c, {a1, a2, a3, a4}},
#include "unicode.def"
  };
  int low = 0, high = sizeof rows / sizeof *rows, n = 0;
  if (c >= 0xac00 && c <= 0xd7a3) return hangul(c, out);
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (rows[middle].from <= c) low = middle;
    else high = middle;
  }
  if (rows[low].from != c) return out[0] = c, 1;
  for (; n < 4 && rows[low].to[n]; n++) out[n] = rows[low].to[n];
  return n;
}

int rt_unicode_order(int32_t c) {
  static const struct {
    int32_t first, count, order;
  } rows[] = {
#define O(first, count, order) {first, count, order},
#include "unicode.def"
  };
  int low = 0, high = sizeof rows / sizeof *rows;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (rows[middle].first <= c) low = middle;
    else high = middle;
  }
  return c >= rows[low].first && c < rows[low].first + rows[low].count ? rows[low].order : 0;
}
