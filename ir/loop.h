/* The operands and results of a loop op: their roles, and, for a loop over a part of a stack, the
   slices that its rounds use. Round n of loop `start = f, stack_length = s` has the counter f + n.
   In a stack that has the slices of these rounds only, its slice is n; in a stack with all s slices
   it is f + n. */
#ifndef SHARDC_LOOP_H
#define SHARDC_LOOP_H
#include "ir.h"

typedef enum LoopRounds {
#define ROUNDS(name, meaning) ROUNDS_##name,
#include "rounds.def"
#undef ROUNDS
  ROUNDS_COUNT
} LoopRounds;
const char *rounds_name(LoopRounds rounds);
LoopRounds rounds_find(const char *name); /* ROUNDS_COUNT: there are no such rounds */
LoopRounds loop_rounds(const Op *loop);
bool loop_has_stages(const Op *op); /* a loop whose rounds are those of a pipeline's stages? */
bool loop_is_micro(const Op *op);   /* a loop over the micro-batches of a step? */
/* In dumps from before attribute `rounds`, loops over micro-batches are told by their dim. */
void loops_of_names(Module *m);
int64_t body_rounds(const Module *m,
                    const Fn *f); /* the most of a loop over it; 1: there is none */

uint32_t loop_whole(const Op *loop); /* operands before the stacked ones: carried, invariant */
int64_t loop_first(const Op *loop);  /* counter of the first round, in the order of slices */
int64_t loop_length(const Op *loop); /* length of the stack that it is a part of, or trip */
/* The operand that a result continues: its other slices are the operand's. NO_VALUE: none. */
uint32_t loop_continues(const Op *loop, uint32_t result);
/* Is the result a stack of all rounds, whose other slices no loop has written yet? */
bool loop_begins(const Op *loop, uint32_t result);
/* Number of the slice that counter 0 would have in an operand or result of that type. */
int64_t loop_base(const Op *loop, const Type *stacked);
/* Do its rounds leave the result in the bytes of that argument of the body? */
bool loop_returns_arg(const Op *loop, uint32_t result, uint32_t argument);
/* After pass memory: the stacked result whose slices are the buffers of that carried value; 0:
   none. */
uint32_t loop_saved(const Op *loop, uint32_t carried);
/* The offset of its second buffer in the frame; -1: it has none. */
int64_t loop_second_at(const Op *loop, uint32_t carried);
bool value_is_result(const Fn *f, ValueId v); /* that the function returns */
bool value_is_read(const Fn *f, ValueId v);   /* by an op */
bool value_is_used(const Fn *f, ValueId v);   /* by an op, or as a result */
uint32_t value_uses(const Fn *f, ValueId v);
bool value_is_zero(const Fn *f, ValueId v); /* a constant 0, spread, renamed, cast */

/* A carried value to which the body adds something, without any other use of it. A sum in 16 bits
   is cast before the addition and after it. */
typedef struct RunningSum {
  ValueId wide, total; /* what is added to, and what comes of it: without casts, argument, result */
  ValueId added;
} RunningSum;
bool running_sum(const Fn *body, ValueId argument, ValueId result, RunningSum *sum);
#endif
