/* Inside of the shape rules (shape.c, shape_given.c, shape_call.c): what a rule sees and the
   vocabulary they share. A rule fills out[] and returns NULL, or returns why the op is wrong: text
   that begins with the constraint's label as in docs/ir.md, such as [dot-c2]. */
#ifndef SHARDC_SHAPE_H
#define SHARDC_SHAPE_H
#include "ir/ir.h"

typedef struct Shape {
  Module *m;
  const Fn *f;
  const Op *op;
  Type *out; /* [op->nout] */
} Shape;

typedef const char *ShapeRule(Shape *s);

ShapeRule shape_rule_given, shape_rule_call, shape_rule_loop;

const char *shape_why(const Shape *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const Type *shape_in(const Shape *s, uint32_t i);
const Type *shape_carried(const Shape *s);     /* the type that the op's result has now */
Group shape_group(const Shape *s, int i);      /* empty if the op has fewer */
bool shape_same(const Type *a, const Type *b); /* same element type and dims, in any order */
const char *shape_text(const Shape *s, const Type *t);
const char *shape_has(const Shape *s, const Type *t, Str dim); /* why not; NULL: it has the dim */
/* Exactly one group with n dims (n < 0: any number), with or without an arrow, each dim once; else
 * why not. */
const char *shape_one_group(const Shape *s, int n, bool arrow);
#endif
