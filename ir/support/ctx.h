/* The one context pointer of a compilation. No other state is shared and none is global. */
#ifndef SHARDC_CTX_H
#define SHARDC_CTX_H
#include "arena.h"
#include "diag.h"
#include "intern.h"

typedef struct Ctx {
  Arena *arena; /* lives as long as the compilation */
  Interner *names;
  Diag *diag;
} Ctx;

Ctx *ctx_new(void);
void ctx_free(Ctx *c);
#endif
