/* Kernels of a module, compiled into this process and run where they are.

     Jit *j = jit_new(arena);
     jit_add(j, m);                          every kernel function of m
     interp_set_kernels(in, jit_kernel, j);  the interpreter in bytes runs them

   What an earlier module had already is not compiled again. A kernel that LLVM cannot make ends the
   process: whoever wants to live on forks. */
#ifndef SHARDC_TESTS_JIT_H
#define SHARDC_TESTS_JIT_H
#include "ir/interp/interp.h"

typedef struct Jit Jit;

Jit *jit_new(Arena *a);
void jit_add(Jit *j, Module *m);
void jit_add_kernel(Jit *j, Module *m, const Fn *k);           /* this one alone */
bool jit_kernel(void *jit, const Fn *k, void *const *buffers); /* false: there is no such kernel */
#endif
