/* Diagnostics: the human format, the short one, JSON.

   The human format is written for people who read code:

     error[E0305]: `Embed / Heads` is not a whole number (768 / 10 = 76.8)
       --> gpt2.shard:8:12
     7 |   Embed  = 768;  Heads = 10;  QKV = 3;  Layers = 12
       |                  ---------- set here
     8 |   Head   = Embed / Heads
       |            ^^^^^^^^^^^^^ every dimension is an integer
       = help: divisors of 768 near 10: 8, 12

   Secondary places in the same file are drawn between the lines; where one of them is in another
   file, all of them go to one line `::: file:line:column  text;  ..`. Colour only adds escape
   codes. Messages are sorted by file, position and order of arrival, so the output does not depend
   on the order of the checks. Must not: change what was collected. */
#include "diag_report.h"
#include "heap.h"
#include "output.h"
#include <stdlib.h>

enum { LINE_LIMIT = 180 };

/* Names, paths and source lines; escape codes of colours are our own. */
static void put_text(FILE *out, const char *text) { output_shown(out, text, strlen(text)); }

/* ---- the human format ---- */

static size_t line_start(const Source *source, size_t offset) {
  if (offset > source->length) offset = source->length;
  while (offset && source->text[offset - 1] != '\n') offset--;
  return offset;
}

static size_t line_length(const Source *source, size_t start) {
  size_t end = start;
  while (end < source->length && source->text[end] != '\n' && source->text[end] != '\r') end++;
  return end - start;
}

typedef struct Style {
  const char *severity, *bold, *blue, *end; /* escape codes, or "" */
} Style;

typedef struct DiagPrinter {
  const Diag *d;
  FILE *out;
  Style style;
  int gutter; /* digits of the largest line number shown */
} DiagPrinter;

static const char *severity_name(const Report *r) {
  return *r->code == 'E' || *r->code == 'R' ? "error" : *r->code == 'W' ? "warning" : "note";
}

static Style style_of(const Report *r, bool colour) {
  if (!colour) return (Style){"", "", "", ""};
  const char *c = *r->code == 'W' ? "\033[1;33m" : *r->code == 'N' ? "\033[1;36m" : "\033[1;31m";
  return (Style){c, "\033[1m", "\033[1;34m", "\033[0m"};
}

static int digits_of(uint32_t n) {
  int digits = 1;
  while (n >= 10) n /= 10, digits++;
  return digits;
}

static uint32_t line_of(const Diag *diag, Span s) {
  uint32_t line, column;
  diag_line_column(diag, s, &line, &column);
  return line;
}

/* Characters, not bytes: continuation bytes of UTF-8 take no room. */
static void put_blanks(FILE *out, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (text[i] == '\t') fputc('\t', out);
    else if (((unsigned char)text[i] & 0xC0) != 0x80) fputc(' ', out);
}

static void put_marks(FILE *out, const char *text, size_t n, char mark) {
  size_t written = 0;
  for (size_t i = 0; i < n; i++)
    if (((unsigned char)text[i] & 0xC0) != 0x80) fputc(mark, out), written++;
  if (!written) fputc(mark, out);
}

/* The part of a source line that is shown: all of it, unless it is long. */
typedef struct SourceWindow {
  const char *text; /* of the line */
  size_t from, to, n;
} SourceWindow;

static bool inside_character(const char *text, size_t at) {
  return ((unsigned char)text[at] & 0xC0) == 0x80;
}

/* `mark`: column that must be seen. The same for every place of a line if the first one gives it.
 */
static SourceWindow window_of(const Source *source, size_t offset, size_t mark) {
  size_t start = line_start(source, offset), n = line_length(source, start);
  SourceWindow window = {source->text + start, 0, n, n};
  if (n <= LINE_LIMIT) return window;
  window.from = mark > LINE_LIMIT / 2 ? mark - LINE_LIMIT / 2 : 0;
  if (window.from + LINE_LIMIT > n) window.from = n - LINE_LIMIT;
  window.to = window.from + LINE_LIMIT;
  while (window.from && inside_character(window.text, window.from)) window.from--;
  while (window.to < n && inside_character(window.text, window.to)) window.to++;
  return window;
}

static void put_source_line(const DiagPrinter *printer, Span at, const SourceWindow *window) {
  const Style *style = &printer->style;
  fprintf(printer->out, "%s%*u |%s", style->blue, printer->gutter, line_of(printer->d, at),
          style->end);
  if (window->n) fputc(' ', printer->out);
  if (window->from) fputs("...", printer->out);
  output_shown(printer->out, window->text + window->from, window->to - window->from);
  fputs(window->to < window->n ? "...\n" : "\n", printer->out);
}

