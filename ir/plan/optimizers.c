/* The table optimizers.def. Must not: know update rules, which are in passes/math. */
#include "optimizers.h"
#include "ir/support/num.h"
#include <string.h>

static const OptimizerRow rows[] = {
#define FREEZES OPTIMIZER_FREEZES
#define OPTIMIZER(name, states, flags) {#name, states, flags},
#include "optimizers.def"
#undef OPTIMIZER
#undef FREEZES
};

const OptimizerRow *optimizer_row(const char *name) {
  for (size_t i = 0; name && i < COUNT_OF(rows); i++)
    if (!strcmp(rows[i].name, name)) return &rows[i];
  return NULL;
}
