/* Diagnostics: the one function through which every mistake of a user is reported.

   A diagnostic has a code (E0301), a headline that is complete by itself, one primary span with a
   short label, optional secondary places, facts (`= ...`) and one help line with the edit that
   corrects it. Diagnostics are collected, sorted by position, and printed together; the text is
   identical with and without colour. After 20 errors reading stops (diag_full).

     Report r = diag_at(d, "E0201", span, "no dimension named `%s`", name);
     diag_label(r, "not in any `dims` block of %s", file);
     diag_help(r, "a dimension with a similar name exists: `%s` (line %d)", near, line);
     diag_edit(r, span, "%s", near);

   The edits of one message are applied together and correct the mistake; programs read them as
   JSON. A message whose correction needs a decision has none. Long source lines are cut around the
   carets.

   Codes start with E (error), W (warning), N (note). Errors of the compiler itself are not
   diagnostics: use `bug()`. */
#ifndef SHARDC_DIAG_H
#define SHARDC_DIAG_H
#include "arena.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Span {
  uint32_t file, offset, length; /* file 0: no position */
} Span;

typedef struct Source {
  const char *name; /* as shown to the user */
  const char *text; /* NUL-terminated */
  size_t length;
} Source;

typedef struct Diag Diag;
typedef struct Report Report;

Diag *diag_new(Arena *a);
uint32_t diag_add_source(Diag *diag, const char *name, const char *text,
                         size_t length); /* returns the file number, from 1 */
const Source *diag_source(const Diag *diag, uint32_t file);
uint32_t diag_source_count(const Diag *diag);
void diag_line_column(const Diag *diag, Span s, uint32_t *line,
                      uint32_t *column); /* both from 1; columns count bytes */

Report *diag_at(Diag *diag, const char *code, Span s, const char *headline, ...)
    __attribute__((format(printf, 4, 5)));
void diag_label(Report *r, const char *text, ...)
    __attribute__((format(printf, 2, 3))); /* after the carets */
void diag_also(Report *r, Span s, const char *text, ...)
    __attribute__((format(printf, 3, 4))); /* another place */
void diag_fact(Report *r, const char *text, ...) __attribute__((format(printf, 2, 3)));
void diag_help(Report *r, const char *text, ...) __attribute__((format(printf, 2, 3)));
void diag_edit(Report *r, Span s, const char *text, ...)
    __attribute__((format(printf, 3, 4))); /* what to write in place of s; length 0: before it */

void diag_edit_around(Report *r, Span s, const char *before, const char *after);
void diag_near(Report *r, const char *what,
               const char *near); /* help: a name for the primary place; nothing if NULL */

void diag_drop(Diag *diag, const char *code); /* notes of this code are not shown after all */
/* Reports whose codes begin so ("E": the errors), of a Diag that read the same files in the same
   order, or further ones after them; it must live as long. */
void diag_take(Diag *diag, const Diag *from, const char *code);
uint32_t diag_errors(const Diag *diag);
bool diag_full(const Diag *diag);
const char *
diag_first_code(const Diag *diag); /* of the first error that was reported, NULL if there is none */
const char *diag_first_error(const Diag *diag); /* its code and headline; "" if there is none */
bool diag_given(const Diag *diag, const char *code); /* has this code been reported? */
typedef enum DiagFormat { DIAG_HUMAN, DIAG_SHORT, DIAG_JSON } DiagFormat;
void diag_print(const Diag *diag, FILE *out, DiagFormat format,
                bool colour); /* sorted by position */
/* The members of a JSON array, sorted: {"code", "file", "line", "column", "message", "help"}; line
   0 and file "" if there is no position, help null if there is none. `comma`: other members precede
   them. True if there are any. */
bool diag_print_list(const Diag *diag, FILE *out, bool comma);
void json_put_string(FILE *out, const char *text); /* quoted; what is no UTF-8 becomes U+FFFD */
/* Insertions, deletions, substitutions, and swaps of neighbours; INT_MAX for long names. */
int diag_distance(const char *a, const char *b);
const char *diag_nearest(const char *wanted, const char *const *names,
                         uint32_t n); /* edit distance <= 2, or a beginning; else NULL */
/* "a, b, c", of many the first eight */
const char *diag_list(Arena *a, const char *const *names, uint32_t n);
const char *diag_spelt(const char *wanted, const char *const *names,
                       uint32_t n); /* the same without beginnings */

/* An internal error: says where in the compiler, aborts. `must` is for what another part promised:
   it stays in every build, so conditions are cheap. */
#define bug(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
#define must(condition, ...) ((condition) ? (void)0 : bug(__VA_ARGS__))
_Noreturn void bug_at(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#endif
