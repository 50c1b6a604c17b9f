/* An external program that assembles the kernels of a device to its machine code. It is optional;
   its output is faster to load. */
#ifndef SHARDC_ASSEMBLE_H
#define SHARDC_ASSEMBLE_H
#include "codegen.h"

typedef struct Assembler {
  const char *name, *path;
  const char *version; /* its own words */
  const char *ending;  /* of the files it makes */
  /* NULL: `made` is as kernels must be, without registers put into memory and without serialized
     stages; else what is wrong, and there is no such file. */
  const char *(*run)(Arena *a, const struct Assembler *x, const Target *t, const char *kernel,
                     const char *made);
} Assembler;

#endif
