/* The optimizers as rows of optimizers.def: what passes and checks ask of them. */
#ifndef SHARDC_IR_OPTIMIZERS_H
#define SHARDC_IR_OPTIMIZERS_H
#include "ir/ir.h"

enum { OPTIMIZER_FREEZES = 1, OPTIMIZER_MATRICES = 2, OPTIMIZER_AVERAGES = 4 };

typedef struct OptimizerRow {
  const char *name, *states;
  unsigned flags;
} OptimizerRow;

const OptimizerRow *optimizer_row(const char *name); /* NULL: there is none */

/* A module has one line of settings train.optim, and lines train.optim.1 .. for groups of
   parameters, each with its own word and options. */
int optimizer_lines(const Module *m);              /* of groups */
int optimizer_line_of(const Module *m, Str param); /* of this parameter; 0: train.optim */
/* The key of line `line` for a key of line 0: train.optim.2.lr for train.optim.lr. */
Str optimizer_key(const Module *m, int line, const char *key);
double optimizer_fastest(const Module *m); /* the largest rate of all lines */

#endif
