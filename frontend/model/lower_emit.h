/* The writer of the evaluator: writes its results into the IR. Every function does nothing when
   only checking. Values of an outer function become arguments of the loop bodies that use them. */
#ifndef SHARDC_LOWER_EMIT_H
#define SHARDC_LOWER_EMIT_H
#include "sema.h"

/* Appends an op with results outs[0 .. nout - 1], whose kinds and dims are set already; sets their
   ids. Operands that are plain numbers become constants of the element type of the others. NULL
   when only checking; else for setting attributes, valid until the next op. */
Op *lower_op(Eval *e, Val *outs, int nout, OpCode code, int nin, const Val *const *in, int ngroups,
             const AxisGroup *groups);
Op *lower_dims(Eval *e, Val *out, OpCode code, const Val *a,
               const Dims *dims); /* one operand, one group */
void lower_rename(Eval *e, Val *out, const Val *a, Str from, Str to);
void lower_iota(Eval *e, Val *out, Str dim);
void lower_rand(Eval *e, Val *out);
/* Row r and column c of set[rows][columns] */
void lower_lookup(Eval *e, Val *out, const Val *const r_and_c[2], int64_t rows, int64_t columns,
                  const bool *set);
void lower_float(Eval *e, Op *op, AttrKey k, double v); /* attributes; op NULL: nothing */
void lower_int(Eval *e, Op *op, AttrKey k, int64_t v);

/* Makes the dims of a value those of `big` (and more): a itself if it has them all. */
Val lower_widened(Eval *e, const Val *a, const Dims *big);

void lower_assigned(Eval *e, Str name, const Val *v); /* a layer's value got this name */
void lower_aux(Eval *e, const Val *v);                /* adds to the loss */
void lower_term(Eval *e, const Val *v);               /* the same, of an `aux` line */
void lower_loop_begin(Eval *e, const Stack *stack, int n, Val *args);
/* `rules`: values that leave the loop as stacked results, which they become. */
Val lower_loop_end(Eval *e, const Val *carried, const RuleValues *rules);
/* Its value after the step: of a state, or of a trained parameter that is projected. */
void lower_next(Eval *e, const Param *param, const Val *v);
#endif
