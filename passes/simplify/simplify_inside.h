/* simplify, internal declarations, shared by its three files. */
#ifndef SHARDC_SIMPLIFY_INSIDE_H
#define SHARDC_SIMPLIFY_INSIDE_H
#include "simplify.h"

typedef struct Simplify {
  Module *m;
  Fn *to;          /* the function being made; rules look up definitions in it and append to it */
  bool after_grad; /* stop_gradient has done its work */
} Simplify;

/* A value that equals result 0 of op `o` (operands already mapped to s->to), or NO_VALUE. Groups
   and attributes are o's; its result type is `t`. */
ValueId simplify_rule(Simplify *simplify, const Op *o, const Type *t);

/* Shrinks the signatures of all loops in f; NULL if there was nothing to do (simplify_loops.c). */
Fn *simplify_loops(Module *m, const Fn *f);
bool *live_values(Module *m, const Fn *f, const bool *results); /* results NULL: all of them */
bool simplify_same_names(int n, const Str *a, const Str *b);
#endif
