/* The one context pointer of a compilation. No other state is shared and none is global. */
#ifndef SHARDC_CTX_H
#define SHARDC_CTX_H
#include "arena.h"
#include "diag.h"
#include "intern.h"
#include "heap.h"

typedef struct Ctx {
  Arena *arena; /* lives as long as the compilation */
  Interner *names;
  Diag *diag;
  char *input; /* what can be read once: standard input or a pipe, and which (input.h) */
  size_t input_length;
  const char *input_path;
} Ctx;

Ctx *ctx_new(void);
void ctx_free(Ctx *c);
#endif
