/* One canonical layout for `.shard` files: `shardc fmt`. */
#ifndef SHARDC_FMT_H
#define SHARDC_FMT_H
#include "ast.h"

/* The text in canonical layout, NUL-terminated. NULL: it has syntax errors, which are in c->diag.
   The result has the same syntax tree and the same comments, and formatting it again changes
   nothing. */
char *fmt_text(Ctx *c, const char *name, const char *text, size_t n, size_t *out_n);
#endif
