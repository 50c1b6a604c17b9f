/* Diagnostics: collecting, nearest names, bugs. See diag.h for the pieces of a message;
   diag_print.c prints. Errors beyond the limit are counted, not kept. */
#include "diag_report.h"
#include <limits.h>
#include <stdlib.h>
#include <strings.h>

/* ---- collecting ---- */

Diag *diag_new(Arena *a) {
  Diag *diag = ARENA_NEW(a, Diag);
  diag->arena = a;
  return diag;
}

static SourceLines lines_of(Arena *a, const char *text, size_t length) {
  SourceLines lines = {.n = 1};
  for (size_t i = 0; i < length; i++) lines.n += text[i] == '\n';
  lines.start = ARENA_ARRAY(a, uint32_t, lines.n);
  for (size_t i = 0, k = 1; i < length; i++)
    if (text[i] == '\n') lines.start[k++] = (uint32_t)i + 1;
  return lines;
}

uint32_t diag_add_source(Diag *diag, const char *name, const char *text, size_t length) {
  Source source = {name, text, length};
  vec_push(diag->arena, diag->sources, source);
  vec_push(diag->arena, diag->lines, lines_of(diag->arena, text, length));
  return diag->sources.n;
}

const Source *diag_source(const Diag *diag, uint32_t file) {
  return file && file <= diag->sources.n ? &diag->sources.at[file - 1] : NULL;
}

uint32_t diag_source_count(const Diag *diag) { return diag->sources.n; }

void diag_line_column(const Diag *diag, Span at, uint32_t *line, uint32_t *column) {
  const Source *source = diag_source(diag, at.file);
  *line = *column = 1;
  if (!source) return;
  const SourceLines *lines = &diag->lines.at[at.file - 1];
  uint32_t end = at.offset < source->length ? at.offset : (uint32_t)source->length, low = 0,
           high = lines->n;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (lines->start[middle] <= end) low = middle;
    else high = middle;
  }
  *line = low + 1, *column = end - lines->start[low] + 1;
}

Report *diag_at(Diag *diag, const char *code, Span s, const char *headline, ...) {
  Report *r = ARENA_NEW(diag->arena, Report);
  va_list args;
  va_start(args, headline);
  *r = (Report){
      .arena = diag->arena, .code = code, .headline = arena_vprintf(diag->arena, headline, args)};
  va_end(args);
  r->primary.span = s, r->number = diag->arrived++;
  if (*code == 'E' && diag->errors++ >= ERROR_LIMIT) return r;
  vec_push(diag->arena, diag->reports, r);
  return r;
}

#define FORMAT_INTO(r, text, result)                                                               \
  va_list args;                                                                                    \
  va_start(args, text);                                                                            \
  const char *result = arena_vprintf((r)->arena, text, args);                                      \
  va_end(args)

void diag_label(Report *r, const char *text, ...) {
  FORMAT_INTO(r, text, label);
  r->primary.text = label;
}

void diag_also(Report *r, Span s, const char *text, ...) {
  FORMAT_INTO(r, text, label);
  vec_push(r->arena, r->also, ((SourcePlace){s, label}));
}

void diag_fact(Report *r, const char *text, ...) {
  FORMAT_INTO(r, text, fact);
  vec_push(r->arena, r->facts, fact);
}

void diag_help(Report *r, const char *text, ...) {
  FORMAT_INTO(r, text, help);
  vec_push(r->arena, r->helps, help);
}

void diag_edit(Report *r, Span s, const char *text, ...) {
  FORMAT_INTO(r, text, with);
  if (s.file) vec_push(r->arena, r->edits, ((SourcePlace){s, with}));
}

void diag_edit_around(Report *r, Span s, const char *before, const char *after) {
  diag_edit(r, (Span){s.file, s.offset, 0}, "%s", before);
  diag_edit(r, (Span){s.file, s.offset + s.length, 0}, "%s", after);
}

void diag_near(Report *r, const char *what, const char *near) {
  if (!near) return;
  diag_help(r, "%s with a similar name exists: `%s`", what, near);
  diag_edit(r, r->primary.span, "%s", near);
}

void diag_drop(Diag *diag, const char *code) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < diag->reports.n; i++)
    if (strcmp(diag->reports.at[i]->code, code)) diag->reports.at[n++] = diag->reports.at[i];
  diag->reports.n = n;
}