static size_t at_most(size_t n, size_t most) { return n < most ? n : most; }

static void put_place(const DiagPrinter *printer, const SourcePlace *place, bool primary,
                      const SourceWindow *window) {
  const Source *source = diag_source(printer->d, place->span.file);
  size_t start = (size_t)(window->text - source->text);
  size_t end = at_most(place->span.offset, source->length) - start + place->span.length;
  size_t before = at_most(place->span.offset, source->length) - start;
  if (before > window->to && window->to < window->n) before = window->to;
  if (before < window->from) before = window->from;
  size_t under = at_most(end, window->to) > before ? at_most(end, window->to) - before : 0;
  const Style *style = &printer->style;
  fprintf(printer->out, "%s%*s |%s %s", style->blue, printer->gutter, "", style->end,
          window->from ? "   " : "");
  put_blanks(printer->out, window->text + window->from, before - window->from);
  fputs(primary ? style->severity : style->blue, printer->out);
  put_marks(printer->out, window->text + before, under, primary ? '^' : '-');
  if (place->text && *place->text) fputc(' ', printer->out), put_text(printer->out, place->text);
  fprintf(printer->out, "%s\n", style->end);
}

static bool all_in_one_file(const Report *r) {
  for (uint32_t i = 0; i < r->also.n; i++)
    if (r->also.at[i].span.file != r->primary.span.file) return false;
  return true;
}

static int compare_places(const void *a, const void *b) {
  const SourcePlace *x = *(const SourcePlace *const *)a, *y = *(const SourcePlace *const *)b;
  return (x->span.offset > y->span.offset) - (x->span.offset < y->span.offset);
}

/* Around which column a long line is cut: that of the primary place if it is on this line. */
static size_t shown_column(const DiagPrinter *printer, const SourcePlace *first,
                           const SourcePlace *primary) {
  const SourcePlace *at =
      line_of(printer->d, primary->span) == line_of(printer->d, first->span) ? primary : first;
  uint32_t line, column;
  diag_line_column(printer->d, at->span, &line, &column);
  return column - 1;
}

/* The primary place and, if they are in the same file, the others: line by line, each line once. */
static void put_snippet(const DiagPrinter *printer, const Report *r) {
  VEC(const SourcePlace *) places = {0};
  uint32_t last = 0;
  SourceWindow window = {0};
  vec_push(r->arena, places, &r->primary);
  for (uint32_t i = 0; all_in_one_file(r) && i < r->also.n; i++)
    vec_push(r->arena, places, &r->also.at[i]);
  qsort(places.at, places.n, sizeof *places.at, compare_places);
  for (uint32_t i = 0; i < places.n; i++) {
    uint32_t line = line_of(printer->d, places.at[i]->span);
    if (last && line > last + 1)
      fprintf(printer->out, "%s...%s\n", printer->style.blue, printer->style.end);
    if (line != last) {
      window =
          window_of(diag_source(printer->d, places.at[i]->span.file), places.at[i]->span.offset,
                    shown_column(printer, places.at[i], &r->primary));
      put_source_line(printer, places.at[i]->span, &window);
    }
    put_place(printer, places.at[i], places.at[i] == &r->primary, &window);
    last = line;
  }
}

static void put_elsewhere(const DiagPrinter *printer, const Report *r) {
  if (!r->also.n || all_in_one_file(r)) return;
  fprintf(printer->out, "%*s %s:::%s", printer->gutter, "", printer->style.blue,
          printer->style.end);
  for (uint32_t i = 0; i < r->also.n; i++) {
    const SourcePlace *place = &r->also.at[i];
    const Source *source = diag_source(printer->d, place->span.file);
    uint32_t line, column;
    diag_line_column(printer->d, place->span, &line, &column);
    if (i) fputs("; ", printer->out);
    fputc(' ', printer->out);
    if (source) put_text(printer->out, source->name);
    if (source) fprintf(printer->out, ":%u:%u  ", line, column);
    put_text(printer->out, place->text);
  }
  fputc('\n', printer->out);
}

static int gutter_of(const Diag *diag, const Report *r) {
  int gutter = digits_of(line_of(diag, r->primary.span));
  for (uint32_t i = 0; all_in_one_file(r) && i < r->also.n; i++) {
    int digits = digits_of(line_of(diag, r->also.at[i].span));
    if (digits > gutter) gutter = digits;
  }
  return gutter;
}

