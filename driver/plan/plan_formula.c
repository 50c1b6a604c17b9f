/* The formulas of `zero` next to a plan's bytes: with Ψ parameters and N ranks that share them,
   stage 1 keeps k Ψ/N bytes of optimizer states, stage 2 also that share of gradients, stage 3 also
   of parameters ("ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section
   5). Ψ is the number of parameters on one rank without `zero`; k is derived from the byte counts;
   the formula is printed only if k is integral up to padding, and never for 1-bit Adam, which has
   several kinds of states. Must not: count bytes, which module_budget does. */
#include "plan_report.h"
#include "ir/plan/module_settings.h"
#include <math.h>
#include <stdlib.h>

static double parameters(const Module *m) {
  double n = 0;
  EACH_GLOBAL (m, global)
    if (global->kind == GLOBAL_PARAM && global_is_tensor(m, global))
      n += (double)type_count(&global->type);
  return n;
}

/* Ranks that share a flat group: the product of the axes on which one is a shard. */
static int64_t sharing(const Module *m) {
  EACH_GLOBAL (m, global) {
    int64_t n = 1;
    for (uint32_t a = 0; a < m->mesh.n && !global_is_tensor(m, global); a++)
      if (global->placed.on[a]) n *= m->mesh.at[a].size;
    if (n > 1) return n;
  }
  return 1;
}

const char *plan_formula(const Module *m, int part, int64_t bytes) {
  static const int from[] = {3, 2, 1}; /* the stage that shares weights, gradients, states */
  int stage = plan_zero_stage(m);
  if (part >= 3 || !stage || !bytes || (from[part] == 1 && train_freezes(m))) return "";
  int64_t n = stage >= from[part] ? sharing(m) : 1;
  double k = (double)bytes * (double)n / parameters(m), whole = round(k);
  if (whole < 1 || fabs(k - whole) > 0.02 * whole) return "";
  const char *text = arena_printf(m->arena, "  = %.0f Ψ", whole);
  return n > 1 ? arena_printf(m->arena, "%s/%lld", text, (long long)n) : text;
}
