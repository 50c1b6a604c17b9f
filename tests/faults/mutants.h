/* Types of seeded faults (mutants.c), and the faults of storage (mutants_storage.c), of lists. */
#ifndef SHARDC_MUTANTS_H
#define SHARDC_MUTANTS_H
#include "ir/ir.h"

typedef struct Fault {
  Module *m;
  Fn *f;
  OpId at;
  Op *op;
  uint64_t random;
  const char *what;
} Fault;

/* A number below n; 0 if n is. */
uint32_t fault_below(Fault *x, uint64_t n);
/* Another value that could replace v; NO_VALUE: there is none. */
ValueId fault_another(Fault *x, ValueId v);

/* Each changes one thing at x, if it can. */
bool fault_other_stride(Fault *x);
bool fault_other_view(Fault *x);
bool fault_new_view(Fault *x);
bool fault_other_place(Fault *x);
bool fault_other_laid(Fault *x);
bool fault_other_shape_of_kernel(Fault *x);
bool fault_smaller_frame(Fault *x);
bool fault_other_row(Fault *x);

/* Faults in lists of blocks (mutants_lists.c), in some function of x->m. */
bool fault_other_lists(Fault *x);

#endif
