/* ptxas, where it is on PATH: PTX to cubins. Nothing needs it; what it makes is faster to load. */
#ifndef SHARDC_ASSEMBLE_H
#define SHARDC_ASSEMBLE_H
#include "codegen.h"

enum { ASSEMBLER_REFUSED = 5 }; /* exit status of a process in which assembler_run found a fault */

typedef struct Assembler {
  const char *path;
  const char *version; /* its own words */
} Assembler;

const Assembler *assembler_find(Arena *a); /* NULL: there is none */
/* Ends this process with ASSEMBLER_REFUSED, and why on stderr, unless the cubin is made without
   spills and without serialized stages. */
void assembler_run(Arena *a, const Assembler *x, const Target *t, const char *ptx,
                   const char *cubin);

#endif
