/* Reading, merging and writing tuning records: see tune_db.h. Every file is untrusted input: its
   lines can at worst be left out. Whether a cut fits its kernel is checked once the kernel is
   known. */
#include "tune_db.h"
#include <math.h>
#include <stdlib.h>

enum { FIELDS = 12, LEAST_FIELDS = 11, LINE_MOST = 1000 };

typedef struct Fields {
  Str at[FIELDS]; /* the last one may be NULL */
} Fields;

/* ---- reading ---- */

static bool readable(const char *line, size_t n) {
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)line[i] < 32 && line[i] != '\t') return false;
  return n < LINE_MOST;
}

static bool split(Ctx *c, const char *line, size_t n, Fields *fields) {
  size_t from = 0;
  *fields = (Fields){0};
  for (int i = 0; i < FIELDS; i++) {
    size_t end = from;
    while (end < n && line[end] != '\t') end++;
    if (end == from) return false;
    fields->at[i] = intern_n(c->names, line + from, end - from);
    if (end == n) return i + 1 >= LEAST_FIELDS;
    from = end + 1;
  }
  return false;
}

static bool whole(Str text, int64_t most, int64_t *n) {
  char *end;
  if (*text < '0' || *text > '9') return false;
  *n = strtoll(text, &end, 10);
  return !*end && *n >= 1 && *n <= most && end - text < 12;
}

static bool time_of(Str text, double *ns) {
  char *end;
  *ns = strtod(text, &end);
  return *text >= '0' && *text <= '9' && !*end && isfinite(*ns) && *ns >= 1 && *ns < 1e15;
}

static bool is_date(Str text) {
  static const char form[] = "dddd-dd-dd";
  if (strlen(text) != sizeof form - 1) return false;
  for (int i = 0; form[i]; i++)
    if (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != '-') return false;
  return true;
}

static bool record_of(const Fields *fields, TuneKind *kind, TuneRecord *record) {
  record->kind = kind(fields->at[2]);
  const Variants *variants = variants_find(fields->at[0], record->kind);
  if (!variants || strcmp(variants->family, fields->at[0])) return false;
  record->family = fields->at[0], record->key = fields->at[1], record->target = fields->at[2];
  record->device = fields->at[4], record->driver = fields->at[5], record->date = fields->at[10];
  if (fields->at[LEAST_FIELDS] &&
      !kernel_shape_read(record->family, fields->at[LEAST_FIELDS], &record->shape))
    return false;
  return whole(fields->at[3], 1 << 16, &record->workers) &&
         variants_read(variants, fields->at[6], &record->cut) &&
         time_of(fields->at[7], &record->ns) && time_of(fields->at[8], &record->rule_ns) &&
         whole(fields->at[9], 1 << 20, &record->rounds) && is_date(record->date);
}

