/* One side of a comparison in exact arithmetic: see equal_side.h. Must not: compare. */
#include "equal_side.h"
#include <string.h>

Runner runner_of(const EqualSide *side, InterpWork *work) {
  Module *m = side->programs[0];
  Runner runner = {.side = side};
  if (side->whole) {
    runner.whole = interp_new(m, m->arena);
    interp_set_field(runner.whole, true), interp_set_work(runner.whole, work);
    return runner;
  }
  runner.ranks = ranks_new_classes(side->programs, side->n, m->arena);
  ranks_set_field(runner.ranks, true), ranks_set_early(runner.ranks, side->early);
  ranks_set_work(runner.ranks, work);
  return runner;
}

/* The programs of other classes may not have it. */
bool runner_has(const Runner *runner, Str name) {
  const Module *m = runner->side->programs[0];
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (!strcmp(m->globals.at[i]->name, name)) return true;
  return false;
}

void runner_set(const Runner *runner, Str name, const double *data) {
  if (!runner_has(runner, name)) return;
  if (runner->whole) interp_set(runner->whole, name, data);
  else ranks_set(runner->ranks, name, data);
}

void runner_put(const Runner *runner, Str name, const double *data) {
  if (runner->whole) interp_set(runner->whole, name, data);
  else ranks_put(runner->ranks, name, data);
}

void runner_set_all(const Runner *runner, Str name, double value) {
  if (!runner_has(runner, name)) return;
  if (runner->whole) interp_set_all(runner->whole, name, value);
  else ranks_set_all(runner->ranks, name, value);
}

void runner_set_infinite(const Runner *runner, bool on, double which) {
  if (runner->whole) interp_set_infinite(runner->whole, on, which);
  else ranks_set_infinite(runner->ranks, on, which);
}

const Tensor *runner_get(const Runner *runner, Str name) {
  return runner->whole ? interp_get(runner->whole, name) : ranks_get(runner->ranks, name);
}

const char *runner_error(const Runner *runner) {
  const char *error = runner->whole ? interp_error(runner->whole) : ranks_error(runner->ranks);
  return error ? error : "no rank has it";
}

bool runner_has_entry(const Runner *runner, const char *name) {
  const Module *m = runner->side->programs[0];
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY && !strcmp(m->fns.at[i]->name, name)) return true;
  return false;
}

bool runner_run(const Runner *runner, const char *entry) {
  if (runner->whole) return interp_run(runner->whole, entry);
  return (runner->side->placed ? ranks_run_placed : ranks_run)(runner->ranks, entry);
}
