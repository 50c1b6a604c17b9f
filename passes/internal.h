/* What passes share: their prototypes, and the small vocabulary of rebuilding functions.

   Passes never edit a list of ops in place. A Rebuild walks an old function and appends to a new
   one; `map` says which new value stands for each old one. */
#ifndef SHARDC_PASSES_INTERNAL_H
#define SHARDC_PASSES_INTERNAL_H
#include "ir/loop.h"
#include "passes/pass.h"

PassRun pass_inline, pass_ranges, pass_simplify, pass_grad, pass_optimizer, pass_micro,
    pass_precision, pass_recompute, pass_zero;
PassRun pass_pad, pass_place, pass_collect, pass_pipeline, pass_localize, pass_wire, pass_combine,
    pass_offload, pass_speculate;
PassRun pass_own;
PassRun pass_decode, pass_classes, pass_clean, pass_sparse, pass_fuse, pass_order, pass_select,
    pass_schedule, pass_prefetch, pass_turns, pass_memory, pass_prove;

typedef struct Rebuild {
  Module *m;
  const Fn *from;
  Fn *to;
  ValueId *map; /* by ValueId of from; NO_VALUE: not there (yet) */
} Rebuild;

Rebuild rebuild_begin(Module *m,
                      const Fn *from);   /* same kind, name, attributes, arguments; no ops yet */
Op *rebuild_op(Rebuild *r, const Op *o); /* copies o with mapped operands */
void rebuild_results(Rebuild *r);        /* results of from, mapped, become results of to */
ValueId *value_map(Module *m, const Fn *from); /* all NO_VALUE */

/* Ends a pass that rebuilt functions: keeps what entries reach, callees before callers, gives every
   function a name of its own and every value the natural order of dims. For passes before `order`.
 */
void module_collect(Module *m);
void select_messages(Module *m); /* messages.c */
/* Do the classes of a program come to an end together? Else E1113 (prove.c). */
bool prove_classes(Module *const *classes, uint32_t n);

/* A loop's operands and body arguments by role. */
typedef struct LoopShape {
  uint32_t carry, invariant, stacked; /* numbers of operands */
  int64_t trip;
  bool reverse;
  Axis axis;           /* what it runs over */
  Str path;            /* the stack of the model that it is, or NULL */
  Str stages;          /* the mesh axis that cuts its rounds, or NULL */
  int64_t layers;      /* of the rounds of all stages so many do something; 0: all */
  bool streams;        /* what it carries through stages is behind it the last one's alone */
  Str over;            /* mesh axes that split what it keeps for other loops, or NULL */
  bool offload;        /* what it keeps for other loops waits on the host */
  int64_t first, of;   /* a part of a stack of `of`; of 0: all of it */
  const int64_t *into; /* by stacked result, ninto of them; what is behind them: INTO_OWN */
  uint32_t ninto;
} LoopShape;
LoopShape loop_shape(const Op *o);
/* Is a result of a loop read by other loops alone, slice by slice? */
bool value_is_kept(const Fn *f, ValueId v);
/* Or is each of them such a loop, whoever else gets it as a result? */
bool value_goes_by_slices(const Fn *f, ValueId v);
int64_t loop_into(const LoopShape *shape, uint32_t result); /* as attribute `into` says it */
Axis loop_axis(const LoopShape *shape, uint32_t result);    /* in front of a stacked result */
Op *rebuild_loop(Module *m, Fn *f, Fn *body, LoopShape shape, const ValueId *in,
                 Loc loc); /* result types from the body */

/* Appends an op of one result whose type is known. */
ValueId emit_typed(Module *m, Fn *f, OpCode c, uint32_t nin, const ValueId *in, const Group *group,
                   Type t, Loc loc);
ValueId emit_spread(Module *m, Fn *f, ValueId v, Type t,
                    Loc loc); /* expanded to the dims of t, in t's order */
ValueId emit_full(Module *m, Fn *f, Type t, double value, Loc loc); /* a constant of any dims */
ValueId emit_sum_all(Module *m, Fn *f, ValueId v, Loc loc);         /* sum over every dim */

Span span_of(const Module *m, Loc at); /* for diagnostics */
const char *op_said(const Module *m,
                    const Op *o); /* the word of the file for it, NULL: none is known */
Fn *entry_of(const Module *m, const char *name); /* NULL if absent */
/* Does it make gradients: a step, before 1-bit Adam's freeze or after it, or a late one? */
bool entry_trains(const Fn *f);
Global *global_named(const Module *m, const char *name);

/* The same op, its operands aside: code, groups, attributes, callee or global (simplify.c). */
bool op_alike(const Op *a, const Op *b);

/* Does it, or what a loop runs, store, send, or do other ranks wait for it? It is never dead. */
bool op_acts(const Op *o);

/* Pass `classes`; `together`: with the collectives that other classes need (classes.c). */
void classes_apart(Module *m, bool together);
/* Copies a loop over layers that the class has fewer of than it has room for (class_layers.c);
   false: it is like others. */
bool class_layers(Rebuild *rebuild, const Op *o);
/* Of its rounds each does something on every stage of the class, once they are cut. */
bool class_layers_full(const Module *m, const Op *loop);

/* Simplifies every function until nothing changes (simplify.c). `after_grad`: stop_gradient has
 * done its work. */
void simplify_module(Module *m, bool after_grad);
void place_kept(Module *m);   /* part of place: what loops keep for others, split further */
void place_stages(Module *m); /* layers over ranks (place_stages.c) */
/* E0901 at the line that puts layers on the axis: why the schedule of its stages is not built for
 * this model, and what is. */
void stages_refuse(Module *m, Str axis, const char *why, const char *help);
/* The loop over parts of the batch in an entry, NULL: there is one part alone. */
const Op *parts_loop(const Module *m, const Fn *entry);
#endif
