/* Random inputs of whole programs: a number that follows from the global's name and the element's
   place alone, so that two modules get the same. */
#ifndef SHARDC_TESTS_MADE_UP_H
#define SHARDC_TESTS_MADE_UP_H
#include "ir/ir.h"
#include <math.h>

static inline double made_up(const Global *g, int64_t i, const Module *m) {
  uint64_t h = 1469598103934665603u;
  for (const char *c = g->name; *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211u;
  h = (h + (uint64_t)i) * 6364136223846793005u, h ^= h >> 29, h *= 2862933555777941757u;
  double u = (double)(h >> 40) / 16777216.0;
  int64_t of = 2;
  for (uint32_t k = 0; g->of && k < m->dims.n; k++)
    if (m->dims.at[k].name == g->of) of = m->dims.at[k].size;
  if (elem_class(g->type.elem) != CLASS_FLOAT) return floor(u * (double)of);
  return g->kind == GLOBAL_STATE ? 1e-6 * (1 + 2 * u) : (float)(2 * u - 1);
}
#endif
