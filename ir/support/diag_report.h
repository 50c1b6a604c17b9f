/* The data that diag.c collects, and diag_print.c and the language server (driver/lsp) show. No
   other file includes this header. */
#ifndef SHARDC_DIAG_REPORT_H
#define SHARDC_DIAG_REPORT_H
#include "diag.h"
#include "vec.h"

enum { ERROR_LIMIT = 20 }; /* more are counted, not kept */

typedef struct SourcePlace {
  Span span;
  const char *text; /* NULL: none */
} SourcePlace;

struct Report {
  Arena *arena;
  const char *code, *headline;
  SourcePlace primary;
  VEC(SourcePlace) also;
  VEC(const char *) facts;
  VEC(const char *) helps;
  VEC(SourcePlace) edits;
  uint32_t number; /* order of arrival */
};

typedef struct SourceLines { /* offsets of the lines' first characters, in order */
  uint32_t *start, n;
} SourceLines;

struct Diag {
  Arena *arena;
  VEC(Source) sources;
  VEC(SourceLines) lines; /* per source */
  VEC(Report *) reports;
  uint32_t errors, arrived;
};

#endif
