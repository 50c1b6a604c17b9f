/* Faults and their printing, memory, text, time, element types.

   A fault prints as
     error[R0204]: token 300 is not below Vocab = 256
       --> text.bin: token 1042
       = help: ...
   No function of this file depends on the caller. Must not: allocate while reporting (memory may be
   the reason). */
#include "base.h"
#include "runtime/rt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct {
  int code, status;
} errors[] = {
#define RT_ERROR(code, status, what) {code, status},
#include "errors.def"
#undef RT_ERROR
};

int rt_exit_status(int code) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) return errors[i].status;
  return 1;
}

bool rt_fault(Fault *f, int code, const char *format, ...) {
  va_list a;
  va_start(a, format);
  f->code = code, f->position = -1, f->unit = "", f->where[0] = 0, f->help[0] = 0;
  f->everywhere = f->quiet = false;
  vsnprintf(f->what, sizeof f->what, format, a);
  va_end(a);
  return false;
}

bool rt_help(Fault *f, const char *format, ...) {
  va_list a;
  va_start(a, format);
  vsnprintf(f->help, sizeof f->help, format, a);
  va_end(a);
  return false;
}

bool rt_at(Fault *f, const char *where, const char *unit, int64_t position) {
  if (!f->where[0]) snprintf(f->where, sizeof f->where, "%s", where);
  if (f->position < 0) f->unit = unit, f->position = position;
  return false;
}

static bool colour(void) {
  const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
  return isatty(2) && !(no && *no) && !(term && !strcmp(term, "dumb"));
}

char *rt_show(char *text) {
  char *to = text;
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    bool wide = *c == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0; /* U+0080 .. U+009F */
    bool obeyed = wide || (*c < 0x20 && *c != '\t' && *c != '\n') || *c == 0x7f;
    *to++ = obeyed ? '?' : (char)*c;
    c += wide;
  }
  *to = 0;
  return text;
}

void rt_print_fault(const Fault *fault, const char *severity) {
  if (fault->quiet) return;
  Fault f = *fault;
  bool c = colour();
  fprintf(stderr, "%s%s[R%04d]%s: %s\n", c ? "\033[1;31m" : "", severity, f.code,
          c ? "\033[0m" : "", rt_show(f.what));
  if (f.where[0] && f.position >= 0)
    fprintf(stderr, "  --> %s: %s %lld\n", rt_show(f.where), f.unit, (long long)f.position);
  else if (f.where[0]) fprintf(stderr, "  --> %s\n", rt_show(f.where));
  if (f.help[0]) fprintf(stderr, "  = help: %s\n", rt_show(f.help));
}

void rt_note(const char *format, ...) {
  char text[2 * RT_PATH + 1024];
  va_list a;
  va_start(a, format);
  vsnprintf(text, sizeof text, format, a);
  va_end(a);
  fprintf(stderr, "note: %s\n", rt_show(text));
}

void rt_die(const Fault *f) {
  fflush(stdout);
  rt_print_fault(f, "error");
  exit(rt_exit_status(f->code));
}

void rt_fail(int code, const char *format, ...) {
  Fault f = {.code = code, .position = -1};
  va_list a;
  va_start(a, format);
  vsnprintf(f.what, sizeof f.what, format, a);
  va_end(a);
  rt_die(&f);
}

#ifdef SHARDC_STRESS
/* Is this allocation number SHARDC_FAIL_AT of the process? */
static bool fails(void) {
  static _Atomic long long count;
  const char *at = getenv("SHARDC_FAIL_AT");
  return ++count == (at ? atoll(at) : 0);
}
#else
static bool fails(void) { return false; }
#endif

void *rt_alloc(size_t bytes) {
  void *p = fails() ? NULL : calloc(1, bytes ? bytes : 1);
  if (!p) rt_fail(701, "no memory for %zu bytes", bytes);
  return p;
}

bool rt_text_ends(const char *text, const char *end) {
  size_t n = strlen(text), k = strlen(end);
  return n >= k && !strcmp(text + n - k, end);
}

char *rt_copy_text(const char *s, size_t n) {
  char *copy = rt_alloc(n + 1);
  memcpy(copy, s, n);
  return copy;
}

char *rt_format(const char *format, ...) {
  va_list a, b;
  va_start(a, format);
  va_copy(b, a);
  int n = vsnprintf(NULL, 0, format, a);
  char *text = rt_alloc((size_t)n + 1);
  vsnprintf(text, (size_t)n + 1, format, b);
  va_end(a), va_end(b);
  return text;
}

void rt_join(char out[RT_PATH], const char *folder, const char *name) {
  bool slash = *folder && folder[strlen(folder) - 1] != '/';
  int n = snprintf(out, RT_PATH, "%s%s%s", folder, slash ? "/" : "", name);
  if (n < 0 || n >= RT_PATH) out[0] = 0;
}

double rt_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int rt_utf8_put(int32_t c, char *out) {
  if (c < 0x80) return out[0] = (char)c, 1;
  int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  static const int lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 63));
  out[0] = (char)(lead[n] | c);
  return n;
}

int rt_distance(const char *a, const char *b) {
  int row[64], n = (int)strlen(b);
  if (n >= 63) return 63;
  for (int j = 0; j <= n; j++) row[j] = j;
  for (int i = 1; *a; a++, i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= n; j++) {
      int change = diagonal + (*a != b[j - 1]), remove = row[j] + 1, insert = row[j - 1] + 1;
      diagonal = row[j];
      row[j] = change < remove ? change : remove;
      if (insert < row[j]) row[j] = insert;
    }
  }
  return row[n];
}

uint64_t rt_load_le(const uint8_t *p, int bytes) {
  uint64_t v = 0;
  for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
  return v;
}

uint64_t rt_load_be(const uint8_t *p, int bytes) {
  uint64_t v = 0;
  for (int i = 0; i < bytes; i++) v = v << 8 | p[i];
  return v;
}
