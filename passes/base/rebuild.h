/* Functions that all passes use, and helpers for rebuilding a function.

   Passes never edit a list of ops in place. A Rebuild walks an old function and appends to a new
   one; `map` gives the new value for each old one. */
#ifndef SHARDC_PASSES_REBUILD_H
#define SHARDC_PASSES_REBUILD_H
#include "ir/loop.h"
#include "passes/pass.h"

/* The functions of the table (passes.def), each in a room of its own. */
#define PASS(name, function, needs, makes, breaks, help) PassRun function;
#include "passes/passes.def"
#undef PASS

typedef struct Rebuild {
  Module *m;
  const Fn *from;
  Fn *to;
  ValueId *map; /* by ValueId of from; NO_VALUE: not built (yet) */
} Rebuild;

Rebuild rebuild_begin(Module *m,
                      const Fn *from);   /* same kind, name, attributes, arguments; no ops yet */
Op *rebuild_op(Rebuild *r, const Op *o); /* copies o with mapped operands */
void rebuild_results(Rebuild *r);        /* results of from, mapped, become results of to */
ValueId *value_map(Module *m, const Fn *from); /* all NO_VALUE */

/* Ends a pass that rebuilt functions: removes what no entry reaches, orders callees before
   callers, gives every function a name of its own and every value the natural order of dims. For
   passes before `order`. */
void module_collect(Module *m);

/* False: their texts differ in more than the function's name. Cheaper than the texts. */
bool fn_may_equal(const Fn *a, const Fn *b);

/* A loop's operands and body arguments by role. */
typedef struct LoopShape {
  uint32_t carry, invariant, stacked; /* numbers of operands */
  int64_t trip;
  bool reverse;
  Axis axis;           /* the dim of its rounds */
  Str path;            /* the stack of the model that it is, or NULL */
  LoopRounds rounds;   /* what they are */
  Str stages;          /* the mesh axis that cuts its rounds, or NULL */
  int64_t layers;      /* number of rounds of all stages that do work; 0: all */
  bool streams;        /* the last stage alone has the final carried values */
  Str over;            /* mesh axes that split its kept values, or NULL */
  bool offload;        /* its kept values wait on the host */
  int64_t first, of;   /* the layer range of a stack of `of` layers; 0: all */
  const int64_t *into; /* by stacked result, ninto of them; later results: INTO_OWN */
  uint32_t ninto;
} LoopShape;
LoopShape loop_shape(const Op *o);
/* Is a result of a loop read by other loops alone, slice by slice? */
bool value_is_kept(const Fn *f, ValueId v);
/* Is every reader of a value such a loop? The function may return the value as well. */
bool value_goes_by_slices(const Fn *f, ValueId v);
int64_t loop_into(const LoopShape *shape, uint32_t result); /* as attribute `continues` says it */
Axis loop_axis(const LoopShape *shape, uint32_t result);    /* prepended to a stacked result */
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

#endif
