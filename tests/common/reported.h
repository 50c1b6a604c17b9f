/* Everything that was reported, as text in the arena of the context. */
#ifndef SHARDC_TESTS_REPORTED_H
#define SHARDC_TESTS_REPORTED_H
#include "ir/support/ctx.h"
#include <stdio.h>
#include <stdlib.h>

static inline const char *reported(Ctx *c) {
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  diag_print(c->diag, f, DIAG_HUMAN, false);
  fclose(f);
  const char *kept = arena_strndup(c->arena, text, n);
  free(text);
  return kept;
}
#endif
