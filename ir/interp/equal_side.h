/* One side of a comparison in exact arithmetic (equal.h): the model in one program, or the programs
   of all ranks. The functions do the same for either. */
#ifndef SHARDC_EQUAL_SIDE_H
#define SHARDC_EQUAL_SIDE_H
#include "equal.h"
#include "interp_ranks.h"

typedef struct Runner {
  const EqualSide *side;
  Interp *whole; /* or */
  Ranks *ranks;
} Runner;

Runner runner_of(const EqualSide *side, InterpWork *work);
bool runner_has(const Runner *runner, Str name); /* a global of that name */
void runner_set(const Runner *runner, Str name, const double *data);
/* The numbers of a parameter or state, as runner_get gives them. */
void runner_put(const Runner *runner, Str name, const double *data);
void runner_set_all(const Runner *runner, Str name, double value);
void runner_set_infinite(const Runner *runner, bool on, double which);
const Tensor *runner_get(const Runner *runner, Str name);
const char *runner_error(const Runner *runner);
bool runner_has_entry(const Runner *runner, const char *name);
bool runner_run(const Runner *runner, const char *entry);

#endif
