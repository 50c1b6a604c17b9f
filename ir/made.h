/* Names that the compiler makes for globals and dims. In a user's name a `'` is only possible at
   the end of a word, and no word is the keyword `of`. A generated name has a `'` inside a word, or
   a word `of`: so no source file can contain it, whatever its dims, subs and stacks are called.

   Functions need no such names: those of users are PATH.forward, PATH.eval and PATH.logits; every
   other function ends in another word (`h.forward.bwd`) or is an entry. */
#ifndef SHARDC_IR_MADE_H
#define SHARDC_IR_MADE_H
#include "ir.h"

#define MADE_MICRO "micro'batch"       /* the dim of micro-batches in time */
#define MADE_GRADIENT "grad.of."       /* outputs: the gradient of a parameter */
#define MADE_NEXT "next.of."           /* outputs: the next value of a state with a rule */
#define MADE_PROJECTED "projected.of." /* outputs: an updated parameter, as `project` gives it */
#define MADE_COORDINATE "mesh.of."     /* scalars: the place of a rank on an axis */
#define MADE_SETTING "setting.of."     /* scalars: a setting that a run may change */
#define DELAY_FINE "delay.fine"        /* a state: is the waiting gradient to be applied? */
#define MADE_GROUP "zero.of."          /* flat groups of parameters (pass zero) */
#define MADE_COPY "copy.of."           /* parameters in the compute type (pass copies) */
#define MADE_CACHE "decode.of.cache."  /* inputs: keys or values of the positions before */
#define MADE_OWNER "Owner'"            /* their dims: whose piece it is, */
#define MADE_PIECE "Piece'"            /* and its elements */
/* dims of a parameter in the part of its update that is by matrices (muon.c) */
#define MADE_MATRIX "Matrix'"

Str name_made(const Module *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
Str made_coordinate(const Module *m, Str axis);
/* Behind a prefix of these; NULL: the name has another one. */
const char *made_rest(const char *name, const char *prefix);
/* Outputs of a rule (MADE_NEXT, MADE_PROJECTED): its parameter; NULL: another name. */
const char *made_rule(const char *name);
bool made_is_coordinate(const Global *global);
/* Is `name` the dim itself, or the dim with primes: Embed', Embed''? */
bool dim_is_primed(const char *name, const char *dim);
#endif
