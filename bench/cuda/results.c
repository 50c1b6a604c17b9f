/* Rows and tables of the bundle's parts, and the lists that the bundle brings. Must not: keep
   anything that is not in a file. */
#include "bundle.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include <ftw.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void put_row(Bundle *b, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vfprintf(b->rows, format, args);
  va_end(args);
  fputc('\n', b->rows), fflush(b->rows);
}

void say(Bundle *b, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  vprintf(format, args), vfprintf(b->table, format, again);
  va_end(again), va_end(args);
  fflush(stdout), fflush(b->table);
}

char *quoted(const char *text) {
  size_t n = strlen(text);
  char *out = rt_alloc(6 * n + 3), *at = out;
  *at++ = '"';
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') *at++ = '\\', *at++ = (char)c;
    else if (c < 32 || c > 126) at += sprintf(at, "\\u%04x", c);
    else *at++ = (char)c;
  }
  *at++ = '"';
  return out;
}

static char *joined(const char *folder, const char *format, va_list args) {
  char *name = rt_alloc(RT_PATH), *path = rt_alloc(RT_PATH);
  vsnprintf(name, RT_PATH, format, args);
  rt_join(path, folder, name);
  free(name);
  return path;
}

char *bundle_path(const Bundle *b, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *path = joined(b->folder, format, args);
  va_end(args);
  return path;
}

char *out_path(const Bundle *b, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *path = joined(b->out, format, args);
  va_end(args);
  return path;
}

static int drop(const char *path, const struct stat *s, int kind, struct FTW *at) {
  (void)s, (void)kind, (void)at;
  return remove(path);
}

bool fresh_folder(const Bundle *b, const char *name) {
  char *path = out_path(b, "%s", name);
  Fault f = {0};
  nftw(path, drop, 16, FTW_DEPTH | FTW_PHYS);
  bool ok = rt_make_folders(path, &f);
  free(path);
  return ok;
}

/* Whether the row's member `name` is `which`; its member `member` to *value. */
static bool row_has(const char *line, size_t n, const char *which, const char *member,
                    double *value) {
  char key[64], text[400] = "";
  bool same = false;
  Json j = rt_json(line, (int64_t)n);
  if (!rt_json_object(&j)) return false;
  while (rt_json_member(&j, key, sizeof key))
    if (!strcmp(key, "name") && rt_json_peek(&j) == '"')
      same = rt_json_string(&j, text, sizeof text) && !strcmp(text, which);
    else if (!strcmp(key, member)) rt_json_number(&j, value);
    else rt_json_skip(&j);
  return same && rt_json_done(&j);
}

double found(const Bundle *b, const char *part, const char *which, const char *member) {
  char *path = out_path(b, "%s.jsonl", part), line[2000];
  double value = NAN, result = NAN;
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f)) {
    value = NAN;
    if (row_has(line, strlen(line), which, member, &value)) result = value;
  }
  if (f) fclose(f);
  free(path);
  return result;
}

static bool split(char *text, Line *line) {
  int n = 0;
  for (char *word = strtok(text, " \n"); word && *word != '#' && n < WORDS;
       word = strtok(NULL, " \n"))
    line->word[n++] = rt_copy_text(word, strlen(word));
  return n > 0;
}

Line *read_list(const Bundle *b, const char *name, int *n) {
  char text[1000], *path = bundle_path(b, "%s", name);
  FILE *f = fopen(path, "r");
  Line *all = rt_alloc(sizeof *all * 1000);
  *n = 0;
  while (f && *n < 999 && fgets(text, sizeof text, f)) *n += split(text, &all[*n]);
  free(path);
  return f ? fclose(f), all : NULL;
}
