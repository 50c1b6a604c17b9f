/* Diagnostics: collecting, nearest names, bugs. See diag.h for the pieces of a message;
   diag_print.c prints. Errors beyond the limit are counted, not kept. */
#include "diag_report.h"
#include <stdlib.h>
#include <strings.h>

/* ---- collecting ---- */

Diag *diag_new(Arena *a) {
  Diag *d = ARENA_NEW(a, Diag);
  d->arena = a;
  return d;
}

static SourceLines lines_of(Arena *a, const char *text, size_t length) {
  SourceLines l = {.n = 1};
  for (size_t i = 0; i < length; i++) l.n += text[i] == '\n';
  l.start = ARENA_ARRAY(a, uint32_t, l.n);
  for (size_t i = 0, k = 1; i < length; i++)
    if (text[i] == '\n') l.start[k++] = (uint32_t)i + 1;
  return l;
}

uint32_t diag_add_source(Diag *d, const char *name, const char *text, size_t length) {
  Source s = {name, text, length};
  vec_push(d->arena, d->sources, s);
  vec_push(d->arena, d->lines, lines_of(d->arena, text, length));
  return d->sources.n;
}

const Source *diag_source(const Diag *d, uint32_t file) {
  return file && file <= d->sources.n ? &d->sources.at[file - 1] : NULL;
}

uint32_t diag_source_count(const Diag *d) { return d->sources.n; }

void diag_line_column(const Diag *d, Span at, uint32_t *line, uint32_t *column) {
  const Source *s = diag_source(d, at.file);
  *line = *column = 1;
  if (!s) return;
  const SourceLines *l = &d->lines.at[at.file - 1];
  uint32_t end = at.offset < s->length ? at.offset : (uint32_t)s->length, low = 0, high = l->n;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (l->start[middle] <= end) low = middle;
    else high = middle;
  }
  *line = low + 1, *column = end - l->start[low] + 1;
}

Report *diag_at(Diag *d, const char *code, Span s, const char *headline, ...) {
  Report *r = ARENA_NEW(d->arena, Report);
  va_list args;
  va_start(args, headline);
  *r = (Report){
      .arena = d->arena, .code = code, .headline = arena_vprintf(d->arena, headline, args)};
  va_end(args);
  r->primary.span = s, r->number = d->arrived++;
  if (*code == 'E' && d->errors++ >= ERROR_LIMIT) return r;
  vec_push(d->arena, d->reports, r);
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

void diag_drop(Diag *d, const char *code) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < d->reports.n; i++)
    if (strcmp(d->reports.at[i]->code, code)) d->reports.at[n++] = d->reports.at[i];
  d->reports.n = n;
}

void diag_take_errors(Diag *d, const Diag *from) {
  for (uint32_t i = 0; i < from->reports.n; i++) {
    Report *r = from->reports.at[i];
    if (*r->code != 'E' || d->errors++ >= ERROR_LIMIT) continue;
    r->number = d->arrived++;
    vec_push(d->arena, d->reports, r);
  }
}

uint32_t diag_errors(const Diag *d) { return d->errors; }
bool diag_full(const Diag *d) { return d->errors >= ERROR_LIMIT; }

const char *diag_first_code(const Diag *d) {
  for (uint32_t i = 0; i < d->reports.n; i++)
    if (*d->reports.at[i]->code == 'E') return d->reports.at[i]->code;
  return NULL;
}

bool diag_given(const Diag *d, const char *code) {
  for (uint32_t i = 0; i < d->reports.n; i++)
    if (!strcmp(d->reports.at[i]->code, code)) return true;
  return false;
}

/* ---- names that are nearly right ---- */

enum { MAX_NAME = 64 };

/* Insertions, deletions, substitutions and swaps of neighbours. */
static int edit_distance(const char *a, int na, const char *b, int nb) {
  int row[3][MAX_NAME + 1];
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

/* Vocab for vocab and for Vocabulary: the only name that is the same but for case, or of which one
   is the beginning of the other. */
static const char *nearest_prefix(const char *wanted, const char *const *names, uint32_t n) {
  const char *best = NULL;
  size_t length = strlen(wanted);
  for (uint32_t i = 0; i < n; i++)
    if (!strcasecmp(wanted, names[i])) return names[i];
  for (uint32_t i = 0; i < n; i++) {
    size_t other = strlen(names[i]), common = length < other ? length : other;
    if (common < 3 || strncmp(wanted, names[i], common)) continue;
    if (best && strcmp(best, names[i])) return NULL;
    best = names[i];
  }
  return best;
}

const char *diag_nearest(const char *wanted, const char *const *names, uint32_t n) {
  const char *best = NULL;
  size_t length = strlen(wanted);
  int limit = (length < 4 ? 1 : 2) + 1;
  for (uint32_t i = 0; i < n && length && length <= MAX_NAME; i++) {
    size_t other = strlen(names[i]);
    if (!other || other > MAX_NAME) continue;
    int distance = edit_distance(wanted, (int)length, names[i], (int)other);
    if (distance < limit && distance < (int)length) best = names[i], limit = distance;
  }
  return best ? best : nearest_prefix(wanted, names, n);
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
