/* The optimizers as rows of optimizers.def: what passes and checks ask of them. */
#ifndef SHARDC_IR_OPTIMIZERS_H
#define SHARDC_IR_OPTIMIZERS_H
#include "ir/ir.h"

enum { OPTIMIZER_FREEZES = 1 };

typedef struct OptimizerRow {
  const char *name, *states;
  unsigned flags;
} OptimizerRow;

const OptimizerRow *optimizer_row(const char *name); /* NULL: there is none */

#endif
