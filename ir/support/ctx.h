/* The one context pointer of a compilation. No other state is shared and none is global. */
#ifndef SHARDC_CTX_H
#define SHARDC_CTX_H
#include "arena.h"
#include "diag.h"
#include "intern.h"
#include "heap.h"
#include "vec.h"

/* A text in place of a file: what an editor has, saved or not. */
typedef struct OpenText {
  const char *path; /* as the system names it */
  const char *text;
  size_t length;
  const struct OpenText *next;
} OpenText;

/* A file as the system knows it, whatever name leads to it. */
typedef struct FileId {
  uint64_t device, number;
} FileId;

typedef struct Ctx {
  Arena *arena; /* lives as long as the compilation */
  Interner *names;
  Diag *diag;
  char *input; /* what can be read once: standard input or a pipe, and which (input.h) */
  size_t input_length;
  const char *input_path;
  const OpenText *open; /* read in place of the files; NULL: none */
  VEC(FileId) read;     /* the files that were read (input.h) */
} Ctx;

Ctx *ctx_new(void);
void ctx_free(Ctx *c);
#endif
