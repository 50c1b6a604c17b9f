/* Numbers for the inputs of a random program; shared by check.c and trial.c, each of which draws
   from a state of its own. */
#ifndef SHARDC_TESTS_PROGRAMS_INPUTS_H
#define SHARDC_TESTS_PROGRAMS_INPUTS_H
#include "ir/ir.h"
#include <string.h>

static uint64_t state = 1;

static uint64_t draw(uint64_t n) { /* splitmix64 */
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (z ^ (z >> 31)) % n;
}

static int64_t size_named(const Module *m, Str name) {
  for (uint32_t i = 0; i < m->dims.n; i++)
    if (!strcmp(m->dims.at[i].name, name)) return m->dims.at[i].size;
  return 1;
}

static double input_value(const Module *m, const Global *g) {
  if (g->of) return (double)draw((uint64_t)size_named(m, g->of));
  if (g->type.elem == ELEM_bool) return draw(4) > 0;
  return elem_class(g->type.elem) == CLASS_INT ? (double)draw(5) : (double)draw(4001) / 1000 - 2;
}
#endif
