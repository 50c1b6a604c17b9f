/* The reference interpreter: runs any module at any point of the pipeline in plain loops. It is the
   oracle: passes are tested by running before and after, kernels against it, gradients against
   finite differences of it.

     Interp *in = interp_new(m, arena);
     interp_set(in, "tokens", data);           dense, declared order, ints and bools as doubles
     if (!interp_run(in, "step")) puts(interp_error(in));
     double loss = interp_get(in, "loss")->at[0];

   The module must verify. Tensors are dense in the order of their type; everything goes by the
   names of dims, so that storage order never matters. Reductions add up in double; float results
   are then rounded to their element type. */
#ifndef SHARDC_INTERP_H
#define SHARDC_INTERP_H
#include "ir/ir.h"

typedef struct Tensor {
  Type type;
  double *at; /* dense in the order of type */
} Tensor;

typedef struct Interp Interp;

Interp *interp_new(Module *m, Arena *arena);
void interp_set_round(
    Interp *in, bool on); /* on at first; off: all floats are doubles, for finite differences */
/* Off at first; on: a cast to u8, which is how passes/precision/int8.c makes codes, is x - 1/2, the
   mean of what truncation makes of it: messages in 8 bits then change no number. */
void interp_set_exact_codes(Interp *in, bool on);
/* From now on every float result that is not a whole number is changed by up to that share of
   itself, at random from the seed; 0: none is. Results that then change by more depend on rounding
   (CESTAC, Vignes, 1993). */
void interp_set_noise(Interp *in, double share, uint64_t seed);
/* On, and off at first: floats are elements of a prime field (field.h) in place of rounded numbers.
   Floats that are set must be elements; messages in 8 bits change no number. */
void interp_set_field(Interp *in, bool on);
/* In a field, off at first; on: x < infinity is false for an x without dims, as of a guard, if x is
   that number or its negative; NAN: for all. */
void interp_set_infinite(Interp *in, bool on, double which);
void interp_set(Interp *in, const char *global, const double *data);
void interp_set_all(Interp *in, const char *global, double value); /* every element */
const Tensor *interp_get(const Interp *in, const char *global);    /* NULL: no such global */
bool interp_run(Interp *in,
                const char *entry); /* stores take effect at the end; false: see interp_error */
/* As interp_run, for a module after pass `memory`: in byte arenas, by placement and strides, as the
   host program does. All bytes are poisoned at first and remember which value wrote them last;
   false if one is read as another value. */
bool interp_run_placed(Interp *in, const char *entry);
/* Kernels in bytes are run by this function from now on: buffers are the operands', the results'
   and the workspace, as codegen.h says; false: it does not have this one, which is run as before.
   */
typedef bool InterpKernel(void *state, const Fn *k, void *const *buffers);
void interp_set_kernels(Interp *in, InterpKernel *run, void *state);
/* In bytes: messages in flight arrive when they start; off at first: when they are waited for. */
void interp_set_early(Interp *in, bool on);
/* A budget that interpreters share: numbers that are computed or moved, and a share for every op.
   An entry that exceeds it ends with the error interp_spent. That depends on the programs alone:
   not on the machine, and not on which rank is faster. */
typedef struct InterpWork {
  _Atomic int64_t left;
} InterpWork;
extern const char interp_spent[];
void interp_set_work(Interp *in, InterpWork *work); /* NULL, as at first: no limit */
const char *interp_error(const Interp *in);
/* An element-wise op of numbers. */
double interp_scalar(const Op *op, const double *x);
/* Runs one function: args in the order of f->args, each with that argument's dims in any order.
   Fills results with tensors in the arena of interp_new, in the order of the types of f->results.
 */
void interp_call(Interp *in, const Fn *f, const Tensor *args, Tensor *results);
#endif
