/* JSON as RFC 8259 has it, pulled value by value. Strings are decoded into the caller's buffer as
   UTF-8; U+0000 is refused, because names are NUL-terminated. Nesting deeper than 64 is refused.
   Must not: read at or beyond `end`, allocate. */
#include "json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64 };

Json rt_json(const void *text, int64_t n) {
  return (Json){.p = text, .begin = text, .end = (const char *)text + n, .first = true};
}

bool rt_json_fail(Json *json, const char *why) {
  if (!json->error) json->error = why;
  return false;
}

int rt_json_peek(Json *json) {
  while (json->p < json->end &&
         (*json->p == ' ' || *json->p == '\n' || *json->p == '\t' || *json->p == '\r'))
    json->p++;
  return json->p < json->end && !json->error ? (unsigned char)*json->p : -1;
}

static bool take(Json *json, int c, const char *why) {
  if (rt_json_peek(json) != c) return rt_json_fail(json, why);
  json->p++;
  return true;
}

bool rt_json_object(Json *json) {
  return take(json, '{', "expected an object") && (json->first = true);
}
bool rt_json_array(Json *json) {
  return take(json, '[', "expected an array") && (json->first = true);
}

/* The comma, or the closing character: true if another item follows. */
static bool another(Json *json, int close) {
  int c = rt_json_peek(json);
  if (c == close) {
    json->p++, json->first = false;
    return false;
  }
  if (!json->first && !take(json, ',', "expected a comma or the end")) return false;
  if (json->first && c < 0) return rt_json_fail(json, "the text ends early");
  json->first = false;
  return true;
}

bool rt_json_element(Json *json) {
  if (json->error || !another(json, ']')) return false;
  return rt_json_peek(json) == ']' ? rt_json_fail(json, "a comma before ]") : true;
}

bool rt_json_member(Json *json, char *key, size_t size) {
  if (json->error || !another(json, '}')) return false;
  return rt_json_string(json, key, size) && take(json, ':', "expected a colon");
}

static int hex4(Json *json) {
  int v = 0;
  if (json->end - json->p < 4) return -1;
  for (int i = 0; i < 4; i++) {
    int c = (unsigned char)*json->p++;
    int d = c >= '0' && c <= '9'                 ? c - '0'
            : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                 : -1;
    if (d < 0) return -1;
    v = v * 16 + d;
  }
  return v;
}

static long unicode(Json *json) { /* after \u; a surrogate pair is two of them */
  long high = hex4(json);
  if (high < 0xd800 || high > 0xdfff) return high;
  if (high > 0xdbff || json->end - json->p < 6 || json->p[0] != '\\' || json->p[1] != 'u')
    return -1;
  json->p += 2;
  long low = hex4(json);
  return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + (high - 0xd800) * 1024 + (low - 0xdc00);
}

static int escape(Json *json, char *out) { /* bytes written, 0: wrong */
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (json->p == json->end) return 0;
  char c = *json->p++;
  if (c == 'u') {
    long v = unicode(json);
    return v > 0 ? rt_utf8_put((int32_t)v, out) : 0;
  }
  const char *at = c ? strchr(from, c) : NULL;
  if (!at) return 0;
  out[0] = to[at - from];
  return 1;
}

bool rt_json_string(Json *json, char *out, size_t size) {
  size_t n = 0;
  if (!take(json, '"', "expected a string")) return false;
  while (json->p < json->end && *json->p != '"') {
    char piece[4] = {*json->p++};
    int k = 1;
    if ((unsigned char)piece[0] < 32) return rt_json_fail(json, "a control character in a string");
    if (piece[0] == '\\' && !(k = escape(json, piece)))
      return rt_json_fail(json, "a wrong escape in a string");
    if (out && n + (size_t)k >= size) return rt_json_fail(json, "a string that is too long");
    if (out) memcpy(out + n, piece, (size_t)k);
    n += (size_t)k;
  }
  if (out) out[n] = 0;
  json->first = false;
  return take(json, '"', "a string without end");
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

static bool number_text(Json *json, char out[64], bool *whole) {
  if (rt_json_peek(json) < 0) return rt_json_fail(json, "the text ends early");
  const char *e = number_end(json->p, json->end, whole);
  if (!e || e - json->p > 63) return rt_json_fail(json, "expected a number");
  memcpy(out, json->p, (size_t)(e - json->p));
  out[e - json->p] = 0;
  json->p = e, json->first = false;
  return true;
}

bool rt_json_int(Json *json, int64_t *v) {
  char text[64];
  bool whole;
  if (!number_text(json, text, &whole)) return false;
  if (!whole || strlen(text) > 19) return rt_json_fail(json, "expected a whole number");
  *v = strtoll(text, NULL, 10);
  return true;
}

static bool literal(Json *json, const char *word) {
  size_t n = strlen(word);
  if (rt_json_peek(json) < 0 || (size_t)(json->end - json->p) < n || memcmp(json->p, word, n))
    return false;
  json->p += n, json->first = false;
  return true;
}

bool rt_json_number(Json *json, double *v) {
  char text[64];
  bool whole;
  if (literal(json, "null")) return *v = NAN, true;
  if (!number_text(json, text, &whole)) return false;
  *v = strtod(text, NULL);
  return true;
}

bool rt_json_field(Json *json, const char *key, size_t n, const JsonField *rows) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(key, rows[i].key)) {
      if (rows[i].whole) rt_json_int(json, rows[i].whole);
      else rt_json_number(json, rows[i].real);
      return true;
    }
  return false;
}

bool rt_json_bool(Json *json, bool *v) {
  if (literal(json, "true")) return *v = true;
  if (literal(json, "false")) return *v = false, true;
  return rt_json_fail(json, "expected true or false");
}

static bool skip(Json *json, int depth) {
  double ignored;
  if (depth > DEEPEST) return rt_json_fail(json, "nested too deeply");
  switch (rt_json_peek(json)) {
  case '{':
    rt_json_object(json);
    while (rt_json_member(json, NULL, 0)) skip(json, depth + 1);
    break;
  case '[':
    rt_json_array(json);
    while (rt_json_element(json)) skip(json, depth + 1);
    break;
  case '"': rt_json_string(json, NULL, 0); break;
  default:
    if (!literal(json, "true") && !literal(json, "false")) rt_json_number(json, &ignored);
  }
  json->first = false;
  return !json->error;
}

bool rt_json_skip(Json *json) { return skip(json, 0); }

bool rt_json_done(Json *json) {
  if (json->error) return false;
  rt_json_peek(json);
  return json->p == json->end ? true : rt_json_fail(json, "text after the end");
}
