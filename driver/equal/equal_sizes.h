/* Sizes for the comparison of `shardc equal`: see equal_sizes.c. */
#ifndef SHARDC_EQUAL_SIZES_H
#define SHARDC_EQUAL_SIZES_H
#include "driver/cmd.h"

/* Adds to the dims and settings of `o` the smallest ones at which the program can still be lowered
   and is split in the same way. `words` says which these are: `Embed 12, Seq 3`. strict: every axis
   of the mesh divides each dim that it divides as written, wherever it is placed. */
void equal_sizes(Cli *o, const Module *m, bool strict, const char **words);

#endif
