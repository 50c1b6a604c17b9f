/* What a loop op says about its operands and results: roles, and, of a loop over a part of a stack,
   where its rounds stand in it. Round n of loop `first = f, of = s` has the counter f + n; its
   slice of a stack of the rounds alone is n, its slice of a stack of all, s of them, is f + n. */
#ifndef SHARDC_LOOP_H
#define SHARDC_LOOP_H
#include "ir.h"

uint32_t loop_whole(const Op *loop); /* operands before the stacked ones: carried, invariant */
int64_t loop_first(const Op *loop);  /* counter of the first round, in the order of slices */
int64_t loop_length(const Op *loop); /* length of the stack that it is a part of, or trip */
/* The operand that a result continues: its other slices are the operand's. NO_VALUE: none. */
uint32_t loop_continues(const Op *loop, uint32_t result);
/* Is the result a stack of all of which nobody has written the other slices? */
bool loop_begins(const Op *loop, uint32_t result);
/* Number of the slice that counter 0 would have in an operand or result of that type. */
int64_t loop_base(const Op *loop, const Type *stacked);
bool value_is_used(const Fn *f, ValueId v); /* by an op, or as a result */
uint32_t value_uses(const Fn *f, ValueId v);
bool value_is_zero(const Fn *f, ValueId v); /* a constant 0, spread, renamed, cast */

/* What a body makes of a carried value, if it adds something to it and does nothing else with it. A
   sum in 16 bits is cast before the addition and behind it. */
typedef struct RunningSum {
  ValueId wide, total; /* what is added to, and what comes of it: without casts, argument, result */
  ValueId added;
} RunningSum;
bool running_sum(const Fn *body, ValueId argument, ValueId result, RunningSum *sum);
#endif
