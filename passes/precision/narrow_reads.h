/* Readers of parameters that need them in the compute type: which loads, values inside of loops and
   operands of loops could be narrow without a change of any number. */
#ifndef SHARDC_PASSES_NARROW_READS_H
#define SHARDC_PASSES_NARROW_READS_H
#include "passes/base/rebuild.h"

typedef struct NarrowReads {
  Module *m;
  Elem elem;     /* the compute type */
  bool wide_too; /* entries may load a parameter in both types */
  bool **is;     /* by function, by value: a parameter, or a permutation of its elements, .. */
  bool *global;  /* by global: a candidate; ends as: its loads are narrow */
  bool changed;
} NarrowReads;

/* With all values derived from parameters that `takes` accepts as candidates, values with other
   readers are removed until none is left. False: there is no such parameter. */
bool narrow_reads(NarrowReads *reads, Module *m, Elem elem, bool wide_too,
                  bool takes(const Module *m, const Global *global));
/* Does operand i of an op of function number f, a value that `is`, read it in the compute type? */
bool narrow_operand(const NarrowReads *reads, uint32_t f, const Op *o, uint32_t i);
/* The same elements, some of them, or in other places. */
bool narrow_moves(const Op *o);
void narrow_function(const NarrowReads *reads, uint32_t f);
#endif
