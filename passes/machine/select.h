/* How pass `select` cuts one kernel, for passes that change what its cut depends on. */
#ifndef SHARDC_SELECT_H
#define SHARDC_SELECT_H
#include "ir/ir.h"

/* Cuts k by its tuning record, else by the rule of its family. False: no cut fits, reported. */
bool select_cut(Module *m, Fn *k);
#endif
