/* Fitting a program into memory: for the driver alone (cmd_fit.c).

   Both may run passes on copies of the program; neither changes the module that it is given. */
#ifndef SHARDC_FIT_H
#define SHARDC_FIT_H
#include "cmd.h"
#include "frontend/lower.h"

/* cmd_load.c: FILE -> a module; NULL: diagnostics were given, or FILE cannot be read */
Module *load_shard(Cli *o, const char *path, LowerFacts *facts);

/* The micro-batch that is to be taken because none is written, with its note; 0: leave it. */
int64_t fit_micro(Cli *o, const Module *m, const LowerFacts *facts);

/* After pass `memory`. False: E0801 was given. */
bool fit_check(Cli *o, const Module *m, const LowerFacts *facts);
#endif
