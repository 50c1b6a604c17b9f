/* A program beside the compiler that takes the kernels of a device on to its machine code. Nothing
   needs it; what it makes is faster to load. */
#ifndef SHARDC_ASSEMBLE_H
#define SHARDC_ASSEMBLE_H
#include "codegen.h"

enum { ASSEMBLER_REFUSED = 5 }; /* exit status of a process in which Assembler.run found a fault */

typedef struct Assembler {
  const char *name, *path;
  const char *version; /* its own words */
  const char *ending;  /* of the files it makes */
  /* Ends this process with ASSEMBLER_REFUSED, and why on stderr, unless `made` is made as kernels
     must be: without registers put into memory, and without serialized stages. */
  void (*run)(Arena *a, const struct Assembler *x, const Target *t, const char *kernel,
              const char *made);
} Assembler;

#endif
