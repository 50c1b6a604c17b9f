/* JSON as RFC 8259 has it, pulled value by value. Strings are decoded into the caller's buffer as
   UTF-8; U+0000 is refused, because names end at NUL here. Nesting deeper than 64 is refused. Must
   not: read at or beyond `end`, allocate. */
#include "json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64 };

Json rt_json(const void *text, int64_t n) {
  return (Json){.p = text, .begin = text, .end = (const char *)text + n, .first = true};
}

bool rt_json_fail(Json *j, const char *why) {
  if (!j->error) j->error = why;
  return false;
}

int rt_json_peek(Json *j) {
  while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r')) j->p++;
  return j->p < j->end && !j->error ? (unsigned char)*j->p : -1;
}

static bool take(Json *j, int c, const char *why) {
  if (rt_json_peek(j) != c) return rt_json_fail(j, why);
  j->p++;
  return true;
}

bool rt_json_object(Json *j) { return take(j, '{', "expected an object") && (j->first = true); }
bool rt_json_array(Json *j) { return take(j, '[', "expected an array") && (j->first = true); }

/* The comma, or the closing character: true if another item follows. */
static bool another(Json *j, int close) {
  int c = rt_json_peek(j);
  if (c == close) {
    j->p++, j->first = false;
    return false;
  }
  if (!j->first && !take(j, ',', "expected a comma or the end")) return false;
  if (j->first && c < 0) return rt_json_fail(j, "the text ends early");
  j->first = false;
  return true;
}

bool rt_json_element(Json *j) {
  if (j->error || !another(j, ']')) return false;
  return rt_json_peek(j) == ']' ? rt_json_fail(j, "a comma before ]") : true;
}

bool rt_json_member(Json *j, char *key, size_t size) {
  if (j->error || !another(j, '}')) return false;
  return rt_json_string(j, key, size) && take(j, ':', "expected a colon");
}

static int hex4(Json *j) {
  int v = 0;
  if (j->end - j->p < 4) return -1;
  for (int i = 0; i < 4; i++) {
    int c = (unsigned char)*j->p++;
    int d = c >= '0' && c <= '9'                 ? c - '0'
            : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                 : -1;
    if (d < 0) return -1;
    v = v * 16 + d;
  }
  return v;
}

static long unicode(Json *j) { /* after \u; a surrogate pair is two of them */
  long high = hex4(j);
  if (high < 0xd800 || high > 0xdfff) return high;
  if (high > 0xdbff || j->end - j->p < 6 || j->p[0] != '\\' || j->p[1] != 'u') return -1;
  j->p += 2;
  long low = hex4(j);
  return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + (high - 0xd800) * 1024 + (low - 0xdc00);
}

static int escape(Json *j, char *out) { /* bytes written, 0: wrong */
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (j->p == j->end) return 0;
  char c = *j->p++;
  if (c == 'u') {
    long v = unicode(j);
    return v > 0 ? rt_utf8_put((int32_t)v, out) : 0;
  }
  const char *at = c ? strchr(from, c) : NULL;
  if (!at) return 0;
  out[0] = to[at - from];
  return 1;
}

bool rt_json_string(Json *j, char *out, size_t size) {
  size_t n = 0;
  if (!take(j, '"', "expected a string")) return false;
  while (j->p < j->end && *j->p != '"') {
    char piece[4] = {*j->p++};
    int k = 1;
    if ((unsigned char)piece[0] < 32) return rt_json_fail(j, "a control character in a string");
    if (piece[0] == '\\' && !(k = escape(j, piece)))
      return rt_json_fail(j, "a wrong escape in a string");
    if (out && n + (size_t)k >= size) return rt_json_fail(j, "a string that is too long");
    if (out) memcpy(out + n, piece, (size_t)k);
    n += (size_t)k;
  }
  if (out) out[n] = 0;
  j->first = false;
  return take(j, '"', "a string without end");
}

static const char *digits(const char *p, const char *end) {
  while (p < end && *p >= '0' && *p <= '9') p++;
  return p;
}

/* The end of a number that begins at p, or NULL. *whole: neither fraction nor exponent. */
static const char *number_end(const char *p, const char *end, bool *whole) {
  *whole = true;
  if (p < end && *p == '-') p++;
  const char *q = digits(p, end);
  if (q == p || (*p == '0' && q - p > 1)) return NULL;
  if (q < end && *q == '.') {
    p = q + 1, q = digits(p, end), *whole = false;
    if (q == p) return NULL;
  }
  if (q < end && (*q | 32) == 'e') {
    p = q + 1, *whole = false;
    if (p < end && (*p == '+' || *p == '-')) p++;
    q = digits(p, end);
    if (q == p) return NULL;
  }
  return q;
}

static bool number_text(Json *j, char out[64], bool *whole) {
  if (rt_json_peek(j) < 0) return rt_json_fail(j, "the text ends early");
  const char *e = number_end(j->p, j->end, whole);
  if (!e || e - j->p > 63) return rt_json_fail(j, "expected a number");
  memcpy(out, j->p, (size_t)(e - j->p));
  out[e - j->p] = 0;
  j->p = e, j->first = false;
  return true;
}

bool rt_json_int(Json *j, int64_t *v) {
  char text[64];
  bool whole;
  if (!number_text(j, text, &whole)) return false;
  if (!whole || strlen(text) > 19) return rt_json_fail(j, "expected a whole number");
  *v = strtoll(text, NULL, 10);
  return true;
}

static bool literal(Json *j, const char *word) {
  size_t n = strlen(word);
  if (rt_json_peek(j) < 0 || (size_t)(j->end - j->p) < n || memcmp(j->p, word, n)) return false;
  j->p += n, j->first = false;
  return true;
}

bool rt_json_number(Json *j, double *v) {
  char text[64];
  bool whole;
  if (literal(j, "null")) return *v = NAN, true;
  if (!number_text(j, text, &whole)) return false;
  *v = strtod(text, NULL);
  return true;
}

bool rt_json_bool(Json *j, bool *v) {
  if (literal(j, "true")) return *v = true;
  if (literal(j, "false")) return *v = false, true;
  return rt_json_fail(j, "expected true or false");
}

static bool skip(Json *j, int depth) {
  double ignored;
  if (depth > DEEPEST) return rt_json_fail(j, "nested too deeply");
  switch (rt_json_peek(j)) {
  case '{':
    rt_json_object(j);
    while (rt_json_member(j, NULL, 0)) skip(j, depth + 1);
    break;
  case '[':
    rt_json_array(j);
    while (rt_json_element(j)) skip(j, depth + 1);
    break;
  case '"': rt_json_string(j, NULL, 0); break;
  default:
    if (!literal(j, "true") && !literal(j, "false")) rt_json_number(j, &ignored);
  }
  j->first = false;
  return !j->error;
}

bool rt_json_skip(Json *j) { return skip(j, 0); }

bool rt_json_done(Json *j) {
  if (j->error) return false;
  rt_json_peek(j);
  return j->p == j->end ? true : rt_json_fail(j, "more text behind the end");
}
