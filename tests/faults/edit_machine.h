/* Kernels that an edit has changed, run where they would run: on this processor, compiled into this
   process, or on the machine of tests/gpu. Every buffer stands in memory of its own, whose end is
   guarded; what a kernel leaves in its results is what the interpreter goes on with.

   A processor's kernel that reads or writes past a buffer ends the process by a signal. */
#ifndef SHARDC_TESTS_EDIT_MACHINE_H
#define SHARDC_TESTS_EDIT_MACHINE_H
#include "ir/interp/interp.h"

typedef struct Machines Machines;

/* Compiles kernels of m that `sound` has not, the first few; they run where this processor can. */
Machines *machines_new(Module *m, const Module *sound);
bool machines_kernel(void *machines, const Fn *k, void *const *buffers); /* an InterpKernel */
bool machines_ran(const Machines *x);                                    /* has any of them run? */
const char *machines_error(const Machines *x); /* the first complaint; NULL: none */
#endif
