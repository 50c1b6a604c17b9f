/* Tokens of PTX text: words (opcodes with their dots, names, directives), numbers, strings, marks.
 *
 * Line and block comments are skipped. Floats come as bits: 0f and 0d forms exactly, decimal ones
 * as f64. Lines are counted from 1.
 *
 * Must not: read past the terminating zero. */
#include "ptx_read.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void read_error(Reader *r, int line, const char *format, ...) {
  char what[400];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  snprintf(r->error, (size_t)r->error_bytes, "PTX line %d: %s", line, what);
  longjmp(r->out, 1);
}

static void skip_blank(Reader *r) {
  for (;;) {
    const char *s = r->at;
    if (*s == '\n') r->line++, r->at++;
    else if (isspace((unsigned char)*s)) r->at++;
    else if (s[0] == '/' && s[1] == '/') r->at += strcspn(s, "\n");
    else if (s[0] == '/' && s[1] == '*') {
      for (r->at += 2; *r->at && !(r->at[0] == '*' && r->at[1] == '/'); r->at++)
        r->line += *r->at == '\n';
      r->at += *r->at ? 2 : 0;
    } else return;
  }
}

static bool word_start(char c) { return isalpha((unsigned char)c) || strchr("_$%.", c); }
static bool word_more(char c) { return isalnum((unsigned char)c) || strchr("_$.%", c); }

static void lex_word(Reader *r) {
  const char *s = r->at;
  while (*r->at && (word_more(*r->at) || (r->at[0] == ':' && r->at[1] == ':')))
    r->at += *r->at == ':' ? 2 : 1;
  r->t.kind = T_WORD, r->t.text = s, r->t.n = (int)(r->at - s);
}

/* 0fXXXXXXXX and 0dXXXXXXXXXXXXXXXX */
static bool lex_bits(Reader *r) {
  const char *s = r->at;
  if (s[0] != '0' || !s[1] || !strchr("fFdD", s[1])) return false;
  int digits = strchr("fF", s[1]) ? 8 : 16;
  for (int i = 0; i < digits; i++)
    if (!isxdigit((unsigned char)s[2 + i])) return false;
  char hex[17] = {0};
  memcpy(hex, s + 2, (size_t)digits);
  r->t.kind = digits == 8 ? T_FLOAT32 : T_FLOAT64;
  r->t.value = strtoull(hex, NULL, 16);
  r->at += 2 + digits;
  return true;
}

static void lex_number(Reader *r) {
  const char *s = r->at;
  r->t.text = s;
  if (lex_bits(r)) return;
  size_t n = strspn(s, "0123456789");
  if (s[n] == '.' || ((s[n] == 'e' || s[n] == 'E') && s[1] != 'x')) {
    char *end;
    double d = strtod(s, &end);
    r->t.kind = T_DECIMAL, r->at = end;
    memcpy(&r->t.value, &d, 8);
    return;
  }
  char *end;
  bool binary = s[0] == '0' && (s[1] == 'b' || s[1] == 'B');
  r->t.kind = T_INT;
  r->t.value = binary ? strtoull(s + 2, &end, 2) : strtoull(s, &end, 0);
  r->at = end > s ? end : s + 1;
  if (*r->at == 'U') r->at++;
}

void next_token(Reader *r) {
  skip_blank(r);
  char c = *r->at;
  r->t = (Token){.line = r->line, .text = r->at};
  if (!c) r->t.kind = T_END;
  else if (isdigit((unsigned char)c)) lex_number(r);
  else if (word_start(c)) lex_word(r);
  else if (c == '"') {
    size_t n = strcspn(r->at + 1, "\"\n");
    r->t.kind = T_STRING, r->t.text = r->at + 1, r->t.n = (int)n;
    r->at += n + (r->at[n + 1] == '"' ? 2 : 1);
  } else r->t.kind = T_MARK, r->t.n = 1, r->at++;
}

bool is_mark(const Reader *r, char c) { return r->t.kind == T_MARK && *r->t.text == c; }
bool is_word(const Reader *r, const char *word) {
  return r->t.kind == T_WORD && (size_t)r->t.n == strlen(word) &&
         !memcmp(r->t.text, word, (size_t)r->t.n);
}
bool take_mark(Reader *r, char c) {
  if (!is_mark(r, c)) return false;
  next_token(r);
  return true;
}
bool take_word(Reader *r, const char *word) {
  if (!is_word(r, word)) return false;
  next_token(r);
  return true;
}

static const char *seen(Reader *r) {
  if (r->t.kind == T_END) return "the end of the text";
  int n = r->t.n > 0 ? r->t.n : 1;
  char *s = get(r, 40);
  snprintf(s, 40, "`%.*s`", n < 30 ? n : 30, r->t.text);
  return s;
}
void need_mark(Reader *r, char c) {
  if (!take_mark(r, c)) read_error(r, r->t.line, "expected `%c`, saw %s", c, seen(r));
}
const char *need_word(Reader *r) {
  if (r->t.kind != T_WORD) read_error(r, r->t.line, "expected a name, saw %s", seen(r));
  const char *s = text_of(r, &r->t);
  next_token(r);
  return s;
}
int64_t need_int(Reader *r) {
  bool minus = take_mark(r, '-');
  if (r->t.kind != T_INT) read_error(r, r->t.line, "expected a whole number, saw %s", seen(r));
  uint64_t v = r->t.value;
  next_token(r);
  return (int64_t)(minus ? 0 - v : v);
}
