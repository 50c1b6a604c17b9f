/* What one run of an entry costs, counted from the IR at any stage: for the heads of dumps, for the
   statistics of passes, and for the table of entries in the executable. */
#ifndef SHARDC_IR_COUNT_H
#define SHARDC_IR_COUNT_H
#include "ir/ir.h"

/* Of one run of an entry, body or kernel, loops with all their rounds. */
double ir_op_flop(const Module *m, const Fn *f, const Op *o); /* of one op, callees included */
IrCount ir_count(const Module *m, const Fn *f);

/* The entry that the head of a dump speaks about: `step`, else the first; NULL if there is none. */
const Fn *ir_main_entry(const Module *m);
IrCount module_count(const Module *m); /* of that entry; zeros without one */
/* Of that, what kernels of the host of a GPU do. */
IrCount ir_count_beside(const Module *m, const Fn *f);
/* What other stages do while a rank waits for them, in a run of f: what stands between a
   receive and a send, once for every other rank of the axis. */
IrCount ir_waited(const Module *m, const Fn *f);
/* What runs in place of `step` from some step on, or NULL: 1-bit Adam's step once the second
   moments stand still (passes/math/onebit.c), the late one of the delayed update
   (passes/offload/delayed_update.c). */
const Fn *ir_later_entry(const Module *m);

/* One line without its end: the numbers of that entry, and the change against m->was. */
const char *ir_head(const Module *m);
char *ir_dump(Module *m,
              size_t *length); /* the text of m with that line as a comment; in m's arena */
#endif
