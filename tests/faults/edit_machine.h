/* Runs kernels that an edit has changed on their device: on this processor, compiled into this
   process, or on the machine of tests/gpu. Every buffer has memory of its own, whose end is
   guarded; the interpreter continues with the results of the kernel.

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