void diag_take(Diag *diag, const Diag *from, const char *code) {
  for (uint32_t i = diag->sources.n; i < from->sources.n; i++) {
    vec_push(diag->arena, diag->sources, from->sources.at[i]);
    vec_push(diag->arena, diag->lines, from->lines.at[i]);
  }
  for (uint32_t i = 0; i < from->reports.n; i++) {
    Report *r = from->reports.at[i];
    if (strncmp(r->code, code, strlen(code)) != 0) continue;
    if (*r->code == 'E' && diag->errors++ >= ERROR_LIMIT) continue;
    r->number = diag->arrived++;
    vec_push(diag->arena, diag->reports, r);
  }
}

uint32_t diag_errors(const Diag *diag) { return diag->errors; }
bool diag_full(const Diag *diag) { return diag->errors >= ERROR_LIMIT; }

const char *diag_first_code(const Diag *diag) {
  for (uint32_t i = 0; i < diag->reports.n; i++)
    if (*diag->reports.at[i]->code == 'E') return diag->reports.at[i]->code;
  return NULL;
}

const char *diag_first_error(const Diag *diag) {
  for (uint32_t i = 0; i < diag->reports.n; i++) {
    const Report *r = diag->reports.at[i];
    if (*r->code == 'E') return arena_printf(diag->arena, "%s: %s", r->code, r->headline);
  }
  return "";
}

bool diag_given(const Diag *diag, const char *code) {
  for (uint32_t i = 0; i < diag->reports.n; i++)
    if (!strcmp(diag->reports.at[i]->code, code)) return true;
  return false;
}

/* ---- names that are nearly right ---- */

enum { MAX_NAME = 64 };

int diag_distance(const char *a, const char *b) {
  size_t length = strlen(a), other = strlen(b);
  int row[3][MAX_NAME + 1], na = (int)length, nb = (int)other;
  if (length > MAX_NAME || other > MAX_NAME) return INT_MAX;
  for (int j = 0; j <= nb; j++) row[0][j] = j;
  for (int i = 1; i <= na; i++) {
    int *now = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
    now[0] = i;
    for (int j = 1; j <= nb; j++) {
      int best = up[j - 1] + (a[i - 1] != b[j - 1]);
      if (up[j] + 1 < best) best = up[j] + 1;
      if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped && up2[j - 2] + 1 < best) best = up2[j - 2] + 1;
      now[j] = best;
    }
  }
  return row[na % 3][nb];
}

static const char *nearest_case(const char *wanted, const char *const *names, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (!strcasecmp(wanted, names[i])) return names[i];
  return NULL;
}

/* Vocab for Vocabulary: the only name of which one is the beginning of the other. */
static const char *nearest_prefix(const char *wanted, const char *const *names, uint32_t n) {
  const char *best = NULL;
  size_t length = strlen(wanted);
  for (uint32_t i = 0; i < n; i++) {
    size_t other = strlen(names[i]), common = length < other ? length : other;
    if (common < 3 || strncmp(wanted, names[i], common)) continue;
    if (best && strcmp(best, names[i])) return NULL;
    best = names[i];
  }
  return best;
}

const char *diag_spelt(const char *wanted, const char *const *names, uint32_t n) {
  const char *best = NULL;
  size_t length = strlen(wanted);
  int limit = (length < 3 ? 0 : length < 5 ? 1 : 2) + 1; /* tp is no slip for dp, nor lora for lr */
  for (uint32_t i = 0; i < n; i++) {
    int distance = *names[i] ? diag_distance(wanted, names[i]) : INT_MAX;
    if (distance < limit && distance < (int)length) best = names[i], limit = distance;
  }
  return best ? best : nearest_case(wanted, names, n);
}

const char *diag_nearest(const char *wanted, const char *const *names, uint32_t n) {
  const char *best = diag_spelt(wanted, names, n);
  return best ? best : nearest_prefix(wanted, names, n);
}

const char *diag_list(Arena *a, const char *const *names, uint32_t n) {
  enum { SHOWN = 8 };
  const char *text = "";
  for (uint32_t i = 0; i < n && i < SHOWN; i++) text = arena_list(a, text, "%s", names[i]);
  return n > SHOWN ? arena_printf(a, "%s, ..", text) : text;
}

/* ---- errors of the compiler itself ---- */

_Noreturn void bug_at(const char *file, int line, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "shardc: internal error at %s:%d: ", file, line);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  abort();
}
