/* A parameter as matrices, for updates that need them whole (matrix.c, muon.c). */
#ifndef SHARDC_PASSES_MATRIX_H
#define SHARDC_PASSES_MATRIX_H
#include "update.h"

/* Dims of the parameter: those that products sum, those that they keep; one matrix for each index
   of the others, such as rounds of a stack. */
typedef struct UpdateMatrix {
  Str in[MAX_RANK], out[MAX_RANK];
  int nin, nout;
  int64_t fan_in, fan_out;
} UpdateMatrix;

/* Is it read by products alone, and which matrix is it to them? */
bool matrix_find(Module *m, const Global *global, UpdateMatrix *to);
/* From the products of entry `eval` that read the parameter. False: E0602 was given. */
bool matrix_of(Module *m, const Global *global, int line, UpdateMatrix *to);
#endif