static bool is_comment(const char *line, size_t n) {
  size_t i = 0;
  while (i < n && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r')) i++;
  return i == n || line[i] == '#';
}

static void warn(Ctx *c, const char *name, const char *text, size_t n, size_t at, size_t length,
                 uint32_t bad) {
  uint32_t file = diag_add_source(c->diag, name, text, n);
  Span s = {file, (uint32_t)at, length < 200 ? (uint32_t)length : 200};
  Report *r = diag_at(c->diag, "W1206", s, "%u line%s of `%s` %s ignored: no tuning record%s", bad,
                      bad > 1 ? "s" : "", name, bad > 1 ? "are" : "is", bad > 1 ? "s" : "");
  diag_label(r, "%s", bad > 1 ? "the first of them" : "this one");
  diag_fact(r,
            "a record has %d fields with tabs between; the cut has as many numbers as this version "
            "of shardc reads for the family",
            FIELDS);
  diag_help(r, "`shardc tune` measures again and writes records");
}

void tune_db_read(Ctx *c, const char *name, const char *text, size_t n, TuneKind *kind,
                  TuneDb *db) {
  uint32_t bad = 0;
  size_t first = 0, length = 0;
  for (size_t at = 0, end; at < n; at = end + 1) {
    Fields fields;
    TuneRecord record = {0};
    for (end = at; end < n && text[end] != '\n'; end++) {}
    if (is_comment(text + at, end - at)) continue;
    if (readable(text + at, end - at) && split(c, text + at, end - at, &fields) &&
        record_of(&fields, kind, &record))
      tune_db_add(c, db, &record);
    else if (!bad++) first = at, length = end - at;
  }
  if (bad) warn(c, name, text, n, first, length, bad);
}

/* ---- merging and finding ---- */

static bool same_kernel(const TuneRecord *a, const TuneRecord *b) {
  return a->family == b->family && a->key == b->key && a->target == b->target &&
         a->workers == b->workers;
}

/* Newer first, then faster, then by content: the same record whatever the order of lines. */
static bool better(const TuneRecord *a, const TuneRecord *b) {
  int date = strcmp(a->date, b->date), device = strcmp(a->device, b->device);
  if (date) return date > 0;
  if (a->ns < b->ns || a->ns > b->ns) return a->ns < b->ns;
  return device ? device < 0 : memcmp(a->cut.at, b->cut.at, sizeof a->cut.at) < 0;
}

void tune_db_add(Ctx *c, TuneDb *db, const TuneRecord *record) {
  for (uint32_t i = 0; i < db->n; i++) {
    TuneRecord *old = &db->at[i];
    if (!same_kernel(old, record) || old->device != record->device) continue;
    if (better(record, old)) *old = *record;
    return;
  }
  vec_push(c->arena, *db, *record);
}

const TuneRecord *tune_db_find(const TuneDb *db, Str family, Str key, Str target, int64_t workers,
                               Str device) {
  const TuneRecord wanted = {.family = family, .key = key, .target = target, .workers = workers};
  const TuneRecord *best = NULL;
  for (uint32_t i = 0; i < db->n; i++) {
    const TuneRecord *record = &db->at[i];
    if (!same_kernel(record, &wanted)) continue;
    if (record->device == device) return record;
    if (!best || better(record, best)) best = record;
  }
  return best;
}

/* ---- writing ---- */

static int in_order(const void *x, const void *y) {
  const TuneRecord *a = x, *b = y;
  int d = strcmp(a->family, b->family);
  if (!d) d = strcmp(a->key, b->key);
  if (!d) d = strcmp(a->target, b->target);
  if (!d) d = (a->workers > b->workers) - (a->workers < b->workers);
  return d ? d : strcmp(a->device, b->device);
}

char *tune_db_text(Ctx *c, TuneDb *db) {
  char *text = NULL;
  size_t n;
  FILE *out = heap_stream(&text, &n);
  if (!out) bug("no memory");
  if (db->n) qsort(db->at, db->n, sizeof *db->at, in_order);
  fputs("# family\tkey\ttarget\tworkers\tdevice\tdriver\tcut\tns\trule's ns\trounds\tdate\tshape\n",
        out);
  for (uint32_t i = 0; i < db->n; i++) {
    const TuneRecord *record = &db->at[i];
    const Variants *variants = variants_find(record->family, record->kind);
    must(variants, "tuning records of family %s, which has no variants", record->family);
    fprintf(out, "%s\t%s\t%s\t%lld\t%s\t%s\t", record->family, record->key, record->target,
            (long long)record->workers, record->device, record->driver);
    for (int j = 0; j < variants->count; j++)
      fprintf(out, "%s%lld", j ? " " : "", (long long)record->cut.at[j]);
    fprintf(out, "\t%.0f\t%.0f\t%lld\t%s", record->ns, record->rule_ns, (long long)record->rounds,
            record->date);
    if (record->shape.bytes > 0) fprintf(out, "\t%s", kernel_shape_text(c->arena, &record->shape));
    fputc('\n', out);
  }
  fclose(out);
  char *copy = arena_strndup(c->arena, text, n);
  free(text);
  return copy;
}
