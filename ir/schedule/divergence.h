/* After pass `localize`: along which axes of the mesh values may differ from rank to rank. The sets
   are upper bounds: a difference that arithmetic would cancel counts as one. */
#ifndef SHARDC_UNIFORM_H
#define SHARDC_UNIFORM_H
#include "ir/ir.h"

typedef uint8_t AxisSet; /* bit i: may differ along mesh axis i */

typedef struct Uniform {
  const Module *m;
  AxisSet *held; /* by global: along which axes it may differ */
  AxisSet **at;  /* by function, by value: the same; NULL: it is no entry */
} Uniform;

Uniform uniform_of(const Module *m);
AxisSet *uniform_held(const Uniform *uniform, const Global *g);
#endif