static void put_note(const DiagPrinter *printer, const char *word, const char *colon,
                     const char *text) {
  const Style *style = &printer->style;
  fprintf(printer->out, "%*s %s=%s ", printer->gutter, "", style->blue, style->end);
  if (*word) fprintf(printer->out, "%s%s%s%s", style->bold, word, style->end, colon);
  put_text(printer->out, text);
  fputc('\n', printer->out);
}

static void put_notes(const DiagPrinter *printer, const Report *r) {
  for (uint32_t i = 0; i < r->facts.n; i++) put_note(printer, "", "", r->facts.at[i]);
  for (uint32_t i = 0; i < r->helps.n; i++) put_note(printer, "help", ": ", r->helps.at[i]);
}

static void print_human(const Diag *diag, const Report *r, FILE *out, bool colour) {
  DiagPrinter printer = {diag, out, style_of(r, colour), 1};
  const Source *source = diag_source(diag, r->primary.span.file);
  const Style *style = &printer.style;
  uint32_t line, column;
  fprintf(out, "%s%s[%s]%s%s: ", style->severity, severity_name(r), r->code, style->end,
          style->bold);
  put_text(out, r->headline);
  fprintf(out, "%s\n", style->end);
  if (source) {
    printer.gutter = gutter_of(diag, r);
    diag_line_column(diag, r->primary.span, &line, &column);
    fprintf(out, "%*s%s-->%s ", printer.gutter > 2 ? printer.gutter : 2, "", style->blue,
            style->end);
    put_text(out, source->name);
    fprintf(out, ":%u:%u\n", line, column);
    put_snippet(&printer, r);
    put_elsewhere(&printer, r);
  }
  put_notes(&printer, r);
}

/* ---- short and JSON ---- */

static void print_short(const Diag *diag, const Report *r, FILE *out) {
  const Source *source = diag_source(diag, r->primary.span.file);
  uint32_t line, column;
  diag_line_column(diag, r->primary.span, &line, &column);
  if (source) put_text(out, source->name), fprintf(out, ":%u:%u: ", line, column);
  fprintf(out, "%s[%s]: ", severity_name(r), r->code);
  put_text(out, r->headline);
  fputc('\n', out);
}

/* Bytes of the UTF-8 sequence at `c`; 0 if it is none. */
static int utf8_length(const unsigned char *c) {
  int n = *c < 0x80                 ? 1
          : *c >= 0xC2 && *c < 0xE0 ? 2
          : *c >= 0xE0 && *c < 0xF0 ? 3
          : *c >= 0xF0 && *c < 0xF5 ? 4
                                    : 0;
  for (int i = 1; i < n; i++)
    if ((c[i] & 0xC0) != 0x80) return 0;
  bool overlong = (*c == 0xE0 && c[1] < 0xA0) || (*c == 0xF0 && c[1] < 0x90);
  bool outside = (*c == 0xED && c[1] >= 0xA0) || (*c == 0xF4 && c[1] >= 0x90);
  return overlong || outside ? 0 : n;
}

void json_put_string(FILE *out, const char *text) {
  fputc('"', out);
  for (const unsigned char *c = (const unsigned char *)text; *c;) {
    int n = utf8_length(c);
    if (*c == '"' || *c == '\\') fprintf(out, "\\%c", *c);
    else if (*c == '\n') fputs("\\n", out);
    else if (*c < 0x20 || *c == 0x7f) fprintf(out, "\\u%04x", *c);
    else if (!n) fputs("\\ufffd", out);
    else fwrite(c, 1, (size_t)n, out);
    c += n ? n : 1;
  }
  fputc('"', out);
}

static void put_json_place(const Diag *diag, const SourcePlace *place, bool primary, FILE *out) {
  const Source *source = diag_source(diag, place->span.file);
  uint32_t line, column;
  diag_line_column(diag, place->span, &line, &column);
  fputs("{\"file\":", out);
  json_put_string(out, source ? source->name : "");
  fprintf(out,
          ",\"line\":%u,\"column\":%u,\"offset\":%u,\"length\":%u,\"primary\":%s,\"label\":", line,
          column, place->span.offset, place->span.length, primary ? "true" : "false");
  json_put_string(out, place->text ? place->text : "");
  fputc('}', out);
}

static void put_json_list(const char *name, const char *const *at, uint32_t n, FILE *out) {
  fprintf(out, ",\"%s\":[", name);
  for (uint32_t i = 0; i < n; i++) {
    if (i) fputc(',', out);
    json_put_string(out, at[i]);
  }
  fputc(']', out);
}

