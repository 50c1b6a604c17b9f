/* How many scores of an attention its mask admits, from what the IR says about positions. */
#ifndef SHARDC_IR_ADMITTED_H
#define SHARDC_IR_ADMITTED_H
#include "ir/ir.h"

/* The share of queries x keys that `mask`, a bool value of f, admits. `lists`, m's of that mask, or
   NULL, say what numbers of ranks it has: then the share of all ranks. */
double mask_share(const Module *m, const Fn *f, ValueId mask, Axis query, Axis key,
                  const BlockLists *lists);
#endif
