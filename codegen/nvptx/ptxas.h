/* ptxas, where it is on PATH: PTX to cubins. */
#ifndef SHARDC_PTXAS_H
#define SHARDC_PTXAS_H
#include "codegen/assemble.h"

const Assembler *ptxas_find(Arena *arena); /* NULL: there is none */

#endif