static void put_json_edits(const Diag *diag, const Report *r, FILE *out) {
  fputs(",\"edits\":[", out);
  for (uint32_t i = 0; i < r->edits.n; i++) {
    const SourcePlace *place = &r->edits.at[i];
    const Source *source = diag_source(diag, place->span.file);
    uint32_t line, column;
    diag_line_column(diag, place->span, &line, &column);
    fputs(i ? ",{\"file\":" : "{\"file\":", out);
    json_put_string(out, source ? source->name : "");
    fprintf(out, ",\"line\":%u,\"column\":%u,\"offset\":%u,\"length\":%u,\"text\":", line, column,
            place->span.offset, place->span.length);
    json_put_string(out, place->text);
    fputc('}', out);
  }
  fputc(']', out);
}

static void put_json_rendered(const Diag *diag, const Report *r, FILE *out) {
  char *text = NULL;
  size_t n = 0;
  FILE *memory = heap_stream(&text, &n);
  if (!memory) return;
  print_human(diag, r, memory, false);
  fclose(memory);
  fputs(",\"rendered\":", out);
  json_put_string(out, text);
  free(text);
}

static void print_json(const Diag *diag, const Report *r, FILE *out) {
  fprintf(out, "{\"schema\":1,\"severity\":\"%s\",\"code\":\"%s\",\"message\":", severity_name(r),
          r->code);
  json_put_string(out, r->headline);
  fputs(",\"spans\":[", out);
  if (r->primary.span.file) put_json_place(diag, &r->primary, true, out);
  for (uint32_t i = 0; i < r->also.n; i++) {
    if (i || r->primary.span.file) fputc(',', out);
    put_json_place(diag, &r->also.at[i], false, out);
  }
  fputc(']', out);
  put_json_list("facts", r->facts.at, r->facts.n, out);
  put_json_list("help", r->helps.at, r->helps.n, out);
  put_json_edits(diag, r, out);
  put_json_rendered(diag, r, out);
  fputs("}\n", out);
}

/* ---- printing all ---- */

static int compare_reports(const void *a, const void *b) {
  const Report *x = *(Report *const *)a, *y = *(Report *const *)b;
  uint32_t file_x = x->primary.span.file - 1,
           file_y = y->primary.span.file - 1; /* no position: last */
  if (file_x != file_y) return file_x < file_y ? -1 : 1;
  if (x->primary.span.offset != y->primary.span.offset)
    return x->primary.span.offset < y->primary.span.offset ? -1 : 1;
  return x->number < y->number ? -1 : x->number > y->number;
}

static Report **sorted_reports(const Diag *diag) {
  Report **sorted = ARENA_ARRAY(diag->arena, Report *, diag->reports.n);
  if (diag->reports.n) memcpy(sorted, diag->reports.at, diag->reports.n * sizeof *sorted);
  qsort(sorted, diag->reports.n, sizeof *sorted, compare_reports);
  return sorted;
}

void diag_print(const Diag *diag, FILE *out, DiagFormat format, bool colour) {
  Report **sorted = sorted_reports(diag);
  for (uint32_t i = 0; i < diag->reports.n; i++)
    if (format == DIAG_SHORT) print_short(diag, sorted[i], out);
    else if (format == DIAG_JSON) print_json(diag, sorted[i], out);
    else print_human(diag, sorted[i], out, colour);
  if (diag->errors >= ERROR_LIMIT && format == DIAG_HUMAN)
    fprintf(out, "stopped after %d errors\n", ERROR_LIMIT);
}

static const char *joined_helps(const Report *r) {
  const char *text = r->helps.n ? r->helps.at[0] : NULL;
  for (uint32_t i = 1; i < r->helps.n; i++)
    text = arena_printf(r->arena, "%s\n%s", text, r->helps.at[i]);
  return text;
}

static void print_list_entry(const Diag *diag, const Report *r, FILE *out) {
  const Source *source = diag_source(diag, r->primary.span.file);
  const char *help = joined_helps(r);
  uint32_t line = 0, column = 0;
  if (source) diag_line_column(diag, r->primary.span, &line, &column);
  fprintf(out, "{\"code\":\"%s\",\"file\":", r->code);
  json_put_string(out, source ? source->name : "");
  fprintf(out, ",\"line\":%u,\"column\":%u,\"message\":", line, column);
  json_put_string(out, r->headline);
  fputs(",\"help\":", out);
  if (help) json_put_string(out, help);
  else fputs("null", out);
  fputc('}', out);
}

bool diag_print_list(const Diag *diag, FILE *out, bool comma) {
  Report **sorted = sorted_reports(diag);
  for (uint32_t i = 0; i < diag->reports.n; i++) {
    if (i || comma) fputc(',', out);
    print_list_entry(diag, sorted[i], out);
  }
  return diag->reports.n > 0;
}
