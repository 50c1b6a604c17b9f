/* An external program that assembles the kernels of a device to its machine code. It is optional;
   its output is faster to load. */
#ifndef SHARDC_ASSEMBLE_H
#define SHARDC_ASSEMBLE_H
#include "codegen.h"

/* The words of the assembler about a kernel, NULL: none. */
typedef struct Assembled {
  const char *refused; /* there is no output */
  const char *slow;    /* it is right, but keeps registers in memory or serializes its stages */
} Assembled;

typedef struct Assembler {
  const char *name, *path;
  const char *version; /* its own words */
  const char *ending;  /* of the files it makes */
  Assembled (*run)(Arena *a, const struct Assembler *x, const Target *t, const char *kernel,
                   const char *made);
} Assembler;

#endif
