/* Reverse mode, internal declarations: the state of a differentiation that gradient rules use. A
   Back differentiates one function. Its ops are written to a scratch function whose arguments are
   the forward values it reads and the gradients it starts from; the caller decides how those are
   supplied (grad.c: same entry; grad_loop.c: operands of a reversed loop). */
#ifndef SHARDC_PASSES_GRAD_H
#define SHARDC_PASSES_GRAD_H
#include "passes/base/rebuild.h"

/* An argument of the scratch function that represents a value of the forward function. */
typedef struct Read {
  ValueId value;  /* a value of the forward function, or NO_VALUE: */
  OpId loop;      /* an extra stacked result of this loop */
  uint32_t extra; /* which one */
  ValueId arg;
} Read;

/* A differentiated loop of the forward function: the same loop with more stacked results. */
typedef struct Extended {
  Fn *body; /* NULL: as before */
  uint32_t extras;
} Extended;

typedef struct Back {
  Module *m;
  const Fn *f;        /* forward */
  Fn *b;              /* scratch */
  const bool *varied; /* by value of f: depends on a value whose gradient is needed */
  ValueList *parts;   /* by value of f: contributions to its gradient, values of b */
  ValueId *total;     /* by value of f: their sum, once requested */
  ValueId *readable;  /* by value of f: its argument or copy in b */
  VEC(Read) reads;
  Extended *extended; /* by op of f */
  Loc loc;            /* of the op in work */
} Back;

typedef void GradRule(Back *k, const Op *o,
                      const ValueId *dy); /* dy[i]: gradient of result i or NO_VALUE */

Back *back_new(Module *m, const Fn *f, const bool *varied);
void back_run(Back *back); /* all ops of f, last to first; seeds were given */
bool *varied_values(Module *m, const Fn *f,
                    const bool *args); /* loads of parameters also start it */
bool *varied_body(Module *m, const Fn *f, const Op *loop, const bool *varied);
bool grad_differentiable(const Type *t);
Fn *extended_forward(
    Back *back,
    Rebuild *rebuild); /* copies f with its extended loops; r->map maps all values, fills rebuild */
ValueId *
map_reads(Back *back,
          const Rebuild *rebuild); /* scratch arguments that are reads -> values of r->to */

ValueId back_read(Back *back, ValueId v); /* the value v of f in b */
ValueId back_read_extra(Back *back, OpId loop, uint32_t extra, Type t);
void back_seed(Back *back, ValueId v,
               ValueId g);                 /* adds g to the gradient of v; g has exactly v's dims */
ValueId back_total(Back *back, ValueId v); /* the gradient of v or NO_VALUE */

/* For rules. */
bool grad_wants(const Back *k, const Op *o, uint32_t i); /* is a gradient of operand i needed */
ValueId grad_in(Back *k, const Op *o, uint32_t i);       /* operand i, in b */
ValueId grad_out(Back *k, const Op *o, uint32_t i);      /* result i, in b */
const Type *grad_in_type(const Back *k, const Op *o, uint32_t i);
const Type *grad_out_type(const Back *k, const Op *o, uint32_t i);
void grad_give(Back *k, const Op *o, uint32_t i,
               ValueId g); /* summed over dims that operand i lacks; checked */
ValueId grad_unary(Back *k, OpCode c, ValueId a);
ValueId grad_binary(Back *k, OpCode c, ValueId a, ValueId b);
ValueId grad_number(Back *k, ValueId like, double value); /* a constant of like's element type */
ValueId grad_scaled(Back *k, ValueId a, double factor);
ValueId grad_zeros(Back *k, const Type *t);

#define GRAD(op, rule) GradRule rule;
#include "grad.def"
#undef GRAD
#endif
